"""The child of `lookups`: compiles a plan's programs for devices that are only described, and says what XLA looked up.

Not promised: anything to whoever else starts it. It has no cache, of rewarm's or of JAX's, and runs nothing.

    parent to child   one JSON object: {"plan":, "target": text, "topology":, "options": {name: value}, "work": folder,
                      "only": [names] or null}
    child to parent   JSON objects, one on each line:
                      {"jax":, "devices": n}                                    once the device is described
                      {"begins": name}                                          before each program
                      {"program":, "seconds":, "instructions": [[text, legacy text, name]], "error":}
                      {"done": true}, with "none": why where the plan has no program, or none of a name
                      {"cannot": why, "kind": "plan", "compiler" or "jax"}

The options go to each compile and to no other. Of XLA's dumps only the instructions are written that it looks up.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import rewarm

_OPERAND = re.compile(r" tmp_\d+(?=[,)])")
# A computation inside one, such as what a reduction applies: in new keys alone.
_INNER = re.compile(r", [a-z_]+=\n( +)\{\n.*?\n\1\}(?=[,\n]|$)", re.DOTALL)
_NUMBER = re.compile(r"\.autotuner_(\d+)\.(.*)\.before\.txt$")


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
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        described = topologies.get_topology_desc(
            platform="cuda", target_config=asked["target"], topology=asked["topology"]
        )
        devices = list(described.devices)
    except Exception as wrong:  # noqa: BLE001 - no plugin, or a description that it does not take
        yield {"cannot": f"{type(wrong).__name__}: {wrong}", "kind": "compiler"}
        return
    yield {"jax": jax.__version__, "devices": len(devices)}
    yield from _programs(asked, devices)


def _programs(asked: dict[str, Any], devices: Sequence[Any]) -> Iterator[dict[str, Any]]:
    from rewarm.jax_adapter import plans

    sys.path.append(str(Path.cwd()))  # behind everything else
    names: list[str] = []
    try:
        for program in plans.programs(asked["plan"], devices):
            names.append(program.name)
            if asked.get("only") is None or program.name in asked["only"]:
                yield {"begins": program.name}
                yield _compiled(program, devices, asked)
    except plans.PlanError as wrong:
        yield {"cannot": str(wrong), "kind": "plan"}
    except Exception as wrong:  # noqa: BLE001 - the user's own code
        yield {"cannot": f"{asked['plan']} raises {type(wrong).__name__}: {wrong}", "kind": "plan"}
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
    dump = Path(asked["work"]) / "dump"
    options = {
        **asked["options"],
        "xla_dump_to": str(dump),
        "xla_gpu_dump_autotuned_instructions": True,
        "xla_dump_hlo_module_re": "^$",  # of whole modules nothing
    }
    since = time.perf_counter()
    error = ""
    try:
        _lowered(program, devices).compile(compiler_options=options)
    except Exception as wrong:  # noqa: BLE001 - XLA's, or of the user's code while it is traced
        error = f"{type(wrong).__name__}: {wrong}"
    answer = {
        "program": program.name,
        "seconds": time.perf_counter() - since,
        "instructions": list(_instructions(dump)),
        "error": error,
    }
    shutil.rmtree(dump, ignore_errors=True)
    return answer


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


def _instructions(dump: Path) -> Iterator[tuple[str, str, str]]:
    """What was looked up, in its order: the text of the new keys, that of the legacy ones, the instruction's name."""
    if not dump.is_dir():
        return
    found = [(match, path) for path in dump.iterdir() if (match := _NUMBER.search(path.name))]
    for match, path in sorted(found, key=lambda one: (one[1].name.partition(".autotuner_")[0], int(one[0][1]))):
        text, legacy = key_texts(path.read_text())
        yield text, legacy, match[2]


def key_texts(dumped: str) -> tuple[str, str]:
    """The texts that keys are made of, new and legacy, from the module that XLA dumps for one instruction.

    jaxlib's printer is XLA's own; what is done to its text here was checked against the keys of each build.
    """
    try:
        from jaxlib import _hlo as hlo
    except ImportError:  # up to JAX 0.9
        from jaxlib import _jax as hlo
    module = hlo.hlo_module_from_text(dumped)
    options = hlo.HloPrintOptions.fingerprint()
    options.print_backend_config = True
    options.print_operand_shape = True
    lines = module.to_string(options).partition("\nENTRY {\n")[2].rstrip().removesuffix("}").rstrip("\n").split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith("  ROOT "))
    first, *inner = (line.removeprefix("  ") for line in lines[start:])
    first = first.partition(" = ")[2]
    text = _sorted_config("\n".join((_OPERAND.sub("", first), *inner)))
    if not inner:
        return text, text
    body = "\n".join(inner)
    return text, _INNER.sub("", body[: body.rfind("\n}") + 2])


def _sorted_config(text: str) -> str:
    """The text with the keys of its backend configuration in their order, as keys have it."""
    before, name, config = text.rpartition(", backend_config=")
    if not name or "\n" in config:
        return text
    try:
        told, end = json.JSONDecoder(parse_float=_Number, parse_int=_Number).raw_decode(config)
    except ValueError:
        return text
    return f"{before}{name}{_json(told)}{config[end:]}"


class _Number(str):
    """A number of JSON as it is written."""

    __slots__ = ()


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_json(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return value if isinstance(value, _Number) else json.dumps(value)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the parent has ended
        main()
