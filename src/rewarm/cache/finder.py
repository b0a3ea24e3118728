"""Finding the executable of a key: in the local store, in the hands of another thread, or in a remote.

Not promised: that what is there is found. What cannot be read, checked, unpacked or loaded is put aside and counts as
not there; the reason is in the trace.
"""

from __future__ import annotations

import logging
import time
from typing import Any, NamedTuple, TypeVar, cast

from rewarm import policy
from rewarm.cache.failures import Failures, short, why
from rewarm.cache.requests import (
    CANNOT_READ,
    COMPILED_TOGETHER,
    EXECUTABLE,
    NOT_EVERYWHERE,
    Ahead,
    Remotes,
    Request,
    Sampler,
    Trials,
)
from rewarm.cache.trace import Trace
from rewarm.coordination import Flight
from rewarm.envelope import Entry, content_of, open_entry
from rewarm.errors import BadEntryError, MissingTargetError, StoreError
from rewarm.ledger import LoadCosts
from rewarm.policy import Thresholds
from rewarm.store import Store

logger = logging.getLogger("rewarm")

E = TypeVar("E")


class Found(NamedTuple):
    """An entry that was checked.

    Attributes:
      entry: its parts.
      data: its bytes, as they lie in the store.
      raw: the bytes of its executable.
      executable: it, if it was loaded ahead.
    """

    entry: Entry
    data: bytes
    raw: bytes
    executable: Any | None = None


class Finder:
    """Looks for entries in one store, and beyond it. Safe for any number of threads. For the arguments see
    `CompileCache`.

    Its methods raise only where the cache is strict.
    """

    def __init__(
        self,
        store: Store,
        *,
        failures: Failures,
        thresholds: Thresholds,
        costs: LoadCosts | None,
        trials: Trials | None,
        sampler: Sampler | None,
        remotes: Remotes | None,
        unwritable: str,
        ahead: Ahead | None = None,
    ) -> None:
        self._store = store
        self._failures = failures
        self._thresholds = thresholds
        self._costs = costs
        self._trials = trials
        self._sampler = sampler
        self._remotes = remotes
        self._unwritable = unwritable
        self._ahead = ahead
        self._has_loaded = False

    def is_here(self, key: str) -> bool:
        """Whether something lies in the local store, good or not."""
        try:
            return self._store.get(key, use=False) is not None
        except (StoreError, BadEntryError):
            return False

    def is_a_loss(self, key: str) -> bool:
        """Whether loading this key is known to take longer here than compiling it."""
        return self._costs is not None and policy.is_a_loss(self._costs.known(key).times)

    def bytes_of(self, key: str, trace: Trace) -> Found | None:
        """The entry, from wherever it is, and not loaded."""
        since = time.perf_counter()
        found = self._read(key, trace) or self._fetch(key, trace)
        trace.timed("fetch", since)
        return found

    def follow(self, request: Request[E], key: str, flight: Flight, trace: Trace) -> E | None:
        """Wait for the thread that has this key in hand, and load what it hands over."""
        since = time.perf_counter()
        raw = flight.wait()
        trace.timed("fetch", since)
        if raw is None:
            trace.reason = "another thread compiled it and could not hand it over"
            return None
        executable = self._load(request, raw, trace, tier="process")
        if executable is None:
            logger.warning("rewarm: %s, key %s, from another thread: %s", request.program, key[:12], trace.reason)
        return executable

    def here(self, request: Request[E], key: str, flight: Flight, trace: Trace) -> E | None:
        """The executable from the local store, or from who took it from there ahead."""
        since = time.perf_counter()
        ready = self._ahead.take(key, request) if self._ahead is not None else None
        if ready is not None:
            found: Found | None = Found(ready.entry, ready.data, ready.raw, ready.executable)
            trace.bytes_read, trace.ahead = len(ready.data), "read" if ready.executable is None else "loaded"
            trace.spans += ((step, began - trace.since, took) for step, began, took in ready.spans)
        else:
            found = self._read(key, trace)
        trace.timed("fetch", since)
        return self._use(request, key, found, flight, trace) if found is not None else None

    def elsewhere(self, request: Request[E], key: str, flight: Flight, trace: Trace) -> E | None:
        """The executable from a remote; its entry is kept in the local store."""
        since = time.perf_counter()
        found = self._fetch(key, trace)
        trace.timed("fetch", since)
        return self._use(request, key, found, flight, trace) if found is not None else None

    # -- bytes -------------------------------------------------------------------------------------------------

    def _read(self, key: str, trace: Trace) -> Found | None:
        data: bytes | None = None
        try:
            data = self._store.get(key)
            if data is None:
                return None
            entry = open_entry(data, key)
            found = Found(entry, data, entry.section(EXECUTABLE))
        except BadEntryError as error:
            self._put_aside(key, error.reason, data, trace)
            if self._failures.strict:
                raise
        except Exception as error:  # noqa: BLE001 - no failure of a store stops a program
            trace.reason = f"{CANNOT_READ}: {why(error)}"
            self._failures.complain("read", error)
        else:
            trace.bytes_read = len(data)
            return found
        return None

    def _fetch(self, key: str, trace: Trace) -> Found | None:
        # What was a loss here would be fetched at each start, to be dropped again.
        if self._remotes is None or self.is_a_loss(key):
            return None
        try:
            fetched = self._remotes.fetch(key)
            if fetched is None:
                return None
            data, trace.remote, kept = fetched
            entry = open_entry(data, key)
            found = Found(entry, data, entry.section(EXECUTABLE))
        except BadEntryError as error:  # it is signed, and does not unpack
            self._put_aside(key, error.reason, None, trace)
            if self._failures.strict:
                raise
            return None
        except Exception as error:  # noqa: BLE001 - no failure of a remote stops a program
            trace.reason = f"{CANNOT_READ}: {why(error)}"
            self._failures.complain("read", error)
            return None
        trace.bytes_read = len(data)
        if not (kept or self._unwritable) and policy.refuse_by_size(len(data), self._thresholds) is None:
            try:
                self._store.put(key, data, seconds=entry.header.compile_seconds)
            except Exception as error:  # noqa: BLE001 - no failure of a store stops a program
                self._failures.complain("write", error)
        return found

    def _put_aside(self, key: str, reason: str, data: bytes | None, trace: Trace) -> None:
        self._store.quarantine(key, reason, data)
        trace.reason = f"what was stored is not usable: {reason}"
        trace.quarantined = reason
        where = trace.remote or getattr(self._store, "root", self._store.tier)
        logger.warning("rewarm: entry %s in %s is not usable (%s): quarantined, compiling", key[:12], where, reason)

    # -- executables -------------------------------------------------------------------------------------------

    def _use(self, request: Request[E], key: str, found: Found, flight: Flight, trace: Trace) -> E | None:
        """Load an entry, and hand its bytes to the threads that wait for them."""
        if (refused := self._refuses(request, found)) is not None:
            trace.reason = refused  # the entry stays until there is a better one
            return None
        if request.agreement is None:  # else other threads may have it only if other processes do
            flight.land(found.raw)
        executable = self._try(request, key, found, trace)
        if executable is None:
            if not trace.entry_is_good:
                self._put_aside(key, trace.reason or "it cannot be loaded", found.data, trace)
            return None
        if not self._is_agreed(request, found, trace):
            return None
        flight.land(found.raw)
        self._weigh(request, key, found.entry.header.compile_seconds, trace)
        if self._ahead is not None:
            self._ahead.note(key, request.way, len(found.raw))
        if request.tuned is not None:
            request.tuned.served(key, found.data)
        if self._sampler is not None:
            self._sampler.hit(request, key, found.data, executable)
        return executable

    def _refuses(self, request: Request[E], found: Found) -> str | None:
        """Why an entry that is sound is not loaded here, or `None`."""
        if self._trials is not None and (why := self._trials.condemned(content_of(found.data))) is not None:
            return why
        return request.tuned.refuses(found.entry.header) if request.tuned is not None else None

    def _is_agreed(self, request: Request[E], found: Found, trace: Trace) -> bool:
        """Whether the other processes of the program, if it is one of several, load the same."""
        if request.agreement is None:
            return True
        together = found.entry.header.producer.get(COMPILED_TOGETHER)
        since = time.perf_counter()
        agreed = request.agreement.loads(str(together or content_of(found.data)))
        trace.timed("wait", since)
        if not agreed:
            trace.reason, trace.entry_is_good = NOT_EVERYWHERE, True
        return agreed

    def _try(self, request: Request[E], key: str, found: Found, trace: Trace) -> E | None:
        """As `_load`, watched by the trials, as what was loaded ahead was."""
        tier = trace.remote or self._store.tier
        if found.executable is not None:
            trace.tier, trace.seconds["load"] = tier, 0.0
            if self._trials is not None:
                self._trials.was_loaded(key, request.program, content_of(found.data), found.executable)
            return cast(E, found.executable)
        if self._trials is None:
            return self._load(request, found.raw, trace, tier=tier)
        executable = None
        self._trials.before_load(key, request.program, content_of(found.data))
        try:
            executable = self._load(request, found.raw, trace, tier=tier)
        finally:
            self._trials.after_load(key, executable)
        return executable

    def _load(self, request: Request[E], raw: bytes, trace: Trace, *, tier: str) -> E | None:
        since = time.perf_counter()
        try:
            executable = request.load(raw)
        except MissingTargetError as error:
            trace.timed("load", since)
            trace.reason, trace.entry_is_good = str(error), True
            return None
        except Exception as error:
            trace.timed("load", since)
            trace.reason = f"it cannot be loaded: {short(error)}"
            self._failures.count()
            if self._failures.strict:
                raise
            return None
        trace.timed("load", since)
        trace.tier = tier
        return executable

    def _weigh(self, request: Request[E], key: str, compile_seconds: float, trace: Trace) -> None:
        """What the hit was worth; an entry that is a loss on this host is dropped, unless it spares a trace as well."""
        took = trace.seconds["fetch"] + trace.seconds["load"]
        trace.seconds_saved = compile_seconds - took - trace.seconds.get("wait", 0.0)
        first, self._has_loaded = not self._has_loaded, True
        # The first load of a process pays for imports and for the runtime's pools.
        if first or trace.remote or request.spares_trace:
            return
        if self._costs is None or not policy.is_slow(compile_seconds, took):
            return
        if policy.is_a_loss(self._costs.note(key, took).times):
            try:
                self._store.delete(key)
            except StoreError as error:
                self._failures.complain("write", error)
                return
            trace.dropped = True
            logger.info("rewarm: entry %s is dropped: %s (%.4f s)", key[:12], policy.LOADS_SLOWER, took)
