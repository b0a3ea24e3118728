"""Which winners a trace took: noted while `rewarm.jit` records one, and looked at again before it is believed.

Not promised: anything to `jax.jit`, which knows a trace by its function and arguments alone: in a process that has
traced a function, a new winner acts at its next trace.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

from rewarm.jax_adapter.session import Session
from rewarm.tunables.records import Case


class Decision(NamedTuple):
    """One look-up of a winner.

    Attributes:
      case: whose.
      nearest: whether that of a near case would do.
      taken: the winner's canonical text; "" where there was none.
    """

    case: Case
    nearest: bool
    taken: str

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {"case": asdict(self.case), "nearest": self.nearest, "taken": self.taken}

    @classmethod
    def of_plain(cls, told: Any) -> Decision:
        """Raises ValueError, KeyError or TypeError where it is none."""
        return cls(Case(**told["case"]), bool(told["nearest"]), str(told["taken"]))


_collecting = threading.local()


@contextmanager
def collecting() -> Iterator[list[Decision]]:
    """Within it, the decisions of this thread are noted."""
    before: list[Decision] | None = getattr(_collecting, "found", None)
    found: list[Decision] = []
    _collecting.found = found
    try:
        yield found
    finally:
        _collecting.found = before
        if before is not None:
            before.extend(found)


def note(decision: Decision) -> None:
    """One was made."""
    found: list[Decision] | None = getattr(_collecting, "found", None)
    if found is not None and decision not in found:
        found.append(decision)


def changed(session: Session, decisions: Sequence[Decision]) -> str:
    """What would be decided otherwise now, in words; "" for nothing."""
    if not decisions:
        return ""
    from rewarm.jax_adapter.tuner import lookups

    for one in decisions:
        now = lookups.winner(session, one.case, nearest=one.nearest).text
        if now != one.taken:
            was = one.taken or "untuned"
            return f"the tuned choice of {one.case.kernel}: {was} -> {now or 'untuned'}"
    return ""
