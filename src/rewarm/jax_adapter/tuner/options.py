"""Options of XLA for one program: `rewarm.tune_options`, and what later starts make of its winner.

Not promised: that an option which helped on one day helps on another. The case is the program itself: `content` is the
digest of its canonical form, `libraries` of all else in its key (options as the program asks for them, files, salt,
callbacks), so whatever changes any of that leaves the winner behind. Programs look for a winner in the directory alone,
not in remotes, and not in jobs of several processes, whose ranks might differ. What is changed is one call's options,
on their way from JAX to the compiler; the key of the entry has them in its row `options` like any others.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rewarm.errors import NotCacheableError, SpaceError
from rewarm.identity import KeyComponents
from rewarm.jax_adapter import activation, seam
from rewarm.jax_adapter.keys import captured
from rewarm.jax_adapter.session import Session
from rewarm.jax_adapter.tuner import kernels, loading, option_spaces, ranks
from rewarm.jax_adapter.tuner.arguments import Arguments, arguments_of
from rewarm.jax_adapter.tuner.starting import OPTIONS, Wanted
from rewarm.tunables.merging import is_decided
from rewarm.tunables.records import Case
from rewarm.tunables.spaces import Config, Space

if TYPE_CHECKING:
    from rewarm.jax_adapter.tuner.api import Options, Tuned, Work

logger = logging.getLogger("rewarm")

# What the kernels of such records are called: no function can have the name.
PREFIX = "options of "
_OWN_ROWS = ("program", "target", "toolchain")
_UNKNOWN = "an option of the compiler"


def tune_options(
    jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options, *, space: Any, numerics: bool
) -> Tuned:
    """See `rewarm.tune_options`."""
    from rewarm.jax_adapter.tuner.api import checked, deadline_of, measured

    loading.stop_reading()
    checked(options, "rewarm.tune_options")
    if not (callable(jitted) and hasattr(jitted, "lower") and hasattr(jitted, "__wrapped__")):
        raise TypeError(
            f"rewarm.tune_options: expected a jitted function, such as jax.jit(f), found {type(jitted).__name__}"
        )
    arguments = arguments_of(args, kwargs, told=False)
    device = kernels.device_of(arguments.leaves)
    given = option_spaces.space_of(device.platform, numerics=numerics) if space is None else _with_none(space)
    if not given:
        raise SpaceError(f"rewarm.tune_options: no options are known for {device.platform}: give space=")
    made = Space.of(given, dict.fromkeys(given))
    if options.tolerance is None and not numerics:
        options = options._replace(tolerance=0.0)
    session = activation.session()
    work = _work(jitted, arguments, made, session, options, device)
    return ranks.together(
        session, work.case, made.default, lambda: measured(session, work, options), deadline_of(options)
    )


def _with_none(space: Any) -> dict[str, Any]:
    """The user's space, in which each option may also be left away, which is its default."""
    if not isinstance(space, Mapping):
        raise SpaceError(f"rewarm.tune_options: a space maps options to values, found {type(space).__name__}")
    for name, values in space.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise SpaceError(
                f"rewarm.tune_options: {name}: expected a list of values, such as [128, 256], found {values!r:.80}"
            )
    return {name: [None, *(value for value in values if value is not None)] for name, values in space.items()}


def _work(
    jitted: Any, arguments: Arguments, space: Space, session: Session | None, options: Options, device: Any
) -> Work:
    from rewarm.jax_adapter.tuner.api import Work, inputs_of

    args, kwargs = arguments.abstract()
    request = captured(jitted.lower(*args, **kwargs)).request
    if request is None or request.components is None:
        why = "it is left to JAX's own code" if request is None else request.unkeyable
        raise NotCacheableError(f"rewarm.tune_options: this program has no identity: {why}")
    about: Mapping[str, str] = {}
    if session is not None:
        about = kernels.place_of(session, device).about
    wanted = Wanted(
        function=jitted,
        mode=OPTIONS,
        arguments=arguments,
        inputs=inputs_of(arguments, options.inputs, device),
        choices={},
        default={},
        content="",
        tolerance=options.tolerance,
        device=device,
        memory=options.memory,
    )
    unkept = "rewarm is off: rewarm.enable() keeps winners" if session is None else ""
    return Work(case_of(request.program, request.components), space, wanted, overrides, about, unkept)


def case_of(program: str, components: KeyComponents) -> Case:
    """The case of a program as it asks to be compiled."""
    rows = {row.name: row.digest for row in components.rows}
    rest = sorted((name, digest) for name, digest in rows.items() if name not in _OWN_ROWS)
    return Case(
        kernel=f"{PREFIX}{program}",
        content=rows["program"],
        arguments=f"program {rows['program'][:12]}",
        target=rows["target"],
        toolchain=rows["toolchain"],
        libraries=hashlib.sha256(json.dumps(rest).encode()).hexdigest(),
    )


def overrides(config: Config) -> dict[str, Any]:
    """The options that a configuration has, without those that it leaves away."""
    return {name: value for name, value in config.items() if value is not None}


def winner_for(session: Session, program: str, components: KeyComponents) -> dict[str, Any]:
    """The options that won for a program; nothing where none did, and in jobs of several processes. Never raises."""
    try:
        if seam.process_count() > 1:
            return {}
        record = session.records_here().find(case_of(program, components))
        return overrides(record.winner) if record is not None and is_decided(record) and record.winner else {}
    except Exception:
        logger.debug("rewarm: no options for %s", program, exc_info=True)
        return {}


def apply(call: seam.Call, found: Mapping[str, Any]) -> None:
    """Have a call take these options, where the program has not said them itself."""
    said = seam.overrides_of(call)
    seam.set_overrides(call, {**found, **said})
