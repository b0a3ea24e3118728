"""What a check comes to.

Not promised: that texts keep their words. `Check.name` and `Check.verdict` do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding.

    Attributes:
      name: what was looked at, such as "directory".
      verdict: "ok"; "note": it works, and it may not be what was meant; "problem": caching does not work, or mostly.
      found: what was found, in one line.
      advice: what to do next; "" where there is nothing to do.
    """

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def seconds(value: float) -> str:
    """Seconds for people."""
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things; `many` is what more than one are called, by default with an "s"."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def some(words: list[str], at_most: int = 5) -> str:
    """A few of many words."""
    more = f" and {len(words) - at_most} more" if len(words) > at_most else ""
    return ", ".join(words[:at_most]) + more
