"""Executables compiled again in the background, since they could be better now.

Not promised: that one is. What is not compiled when the process ends is left, and a later start begins again. The
program keeps what it was served.

One thread for all; a compile that is under way when the process ends is waited for, three times as long as it took
before and `GRACE` more, for the reason that `sampling.py` gives. Two processes that refresh one entry both replace it;
entries of one key are equally good.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from rewarm.cache.requests import EXECUTABLE
from rewarm.envelope import Entry, open_entry, seal
from rewarm.jax_adapter import executables, seam
from rewarm.jax_adapter.seam import Copy

logger = logging.getLogger("rewarm")

MOST_WAITING = 64
GRACE = 10.0
# XLA and LLVM recurse deeply; see `sampling.py`.
_STACK_BYTES = 64 << 20


class Again(NamedTuple):
    """An entry that is to be made anew.

    Attributes:
      key: its key.
      entry: its bytes.
      copy: of what its compile asked for.
      told: what its header is to say of the tuning, asked after the compile.
      put: takes key, bytes and the seconds that compiling took.
      level: of compression.
    """

    key: str
    entry: bytes
    copy: Copy
    told: Callable[[], Any]
    put: Callable[[str, bytes, float], None]
    level: int


class Refresher:
    """The entries of one process that are made anew. No method raises."""

    def __init__(self) -> None:
        self._renew()
        self._at_exit = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_in_child)

    def _renew(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Again] = deque()
        self._seen: set[str] = set()
        self._under_way: Again | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def _renew_in_child(self) -> None:
        self._renew()
        self._closed = seam.backends_are_up()  # an XLA without threads, where a compile never ends

    def take(self, again: Again) -> None:
        """Make it anew some time, once in a process."""
        with self._changed:
            if self._closed or again.key in self._seen or len(self._waiting) >= MOST_WAITING:
                return
            self._seen.add(again.key)
            try:
                self._start()
            except (RuntimeError, MemoryError):
                return
            self._waiting.append(again)
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until nothing waits and nothing is under way; returns whether it came to that."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and self._under_way is None, seconds)

    def close(self) -> None:
        """Start nothing more, and wait for what is under way; called at exit."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            under_way = self._under_way
            self._changed.notify_all()
        if under_way is not None and self._thread is not None:
            try:
                took = open_entry(under_way.entry, under_way.key).header.compile_seconds
                self._thread.join(GRACE + 3 * took)
            except KeyboardInterrupt:  # a person who wants the process to end now
                return

    def _start(self) -> None:
        if self._thread is not None:
            return
        if not self._at_exit:
            self._at_exit = True
            atexit.register(self.close)
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=self._work, name="rewarm-refresh", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
        self._thread = thread

    def _work(self) -> None:
        while (again := self._next()) is not None:
            try:
                _make(again)
            except Exception as error:  # noqa: BLE001 - nothing here stops a program
                logger.info("rewarm: entry %s is not made anew: %s", again.key[:12], error)
            del again

    def _next(self) -> Again | None:
        with self._changed:
            self._under_way = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            self._under_way = self._waiting.popleft()
            return self._under_way


def _make(again: Again) -> None:
    entry = open_entry(again.entry, again.key)
    since = time.perf_counter()
    fresh = seam.compile_copy(again.copy)
    took = time.perf_counter() - since
    data = remade(entry, executables.serialise(again.copy.call, fresh), took, again.told(), again.level)
    again.put(again.key, data, took)
    logger.info("rewarm: entry %s of %s was made anew in %.2f s", again.key[:12], entry.header.program, took)


def remade(entry: Entry, executable: bytes, took: float, tuning: Any, level: int) -> bytes:
    """The entry with another executable.

    Raises:
      BadEntryError: it does not unpack.
    """
    header = entry.header._replace(
        compile_seconds=took, created=time.time(), load_seconds=None, sections=(), tuning=tuning
    )
    sections = {section.name: entry.section(section.name) for section in entry.header.sections}
    return seal(header, {**sections, EXECUTABLE: executable}, level=level)
