"""What a session is about and how it goes, as frozen values, and the errors by which one ends.

Not promised: that a plan is kept to the second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rewarm.errors import RewarmError
from rewarm.tunables.deciding import MINIMUM_EFFECT
from rewarm.tunables.records import Case
from rewarm.tunables.searching import Proposer
from rewarm.tunables.spaces import Config, Space

# How long a failure is remembered, in seconds.
BAD_FOR = 30 * 24 * 3600.0

NOT_ISOLATED, INTERRUPTED, UNFINISHED = "not isolated", "interrupted", "unfinished"


class NoisyError(RewarmError, RuntimeError):
    """The machine was too busy for a measurement, and `strict` asks for a quiet one."""


class DefaultFailedError(RewarmError, RuntimeError):
    """The default itself cannot run, so there is nothing to compare with."""


class TracedError(RewarmError, RuntimeError):
    """The tuner was called by a function that is being traced."""


class Plan(NamedTuple):
    """How a session goes.

    Attributes:
      budget: seconds in all.
      trials: how many candidates at most; `None`: no bound.
      seed: of all that is drawn.
      confidence: of the final comparison.
      effect: the smallest difference that counts, relative.
      strict: whether a noisy session is refused.
      seeds: configurations to begin with.
      proposer: says what to try in a large space; `None`: halving and neighbours.
      limit_bad: seconds that a failure is remembered.
    """

    budget: float = 60.0
    trials: int | None = None
    seed: int = 0
    confidence: float = 0.95
    effect: float = MINIMUM_EFFECT
    strict: bool = False
    seeds: Sequence[Config] = ()
    proposer: Proposer | None = None
    limit_bad: float = BAD_FOR


class Subject(NamedTuple):
    """What a session is about.

    Attributes:
      case: of the record.
      space: what may be chosen.
      choice: from a configuration to what a worker takes.
      inputs: what is measured on, in words.
      tolerance: as records have it.
      about: as records have it.
    """

    case: Case
    space: Space
    choice: Callable[[Config], Any]
    inputs: str
    tolerance: Mapping[str, Any]
    about: Mapping[str, str]
