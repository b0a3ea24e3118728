"""One thread per key does the work of a process; the others wait for its result.

Not promised: fairness, or a result. A leader that fails leaves its followers to do their own work, each by itself.

The dead ends that this must not have: a thread that waits for itself, when compiling a program makes it ask for the
same program again; and two threads that each wait for what the other has in hand. So a thread that leads any flight
never waits: it leads a flight of its own, which nobody can join.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Flight:
    """The work on one key that is under way, as its leader or as a follower sees it."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self._landed = threading.Event()
        self._result: bytes | None = None
        self.leader = threading.get_ident()
        self.followers = 0

    @property
    def mine(self) -> bool:
        """Whether this thread leads."""
        return self.leader == threading.get_ident()

    def land(self, result: bytes | None) -> None:
        """Hand `result` to the followers; `None`: there is none, let each do its own work. The first call counts."""
        if not self._landed.is_set():
            self._result = result
            self._landed.set()

    def close(self) -> int:
        """Let nobody else join; returns how many wait. Asked before a result is made that only they would need."""
        self._close()
        return self.followers

    def wait(self) -> bytes | None:
        """What the leader handed over."""
        self._landed.wait()
        return self._result


class SingleFlight:
    """The flights of one process, by key."""

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):
            # The threads that would land these flights do not exist in the child.
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[str, Flight] = {}

    @contextmanager
    def board(self, key: str) -> Iterator[Flight]:
        """The flight of `key`: to lead (`mine`) or to wait for. A leader's flight lands on leaving at the latest."""
        flight = self._join(key)
        if not flight.mine:
            yield flight
            return
        try:
            yield flight
        finally:
            flight.land(None)
            flight.close()

    def _join(self, key: str) -> Flight:
        with self._lock:
            under_way = self._flights.get(key)
            if under_way is None:
                flight = self._flights[key] = Flight(lambda: self._remove(key, flight))
                return flight
            if any(flight.mine for flight in self._flights.values()):
                return Flight(lambda: None)
            under_way.followers += 1
            return under_way

    def _remove(self, key: str, flight: Flight) -> None:
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]
