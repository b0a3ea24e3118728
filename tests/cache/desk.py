"""A cache at work on executables that are plain bytes, and everything around it that a test wants to look at.

Every request goes through a `Desk`, which checks after each that events and numbers agree.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rewarm.cache import CompileCache, Request
from rewarm.coordination import Flight, SingleFlight
from rewarm.identity import KeyComponents, component
from rewarm.ledger import Event, Ledger, Stats
from rewarm.ledger.explanation import Explanation
from rewarm.policy import Thresholds
from rewarm.store import Store

PATIENCE = 20.0
OPEN = Thresholds(min_compile_seconds=0.0, min_entry_bytes=0)


class BrokenExecutableError(Exception):
    """What a loader or a serialiser of these tests raises."""


class CompileError(Exception):
    """What the compiler of these tests raises."""


class Compiler:
    """Makes "executables": the bytes of a program's name in upper case. Counts what it is asked for."""

    def __init__(self) -> None:
        self.did: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.seconds = 0.0

    def count(self, what: str) -> None:
        with self.lock:
            self.did[what] += 1

    def request(self, program: str, **changes: Any) -> Request[bytes]:
        """A request for `program`; `changes` replace fields of it."""

        def compile_now() -> bytes:
            self.count("compile")
            time.sleep(self.seconds)
            return program.upper().encode()

        def serialise(executable: bytes) -> bytes:
            self.count("serialise")
            return b"serialised " + executable

        def load(raw: bytes) -> bytes:
            self.count("load")
            assert raw.startswith(b"serialised ")
            return raw.removeprefix(b"serialised ")

        made: Request[bytes] = Request(
            program=program,
            components=components_of(program),
            unkeyable=None,
            key_seconds=0.001,
            compile=compile_now,
            serialise=serialise,
            load=load,
            same=lambda one, other: one == other,
            producer={"jax": "0.10.2"},
            target="cpu x1",
        )
        return made._replace(**changes)


def components_of(program: str) -> KeyComponents:
    names = ("program", "callbacks", "options", "inputs", "toolchain", "target", "salt")
    return KeyComponents.of({name: component(name, program if name == "program" else "") for name in names})


def key_of(program: str) -> str:
    return components_of(program).key()


class Watcher:
    """An observer that writes down what it hears."""

    def __init__(self) -> None:
        self.misses: list[tuple[str, str | None, str]] = []
        self.finishes: list[Event] = []

    def missed(self, program: str, key: str | None, reason: str, explanation: Explanation | None) -> None:
        assert explanation is None, "no explainer was given"
        self.misses.append((program, key, reason))

    def finished(self, event: Event) -> None:
        self.finishes.append(event)


class CountedFlights(SingleFlight):
    """Flights that say when a thread has boarded."""

    def __init__(self) -> None:
        super().__init__()
        self.boarded = threading.Semaphore(0)

    @contextmanager
    def board(self, key: str) -> Iterator[Flight]:
        with super().board(key) as flight:
            self.boarded.release()
            yield flight

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.boarded.acquire(timeout=PATIENCE), "somebody did not board"


class Desk:
    """A cache, and everything around it that a test wants to look at."""

    def __init__(self, store: Store | None, **settings: Any) -> None:
        self.store = store
        self.ledger = Ledger()
        self.watcher = Watcher()
        self.flights = CountedFlights()
        self.compiler = Compiler()
        self.cache = CompileCache(
            store,
            ledger=self.ledger,
            flights=self.flights,
            observer=self.watcher,
            **{"thresholds": OPEN, **settings},
        )

    def again(self, **settings: Any) -> Desk:
        """The next process over the same store."""
        return Desk(self.store, **settings)

    def ask(self, program: str = "step", **changes: Any) -> bytes:
        """What the cache answers; the numbers are checked whatever comes of it."""
        return self.serve(self.compiler.request(program, **changes))

    def serve(self, request: Request[bytes]) -> bytes:
        try:
            return self.cache.resolve(request)
        finally:
            self.check()

    def check(self) -> None:
        """Events, numbers and what the observer heard tell one story."""
        stats, events = self.ledger.stats(), self.ledger.events()
        assert events == self.watcher.finishes
        assert stats.requests == len(events) == stats.hits + stats.misses
        assert Counter(event.outcome for event in events) == +Counter(hit=stats.hits, miss=stats.misses)
        assert stats.stored == sum(event.stored for event in events)
        assert stats.quarantined == sum(event.quarantined is not None for event in events)
        assert stats.not_stored == Counter(event.not_stored for event in events if event.not_stored)
        assert stats.bytes_read == sum(event.bytes_read for event in events)
        assert stats.bytes_written == sum(event.bytes_written for event in events)
        assert stats.seconds_compiling == pytest.approx(sum(event.seconds.compile for event in events))
        assert stats.seconds_saved == pytest.approx(sum(event.seconds_saved for event in events))
        for event in events:
            check_event(event)

    @property
    def stats(self) -> Stats:
        return self.ledger.stats()

    @property
    def last(self) -> Event:
        return self.ledger.events()[-1]


def check_event(event: Event) -> None:
    if event.outcome == "hit":
        assert event.tier in {"local", "process"}
        assert (event.reason, event.not_stored, event.stored, event.seconds.compile) == (None, None, False, 0.0)
    else:
        assert event.tier is None
        assert event.reason
        assert event.stored is (event.not_stored is None)
        assert event.seconds_saved == 0.0
    assert event.stored is (event.bytes_written > 0)
