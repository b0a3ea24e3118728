"""One set of settings in force, with the store and the cache that follow from it.

Not promised: that a session lives as long as the process. Each change of a setting, of rewarm's or of JAX's, makes
another at the next compile.
"""

from __future__ import annotations

import atexit
import errno
import functools
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rewarm import policy, settings
from rewarm.cache import Ahead, Checker, CompileCache, Explainer, Request, Sampler, Trials
from rewarm.coordination import HostLeases, SingleFlight
from rewarm.errors import ContentsDifferError, RewarmError, StoreError
from rewarm.host import host_id
from rewarm.identity import Toolchain
from rewarm.in_force import Said, Settings, resolve
from rewarm.jax_adapter import events, loading_ahead, seam
from rewarm.jax_adapter.first_runs import trials_of
from rewarm.jax_adapter.options import host_options
from rewarm.jax_adapter.requests import Identifier, producer
from rewarm.jax_adapter.seam import Call, JaxOptions
from rewarm.ledger import Event, Ledger, LoadCosts, RunWriter
from rewarm.policy import Thresholds
from rewarm.sharing.made import made_by
from rewarm.sharing.tuned import FOLDER as TUNED
from rewarm.small_files import PRIVATE, SHARED
from rewarm.store import LocalStore
from rewarm.store.limits import bounds_of
from rewarm.telling import Teller

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rewarm.jax_adapter import tuning
    from rewarm.jax_adapter.sampling import Checks
    from rewarm.jax_adapter.tuning import Compile, Tuning
    from rewarm.ledger.explanation import Explanation
    from rewarm.sharing import Remotes as SharedRemotes
    from rewarm.tunables.keeping import Keeping
    from rewarm.tunables.records import Record

logger = logging.getLogger("rewarm")

LIBRARIES_MEMO = "libraries.json"
LEASES = "leases"


class Runs:
    """The runs on disk that this process writes, one for each cache directory that it uses."""

    def __init__(self, ledger: Ledger, about: Mapping[str, Any] | None = None) -> None:
        self._ledger = ledger
        self._about = about or {}
        self._writers: dict[Path, RunWriter] = {}
        atexit.register(self._end)

    def of(self, in_force: Settings) -> RunWriter:
        """The run in a cache directory, under the settings that first used it."""
        writer = self._writers.get(in_force.directory)
        if writer is None:
            about = {"versions": producer(), "settings": _plain(in_force), **_job(), **self._about}
            # Of two threads that come here at once one writer stays, and the other never makes its file.
            writer = self._writers.setdefault(in_force.directory, RunWriter(in_force.directory, about))
        return writer

    def _end(self) -> None:
        stats = self._ledger.stats()
        for writer in self._writers.values():
            writer.end(stats.as_dict())
        if (line := stats.unstored_line()) is not None:
            logger.info("rewarm: %s", line)


def _job() -> dict[str, Any]:
    """Which process of which job this is, where it is one of several: so their runs are found together."""
    rank, ranks = seam.process_index(), seam.process_count()
    if ranks > 1:
        return {"job": {"id": seam.job_address(), "rank": rank, "ranks": ranks}}
    return {"job": told._asdict()} if (told := settings.launched_as()) is not None else {}


def _plain(in_force: Settings) -> dict[str, Any]:
    plain = (bool, int, float, str, type(None))
    told = in_force.without_secrets()
    return {name: value if isinstance(value, plain) else str(value) for name, value in told.items()}


class _LateExplainer:
    """The explainer, imported at the first miss: a start that finds everything needs none of it."""

    def __init__(self, store: LocalStore | None, directory: Path, *, thorough: bool) -> None:
        self._place = store, directory
        self._thorough = thorough

    @functools.cached_property
    def _explainer(self) -> Explainer:
        from rewarm.explain import Catalogue
        from rewarm.explain import Explainer as Real

        store, directory = self._place
        return Real(store, Catalogue(directory), thorough=self._thorough)

    def explain(self, request: Request[Any], reason: str, quarantined: str | None) -> Explanation:
        """See `cache.Explainer`."""
        return self._explainer.explain(request, reason, quarantined)

    def remember(self, request: Request[Any], event: Event) -> None:
        """See `cache.Explainer`."""
        self._explainer.remember(request, event)


class _Opened(NamedTuple):
    """What came of opening the directory: a store, or why there is none, and why nothing can be written to it."""

    store: LocalStore | None = None
    closed: str = ""
    unwritable: str = ""


def _thresholds(in_force: Settings, store: LocalStore | None) -> Thresholds:
    bound = None if store is None else store.bounds.max_size
    return Thresholds(
        in_force.min_compile_seconds,
        in_force.min_entry_bytes,
        max_size=-1 if bound is None else bound,
        costs=not in_force.threshold_said and not in_force.shared,
    )


def _sampler(in_force: Settings, store: LocalStore | None, writable: LocalStore | None) -> Sampler | None:
    if store is None or not in_force.verify_sample:
        return None
    from rewarm.jax_adapter.sampling import Sampling

    return Sampling(in_force.verify_sample, _checks(), writable, level=in_force.compression_level)


def _ignored(_: bytes) -> None:
    """Nothing can be written down."""


@functools.cache
def _leases_in(root: Path, shared: bool) -> HostLeases:
    """The leases of this process in one cache directory."""
    return HostLeases(root / LEASES, SHARED if shared else PRIVATE)


@functools.cache
def _checks() -> Checks:
    """The sampled hits of this process."""
    from rewarm.jax_adapter.sampling import Checks

    return Checks()


class Session:
    """Serves calls of JAX under one set of settings."""

    def __init__(self, said: Said, options: JaxOptions, ledger: Ledger, flights: SingleFlight, runs: Runs) -> None:
        self.settings = resolve(said, host_options(options))
        self._toolchain = Toolchain(self.settings.directory / LIBRARIES_MEMO)
        self.identifier = Identifier(self.settings, self._toolchain)
        self._options = options
        self._ledger = ledger
        self._flights = flights
        self._runs = runs
        self._lock = threading.Lock()
        self._cache: CompileCache | None = None
        self._teller = Teller()
        self._tuning: Tuning | None = None
        self._keeping: Keeping | None = None
        self._results_go: tuple[LocalStore | None, SharedRemotes | None] = (None, None)

    def _open(self) -> CompileCache:
        """The cache, opened at the first call that needs it: asking for a key alone touches no directory.

        A directory that cannot be used is tried again at the next call: it may have been a moment's trouble.
        """
        with self._lock:
            if self._cache is not None:
                return self._cache
            opened = self._open_store()
            try:
                cache = self._cache_over(opened)
            except Exception as error:
                if self.settings.strict:
                    raise
                cache, opened = self._without_a_store(error), _Opened(closed=policy.SWITCHED_OFF)
            if opened.store is not None or opened.closed == policy.SWITCHED_OFF:
                self._cache = cache
            return cache

    def _open_store(self) -> _Opened:
        in_force = self.settings
        if in_force.max_size == 0:
            return _Opened(closed=policy.SWITCHED_OFF)
        store = LocalStore(in_force.directory, shared=in_force.shared)
        store.tell_evictions(self._ledger.evicted)
        try:
            obstacle = store.prepare()
            _refuse_a_trap(store, in_force)
            store.own_alone = not in_force.shared
        except StoreError as error:
            self._ledger.error()
            if in_force.strict:
                raise
            self._teller.tell(
                f"cannot use the directory {in_force.directory}: {error.strerror}; programs are compiled and not "
                f"cached. Choose another with REWARM_DIR or rewarm.enable(directory)"
            )
            return _Opened(closed=f"the directory cannot be used: {error.strerror}")
        if obstacle is not None:
            self._teller.tell(
                f"the directory {in_force.directory} is {obstacle}: entries are read, and new ones are not stored"
            )
            return _Opened(store, unwritable=f"the directory is {obstacle}")
        store.bounds = bounds_of(in_force, store.total()[0])
        return _Opened(store)

    def _without_a_store(self, error: Exception) -> CompileCache:
        """A fault of ours that nobody knows yet: programs are compiled as without rewarm."""
        logger.debug("rewarm: no cache in %s", self.settings.directory, exc_info=True)
        self._ledger.error()
        words = f"the cache cannot be opened: {type(error).__name__}: {error}"
        self._teller.tell(f"{words}; programs are compiled and not cached")
        return CompileCache(
            None,
            thresholds=Thresholds(0, 0),
            ledger=self._ledger,
            flights=self._flights,
            observer=events.JaxObserver(explain=False, log_compiles=False, before_compile=seam.note_compile_after_miss),
            closed=words,
        )

    def _cache_over(self, opened: _Opened) -> CompileCache:
        in_force, store = self.settings, opened.store
        writable = store if not opened.unwritable else None
        remotes = self._remotes(store)
        self._results_go = writable, remotes
        observer = events.JaxObserver(
            explain=in_force.explain,
            log_compiles=self._options.log_compiles,
            before_compile=seam.note_compile_after_miss,
        )
        return CompileCache(
            store,
            thresholds=_thresholds(in_force, store),
            ledger=self._ledger,
            flights=self._flights,
            observer=observer,
            run=self._runs.of(in_force) if writable is not None else None,
            explainer=_LateExplainer(store, in_force.directory, thorough=in_force.explain),
            level=in_force.compression_level,
            strict=in_force.strict,
            check_contents=in_force.check_contents,
            closed=opened.closed,
            unwritable=opened.unwritable,
            costs=LoadCosts(in_force.directory, host_id()) if writable is not None else None,
            trials=self._trials(store),
            sampler=_sampler(in_force, store, writable),
            checker=self._checker(writable),
            remotes=remotes,
            leases=None if writable is None else _leases_in(writable.root, writable.shared),
            ahead=self._ahead(store),
            made=_ignored if writable is None else made_by(self.settings, writable).add,
        )

    def _ahead(self, store: LocalStore | None) -> Ahead | None:
        if store is None:
            return None
        try:
            return loading_ahead.of(self.settings, self._ledger)
        except Exception:
            logger.debug("rewarm: nothing is loaded ahead", exc_info=True)
            return None

    def _trials(self, store: LocalStore | None) -> Trials | None:
        """Judges what dead processes left in the directory. A read-only one is not written to, and refusals count."""
        if store is None:
            return None
        return trials_of(store.root, store, self._teller.tell, SHARED if self.settings.shared else PRIVATE)

    def _remotes(self, store: LocalStore | None) -> SharedRemotes | None:
        if store is None or not self.settings.remote:
            return None
        from rewarm.jax_adapter.remotes import remotes_of

        try:
            return remotes_of(self.settings, store, self._ledger, self._teller.tell)
        except Exception as error:
            self._ledger.error()
            if self.settings.strict:
                raise
            # The words of errors that are not ours may show what is secret.
            words = str(error) if isinstance(error, RewarmError) else f"no remotes: {type(error).__name__}"
            self._teller.tell(f"{words}; the program goes on without remotes")
            return None

    def _checker(self, writable: LocalStore | None) -> Checker | None:
        if writable is None or not self.settings.load_check:
            return None
        from rewarm.jax_adapter.load_check import EntryCheck, LoadCheck

        return EntryCheck(LoadCheck(writable, self._teller.tell, settings.load_check_environment()), writable)

    def known(self, call: Call, request_of: Callable[[Call], Request[Any]]) -> Request[Any]:
        """The request of a call whose program is not here to be compiled.

        Raises:
          Exception: what `request_of` raises.
        """
        self._open()
        compile_ = self._tuned(call)
        request = self._optioned(call, request_of)
        return request if compile_ is None else compile_.on(request)

    def find(self, request: Request[Any]) -> Any | None:
        """The executable of such a request, from wherever it is, or `None`."""
        return self._open().find(request)

    def records_here(self) -> Keeping:
        """As `records`, without asking remotes: for what every program asks."""
        self._open()
        from rewarm.tunables.keeping import Keeping

        return Keeping(self._results_go[0], tell=self._teller.tell, pinned=self._pinned_winners)

    @functools.cached_property
    def _pinned_winners(self) -> list[Record]:
        """What the lock file in force has of the tuner; a file that cannot be used is said, and has nothing. Read once:
        every program asks."""
        if self.settings.autotune_lock is None:
            return []
        from rewarm.tunables import text_file

        try:
            return text_file.load(self.settings.autotune_lock)
        except text_file.LockFileError as wrong:
            self._teller.tell(f"no winner of autotune_lock is used: {wrong}")
            return []

    def records(self) -> Keeping:
        """Where records of the tuner are kept, and looked up."""
        self._open()
        with self._lock:
            if self._keeping is None:
                from rewarm.tunables.keeping import Keeping

                local, remotes = self._results_go
                made = None if local is None else made_by(self.settings, local)
                level = self.settings.compression_level
                self._keeping = Keeping(
                    local,
                    remotes,
                    made=made,
                    producer=producer(),
                    level=level,
                    tell=self._teller.tell,
                    pinned=self._pinned_winners,
                )
            return self._keeping

    def folder_of_traces(self) -> Path | None:
        """Where records of traces are kept; `None` where nothing can be kept."""
        self._open()
        writable = self._results_go[0]
        return None if writable is None else writable.root

    def requests(self) -> int:
        """How many programs were asked for in this process so far."""
        return self._ledger.requests

    def count_tuned(self, choice: str) -> None:
        """Count a choice of the tuner."""
        self._ledger.count_tuned(choice)

    def count_trace(self, outcome: str) -> None:
        """Count what became of a call that JAX would have traced."""
        self._ledger.count_trace(outcome)

    def serve(self, call: Call, served: Callable[[Request[Any], Any], object] | None = None) -> Any:
        """The executable of one call. `served` hears of the request and of what it came to.

        Raises:
          Exception: what the compiler raises, as it is; with JAX's own class where contents differ.
        """
        if self._options.cache_dir and "://" in self._options.cache_dir:
            seam.hide_url(call, self._options.cache_dir)
        seam.before_compile_step(call)
        events.request_made()
        cache = self._open()
        compile_ = self._tuned(call)
        asked_for = seam.overrides_of(call)
        request = self._optioned(call, self.identifier.request)
        if compile_ is not None:
            request = compile_.on(request)
        if served is not None:  # a trace of `rewarm.jit` that later starts may be spared
            request = request._replace(spares_trace=True)
        try:
            executable = self._resolved(cache, call, request, asked_for)
            if served is not None:
                served(request, executable)
            return executable
        except ContentsDifferError as error:
            native = seam.verification_error(str(error), error.key, error.stored, error.compiled)
            if native is None:
                raise
            raise native from error

    def _optioned(self, call: Call, request_of: Callable[[Call], Request[Any]]) -> Request[Any]:
        """The request of a call, with the options of XLA that won for its program, if any."""
        request, store = request_of(call), self._results_go[0]
        if not self.settings.tuned_options or request.components is None or store is None:
            return request
        if not os.path.isdir(store.root / TUNED) and self.settings.autotune_lock is None:  # noqa: PTH112 - it never raises
            return request
        from rewarm.jax_adapter.tuner import options

        found = options.winner_for(self, request.program, request.components)
        if not found:
            return request
        options.apply(call, found)
        self.count_tuned("options")
        words = ", ".join(f"{name}={value}" for name, value in sorted(found.items()))
        logger.info("rewarm: %s has the options that were tuned for it: %s", request.program, words)
        return request_of(call)._replace(options=words)

    def _resolved(self, cache: CompileCache, call: Call, request: Request[Any], asked_for: Mapping[str, Any]) -> Any:
        """The executable; without tuned options where the compiler does not bear them.

        Raises:
          Exception: what the compiler raises.
        """
        try:
            return cache.resolve(request)
        except ContentsDifferError:
            raise
        except Exception as error:
            if not request.options:
                raise
            words = f"{request.program} does not compile with the options that were tuned for it ({request.options})"
            self._teller.tell(f"{words}, so it has none: {type(error).__name__}: {error}")
            seam.set_overrides(call, asked_for)
            return cache.resolve(self.identifier.request(call))

    def compile_described(self, call: Call, compile_now: Callable[[], Any]) -> Any:
        """What JAX's own function makes of a call for devices that are only described, with its tuning results at hand.

        Raises:
          Exception: what JAX raises.
        """
        if call.backend.platform == "gpu" and self.settings.max_size != 0:
            self._open()
        compile_ = self._tuned(call)
        return compile_now() if compile_ is None else compile_.compile(compile_now)

    def _tuned(self, call: Call) -> Compile | None:
        if call.backend.platform != "gpu" or self.settings.max_size == 0:
            return None
        from rewarm.jax_adapter import tuning

        if self._tuning is None:
            self._tuning = tuning.Tuning(self.settings, self._toolchain, self._results, self._teller)
        return self._tuning.of(call)

    def _results(self) -> tuning.Store:
        from rewarm.jax_adapter import tuning

        local, remotes = self._results_go
        made = _ignored if local is None else made_by(self.settings, local).add
        return tuning.Store(local, remotes, self.settings.compression_level, made)


def _refuse_a_trap(store: LocalStore, in_force: Settings) -> None:
    """An entry is code: what others may write there they may run in this process."""
    reason = None if in_force.shared else store.others_may_write()
    if reason is not None:
        raise StoreError(errno.EPERM, f"an entry is code, and {reason}", str(store.root))
