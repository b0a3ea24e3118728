"""The ledger of a process: its events and its counters.

Not promised: every event for ever. The newest 100,000 are kept; the counters cover all.
"""

from __future__ import annotations

import dataclasses
import os
import re
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from rewarm.ledger.events import Event
from rewarm.ledger.stats import Stats

_EVENTS_KEPT = 100_000


class HasTraffic(Protocol):
    """Who can say what came from remotes and went there."""

    def traffic(self) -> Sequence[Any]:
        """A record (a dataclass) for each remote."""


class Ledger:
    """Counts and remembers. Safe for any number of threads; a forked child starts with its parent's numbers.

    Attributes:
      remotes: whose traffic is among the numbers.
      ahead: what was done before it was asked for, counted by who does it.
    """

    def __init__(self) -> None:
        self.remotes: list[HasTraffic] = []
        self.ahead: Mapping[str, int] = {}
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_lock)
        self._events: deque[Event] = deque(maxlen=_EVENTS_KEPT)
        self._numbers: Counter[str] = Counter()
        self._seconds = {
            "saved": 0.0,
            "compiling": 0.0,
            "overhead": 0.0,
            "loading": 0.0,
            "tracing": 0.0,
            "waiting": 0.0,
        }
        self._not_stored: Counter[str] = Counter()
        self._seconds_not_stored: dict[str, float] = {}
        self._left_to_jax: Counter[str] = Counter()
        self._traces: Counter[str] = Counter()
        self._jitted: Counter[str] = Counter()
        self._fresh: Counter[str] = Counter()  # traces that no program was wanted with yet
        self._traced_for: Counter[tuple[str, str]] = Counter()

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
                slow_hits=int(hit and event.seconds_saved < 0 and event.tier != "process"),
                dropped=int(event.dropped),
                quarantined=int(event.quarantined is not None),
                bytes_read=event.bytes_read,
                bytes_written=event.bytes_written,
            )
            if event.key is not None:
                module = event.program.rstrip("_")
                if self._fresh[module]:
                    self._fresh[module] -= 1
                    self._traced_for[event.program, event.key] += 1
            if event.not_stored is not None:
                self._not_stored[event.not_stored] += 1
                so_far = self._seconds_not_stored.get(event.not_stored, 0.0)
                self._seconds_not_stored[event.not_stored] = so_far + event.seconds.compile
            self._seconds["saved"] += event.seconds_saved
            self._seconds["compiling"] += event.seconds.compile
            self._seconds["loading"] += event.seconds.load
            self._seconds["waiting"] += event.seconds.wait
            seconds = event.seconds
            self._seconds["overhead"] += seconds.key + seconds.fetch + seconds.store + seconds.explain

    def error(self) -> None:
        """Count one failure of a store, a loader or a serialiser."""
        with self._lock:
            self._numbers["errors"] += 1

    def count_trace(self, outcome: str) -> None:
        """Count what became of a call of `rewarm.jit` that JAX would have traced."""
        with self._lock:
            self._jitted[outcome] += 1

    def left_to_jax(self, reason: str) -> None:
        """Count one program that JAX's own code handled."""
        with self._lock:
            self._left_to_jax[reason] += 1

    def traced(self, function: str, seconds: float) -> None:
        """Count one trace of a function by JAX, inner functions included."""
        with self._lock:
            self._traces[function] += 1
            self._fresh[_module_name(function)] += 1
            self._seconds["tracing"] += seconds

    @property
    def requests(self) -> int:
        """How many requests were recorded so far."""
        return self._numbers["requests"]

    def events(self) -> list[Event]:
        """The events so far, oldest first."""
        with self._lock:
            return list(self._events)

    def stats(self) -> Stats:
        """The numbers so far."""
        with self._lock:
            counted: dict[str, Any] = {name: self._numbers[name] for name in _COUNTED}
            counted["traces"] = sum(self._traces.values())
            timed: dict[str, Any] = {f"seconds_{name}": value for name, value in self._seconds.items()}
            tables: dict[str, Any] = {
                "not_stored": MappingProxyType(dict(self._not_stored)),
                "seconds_not_stored": MappingProxyType(dict(self._seconds_not_stored)),
                "left_to_jax": MappingProxyType(dict(self._left_to_jax)),
                "traced_again": MappingProxyType(self._traced_again()),
                "jitted": MappingProxyType(dict(self._jitted)),
            }
        traffic = tuple(dataclasses.asdict(one) for remotes in self.remotes for one in remotes.traffic())
        ahead = MappingProxyType(dict(self.ahead))
        return Stats(**tables, **counted, **timed, loads_ahead=ahead, remotes=traffic)

    def _traced_again(self) -> dict[str, int]:
        """Programs that JAX traced and wanted again, although it had them: the same key, and a trace for each time.

        A program that is wanted again without a trace was lowered once and compiled twice, which is the user's doing.
        """
        again: Counter[str] = Counter()
        for (program, _), times in self._traced_for.items():
            if times > 1:
                again[program] += times - 1
        return dict(again)


def _module_name(function: str) -> str:
    """What JAX calls the module of a function: letters, digits, `_`, `.` and `-` stay, and some `_` at the end go."""
    return ("jit_" + re.sub(r"[^\w.-]", "_", function)).rstrip("_")


_COUNTED = (
    "requests",
    "hits",
    "misses",
    "stored",
    "slow_hits",
    "dropped",
    "quarantined",
    "errors",
    "bytes_read",
    "bytes_written",
)
