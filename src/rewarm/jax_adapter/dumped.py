"""What XLA dumps of the instructions that it looks up (`xla_gpu_dump_autotuned_instructions`): the texts that keys
are made of.

Not promised: those of a program for which XLA was not told to dump them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_OPERAND = re.compile(r" tmp_\d+(?=[,)])")
# A computation inside one, such as what a reduction applies: in new keys alone.
_INNER = re.compile(r", [a-z_]+=\n( +)\{\n.*?\n\1\}(?=[,\n]|$)", re.DOTALL)
_NUMBER = re.compile(r"\.autotuner_(\d+)\.(.*)\.before\.txt$")


def instructions(dump: Path) -> Iterator[tuple[str, str, str]]:
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
