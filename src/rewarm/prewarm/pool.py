"""Several workers at once, as far as memory allows: each job's programs go to the next worker that is free.

Not promised: an order. What is there already is found first where a program comes first, not overall.

Each worker has a thread here that asks it. Whatever ends (an error here, Ctrl-C) kills the workers, by their ids, and
what was stored until then stays: the next run finds it there.

Races: two workers may have one key in hand at once (two jobs with the same program); the cache's lease lets one compile
it, at worst both do.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rewarm.prewarm import memory
from rewarm.prewarm.failures import Failures
from rewarm.prewarm.work import Job, Outcome, Result, Wanted, of_answer
from rewarm.prewarm.worker import CannotError, EndedError, Worker

_PAUSE = 0.2

# Of the memory that is free this much stays so: what is measured is a moment old.
_SPARE = 256 << 20

_SHORT = "; that is perhaps for want of memory or threads: fewer --jobs may help"

# Behind every program of a job.
_LAST = 1 << 30


class _Work:
    """One job: which of its programs are left."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.listed = False
        self.is_listing = False
        self.starting = 0  # workers that have taken none of its programs yet
        self.left: deque[tuple[int, str, str]] = deque()
        self.names: list[str] = []

    @property
    def wants_worker(self) -> bool:
        return len(self.left) > self.starting if self.listed else not self.is_listing


class Progress:
    """Whom the pool tells how far it is; methods are called from several threads, one at a time."""

    def listed(self, programs: int) -> None:
        """So many more programs are to be done."""

    def begins(self, job: Job, program: str) -> None:
        """A program is about to be compiled."""

    def done(self, result: Result) -> None:
        """A program is done, or a job cannot be begun."""


def fill(
    jobs: Sequence[Job], wanted: Wanted, directory: Path, *, workers: int = 1, progress: Progress | None = None
) -> list[Result]:
    """Do all jobs; returns what came of each program, in the order of the jobs and of their plans.

    Args:
      jobs: what to do.
      wanted: how.
      directory: the cache directory, for failures that are remembered.
      workers: processes at once, at most; memory may allow fewer.
      progress: is told how far it is.

    Raises:
      BaseException: what ended it early; the workers are gone.
    """
    return _Pool(jobs, wanted, directory, progress or Progress()).run(max(1, workers))


class _Pool:
    def __init__(self, jobs: Sequence[Job], wanted: Wanted, directory: Path, progress: Progress) -> None:
        self._works = [_Work(job) for job in jobs]
        self._wanted = wanted
        self._failures = Failures(directory)
        self._progress = progress
        self._changed = threading.Condition()
        self._running: dict[int, Worker] = {}
        self._results: list[tuple[int, int, Result]] = []
        self._largest: dict[str, float] = dict(memory.FIRST)
        self._here = threading.local()
        self._stopped = False
        self._broken: BaseException | None = None

    def run(self, workers: int) -> list[Result]:
        threads = [threading.Thread(target=self._serve, name="rewarm-prewarm", daemon=True) for _ in range(workers)]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):  # joined in steps, so that Ctrl-C is heard
                for thread in threads:
                    thread.join(_PAUSE)
        finally:
            self._stop()
            for thread in threads:
                thread.join()
        if self._broken is not None:
            raise self._broken
        self._unknown()
        return [result for _, _, result in sorted(self._results, key=lambda row: row[:2])]

    def _stop(self) -> None:
        with self._changed:
            self._stopped = True
            for worker in self._running.values():
                worker.kill()
            self._changed.notify_all()

    def _unknown(self) -> None:
        """The names that are asked for and that no plan has."""
        names = dict.fromkeys(name for work in self._works for name in work.names)
        if not names:  # why there are none is said already
            return
        for wanted in dict.fromkeys(self._wanted.only or ()):
            if wanted not in names:
                why = f"no plan has a program of this name; there are {', '.join(names)}"
                self._add(len(self._works), 0, Result(self._works[0].job, wanted, Outcome.FAILED, why=why))

    # -- in the threads ----------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while (number := self._next()) is not None:
                self._with_worker(number)
        except BaseException as wrong:  # noqa: BLE001 - raised where the pool was started
            self._broken = self._broken or wrong
            self._stop()

    def _next(self) -> int | None:
        """A job that wants a worker, once there is memory for one; `None`: there is none left."""
        with self._changed:
            while not self._stopped:
                waiting = [number for number, work in enumerate(self._works) if work.wants_worker]
                if not waiting and not any(work.is_listing for work in self._works):
                    return None
                fit = next((number for number in waiting if self._has_room(self._works[number].job)), None)
                if fit is not None:
                    work = self._works[fit]
                    work.is_listing = not work.listed
                    work.starting += 1
                    self._running[-threading.get_ident()] = _NOT_YET
                    return fit
                self._changed.wait(_PAUSE)
        return None

    def _has_room(self, job: Job) -> bool:
        """Whether memory allows one more: what the running ones may still take is taken off."""
        if not self._running:
            return True
        need = self._largest[job.platform]
        growing = sum(max(0.0, need - memory.resident(worker.pid)) for worker in self._running.values())
        return memory.available() - growing - _SPARE >= need

    def _with_worker(self, number: int) -> None:
        work, self._here.starts = self._works[number], True
        try:
            worker = Worker(work.job, self._wanted)
            with self._changed:
                self._running.pop(-threading.get_ident(), None)
                self._running[worker.pid] = worker
                stopped = self._stopped
            try:
                if not stopped:
                    self._use(number, worker)
            finally:
                worker.end()  # its memory counts until then
                with self._changed:
                    self._running.pop(worker.pid, None)
        finally:
            with self._changed:
                self._running.pop(-threading.get_ident(), None)
                work.is_listing = False
                self._has_started(work)
                self._changed.notify_all()

    def _has_started(self, work: _Work) -> None:
        """This thread's worker is no longer one that is about to take a program. Under the lock."""
        work.starting -= bool(self._here.starts)
        self._here.starts = False

    def _use(self, number: int, worker: Worker) -> None:
        work = self._works[number]
        try:
            worker.begin(lists=not work.listed)
        except (CannotError, EndedError) as wrong:
            if not self._stopped:
                self._not_begun(number, worker, str(wrong))
            return
        self._list(number, worker)
        while (program := self._take(work, worker)) is not None:
            if not self._one(number, worker, *program):
                return

    def _not_begun(self, number: int, worker: Worker, why: str) -> None:
        """What was listed before the process ended is for other workers, which stop short of where this one did."""
        if not worker.programs:
            self._cannot(number, why)
            return
        _, name, line = worker.programs[-1]
        worker.wrong = f"{self._works[number].job.plan} ends its process after {name}{line and f' [{line}]'}: {why}"
        self._list(number, worker)

    def _list(self, number: int, worker: Worker) -> None:
        work = self._works[number]
        with self._changed:
            if work.listed:
                return
            work.listed, work.is_listing = True, False
            only = self._wanted.only
            work.left.extend(one for one in worker.programs if only is None or one[1] in only)
            work.names = [name for _, name, _ in worker.programs]
            self._progress.listed(len(work.left))
            self._changed.notify_all()
        if worker.wrong:
            self._add(number, _LAST, Result(work.job, "", Outcome.FAILED, why=worker.wrong))
        elif not worker.programs:
            why = f"{work.job.plan} yields no program, so there is nothing to compile"
            self._add(number, _LAST, Result(work.job, "", Outcome.FAILED, why=why))

    def _take(self, work: _Work, worker: Worker) -> tuple[int, str, str] | None:
        with self._changed:
            self._has_started(work)
            bound = work.job.programs_of_worker
            if self._stopped or not work.left or (bound and worker.asked >= bound):
                return None
            return work.left.popleft()

    def _one(self, number: int, worker: Worker, program: int, name: str, line: str) -> bool:
        """One program; whether the worker lives on."""
        job, keys = self._works[number].job, [""]
        since = time.perf_counter()

        def begins(key: str) -> None:
            keys.append(key)
            with self._changed:
                self._progress.begins(job, name)

        try:
            answer = worker.fill(program, name, begins)
        except EndedError as wrong:
            if not self._stopped:
                took = time.perf_counter() - since
                self._ended(number, program, Result(job, name, Outcome.FAILED, line, seconds=took), wrong, keys[-1])
            return False
        self._add(number, program, self._judged(of_answer(job, {"line": line, **answer}), compiled=bool(keys[-1])))
        return True

    def _judged(self, result: Result, *, compiled: bool) -> Result:
        """The compiler's verdict is remembered; the worker's memory is learnt from."""
        with self._changed:
            self._largest[result.job.platform] = max(self._largest[result.job.platform], result.memory * 1.1)
        if result.outcome is Outcome.FAILED and compiled and result.key is not None and not result.remembered:
            self._failures.remember(result.key, result.program, result.why, self._wanted.forget_after)
        return result

    def _ended(self, number: int, program: int, result: Result, wrong: EndedError, key: str) -> None:
        import dataclasses

        why = f"{wrong}{_SHORT if wrong.is_of_the_machine else ''}"
        self._add(number, program, dataclasses.replace(result, why=why, key=key or None))

    def _cannot(self, number: int, why: str) -> None:
        """The job cannot be begun, or not again: whatever is left of it has failed."""
        work = self._works[number]
        with self._changed:
            left = list(work.left)
            work.left.clear()
            work.listed, first = True, not work.listed
        if first:
            self._add(number, 0, Result(work.job, "", Outcome.FAILED, why=why))
        for program, name, line in left:
            self._add(number, program, Result(work.job, name, Outcome.FAILED, line, why=why))

    def _add(self, number: int, program: int, result: Result) -> None:
        with self._changed:
            self._results.append((number, program, result))
            with contextlib.suppress(BrokenPipeError):
                self._progress.done(result)


class _NotYet:
    """A worker that is about to be started."""

    pid = 0

    def kill(self) -> None:
        """There is nothing to end."""


_NOT_YET: Any = _NotYet()
