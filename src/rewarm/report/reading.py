"""Events as they are on disk, read with care: a file may hold anything under any name.

Not promised: that what is read is what was meant. A value of the wrong kind counts as not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rewarm.report.model import STEPS

Event = Mapping[str, Any]

# A time beyond this, in seconds, is a wrong one: ten years.
_MOST = 3e8

# How the steps of an event of an earlier rewarm followed each other, which wrote down how long they took alone.
_BEFORE, _AFTER = ("key",), ("fetch", "wait", "load", "explain", "compile", "store")

_ORDER = {name: number for number, name in enumerate(STEPS)}


def text(event: Event, name: str) -> str:
    """A text; "" where there is none."""
    value = event.get(name)
    return value if isinstance(value, str) else ""


def number(event: Event, name: str) -> float:
    """A number; 0.0 where there is none."""
    return _number(event.get(name))


def seconds(event: Event, *names: str) -> float:
    """What some steps took together."""
    told = event.get("seconds")
    return sum(_number(told.get(name)) for name in names) if isinstance(told, Mapping) else 0.0


def is_hit(event: Event) -> bool:
    """Whether it was not compiled."""
    return event.get("outcome") == "hit"


def spans(event: Event) -> Iterator[tuple[int, float, float]]:
    """The steps: which, by its number in `STEPS`, when it began, in seconds since the epoch, and how long it took."""
    time, told = number(event, "time"), event.get("spans")
    if not isinstance(told, list):
        yield from _supposed(event, time)
        return
    for span in told:
        if isinstance(span, list) and len(span) == 3 and isinstance(span[0], str) and span[0] in _ORDER:
            began, took = _number(span[1]), _number(span[2])
            if took > 0 and abs(began) < _MOST and took < _MOST:
                yield _ORDER[span[0]], time + began, took


def _supposed(event: Event, time: float) -> Iterator[tuple[int, float, float]]:
    for name in _BEFORE:
        if took := seconds(event, name):
            yield _ORDER[name], time - took, took
    for name in _AFTER:
        if took := seconds(event, name):
            yield _ORDER[name], time, took
            time += took


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        plain = float(value)
    except OverflowError:
        return 0.0
    return plain if math.isfinite(plain) else 0.0
