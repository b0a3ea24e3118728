"""What is timed next: a state machine that is asked for candidates and told what came of them. It times nothing.

Not promised: that the best of a large space is found. A space of at most 64 allowed configurations is tried whole.

    asked                                   told
    what seeds say, and a sample   ──►      the better half goes on, with twice the rounds, until few are left
    the neighbours of the best     ──►      again while one of them is better, else the end

The first is successive halving: K. Jamieson and A. Talwalkar, "Non-stochastic Best Arm Identification and
Hyperparameter Optimization", AISTATS 2016. A proposer, such as Optuna (`optimising.py`), takes the place of both.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rewarm.tunables.spaces import Config, Space, canonical

WHOLE = 64

# Of a large space: how many are drawn, how many go on to the neighbours, and how many of those are tried at once.
_DRAWN = 32
_LAST = 4
_AT_ONCE = 16

# Rounds that a candidate is timed in when it is asked for first; those that go on get twice as many each time.
_ROUNDS = 4
_MOST_ROUNDS = 32


class Proposer(Protocol):
    """Whoever says what to try next in a large space."""

    def propose(self, count: int) -> list[Config]:
        """So many allowed configurations, or fewer; none: it has no more."""

    def told(self, config: Config, score: float | None) -> None:
        """What came of one: seconds relative to the default's, or `None` where it cannot be used."""


class Search:
    """One search. The default is never asked for: whoever measures has it in every round, with a score of 1.

    Args:
      space: what may be chosen.
      seed: of all that is drawn; the same seed and the same answers give the same questions.
      seeds: what won for near shapes or sister devices, the likeliest first; what the space lacks is left out.
      known: canonical text -> score of what was timed before: it counts, and is not timed again.
      bad: candidates that failed here and are not to be tried.
      trials: how many candidates may be asked for in all; `None`: as many as it takes.
      seconds: how long the search may take; `None`: as long as it takes.
      proposer: says what to try in a space of more than `WHOLE`.

    Attributes:
      is_whole: whether every allowed configuration is tried.
      asked: how many were.
      rounds: in how many rounds those of the last answer are to be timed.
      ended_by: why `ask` had nothing more: "all tried", "trials", "seconds", "no better neighbour" or "proposer"; "".
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        seeds: Iterable[Config] = (),
        known: Mapping[str, float] | None = None,
        bad: Iterable[Config] = (),
        trials: int | None = None,
        seconds: float | None = None,
        proposer: Proposer | None = None,
    ) -> None:
        self.space = space
        self.is_whole = space.count(WHOLE + 1) <= WHOLE
        self.asked = 0
        self.rounds = _ROUNDS
        self.ended_by = ""
        self._default = canonical(space.default)
        self._trials, self._seconds, self._proposer = trials, seconds, proposer
        self._scores: dict[str, float | None] = dict.fromkeys((canonical(one) for one in bad), None)
        self._scores |= {**(known or {}), self._default: 1.0}
        self._configs: dict[str, Config] = {self._default: space.default}
        self._open: list[Config] = self._first(seed, seeds)
        self._running: list[Config] = []
        self._refined: set[str] = set()

    def ask(self, spent: float = 0.0) -> list[Config]:
        """What is to be timed now, with the default, in `rounds` rounds; nothing: the search is over.

        Args:
          spent: seconds that the search has taken so far. Where they are no longer enough for all, the first ones come.
        """
        if self.ended_by:
            return []
        batch = self._next()
        again = [one for one in batch if canonical(one) in self._scores]
        fresh = [one for one in batch if canonical(one) not in self._scores]
        room = self._room(len(again), spent)
        kept = [*again, *fresh[: max(0, room)]] if room is not None else batch
        if self._seconds is not None and spent >= self._seconds:
            kept, self.ended_by = [], "seconds"
        elif batch and not kept:
            self.ended_by = "trials" if self._trials is not None and self.asked >= self._trials else "seconds"
        self.asked += len(kept) - len(again) if kept else 0
        self._configs |= {canonical(one): one for one in kept}
        self._running = kept
        return list(kept)

    def tell(self, config: Config, score: float | None) -> None:
        """What came of a candidate.

        Args:
          config: one that was asked for, or any other of the space.
          score: its seconds relative to the default's in the same rounds; `None`: it cannot be used.
        """
        text = canonical(config)
        self._scores[text] = score
        self._configs.setdefault(text, config)
        if self._proposer is not None:
            self._proposer.told(config, score)

    @property
    def best(self) -> list[Config]:
        """What can be used, the fastest first; the default is among them."""
        good = [(score, text) for text, score in self._scores.items() if score is not None and self._has(text)]
        return [self._configs[text] for _, text in sorted(good)]

    def _has(self, text: str) -> bool:
        return text in self._configs

    def _first(self, seed: int, seeds: Iterable[Config]) -> list[Config]:
        allowed = [self.space.check(one) for one in seeds if self.space.allows(one)]
        if self.is_whole:
            drawn: Sequence[Config] = list(self.space.all())
        elif self._proposer is None:
            drawn = [near for one in allowed[:_LAST] for near in self.space.neighbours(one)]
            drawn = [*drawn[: _DRAWN // 2], *self.space.sample(random.Random(seed), _DRAWN)]
        else:
            drawn = ()
        self._configs |= {text: one for one in (*allowed, *drawn) if (text := canonical(one)) in self._scores}
        most = len(drawn) if self.is_whole else _DRAWN
        return self._untried([*allowed, *drawn])[:most]

    def _untried(self, configs: Iterable[Config]) -> list[Config]:
        found = {canonical(one): one for one in configs}
        return [one for text, one in found.items() if text not in self._scores]

    def _next(self) -> list[Config]:
        if self._open:
            batch, self._open = self._open, []
            self.rounds = _ROUNDS
            return batch
        if self.is_whole:
            self.ended_by = "all tried"
            return []
        if self._proposer is not None:
            return self._proposed()
        return self._halved() or self._nearby()

    def _proposed(self) -> list[Config]:
        assert self._proposer is not None
        batch = self._untried(self._proposer.propose(_AT_ONCE))
        if not batch:
            self.ended_by = "proposer"
        return batch

    def _halved(self) -> list[Config]:
        """The better half of those that were timed last, while they are many and not yet timed often."""
        if len(self._running) <= _LAST or self.rounds >= _MOST_ROUNDS:
            return []
        scored = [(score, canonical(one)) for one in self._running if (score := self._scores.get(canonical(one)))]
        self.rounds *= 2
        return [self._configs[text] for _, text in sorted(scored)[: max(_LAST, len(self._running) // 2)]]

    def _nearby(self) -> list[Config]:
        """Neighbours of the best few that were not looked at yet."""
        self.rounds = _ROUNDS
        for one in self.best[:_LAST]:
            text = canonical(one)
            if text in self._refined:
                continue
            self._refined.add(text)
            batch = self._untried(self.space.neighbours(one))[:_AT_ONCE]
            if batch:
                return batch
        self.ended_by = "no better neighbour"
        return []

    def _room(self, again: int, spent: float) -> int | None:
        """How many new candidates the budgets still allow; `None`: any number."""
        rooms = []
        if self._trials is not None:
            rooms.append(self._trials - self.asked)
        if self._seconds is not None and spent > 0 and self.asked:
            rooms.append(int((self._seconds - spent) * self.asked / spent) - again + 1)
        return min(rooms) if rooms else None
