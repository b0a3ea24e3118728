"""What all runs of a cache directory came to since its beginning, those too whose files are gone.

Not promised: events that a run lost, runs that are damaged or of a newer rewarm (`uncounted` says how many went), and
runs that had to go while this file could not be written. Seconds saved are those that hits
spared less what fetching and loading took; the programs are told apart by the names of their modules.

The files of runs are the truth for the runs that have one. Before a run's file is removed, what it adds up to is
folded into

    <cache directory>/savings.json        mode 0600, or 0660 where the directory is a group's

    file   := {"version": 1, "since": s or null, "runs": n, "uncounted": n, "lost": n, "programs": {name: totals},
               "others": totals, "other_programs": n, "folded": [ids of runs that are in the totals]}
    totals := [requests, hits, seconds saved, seconds compiling]

with a row for each of the 2,000 programs that saved most; the rest is summed up under "others". Bump `VERSION` when a
reader of today would misread what is written.

Whoever folds holds a lock (`flock`) on `.savings.lock` beside it, and nobody waits for it longer than 20 ms. Under
it: the file is read; the runs are added, and their ids noted under "folded"; the file is replaced and forced to disk;
then the runs' files go. An id stays under "folded" as long as there is a file of its name.

Races, and their worst outcome:

* two processes that fold at once: the second finds the lock held and leaves it to the first, or to a later start.
* a process that dies before the replacement: nothing was counted, and all files are there.
* a process that dies after it: the next to fold finds the ids under "folded", counts none again and removes the files.
* a power cut: the file is on the disk before a run's file goes; either is found again, and "folded" tells them apart.
* a reader beside one who folds: it reads this file before and after the runs, and again from the start if the two
  differ; after five times it takes what it has, in which runs that were just folded may be missing.
* a process that is stopped for a minute while it holds the lock, a full disk, a directory that may not be written to:
  nothing is folded, and the runs stay, up to twice their bounds. What is beyond these goes uncounted.
* a file system without locks: two that fold at once each replace what the other wrote, and one's runs are missing
  from the totals for good. None is counted twice: what is folded is what the file says that stayed.
* somebody removes the lock's file meanwhile: whoever took the lock of a file that is gone sees so, and does not fold.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rewarm import locks, small_files
from rewarm.ledger.journal import RUNS, SUFFIX, has_writer, open_to_look
from rewarm.ledger.runs import BadRunError, iterate_events, run_ids, run_info

FILE = "savings.json"
LOCK = ".savings.lock"
VERSION = 1
PROGRAMS_KEPT = 2000

# One start does not pay for all that others left: it reads no more of their runs than this, and one run.
_BYTES_AT_ONCE = 2 << 20
_REMOVED_AT_ONCE = 128

_LOCK_TRIES = 5
_LOCK_PAUSE = 0.004
# Whoever holds the lock for longer than this, in seconds, does not work any more.
_LOCK_AT_MOST = 60.0
_LOOKS = 5
_LIMIT = 4 << 20  # of the file; 2,000 programs need some 200 KB


class Totals(NamedTuple):
    """Some requests, added up.

    Attributes:
      requests: programs that JAX wanted compiled.
      hits: those that were not compiled.
      seconds_saved: compile time that hits spared, less what fetching and loading them took.
      seconds_compiling: time spent compiling misses.
    """

    requests: int = 0
    hits: int = 0
    seconds_saved: float = 0.0
    seconds_compiling: float = 0.0

    def plus(self, other: Totals) -> Totals:
        """Both together."""
        return Totals(
            self.requests + other.requests,
            self.hits + other.hits,
            self.seconds_saved + other.seconds_saved,
            self.seconds_compiling + other.seconds_compiling,
        )


_NOTHING = Totals()


@dataclass(frozen=True, slots=True)
class Savings:
    """What many runs came to.

    Attributes:
      since: the start of the first, in seconds since the epoch; `None` when there is none.
      runs: how many are in the totals.
      uncounted: how many were removed without being in them.
      lost: how many events the runs could not keep, as far as they say so.
      programs: by the name of the module.
      others: programs that have no row of their own any more.
      other_programs: how many rows were added to `others`; a program may have been among them twice.
      folded: ids of runs that are in the totals and may still have a file.
    """

    since: float | None = None
    runs: int = 0
    uncounted: int = 0
    lost: int = 0
    programs: Mapping[str, Totals] = dataclasses.field(default_factory=dict)
    others: Totals = _NOTHING
    other_programs: int = 0
    folded: tuple[str, ...] = ()

    def total(self) -> Totals:
        """All programs together."""
        return _sum([*self.programs.values(), self.others])

    def plus(self, run: Savings) -> Savings:
        """With another's numbers added."""
        programs = dict(self.programs)
        for name, totals in run.programs.items():
            programs[name] = programs.get(name, _NOTHING).plus(totals)
        starts = [start for start in (self.since, run.since) if start is not None]
        return Savings(
            since=min(starts, default=None),
            runs=self.runs + run.runs,
            uncounted=self.uncounted + run.uncounted,
            lost=self.lost + run.lost,
            programs=programs,
            others=self.others.plus(run.others),
            other_programs=self.other_programs + run.other_programs,
            folded=self.folded + run.folded,
        )

    def bounded(self) -> Savings:
        """With rows for the programs that saved most, and the rest under `others`."""
        if len(self.programs) <= PROGRAMS_KEPT:
            return self
        ranked = sorted(self.programs.items(), key=lambda row: (-row[1].seconds_saved, -row[1].seconds_compiling))
        kept, rest = ranked[:PROGRAMS_KEPT], ranked[PROGRAMS_KEPT:]
        others = _sum([self.others, *(totals for _, totals in rest)])
        number = self.other_programs + len(rest)
        return dataclasses.replace(self, programs=dict(kept), others=others, other_programs=number)


def _sum(rows: Iterable[Totals]) -> Totals:
    total = _NOTHING
    for row in rows:
        total = total.plus(row)
    return total


# ---------------------------------------------------------------------------------------------------------------
# Reading


def of_run(path: Path) -> Savings:
    """What one run came to.

    Raises:
      BadRunError: it is no run that can be read.
    """
    info = run_info(path)
    sums: dict[str, list[Any]] = {}
    for event in iterate_events(path):
        name = str(event.get("program"))
        row = sums.get(name)
        if row is None:
            row = sums[name] = list(_NOTHING)
        _add(event, row)
    programs = {name: Totals(*row) for name, row in sums.items()}
    return Savings(since=info.started, runs=1, lost=info.lost or 0, programs=programs, folded=(info.id,))


def _add(event: Mapping[str, Any], row: list[Any]) -> None:
    """Add an event to the numbers of a `Totals`; in place, since a run may have 20,000."""
    seconds = event.get("seconds")
    row[0] += 1
    row[1] += event.get("outcome") == "hit"
    row[2] += _number(event.get("seconds_saved"))
    row[3] += _number(seconds.get("compile") if isinstance(seconds, Mapping) else None)


def _number(value: Any) -> float:
    try:
        number = float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def all_time(directory: Path) -> Savings:
    """What all runs of a cache directory came to: the folded ones, and those that have a file.

    Raises:
      BadRunError: the directory of the runs may not be listed.
    """
    savings = Savings()
    for _ in range(_LOOKS):
        before = _contents(directory)
        savings = _with_runs(directory, _parsed(before) or Savings())
        if _contents(directory) == before:
            break
    return savings


def _with_runs(directory: Path, savings: Savings) -> Savings:
    folded = frozenset(savings.folded)
    for run_id in run_ids(directory):
        if run_id not in folded:
            with contextlib.suppress(BadRunError):
                savings = savings.plus(of_run(directory / RUNS / (run_id + SUFFIX)))
    return savings


def _contents(directory: Path) -> bytes:
    try:
        return small_files.contents(directory / FILE, _LIMIT)
    except OSError:
        return b""


def _parsed(data: bytes) -> Savings | None:
    """The savings in a file; `None` for what is none, or a newer rewarm's."""
    try:
        fields = json.loads(data)
        if fields["version"] != VERSION:
            return None
        return Savings(
            since=None if fields["since"] is None else float(fields["since"]),
            runs=int(fields["runs"]),
            uncounted=int(fields["uncounted"]),
            lost=int(fields["lost"]),
            programs={str(name): Totals(*row) for name, row in fields["programs"].items()},
            others=Totals(*fields["others"]),
            other_programs=int(fields["other_programs"]),
            folded=tuple(str(run_id) for run_id in fields["folded"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None


# ---------------------------------------------------------------------------------------------------------------
# Folding


class NotFoldedError(Exception):
    """The totals cannot be written now; the message says why. It never comes out of `retire`."""


class _BusyError(NotFoldedError):
    """Another process is folding at this moment."""


def retire(folder: Path, names: Sequence[str], urgent: Collection[str]) -> None:
    """Fold runs into the totals and remove their files, at most 128 and some 2 MiB of them; never raises `OSError`.

    Args:
      folder: of the runs.
      names: of their files, the first to go first. Those whose process lives stay.
      urgent: the names that go even if they cannot be folded.
    """
    try:
        with _lock(folder.parent):
            _fold(folder, [name for name in names if is_left(folder / name)][:_REMOVED_AT_ONCE], _BYTES_AT_ONCE)
    except _BusyError:
        return
    except NotFoldedError:
        left = [name for name in names if name in urgent and is_left(folder / name)]
        _remove(folder, left[:_REMOVED_AT_ONCE])


def fold_all(directory: Path) -> None:
    """Fold every run into the totals as far as it is written, and remove all their files.

    Raises:
      NotFoldedError: it cannot be done; nothing was removed.
    """
    folder = directory / RUNS
    names = sorted(run_id + SUFFIX for run_id in run_ids(directory))
    if names:
        with _lock(directory):
            _fold(folder, names, None)
    with contextlib.suppress(OSError):  # something that is no run is in it
        folder.rmdir()


def _fold(folder: Path, names: Sequence[str], budget: int | None) -> None:
    """Under the lock: count what is not counted yet, write that down, and only then remove."""
    savings = _load(folder.parent)
    counted = set(savings.folded)
    chosen: list[str] = []
    spent = 0
    for name in names:
        chosen.append(name)
        if name.removesuffix(SUFFIX) not in counted:
            try:
                run = of_run(folder / name)
                spent += (folder / name).stat().st_size
            except (BadRunError, OSError):
                run = Savings(uncounted=1)
            savings = savings.plus(run)
        if budget is not None and spent > budget:
            break
    still_there = tuple(run_id for run_id in savings.folded if (folder / (run_id + SUFFIX)).exists())
    _save(folder.parent, dataclasses.replace(savings, folded=still_there).bounded())
    _remove(folder, chosen)


def _load(root: Path) -> Savings:
    data = _contents(root)
    savings = _parsed(data)
    if savings is None and data:
        # A newer rewarm's, or damaged: neither is to be lost to a start of this one.
        _set_aside(root / FILE, data)
    return savings or Savings()


def _set_aside(path: Path, data: bytes) -> None:
    try:
        version = json.loads(data)["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        version = None
    if version is not None:
        raise NotFoldedError(f"{path} is of version {version!r}, and this rewarm writes version {VERSION}")
    try:
        path.replace(path.with_name("savings.damaged.json"))
    except OSError as error:
        raise NotFoldedError(f"{path} is damaged and cannot be moved: {error.strerror}") from error


def _save(root: Path, savings: Savings) -> None:
    fields = {"version": VERSION, **{name: getattr(savings, name) for name in Savings.__dataclass_fields__}}
    data = json.dumps(fields, separators=(",", ":")).encode("ascii")
    path = root / FILE
    try:
        small_files.replace(path, data)
        _force_to_disk(path)
    except OSError as error:
        raise NotFoldedError(f"cannot write {path}: {error.strerror or error}") from error


def _force_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_left(path: Path) -> bool:
    """Whether a run's process is gone, or the file is."""
    try:
        descriptor = open_to_look(path)
    except FileNotFoundError:
        return False
    except OSError:  # not ours to read
        return False
    try:
        return not has_writer(descriptor, os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        # A name is never used twice, so what was looked at is what goes. One that cannot go is not counted again.
        with contextlib.suppress(OSError):
            (folder / name).unlink()


@contextlib.contextmanager
def _lock(root: Path) -> Iterator[None]:
    """Hold the lock of those who fold; where the file system has none, nothing.

    Raises:
      NotFoldedError: another process holds it, or its file cannot be made.
    """
    path = root / LOCK
    try:
        mode = small_files.modes_in(root).file
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), mode)
        if mode != small_files.PRIVATE.file:
            with contextlib.suppress(OSError):  # not ours: whoever made it gave it its mode
                os.fchmod(descriptor, mode)
    except OSError as error:
        raise NotFoldedError(f"cannot open {path}: {error.strerror or error}") from error
    try:
        _take(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> None:
    for attempt in range(_LOCK_TRIES):
        ours = locks.try_lock(descriptor)
        if ours is None:  # no locks here
            return
        if ours:
            break
        if attempt + 1 == _LOCK_TRIES:
            taken = os.fstat(descriptor).st_mtime
            error = _BusyError if abs(time.time() - taken) < _LOCK_AT_MOST else NotFoldedError
            raise error(f"another process holds {path}")
        time.sleep(_LOCK_PAUSE)
    try:
        os.utime(path)
        same = os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        same = False
    if not same:
        raise NotFoldedError(f"{path} was removed meanwhile")
