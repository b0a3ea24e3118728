"""First runs: what the cache tells of loads, and what the seam tells of runs, brought together for the trials.

Not promised: that a run is watched to its end. A run is proved when an output of it is ready; one whose outputs are
gone before that, or that has none, is on trial again at the next start.

A first run is waited for inside the call, for a second at most, so that the mark is gone before the user's next line:
whatever the program does to itself then is not blamed on the entry. The wait looks again and again and never blocks
in the runtime, so host callbacks, collectives and signals go on. What takes longer is watched from beside.

Races, and their worst outcome:

* a program that ends itself within 2 ms of the end of a first run that took longer than a second: the entry is
  suspected, and rebuilt once.
* two threads that run an executable for the first time at once: the first is watched, and speaks for both.
* an executable that was loaded and dropped without a run: it is held until the next load, or until 64 more are.
"""

from __future__ import annotations

import atexit
import functools
import operator
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rewarm.envelope import content_of
from rewarm.errors import BadEntryError, StoreError
from rewarm.jax_adapter import seam
from rewarm.small_files import PRIVATE, Modes
from rewarm.store import Store
from rewarm.trials import Trial, Trials, Verdict

_WAIT = 1.0
# Looks without a pause first: most runs are over by then, and on a busy machine the shortest sleep takes a millisecond.
_AT_ONCE = 100e-6
_SHORTEST, _LONGEST = 20e-6, 2e-3
_HELD = 64
_TRIES = 3

# Where this JAX has no place to watch a run from, it is taken as over after this many seconds.
_TAKEN_AS_OVER = 10.0


class _Awaited(NamedTuple):
    """An executable that was loaded and has not run yet."""

    executable: Any
    trial: Trial
    trials: Trials
    tries: int


_on_trial: dict[int, _Awaited] = {}
_lock = threading.RLock()


class EntryTrials:
    """The trials of one cache directory, as the cache wants them (`cache.Trials`). No method raises."""

    def __init__(self, root: Path, store: Store, tell: Callable[[str], None], modes: Modes = PRIVATE) -> None:
        self._trials = Trials(root, put_aside_in(store), tell, modes)
        self._loading: dict[tuple[int, str], Trial] = {}
        self._assumed = 0

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The entries that this process condemned when it opened the directory."""
        return self._trials.verdicts

    def refused(self, key: str) -> str | None:
        """See `cache.Trials`."""
        return self._trials.refused(key)

    def condemned(self, content: str) -> str | None:
        """See `cache.Trials`."""
        return self._trials.condemned(content)

    def before_load(self, key: str, program: str, content: str = "") -> None:
        """See `cache.Trials`."""
        self._assumed += 1
        trial = self._trials.begin(key, program, content)
        if trial is not None:
            self._loading[threading.get_ident(), key] = trial

    def after_load(self, key: str, executable: Any | None) -> None:
        """See `cache.Trials`."""
        trial = self._loading.pop((threading.get_ident(), key), None)
        if trial is None:
            return
        self._trials.loaded(trial)
        if executable is not None and not _await_run(_Awaited(executable, trial, self._trials, 0)):
            self._assume_run(trial)

    @contextmanager
    def loading_ahead(self, key: str, program: str, content: str) -> Iterator[None]:
        """Within it, an entry is loaded that nobody asked for yet. Its run is watched from `was_loaded` on."""
        trial = self._trials.begin(key, program, content, ahead=True)
        try:
            yield
        finally:
            if trial is not None:
                self._trials.loaded(trial)

    def was_loaded(self, key: str, program: str, content: str, executable: Any) -> None:
        """See `cache.Trials`."""
        self._assumed += 1
        trial = self._trials.was_loaded(key, program, content)
        if trial is not None and not _await_run(_Awaited(executable, trial, self._trials, 0)):
            self._assume_run(trial)

    def _assume_run(self, trial: Trial) -> None:
        until, loads = time.monotonic() + _TAKEN_AS_OVER, self._assumed
        self._trials.running(trial)
        self._trials.watch(trial, lambda: False if self._assumed != loads or time.monotonic() > until else None)


_known: dict[Path, EntryTrials] = {}


def trials_of(root: Path, store: Store, tell: Callable[[str], None], modes: Modes = PRIVATE) -> EntryTrials:
    """The trials of a cache directory; the first call for it in a process judges what dead processes left there."""
    with _lock:
        if root not in _known:
            _known[root] = EntryTrials(root, store, tell, modes)
        return _known[root]


def put_aside_in(store: Store) -> Callable[[str, str, str], bool]:
    """How an entry is taken out of this store, if it is still the one that was condemned."""

    def put_aside(key: str, reason: str, content: str) -> bool:
        try:
            data = store.get(key, use=False)
            if data is None or (content != key and content_of(data) != content):
                return True
            store.quarantine(key, reason, data)
            return store.get(key, use=False) != data
        except BadEntryError:
            return True  # the cache will put it aside itself
        except StoreError:
            return False

    return put_aside


# ---------------------------------------------------------------------------------------------------------------
# Runs


def _await_run(awaited: _Awaited) -> bool:
    """Watch for the first run of an executable; whether this JAX has where to watch from."""
    with _lock:
        _drop_orphans()
        if not seam.watch_runs(_on_trial, _first_run):
            return False
        _on_trial[id(awaited.executable)] = awaited
        return True


def _drop_orphans() -> None:
    """Let go of executables that nobody else holds, so that nobody can run them, and of the oldest of too many.

    They cannot be held weakly: their class does not have it.
    """
    held_here = 2  # by the record, and by the call that asks
    for identity, awaited in list(_on_trial.items()):
        if sys.getrefcount(awaited.executable) <= held_here or len(_on_trial) >= _HELD:
            del _on_trial[identity]


@atexit.register
def stop() -> None:
    """Watch no more runs: rewarm goes off, or the process ends."""
    with _lock:
        _on_trial.clear()
        seam.unwatch_runs()


def _first_run(original: Callable[..., Any], runner: Any, arguments: tuple[Any, ...]) -> Any:
    """Run an executable that is on trial."""
    with _lock:
        awaited = _on_trial.pop(id(runner.xla_executable), None)
        if not _on_trial:
            seam.unwatch_runs()
    if awaited is None:  # another thread was first
        return original(runner, *arguments)
    awaited.trials.running(awaited.trial)
    try:
        outputs = original(runner, *arguments)
    except BaseException:
        # The process is alive; whether anything ran is not known.
        awaited.trials.ran(awaited.trial, proved=False)
        if awaited.tries < _TRIES:
            _await_run(awaited._replace(tries=awaited.tries + 1))
        raise
    _see_to_end(awaited, outputs)
    return outputs


def _see_to_end(awaited: _Awaited, outputs: Any) -> None:
    array = seam.array_of(outputs)
    if array is None:
        awaited.trials.ran(awaited.trial, proved=False)
        return
    proved = None
    try:
        proved = _wait_for(array)
    finally:  # a signal handler may raise, such as Ctrl-C's
        if proved is None:
            awaited.trials.watch(awaited.trial, functools.partial(_outcome, array))
        else:
            awaited.trials.ran(awaited.trial, proved=proved)


def _wait_for(array: Any) -> bool | None:
    begun, pause = time.monotonic(), _SHORTEST
    while (proved := _outcome(array)) is None and (waited := time.monotonic() - begun) < _WAIT:
        if waited > _AT_ONCE:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)
    return proved


def _outcome(array: Any) -> bool | None:
    """Whether a run has come to its end: True; `None`: not yet; False: that cannot be known any more."""
    try:
        # In one go, so that no other thread deletes the array in between: in JAX 0.9 and 0.10 `is_ready` of an array
        # that was deleted ends the process.
        if not any(map(operator.call, (array.is_deleted, array.is_ready))):
            return None
        return not array.is_deleted()
    except Exception:  # noqa: BLE001 - whatever a later JAX says to that
        return False


_of_parents: list[object] = []


def _after_fork_in_child() -> None:
    # Executables of the parent may not be destroyed in a child, whose runtime has no threads any more.
    global _lock  # noqa: PLW0603 - whoever held it does not exist in the child
    _lock = threading.RLock()
    _of_parents.append(dict(_on_trial))
    _on_trial.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
