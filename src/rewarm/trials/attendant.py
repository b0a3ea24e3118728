"""The attendant: one thread of a process that watches what takes longer than a moment.

Not promised: that it runs. It starts with the first load that is on trial, ends five seconds after the last one, and
is a daemon: it holds no lock of the runtime and never waits inside it, so that a process can end at any time.

It shows each second that the process is alive while something is in hand, and asks those first runs that outlast
their call whether they are done: each 2 ms in the first ten seconds, then each 50 ms.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

_BEAT = 1.0
_LINGER = 5.0
_OFTEN, _SELDOM = 0.002, 0.05
_OFTEN_FOR = 10.0


class _Watched(NamedTuple):
    is_done: Callable[[], bool]
    since: float


class Attendant:
    """See the module. Safe for any number of threads."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._runs = False
        self._until = 0.0
        self._watched: list[_Watched] = []
        self._beats: list[Callable[[], bool]] = []

    def stir(self, beat: Callable[[], bool]) -> None:
        """Something was begun: call `beat` each second from now on, until it returns whether there is nothing left."""
        with self._lock:
            self._until = time.monotonic() + _LINGER
            if beat not in self._beats:
                self._beats.append(beat)
            self._start()

    def watch(self, is_done: Callable[[], bool]) -> None:
        """Call `is_done` until it returns True."""
        with self._lock:
            self._watched.append(_Watched(is_done, time.monotonic()))
            self._start()
        self._wake.set()

    def dismiss(self) -> None:
        """Forget all that is watched: the process ends."""
        with self._lock:
            self._watched.clear()
            self._beats.clear()

    def forget_in_child(self) -> None:
        """In a forked child: there is no thread, and nothing of the parent's is ours to watch."""
        kept = self._watched  # what they refer to may not be destroyed here
        self._begin()
        _of_parents.append(kept)

    def _start(self) -> None:
        if not self._runs:
            # Not `threading.Thread`, whose start waits until the thread is scheduled: milliseconds on a busy machine,
            # of a load that takes as long.
            with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter is on its way out
                _thread.start_new_thread(self._run, ())
                self._runs = True

    def _run(self) -> None:
        next_beat = time.monotonic() + _BEAT
        while True:
            self._wake.wait(self._pause())
            self._wake.clear()
            self._ask()
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + _BEAT
                if not self._beat():
                    return

    def _pause(self) -> float:
        with self._lock:
            if not self._watched:
                return _BEAT
            youngest = max(one.since for one in self._watched)
        return _OFTEN if time.monotonic() - youngest < _OFTEN_FOR else _SELDOM

    def _ask(self) -> None:
        with self._lock:
            watched = list(self._watched)
        done = [one for one in watched if one.is_done()]
        if done:
            with self._lock:
                self._watched = [one for one in self._watched if one not in done]

    def _beat(self) -> bool:
        """Beat for all; whether the thread is still needed."""
        with self._lock:
            beats = list(self._beats)
        busy = [beat() for beat in beats]  # each of them
        with self._lock:
            if any(busy) or self._watched or time.monotonic() < self._until:
                return True
            self._beats.clear()
            self._runs = False
            return False


_of_parents: list[object] = []
attendant = Attendant()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=attendant.forget_in_child)
