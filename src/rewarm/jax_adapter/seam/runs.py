"""Watching first runs.

Not promised: later runs; most of them go past Python.

`pxla.ExecuteReplicated.__call__` runs an executable's first call in JAX 0.9 to 0.12, whichever way it comes (jit,
AOT, pmap). It is replaced while an executable waits for its first run, and put back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class _Watch(NamedTuple):
    ours: Callable[..., Any]
    original: Callable[..., Any]


_watch: _Watch | None = None


def watch_runs(on_trial: Mapping[int, Any], run: Callable[[Callable[..., Any], Any, tuple[Any, ...]], Any]) -> bool:
    """Have `run(original, self, arguments)` called in the place of each run of an executable whose `id` is in
    `on_trial`, until `unwatch_runs`; whether this JAX has where to stand for that."""
    global _watch  # noqa: PLW0603 - what stands in JAX's class is one fact of the process
    from jax._src.interpreters import pxla

    runner: Any = getattr(pxla, "ExecuteReplicated", None)
    if "__call__" not in getattr(runner, "__dict__", ()) or not hasattr(runner, "xla_executable"):
        return False
    if _watch is not None:
        return True
    original: Callable[..., Any] = vars(runner)["__call__"]

    @functools.wraps(original)
    def watched(self: Any, *arguments: Any) -> Any:
        if id(self.xla_executable) in on_trial:
            return run(original, self, arguments)
        return original(self, *arguments)

    _watch = _Watch(watched, original)
    runner.__call__ = watched
    return True


def unwatch_runs() -> None:
    """Put JAX's own method back. Where somebody has put another around ours, ours stays and passes calls on."""
    global _watch  # noqa: PLW0603 - as above
    if _watch is None:  # a command that never had JAX need not import it at its end
        return
    from jax._src.interpreters import pxla

    if pxla.ExecuteReplicated.__call__ is _watch.ours:
        pxla.ExecuteReplicated.__call__ = _watch.original
        _watch = None


def array_of(outputs: Any) -> Any | None:
    """One array among the outputs of a run, to see whether it is done; arrays of keys are arrays inside."""
    for output in outputs:
        array = getattr(output, "_base_array", output)
        if hasattr(array, "is_ready") and hasattr(array, "is_deleted"):
            return array
    return None
