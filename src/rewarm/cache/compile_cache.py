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
from collections.abc import Callable
from typing import Any, TypeVar

from rewarm import policy
from rewarm.cache.failures import Failures, short, why
from rewarm.cache.finder import Finder
from rewarm.cache.requests import (
    ARGUMENTS,
    CANNOT_SERIALISE,
    COMPILE_FAILED,
    COMPILED_TOGETHER,
    COMPONENTS,
    EXECUTABLE,
    INTERRUPTED,
    MISSING,
    NO_KEY,
    NOT_IN_STORE,
    NOT_STORED,
    PRESENT,
    PROGRAM,
    SOURCE,
    STORE_FAILED,
    STORED,
    WAY,
    Ahead,
    Checker,
    Explainer,
    Filled,
    Leases,
    Observer,
    Remotes,
    Request,
    Sampler,
    Trials,
)
from rewarm.cache.trace import Trace
from rewarm.coordination import Flight, SingleFlight
from rewarm.envelope import Header, seal
from rewarm.errors import ContentsDifferError
from rewarm.ledger import ALREADY_STORED, Event, Ledger, LoadCosts, RunWriter, Seconds
from rewarm.ledger.events import Span
from rewarm.policy import Thresholds
from rewarm.store import Store

logger = logging.getLogger("rewarm")

# Of the canonical program. Writing the source locations takes about as long as canonicalising, so those of a program
# of more bytes than this (some 12,000 operations) are not kept.
_SOURCE_UP_TO = 128 * 1024

# A larger program has its size from constants, which the executable holds as well: the entry would be twice as large.
_PROGRAM_UP_TO = 8 << 20

# Some 10,000 arguments; packed it is a tenth.
_ARGUMENTS_UP_TO = 1 << 20

# A step that took less, in seconds, is not written down by itself.
_SHORTEST = 1e-6

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
      made: hears of each entry that is made here, before it is stored.
      ahead: reads and loads entries before they are asked for; `None`: nobody does.
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
        made: Callable[[bytes], object] = lambda _: None,
        ahead: Ahead | None = None,
    ) -> None:
        self._store = store
        self._made = made
        self._ahead = ahead
        self._thresholds = thresholds
        self._ledger = ledger
        self._flights = flights
        self._observer = observer
        self._run = run
        self._explainer = explainer
        self._level = level
        self._check_contents = check_contents
        self._closed = closed
        self._unwritable = unwritable
        self._trials = trials
        self._costs = costs if thresholds.costs else None
        self._checker = checker
        self._remotes = remotes
        self._leases = leases
        self._failures = Failures(ledger, strict=strict)
        self._checked: set[str] = set()
        self._finder: Finder | None = None
        if store is not None:
            self._finder = Finder(
                store,
                failures=self._failures,
                thresholds=thresholds,
                costs=self._costs,
                trials=trials,
                sampler=sampler,
                remotes=remotes,
                unwritable=unwritable,
                ahead=ahead,
            )

    def resolve(self, request: Request[E]) -> E:
        """The executable of `request`, loaded or compiled.

        Raises:
          ContentsDifferError: the check of contents found another executable under this key.
          StoreError, BadEntryError: the cache is strict and failed.
          Exception: what `request.compile` raises, as it is.
        """
        trace = Trace(request.key_seconds)
        finder = self._finder
        if request.components is None or finder is None:
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
                executable = finder.follow(request, key, flight, trace)
            elif self._check_contents and key not in self._checked:
                return self._compare(request, key, finder, flight, trace)
            else:
                executable = finder.here(request, key, flight, trace)
                if executable is None and not trace.entry_is_good:
                    return self._beyond(request, key, finder, flight, trace)
            if executable is not None:
                self._finish(request, key, "hit", trace)
                return executable
            reason = trace.reason or NOT_IN_STORE
            return self._compile(request, key, trace, reason, flight=flight if flight.mine else None)

    def find(self, request: Request[E]) -> E | None:
        """The executable of a request, if there is an entry for it here or in a remote: nothing is compiled.

        A request that comes to nothing leaves no event: whoever asks has another way.

        Raises:
          StoreError, BadEntryError: the cache is strict and failed.
        """
        finder = self._finder
        if request.components is None or finder is None or self._check_contents:
            return None
        trace, key = Trace(request.key_seconds), request.components.key()
        if self._trials is not None and self._trials.refused(key) is not None:
            return None
        with self._flights.board(key) as flight:
            if not flight.mine:
                executable = finder.follow(request, key, flight, trace)
            else:
                executable = finder.here(request, key, flight, trace)
                if executable is None and not trace.entry_is_good:
                    executable = finder.elsewhere(request, key, flight, trace)
            if executable is not None:
                self._finish(request, key, "hit", trace)
            return executable

    def _beyond(self, request: Request[E], key: str, finder: Finder, flight: Flight, trace: Trace) -> E:
        """Nothing here: ask the remotes, and compile. Of a host's processes one does for a key, and the others wait for
        its entry, as long as that entry is going to be kept here: else waiting would be for nothing."""
        kept = self._would_store(key, finder) and policy.may_be_kept(_size_of(request), self._thresholds)
        if not (request.turns and self._leases is not None and kept):
            executable = finder.elsewhere(request, key, flight, trace)
            return self._served(request, key, executable, trace, flight)
        since = time.perf_counter()
        with self._leases.lead(key, lambda: finder.is_here(key)) as lead:
            trace.timed("wait", since)
            # Who leads looks again, too: another may have ended between our look and our lease.
            if lead.outcome == "waited" or finder.is_here(key):
                logger.info("rewarm: %s, key %s: %s after %.1f s", request.program, key[:12], lead.why, lead.seconds)
                executable = finder.here(request, key, flight, trace)
                if executable is not None or trace.entry_is_good:
                    return self._served(request, key, executable, trace, flight)
            executable = finder.elsewhere(request, key, flight, trace)
            if executable is not None or trace.entry_is_good or lead.outcome == "waited" or self._remotes is None:
                return self._served(request, key, executable, trace, flight)
            return self._beyond_this_host(request, key, self._remotes, finder, flight, trace)

    def _beyond_this_host(
        self, request: Request[E], key: str, remotes: Remotes, finder: Finder, flight: Flight, trace: Trace
    ) -> E:
        """Compile, while other hosts wait for the entry; or wait for another host's. Others wait for none that is not
        likely to come."""
        size = _size_of(request)
        if not policy.is_likely_kept(size, self._thresholds):
            return self._served(request, key, None, trace, flight)
        since = time.perf_counter()
        with remotes.lead(key, size) as lead:
            trace.timed("wait", since)
            executable = None
            if lead.outcome == "waited":
                logger.info("rewarm: %s, key %s: %s after %.1f s", request.program, key[:12], lead.why, lead.seconds)
                executable = finder.here(request, key, flight, trace)
            return self._served(request, key, executable, trace, flight)

    def _would_store(self, key: str, finder: Finder) -> bool:
        return not (self._unwritable or finder.is_a_loss(key))

    def _served(self, request: Request[E], key: str, executable: E | None, trace: Trace, flight: Flight) -> E:
        """What was found, or else compiled."""
        if executable is None:
            return self._compile(request, key, trace, trace.reason or NOT_IN_STORE, flight=flight)
        self._finish(request, key, "hit", trace)
        return executable

    # -- ahead of any program ----------------------------------------------------------------------------------

    def fill(self, request: Request[E], *, compile_: bool = True) -> Filled:
        """Have an entry for a request whose executable nobody here is going to run: nothing is loaded.

        Args:
          request: of which `load` is not called.
          compile_: whether to make what is not there, or only to look.

        Raises:
          StoreError, BadEntryError: the cache is strict and failed.
          Exception: what `request.compile` raises, as it is.
        """
        trace = Trace(request.key_seconds)
        if request.components is None or self._finder is None:
            return Filled(None, NO_KEY, request.unkeyable or self._closed)
        key = request.components.key()
        refused = request.bypass or (self._trials.refused(key) if self._trials is not None else None)
        if refused is not None:
            return Filled(key, NOT_STORED, refused)
        there = self._there(request, key, self._finder, trace)
        if there is not None or not compile_:
            return there or Filled(key, MISSING, trace.reason or NOT_IN_STORE)
        if self._leases is None:
            return self._filled(request, key, trace)
        finder = self._finder
        with self._leases.lead(key, lambda: finder.is_here(key)):
            # Who leads looks again, too: another may have ended between our look and our lease.
            there = self._there(request, key, finder, trace) if finder.is_here(key) else None
            return there or self._filled(request, key, trace)

    def _there(self, request: Request[E], key: str, finder: Finder, trace: Trace) -> Filled | None:
        """What is there for a request, here or in a remote, and good enough."""
        found = finder.bytes_of(key, trace)
        if found is None:
            return None
        header = found.entry.header
        trace.reason = request.tuned.refuses(header) if request.tuned is not None else None
        return None if trace.reason is not None else Filled(key, PRESENT, "", header.compile_seconds, header.tuning)

    def _filled(self, request: Request[E], key: str, trace: Trace) -> Filled:
        self._compile(request, key, trace, trace.reason or NOT_IN_STORE)
        tuning = request.tuned.told() if request.tuned is not None else None
        outcome = STORED if trace.stored else NOT_STORED
        return Filled(key, outcome, trace.not_stored or "", trace.seconds["compile"], tuning, trace.bytes_written)

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
        if key is not None and not_stored is None:
            trace.way = request.way()
        since = time.perf_counter()
        try:
            executable = request.compile()
        except BaseException as error:
            trace.timed("compile", since)
            trace.not_stored = COMPILE_FAILED if isinstance(error, Exception) else INTERRUPTED
            self._finish(request, key, "miss", trace)
            raise
        took = trace.timed("compile", since)
        if request.beside is not None:
            took = trace.seconds["compile"] = max(0.0, took - request.beside())
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
            logger.warning("rewarm: cannot serialise %s, so it is not stored: %s", request.program, short(error))
            self._failures.count()
            if self._failures.strict:
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
            tuning=request.tuned.told() if request.tuned is not None else None,
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
        if trace.stored and self._ahead is not None:
            self._ahead.note(key, lambda: trace.way, len(raw))
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
                self._made(sealed)
                self._store.put(key, sealed, seconds=took)
                trace.stored = True
                trace.bytes_written = len(sealed)
        except Exception as error:  # noqa: BLE001 - no failure of a store stops a program
            failure = error
        try:
            if self._remotes is not None:  # now, since what is stored is read from the store when its turn comes
                self._remotes.publish(key, sealed, stored=trace.stored)
        except Exception as error:  # noqa: BLE001
            self._failures.complain("write", error)
        if failure is not None:
            self._not_written(failure, trace)

    def _not_written(self, error: Exception, trace: Trace) -> None:
        trace.not_stored = f"{STORE_FAILED}: {why(error)}"
        self._failures.complain("write", error)

    def _sections(self, request: Request[E], trace: Trace) -> dict[str, bytes]:
        """What an entry keeps beside its executable: how it is loaded, and what other programs are compared with."""
        sections = {WAY: trace.way.in_entry()} if trace.way is not None else {}
        if request.evidence is None or request.components is None:
            return sections
        since = time.perf_counter()
        if len(request.evidence.canonical) <= _PROGRAM_UP_TO:
            sections[PROGRAM] = request.evidence.canonical
        if len(request.evidence.canonical) <= _SOURCE_UP_TO:
            sections[SOURCE] = request.evidence.source()
        arguments = request.evidence.arguments()
        if 0 < len(arguments) <= _ARGUMENTS_UP_TO:
            sections[ARGUMENTS] = arguments
        large = request.components.large_values()
        sections[COMPONENTS] = json.dumps(large, sort_keys=True, separators=(",", ":")).encode("ascii")
        trace.timed("explain", since)
        return sections

    # -- checking contents -------------------------------------------------------------------------------------

    def _compare(self, request: Request[E], key: str, finder: Finder, flight: Flight, trace: Trace) -> E:
        """Compile although there may be an entry, and hold the two against each other."""
        found = finder.bytes_of(key, trace)
        if found is None:
            executable = self._compile(request, key, trace, trace.reason or NOT_IN_STORE, flight=flight)
            self._checked.add(key)
            return executable
        executable = self._compile(request, key, trace, "contents are checked", not_stored=ALREADY_STORED)
        self._compare_code(request, key, found.raw, executable)
        return executable

    def _compare_code(self, request: Request[E], key: str, stored: bytes, executable: E) -> None:
        try:
            compiled = request.serialise(executable)
            same = request.same(stored, compiled)
        except Exception as error:
            logger.warning("rewarm: cannot compare the contents of %s: %s", request.program, short(error))
            self._failures.count()
            if self._failures.strict:
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
            ahead=trace.ahead,
            options=request.options,
            time=trace.started,
            explanation=trace.explanation,
            spans=_rounded([*self._ledger.take_stages(request.program, trace.since), *trace.spans]),
        )
        if self._explainer is not None and outcome == "miss" and trace.not_stored != ALREADY_STORED:
            since = time.perf_counter()
            self._explainer.remember(request, event)
            trace.timed("explain", since)
            seconds = dataclasses.replace(event.seconds, explain=trace.seconds["explain"])
            event = dataclasses.replace(event, seconds=seconds, spans=event.spans + _rounded(trace.spans[-1:]))
        self._ledger.record(event)
        if self._run is not None:
            self._run.event(event.as_dict())
        self._observer.finished(event)


def _rounded(spans: list[Span]) -> tuple[Span, ...]:
    """To microseconds; what took none is left out."""
    return tuple([(step, round(began, 6), round(took, 6)) for step, began, took in spans if took >= _SHORTEST])


def _size_of(request: Request[Any]) -> int:
    """Bytes of the program."""
    return len(request.evidence.canonical) if request.evidence is not None else 0


def _versions(request: Request[Any]) -> dict[str, str]:
    together = request.agreement.compilation() if request.agreement is not None else ""
    return {**request.producer, COMPILED_TOGETHER: together} if together else dict(request.producer)
