"""Timing several candidates in interleaved rounds, each with the default in it, in an order that is drawn anew.

Not promised: that a candidate comes through; the one that fails is taken out, and the others go on.

A round is one sample of each. What disturbs a round disturbs all that are in it, and samples are compared by round
(`tune.deciding`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from rewarm.jax_adapter.tuner.bench import Prepared, calls_of_a_sample
from rewarm.jax_adapter.tuner.worker import FailedError, Worker

DEFAULT = 0

# Of one request to a child: so long, so that deadlines and budgets are looked at in between.
_TOGETHER = 0.25
_MOST_TOGETHER = 16


class Samples:
    """Samples by candidate, of rounds in which all took part that are compared."""

    def __init__(self) -> None:
        self._rounds: dict[int, list[tuple[float, float]]] = {}
        self.default: list[float] = []

    def add(self, one: Mapping[int, float]) -> None:
        """One round."""
        self.default.append(one[DEFAULT])
        for number, seconds in one.items():
            self._rounds.setdefault(number, []).append((seconds, one[DEFAULT]))

    def of(self, number: int) -> list[float]:
        """A candidate's samples, in the order of its rounds."""
        return [seconds for seconds, _ in self._rounds.get(number, ())]

    def beside(self, number: int) -> list[float]:
        """The default's samples in the same rounds."""
        return [default for _, default in self._rounds.get(number, ())]


class Timer:
    """Times prepared candidates of one worker.

    Args:
      worker: holds them.
      prepared: what is known of each, by number; the default is `DEFAULT`.
      rng: draws the orders.
      failed: hears of a candidate that failed in a round; what was prepared is gone where the worker died.
    """

    def __init__(
        self,
        worker: Worker,
        prepared: Mapping[int, Prepared],
        rng: random.Random,
        failed: Callable[[int, FailedError], object] = lambda *_: None,
    ) -> None:
        self._worker = worker
        self._prepared = prepared
        self._rng = rng
        self._failed = failed

    def run(self, numbers: list[int], rounds: int, samples: Samples, until: float) -> bool:
        """So many rounds of these and the default, fewer where time is up (`until`, of `time.monotonic`).

        Returns: whether the worker still lives.

        Raises:
          FailedError: the default failed.
        """
        there = [DEFAULT, *(number for number in numbers if number != DEFAULT)]
        done = 0
        while done < rounds and len(there) > 1 and (time.monotonic() < until or not done):
            count = min(rounds - done, self._together(there))
            orders = [self._order(there) for _ in range(count)]
            try:
                found = self._worker.rounds(orders)
            except FailedError as error:
                if error.number is None or error.number == DEFAULT:
                    raise
                self._failed(error.number, error)
                if error.died:
                    return False
                there.remove(error.number)
                continue
            for order, seconds in zip(orders, found, strict=True):
                samples.add({number: one for (number, _), one in zip(order, seconds, strict=True)})
            done += count
        return True

    def _order(self, numbers: list[int]) -> list[tuple[int, int]]:
        drawn = self._rng.sample(numbers, len(numbers))
        return [(number, calls_of_a_sample(self._prepared[number].call_seconds)) for number in drawn]

    def _together(self, numbers: list[int]) -> int:
        seconds = [self._prepared[number].call_seconds for number in numbers]
        one = sum(max(1e-3, second) for second in seconds)
        return max(1, min(_MOST_TOGETHER, int(_TOGETHER / one)))
