"""Executables, read and loaded in threads before the program asks for them.

Not promised: that anything is ready when it is asked for, or that it comes to anything at all. Whoever asks gets what
is there, waits for what is under way, and does by himself what was not begun.

An entry goes through two steps: it is read (checked and unpacked too), as soon as this begins, and it is loaded, once
there is somebody to load it, which for JAX is a client that the program itself has made. How, the record says, or else
the entry. Steps are done in the order of the record, and then of what was offered, at most `_THREADS` at once. What is
in hand and not asked for is bounded: `_READ_BYTES` of executables that were only read, `_LOADED_BYTES` of those that
were loaded. When nothing was asked for, or offered, in `_PATIENCE`, all of it is dropped, for good.

Where the program wants an entry in another way than the entry says (on another device, with another option), those that
say the same are loaded in the program's way from then on.

Races, and their worst outcome:

* the program asks for an entry while a thread takes it in hand: one lock decides; the program waits for that step.
* an entry is offered after the program asked for it: it is passed over.
* the end of the process while an executable is being loaded: it waits for that one (`at_end.py`), and none is begun.
* a fork: the child has none of the threads, and nothing of what was under way.
"""

from __future__ import annotations

import atexit
import enum
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from rewarm import at_end
from rewarm.envelope import Entry
from rewarm.restart.loads import Load, Way
from rewarm.sharing.forks import renew_in_child

logger = logging.getLogger("rewarm")

_THREADS = 4
_READ_BYTES = 512 << 20
_LOADED_BYTES = 2 << 30

# In seconds. A start that asks for nothing in so long does not ask for these.
_PATIENCE = 120.0
# What is under way for longer is not waited for.
_UNDER_WAY = 120.0
# Looking whether there is a client costs microseconds; the program may make it at any moment.
_LOOK_EVERY = 0.005
_LOOK_EVERY_LATER = 0.05
_LATER = 10.0


class Opened(NamedTuple):
    """An entry that was read and checked.

    Attributes:
      entry: its parts.
      data: its bytes, as they lie in the store.
      raw: the bytes of its executable.
      way: how it is loaded, as the entry says; `None` where it does not.
      which: what tells whether the store still has this one.
    """

    entry: Entry
    data: bytes
    raw: bytes
    way: Way | None
    which: tuple[int, ...] | None = None


class Loaded(NamedTuple):
    """What was done ahead for an entry.

    Attributes:
      opened: the entry.
      executable: it, if it was loaded in the way that is wanted; else `None`.
      spans: what was done when: step, beginning by `time.perf_counter`, and seconds.
    """

    opened: Opened
    executable: Any | None
    spans: tuple[tuple[str, float, float], ...] = ()


# Reads and checks the entry of a key; `None` for one that is not there, or not good. May raise anything.
Reader = Callable[[str], Opened | None]


class Loader(Protocol):
    """Who makes executables of bytes, once that is possible."""

    def is_ready(self) -> bool:
        """Whether the program has made what executables are loaded by. Quick, and never makes it."""

    def load(self, way: Way, opened: Opened, *, recorded: bool) -> Any | None:
        """An executable; `None` for one that is not to be loaded here. May raise anything.

        `recorded`: an earlier start on this host loaded it so; else the entry alone says it.
        """

    def is_current(self, way: Way, executable: Any) -> bool:
        """Whether an executable belongs to what the program uses now."""


class _Step(enum.Enum):
    WAITING = enum.auto()  # to be read
    BUSY = enum.auto()  # a thread has it in hand
    READ = enum.auto()
    LOADED = enum.auto()
    GONE = enum.auto()  # asked for, or of no use


class _Item:
    """One entry; under the lock of `Ahead`."""

    def __init__(self, load: Load, step: _Step = _Step.WAITING) -> None:
        self.key, self.way, self.size = load
        self.recorded = load.way is not None
        self.step = step
        self.opened: Opened | None = None
        self.executable: Any | None = None
        self.spans: tuple[tuple[str, float, float], ...] = ()

    def timed(self, step: str, since: float) -> None:
        """A step is done that began at `since`."""
        self.spans += ((step, since, time.perf_counter() - since),)


class Ahead:
    """What one start is likely to load, read and loaded ahead. Safe for any number of threads; nothing here raises.

    Args:
      loads: in the order in which they were asked for before.
      read: how an entry is read.
      loader: how an executable is loaded.

    Attributes:
      counts: entries that were "read" and "loaded" ahead, and of these the "used": asked for, as they were loaded.
    """

    def __init__(self, loads: Iterable[Load], read: Reader, loader: Loader) -> None:
        self._items = {load.key: _Item(load) for load in loads}
        self._unread = deque(self._items.values())
        self._unloaded: deque[_Item] = deque()
        self._held = {_Step.READ: 0, _Step.LOADED: 0}  # bytes of executables
        self._left = len(self._items)
        self._instead: dict[Way, Way] = {}
        self._read = read
        self._loader = loader
        self._renew_lock()
        self._began = self._asked = time.monotonic()
        self._is_ready = False
        self._has_begun = False
        self._threads = 0
        self._closed = False
        self.counts = {"read": 0, "loaded": 0, "used": 0}
        renew_in_child(self, Ahead._renew)
        _all.add(self)

    def _renew(self) -> None:
        self._renew_lock()
        self._items, self._closed = {}, True

    def _renew_lock(self) -> None:
        # Two conditions under one lock: a thread that is woken for nothing takes Python's lock from the program, which
        # asks for hundreds of entries one after the other.
        self._lock = threading.Lock()
        self._more = threading.Condition(self._lock)  # there may be something to do for the threads
        self._done = threading.Condition(self._lock)  # a step is done, for those who ask

    def begin(self) -> None:
        """Start the threads; where none can be started, nothing is done ahead."""
        self._has_begun = True
        self._start()

    def offer(self, loads: Iterable[Load]) -> None:
        """The program is likely to want these as well. Those that are known already are passed over."""
        with self._lock:
            new = {load.key: _Item(load) for load in loads if not (self._closed or load.key in self._items)}
            if not new:
                return
            self._items |= new
            self._unread += new.values()
            self._left += len(new)
            self._asked = time.monotonic()
            self._more.notify(len(new))
        self._start()

    def _start(self) -> None:
        with self._lock:
            most = min(_THREADS, max(2, _cores()), self._left) if self._has_begun and not self._closed else 0
            missing = max(0, most - self._threads)
            self._threads += missing
        for number in range(missing):
            try:
                threading.Thread(target=self._work, name="rewarm-ahead", daemon=True).start()
            except (RuntimeError, MemoryError):  # too many threads, or the program ends (Python 3.12)
                with self._lock:
                    self._threads -= missing - number
                return

    def take(self, key: str, way: Callable[[], Way | None]) -> Loaded | None:
        """What was done for this entry, once; waits for what is under way.

        `way`: how the program wants it loaded; `None` for a way that nobody else can take.
        """
        with self._lock:
            self._asked = time.monotonic()
            item = self._items.get(key)
            if item is None and not self._closed:
                self._items[key] = _Item(Load(key, None, 0), _Step.GONE)  # whoever asked has it
            if item is None or item.step is _Step.GONE:
                return None
            self._done.wait_for(lambda: item.step is not _Step.BUSY, _UNDER_WAY)
            opened, executable = item.opened, item.executable
            self._end(item)
        if opened is None:
            return None
        wanted = way()
        if (
            wanted is None
            or wanted != item.way
            or executable is None
            or not self._loader.is_current(wanted, executable)
        ):
            if not item.recorded and opened.way is not None and wanted is not None:
                self._learn(opened.way, wanted)
            return Loaded(opened, None, item.spans)
        with self._lock:
            self.counts["used"] += 1
        return Loaded(opened, executable, item.spans)

    def _learn(self, said: Way, wanted: Way) -> None:
        """The program wants otherwise what this entry said: the others that say the same are likely to be, too."""
        with self._lock:
            self._instead[said] = wanted

    def close(self) -> None:
        """Begin nothing more, and drop what was not asked for."""
        with self._lock:
            self._closed = True
            self._unread.clear()
            self._unloaded.clear()
            for item in self._items.values():
                if item.step not in (_Step.BUSY, _Step.GONE):
                    self._end(item)
            self._more.notify_all()

    def _end(self, item: _Item) -> None:
        """It is asked for, or of no use: nothing of it stays here. Under the lock."""
        if item.step is not _Step.GONE:
            self._go(item, _Step.GONE)
            self._left -= 1
            if self._left == 0:
                self._more.notify_all()
        item.opened = item.executable = None

    def _go(self, item: _Item, step: _Step) -> None:
        full = [one for one in self._held if self._is_full(one)]
        for one, sign in ((item.step, -1), (step, 1)):
            if one in self._held:
                self._held[one] += sign * item.size
        item.step = step
        if not all(map(self._is_full, full)):
            self._more.notify_all()

    def _is_full(self, step: _Step) -> bool:
        """Whether as much is held of this as may be, and more."""
        return self._held[step] > (_READ_BYTES if step is _Step.READ else _LOADED_BYTES)

    # -- in threads --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (item := self._next()) is not None:
            if item.opened is None:
                since = time.perf_counter()
                opened = self._opened(item.key)
                item.timed("ahead_read", since)
                if not self._was_read(item, opened):
                    continue
            since = time.perf_counter()
            executable = self._executable(item)
            item.timed("ahead_load", since)
            self._was_loaded(item, executable)

    def _next(self) -> _Item | None:
        """What to do next; `None` when there is no more. Loading goes first: it is what takes long."""
        with self._lock:
            while not (self._closed or self._is_over()):
                self._is_ready = self._is_ready or self._loader.is_ready()
                item = self._next_of(self._unloaded) if self._may_load() else None
                if item is None and not self._is_full(_Step.READ):
                    item = self._next_of(self._unread)
                if item is not None:
                    self._go(item, _Step.BUSY)
                    return item
                self._more.wait(self._pause())
            self._threads -= 1
            nobody_asks = self._left > 0
        if nobody_asks:
            self.close()
        return None

    def _next_of(self, waiting: deque[_Item]) -> _Item | None:
        while waiting:
            if (item := waiting.popleft()).step is not _Step.GONE:
                return item
        return None

    def _may_load(self) -> bool:
        return self._is_ready and not self._is_full(_Step.LOADED)

    def _is_over(self) -> bool:
        """Whether nothing is left to be done, or nobody asks."""
        return self._left == 0 or time.monotonic() - self._asked > _PATIENCE

    def _pause(self) -> float:
        if self._is_ready:
            return _PATIENCE / 4
        return _LOOK_EVERY if time.monotonic() - self._began < _LATER else _LOOK_EVERY_LATER

    def _was_read(self, item: _Item, opened: Opened | None) -> bool:
        """Keep what was read; returns whether this thread is to load it at once."""
        with self._lock:
            item.opened = opened
            self.counts["read"] += opened is not None
            if opened is None and item.step is not _Step.GONE:
                self._items.pop(item.key, None)  # it may be offered again, when it is there
            if opened is None or self._closed or item.step is _Step.GONE:
                self._end(item)
            else:
                item.size = item.size or len(opened.raw)
                item.way = item.way or opened.way
                if item.way is not None and self._may_load():
                    return True
                self._go(item, _Step.READ)
                if item.way is not None:
                    self._unloaded.append(item)
            self._done.notify_all()
            return False

    def _was_loaded(self, item: _Item, executable: Any | None) -> None:
        with self._lock:
            self.counts["loaded"] += executable is not None
            if self._closed or item.step is _Step.GONE:
                self._end(item)
            else:
                item.executable = executable
                self._go(item, _Step.LOADED)
            self._done.notify_all()

    def _opened(self, key: str) -> Opened | None:
        try:
            return self._read(key)
        except Exception:  # whoever asks for it reads it, and says what is wrong
            logger.debug("rewarm: %s is not read ahead", key[:12], exc_info=True)
            return None

    def _executable(self, item: _Item) -> Any | None:
        with self._lock:
            opened, way = item.opened, item.way
            if opened is None or way is None:  # nobody waited for longer
                return None
            if not item.recorded:
                way = item.way = self._instead.get(way, way)
        try:
            with at_end.unbroken():
                return None if self._closed else self._loader.load(way, opened, recorded=item.recorded)
        except Exception:  # whoever asks for it loads it, and says what is wrong
            logger.debug("rewarm: %s is not loaded ahead", item.key[:12], exc_info=True)
            return None


_all: weakref.WeakSet[Ahead] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    for one in list(_all):
        one.close()


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1
