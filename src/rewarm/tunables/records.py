"""Records: what tuning one case has found, as frozen values with one text.

Not promised: that what a record says of seconds holds on another day. Which of several records decides is said in
`merging.py`, and whether a case is that of a call in `selecting.py`.

A record's text is canonical JSON (sorted names, no spaces, ASCII), so that equal records have equal bytes:

    {"about": {}, "case": {}, "comparison": null or {}, "default": {}, "environment": {}, "flags": [], "inputs": "",
     "tolerance": {}, "trials": [{}], "version": 1, "when": seconds, "winner": null or {}}

Bump `VERSION` when a reader of the present version would misread a record. There is a golden file in `tests/golden/`.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from rewarm.errors import BadEntryError
from rewarm.identity.components import Component, component, derive_key
from rewarm.sharing.tuned import KIND
from rewarm.tunables.spaces import Config, Value, canonical

VERSION = 1

# Bounds of what is kept and read: of one record's trials, and of one trial's samples.
MOST_TRIALS = 4096
MOST_SAMPLES = 256
LARGEST = 8 << 20

LONGEST = 16_384
_MOST_NAMES = 1024
_DIGEST = re.compile("[0-9a-f]{64}")
_DIGESTS = ("content", "target", "toolchain", "libraries")


@dataclass(frozen=True, slots=True)
class Case:
    """What a record is about: everything that makes another measurement necessary. Equal cases have one key.

    Attributes:
      kernel: "module:qualname", or the name that the user gave.
      content: fingerprint of the function with all that it reaches and of the variants in its space, 64 hex digits.
      arguments: the abstract arguments, as canonical text that people read: "f32[1024,512], bf16[8]{weak}, n=4".
      target: digest of what the compiler reads of the device.
      toolchain: digest of what makes code: jaxlib, plugins, tools.
      libraries: digest of what else is used to make the program: JAX and what the kernel imports.
    """

    kernel: str
    content: str
    arguments: str
    target: str
    toolchain: str
    libraries: str

    def __post_init__(self) -> None:
        """Refuse what can be no case.

        Raises:
          ValueError: a name is empty or a digest has not 64 hexadecimal digits.
        """
        if not self.kernel or len(self.kernel) > LONGEST or len(self.arguments) > LONGEST:
            raise ValueError(
                f"a kernel has a name, which like its arguments' text has at most {LONGEST} characters, "
                f"found {self.kernel!r:.80} and {self.arguments!r:.80}"
            )
        for name in _DIGESTS:
            if not _DIGEST.fullmatch(getattr(self, name)):
                raise ValueError(f"{name} is a digest of 64 hexadecimal digits, found {getattr(self, name)!r:.80}")

    @property
    def rows(self) -> tuple[Component, ...]:
        """Named components, in their order: those of an entry's header, and of its key."""
        return (component("kind", KIND), *(component(name, value) for name, value in asdict(self).items()))

    @property
    def key(self) -> str:
        """64 hexadecimal digits, made as all keys are."""
        return _key(self)

    @property
    def here(self) -> tuple[str, ...]:
        """All but the arguments: cases that share it may lend each other a winner (`selecting.py`)."""
        return (self.kernel, self.content, self.target, self.toolchain, self.libraries)


@functools.lru_cache(4096)
def _key(case: Case) -> str:
    return derive_key((row.name, row.digest) for row in case.rows)


class Outcome(StrEnum):
    """What came of one candidate. All but the first two are remembered for a while and not tried again until then."""

    TIMED = "timed"
    NOISY = "noisy"
    WRONG = "wrong"
    CRASHED = "crashed"
    HUNG = "hung"
    NO_MEMORY = "no memory"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate in one session.

    Attributes:
      config: the candidate.
      outcome: what came of it.
      seconds: of one call, a sample for each round, in the order of the rounds; at most the first `MOST_SAMPLES`.
      reason: what went wrong, or what is remarkable, in words.
      when: seconds since the epoch.
      expires: until when it is not tried again, in seconds since the epoch; `None`: it is not left out.
    """

    config: Config
    outcome: str
    seconds: tuple[float, ...] = ()
    reason: str = ""
    when: float = 0.0
    expires: float | None = None

    def __post_init__(self) -> None:
        """Bound what is kept.

        Raises:
          ValueError: the outcome is none, or a number is not finite or negative.
        """
        Outcome(self.outcome)
        object.__setattr__(self, "outcome", str(self.outcome))
        object.__setattr__(self, "seconds", tuple(float(one) for one in self.seconds[:MOST_SAMPLES]))
        object.__setattr__(self, "reason", self.reason[:LONGEST])
        if not all(math.isfinite(one) and one >= 0 for one in (*self.seconds, self.when, self.expires or 0.0)):
            raise ValueError("seconds and times of a trial are finite and not negative")

    def __hash__(self) -> int:
        return hash((canonical(self.config), self.outcome, self.seconds, self.when))

    def is_bad(self, now: float) -> bool:
        """Whether the candidate has failed here and is not to be tried again yet."""
        return self.outcome not in (Outcome.TIMED, Outcome.NOISY) and self.expires is not None and now < self.expires

    @property
    def text(self) -> str:
        """Canonical JSON of all it says."""
        return _json(_trial(self))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate beside the default, from samples of the same rounds (`deciding.py`).

    Attributes:
      ratio: the default's seconds by the candidate's, so more than 1 is faster; median over the rounds.
      low: lower bound of that ratio.
      high: upper bound; both hold together with the confidence.
      verdict: "faster", "slower", "same" or "undecided".
      confidence: of the bounds, corrected for all looks and candidates: 0.95 is 95 %.
      rounds: how many there were.
    """

    ratio: float
    low: float
    high: float
    verdict: str
    confidence: float = 0.95
    rounds: int = 0

    def __str__(self) -> str:
        sure = f"{self.low:.3f} to {self.high:.3f} at {self.confidence:.4g}"
        return f"{self.verdict}: {self.ratio:.3f} times as fast as the default ({sure}, {self.rounds} rounds)"


VERDICTS = ("faster", "slower", "same", "undecided")


@dataclass(frozen=True, eq=False)
class Record:
    """What tuning one case has found, in one session or, merged, in several.

    Attributes:
      case: what it is about.
      default: the configuration that all are compared with.
      winner: what to use; the default, where nothing beats it; `None` while no final comparison has been made.
      trials: every candidate of which something is known.
      comparison: winner and default in fresh order, in a fresh process; `None` while that was not made.
      environment: what was measured of the machine: load, clock, frequency, other tenants.
      flags: what to mistrust: "noisy", "not isolated", ...
      when: the end of the session, in seconds since the epoch.
      inputs: what it was measured on, in words.
      tolerance: within which results agreed with the default's: {"float32": 1e-5, ...}.
      about: what the case's digests stand for, to be read: device, jax, jaxlib, build, versions of libraries.
    """

    case: Case
    default: Config
    winner: Config | None = None
    trials: tuple[Trial, ...] = ()
    comparison: Comparison | None = None
    environment: Mapping[str, Value] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    when: float = 0.0
    inputs: str = ""
    tolerance: Mapping[str, Value] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @functools.cached_property
    def text(self) -> str:
        """Canonical JSON."""
        return _json(_record(self))

    @property
    def data(self) -> bytes:
        """As the section of an entry has it."""
        return self.text.encode("ascii")

    @property
    def ratio(self) -> float:
        """How many times as fast as the default the winner is; 1 where the default stays."""
        is_other = self.winner is not None and canonical(self.winner) != canonical(self.default)
        return self.comparison.ratio if self.comparison is not None and is_other else 1.0

    def best_known(self, config: Config) -> Trial | None:
        """The newest trial of a candidate."""
        wanted = canonical(config)
        found = [one for one in self.trials if canonical(one.config) == wanted]
        return max(found, key=lambda one: (one.when, one.text), default=None)


def read(data: bytes) -> Record:
    """The record that these bytes are, which come from a sealed entry or a file.

    Raises:
      BadEntryError: they are none, or one of another version.
    """
    if len(data) > LARGEST:
        raise BadEntryError("a tuning record is larger than any session's")
    try:
        told = json.loads(data)
        if told["version"] != VERSION:
            raise BadEntryError(f"a tuning record of version {told['version']!r:.20}, this rewarm reads {VERSION}")
        return _read(told)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as wrong:
        if isinstance(wrong, BadEntryError):
            raise
        raise BadEntryError(
            f"a tuning record is not in the known form: {type(wrong).__name__}: {wrong}"[:300]
        ) from wrong


def _json(told: Any) -> str:
    return json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _trial(trial: Trial) -> dict[str, Any]:
    told = {"config": dict(trial.config), "outcome": trial.outcome, "reason": trial.reason, "when": trial.when}
    return {**told, "seconds": list(trial.seconds), "expires": trial.expires}


def _record(record: Record) -> dict[str, Any]:
    return {
        "about": dict(record.about),
        "case": asdict(record.case),
        "comparison": None if record.comparison is None else asdict(record.comparison),
        "default": dict(record.default),
        "environment": dict(record.environment),
        "flags": list(record.flags),
        "inputs": record.inputs,
        "tolerance": dict(record.tolerance),
        "trials": [json.loads(text) for text in sorted(one.text for one in record.trials)],
        "version": VERSION,
        "when": record.when,
        "winner": None if record.winner is None else dict(record.winner),
    }


def _read(told: Mapping[str, Any]) -> Record:
    trials = _list(told["trials"])
    return Record(
        case=Case(**{str(name): _text(value) for name, value in told["case"].items()}),
        default=config_of(told["default"]),
        winner=None if told["winner"] is None else config_of(told["winner"]),
        trials=tuple(_read_trial(one) for one in trials[:MOST_TRIALS]),
        comparison=None if told["comparison"] is None else comparison_of(told["comparison"]),
        environment=config_of(told["environment"]),
        flags=tuple(_text(one) for one in _list(told["flags"])[:_MOST_NAMES]),
        when=_number(told["when"]),
        inputs=_text(told["inputs"]),
        tolerance=config_of(told["tolerance"]),
        about={name: _text(value) for name, value in config_of(told["about"]).items()},
    )


def _read_trial(told: Mapping[str, Any]) -> Trial:
    return Trial(
        config=config_of(told["config"]),
        outcome=_text(told["outcome"]),
        seconds=tuple(_number(one) for one in _list(told["seconds"])),
        reason=_text(told["reason"]),
        when=_number(told["when"]),
        expires=None if told["expires"] is None else _number(told["expires"]),
    )


def comparison_of(told: Mapping[str, Any]) -> Comparison:
    """The comparison that plain values say.

    Raises:
      ValueError, TypeError, KeyError: they say none.
    """
    if told["verdict"] not in VERDICTS or type(told["rounds"]) is not int:
        raise ValueError(f"a verdict is one of {', '.join(VERDICTS)}, found {told['verdict']!r:.40}")
    ratio, low, high, confidence = (_number(told[name]) for name in ("ratio", "low", "high", "confidence"))
    return Comparison(ratio, low, high, told["verdict"], confidence, told["rounds"])


def config_of(told: Any) -> dict[str, Value]:
    """A mapping of names to plain scalars.

    Raises:
      ValueError, TypeError: it is none.
    """
    if not isinstance(told, dict) or len(told) > _MOST_NAMES:
        raise TypeError(f"a mapping of at most {_MOST_NAMES} names expected, found {type(told).__name__}")
    for name, value in told.items():
        if value is not None and not isinstance(value, bool | int | float | str):
            raise TypeError(f"{name!r:.40} is {type(value).__name__}, where a number, text, a bool or null is expected")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name!r:.40} is not finite")
    return {_text(name): value for name, value in told.items()}


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a list expected, found {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST:
        raise TypeError(f"text of at most {LONGEST} characters expected, found {type(value).__name__}")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"a finite number expected, found {value!r:.40}")
    return float(value)
