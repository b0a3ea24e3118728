"""Which configuration a call gets: that of its own case, of the nearest one where that is allowed, or the default.

Not promised: that a near case's winner is good for this one. It was measured on other shapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rewarm.errors import SpaceError
from rewarm.tunables.merging import is_decided
from rewarm.tunables.records import Case, Record
from rewarm.tunables.spaces import Config, Space

EXACT, NEAREST, DEFAULT = "exact", "nearest", "default"

_SHOWN = 300

# A dimension may be so many times as large, or as small, and still be near.
_FARTHEST = math.log2(16.0)

# Dimensions of arrays: digits between brackets, with commas. All other text has to be the same.
_SHAPE = re.compile(r"\[([0-9, ]*)\]")

_CHANGED = {
    "content": "the kernel changed",
    "target": "the device changed",
    "toolchain": "the compiler changed",
    "libraries": "a library changed",
}
# The rows of `Record.about` that belong to each digest, by how their names begin.
_ABOUT = {
    "target": ("device", "platform", "target"),
    "toolchain": ("jaxlib", "compiler", "xla", "build", "toolchain", "plugin"),
    "libraries": (),
}


class Known(Protocol):
    """Where records are (`keeping.Keeping`)."""

    def find(self, case: Case) -> Record | None:
        """What is known of a case; `None`: nothing is."""

    def of_kernel(self, kernel: str) -> list[Record]:
        """One record for each case of a kernel."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a call gets.

    Attributes:
      config: the configuration.
      how: "exact", "nearest" or "default".
      record: the record that decided; `None` for the default.
      why: for people: what was used, and why nothing better was found. "" where the case is tuned.
    """

    config: Config
    how: str
    record: Record | None = None
    why: str = ""


def choose(
    case: Case, space: Space, known: Known, *, nearest: bool = False, about: Mapping[str, str] | None = None
) -> Choice:
    """Choose for a call.

    Args:
      case: of the call.
      space: its winner has to be in it.
      known: where records are.
      nearest: whether another shape's winner may be used.
      about: what the case's digests stand for, as `Record.about`, so that what has changed can be named.
    """
    record = known.find(case)
    if record is not None and is_decided(record):
        taken = _taken(record, space)
        if isinstance(taken, str):
            return Choice(space.default, DEFAULT, None, f"the winner is not used: {taken}")
        return Choice(taken, EXACT, record)
    others = known.of_kernel(case.kernel)
    if nearest and (near := near_to(case, others, space)) is not None:
        config = _taken(near, space)
        assert not isinstance(config, str)
        return Choice(config, NEAREST, near, f"not tuned; the winner of {near.case.arguments} is used")
    begun = record is not None
    why = "tuning was begun and has not ended" if begun else why_not(case, others, about)
    return Choice(space.default, DEFAULT, None, f"{why}; the default is used")


def near_to(case: Case, records: Iterable[Record], space: Space) -> Record | None:
    """The decided record of the nearest shapes, for the same kernel, device, compiler, types and ranks, if any."""
    return next(iter(all_near(case, records, space)), None)


def all_near(case: Case, records: Iterable[Record], space: Space) -> list[Record]:
    """As `near_to`, all of them, the nearest first: their winners are good to begin a search with."""
    found = []
    for one in records:
        away = distance(case.arguments, one.case.arguments)
        if one.case.here == case.here and one.case != case and is_decided(one) and away is not None:
            found.append((away, one.case.arguments, one))
    return [one for _, _, one in sorted(found, key=lambda row: row[:2]) if not isinstance(_taken(one, space), str)]


def sisters(case: Case, records: Iterable[Record]) -> list[Record]:
    """Decided records of the same kernel and arguments for other devices, compilers or contents, the newest first.

    They decide nothing here; a search may begin with their winners.
    """
    found = [one for one in records if one.case != case and is_decided(one) and one.case.arguments == case.arguments]
    return sorted(found, key=lambda one: (-one.when, one.case.key))


def distance(one: str, other: str) -> float | None:
    """How far apart two texts of arguments are; `None` where they differ in more than the sizes of dimensions.

    The root of the sum of the squares of how often each dimension doubles from one to the other.
    """
    if _SHAPE.sub("[]", one) != _SHAPE.sub("[]", other):
        return None
    total = 0.0
    for here, there in zip(_SHAPE.findall(one), _SHAPE.findall(other), strict=True):
        sizes, others = _sizes(here), _sizes(there)
        if len(sizes) != len(others):
            return None
        for size, away in zip(sizes, others, strict=True):
            small, large = sorted((size, away))
            doubled = 0.0 if small == large else math.log2(large / small) if small else math.inf
            if doubled > _FARTHEST:
                return None
            total += doubled * doubled
    return math.sqrt(total)


def short(text: str) -> str:
    """As much of a text of arguments as goes into a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def why_not(case: Case, records: Iterable[Record], about: Mapping[str, str] | None = None) -> str:
    """Why no record serves a case, in words: what has changed since the kernel was tuned, or that it never was."""
    tuned = [one for one in records if is_decided(one)]
    if not tuned:
        return f"{case.kernel} is not tuned"
    same = [one for one in tuned if one.case.arguments == case.arguments]
    if not same:
        here = [one for one in tuned if one.case.here == case.here]
        count = len({one.case.arguments for one in here or tuned})
        return f"{case.kernel} is not tuned for {short(case.arguments)}; it is for {count} other shapes"
    # What differs least is named, and of those the newest.
    best = min(same, key=lambda one: (len(differences(case, one.case)), -one.when, one.case.key))
    changed = " and ".join(changes(case, best, about))
    return f"{case.kernel} was tuned for {short(case.arguments)}, and since then {changed}"


def differences(case: Case, other: Case) -> list[str]:
    """The names of those digests in which two cases differ."""
    return [name for name in _CHANGED if getattr(case, name) != getattr(other, name)]


def changes(case: Case, record: Record, about: Mapping[str, str] | None = None) -> list[str]:
    """What has changed from a record's case to this one, in words, with what the record says of its own.

    Args:
      about: what is here, as `Record.about`, so that both can be named.
    """
    return [_change(name, record, about or {}) for name in differences(case, record.case)]


def _change(name: str, record: Record, about: Mapping[str, str]) -> str:
    starts = _ABOUT.get(name, ())
    before = {key: value for key, value in record.about.items() if _belongs(key, name, starts)}
    said = [
        f"{key} {value}" + (f" → {about[key]}" if key in about else "")
        for key, value in sorted(before.items())
        if about.get(key) != value
    ]
    return _CHANGED[name] + (f" ({', '.join(said[:4])})" if said else "")


def _belongs(key: str, name: str, starts: tuple[str, ...]) -> bool:
    others = tuple(start for rows in _ABOUT.values() for start in rows)
    return key.startswith(starts) if starts else name == "libraries" and not key.startswith(others)


def _sizes(text: str) -> list[int]:
    return [int(one) for one in text.replace(" ", "").split(",") if one]


def _taken(record: Record, space: Space) -> Config | str:
    """A record's winner, or why the space has not got it."""
    assert record.winner is not None
    try:
        return space.check(record.winner)
    except SpaceError as wrong:
        return str(wrong)
