"""What JAX's own cache would tell of a request: monitoring events and log lines, with their meaning.

Not promised: JAX's reading of `cache_misses`, which counts entries written. Here a miss is a miss, stored or not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rewarm.jax_adapter import seam
from rewarm.ledger import Event

if TYPE_CHECKING:
    from rewarm.ledger.explanation import Explanation

_PREFIX = "/jax/compilation_cache/"
_TRACE_EVENT = "/jax/core/compile/jaxpr_trace_duration"
_LOWER_EVENT = "/jax/core/compile/jaxpr_to_mlir_module_duration"


class JaxObserver:
    """Tells JAX's listeners and loggers what happens. `explain` and `log_compiles` raise DEBUG to WARNING.

    Args:
      explain: misses, and what is not stored, at WARNING.
      log_compiles: hits at WARNING.
      before_compile: called before each compilation.
    """

    def __init__(self, *, explain: bool, log_compiles: bool, before_compile: Callable[[], None]) -> None:
        self._explain = explain
        self._miss_level = logging.WARNING if explain else logging.DEBUG
        self._hit_level = logging.WARNING if log_compiles else logging.DEBUG
        self._before_compile = before_compile

    def missed(self, program: str, key: str | None, reason: str, explanation: Explanation | None) -> None:
        """See `cache.Observer`."""
        _record("cache_misses")
        why = explanation.summary if explanation is not None and self._explain else reason
        if key is None:
            seam.compiler_log.log(self._miss_level, "Not caching '%s': %s", program, why)
        else:
            message = "PERSISTENT COMPILATION CACHE MISS for '%s' with key %r (%s)"
            seam.compiler_log.log(self._miss_level, message, program, key, why)
        self._before_compile()

    def finished(self, event: Event) -> None:
        """See `cache.Observer`."""
        if event.outcome == "hit":
            self._hit(event)
        elif event.stored:
            message = "Writing %s to persistent compilation cache with key %r"
            seam.cache_log.log(self._miss_level, message, event.program, event.key)
        elif event.not_stored is not None:
            message = "Not writing persistent cache entry for '%s' with key %r: %s (%.2fs to compile)"
            seam.compiler_log.log(
                self._miss_level, message, event.program, event.key, event.not_stored, event.seconds.compile
            )

    def _hit(self, event: Event) -> None:
        _record("cache_hits")
        retrieval = event.seconds.fetch + event.seconds.load
        _record_seconds("compile_time_saved_sec", event.seconds_saved)
        _record_seconds("cache_retrieval_time_sec", retrieval)
        message = "Persistent compilation cache hit for '%s' with key %r"
        seam.compiler_log.log(self._hit_level, message, event.program, event.key)


def request_made() -> None:
    """A program asked the cache."""
    _record("compile_requests_use_cache")


def task_uses_cache() -> None:
    """Once per process: the cache is in use."""
    _record("tasks_using_cache")


def _record(name: str) -> None:
    import jax.monitoring

    jax.monitoring.record_event(_PREFIX + name)


def _record_seconds(name: str, seconds: float) -> None:
    import jax.monitoring

    jax.monitoring.record_event_duration_secs(_PREFIX + name, seconds)


def listen_for_traces(traced: Callable[[str, float], None], lowered: Callable[[str, float], None]) -> None:
    """Call `traced(function, seconds)` whenever JAX has traced a function, and `lowered(module, seconds)` whenever it
    has lowered a program; for as long as the process lives.

    JAX's own events are the source (`jax/_src/dispatch.py`, JAXPR_TRACE_EVENT and JAXPR_TO_MLIR_MODULE_EVENT).
    """
    import jax.monitoring

    def listen(event: str, seconds: float, **said: object) -> None:
        if event == _TRACE_EVENT:
            traced(str(said.get("fun_name", "unknown")), seconds)
        elif event == _LOWER_EVENT:
            lowered(str(said.get("fun_name", "unknown")), seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
