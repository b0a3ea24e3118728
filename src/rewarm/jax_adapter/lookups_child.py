"""The child of `lookups`: compiles a plan's programs for devices that are only described, and says what XLA looked up.

Not promised: anything to whoever else starts it. It has no cache, of rewarm's or of JAX's, and runs nothing.

    parent to child   one JSON object: {"plan":, "target": text, "topology":, "options": {name: value}, "work": folder,
                      "only": [names] or null, "family_decides": bool}
    child to parent   JSON objects, one on each line:
                      {"jax":, "devices": n}                                    once the device is described
                      {"begins": name}                                          before each program
                      {"program":, "seconds":, "instructions": [[text, legacy text, name]], "error":}
                      {"done": true}, with "none": why where the plan has no program, or none of a name
                      {"cannot": why, "kind": "plan", "compiler" or "jax"}

The options go to each compile and to no other, over those that the plan has for a program. Of XLA's dumps only the
instructions are written that it looks up.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import rewarm
from rewarm import settings
from rewarm.autotune import xla_flags
from rewarm.autotune.xla_errors import explained
from rewarm.jax_adapter.dumped import instructions


def main() -> None:
    """Do what standard input says."""
    rewarm.disable()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the plan prints is not for the parent
    asked = json.loads(sys.stdin.read())
    for answer in _answers(asked):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answers(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        import jax
        from jax.experimental import topologies
    except Exception as wrong:  # noqa: BLE001 - whatever is wrong with the JAX that is there
        yield {"cannot": f"{type(wrong).__name__}: {wrong}", "kind": "jax"}
        return
    from rewarm.jax_adapter import plans

    plans.without_caches()
    sys.path.append(str(Path.cwd()))  # behind everything else
    try:  # before JAX has devices, as in a program that runs: its module may say what JAX is to be like
        function = plans.read(asked["plan"])
    except (Exception, SystemExit) as wrong:  # noqa: BLE001 - the user's own code
        yield _of_plan(asked["plan"], wrong)
        return
    try:
        described = topologies.get_topology_desc(
            platform="cuda", target_config=asked["target"], topology=asked["topology"]
        )
        devices = list(described.devices)
    except Exception as wrong:  # noqa: BLE001 - no plugin, or a description that it does not take
        yield {"cannot": f"{type(wrong).__name__}: {wrong}", "kind": "compiler"}
        return
    yield {"jax": jax.__version__, "devices": len(devices)}
    yield from _programs(asked, devices, function)


def _of_plan(plan: str, wrong: BaseException) -> dict[str, Any]:
    """What to say where a plan cannot be used, or its own code ended."""
    from rewarm.jax_adapter.plans import PlanError

    if isinstance(wrong, PlanError):
        return {"cannot": str(wrong), "kind": "plan"}
    if isinstance(wrong, SystemExit):
        said = "" if wrong.code is None else repr(wrong.code)
        return {"cannot": f"{plan} ends the process: SystemExit, as of sys.exit({said})", "kind": "plan"}
    return {"cannot": f"{plan} raises {type(wrong).__name__}: {wrong}", "kind": "plan"}


def _programs(asked: dict[str, Any], devices: Sequence[Any], function: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    from rewarm.jax_adapter import plans

    names: list[str] = []
    try:
        for program in plans.programs(asked["plan"], devices, function):
            names.append(program.name)
            if asked.get("only") is None or program.name in asked["only"]:
                yield {"begins": program.name}
                yield _compiled(program, devices, asked)
    except (Exception, SystemExit) as wrong:  # noqa: BLE001 - the user's own code
        yield _of_plan(asked["plan"], wrong)
    else:
        yield {"done": True, **_lacking(asked, names)}


def _lacking(asked: dict[str, Any], names: Sequence[str]) -> dict[str, str]:
    if not names:
        return {"none": f"{asked['plan']} yields no program, so there is nothing to say of it"}
    unknown = [name for name in asked.get("only") or () if name not in names]
    if not unknown:
        return {}
    return {"none": f"{asked['plan']} has no program {', '.join(unknown)}; it has {', '.join(names)}"}


def _compiled(program: Any, devices: Sequence[Any], asked: dict[str, Any]) -> dict[str, Any]:
    from rewarm.jax_adapter import plans

    dump = Path(asked["work"]) / "dump"
    options = {
        **plans.own_options(program),
        **asked["options"],
        "xla_dump_to": str(dump),
        "xla_gpu_dump_autotuned_instructions": True,
        "xla_dump_hlo_module_re": "^$",  # of whole modules nothing
    }
    since = time.perf_counter()
    error = ""
    try:
        if not asked.get("family_decides"):
            _refuse_other_formats(program, asked["options"])
        plans.without_caches()
        plans.compiled(program, _lowered(program, devices), devices, options)
    except (Exception, SystemExit) as wrong:  # noqa: BLE001 - XLA's, or of the user's code while it is traced
        said = str(wrong) if isinstance(wrong, plans.PlanError) else f"{type(wrong).__name__}: {wrong}"
        error = explained(said, _switches(options))
    answer = {
        "program": program.name,
        "seconds": time.perf_counter() - since,
        "instructions": list(instructions(dump)),
        "error": error,
    }
    shutil.rmtree(dump, ignore_errors=True)
    return answer


def _refuse_other_formats(program: Any, asked: Mapping[str, Any]) -> None:
    """One check is for one generation of formats, as a run of one set of flags is.

    Raises:
      ValueError: the program's own options ask for the other one.
    """
    own, here = program.compiler_options.get(xla_flags.NEW_FORMAT), asked.get(xla_flags.NEW_FORMAT)
    if own is not None and here is not None and _is_on(own) is not _is_on(here):
        generation = "new" if _is_on(here) else "legacy"
        raise ValueError(
            f"its compiler_options say {xla_flags.NEW_FORMAT}={own}, and this check is for the {generation} formats; "
            f"check it alone (--only) with XLA_FLAGS=--{xla_flags.NEW_FORMAT}={own}"
        )


def _switches(options: Mapping[str, Any]) -> dict[str, bool]:
    return {**xla_flags.switches(settings.xla_flags()), **{name: _is_on(value) for name, value in options.items()}}


def _is_on(value: Any) -> bool:
    return str(value).lower() in ("true", "1")


def _lowered(program: Any, devices: Sequence[Any]) -> Any:
    from rewarm.jax_adapter import plans

    try:
        return plans.lowered(program, devices)
    except Exception as wrong:
        if "No supported GPU devices found" not in str(wrong):
            raise
    # Kernels of Pallas and Triton ask for the device, which only a mesh tells them here.
    import jax
    import numpy as np

    mesh = jax.sharding.Mesh(np.array(devices), ("devices",))
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        return plans.lowered(program, devices)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the parent has ended
        main()
