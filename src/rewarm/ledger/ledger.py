"""The ledger of a process: its events and its counters.

Not promised: every event for ever. The newest 100,000 are kept; the counters cover all.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from rewarm.ledger.events import Event, Span
from rewarm.ledger.stats import Stats

logger = logging.getLogger("rewarm")

_EVENTS_KEPT = 100_000

# Programs that were traced or lowered and not asked for yet; most traces are of functions that never become programs.
_STAGES_KEPT = 4096


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
            "lost": 0.0,
            "compiling": 0.0,
            "overhead": 0.0,
            "loading": 0.0,
            "tracing": 0.0,
            "waiting": 0.0,
        }
        self._not_stored: Counter[str] = Counter()
        self._seconds_not_stored: dict[str, float] = {}
        self._left_to_jax: Counter[str] = Counter()
        self._hits_from: Counter[str] = Counter()
        self._missed_for: Counter[str] = Counter()
        self._listeners: tuple[Callable[[Event], object], ...] = ()
        self._traces: Counter[str] = Counter()
        self._jitted: Counter[str] = Counter()
        self._tuned: Counter[str] = Counter()
        self._fresh: Counter[str] = Counter()  # traces that no program was wanted with yet
        self._traced_for: Counter[tuple[str, str]] = Counter()
        self._stages: dict[str, dict[str, tuple[float, float]]] = {}

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def record(self, event: Event) -> None:
        """Add one finished request, and tell whoever listens."""
        hit = event.outcome == "hit"
        cause = event.cause
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
            if hit:
                self._hits_from[event.tier or ""] += 1
            else:
                self._missed_for[cause] += 1
            self._seconds["saved"] += event.seconds_saved
            self._seconds["lost"] -= min(event.seconds_saved, 0.0)
            self._seconds["compiling"] += event.seconds.compile
            self._seconds["loading"] += event.seconds.load
            self._seconds["waiting"] += event.seconds.wait
            seconds = event.seconds
            self._seconds["overhead"] += seconds.key + seconds.fetch + seconds.store + seconds.explain
        for heard in self._listeners:
            try:
                heard(event)
            except Exception:  # who listens must not stop a program
                logger.debug("rewarm: a listener of events failed", exc_info=True)

    def listen(self, heard: Callable[[Event], object]) -> None:
        """Call `heard` with each event from now on, in the thread whose request it was, until `unlisten`."""
        with self._lock:
            self._listeners = (*self._listeners, heard)

    def unlisten(self, heard: Callable[[Event], object]) -> None:
        """Do so no more."""
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one != heard)

    def error(self) -> None:
        """Count one failure of a store, a loader or a serialiser."""
        with self._lock:
            self._numbers["errors"] += 1

    def count_trace(self, outcome: str) -> None:
        """Count what became of a call of `rewarm.jit` that JAX would have traced."""
        with self._lock:
            self._jitted[outcome] += 1

    def count_tuned(self, choice: str) -> None:
        """Count one choice of the tuner."""
        with self._lock:
            self._tuned[choice] += 1

    def evicted(self) -> None:
        """Count one entry that a store let go."""
        with self._lock:
            self._numbers["evicted"] += 1

    def left_to_jax(self, reason: str) -> None:
        """Count one program that JAX's own code handled."""
        with self._lock:
            self._left_to_jax[reason] += 1

    def traced(self, function: str, seconds: float) -> None:
        """Count one trace of a function by JAX, inner functions included; it has just ended."""
        module = _module_name(function)
        with self._lock:
            self._traces[function] += 1
            self._fresh[module] += 1
            self._seconds["tracing"] += seconds
            self._note_stage(module, "trace", seconds)

    def lowered(self, module: str, seconds: float) -> None:
        """JAX has just lowered a program, whose request is likely to come next."""
        with self._lock:
            self._note_stage(_PLAIN.sub("_", module).rstrip("_"), "lower", seconds)

    def _note_stage(self, module: str, step: str, seconds: float) -> None:
        if len(self._stages) >= _STAGES_KEPT:
            self._stages.clear()
        self._stages.setdefault(module, {})[step] = time.perf_counter() - seconds, seconds

    def take_stages(self, program: str, since: float) -> list[Span]:
        """What JAX did for a program before it asked, once. They begin so many seconds after `since`, which is a moment
        of `time.perf_counter`. Two programs of one name that are lowered before either is asked for are mixed up."""
        with self._lock:
            stages = self._stages.pop(program.rstrip("_"), None)
        return [(step, began - since, took) for step, (began, took) in stages.items()] if stages else []

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
                "hits_from": MappingProxyType(dict(self._hits_from)),
                "missed_for": MappingProxyType(dict(self._missed_for)),
                "not_stored": MappingProxyType(dict(self._not_stored)),
                "seconds_not_stored": MappingProxyType(dict(self._seconds_not_stored)),
                "left_to_jax": MappingProxyType(dict(self._left_to_jax)),
                "traced_again": MappingProxyType(self._traced_again()),
                "jitted": MappingProxyType(dict(self._jitted)),
                "tuned": MappingProxyType(dict(self._tuned)),
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


_PLAIN = re.compile(r"[^\w.-]")


@functools.cache
def of_this_process() -> Ledger:
    """The ledger that the programs of this process are counted in."""
    return Ledger()


def _module_name(function: str) -> str:
    """What JAX calls the module of a function: letters, digits, `_`, `.` and `-` stay, and some `_` at the end go."""
    return ("jit_" + _PLAIN.sub("_", function)).rstrip("_")


_COUNTED = (
    "requests",
    "hits",
    "misses",
    "stored",
    "slow_hits",
    "dropped",
    "quarantined",
    "evicted",
    "errors",
    "bytes_read",
    "bytes_written",
)
