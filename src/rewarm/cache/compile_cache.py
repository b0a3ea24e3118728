"""The path of one request: look up, or compile, admit and publish. It knows keys and callables, and no JAX.

Not promised: that what was compiled is stored, or that what was stored is found. Promised: `resolve` returns what
`compile` or `load` made, and raises only what `compile` raised, unless the cache is strict or contents differ.

A failure of the cache is a miss plus one log line. An entry that cannot be read, checked, unpacked or loaded is put
aside, and the same request writes it anew.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from typing import Any, TypeVar

from rewarm import policy
from rewarm.cache.requests import (
    CANNOT_READ,
    CANNOT_SERIALISE,
    COMPILE_FAILED,
    COMPILED_TOGETHER,
    COMPONENTS,
    EXECUTABLE,
    INTERRUPTED,
    NOT_EVERYWHERE,
    NOT_IN_STORE,
    PROGRAM,
    SOURCE,
    STORE_FAILED,
    Checker,
    Explainer,
    Leases,
    Observer,
    Remotes,
    Request,
    Sampler,
    Trials,
)
from rewarm.cache.trace import Trace
from rewarm.coordination import Flight, SingleFlight
from rewarm.envelope import Entry, Header, content_of, open_entry, seal
from rewarm.errors import BadEntryError, ContentsDifferError, MissingTargetError, StoreError
from rewarm.ledger import ALREADY_STORED, Event, Ledger, LoadCosts, RunWriter, Seconds
from rewarm.policy import Thresholds
from rewarm.store import Store
from rewarm.telling import Teller

logger = logging.getLogger("rewarm")

# Of the canonical program. Writing the source locations takes about as long as canonicalising, so those of a program
# of more bytes than this (some 12,000 operations) are not kept.
_SOURCE_UP_TO = 128 * 1024

# A larger program has its size from constants, which the executable holds as well: the entry would be twice as large.
_PROGRAM_UP_TO = 8 << 20

E = TypeVar("E")


class CompileCache:
    """Serves requests from one store under one set of settings. Safe for any number of threads.

    Args:
      store: where entries lie; `None`: nothing is looked up or stored, for the reason `closed`.
      thresholds: the user's limits on what is stored.
      ledger: where events go.
      flights: shared by all caches of a process, so that a change of settings does not compile a program twice.
      observer: hears of each request.
      run: the run on disk that keeps the events; `None`: none does.
      explainer: finds out why a request is a miss; `None`: nobody does.
      level: of compression.
      strict: raise where the cache fails.
      check_contents: compile at the first use of each stored key, and compare.
      closed: why there is no store.
      unwritable: why nothing can be stored although entries are read; "" where it can.
      trials: stands by when entries are loaded; `None`: nobody does.
      costs: which entries were slower to load than to compile; `None`: nothing is learnt.
      sampler: compiles a share of the hits again; `None`: nobody does.
      checker: tries new entries; `None`: nobody does.
      remotes: asked for what the store has not, and sent what was made; `None`: there are none.
      leases: lets one process compile a key while others wait for its entry; `None`: nobody waits.
    """

    def __init__(
        self,
        store: Store | None,
        *,
        thresholds: Thresholds,
        ledger: Ledger,
        flights: SingleFlight,
        observer: Observer,
        run: RunWriter | None = None,
        explainer: Explainer | None = None,
        level: int = 3,
        strict: bool = False,
        check_contents: bool = False,
        closed: str = "",
        unwritable: str = "",
        trials: Trials | None = None,
        costs: LoadCosts | None = None,
        sampler: Sampler | None = None,
        checker: Checker | None = None,
        remotes: Remotes | None = None,
        leases: Leases | None = None,
    ) -> None:
        self._store = store
        self._thresholds = thresholds
        self._ledger = ledger
        self._flights = flights
        self._observer = observer
        self._run = run
        self._explainer = explainer
        self._level = level
        self._strict = strict
        self._check_contents = check_contents
        self._closed = closed
        self._unwritable = unwritable
        self._trials = trials
        self._costs = costs if thresholds.costs else None
        self._sampler = sampler
        self._checker = checker
        self._remotes = remotes
        self._leases = leases
        self._has_loaded = False
        self._checked: set[str] = set()
        self._teller = Teller()

    def resolve(self, request: Request[E]) -> E:
        """The executable of `request`, loaded or compiled.

        Raises:
          ContentsDifferError: the check of contents found another executable under this key.
          StoreError, BadEntryError: the cache is strict and failed.
          Exception: what `request.compile` raises, as it is.
        """
        trace = Trace(request.key_seconds)
        if request.components is None or self._store is None:
            reason = request.unkeyable or self._closed
            return self._compile(request, None, trace, reason, not_stored=reason)
        key = request.components.key()
        refused = request.bypass
        if refused is None and self._trials is not None:
            refused = self._trials.refused(key)
        if refused is not None:
            return self._compile(request, key, trace, refused, not_stored=refused)
        with self._flights.board(key) as flight:
            if not flight.mine:
                executable = self._follow(request, key, flight, trace)
            elif self._check_contents and key not in self._checked:
                return self._compare(request, key, self._store, flight, trace)
            else:
                executable = self._find(request, key, self._store, flight, trace)
            if executable is not None:
                self._finish(request, key, "hit", trace)
                return executable
            if flight.mine and request.turns and self._leases is not None and self._would_store(key):
                return self._take_turns(request, key, self._store, flight, trace)
            reason = trace.reason or NOT_IN_STORE
            return self._compile(request, key, trace, reason, flight=flight if flight.mine else None)

    def _would_store(self, key: str) -> bool:
        """Whether waiting is worth while: what is not going to be stored would be waited for and compiled again."""
        return not (self._unwritable or self._is_a_loss(key))

    def _is_a_loss(self, key: str) -> bool:
        """Whether loading this key is known to take longer here than compiling it."""
        return self._costs is not None and policy.is_a_loss(self._costs.known(key).times)

    def _take_turns(self, request: Request[E], key: str, store: Store, flight: Flight, trace: Trace) -> E:
        """Compile, and let other processes wait for the entry; or wait, and load what another has made."""
        assert self._leases is not None
        since = time.perf_counter()
        with self._leases.lead(key, lambda: _is_there(store, key)) as lead:
            trace.timed("wait", since)
            # Who leads looks too, at the local store alone: another may have ended between our look and our lease.
            # Not where the entry is there and good, and cannot be loaded in this process: it would fail once more.
            if not trace.entry_is_good and (lead.outcome == "waited" or _is_there(store, key)):
                logger.info("rewarm: %s, key %s: %s after %.1f s", request.program, key[:12], lead.why, lead.seconds)
                executable = self._find(request, key, store, flight, trace)
                if executable is not None:
                    self._finish(request, key, "hit", trace)
                    return executable
            return self._compile(request, key, trace, trace.reason or NOT_IN_STORE, flight=flight)

    # -- looking up --------------------------------------------------------------------------------------------

    def _follow(self, request: Request[E], key: str, flight: Flight, trace: Trace) -> E | None:
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

    def _find(self, request: Request[E], key: str, store: Store, flight: Flight, trace: Trace) -> E | None:
        since = time.perf_counter()
        found = self._fetch(key, store, trace)
        trace.timed("fetch", since)
        if found is None:
            return None
        entry, data, raw = found
        if request.agreement is None:  # else other threads may have it only if other processes do
            flight.land(raw)
        executable = self._try(request, key, data, raw, trace, tier=trace.remote or store.tier)
        if executable is None:
            if not trace.entry_is_good:
                self._put_aside(key, store, trace.reason or "it cannot be loaded", data, trace)
            return None
        if not self._is_agreed(request, entry, data, trace):
            return None
        flight.land(raw)
        self._weigh(key, entry.header.compile_seconds, store, trace)
        if self._sampler is not None:
            self._sampler.hit(request, key, data, executable)
        return executable

    def _fetch(self, key: str, store: Store, trace: Trace) -> tuple[Entry, bytes, bytes] | None:
        """The checked entry, its bytes, and its executable's bytes, or `None`."""
        found = self._fetch_local(key, store, trace)
        if found is None and self._remotes is not None:
            found = self._fetch_remote(key, store, self._remotes, trace)
        return found

    def _fetch_local(self, key: str, store: Store, trace: Trace) -> tuple[Entry, bytes, bytes] | None:
        data: bytes | None = None
        try:
            data = store.get(key)
            if data is None:
                return None
            entry = open_entry(data, key)
            found = entry, data, entry.section(EXECUTABLE)
        except BadEntryError as error:
            self._put_aside(key, store, error.reason, data, trace)
            if self._strict:
                raise
        except Exception as error:  # noqa: BLE001 - no failure of a store stops a program
            trace.reason = f"{CANNOT_READ}: {_why(error)}"
            self._complain("read", error)
        else:
            trace.bytes_read = len(data)
            return found
        return None

    def _fetch_remote(
        self, key: str, store: Store, remotes: Remotes, trace: Trace
    ) -> tuple[Entry, bytes, bytes] | None:
        """As `_fetch_local`, from a remote; what comes from there is kept in the local store."""
        # What was a loss here would be fetched at each start, to be dropped again.
        if self._is_a_loss(key):
            return None
        try:
            fetched = remotes.fetch(key)
            if fetched is None:
                return None
            data, trace.remote, kept = fetched
            entry = open_entry(data, key)
            found = entry, data, entry.section(EXECUTABLE)
        except BadEntryError as error:  # it is signed, and does not unpack
            self._put_aside(key, store, error.reason, None, trace)
            if self._strict:
                raise
            return None
        except Exception as error:  # noqa: BLE001 - no failure of a remote stops a program
            trace.reason = f"{CANNOT_READ}: {_why(error)}"
            self._complain("read", error)
            return None
        trace.bytes_read = len(data)
        if not (kept or self._unwritable) and policy.refuse_by_size(len(data), self._thresholds) is None:
            try:
                store.put(key, data, seconds=entry.header.compile_seconds)
            except Exception as error:  # noqa: BLE001 - no failure of a store stops a program
                self._complain("write", error)
        return found

    def _is_agreed(self, request: Request[E], entry: Entry, data: bytes, trace: Trace) -> bool:
        """Whether the other processes of the program, if it is one of several, load the same."""
        if request.agreement is None:
            return True
        since = time.perf_counter()
        agreed = request.agreement.loads(str(entry.header.producer.get(COMPILED_TOGETHER) or content_of(data)))
        trace.timed("wait", since)
        if not agreed:
            trace.reason = NOT_EVERYWHERE
        return agreed

    def _try(self, request: Request[E], key: str, data: bytes, raw: bytes, trace: Trace, *, tier: str) -> E | None:
        """As `_load`, watched by the trials."""
        if self._trials is None:
            return self._load(request, raw, trace, tier=tier)
        executable = None
        self._trials.before_load(key, request.program, content_of(data))
        try:
            executable = self._load(request, raw, trace, tier=tier)
        finally:
            self._trials.after_load(key, executable)
        return executable

    def _weigh(self, key: str, compile_seconds: float, store: Store, trace: Trace) -> None:
        """What the hit was worth; an entry that is a loss on this host is dropped."""
        took = trace.seconds["fetch"] + trace.seconds["load"]
        trace.seconds_saved = compile_seconds - took - trace.seconds.get("wait", 0.0)
        first, self._has_loaded = not self._has_loaded, True
        # The first load of a process pays for imports and for the runtime's pools.
        if first or trace.remote or self._costs is None or not policy.is_slow(compile_seconds, took):
            return
        if policy.is_a_loss(self._costs.note(key, took).times):
            try:
                store.delete(key)
            except StoreError as error:
                self._complain("write", error)
                return
            trace.dropped = True
            logger.info("rewarm: entry %s is dropped: %s (%.4f s)", key[:12], policy.LOADS_SLOWER, took)

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
            trace.reason = f"it cannot be loaded: {_short(error)}"
            self._ledger.error()
            if self._strict:
                raise
            return None
        trace.timed("load", since)
        trace.tier = tier
        return executable

    def _put_aside(self, key: str, store: Store, reason: str, data: bytes | None, trace: Trace) -> None:
        store.quarantine(key, reason, data)
        trace.reason = f"what was stored is not usable: {reason}"
        trace.quarantined = reason
        where = trace.remote or getattr(store, "root", store.tier)
        logger.warning("rewarm: entry %s in %s is not usable (%s): quarantined, compiling", key[:12], where, reason)

    # -- compiling ---------------------------------------------------------------------------------------------

    def _compile(
        self,
        request: Request[E],
        key: str | None,
        trace: Trace,
        reason: str,
        *,
        flight: Flight | None = None,
        not_stored: str | None = None,
    ) -> E:
        trace.reason = reason
        trace.not_stored = not_stored
        if not_stored != ALREADY_STORED:
            self._explain(request, reason, trace)
        self._observer.missed(request.program, key, reason, trace.explanation)
        since = time.perf_counter()
        try:
            executable = request.compile()
        except BaseException as error:
            trace.timed("compile", since)
            trace.not_stored = COMPILE_FAILED if isinstance(error, Exception) else INTERRUPTED
            self._finish(request, key, "miss", trace)
            raise
        took = trace.timed("compile", since)
        if key is not None and not_stored is None:
            explaining = trace.seconds.get("explain", 0.0)
            since = time.perf_counter()
            self._publish(request, key, executable, took, flight, trace)
            trace.timed("store", since)
            trace.seconds["store"] -= trace.seconds.get("explain", 0.0) - explaining
        self._finish(request, key, "miss", trace)
        return executable

    def _explain(self, request: Request[E], reason: str, trace: Trace) -> None:
        if self._explainer is not None:
            since = time.perf_counter()
            trace.explanation = self._explainer.explain(request, reason, trace.quarantined)
            trace.timed("explain", since)

    def _publish(
        self, request: Request[E], key: str, executable: E, took: float, flight: Flight | None, trace: Trace
    ) -> None:
        """Store what was compiled, and hand it to the threads that wait for it, as far as either is wanted."""
        trace.not_stored = self._unwritable if self._remotes is None else None
        trace.not_stored = trace.not_stored or self._refuse(key, took)
        if trace.not_stored is not None and (flight is None or not flight.close()):
            return
        try:
            raw = request.serialise(executable)
        except Exception as error:
            trace.not_stored = CANNOT_SERIALISE
            logger.warning("rewarm: cannot serialise %s, so it is not stored: %s", request.program, _short(error))
            self._ledger.error()
            if self._strict:
                raise
            return
        if flight is not None:
            flight.land(raw)
        if trace.not_stored is None:
            self._store_entry(request, key, raw, took, trace)

    def _refuse(self, key: str, took: float) -> str | None:
        """Why an executable that took so long to compile is not worth storing, or `None`."""
        refused = policy.refuse_by_time(took, self._thresholds)
        if refused is None and self._costs is not None:
            slow = self._costs.known(key)
            refused = policy.refuse_by_cost(took, slow.times, slow.seconds)
        return refused

    def _store_entry(self, request: Request[E], key: str, raw: bytes, took: float, trace: Trace) -> None:
        assert request.components is not None
        assert self._store is not None
        header = Header(
            kind=EXECUTABLE,
            key=key,
            components=tuple(row.as_dict() for row in request.components.rows),
            program=request.program,
            compile_seconds=took,
            created=time.time(),
            producer=_versions(request),
            target=request.target,
        )
        try:
            sealed = seal(header, {EXECUTABLE: raw, **self._sections(request, trace)}, level=self._level)
        except Exception as error:  # noqa: BLE001 - no failure of the cache stops a program
            self._not_written(error, trace)
            return
        trace.not_stored = policy.refuse_by_size(len(sealed), self._thresholds)
        if trace.not_stored is not None:
            return
        self._keep(key, sealed, took, trace)
        if trace.stored and self._checker is not None:
            self._checker.stored(request, key, sealed)

    def _keep(self, key: str, sealed: bytes, took: float, trace: Trace) -> None:
        """Put an entry into the local store, and have it sent to the remotes, whether or not the first worked."""
        assert self._store is not None
        failure: Exception | None = None
        try:
            if self._unwritable:
                trace.not_stored = self._unwritable
            else:
                if self._remotes is not None:
                    self._remotes.announce(key)
                self._store.put(key, sealed, seconds=took)
                trace.stored = True
                trace.bytes_written = len(sealed)
        except Exception as error:  # noqa: BLE001 - no failure of a store stops a program
            failure = error
        try:
            if self._remotes is not None:  # now, since what is stored is read from the store when its turn comes
                self._remotes.publish(key, sealed, stored=trace.stored)
        except Exception as error:  # noqa: BLE001
            self._complain("write", error)
        if failure is not None:
            self._not_written(failure, trace)

    def _not_written(self, error: Exception, trace: Trace) -> None:
        trace.not_stored = f"{STORE_FAILED}: {_why(error)}"
        self._complain("write", error)

    def _sections(self, request: Request[E], trace: Trace) -> dict[str, bytes]:
        """What an entry keeps beside its executable, so that another program can be compared with it."""
        if request.evidence is None or request.components is None:
            return {}
        since = time.perf_counter()
        sections: dict[str, bytes] = {}
        if len(request.evidence.canonical) <= _PROGRAM_UP_TO:
            sections[PROGRAM] = request.evidence.canonical
        if len(request.evidence.canonical) <= _SOURCE_UP_TO:
            sections[SOURCE] = request.evidence.source()
        large = request.components.large_values()
        sections[COMPONENTS] = json.dumps(large, sort_keys=True, separators=(",", ":")).encode("ascii")
        trace.timed("explain", since)
        return sections

    # -- checking contents -------------------------------------------------------------------------------------

    def _compare(self, request: Request[E], key: str, store: Store, flight: Flight, trace: Trace) -> E:
        """Compile although there may be an entry, and hold the two against each other."""
        since = time.perf_counter()
        found = self._fetch(key, store, trace)
        trace.timed("fetch", since)
        if found is None:
            executable = self._compile(request, key, trace, trace.reason or NOT_IN_STORE, flight=flight)
            self._checked.add(key)
            return executable
        executable = self._compile(request, key, trace, "contents are checked", not_stored=ALREADY_STORED)
        self._compare_code(request, key, found[2], executable)
        return executable

    def _compare_code(self, request: Request[E], key: str, stored: bytes, executable: E) -> None:
        try:
            compiled = request.serialise(executable)
            same = request.same(stored, compiled)
        except Exception as error:
            logger.warning("rewarm: cannot compare the contents of %s: %s", request.program, _short(error))
            self._ledger.error()
            if self._strict:
                raise
            return
        if not same:
            raise ContentsDifferError(
                f"check_contents: the stored executable of {request.program}, key {key}, differs from the one just "
                f"compiled. Remove the entry (rewarm clear) or find out what changed outside the key (rewarm show)",
                key,
                stored,
                compiled,
            )
        self._checked.add(key)

    # -- telling -----------------------------------------------------------------------------------------------

    def _complain(self, verb: str, error: Exception) -> None:
        """Count a failure of the store; say it once for each kind, since a full disk fails for every program."""
        self._ledger.error()
        if self._strict:
            raise error
        line = f"cannot {verb} the store: {error}; the program goes on without it"
        self._teller.tell(line, kind=f"{verb}: {_why(error)}")

    def _finish(self, request: Request[E], key: str | None, outcome: Any, trace: Trace) -> None:
        event = Event(
            program=request.program,
            key=key,
            outcome=outcome,
            tier=trace.tier if outcome == "hit" else None,
            reason=None if outcome == "hit" else trace.reason,
            stored=trace.stored,
            not_stored=trace.not_stored,
            seconds=Seconds(**trace.seconds),
            seconds_saved=trace.seconds_saved,
            bytes_read=trace.bytes_read,
            bytes_written=trace.bytes_written,
            quarantined=trace.quarantined,
            dropped=trace.dropped,
            time=trace.started,
            explanation=trace.explanation,
        )
        if self._explainer is not None and outcome == "miss" and trace.not_stored != ALREADY_STORED:
            since = time.perf_counter()
            self._explainer.remember(request, event)
            took = event.seconds.explain + time.perf_counter() - since
            event = dataclasses.replace(event, seconds=dataclasses.replace(event.seconds, explain=took))
        self._ledger.record(event)
        if self._run is not None:
            self._run.event(event.as_dict())
        self._observer.finished(event)


def _versions(request: Request[Any]) -> dict[str, str]:
    together = request.agreement.compilation() if request.agreement is not None else ""
    return {**request.producer, COMPILED_TOGETHER: together} if together else dict(request.producer)


def _why(error: Exception) -> str:
    """A few words without a path, so that counts by reason stay few."""
    return str(error.strerror) if isinstance(error, StoreError) else type(error).__name__


def _short(error: BaseException) -> str:
    first = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first[0][:200]}"


def _is_there(store: Store, key: str) -> bool:
    try:
        return store.get(key, use=False) is not None
    except (StoreError, BadEntryError):
        return False
