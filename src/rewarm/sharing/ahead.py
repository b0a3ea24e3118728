"""Entries fetched ahead of the program, by plan: in parallel, into the local store, while JAX is still tracing.

Not promised: that an entry is there when it is asked for. Whoever asks for one that is under way waits for it; one that
is not begun yet is fetched at once by whoever asks, past the plan.

Nothing here knows JAX, so no backend is chosen by it. Memory is bounded by the number of threads: each has one entry in
hand, or some small ones, which it checks, keeps, and lets go.

Who hears of arrivals is told of each entry once it was fetched, in the thread that fetched it, and of those of the plan
that were in the local store already (`early.py`). Whether it is there is for him to see.

Races, and their worst outcome:

* the program asks for an entry at the moment at which a thread takes it up: one of the two has it, since both take it
  out of one table under one lock.
* a fork: the child has no threads and an empty table; it fetches what it needs by itself.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from rewarm.sharing.forks import renew_in_child

logger = logging.getLogger("rewarm")

# Fewer than the requests that a remote takes at once (`remote/guard.py`): what the program asks for itself, and what is
# sent, is not to wait for a plan.
THREADS = 10


# Hears of entries that this start is likely to want and that may lie in the local store by now.
Hearer = Callable[[Sequence[str]], object]


class Arrivals:
    """Who hears of what is fetched ahead in this process."""

    def __init__(self) -> None:
        self._hearers: list[Hearer] = []

    def hear(self, hearer: Hearer) -> None:
        """Tell him from now on, for as long as the process lives."""
        self._hearers.append(hearer)

    def tell(self, keys: Sequence[str]) -> None:
        """These entries were fetched, or were there. Never raises."""
        for hearer in tuple(self._hearers) if keys else ():
            try:
                hearer(keys)
            except Exception:
                logger.debug("rewarm: nobody was told of what is there", exc_info=True)


arrivals = Arrivals()


class Ahead:
    """Fetches the entries of a plan.

    Args:
      fetch: fetches entries into the local store. Never raises.
      threads: how many calls of it run at the same time.
      at_once: how many entries one call is for, at most.
    """

    def __init__(self, fetch: Callable[[Sequence[str]], object], *, threads: int = THREADS, at_once: int = 1) -> None:
        self._fetch = fetch
        self._most = threads
        self._at_once = at_once
        self._renew()
        renew_in_child(self, Ahead._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._planned: deque[str] = deque()
        self._open: set[str] = set()
        self._asked: set[str] = set()  # by the program, so that a plan which comes late fetches none of them again
        self._under_way: dict[str, threading.Event] = {}
        self._threads = 0

    def start(self, keys: Iterable[str]) -> None:
        """Fetch these entries, in this order."""
        with self._lock:
            for key in keys:
                if not (key in self._open or key in self._under_way or key in self._asked):
                    self._open.add(key)
                    self._planned.append(key)
            for _ in range(min(self._most, len(self._planned)) - self._threads):
                try:
                    threading.Thread(target=self._work, name="rewarm-ahead", daemon=True).start()
                except (RuntimeError, MemoryError):  # what is planned is fetched when it is asked for
                    return
                self._threads += 1

    def settle(self, key: str, seconds: float) -> bool:
        """The program wants this entry: wait while it is under way. Whether it was, so that a look is worthwhile."""
        with self._lock:
            self._open.discard(key)
            self._asked.add(key)
            under_way = self._under_way.get(key)
        return under_way is not None and under_way.wait(seconds)

    def stop(self) -> None:
        """Begin with no other entry."""
        with self._lock:
            self._planned.clear()
            self._open.clear()

    def _take(self) -> list[str]:
        """The next entries; none where this thread is to end."""
        taken: list[str] = []
        with self._lock:
            while self._planned and len(taken) < self._at_once:
                key = self._planned.popleft()
                if key in self._open:
                    self._open.discard(key)
                    self._under_way[key] = threading.Event()
                    taken.append(key)
            self._threads -= not taken
        return taken

    def _work(self) -> None:
        while keys := self._take():
            try:
                self._fetch(keys)
            finally:
                with self._lock:
                    for key in keys:
                        self._under_way.pop(key).set()
                    unasked = [key for key in keys if key not in self._asked]
            arrivals.tell(unasked)
