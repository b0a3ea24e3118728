"""A call that has to be traced: traced as JAX does it, recorded meanwhile, and kept as a record.

Not promised: that a record comes of it. What stands in the way is named, and the call is served all the same.

The function is traced, lowered and compiled by JAX's own stages (`trace`, `lower`, `compile`), whose results JAX keeps
in memory, so that its own `cache_miss` after that finds all three. Only the first two are recorded: what runs while a
program compiles is no part of its trace.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import rewarm
from rewarm.cache import Request
from rewarm.guards import Guards, NotGuardableError, Recorder, Rules, guards_of, root_digest
from rewarm.jax_adapter import custom_calls, seam
from rewarm.jax_adapter.keys import captured, key_of_lowered
from rewarm.jax_adapter.seam import Call
from rewarm.jax_adapter.trace_free.asked import Asked
from rewarm.jax_adapter.trace_free.at_hand import ways_to_objects
from rewarm.jax_adapter.trace_free.beside import what_it_changes
from rewarm.jax_adapter.trace_free.kept import has_not_run
from rewarm.jax_adapter.trace_free.records import Place, Record
from rewarm.jax_adapter.trace_free.results import results_of
from rewarm.jax_adapter.tuner import decisions
from rewarm.jax_adapter.tuner.decisions import Decision

OURS = str(Path(rewarm.__file__).parent)


class _CallbacksError(ValueError):
    """A program calls Python."""


class Traced(NamedTuple):
    """What came of a trace.

    Attributes:
      record: what can be kept of it; `None` where something stood in the way.
      obstacle: what that was, in words; "" for nothing.
      stands: whether it lies in the function, and will stand in the way of the next start.
    """

    record: Record | None = None
    obstacle: str = ""
    stands: bool = False


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


class RaisedError(Exception):
    """The user's function raised while it was traced.

    Attributes:
      error: what it raised.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Recorded(NamedTuple):
    """One trace that was recorded, and lowered."""

    recorder: Recorder
    why_not: list[str]
    traced: Any
    lowered: Any
    decided: Sequence[Decision]


def trace(fun: Any, jitted: Any, call: Asked, args: Sequence[Any], kwargs: Mapping[str, Any], rules: Rules) -> Traced:
    """Trace, lower and compile a call, and record what that took.

    Raises:
      RaisedError: the user's function raises.
      Exception: what the compiler raises.
    """
    from rewarm.jax_adapter import activation

    before = _digest(fun, rules)
    if before is None:  # JAX traces it by itself, and needs nobody to look on
        return Traced(obstacle=_changed(fun, rules), stands=True)
    recorder = Recorder(leave_out=(OURS,))
    watch = _Watch(recorder)
    with activation.watching(watch):
        one = _recorded(recorder, jitted, args, kwargs)
        compiled = one.lowered.compile()
    root = _of(one.lowered, compiled, watch)
    if root is None or root[1].components is None or root[1].bypass is not None:
        return Traced(obstacle=_not_served(root))
    if one.why_not or before != _digest(fun, rules):
        return Traced(obstacle=one.why_not[0] if one.why_not else _changed(fun, rules))
    try:
        if has_not_run(fun, recorder.seen, rules):
            one = _traced_anew(jitted, args, kwargs, root[1].components.key())
        guards = guards_of(fun, one.recorder.seen, rules)
        return Traced(_record(call, *root, compiled, one, guards, _ways(fun, rules)))
    except NotGuardableError as error:
        return Traced(obstacle=str(error), stands=True)
    except RaisedError:
        raise
    except Exception as error:  # noqa: BLE001 - what cannot be kept is not
        return Traced(obstacle=f"it cannot be kept: {error}", stands=isinstance(error, _CallbacksError))


def _recorded(recorder: Recorder, jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Recorded:
    with _recording(recorder) as why_not, decisions.collecting() as decided:
        traced = _traced(jitted, args, kwargs)
        lowered = traced.lower()
    return _Recorded(recorder, why_not, traced, lowered, decided)


def _traced(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return jitted.trace(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - the user's own, handed on as it is
        raise RaisedError(error) from None


def _traced_anew(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any], key: str) -> _Recorded:
    """The same trace, without what JAX has kept of traces before.

    Raises:
      ValueError: it comes to another program than JAX's own, so that what JAX has kept counts, which nobody can guard.
    """
    with seam.forgetting_traces():
        one = _recorded(Recorder(leave_out=(OURS,)), jitted, args, kwargs)
    if key_of_lowered(one.lowered) != key:
        raise ValueError("JAX has a trace of it, or of a function that it calls, from before something changed")
    if one.why_not:
        raise ValueError(one.why_not[0])
    return one


def _ways(fun: Any, rules: Rules) -> Callable[[Any], Any | None]:
    """By which an object is found that is not written out (`at_hand.py`)."""
    known = ways_to_objects((fun, *rules.depends_on))
    return lambda one: known[id(one)][1] if id(one) in known else None


def _not_served(root: tuple[Call, Request[Any]] | None) -> str:
    said = None if root is None else root[1].unkeyable or root[1].bypass
    return said or "its program is not served by this cache"


class Came(NamedTuple):
    """What a trace came to.

    Attributes:
      key: of the executable.
      results: `results.results_of`.
    """

    key: str
    results: str


def traced_again(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Came | None:
    """Trace, lower and compile a call as `trace` does, unrecorded; `None` where its program has no key.

    Raises:
      RaisedError: the user's function raises.
      Exception: what the compiler raises.
    """
    from rewarm.jax_adapter import activation

    watch = _Watch(None)
    with activation.watching(watch):
        traced = _traced(jitted, args, kwargs)
        lowered = traced.lower()
        compiled = lowered.compile()
    root = _of(lowered, compiled, watch)
    components = None if root is None else root[1].components
    return None if components is None else Came(components.key(), results_of(traced, lowered.out_tree))


def traced_beside(jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Came | None:
    """Trace and lower a call in another thread than the program's, without what JAX has kept of traces before.

    Raises:
      Exception: what the user's function raises.
    """
    with seam.forgetting_traces():
        traced = jitted.trace(*args, **kwargs)
        lowered = traced.lower()
    key = key_of_lowered(lowered)
    return None if key is None else Came(key, results_of(traced, lowered.out_tree))


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
    compiled: Any,
    one: _Recorded,
    guards: Guards,
    way_to: Callable[[Any], Any | None],
) -> Record:
    """Raises ValueError where the call or its executable has parts that another process cannot have."""
    if request.place is None:
        raise ValueError("nobody else can load its executable")
    if compiled.in_tree != call.tree:
        raise ValueError("JAX takes its arguments in another order")
    place = request.place()
    if place.callbacks:
        raise _CallbacksError("callbacks, whose Python is there only after a trace")
    assert request.components is not None
    rows = {row.name: row for row in request.components.rows}
    if rows["callbacks"].value != "none":
        raise ValueError("custom_partitioning, whose Python runs while the program compiles")
    program = request.evidence
    lapack = program is not None and custom_calls.may_call_lapack(program.kinds, program.canonical)
    return Record(
        kind=call.kind,
        name=request.program,
        key=request.components.key(),
        program=rows["program"].digest,
        guards=guards,
        place=Place(place.platform, place.devices, tuple(asked.devices.shape), place.options, lapack),
        parts=seam.take_apart(compiled, way_to),
        created=time.time(),
        told=call.told,
        decisions=tuple(one.decided),
        results=results_of(one.traced, one.lowered.out_tree),
        likeness=call.likeness,
        alone=what_it_changes(one.recorder.seen),
    )
