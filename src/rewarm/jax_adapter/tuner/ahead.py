"""Candidates compiled for devices that are not here: what cannot be compiled is dropped before a device is needed.

Not promised: that what compiles also runs, or anything of how fast it is. What was found is kept as trials of the case
on that device, so that a machine which has one begins without the infeasible candidates; they are forgotten after 30
days like all failures.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from rewarm.jax_adapter import activation, seam
from rewarm.jax_adapter.prewarming import asked_instead
from rewarm.jax_adapter.seam import Call
from rewarm.jax_adapter.tuner import kernels, lookups
from rewarm.jax_adapter.tuner.candidate_child import words_of
from rewarm.jax_adapter.tuner.subjects import BAD_FOR
from rewarm.jax_adapter.tuner.tunable import Tunable
from rewarm.tunables.records import Outcome, Record, Trial
from rewarm.tunables.spaces import canonical

_MOST = 1024


class _Compiled(Exception):  # noqa: N818 - not an error: it ends a compile whose result nobody can load here
    pass


def compile_described(lowered: Any, options: Mapping[str, Any] | None = None) -> None:
    """Compile what was lowered for devices that are only described.

    Args:
      lowered: what `jax.jit(f).lower` returned.
      options: of XLA, by name.

    Raises:
      Exception: what the compiler raises.
    """

    def answer(call: Call) -> NoReturn:
        seam.compile_now(call)
        raise _Compiled

    try:
        with asked_instead(answer):
            lowered.compile(compiler_options=dict(options) if options else None)
    except _Compiled:
        pass


def feasible(tunable: Tunable, args: Sequence[Any], kwargs: Mapping[str, Any], device: Any) -> dict[str, str]:
    """Compile each candidate of a tunable function for one described device.

    Args:
      tunable: what `rewarm.tunable` returned.
      args, kwargs: its arguments, abstract ones.
      device: one of `rewarm.jax_adapter.described.devices`.

    Returns:
      Canonical configuration -> why it cannot be compiled; "" for one that can. At most 1,024 of them are tried.

    Raises:
      SpaceError: see `Tunable.asked`.
    """
    import jax

    asked = tunable.asked(args, kwargs)
    sharding = jax.sharding.SingleDeviceSharding(device)
    placed = [jax.ShapeDtypeStruct(struct.shape, struct.dtype, sharding=sharding) for struct in asked.arguments.structs]
    found: dict[str, str] = {}
    for number, config in enumerate(asked.space.all()):
        if number == _MOST:
            break
        keywords = asked.space.keywords(config)

        def candidate(*leaves: Any, keywords: Mapping[str, Any] = keywords) -> Any:
            args, kwargs = asked.arguments.rebuild(leaves)
            return tunable.function(*args, **{**kwargs, **keywords})

        try:
            compile_described(_lowered(jax.jit(candidate), placed, device))
            found[canonical(config)] = ""
        except Exception as error:  # noqa: BLE001 - tracing, lowering and compiling raise anything
            found[canonical(config)] = words_of(error)
    _keep(tunable, asked, device, found)
    return found


def _lowered(jitted: Any, placed: Sequence[Any], device: Any) -> Any:
    import jax
    import numpy as np

    # Kernels of Pallas for Triton ask for the device, which only a mesh tells them here.
    mesh = jax.sharding.Mesh(np.array([device]), ("device",))
    with kernels.traced_for(device), jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        return jitted.lower(*placed)


def _keep(tunable: Tunable, asked: Any, device: Any, found: Mapping[str, str]) -> None:
    """Keep what cannot be compiled, for machines that have such a device."""
    session = activation.session()
    bad = {text: reason for text, reason in found.items() if reason}
    if session is None or not bad:
        return
    now = time.time()
    try:
        place = kernels.place_of(session, device)
        case = tunable.case(asked, place)
    except Exception as error:  # noqa: BLE001 - what was found is returned all the same
        activation.tell(f"{tunable.kernel}: what cannot be compiled is not kept: {words_of(error)}")
        return
    trials = [
        Trial(config, Outcome.INFEASIBLE, reason=bad[text], when=now, expires=now + BAD_FOR)
        for config in asked.space.all()
        if (text := canonical(config)) in bad
    ]
    lookups.keep(session, Record(case, asked.space.default, trials=tuple(trials), when=now, about=place.about), 0.0)
