"""Winners in the life of a test run: what a lock file has is in force, and what tests tuned goes into one.

Not promised: winners of tests that turn rewarm on with a directory of their own: what is dumped is what the directory
of the environment has. Nor anything while REWARM=0.

A run that loads or dumps winners needs rewarm on. Where the environment says nothing of it, the run has a cache of its
own, which is gone at the end; XLA:GPU's results are not looked after there (REWARM_AUTOTUNE=0): the run does that.

    <folder>/winners.lock     what was loaded, with no part of XLA's: REWARM_AUTOTUNE_LOCK names it
    <folder>/cache            the run's own cache

Workers of pytest-xdist have the variables from whoever began the run, and begin nothing.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rewarm import lock_sections
from rewarm.errors import RewarmError
from rewarm.store import LocalStore
from rewarm.tunables import text_file
from rewarm.tunables.keeping import Keeping
from rewarm.tunables.merging import is_decided
from rewarm.tunables.records import Record

_FOLDER = "rewarm-winners-"
_LOCK = "REWARM_AUTOTUNE_LOCK"


class WinnersError(RewarmError, ValueError):
    """What was to be loaded or dumped cannot be."""


def is_lock(path: Path) -> bool:
    """Whether a path is a lock file."""
    try:
        if not path.is_file():  # opening a FIFO would wait
            return False
        with path.open("rb") as file:
            return file.read(len(lock_sections.FIRST)) == lock_sections.FIRST.encode()
    except OSError:
        return False


@dataclass(slots=True)
class Winners:
    """A run's winners.

    Attributes:
      loaded: what is in force.
      load_has_more: whether the file that was loaded pins XLA's tuning, too.
      variables: what the environment of the run has to have.
      folder: of the run; `None` where none is needed.
      is_worker: somebody else began the run, and dumps.
    """

    loaded: list[Record] = field(default_factory=list)
    load_has_more: bool = True
    variables: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    is_worker: bool = False
    _before: frozenset[str] = frozenset()
    _began: float = 0.0

    def tuned(self, directory: Path) -> list[Record]:
        """What was tuned since the run began, by what this directory has."""
        found = Keeping(LocalStore(directory)).all()
        return [one for one in found if one.text not in self._before and (one.when or self._began) >= self._began]

    def dump(self, path: Path, directory: Path) -> tuple[int, int]:
        """Add what was loaded, and tuned, to a lock file; returns how many cases it has then, and how many are new.

        Raises:
          LockFileError: something else is there.
          OSError: it cannot be written.
        """
        tuned = [one for one in self.tuned(directory) if is_decided(one)]
        if not self.loaded and not tuned:
            return 0, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        return text_file.dump(path, [*self.loaded, *tuned], add=True), len(tuned)

    def end(self) -> None:
        """Remove the run's folder."""
        if self.folder is not None and not self.is_worker:
            shutil.rmtree(self.folder, ignore_errors=True)


def begun(
    environment: Mapping[str, str],
    load: Path | None,
    dump: Path | None,
    *,
    strict: bool,
    is_worker: bool,
    is_said: bool,
) -> Winners:
    """What a run of tests needs.

    Args:
      environment: of the run, as it is.
      load: a lock file, or anything else, which has no winners.
      dump: the lock file that winners go to.
      strict: untuned calls are errors.
      is_worker: of pytest-xdist.
      is_said: whether the environment says that rewarm is on, or off, or where it keeps things.

    Raises:
      LockFileError: a file cannot be used.
      WinnersError: the environment names another lock file.
      OSError: the run's folder cannot be made.
    """
    found = Winners(is_worker=is_worker, _began=time.time() - 1.0)
    if strict:
        found.variables["REWARM_UNTUNED"] = "error"
    if load is not None and is_lock(load):
        found.loaded = text_file.load(load)
        found.load_has_more = lock_sections.read(load).has_main or not found.loaded
    if dump is not None and dump.exists():
        text_file.load(dump)  # what would be said at the end is said at the beginning
    if is_worker or not (found.loaded or dump is not None):
        return found
    _refuse_other(environment, found)
    found.folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
    if found.loaded:
        text_file.dump(found.folder / "winners.lock", found.loaded, timings=True)
        found.variables[_LOCK] = str(found.folder / "winners.lock")
    if not is_said or _is_of_run(environment):
        found.variables |= {"REWARM": "1", "REWARM_DIR": str(found.folder / "cache"), "REWARM_AUTOTUNE": "0"}
    elif directory := environment.get("REWARM_DIR"):
        found._before = frozenset(one.text for one in Keeping(LocalStore(Path(directory))).all())
    return found


def _refuse_other(environment: Mapping[str, str], found: Winners) -> None:
    """A run inside a test of another one has its own; else two files would say what is pinned."""
    other = environment.get(_LOCK, "")
    if found.loaded and other and not Path(other).parent.name.startswith(_FOLDER):
        raise WinnersError(f"{_LOCK} is {other}, and the file to load pins winners, too: unset it, or load that file")


def _is_of_run(environment: Mapping[str, str]) -> bool:
    """Whether the cache of the environment is that of a run around this one, which is none of its."""
    return Path(environment.get("REWARM_DIR", "")).parent.name.startswith(_FOLDER)
