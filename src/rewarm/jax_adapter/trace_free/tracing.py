"""A call that has to be traced: traced as JAX does it, recorded meanwhile, and kept as a record.

Not promised: that a record comes of it. What stands in the way is named, and the call is served all the same.

The function is traced, lowered and compiled by JAX's own stages (`trace`, `lower`, `compile`), whose results JAX keeps
in memory, so that its own `cache_miss` after that finds all three. Only the first two are recorded: what runs while a
program compiles is no part of its trace.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import rewarm
from rewarm.cache import Request
from rewarm.guards import Guards, NotGuardableError, Recorder, Rules, guards_of, root_digest
from rewarm.jax_adapter import custom_calls, seam
from rewarm.jax_adapter.keys import captured
from rewarm.jax_adapter.seam import Call
from rewarm.jax_adapter.trace_free.asked import Asked
from rewarm.jax_adapter.trace_free.at_hand import objects_at_hand
from rewarm.jax_adapter.trace_free.records import Place, Record

_OURS = str(Path(rewarm.__file__).parent)


class Traced(NamedTuple):
    """What came of a trace.

    Attributes:
      record: what can be kept of it; `None` where something stood in the way.
      obstacle: what that was, in words; "" for nothing.
    """

    record: Record | None = None
    obstacle: str = ""


class _Watch:
    """Hears which programs are compiled while a call is traced, and has the recorder stand aside meanwhile."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self.heard: list[tuple[Call, Request[Any], Any]] = []

    def pause(self) -> AbstractContextManager[object]:
        """See `activation.Watch`."""
        return contextlib.nullcontext() if self._recorder is None else self._recorder.pause()

    def served(self, call: Call, request: Request[Any], executable: Any) -> None:
        """See `activation.Watch`."""
        self.heard.append((call, request, executable))


def trace(fun: Any, jitted: Any, call: Asked, args: Sequence[Any], kwargs: Mapping[str, Any], rules: Rules) -> Traced:
    """Trace, lower and compile a call, and record what that took.

    Raises:
      Exception: what the user's function or the compiler raises.
    """
    from rewarm.jax_adapter import activation

    before = _digest(fun, rules)
    recorder = Recorder(leave_out=(_OURS,))
    watch = _Watch(recorder)
    with activation.watching(watch):
        with _recording(recorder) as why_not:
            lowered = jitted.trace(*args, **kwargs).lower()
        compiled = lowered.compile()
    root = _of(lowered, compiled, watch)
    if root is None or root[1].components is None or root[1].bypass is not None:
        return Traced(obstacle=_not_served(root))
    key = root[1].components.key()
    if why_not or before is None or before != _digest(fun, rules):
        return Traced(obstacle=why_not[0] if why_not else _changed(fun, rules))
    try:
        guards = guards_of(fun, recorder.seen, rules)
        return Traced(_record(call, *root, key, compiled, guards, objects_at_hand((fun, *rules.depends_on))))
    except NotGuardableError as error:
        return Traced(obstacle=str(error))
    except Exception as error:  # noqa: BLE001 - what cannot be kept is not
        return Traced(obstacle=f"it cannot be kept: {error}")


def _not_served(root: tuple[Call, Request[Any]] | None) -> str:
    said = None if root is None else root[1].unkeyable or root[1].bypass
    return said or "its program is not served by this cache"


def only_key(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Trace, lower and compile a call as `trace` does, unrecorded: its key, or `None`.

    Raises:
      Exception: what the user's function or the compiler raises.
    """
    from rewarm.jax_adapter import activation

    watch = _Watch(None)
    with activation.watching(watch):
        lowered = jitted.trace(*args, **kwargs).lower()
        compiled = lowered.compile()
    root = _of(lowered, compiled, watch)
    components = None if root is None else root[1].components
    return None if components is None else components.key()


@contextlib.contextmanager
def _recording(recorder: Recorder) -> Iterator[list[str]]:
    """Recorded, or why it cannot be: the program runs in either case."""
    why_not: list[str] = []
    try:
        recorder.__enter__()
    except Exception as error:  # noqa: BLE001 - as said
        why_not.append(f"it cannot be recorded: {error}")
    try:
        yield why_not
    finally:
        if not why_not:
            recorder.__exit__(None, None, None)


def _of(lowered: Any, compiled: Any, watch: _Watch) -> tuple[Call, Request[Any]] | None:
    """The request that the compiled program came of; asked for once more where JAX had it in memory already."""
    from rewarm.jax_adapter import activation

    executable = getattr(compiled._executable, "xla_executable", None)
    for call, request, served in reversed(watch.heard):
        if served is executable:
            return call, request
    capture = captured(lowered)
    if capture.request is None or capture.call is None:
        return None
    session = activation.session()
    if session is not None:  # compiled while rewarm was off, it is in JAX's memory and not in the cache
        with contextlib.suppress(Exception):
            session.serve(capture.call)
    return capture.call, capture.request


def _digest(fun: Any, rules: Rules) -> str | None:
    try:
        return root_digest(fun, rules)
    except NotGuardableError:
        return None


def _changed(fun: Any, rules: Rules) -> str:
    try:
        root_digest(fun, rules)
    except NotGuardableError as error:
        return str(error)
    return "it changes what it captures while it is traced"


def _record(
    call: Asked,
    asked: Call,
    request: Request[Any],
    key: str,
    compiled: Any,
    guards: Guards,
    at_hand: list[object],
) -> Record:
    """Raises ValueError where the call or its executable has parts that another process cannot have."""
    if request.place is None:
        raise ValueError("nobody else can load its executable")
    if compiled.in_tree != call.tree:
        raise ValueError("JAX takes its arguments in another order")
    place = request.place()
    if place.callbacks:
        raise ValueError("callbacks, whose Python is there only after a trace")
    assert request.components is not None
    rows = {row.name: row for row in request.components.rows}
    if rows["callbacks"].value != "none":
        raise ValueError("custom_partitioning, whose Python runs while the program compiles")
    program = request.evidence
    lapack = program is not None and custom_calls.may_call_lapack(program.kinds, program.canonical)
    return Record(
        kind=call.kind,
        name=request.program,
        key=key,
        program=rows["program"].digest,
        guards=guards,
        place=Place(place.platform, place.devices, tuple(asked.devices.shape), place.options, lapack),
        parts=seam.take_apart(compiled, at_hand),
        created=time.time(),
        told=call.told,
    )
