"""The thread that shows, for all leases of one kind, that their leaders are alive.

Not promised: that it beats in time. It needs the interpreter's lock, which XLA lets go while it compiles; native code
that keeps it for longer than the others' silence looks to them like a leader that is stopped.

It starts with the first lease, ends five seconds after the last, and is a daemon, so a process can end at any time.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable

_LINGER = 5.0

Job = Callable[[], None]


class Pulse:
    """Calls beats at an interval, and single jobs at once, one after another. Safe for any number of threads.

    Args:
      every: seconds between two beats.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        # Reentrant, and a queue that is: an interrupted lease is given back when its object goes, wherever that is.
        self._lock = threading.RLock()
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._beats: list[Job] = []
        self._until = 0.0
        self._runs = False

    def add(self, beat: Job) -> None:
        """Call `beat` at each interval from now on."""
        with self._lock:
            self._beats.append(beat)
            self._start()

    def remove(self, beat: Job) -> None:
        """No more; a call that is under way goes on."""
        with self._lock, contextlib.suppress(ValueError):
            self._beats.remove(beat)

    def soon(self, job: Job) -> bool:
        """Call `job` once, not beside a beat; whether that will happen: there may be no thread to be had."""
        with self._lock:
            self._start()
            if self._runs:
                self._jobs.put(job)
            return self._runs

    def settle(self, seconds: float) -> bool:
        """Wait until all jobs so far are done, for so many seconds at most; whether they are."""
        done = threading.Event()
        with self._lock:
            if not self._runs:
                return True
            self._jobs.put(done.set)
        return done.wait(seconds)

    def _start(self) -> None:
        self._until = time.monotonic() + _LINGER
        if not self._runs:
            # Not `threading.Thread`, whose start waits until the thread is scheduled.
            with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter is on its way out
                _thread.start_new_thread(self._run, ())
                self._runs = True

    def _run(self) -> None:
        beat_at = time.monotonic() + self._every
        while True:
            with contextlib.suppress(queue.Empty):
                _call(self._jobs.get(timeout=max(0.0, beat_at - time.monotonic())))
            if time.monotonic() < beat_at:
                continue
            beat_at = time.monotonic() + self._every
            with self._lock:
                beats = list(self._beats)
            for beat in beats:
                _call(beat)
            if self._is_done():
                return

    def _is_done(self) -> bool:
        with self._lock:
            self._runs = bool(self._beats) or not self._jobs.empty() or time.monotonic() < self._until
            return not self._runs


def _call(job: Job) -> None:
    with contextlib.suppress(Exception):  # the beats of the other leases go on
        job()


_all: weakref.WeakSet[Pulse] = weakref.WeakSet()


def _forget_in_child() -> None:
    """In a forked child there is no thread, and the leases are the parent's."""
    for pulse in tuple(_all):
        pulse._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
