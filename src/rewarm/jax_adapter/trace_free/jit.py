"""The function around all of it: what `rewarm.jit` returns, and what it does for a kind of call that is new to it.

Not promised: anything but what `jax.jit` promises. What it returns is JAX's own C++ object, with JAX's own keys and
fast path; only where that would trace (`cache_miss`) it comes here first. Inside of a transformation or another trace,
with rewarm off, in programs of several processes, and wherever anything stands in the way, JAX's own `cache_miss`
answers.

How far a record is believed:

    traced and recorded ─► traced again by a later process, with equal guards, to the same key: proved
    proved ─► the trace is skipped; each such start, later a share of them, is proved again in the background
    a proof that comes to another key ─► struck: the record is never believed again; the running program is told
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import logging
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rewarm.errors import TraceMismatchError
from rewarm.guards import Rules, check
from rewarm.jax_adapter import activation, seam
from rewarm.jax_adapter.jax_values import companions, reducers
from rewarm.jax_adapter.keys import key_of_lowered
from rewarm.jax_adapter.session import Session
from rewarm.jax_adapter.trace_free import tracing
from rewarm.jax_adapter.trace_free.asked import Asked, NotAskedError, asked, name_of
from rewarm.jax_adapter.trace_free.libraries import ADAPTERS
from rewarm.jax_adapter.trace_free.proving import DIFFERENT, EQUAL, Proof, prover
from rewarm.jax_adapter.trace_free.records import Record, Records, State
from rewarm.jax_adapter.trace_free.serving import Found, NotServedError, Served, found, serve

logger = logging.getLogger("rewarm")

# Each start without a trace is proved until so many proofs have come out, and then every fourth, and one whose last
# proof is a week old.
_EACH_UNTIL = 16
_EVERY = 4
# How many starts in a row may go by without a proof: so many for each proof there was, within bounds.
_UNPROVED_EACH, _UNPROVED = 4, 32
_OLD = 7 * 24 * 3600.0

_SHOWN = 3

RAISE, WARN = "raise", "warn"


def jit(fun: Any, *, depends_on: Iterable[Any] | Any = (), on_mismatch: str = RAISE, options: Mapping[str, Any]) -> Any:
    """See `rewarm.jit`.

    Raises:
      ValueError: `on_mismatch` is none of its values.
      Exception: what `jax.jit` raises.
    """
    if on_mismatch not in (RAISE, WARN):
        raise ValueError(f"rewarm.jit: on_mismatch: expected {RAISE!r} or {WARN!r}, found {on_mismatch!r}")
    jitted = seam.jit(fun, **options)
    why_not = _obstacle()
    if why_not is not None:
        activation.tell(f"rewarm.jit is jax.jit with JAX {seam.version()}: {why_not}")
        return jitted
    declared = tuple(depends_on) if isinstance(depends_on, (tuple, list)) else (depends_on,)
    return _Function(fun, jitted, declared, on_mismatch, options).made


@functools.cache
def _obstacle() -> str | None:
    return seam.probe_jitted()


class _Way(NamedTuple):
    """How a call was answered, for `rewarm explain --trace`.

    Attributes:
      outcome: "skipped", "proved", "recorded" or "traced".
      why: what stood in the way of more.
      lasting: whether that will stand in the way of the next start, too.
    """

    outcome: str
    why: tuple[str, ...] = ()
    lasting: bool = False


class _Function:
    """One function that was jitted here."""

    def __init__(
        self, fun: Any, jitted: Any, depends_on: tuple[Any, ...], on_mismatch: str, options: Mapping[str, Any]
    ) -> None:
        self._fun = fun
        self._jitted = jitted
        self._depends_on = depends_on
        self._on_mismatch = on_mismatch
        self._options = options
        self._parts = seam.parts_of(jitted)
        self._lock = threading.RLock()
        # Kinds of calls that were traced in this process: JAX knows them, and what it knows is not asked for again.
        self._traced: set[str] = set()
        # What was loaded, by record. Whether it may be served is asked each time: JAX comes here again after its own
        # caches were cleared, and would trace then.
        self._served: dict[str, Served] = {}
        self._mismatch: str | None = None
        self.made = seam.with_miss(jitted, self._miss)

    # -- what JAX calls ----------------------------------------------------------------------------------------

    def _miss(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        """What stands in the place of JAX's `cache_miss`."""
        self._tell_of_mismatch()
        session = activation.session() or _session_of_a_first_call()
        if session is None:
            return self._parts.miss(*args, **kwargs)
        if seam.job_client() is not None:
            # All ranks would have to decide alike, and a rank that traces keeps the others waiting.
            self._say(self._name, _Way("traced", ("programs of several processes are",), lasting=True))
            return self._parts.miss(*args, **kwargs)
        answer = self._answer(session, args, kwargs)
        results = self._parts.miss(*args, **kwargs) if answer is None else answer
        self._tell_of_mismatch()  # JAX comes here no more: a proof that failed meanwhile would never be told of
        return results

    def _tell_of_mismatch(self) -> None:
        said, self._mismatch = self._mismatch, None
        if said is None:
            return
        if self._on_mismatch == RAISE:
            raise TraceMismatchError(said)
        warnings.warn(said, stacklevel=3)

    def _answer(self, session: Session, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any, bool] | None:
        """The results of a call without a trace; `None` where JAX is to answer, which finds what was traced here."""
        try:
            root = session.folder_of_traces()
            call = asked(self._fun, self._parts, self._jitted, args, kwargs)
        except NotAskedError as error:
            if str(error):
                self._say(self._name, _Way("traced", (str(error),), lasting=True))
            return None
        except Exception:
            logger.debug("rewarm: %s is traced", self._name, exc_info=True)
            return None
        if root is None:
            return None
        with self._lock:
            if call.kind in self._traced:
                return None
            records = Records(root)
            served = self._find(session, records, call, args, kwargs)
        return None if served is None else self._run(served, call)

    def _run(self, served: Served, call: Asked) -> tuple[Any, Any, bool]:
        import jax

        results = seam.run_flat(served.mesh, call.flat)
        fast = seam.fast_path(served.mesh, served.out_tree, call.flat, results)
        return jax.tree_util.tree_unflatten(served.out_tree, results), fast, False

    # -- with a record, or without -----------------------------------------------------------------------------

    def _find(
        self, session: Session, records: Records, call: Asked, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Served | None:
        """The executable of a record that may be believed; else the call is traced, and `None`."""
        try:
            rules = self._rules(call)
            one, why = self._held(session, records, call, rules)
        except Exception as error:  # noqa: BLE001 - the program runs whatever happens here
            one, why, rules = None, (f"its records cannot be read: {error}",), None
        state = State() if one is None else records.state(one.record)
        # Where no proof comes out (the program ends before, or its guards do not hold in another thread) it is traced
        # now and then.
        if one is not None and state.may_skip and state.starts <= _unproved(state.proved):
            if one.record.id in self._served:
                return self._served[one.record.id]
            try:
                assert rules is not None  # without them no record is held
                served = serve(session, one, (self._fun, *rules.depends_on))
            except NotServedError as error:
                why = (str(error),)
            else:
                session.count_trace("skipped")
                self._served[one.record.id] = served
                try:
                    self._have_proved(session, records, rules, one.record, state, args, kwargs)
                except Exception:
                    logger.debug("rewarm: no proof of %s", self._name, exc_info=True)
                return served
        self._trace(session, records, call, args, kwargs, one and one.record, state, rules, why)
        self._traced.add(call.kind)
        return None

    def _held(
        self, session: Session, records: Records, call: Asked, rules: Rules
    ) -> tuple[Found | None, tuple[str, ...]]:
        """The newest record whose guards hold, or what changed since the newest."""
        newest: tuple[str, ...] | None = None
        for record in records.of(call.kind):
            changes = check(self._fun, record.guards, rules)
            if changes:
                newest = newest or tuple(f"{one.what}: {one.was} -> {one.now}" for one in changes)
                continue
            try:
                return found(session, record), ()
            except NotServedError as error:
                newest = (str(error),)
        return None, ("such a call was not recorded before",) if newest is None else newest

    def _trace(
        self,
        session: Session,
        records: Records,
        call: Asked,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        record: Record | None,
        state: State,
        rules: Rules | None,
        why: tuple[str, ...],
    ) -> None:
        """Trace the call, and keep what that tells. JAX has it in memory then."""
        try:
            if record is not None:
                way = self._compared(records, record, state, args, kwargs, why)
            elif rules is not None:
                way = self._recorded(records, call, args, kwargs, rules, why)
            else:
                way = _Way("traced", why)
        except Exception:  # the user's own, which JAX raises again, in its own words
            logger.debug("rewarm: %s cannot be traced", self._name, exc_info=True)
            return
        session.count_trace(way.outcome)
        records.tell(call.kind, {**way._asdict(), "function": call.name, "time": time.time(), "told": dict(call.told)})
        self._say(call.name, way)
        if session.settings.explain and way.why and not way.lasting:
            logger.warning("rewarm: %s was traced: %s", call.name, "; ".join(way.why[:_SHOWN]))

    def _compared(
        self,
        records: Records,
        record: Record,
        state: State,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        why: tuple[str, ...],
    ) -> _Way:
        """Traced with guards that hold: a proof, in the foreground."""
        if state.struck:
            return _Way("traced", (f"an earlier proof failed: {state.struck}",), lasting=True)
        key = tracing.only_key(self._jitted, args, kwargs)
        if key == record.key:
            records.note(record, State(state.proved + 1, time.time(), 0, ""))
            return _Way("proved", why)
        if key is None:
            return _Way("traced", ("its program has no key now",))
        struck = f"the same guards, and another program (key {key[:12]} in the place of {record.key[:12]})"
        records.note(record, state._replace(struck=struck))
        return _Way("traced", (struck,), lasting=True)

    def _recorded(
        self,
        records: Records,
        call: Asked,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        rules: Rules,
        why: tuple[str, ...],
    ) -> _Way:
        traced = tracing.trace(self._fun, self._jitted, call, args, kwargs, rules)
        if traced.record is None:
            return _Way("traced", (traced.obstacle,), lasting=True)
        records.put(traced.record)
        return _Way("recorded", why)

    def _rules(self, call: Asked) -> Rules:
        return Rules(reducers(), companions, ADAPTERS, (*call.objects, *self._depends_on))

    # -- proofs ------------------------------------------------------------------------------------------------

    def _have_proved(
        self,
        session: Session,
        records: Records,
        rules: Rules,
        record: Record,
        state: State,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        # Before anything can end the program: a start whose proof never comes out counts.
        records.note(record, state._replace(starts=state.starts + 1))
        if not _is_due(state):
            return
        abstract_args, abstract_kwargs = self._abstract(args, kwargs)
        contexts, variables = seam.carried(), contextvars.copy_context()
        again = seam.jit(_fresh(self._fun), **self._options)

        def holds() -> bool:
            with seam.carrying(contexts):
                return not variables.run(check, self._fun, record.guards, rules)

        def trace() -> str | None:
            with seam.carrying(contexts):
                return key_of_lowered(variables.run(again.lower, *abstract_args, **abstract_kwargs))

        def done(verdict: str) -> None:
            if verdict == EQUAL:
                records.note(record, State(state.proved + 1, time.time(), 0, ""))
            elif verdict == DIFFERENT:
                self._struck(records, record, state)
            session.count_trace(f"proof {verdict}")

        prover.prove(Proof(record.name, record.key, session.requests, holds, trace, done))

    def _abstract(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments without their data, which the program may give away, change or want back."""
        import jax

        numbers = self._parts.static_among(len(args))

        def abstract(value: Any) -> Any:
            return jax.tree_util.tree_map(seam.abstract, value)

        return (
            tuple(value if number in numbers else abstract(value) for number, value in enumerate(args)),
            {name: value if name in self._parts.static_argnames else abstract(value) for name, value in kwargs.items()},
        )

    def _struck(self, records: Records, record: Record, state: State) -> None:
        """The program that runs is not the one that a trace gives: it goes, and the next call says so."""
        struck = "a trace beside the program came to another program though nothing guarded had changed"
        told = (
            f"rewarm.jit: {self._name} was started without a trace, and a trace beside it has now come to another "
            f"program: results since the start may be wrong. Something that the function reads while it is traced has "
            f"changed and was not seen. The function is traced from now on; declare what it reads (depends_on=), or "
            f"use jax.jit. `rewarm explain --trace {self._name}` lists what is guarded"
        )
        with self._lock:
            self._mismatch = told
            self._served.clear()
            self._traced.add(record.kind)
        self.made._clear_cache()
        records.note(record, state._replace(struck=struck))
        logger.error("%s", told)

    # -- telling -----------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return name_of(self._fun)

    def _say(self, name: str, way: _Way) -> None:
        """One line for each function, and no more, where it is never going to start without a trace."""
        shown = "; ".join(way.why[:_SHOWN])
        if way.lasting:
            activation.tell(f"{name} is traced at each start: {shown or 'its trace cannot be recorded'}")
        elif shown:
            logger.debug("rewarm: %s was %s: %s", name, way.outcome, shown)


def _session_of_a_first_call() -> Session | None:
    """Where JAX has made no client yet: it makes one now, as the call needs it, and turns rewarm on."""
    if seam.backends_are_up() or not seam.nothing_is_traced():
        return None
    import jax

    with contextlib.suppress(Exception):  # the call says what is wrong
        jax.devices()
    return activation.session()


def _unproved(proved: int) -> int:
    return min(_UNPROVED_EACH * max(proved, 1), _UNPROVED)


def _is_due(state: State) -> bool:
    """Whether this start is to be proved."""
    return state.proved < _EACH_UNTIL or state.starts + 1 >= _EVERY or time.time() - state.last > _OLD


def _fresh(fun: Any) -> Any:
    """The function under another identity: JAX keeps what it traced by the function."""

    def again(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)

    functools.update_wrapper(again, fun)
    with contextlib.suppress(TypeError, ValueError):
        again.__signature__ = inspect.signature(fun)  # type: ignore[attr-defined]
    return again
