"""Judging what processes left behind when they died: which entries ended them.

Not promised: the truth. Where a fatal signal left its report (`witness.py`), who was in hand is condemned for it,
unless it struck at a line of the user's: what was being loaded ahead, by some threads at once, if it struck in one of
these, what the program itself loaded or ran if it struck in another, and both where it struck in no thread of Python's.
Where a report would have been left and there is none, the process was ended
from outside or by itself, and nobody is. Where there was no witness (`faulthandler` was the user's, as under
`absl.app.run` and pytest, or a first run had lasted for 30 seconds), a death within the first two seconds of a first
run, or while loading, is taken for the entry's doing: the innocent are rebuilt, which costs a compile. A later death
condemns nobody: what ends a process does so soon, and who is ended from outside may have been at work for long.

A mark is judged once its process is dead. On the same host, a free lock says so. For marks of other hosts (a
container with another name among them) a lock may be free because the file system keeps locks to one host, and some
file systems have none: there a process is taken for dead when it has something in hand and was silent for a minute,
by the clock of the file system; while anything is in hand, a living process is heard each second.

Races, and their worst outcome:

* two starts at once: one judges while the other waits for its lock, so that neither loads what is about to be
  condemned. Where the lock is not to be had within a second, the start goes on without judging.
* a process that stood still for a minute (stopped, asleep) where locks say nothing: its entry is rebuilt for nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rewarm import locks
from rewarm.small_files import Modes
from rewarm.trials import condemned, marks
from rewarm.trials.condemned import CONDEMNED, UNSEEN, Line
from rewarm.trials.marks import InHand, LeftMark

LOCK = ".lock"
_WAIT = 1.0
_AT_ONCE = 256
_MARK_BYTES = 1 << 20
_LOOK = os.O_RDWR | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

# Where locks say nothing: silent for this long, in seconds, with something in hand, is dead; without, left behind.
_SILENT = 60.0

# Of a first run without a witness, in seconds: a longer one is more likely to be ended from outside than by the entry.
_SOON = 2.0
_LEFT = 86_400.0

# Takes an entry out of the way: key, reason, digest of the entry; says whether it is gone.
PutAside = Callable[[str, str, str], bool]


class Verdict(NamedTuple):
    """One entry that was condemned by this process.

    Attributes:
      line: as it is remembered.
      again: whether its key is refused from now on.
    """

    line: Line
    again: bool


class Judge:
    """Looks once at the marks in a folder.

    Args:
      folder: `<root>/trials`.
      host: this host.
      modes: the rights of what is made.
      put_aside: takes an entry out of the way.
    """

    def __init__(self, folder: Path, host: str, modes: Modes, put_aside: PutAside) -> None:
        self._folder = folder
        self._host = host
        self._modes = modes
        self._put_aside = put_aside
        self._now = time.time()
        self._lines: list[Line] = []
        self._verdicts: list[Verdict] = []

    def judge(self) -> list[Verdict]:
        """Judge the marks of dead processes, and remove them. Where nothing can be written, nothing is done."""
        with contextlib.suppress(OSError):
            names = self._names()
            if names:
                with locks.held(self._folder / LOCK, _WAIT, self._modes) as lock:
                    if lock is not None:
                        self._judge_all(names, lock)
        return self._verdicts

    def _names(self) -> list[str]:
        with os.scandir(self._folder) as items:
            return sorted(item.name for item in items if marks.is_mark_name(item.name))[:_AT_ONCE]

    def _judge_all(self, names: list[str], lock: int) -> None:
        os.utime(lock if os.utime in os.supports_fd else self._folder / LOCK)
        self._now = os.fstat(lock).st_mtime  # the clock that the marks' times are from
        self._lines = condemned.load(self._folder)
        for name in names:
            with contextlib.suppress(OSError):  # removed since, another user's, a strange file
                self._look_at(self._folder / name)

    def _look_at(self, path: Path) -> None:
        descriptor = os.open(path, _LOOK)
        try:
            status = os.fstat(descriptor)
            silent = self._now - status.st_mtime
            if not stat.S_ISREG(status.st_mode) or (status.st_size == 0 and silent < _LEFT):
                return
            free = locks.try_lock(descriptor) if status.st_size else True
            mark = marks.read(os.read(descriptor, _MARK_BYTES))
            if free is False or not self._is_dead(mark, bool(free), silent):
                return
            for one in mark.in_hand if mark is not None else ():
                assert mark is not None
                self._suspect(one, mark, status.st_mtime)
            path.unlink()
        finally:
            os.close(descriptor)

    def _is_dead(self, mark: LeftMark | None, free: bool, silent: float) -> bool:
        if mark is not None and free and mark.host == self._host:
            return True
        return silent >= (_SILENT if mark is not None and mark.in_hand else _LEFT)

    def _suspect(self, one: InHand, mark: LeftMark, died: float) -> None:
        if mark.witnessed and (mark.testimony is None or mark.testimony.users):
            return
        if mark.testimony is not None and mark.testimony.clears(ahead=one.step == marks.AHEAD):
            return
        unseen = mark.testimony is None and one.step == marks.RUNNING
        if unseen and died - one.since > _SOON:
            return
        known = [line for line in self._lines if line.key == one.key]
        if any(_same_event(one, line) for line in known):
            if one.content != one.key:
                self._put_aside(one.key, known[-1].reason, one.content)
            return
        what = "its first run" if one.step == marks.RUNNING else "loading it"
        moment = time.strftime("%Y-%m-%d %H:%M", time.gmtime(died))
        how = f" with {mark.testimony.signal.lower()}" if mark.testimony is not None else ""
        reason = f"{what} ended process {mark.pid}{how} on {moment} UTC"
        line = Line(one.key, one.content, one.program, reason, time.time(), mark.host, UNSEEN if unseen else CONDEMNED)
        line = line._replace(stays=not self._put_aside(one.key, reason, one.content))
        self._remember(line)
        self._verdicts.append(Verdict(line, one.key in condemned.refused(self._lines)))

    def _remember(self, line: Line) -> None:
        self._lines.append(line)
        condemned.save(self._folder, self._lines, self._modes)


def _same_event(one: InHand, line: Line) -> bool:
    """Whether a suspect is what was condemned already: the same entry, or, where that is not known, before then."""
    return line.content == one.content if one.content != one.key else one.since <= line.time
