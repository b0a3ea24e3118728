"""`rewarm.tune`: one case measured, its winner kept.

Not promised: see `rewarm.tune`. What is known of the case already is not measured again: where every candidate of the
space has been tried and a final comparison stands, the record is returned as it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

from rewarm.errors import NotFingerprintableError, SpaceError
from rewarm.jax_adapter import activation
from rewarm.jax_adapter.session import Session
from rewarm.jax_adapter.tuner import checking, inputs, kernels, loading, lookups, ranks
from rewarm.jax_adapter.tuner.arguments import arguments_of, text_of_struct
from rewarm.jax_adapter.tuner.progress import Progress
from rewarm.jax_adapter.tuner.starting import KEYWORDS, Wanted, Workers
from rewarm.jax_adapter.tuner.subjects import BAD_FOR, Plan, Subject, TracedError
from rewarm.jax_adapter.tuner.tunable import Asked, Tunable
from rewarm.jax_adapter.tuner.tuning import Tuning
from rewarm.jax_adapter.tuner.worker import Patience
from rewarm.tunables import selecting
from rewarm.tunables.deciding import MINIMUM_EFFECT
from rewarm.tunables.merging import is_decided, merged, without_winner
from rewarm.tunables.records import Case, Outcome, Record
from rewarm.tunables.searching import Proposer, Search
from rewarm.tunables.spaces import Config, Space, canonical

_NOBODY = "0" * 64
_SHOWN = 10


@dataclass(frozen=True)
class Tuned:
    """What came of tuning.

    Attributes:
      record: all that is known of the case.
      measured: whether anything was measured now.
      not_kept: why no later process will find it; "" where it is kept.
    """

    record: Record
    measured: bool = True
    not_kept: str = ""

    @property
    def winner(self) -> Config:
        """What to use: the default, where nothing beats it beyond noise."""
        return self.record.default if self.record.winner is None else self.record.winner

    @property
    def ratio(self) -> float:
        """How many times as fast as the default the winner is; 1.0 for the default itself."""
        return self.record.ratio

    def show(self) -> str:
        """A few lines for people: the winner, how sure that is, and what became of each candidate."""
        record = self.record
        lines = [f"{record.case.kernel} for {record.case.arguments}", f"  winner {_short(self.winner)}"]
        if record.comparison is not None:
            lines.append(f"  {record.comparison}")
        trials = sorted(record.trials, key=_middle)
        shown = [one for place, one in enumerate(trials) if place < _SHOWN or not one.seconds]
        for trial in shown:
            said = f"{_middle(trial) * 1e3:.4g} ms" if trial.seconds else str(trial.outcome)
            lines.append(f"  {_short(trial.config)}  {said}" + (f"  {trial.reason}" if trial.reason else ""))
        if len(shown) < len(trials):
            lines.append(f"  and {len(trials) - len(shown)} slower ones")
        lines += [f"  {flag}" for flag in record.flags]
        return "\n".join([*lines, *([f"  not kept: {self.not_kept}"] if self.not_kept else [])])


def _short(config: Config) -> str:
    """A configuration without what it leaves away."""
    return canonical({name: value for name, value in config.items() if value is not None})


def _middle(trial: Any) -> float:
    ordered = sorted(trial.seconds)
    return ordered[len(ordered) // 2] if ordered else float("inf")


class Options(NamedTuple):
    """What `rewarm.tune` and `rewarm.tune_options` take beside the function and its arguments; see there."""

    budget: float = 60.0
    trials: int | None = None
    tolerance: float | None = None
    inputs: Any = None
    confidence: float = 0.95
    effect: float = MINIMUM_EFFECT
    seed: int = 0
    strict: bool = False
    isolate: bool = True
    again: bool = False
    optimiser: str | None = None
    memory: int | None = None
    patience: float = 20.0
    remember_failures: float = BAD_FOR
    progress: bool | None = None
    deadline: float | None = None


def checked(options: Options, title: str) -> None:
    """Refuse options that no session can have, and calls under a trace, where nothing can be timed.

    Raises:
      ValueError: an option; the message has the good values.
      TracedError: it is called by a function that is being traced.
    """
    import jax
    import jax.numpy as jnp

    for name, (is_good, words) in _GOOD.items():
        value = getattr(options, name)
        if not is_good(value):
            raise ValueError(f"{title}: {name}: expected {words}, found {value!r:.80}")
    if isinstance(jnp.zeros(()), jax.core.Tracer):
        raise TracedError(
            f"{title}: it is called while a function is traced, where nothing can be timed: call it before, "
            "with arrays or jax.ShapeDtypeStruct"
        )


def _number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Real) and math.isfinite(value)


def _whole(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Integral)


_GOOD: dict[str, tuple[Callable[[Any], bool], str]] = {
    "budget": (lambda value: _number(value) and value > 0, "seconds above 0"),
    "trials": (lambda value: value is None or (_whole(value) and value > 0), "a whole number above 0, or None"),
    "tolerance": (lambda value: value is None or (_number(value) and value >= 0), "a number of 0 or more, or None"),
    "confidence": (lambda value: _number(value) and 0 < value < 1, "a number between 0 and 1"),
    "effect": (lambda value: _number(value) and value >= 0, "a number of 0 or more"),
    "seed": (_whole, "a whole number"),
    "memory": (lambda value: value is None or (_whole(value) and value > 0), "bytes above 0, or None"),
    "patience": (lambda value: _number(value) and value > 0, "seconds above 0"),
    "deadline": (lambda value: value is None or (_number(value) and value >= 0), "seconds, or None"),
    "optimiser": (lambda value: value in (None, "optuna"), "'optuna' or None"),
}


class Work(NamedTuple):
    """What one session is about, with all that it takes.

    Attributes:
      case: its case, a nameless one where nothing can be kept.
      space: what may be chosen.
      wanted: what is to run.
      choice: from a configuration to what a worker takes.
      about: what the case's digests stand for.
      unkept: why nothing can be kept; "".
    """

    case: Case
    space: Space
    wanted: Wanted
    choice: Callable[[Config], Any]
    about: Mapping[str, str]
    unkept: str


def tune(
    function: Any,
    space: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    *,
    default: Mapping[str, Any] | None = None,
    constraints: Any = None,
    name: str | None = None,
) -> Tuned:
    """See `rewarm.tune`."""
    loading.stop_reading()
    checked(options, "rewarm.tune")
    tunable = _tunable(function, space, default, constraints, name)
    asked = tunable.asked(args, kwargs)
    if asked.given:
        raise SpaceError(
            f"rewarm.tune: {next(iter(asked.given))!r} is a parameter of the space, so it is not given: "
            "leave it out, or give default="
        )
    session = activation.session()
    work = _work(tunable, asked, session, options)
    return ranks.together(
        session, work.case, work.space.default, lambda: measured(session, work, options), deadline_of(options)
    )


def deadline_of(options: Options) -> float:
    """Seconds that the other processes of a job wait for a session."""
    return options.budget if options.deadline is None else options.deadline


def _tunable(function: Any, space: Any, default: Any, constraints: Any, name: str | None) -> Tunable:
    if isinstance(function, Tunable):
        if space is None and default is None and constraints is None:
            return function
        return function.other(space=space, default=default, constraints=constraints)
    if space is None:
        raise SpaceError("rewarm.tune: a function that is not rewarm.tunable needs a space: rewarm.tune(f, space, ...)")
    return Tunable(function, space=space, default=default, constraints=constraints, name=name)


def _work(tunable: Tunable, asked: Asked, session: Session | None, options: Options) -> Work:
    device = kernels.device_of(asked.arguments.leaves)
    space = asked.space
    content, unkept = "", "rewarm is off: rewarm.enable() keeps winners" if session is None else ""
    try:
        content = tunable.content(space, anew=True)
    except NotFingerprintableError as error:
        unkept = str(error)
    place = None if session is None else kernels.place_of(session, device)
    case = (
        Case(tunable.kernel, content or _NOBODY, asked.arguments.text, _NOBODY, _NOBODY, _NOBODY)
        if place is None
        else kernels.case_of(tunable.kernel, content or _NOBODY, asked.arguments.text, place)
    )
    sets = inputs_of(asked.arguments, options.inputs, device)
    wanted = Wanted(
        function=tunable.function,
        mode=KEYWORDS,
        arguments=asked.arguments,
        inputs=sets,
        choices=space.functions,
        default=space.keywords(space.default),
        content=content,
        tolerance=options.tolerance,
        device=device,
        memory=options.memory,
    )
    return Work(case, space, wanted, space.keywords, {} if place is None else place.about, unkept)


def inputs_of(arguments: Any, given: Any, device: Any) -> list[list[Any]]:
    """Two sets of arrays at least: the caller's and the same values in another order, or two made ones.

    Raises:
      ValueError: `inputs` is not a list of argument tuples of this case.
    """
    import jax

    with jax.default_device(device):
        if given is None:
            described = [isinstance(leaf, jax.ShapeDtypeStruct) for leaf in arguments.leaves]
            first = inputs.concrete(arguments.leaves, arguments.structs, seed=1)
            other = inputs.concrete(arguments.leaves, arguments.structs, seed=1001) if all(described) else None
            return [first, other or inputs.shuffled(first, seed=7)]
        sets = []
        for number, one in enumerate(given):
            if not isinstance(one, tuple | list):
                raise ValueError(
                    f"rewarm.tune: inputs[{number}]: expected a tuple of arguments, found {type(one).__name__}"
                )
            found = arguments_of(tuple(one), {}, told=False)
            if [str(struct) for struct in found.structs] != [str(struct) for struct in arguments.structs]:
                raise ValueError(f"rewarm.tune: inputs[{number}]: expected {_list(arguments)}, found {_list(found)}")
            sets.append(found.leaves)
        if not sets:
            raise ValueError("rewarm.tune: inputs: expected one tuple of arguments at least, found none")
        return sets if len(sets) > 1 else [*sets, *(inputs.shuffled(one, seed=7) for one in sets)]


def _list(arguments: Any) -> str:
    return ", ".join(map(text_of_struct, arguments.structs)) or "no arrays"


def measured(session: Session | None, work: Work, options: Options) -> Tuned:
    """The record of a case, with as much measured as is not known yet.

    Raises:
      DefaultFailedError, NoisyError, KeyboardInterrupt: see `Tuning.run`.
    """
    since = time.monotonic()
    usable = session if not work.unkept else None
    previous = None if usable is None else lookups.record_of(usable, work.case)
    if previous is not None and not options.again and _is_known(previous, work.space, options):
        return Tuned(previous, measured=False)
    instead = previous is not None and _is_of_no_use(previous, work.space, options)
    unkept = work.unkept or "nothing was measured"

    def keep(record: Record) -> None:
        nonlocal unkept
        if usable is not None:
            kept = lookups.keep(usable, record, time.monotonic() - since, instead=instead)
            unkept = "" if kept else "the directory cannot be written to"

    subject = Subject(
        case=work.case,
        space=work.space,
        choice=work.choice,
        inputs=_words_of_inputs(work, options),
        tolerance=_tolerances(work, options),
        about=work.about,
    )
    workers = Workers(
        work.wanted,
        session,
        Patience(run=options.patience, compile=max(300.0, options.patience)),
        isolate=options.isolate,
    )
    progress = Progress(work.case.kernel, options.budget, options.progress)
    known = None if options.again else previous
    record = Tuning(subject, _plan(usable, work, options), workers, known, progress).run(keep)
    if previous is not None:
        record = merged([record, without_winner(previous, record) if instead else previous])
    return Tuned(record, not_kept=unkept)


def _is_known(record: Record, space: Space, options: Options) -> bool:
    """Whether a session has ended for this very space, or there is nothing in the space that was not tried.

    One that its budget has ended goes on where a larger one is given.
    """
    now = time.time()
    if not is_decided(record) or _is_of_no_use(record, space, options):
        return False
    if record.environment.get("space") == space.digest:
        return True
    tried = {canonical(one.config) for one in record.trials if one.outcome in (Outcome.TIMED,) or one.is_bad(now)} | {
        canonical(space.default)
    }
    if Search(space).is_whole:
        return all(canonical(config) in tried for config in space.all())
    return "space" not in record.environment  # of a lock file, which does not say


def _is_of_no_use(record: Record, space: Space, options: Options) -> bool:
    """Whether what was decided decides nothing any more: the space or its default is another one, or it ended early."""
    if record.winner is None or not space.allows(record.winner):
        return True
    if canonical(record.default) != canonical(space.default):
        return True
    return record.environment.get("space") == space.digest and _is_larger(options, record)


def _is_larger(options: Options, record: Record) -> bool:
    """Whether a session has more of what an earlier one had too little of."""
    name = {"seconds": "budget", "trials": "trials"}.get(str(record.environment.get("ended by")), "")
    had = record.environment.get(name)
    if not isinstance(had, int | float):
        return False
    now = getattr(options, name)
    return now is None or now > had


def _plan(session: Session | None, work: Work, options: Options) -> Plan:
    seeds: list[Config] = []
    if session is not None:
        others = session.records().of_kernel(work.case.kernel)
        near = selecting.all_near(work.case, others, work.space)
        seeds = [one.winner for one in (*near, *selecting.sisters(work.case, others)) if one.winner is not None]
    proposer: Proposer | None = None
    if options.optimiser is not None:
        from rewarm.tunables.optimising import Optuna

        proposer = Optuna(work.space, options.seed)
    return Plan(
        budget=options.budget,
        trials=options.trials,
        seed=options.seed,
        confidence=options.confidence,
        effect=options.effect,
        strict=options.strict,
        seeds=[one for one in seeds if work.space.allows(one)],
        proposer=proposer,
        limit_bad=options.remember_failures,
    )


def _words_of_inputs(work: Work, options: Options) -> str:
    import jax

    if options.inputs is not None:
        return f"{len(work.wanted.inputs)} sets of the caller's"
    described = any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in work.wanted.arguments.leaves)
    return "made from shapes: floats normal, integers 1 to 127" if described else "the caller's, and shuffled"


def _tolerances(work: Work, options: Options) -> dict[str, Any]:
    if options.tolerance is not None:
        return {"all": options.tolerance}
    types = sorted({str(struct.dtype) for struct in work.wanted.arguments.structs})
    return {name: checking.tolerance_of(name) for name in types}
