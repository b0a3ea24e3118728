"""The candidates of one session: which are prepared where, what was timed of each, and what became of them.

Not promised: a candidate that fails comes back. It becomes a trial that says why, and the others have a worker again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

from rewarm.jax_adapter.tuner import conditions
from rewarm.jax_adapter.tuner.bench import Prepared, calls_of_a_sample
from rewarm.jax_adapter.tuner.compiling import WORTH_A_CHILD, compile_ahead
from rewarm.jax_adapter.tuner.progress import Progress
from rewarm.jax_adapter.tuner.rounds import DEFAULT, Samples, Timer
from rewarm.jax_adapter.tuner.starting import Workers
from rewarm.jax_adapter.tuner.subjects import DefaultFailedError, Plan, Subject
from rewarm.jax_adapter.tuner.worker import FailedError, Worker
from rewarm.tunables.deciding import speed_up
from rewarm.tunables.records import MOST_SAMPLES, Outcome, Trial
from rewarm.tunables.searching import Search
from rewarm.tunables.selecting import short
from rewarm.tunables.spaces import Config, canonical

# Shares of the budget, by whose end the search and the decision are over; the rest is the final comparison's.
SEARCH, DECISION = 0.55, 0.75
FINALISTS = 3
NOT_ISOLATED = "not isolated"


class Candidates:
    """The candidates of one session, by number.

    Args:
      subject: what it is about.
      plan: how it goes.
      workers: where candidates run.
      search: what is tried.
      progress: shows how far it is.
    """

    def __init__(self, subject: Subject, plan: Plan, workers: Workers, search: Search, progress: Progress) -> None:
        self._subject = subject
        self._plan = plan
        self._workers = workers
        self._search = search
        self._progress = progress
        self._rng = random.Random(plan.seed)
        self._began = time.monotonic()
        self._configs: dict[int, Config] = {DEFAULT: subject.space.default}
        self._prepared: dict[int, Prepared] = {}
        self._programs: dict[str, int] = {}
        self._samples: dict[int, Samples] = {}
        self._trials: dict[str, Trial] = {}
        self._warm: dict[int, int] = {}
        self._worker: Worker | None = None
        self._flags: list[str] = []
        self._frequencies: list[float] = []

    def _spent(self) -> float:
        return time.monotonic() - self._began

    def _until(self, share: float) -> float:
        return self._began + self._plan.budget * share

    def _number(self, config: Config) -> int:
        text = canonical(config)
        for number, one in self._configs.items():
            if canonical(one) == text:
                return number
        number = len(self._configs)
        self._configs[number] = config
        return number

    def _started(self, again: Iterable[int]) -> Worker:
        """A worker with the default and those that were prepared in the one before.

        Raises:
          DefaultFailedError: the default cannot run in it.
        """
        self._worker = self._workers.start()
        if not self._worker.isolated and NOT_ISOLATED not in self._flags:
            self._flags.append(NOT_ISOLATED)
        wanted = list(again)
        self._prepared.clear()
        try:
            self._prepared[DEFAULT] = self._worker.prepare(DEFAULT, self._choice(DEFAULT))
        except FailedError as error:
            raise self._default_failed(error) from error
        if self._worker.isolated and not self._workers.is_same(self._prepared[DEFAULT].program):
            self._worker.close()
            self._workers.stay_here("the function is another one when it is read in another process")
            return self._started(wanted)
        self._programs.setdefault(self._prepared[DEFAULT].program, DEFAULT)
        for number in wanted:
            self._prepare(number)
        return self._worker

    def _default_failed(self, error: FailedError) -> DefaultFailedError:
        default = canonical(self._subject.space.default)
        return DefaultFailedError(
            f"rewarm.tune: {self._subject.case.kernel}: the default {default} cannot run for "
            f"{short(self._subject.case.arguments)}: {error.outcome}: {error.reason}"
        )

    def _choice(self, number: int) -> Any:
        return self._subject.choice(self._configs[number])

    def _prepare(self, number: int) -> None:
        """Compile, run and check a candidate; one that fails becomes a trial, and the others have a worker again."""
        worker = self._worker
        assert worker is not None
        self._progress.show(f"preparing {canonical(self._configs[number])}", self._best())
        try:
            found = worker.prepare(number, self._choice(number))
        except FailedError as error:
            self._fail(number, error)
            return
        if found.differs:
            self._note(number, Outcome.WRONG, f"wrong results: {found.differs}")
            worker.drop(number)
            return
        same = self._programs.setdefault(found.program, number)
        if same != number and same in self._samples:
            self._samples[number] = self._samples[same]
        if same != number:
            self._note(number, Outcome.TIMED, f"the same program as {canonical(self._configs[same])}")
            worker.drop(number)
            return
        self._prepared[number] = found

    def _fail(self, number: int, error: FailedError) -> None:
        self._note(number, error.outcome, error.reason)
        self._prepared.pop(number, None)
        if error.died:
            self._started([one for one in self._prepared if one != DEFAULT])

    def _compile_ahead(self, numbers: Sequence[int]) -> None:
        """Have children compile what is new into the cache that the worker shares, before it asks for it."""
        fresh = [number for number in numbers if number not in self._prepared]
        default = self._prepared[DEFAULT]
        count = min(4, conditions.processors() - 1, len(fresh) // 2)
        if count < 1 or default.compile_seconds * len(fresh) < WORTH_A_CHILD:
            return
        compile_ahead(self._workers.compilers(count), [self._choice(number) for number in fresh], self._until(SEARCH))

    def _time(self, numbers: list[int], rounds: int) -> None:
        while numbers:
            worker = self._worker
            assert worker is not None
            samples = Samples()
            failed: dict[int, FailedError] = {}
            timer = Timer(worker, self._prepared, self._rng, failed.__setitem__)
            self._progress.show(f"timing {len(numbers)}", self._best())
            try:
                lives = timer.run(numbers, rounds, samples, self._until(DECISION))
            except FailedError as error:
                raise self._default_failed(error) from error
            finally:  # also of what was interrupted
                for number in (DEFAULT, *numbers):
                    self._add(number, samples)
            self._note_frequency()
            for number, wrong in failed.items():
                self._fail(number, wrong)
            numbers = [] if lives else [number for number in numbers if number in self._prepared]

    def _add(self, number: int, samples: Samples) -> None:
        seconds, beside = samples.of(number), samples.beside(number)
        if not seconds:
            return
        kept = self._samples.setdefault(number, Samples())
        for one, default in zip(seconds, beside, strict=True):
            kept.add({DEFAULT: default, number: one})
        calls = calls_of_a_sample(self._prepared[number].call_seconds) if number in self._prepared else 1
        self._warm[number] = self._warm.get(number, 0) + calls * len(seconds)
        self._note(number, Outcome.TIMED, "", tuple(kept.of(number)))

    def _score(self, number: int) -> float | None:
        trial = self._trials.get(canonical(self._configs[number]))
        if trial is None or trial.outcome != Outcome.TIMED:
            return None
        if number not in self._samples:
            return 1.0 if trial.reason else None
        samples = self._samples[number]
        same = number if samples.of(number) else self._programs_of(samples)
        return 1.0 / speed_up(samples.of(same), samples.beside(same)) if samples.of(same) else 1.0

    def _programs_of(self, samples: Samples) -> int:
        return next(number for number, one in self._samples.items() if one is samples)

    def _is_near(self, number: int) -> bool:
        """Whether a candidate may still be among the fastest, so that it stays prepared."""
        best = [canonical(one) for one in self._search.best[: 2 * FINALISTS]]
        return canonical(self._configs[number]) in best

    def _forget(self, number: int) -> None:
        if self._search.is_whole or len(self._prepared) > 64:
            self._prepared.pop(number, None)
            if self._worker is not None:
                self._worker.drop(number)

    def _note(self, number: int, outcome: Outcome, reason: str, seconds: tuple[float, ...] = ()) -> None:
        now = time.time()
        expires = None if outcome in (Outcome.TIMED, Outcome.NOISY) else now + self._plan.limit_bad
        config = self._configs[number]
        trial = Trial(config, outcome, seconds[-MOST_SAMPLES:], reason, now, expires)
        self._trials[canonical(config)] = trial

    def _note_frequency(self) -> None:
        if (found := conditions.frequency()) is not None:
            self._frequencies.append(float(found))

    def _best(self) -> str:
        best = self._search.best
        if not best or canonical(best[0]) == canonical(self._subject.space.default):
            return ""
        trial = self._trials.get(canonical(best[0]))
        number = self._number(best[0])
        if trial is None or number not in self._samples or not self._samples[number].of(number):
            return ""
        samples = self._samples[number]
        return f"{canonical(best[0])} {speed_up(samples.of(number), samples.beside(number)):.2f}x"

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
