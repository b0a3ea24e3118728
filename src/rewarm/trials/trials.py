"""Trials: the first load and the first run of an entry on a host, watched so that it ends a process once at most.

Not promised: that the process survives. It is the next start that finds the mark, puts the entry aside and compiles.
Nor that only the guilty are put aside: whatever was in hand when a process was killed is suspected; see `judge.py`. An
entry that was condemned is not loaded on this host again for 30 days, also where a remote still has it.

A crash of the user's own, before a load, between a load and the first run, or after the first run, condemns nothing.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rewarm import host, locks
from rewarm.small_files import PRIVATE, Modes
from rewarm.trials import condemned, marks, witness
from rewarm.trials.attendant import attendant
from rewarm.trials.condemned import Refused
from rewarm.trials.judge import LOCK, Judge, PutAside, Verdict
from rewarm.trials.marks import InHand, MarkFile
from rewarm.trials.place import place_of, places_of
from rewarm.trials.proved import Proved

_DROP_WAIT = 5.0


class Trial(NamedTuple):
    """One load of an entry that is not proved.

    Attributes:
      number: of the load, in this process.
      key: of the entry.
      content: the digest of the entry; the key where that is not known.
      program: its name.
    """

    number: int
    key: str
    content: str
    program: str


class Trials:
    """The trials of this process in one cache directory. Make one for each directory; the making judges.

    Safe for any number of threads. No method raises, and on a directory that cannot be written nothing is written.

    Args:
      root: the cache directory, which is there.
      put_aside: takes an entry out of the way: key, reason, digest of the entry (64 hexadecimal digits, or the key
        where it is not known); returns whether it is gone.
      tell: says one line to the user.
      modes: the rights of what is made.
    """

    def __init__(self, root: Path, put_aside: PutAside, tell: Callable[[str], None], modes: Modes = PRIVATE) -> None:
        self._root = root
        self._folder = place_of(root)
        self._modes = modes
        self._host = host.host_id()
        self._proved = Proved(self._folder, self._host, modes)
        self.verdicts: tuple[Verdict, ...] = ()
        self._begin()
        self._judge(put_aside, tell)
        known = [line for folder in places_of(root) for line in condemned.load(folder)]
        self._refused = condemned.refused(known)
        # What could not be taken out of the way is refused by its key, once it is sure.
        self._condemned = {line.content: line.reason for line in known if not line.stays}
        _all.append(self)

    def _begin(self) -> None:
        # A lock that its own thread may take twice: a signal handler may compile while a line is written.
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._mark = MarkFile(self._folder, self._host, self._modes)
        self._in_hand: set[int] = set()
        self._armed_at: float | None = None
        self._over = False

    def _judge(self, put_aside: PutAside, tell: Callable[[str], None]) -> None:
        self.verdicts = tuple(Judge(self._folder, self._host, self._modes, put_aside).judge())
        for line, again in self.verdicts:
            follows = "not loaded and not stored for 30 days" if again else "quarantined, it will be compiled"
            tell(f"entry {line.key[:12]} of {line.program} in {self._root} is not usable ({line.reason}): {follows}")

    def refused(self, key: str) -> str | None:
        """Why an entry of this key is neither loaded nor stored, or `None`."""
        found = self._refused.get(key)
        return found.reason if found is not None and time.time() < found.until else None

    def condemned(self, content: str) -> str | None:
        """Why the entry with this digest is not loaded here again, wherever it comes from, or `None`."""
        return self._condemned.get(content)

    def begin(self, key: str, program: str, content: str = "", *, ahead: bool = False) -> Trial | None:
        """An entry is about to be loaded; `None` when it is proved, or no mark can be made.

        `ahead`: by a thread of `restart.Ahead`, before the program asks for it.
        """
        content = content or key
        if self._proved.has(content):
            return None
        with self._lock:
            if self._over:
                return None
            trial = Trial(next(self._numbers), key, content, program)
            if self._mark.make():
                self._proved.remove_unused_hosts()
            return trial if self._step(marks.AHEAD if ahead else marks.LOADING, trial) else None

    def was_loaded(self, key: str, program: str, content: str) -> Trial | None:
        """An entry that was loaded is about to be given to the program; `None` when it is proved."""
        if self._over or self._proved.has(content):
            return None
        return Trial(next(self._numbers), key, content, program)

    def loaded(self, trial: Trial) -> None:
        """It was loaded, or the load failed; the process is alive."""
        with self._lock:
            self._end(trial, f"loaded {trial.number}\n")

    def running(self, trial: Trial) -> None:
        """It is about to run for the first time."""
        with self._lock:
            if not self._over:
                self._mark.make()
                self._step(marks.RUNNING, trial)

    def ran(self, trial: Trial, *, proved: bool) -> None:
        """The run is over; with `proved` it is known to have come to its end, and is not on trial here again."""
        with self._lock:
            self._end(trial, f"ran {trial.number}\n")
        if proved:
            self._proved.note(trial.content)
            attendant.stir(self._beat)

    def watch(self, trial: Trial, outcome: Callable[[], bool | None]) -> None:
        """A first run has outlasted its call: ask `outcome` until it says whether the run is proved, and end it."""

        def is_done() -> bool:
            proved = outcome()
            if proved is not None:
                self.ran(trial, proved=proved)
            return proved is not None

        attendant.watch(is_done)

    def _step(self, step: str, trial: Trial) -> bool:
        # The mark was looked at, or made, just now.
        line = marks.begun(trial.number, InHand(step, trial.key, trial.content, time.time(), trial.program))
        descriptor = self._mark.descriptor
        if descriptor is not None and witness.arm(descriptor):
            self._armed_at = time.monotonic()
            line = f"{marks.ARMED}\n{line}"
        if not self._mark.write(line, look=False):
            self._disarm()
            return False
        self._in_hand.add(trial.number)
        attendant.stir(self._beat)
        return True

    def _end(self, trial: Trial, line: str) -> None:
        if trial.number in self._in_hand:
            self._in_hand.discard(trial.number)
            over = not self._in_hand and self._disarm()
            self._mark.write(f"{line}{marks.DISARMED}\n" if over else line)
            if not self._in_hand:
                self._mark.start_anew_if_long()

    def _disarm(self) -> bool:
        """Leave fatal signals alone; whether they were ours."""
        ours, self._armed_at = self._armed_at is not None, None
        if ours:
            witness.disarm()
        return ours

    def _beat(self) -> bool:
        """Show that the process is alive, while something is in hand; whether anything is."""
        with self._lock:
            if self._armed_at is not None:
                late = time.monotonic() - self._armed_at > witness.PATIENCE
                if late or not witness.is_armed():
                    self._disarm()
                    self._mark.write(f"{marks.DISARMED}\n")
            if self._in_hand:
                self._mark.touch()
        return self._proved.keep() or bool(self._in_hand)

    def _finish(self) -> None:
        with self._lock:
            self._over = True
            self._in_hand.clear()
            self._disarm()
            self._mark.remove()
        self._proved.keep(at_once=True)

    def _renew_in_child(self) -> None:
        self._disarm()
        self._mark.leave()
        self._proved.leave()
        self._begin()


# One for each directory that this process uses; kept, so that each ends as it should.
_all: list[Trials] = []


@atexit.register
def _at_exit() -> None:
    # A process that comes here was not ended by an entry, whatever is still on its way in other threads.
    attendant.dismiss()
    for trials in _all:
        trials._finish()


def _after_fork_in_child() -> None:
    for trials in _all:
        trials._renew_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def refused_keys(root: Path) -> list[Refused]:
    """The keys that are neither loaded nor stored in a cache directory, the latest last."""
    lines = [line for folder in places_of(root) for line in condemned.load(folder)]
    return sorted(condemned.refused(lines).values(), key=lambda one: one.until)


def drop(root: Path, key: str | None = None, modes: Modes = PRIVATE) -> int:
    """Forget what is held against a key, or against all; returns how many deaths that were.

    Raises:
      OSError: it cannot be written, or another process kept the lock for five seconds.
    """
    return sum(_drop(folder, key, modes) for folder in places_of(root))


def _drop(folder: Path, key: str | None, modes: Modes) -> int:
    if not (folder / condemned.NAME).exists():
        return 0
    with locks.held(folder / LOCK, _DROP_WAIT, modes) as lock:
        if lock is None:
            raise TimeoutError(f"{folder} is locked by another process")
        lines = condemned.load(folder)
        kept = [] if key is None else [line for line in lines if line.key != key]
        condemned.save(folder, kept, modes)
    return len(lines) - len(kept)
