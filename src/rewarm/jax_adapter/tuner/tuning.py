"""One session: what is tried, timed and compared for one case, and the record of it.

Not promised: that the session ends within its budget to the second: what is under way is waited for. Nor that the best
candidate is found: the default stays unless another one is faster beyond noise, in the search and in each of two or
three fresh processes.

    search      candidates compile (in parallel, into the shared cache), run, are checked, and timed in rounds
    decision    the few fastest, in further rounds, until the first is known
    final       it and the default, in fresh processes and fresh orders, as warm as the search had made them

What is done with candidates is in `candidates.py`, the final comparison in `finals.py`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from rewarm.jax_adapter.tuner import conditions
from rewarm.jax_adapter.tuner.candidates import DECISION, FINALISTS, SEARCH
from rewarm.jax_adapter.tuner.finals import Finals
from rewarm.jax_adapter.tuner.progress import Progress
from rewarm.jax_adapter.tuner.rounds import DEFAULT
from rewarm.jax_adapter.tuner.starting import Workers
from rewarm.jax_adapter.tuner.subjects import NoisyError, Plan, Subject
from rewarm.tunables.deciding import compare, fewest_rounds, is_noisy
from rewarm.tunables.records import MOST_SAMPLES, Comparison, Outcome, Record
from rewarm.tunables.searching import Search
from rewarm.tunables.spaces import Config, Space, canonical

_LOOKS = 4
INTERRUPTED, UNFINISHED = "interrupted", "unfinished"


class Tuning(Finals):
    """One session.

    Args:
      subject: what it is about.
      plan: how it goes.
      workers: where candidates run.
      previous: what is known of the case: what was timed is not timed again, and what failed is not tried.
      progress: shows how far it is.
    """

    def __init__(
        self, subject: Subject, plan: Plan, workers: Workers, previous: Record | None, progress: Progress
    ) -> None:
        self._now = time.time()
        self._left_out = ""
        super().__init__(subject, plan, workers, _made_search(subject.space, plan, previous, self._now), progress)

    # -- the whole ---------------------------------------------------------------------------------------------

    def run(self, keep: Callable[[Record], object]) -> Record:
        """The session. `keep` gets the record, also that of a session that was broken off.

        Raises:
          DefaultFailedError: the default cannot run.
          NoisyError: the session was noisy, and the plan is strict; its trials are kept, and no winner.
          KeyboardInterrupt: it was interrupted; its trials are kept.
        """
        begin = conditions.moment()
        winner, comparison = None, None
        default: list[float] = []
        try:
            self._searched()
            finalists = self._decided()
            self._close()
            if finalists or self._has_tried():
                winner, comparison, default = self._final(finalists)
        except KeyboardInterrupt:
            self._flags.append(INTERRUPTED)
            raise
        finally:
            self._close()
            self._progress.end()
            record = self._record(winner, comparison, default, begin)
            if self._trials or comparison is not None:
                keep(record)
        if self._plan.strict and any(flag.startswith("noisy") for flag in record.flags):
            raise NoisyError(
                f"rewarm.tune: {self._subject.case.kernel}: {'; '.join(record.flags)}. No winner is kept; tune when "
                "the machine is quiet, or without strict=True"
            )
        return record

    # -- search ------------------------------------------------------------------------------------------------

    def _searched(self) -> None:
        self._started([])
        while batch := self._search.ask(self._spent()):
            numbers = [self._number(config) for config in batch]
            self._compile_ahead(numbers)
            for number in numbers:
                if number in self._prepared:
                    continue
                if self._spent() < self._plan.budget * DECISION:
                    self._prepare(number)
                else:
                    self._left_out = "seconds"
            self._time([number for number in numbers if number in self._prepared], self._search.rounds)
            for number in numbers:
                self._search.tell(self._configs[number], self._score(number))
            for number in numbers:
                if number in self._prepared and not self._is_near(number):
                    self._forget(number)
        if self._search.ended_by in ("seconds", "trials"):
            self._left_out = self._search.ended_by

    def _has_tried(self) -> bool:
        """Whether something is known of any candidate beside the default, where there are any."""
        default = canonical(self._subject.space.default)
        tried = {*self._trials, *map(canonical, self._search.best)} - {default}
        return bool(tried) or not self._left_out

    # -- decision ----------------------------------------------------------------------------------------------

    def _decided(self) -> list[int]:
        """The fastest candidates but the default, the likeliest first, after further rounds of them alone."""
        default = canonical(self._subject.space.default)
        near = [self._number(one) for one in self._search.best if canonical(one) != default][:FINALISTS]
        near = [number for number in near if (self._scored(number) or 0) < 1.0 + self._plan.effect]
        for number in near:
            if number not in self._prepared and self._spent() < self._plan.budget * DECISION:
                self._prepare(number)
        rounds = fewest_rounds(confidence=self._plan.confidence, looks=_LOOKS, candidates=max(1, len(near)))
        while len(there := [number for number in near if number in self._prepared]) > 1:
            self._time(there, rounds)
            if time.monotonic() > self._until(DECISION) or len(self._samples[there[0]].of(there[0])) >= MOST_SAMPLES:
                break
            ahead = sorted(there, key=lambda number: self._scored(number) or 9.9)
            near = [number for number in ahead if not self._is_behind(number, ahead[0])]
            rounds *= 2
        return sorted((n for n in near if self._is_usable(n)), key=lambda number: self._scored(number) or 9.9)

    def _scored(self, number: int) -> float | None:
        score = self._score(number)
        if score is not None:
            return score
        config = canonical(self._configs[number])
        known = [one for one in self._search.best if canonical(one) == config]
        return 0.999 if known and config not in self._trials else None

    def _is_usable(self, number: int) -> bool:
        trial = self._trials.get(canonical(self._configs[number]))
        return trial is None or trial.outcome == Outcome.TIMED

    def _is_behind(self, number: int, first: int) -> bool:
        mine, best = self._samples[number].of(number), self._samples[first].of(first)
        count = min(len(mine), len(best))
        if number == first or count < 2:
            return False
        verdict = compare(mine[-count:], best[-count:], confidence=self._plan.confidence, looks=_LOOKS).verdict
        return verdict == "slower"

    # -- the record --------------------------------------------------------------------------------------------

    def _record(
        self, winner: Config | None, comparison: Comparison | None, default: list[float], begin: conditions.Moment
    ) -> Record:
        subject = self._subject
        environment = conditions.environment(begin, conditions.moment(), 0.0)
        noise = is_noisy(
            default or (self._samples[DEFAULT].default if DEFAULT in self._samples else []),
            others=_number(environment["others"]),
            frequencies=self._frequencies,
            stolen=_number(environment["steal"]),
        )
        if winner is None and INTERRUPTED not in self._flags:
            self._flags.append(UNFINISHED)
        if self._plan.strict and noise:
            winner, comparison = None, None
        return Record(
            case=subject.case,
            default=subject.space.default,
            winner=winner,
            trials=tuple(self._trials.values()),
            comparison=comparison,
            environment={**environment, **self._how()},
            flags=(*self._flags, *noise),
            when=self._now,
            inputs=subject.inputs,
            tolerance=dict(subject.tolerance),
            about=dict(subject.about),
        )

    def _how(self) -> dict[str, Any]:
        return {
            "seed": self._plan.seed,
            "budget": self._plan.budget,
            "trials": self._plan.trials,
            "ended by": self._left_out,
            "space": self._subject.space.digest,
            "timer": self._workers.timer,
            "why here": self._workers.why_here,
        }


def _made_search(space: Space, plan: Plan, previous: Record | None, now: float) -> Search:
    bad = [] if previous is None else [one.config for one in previous.trials if one.is_bad(now)]
    return Search(
        space,
        seed=plan.seed,
        seeds=plan.seeds,
        known=_known(previous, space, now),
        bad=bad,
        trials=plan.trials,
        seconds=plan.budget * SEARCH,
        proposer=plan.proposer,
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _known(previous: Record | None, space: Space, now: float) -> dict[str, float]:
    """Scores of what was timed before: seconds relative to those of the default in the same record."""
    if previous is None:
        return {}
    default = previous.best_known(space.default)
    if default is None or not default.seconds:
        return {}
    base = statistics.median(default.seconds)
    found = {}
    for trial in previous.trials:
        if trial.outcome == Outcome.TIMED and trial.seconds and trial.when <= now + 1 and space.allows(trial.config):
            found[canonical(trial.config)] = statistics.median(trial.seconds) / base
    winner = previous.winner
    if winner is not None:
        found.pop(canonical(winner), None)  # it is timed again, beside what is new
    return found
