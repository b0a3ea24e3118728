"""The ledger of a process: its events and its counters.

Not promised: every event for ever. The newest 100,000 are kept; the counters cover all.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from types import MappingProxyType
from typing import Any

from rewarm.ledger.events import Event
from rewarm.ledger.stats import Stats

_EVENTS_KEPT = 100_000


class Ledger:
    """Counts and remembers. Safe for any number of threads; a forked child starts with its parent's numbers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_lock)
        self._events: deque[Event] = deque(maxlen=_EVENTS_KEPT)
        self._numbers: Counter[str] = Counter()
        self._seconds = {"saved": 0.0, "compiling": 0.0, "overhead": 0.0, "loading": 0.0}
        self._not_stored: Counter[str] = Counter()
        self._left_to_jax: Counter[str] = Counter()

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def record(self, event: Event) -> None:
        """Add one finished request."""
        hit = event.outcome == "hit"
        with self._lock:
            self._events.append(event)
            self._numbers.update(
                requests=1,
                hits=int(hit),
                misses=int(not hit),
                stored=int(event.stored),
                quarantined=int(event.quarantined is not None),
                bytes_read=event.bytes_read,
                bytes_written=event.bytes_written,
            )
            if event.not_stored is not None:
                self._not_stored[event.not_stored] += 1
            self._seconds["saved"] += event.seconds_saved
            self._seconds["compiling"] += event.seconds.compile
            self._seconds["loading"] += event.seconds.load
            self._seconds["overhead"] += event.seconds.key + event.seconds.fetch + event.seconds.store

    def error(self) -> None:
        """Count one failure of a store, a loader or a serialiser."""
        with self._lock:
            self._numbers["errors"] += 1

    def left_to_jax(self, reason: str) -> None:
        """Count one program that JAX's own code handled."""
        with self._lock:
            self._left_to_jax[reason] += 1

    def events(self) -> list[Event]:
        """The events so far, oldest first."""
        with self._lock:
            return list(self._events)

    def stats(self) -> Stats:
        """The numbers so far."""
        with self._lock:
            counted = {name: self._numbers[name] for name in _COUNTED}
            timed: dict[str, Any] = {f"seconds_{name}": value for name, value in self._seconds.items()}
            reasons = MappingProxyType(dict(self._not_stored)), MappingProxyType(dict(self._left_to_jax))
        return Stats(not_stored=reasons[0], left_to_jax=reasons[1], **counted, **timed)


_COUNTED = ("requests", "hits", "misses", "stored", "quarantined", "errors", "bytes_read", "bytes_written")
