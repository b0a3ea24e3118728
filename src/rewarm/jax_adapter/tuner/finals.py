"""The final comparison: winner and default, in two or three fresh processes and in orders drawn anew.

Not promised: a verdict. Where the budget ends before the rounds agree, the default stays.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rewarm.jax_adapter.tuner import conditions
from rewarm.jax_adapter.tuner.bench import Prepared, calls_of_a_sample
from rewarm.jax_adapter.tuner.candidates import Candidates
from rewarm.jax_adapter.tuner.rounds import DEFAULT, Samples, Timer
from rewarm.jax_adapter.tuner.worker import FailedError, Worker
from rewarm.tunables.deciding import compare
from rewarm.tunables.records import Comparison, Outcome
from rewarm.tunables.spaces import Config, canonical

_FINAL_ROUNDS = (16, 32, 64, 128, 256)
# A final comparison has so long, however little of the budget is left.
_LEAST_FINAL = 4.0
# In so many processes a winner must be faster; in one more if it may be so by less than this.
_PROCESSES = 2
_LITTLE = 1.05
# It is as warm as the search had made it, within so long.
_MOST_WARM_SECONDS = 2.0


class Finals(Candidates):
    """A session's candidates, and who of them is compared with the default in the end."""

    def _final(self, finalists: Sequence[int]) -> tuple[Config, Comparison, list[float]]:
        """Winner and default in a fresh process. The second candidate is tried where the first one fails there."""
        space = self._subject.space
        if not finalists:
            return space.default, Comparison(1.0, 1.0, 1.0, "same", self._plan.confidence, 0), []
        last: tuple[Comparison, list[float]] | None = None
        for place, number in enumerate(finalists[:2]):
            if place and last is not None and (last[0].verdict == "same" or self._spent() > self._plan.budget):
                break
            found = self._compared(number, len(finalists[:2]))
            if found is None:
                continue
            last = self._confirmed(number, found)
            if last[0].verdict == "faster":
                return self._configs[number], *last
        if last is None:
            return space.default, Comparison(1.0, 1.0, 1.0, "undecided", self._plan.confidence, 0), []
        return space.default, *last

    def _confirmed(self, number: int, found: tuple[Comparison, list[float]]) -> tuple[Comparison, list[float]]:
        """What was faster, compared again in another process, in two more where it may be faster by little: that of
        them which says least.

        Processes of one program differ, by where their memory and threads lie, in more than rounds do.
        """
        least = found
        for done in range(1, _PROCESSES + 1):
            is_faster = least[0].verdict == "faster"
            if not is_faster or (done == _PROCESSES and least[0].low >= _LITTLE):
                return least
            again = self._compared(number, 1)
            if again is None:
                return replace(found[0], verdict="undecided"), found[1]
            least = min(least, again, key=lambda one: (one[0].verdict == "faster", one[0].low))
        return least

    def _compared(self, number: int, candidates: int) -> tuple[Comparison, list[float]] | None:
        """`None`: the candidate failed, or gave other results, in a fresh process."""
        self._progress.show(f"comparing {canonical(self._configs[number])} with the default", self._best())
        worker = self._workers.start()
        self._worker = worker
        try:
            prepared = self._prepared_anew(worker, number)
            return None if prepared is None else self._rounds_of_final(worker, number, prepared, candidates)
        except FailedError as error:
            if error.number != number:
                raise self._default_failed(error) from error
            self._note(number, error.outcome, error.reason)
            return None
        finally:
            self._close()

    def _prepared_anew(self, worker: Worker, number: int) -> dict[int, Prepared] | None:
        # The default first: results are compared with its results. Which is timed first is drawn for each round.
        found = {}
        for one in (DEFAULT, number):
            found[one] = worker.prepare(one, self._choice(one), self._warm_calls(one))
        if found[number].differs:
            self._note(number, Outcome.WRONG, f"wrong results in a fresh process: {found[number].differs}")
            return None
        return found

    def _warm_calls(self, number: int) -> int:
        trial = self._trials.get(canonical(self._configs[number]))
        seconds = statistics.median(trial.seconds) if trial is not None and trial.seconds else 1.0
        return min(self._warm.get(number, 0), int(_MOST_WARM_SECONDS / max(seconds, 1e-7)))

    def _rounds_of_final(
        self, worker: Worker, number: int, prepared: Mapping[int, Prepared], candidates: int
    ) -> tuple[Comparison, list[float]]:
        samples = Samples()
        timer = Timer(worker, prepared, self._rng, _raise)
        until = max(time.monotonic() + _LEAST_FINAL, self._until(1.0))
        resolution = conditions.clock_resolution() / calls_of_a_sample(prepared[number].call_seconds)
        comparison = None
        for rounds in _FINAL_ROUNDS:
            timer.run([number], rounds - len(samples.default), samples, until)
            self._note_frequency()
            comparison = compare(
                samples.of(number),
                samples.beside(number),
                confidence=self._plan.confidence,
                looks=len(_FINAL_ROUNDS),
                candidates=candidates,
                effect=self._plan.effect,
                resolution=resolution,
            )
            if comparison.verdict != "undecided" or time.monotonic() > until:
                break
        assert comparison is not None
        return comparison, samples.default


def _raise(_: int, error: FailedError) -> None:
    raise error
