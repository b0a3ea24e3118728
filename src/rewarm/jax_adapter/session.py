"""One set of settings in force, with the store and the cache that follow from it.

Not promised: that a session lives as long as the process. Each change of a setting, of rewarm's or of JAX's, makes
another at the next compile.
"""

from __future__ import annotations

import atexit
import errno
import functools
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewarm import policy
from rewarm.cache import CompileCache, Explainer, Request
from rewarm.coordination import SingleFlight
from rewarm.errors import ContentsDifferError, StoreError
from rewarm.identity import Toolchain
from rewarm.in_force import Said, Settings, default_directory, resolve
from rewarm.jax_adapter import events, seam
from rewarm.jax_adapter.options import host_options
from rewarm.jax_adapter.requests import Identifier, producer
from rewarm.jax_adapter.seam import Call, JaxOptions
from rewarm.ledger import Event, Ledger, RunWriter
from rewarm.policy import Thresholds
from rewarm.store import LocalStore
from rewarm.telling import Teller

if TYPE_CHECKING:
    from rewarm.ledger.explanation import Explanation

logger = logging.getLogger("rewarm")

LIBRARIES_MEMO = "libraries.json"


class Runs:
    """The runs on disk that this process writes, one for each cache directory that it uses."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._writers: dict[Path, RunWriter] = {}
        atexit.register(self._end)

    def of(self, in_force: Settings) -> RunWriter:
        """The run in a cache directory, under the settings that first used it."""
        writer = self._writers.get(in_force.directory)
        if writer is None:
            about = {"versions": producer(), "settings": _plain(in_force)}
            # Of two threads that come here at once one writer stays, and the other never makes its file.
            writer = self._writers.setdefault(in_force.directory, RunWriter(in_force.directory, about))
        return writer

    def _end(self) -> None:
        stats = self._ledger.stats().as_dict()
        for writer in self._writers.values():
            writer.end(stats)


def _plain(in_force: Settings) -> dict[str, Any]:
    plain = (bool, int, float, str, type(None))
    return {name: value if isinstance(value, plain) else str(value) for name, value in in_force._asdict().items()}


class _LateExplainer:
    """The explainer, imported at the first miss: a start that finds everything needs none of it."""

    def __init__(self, store: LocalStore | None, directory: Path) -> None:
        self._place = store, directory

    @functools.cached_property
    def _explainer(self) -> Explainer:
        from rewarm.explain import Catalogue
        from rewarm.explain import Explainer as Real

        store, directory = self._place
        return Real(store, Catalogue(directory))

    def explain(self, request: Request[Any], reason: str, quarantined: str | None) -> Explanation:
        """See `cache.Explainer`."""
        return self._explainer.explain(request, reason, quarantined)

    def remember(self, request: Request[Any], event: Event) -> None:
        """See `cache.Explainer`."""
        self._explainer.remember(request, event)


class Session:
    """Serves calls of JAX under one set of settings."""

    def __init__(self, said: Said, options: JaxOptions, ledger: Ledger, flights: SingleFlight, runs: Runs) -> None:
        self.settings = resolve(said, host_options(options))
        self.identifier = Identifier(self.settings, Toolchain(self.settings.directory / LIBRARIES_MEMO))
        self._options = options
        self._ledger = ledger
        self._flights = flights
        self._runs = runs
        self._lock = threading.Lock()
        self._cache: CompileCache | None = None
        self._teller = Teller()

    def _open(self) -> CompileCache:
        """The cache, opened at the first call that needs it: asking for a key alone touches no directory.

        A directory that cannot be used is tried again at the next call: it may have been a moment's trouble.
        """
        with self._lock:
            if self._cache is not None:
                return self._cache
            store, closed = self._open_store()
            cache = self._cache_over(store, closed)
            if store is not None or closed == policy.SWITCHED_OFF:
                self._cache = cache
            return cache

    def _open_store(self) -> tuple[LocalStore | None, str]:
        in_force = self.settings
        if in_force.max_size == 0:
            return None, policy.SWITCHED_OFF
        if in_force.max_size > 0:
            self._teller.tell(
                f"jax_compilation_cache_max_size is {in_force.max_size}: rewarm does not bound the directory yet; "
                f"entries larger than this are not stored"
            )
        store = LocalStore(in_force.directory)
        try:
            obstacle = store.prepare()
            _refuse_a_trap(store)
        except StoreError as error:
            self._ledger.error()
            if in_force.strict:
                raise
            self._teller.tell(
                f"cannot use the directory {in_force.directory}: {error.strerror}; programs are compiled and not "
                f"cached. Choose another with REWARM_DIR or rewarm.enable(directory)"
            )
            return None, f"the directory cannot be used: {error.strerror}"
        if obstacle is not None:
            self._teller.tell(
                f"the directory {in_force.directory} is {obstacle}: entries are read, and new ones are not stored"
            )
        return store, ""

    def _cache_over(self, store: LocalStore | None, closed: str) -> CompileCache:
        in_force = self.settings
        observer = events.JaxObserver(
            explain=in_force.explain,
            log_compiles=self._options.log_compiles,
            before_compile=seam.note_compile_after_miss,
        )
        return CompileCache(
            store,
            thresholds=Thresholds(in_force.min_compile_seconds, in_force.min_entry_bytes, in_force.max_size),
            ledger=self._ledger,
            flights=self._flights,
            observer=observer,
            run=self._runs.of(in_force) if store is not None else None,
            explainer=_LateExplainer(store, in_force.directory),
            level=in_force.compression_level,
            strict=in_force.strict,
            check_contents=in_force.check_contents,
            closed=closed,
        )

    def serve(self, call: Call) -> Any:
        """The executable of one call.

        Raises:
          Exception: what the compiler raises, as it is; with JAX's own class where contents differ.
        """
        seam.before_compile_step(call)
        events.request_made()
        cache = self._open()
        request = self.identifier.request(call)
        try:
            return cache.resolve(request)
        except ContentsDifferError as error:
            native = seam.verification_error(str(error), error.key, error.stored, error.compiled)
            if native is None:
                raise
            raise native from error


def _refuse_a_trap(store: LocalStore) -> None:
    """The default directory can lie under a temporary folder, where anybody can make it first and fill it.

    A directory that the user named is taken as it is: whose it is is his to know.
    """
    reason = store.others_may_write() if store.root == default_directory() else None
    if reason is not None:
        raise StoreError(errno.EPERM, f"an entry is code, and {reason}", str(store.root))
