"""What one request has come to so far."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rewarm.ledger.events import Span
    from rewarm.ledger.explanation import Explanation
    from rewarm.restart import Way


class Trace:
    """What one request has come to so far; turned into an `Event` at its end."""

    def __init__(self, key_seconds: float) -> None:
        self.started = time.time()
        self.since = time.perf_counter()
        self.seconds: dict[str, float] = {"key": key_seconds}
        self.spans: list[Span] = [("key", -key_seconds, key_seconds)]
        self.tier: str | None = None
        self.remote: str | None = None  # where the entry came from, when not from the local store
        self.reason: str | None = None
        self.stored = False
        self.not_stored: str | None = None
        self.seconds_saved = 0.0
        self.bytes_read = 0
        self.bytes_written = 0
        self.quarantined: str | None = None
        self.dropped = False
        self.ahead = ""
        self.entry_is_good = False  # it was not loaded, for a reason that is this process's
        self.explanation: Explanation | None = None
        self.way: Way | None = None  # how the program wants it loaded

    def timed(self, step: str, since: float) -> float:
        """Add the time since `since` to a step; returns it, in seconds."""
        took = time.perf_counter() - since
        self.seconds[step] = self.seconds.get(step, 0.0) + took
        self.spans.append((step, since - self.since, took))
        return took
