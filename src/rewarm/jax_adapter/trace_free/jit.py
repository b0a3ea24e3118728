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
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from rewarm.errors import TraceMismatchError
from rewarm.guards import Rules, check
from rewarm.jax_adapter import activation, seam
from rewarm.jax_adapter.jax_values import companions, reducers
from rewarm.jax_adapter.session import Session
from rewarm.jax_adapter.trace_free import refusals, tracing
from rewarm.jax_adapter.trace_free.asked import Asked, NotAskedError, asked, name_of
from rewarm.jax_adapter.trace_free.libraries import ADAPTERS, reducers_of_libraries
from rewarm.jax_adapter.trace_free.proving import DIFFERENT, EQUAL, Proof, prover
from rewarm.jax_adapter.trace_free.records import Record, Records, State
from rewarm.jax_adapter.trace_free.serving import Found, NotServedError, Served, found, serve
from rewarm.jax_adapter.trace_free.tracing import OURS, Came, RaisedError
from rewarm.jax_adapter.tuner.decisions import changed

logger = logging.getLogger("rewarm")

# Each start without a trace is proved until so many proofs have come out, and then every fourth, and one whose last
# proof is a week old.
_EACH_UNTIL = 16
_EVERY = 4
# How many starts in a row may go by without a proof: so many for each proof there was, within bounds.
_UNPROVED_EACH, _UNPROVED = 4, 32
_OLD = 7 * 24 * 3600.0

_SHOWN = 3

# Records that were made in this process (or in one that it is forked from), which cannot prove them: what a process has
# that guards do not see is the same in its second trace.
_made_here: set[str] = set()
# Records by which this process has skipped a trace, each with the functions that it serves: one proof is for all of
# them, and their start counts once.
_serves: dict[str, weakref.WeakSet[_Function]] = {}

RAISE, WARN = "raise", "warn"
BESIDE, AT_THE_START = "beside", "at the start"


def jit(
    fun: Any,
    *,
    depends_on: Iterable[Any] | Any = (),
    on_mismatch: str = RAISE,
    proof: str = BESIDE,
    options: Mapping[str, Any],
) -> Any:
    """See `rewarm.jit`.

    Raises:
      ValueError: `on_mismatch` or `proof` is none of its values.
      Exception: what `jax.jit` raises.
    """
    for name, value, good in (("on_mismatch", on_mismatch, (RAISE, WARN)), ("proof", proof, (BESIDE, AT_THE_START))):
        if value not in good:
            raise ValueError(f"rewarm.jit: {name}: expected {good[0]!r} or {good[1]!r}, found {value!r}")
    jitted = seam.jit(fun, **options)
    why_not = _obstacle()
    if why_not is not None:
        activation.tell(f"rewarm.jit is jax.jit with JAX {seam.version()}: {why_not}")
        return jitted
    declared = tuple(depends_on) if isinstance(depends_on, (tuple, list)) else (depends_on,)
    return _Function(fun, jitted, _Said(declared, on_mismatch, proof, options)).made


@functools.cache
def _obstacle() -> str | None:
    return seam.probe_jitted()


class _Way(NamedTuple):
    """How a call was answered, for `rewarm explain --trace`.

    Attributes:
      outcome: "skipped", "proved", "recorded" or "traced".
      why: what stood in the way of more.
      lasting: whether that will stand in the way of the next start, too.
      stands: for what (`refusals.surroundings`); "" if the next start is to look again.
      since: when that was found, in seconds since the epoch.
    """

    outcome: str
    why: tuple[str, ...] = ()
    lasting: bool = False
    stands: str = ""
    since: float = 0.0


class _Said(NamedTuple):
    """What the user said of a function."""

    depends_on: tuple[Any, ...]
    on_mismatch: str
    proof: str
    options: Mapping[str, Any]


class _Call(NamedTuple):
    """One call, with what is known of its kind."""

    session: Session
    records: Records
    asked: Asked
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    rules: Rules


class _Function:
    """One function that was jitted here. Safe for any number of threads: no lock is held while the user's code runs, so
    threads that call for the first time at once may all trace, as with `jax.jit`."""

    def __init__(self, fun: Any, jitted: Any, said: _Said) -> None:
        self._fun = fun
        self._jitted = jitted
        self._said = said
        self._parts = seam.parts_of(jitted)
        # Calls that were traced in this process: JAX knows them, and what it knows is not asked for again. Of one kind
        # there are many where static arguments or nodes of trees differ, which a kind has by type.
        self._traced: set[tuple[str, int]] = set()
        # Kinds of calls of which a proof has failed.
        self._distrusted: set[str] = set()
        # What was loaded, by record. Whether it may be served is asked each time: JAX comes here again after its own
        # caches were cleared, and would trace then.
        self._served: dict[str, Served] = {}
        self._mismatch: str | None = None
        self.made = seam.with_miss(jitted, self._miss)

    def __deepcopy__(self, _: Any) -> _Function:
        return self  # a copy of what `jax.jit` returned is as good as that

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
        try:
            answer = self._answer(session, args, kwargs)
        except RaisedError as raised:
            # Not traced once more only to raise the same. Our own frames are of no use to anybody.
            raise raised.error.with_traceback(_beyond_ours(raised.error.__traceback__)) from raised.error.__cause__
        results = self._parts.miss(*args, **kwargs) if answer is None else answer
        self._tell_of_mismatch()  # JAX comes here no more: a proof that failed meanwhile would never be told of
        return results

    def _tell_of_mismatch(self) -> None:
        said, self._mismatch = self._mismatch, None
        if said is None:
            return
        if self._said.on_mismatch == RAISE:
            raise TraceMismatchError(said)
        warnings.warn(said, stacklevel=3)

    def _answer(self, session: Session, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any, bool] | None:
        """The results of a call without a trace; `None` where JAX is to answer, which finds what was traced here."""
        try:
            root = session.folder_of_traces()
            call = asked(self._fun, self._parts, self._jitted, args, kwargs)
            rules = self._rules(call)
        except NotAskedError as error:
            if str(error):
                self._say(self._name, _Way("traced", (str(error),), lasting=True))
            return None
        except Exception:
            logger.debug("rewarm: %s is traced", self._name, exc_info=True)
            return None
        if root is None or call.kind in self._distrusted or call.known_as in self._traced:
            return None
        served = self._find(_Call(session, Records(root), call, args, kwargs, rules))
        return None if served is None else self._run(served, call)

    def _run(self, served: Served, call: Asked) -> tuple[Any, Any, bool]:
        import jax

        results = seam.run_flat(served.mesh, call.flat)
        fast = seam.fast_path(served.mesh, served.out_tree, call.flat, results)
        return jax.tree_util.tree_unflatten(served.out_tree, results), fast, False

    # -- with a record, or without -----------------------------------------------------------------------------

    def _find(self, call: _Call) -> Served | None:
        """The executable of a record that may be believed; else the call is traced, and `None`.

        Raises:
          RaisedError: the user's function raises.
        """
        try:
            one, why = self._held(call)
            state = State() if one is None else call.records.state(one.record)
        except Exception as error:  # noqa: BLE001 - the program runs whatever happens here
            one, why, state = None, (f"its records cannot be read: {error}",), State()
        # Where no proof comes out (the program ends before, or its guards do not hold in another thread) it is traced
        # now and then.
        if one is not None and state.may_skip and state.starts <= _unproved(state.proved):
            if one.record.id in self._served:
                return self._served[one.record.id]
            try:
                served = serve(call.session, one, (self._fun, *call.rules.depends_on))
            except NotServedError as error:
                why = (str(error),)
                one = None if error.of_no_use else one
            else:
                call.session.count_trace("skipped")
                self._served[one.record.id] = served
                try:
                    self._have_proved(call, one.record, state)
                except Exception:
                    logger.debug("rewarm: no proof of %s", self._name, exc_info=True)
                return served
        self._trace(call, one and one.record, state, why)
        self._traced.add(call.asked.known_as)
        return None

    def _held(self, call: _Call) -> tuple[Found | None, tuple[str, ...]]:
        """The newest record whose guards hold, or what changed since the newest."""
        newest: tuple[str, ...] | None = None
        for record in call.records.of(call.asked.kind, call.asked.likeness):
            changes = check(self._fun, record.guards, call.rules)
            if changes:
                newest = newest or tuple(f"{one.what}: {one.was} -> {one.now}" for one in changes)
                continue
            if otherwise := changed(call.session, record.decisions):
                newest = newest or (otherwise,)
                continue
            try:
                return found(call.session, record), ()
            except NotServedError as error:
                newest = (str(error),)
        return None, ("such a call was not recorded before",) if newest is None else newest

    def _trace(self, call: _Call, record: Record | None, state: State, why: tuple[str, ...]) -> None:
        """Trace the call, and keep what that tells. JAX has it in memory then.

        Raises:
          RaisedError: the user's function raises.
        """
        try:
            way = self._recorded(call, why) if record is None else self._compared(call, record, state, why)
        except RaisedError:
            raise
        except Exception:  # the compiler's own, which JAX raises again, in its own words
            logger.debug("rewarm: %s cannot be traced", self._name, exc_info=True)
            return
        call.session.count_trace(way.outcome)
        asked = call.asked
        call.records.tell(
            asked.kind, {**way._asdict(), "function": asked.name, "time": time.time(), "told": dict(asked.told)}
        )
        self._say(asked.name, way)
        if call.session.settings.explain and way.why and not way.lasting:
            logger.warning("rewarm: %s was traced: %s", asked.name, "; ".join(way.why[:_SHOWN]))

    def _compared(self, call: _Call, record: Record, state: State, why: tuple[str, ...]) -> _Way:
        """Traced with guards that hold: a proof, in the foreground."""
        if state.struck:
            return _Way("traced", (f"an earlier proof failed: {state.struck}",), lasting=True)
        came = tracing.traced_again(self._jitted, call.args, call.kwargs)
        if came is None:
            return _Way("traced", ("its program has no key now",))
        if came == (record.key, record.results):
            if record.id in _made_here:
                return _Way("traced", ("it was recorded in this process, and another one has to prove it",))
            call.records.note(record, State(state.proved + 1, time.time()))
            return _Way("proved", why)
        struck = _difference(record, came)
        call.records.strike(record, struck)
        return _Way("traced", (struck,), lasting=True)

    def _recorded(self, call: _Call, why: tuple[str, ...]) -> _Way:
        # Of what is there before the trace, as the next start will see it.
        now = refusals.surroundings(self._fun, call.asked.likeness)
        before = refusals.standing(call.records.last(call.asked.kind), now)
        if before is not None:  # JAX traces by itself
            return _Way("traced", before.why, lasting=True, stands=now, since=before.since)
        traced = tracing.trace(self._fun, self._jitted, call.asked, call.args, call.kwargs, call.rules)
        if traced.record is None:
            return _Way(
                "traced", (traced.obstacle,), lasting=True, stands=now if traced.stands else "", since=time.time()
            )
        call.records.put(traced.record)
        _made_here.add(traced.record.id)
        return _Way("recorded", why)

    def _rules(self, call: Asked) -> Rules:
        known = {**reducers(), **reducers_of_libraries()}
        return Rules(known, companions, ADAPTERS, (*call.objects, *self._said.depends_on))

    # -- proofs ------------------------------------------------------------------------------------------------

    def _have_proved(self, call: _Call, record: Record, state: State) -> None:
        if record.id not in _serves:
            # Before anything can end the program: a start whose proof never comes out counts.
            call.records.note(record, state._replace(starts=state.starts + 1))
        _serves.setdefault(record.id, weakref.WeakSet()).add(self)
        if record.alone or self._said.proof == AT_THE_START or not _is_due(state):
            return
        session, records, rules = call.session, call.records, call.rules
        abstract_args, abstract_kwargs = self._abstract(call.args, call.kwargs)
        contexts, variables = seam.carried(), contextvars.copy_context()
        again = seam.jit(_fresh(self._fun), **self._said.options)
        differs = ""

        def holds() -> bool:
            with seam.carrying(contexts):
                return not variables.run(check, self._fun, record.guards, rules) and not changed(
                    session, record.decisions
                )

        def is_alike() -> bool | None:
            nonlocal differs
            with seam.carrying(contexts):
                came = variables.run(tracing.traced_beside, again, abstract_args, abstract_kwargs)
            if came is None:
                return None
            differs = "" if came == (record.key, record.results) else _difference(record, came)
            return not differs

        def done(verdict: str) -> None:
            if verdict == EQUAL:
                now = records.state(record)
                records.note(record, State(now.proved + 1, time.time()))
            elif verdict == DIFFERENT:
                records.strike(record, differs)
                for one in list(_serves[record.id]):
                    one._struck(record, differs)
            session.count_trace(f"proof {verdict}")

        prover.prove(Proof(record.name, record.id, session.requests, holds, is_alike, done))

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

    def _struck(self, record: Record, differs: str) -> None:
        """The program that runs is not the one that a trace gives: it goes, and the next call says so."""
        told = (
            f"rewarm.jit: {self._name} was started without a trace, and a trace beside it has now come to something "
            f"else ({differs}): results since the start may be wrong. Something that the function reads while it is "
            f"traced has changed and was not seen, or goes by the order of a set (PYTHONHASHSEED). The function is "
            f"traced from now on; declare what it reads (depends_on=), or use jax.jit. "
            f"`rewarm explain --trace {self._name}` lists what is guarded"
        )
        self._mismatch = told
        self._distrusted.add(record.kind)
        self._served.clear()
        self.made._clear_cache()
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


def _difference(record: Record, came: Came) -> str:
    if came.key != record.key:
        return f"another program, of key {came.key[:12]} in the place of {record.key[:12]}, though all guards hold"
    return "the same program, and other types or another tree of the results, though all guards hold"


def _beyond_ours(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package at its beginning."""
    at = traceback
    while at is not None and at.tb_frame.f_code.co_filename.startswith(OURS):
        at = at.tb_next
    return at or traceback


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
