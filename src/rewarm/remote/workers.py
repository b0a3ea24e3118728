"""Threads in which requests run, so that who asked can be let go when his time is up.

Not promised: that a request which was given up ends. Nothing in Python ends a thread that hangs in a client or in a
system call; it is left behind, at most `stuck_limit` of them, and its result, should one come, is dropped.

All threads are daemons, which the end of the interpreter does not wait for. A thread is kept until `retire`: at the end
of a program no new one can be started any more (Python 3.12), and uploads are drained then.

Races, and their worst outcome:

* a request is done at the moment its time is up: one of the two wins under the lock, and what happened is what is said.
* an exception out of a signal handler strikes a caller who waits: the request goes on unheard, in its thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class TimeUpError(Exception):
    """The time for a request is up.

    Attributes:
      ran: for how many seconds it had a thread; before, it waited for one, which says nothing about the remote.
    """

    def __init__(self, ran: float) -> None:
        super().__init__(ran)
        self.ran = ran


class LetGoError(Exception):
    """All callers were let go, before the time of this one was up."""


class NoThreadError(Exception):
    """There is no thread for a request, and none can be started."""


class _Job:
    """One request: waiting, taken by a thread, or over (for its caller)."""

    __slots__ = ("error", "over", "result", "taken", "wake", "work")

    # When a thread took it, on the monotonic clock.
    taken: float | None

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.wake = threading.Event()
        self.taken = None
        self.over = False
        self.result: Any = None
        self.error: Exception | None = None


class Workers:
    """Up to `threads` daemon threads at work. Not to be used on both sides of a fork.

    No request is to be brought while it `is_full`; so there are never more than `2 * threads + stuck_limit` threads.

    Attributes:
      stuck: how many threads are in requests that nobody waits for any more.
    """

    def __init__(self, name: str, *, threads: int, stuck_limit: int) -> None:
        self._name = name
        self._threads = threads
        self._stuck_limit = stuck_limit
        # Reentrant, since the collection of garbage, which may come at any moment, can call `retire`.
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._waiting: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._alive = 0
        self._idle = 0
        self._retirements = 0
        self._over = False
        self.stuck = 0

    def call(self, work: Callable[[], T], until: float) -> T:
        """What `work` returns or raises, in a thread, by `until` on the monotonic clock.

        Raises:
          TimeUpError: it is not done.
          LetGoError: `let_go` was called meanwhile.
          NoThreadError: nobody can do it.
        """
        job = self._submit(work)
        if not job.wake.wait(max(0.0, until - time.monotonic())):
            self._give_up(job)
        result: T = job.result
        error, job.error = job.error, None
        if error is None:
            return result
        try:
            raise error
        finally:
            del error, job  # else the error holds its own traceback, and with it the data of a put

    def have_one(self) -> None:
        """Start a thread if there is none: at the end of a program it is too late for the first."""
        with self._lock:
            if not self._alive:
                self._start()

    def let_go(self) -> None:
        """Let all callers go that wait now, each with a `LetGoError`."""
        with self._lock:
            for job in [*self._waiting, *self._running]:
                self._abandon(job, LetGoError())

    def retire(self, *, for_good: bool = False) -> None:
        """Let the threads that have nothing to do end, now or `for_good`; the next request starts one."""
        with self._lock:
            self._retirements += 1
            self._over = self._over or for_good
            self._wake.notify_all()

    def is_full(self) -> bool:
        """Whether as many threads are stuck as may be."""
        return self.stuck >= self._stuck_limit

    def _submit(self, work: Callable[[], Any]) -> _Job:
        job = _Job(work)
        with self._lock:
            self._waiting.append(job)
            self._see_to_it()
            if self._alive <= self.stuck:
                self._waiting.remove(job)
                raise NoThreadError
        return job

    def _see_to_it(self) -> None:
        """Wake a thread for what waits, or start one. Where none can be started, those that are there must do."""
        if self._idle >= len(self._waiting):
            self._wake.notify()
        elif self._alive - self.stuck < self._threads:
            self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"rewarm-{self._name}", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            return
        self._alive += 1

    def _give_up(self, job: _Job) -> None:
        with self._lock:
            if job.over:
                return
            self._abandon(job, TimeUpError(0.0 if job.taken is None else time.monotonic() - job.taken))
            if self._waiting and not self.is_full():
                self._see_to_it()  # the thread that got stuck was to do it

    def _abandon(self, job: _Job, error: Exception) -> None:
        """For its caller this job is over; the thread that has taken it is stuck from now on."""
        if job.taken is not None:
            self._running.discard(job)
            self.stuck += 1
        else:
            self._waiting.remove(job)
        job.over = True
        job.error = error
        job.wake.set()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if not self._do(job):
                return
            del job  # an idle thread holds on to nothing

    def _next(self) -> _Job | None:
        """The next request; `None` where this thread is to end."""
        with self._lock:
            self._idle += 1
            seen = self._retirements
            while not self._waiting and not self._over and seen == self._retirements:
                self._wake.wait()
            self._idle -= 1
            if not self._waiting:
                self._alive -= 1
                return None
            job = self._waiting.popleft()
            job.taken = time.monotonic()
            self._running.add(job)
            return job

    def _do(self, job: _Job) -> bool:
        """Do it; returns whether this thread is still needed."""
        result: Any = None
        error: Exception | None = None
        try:
            result = job.work()
        except Exception as raised:  # noqa: BLE001  it is raised again where the caller is
            error = raised
        except BaseException as raised:  # noqa: BLE001  a panic of native code, an exit: not the caller's to obey
            error = RuntimeError(f"{type(raised).__name__}: {raised}")
        with self._lock:
            if job.over:
                self.stuck -= 1
                if self._alive - self.stuck > self._threads:
                    self._alive -= 1
                    return False
                return True
            self._running.discard(job)
            job.over = True
            job.result, job.error = result, error
        del result, error  # see `call`
        job.wake.set()
        return True
