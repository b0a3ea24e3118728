"""Tuning files that real builds of XLA accepted, and entries made by chance."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from rewarm.autotune.formats import Device, Family, TuningEntry, Versions, device_of_target
from rewarm.autotune.formats.protobuf import Message, message_class

SAMPLES = Path(__file__).parent / "samples"
OLD, NEW = SAMPLES / "jax_0_10_2", SAMPLES / "jax_0_12_0_1"
PROGRAMS = [OLD / "dot_tanh_64x64", OLD / "mlp_128x128", NEW / "dot_tanh_64x64", NEW / "mlp_128x128"]
_SHAPE = "f32[8,8]{1,0}"
BODY = f"{{\n  tmp_0 = {_SHAPE} parameter(0)\n  ROOT tmp_1 = {_SHAPE} dot({_SHAPE} tmp_0, {_SHAPE} tmp_0)\n}}"


def target(name: str) -> Device:
    return device_of_target((SAMPLES / "targets" / f"{name}.txtpb").read_text())


def json_of(program: Path, name: str) -> Any:
    return json.loads((program / name).read_text())


def files_of(program: Path) -> list[Path]:
    """The samples of a program, directories included."""
    return sorted(path for path in program.iterdir() if path.suffix != ".json")


def legacy_entry(result: Message | None = None, /, **fields: Any) -> TuningEntry:
    """A sound legacy entry, but for what is said."""
    config = (result or triton_result()).SerializeToString(deterministic=True)
    defaults: dict[str, Any] = {"device": target("h200").legacy, "fusion": BODY, "backend": "TRITON"}
    return TuningEntry(Family.LEGACY, **{**defaults, "config": config, "versions": Versions(entry=56), **fields})


def triton_result(**fields: int) -> Message:
    sound = {"block_m": 64, "block_n": 64, "block_k": 32, "split_k": 1, "num_stages": 3, "num_warps": 4, "num_ctas": 1}
    return message_class("xla.AutotuneResult")(triton={**sound, **fields})


def new_entry(config: Message | None = None, /, **fields: Any) -> TuningEntry:
    """A sound entry of the new family, but for what is said."""
    made = config or message_class("xla.autotuner.BackendConfig")(triton=triton_result().triton)
    defaults: dict[str, Any] = {
        "device": target("h200").fingerprint,
        "fusion": "ac8f0d4128d487c0959cd00e541162bd",
        "backend": "TRITON",
        "config": made.SerializeToString(deterministic=True),
        "versions": Versions(codegen="070b7c91256c4093", backend="b575c0c38d428a609e25487db64051a5fa7bfab8"),
    }
    return TuningEntry(Family.NEW, **{**defaults, **fields})


def filled(name: str, chance: random.Random, depth: int = 0) -> Message:
    """A message of this name with fields by chance: all types, all kinds of a one-of, maps and lists."""
    made = message_class(name)()
    for field in made.DESCRIPTOR.fields:
        if chance.random() < 0.6:
            _fill(made, field, chance, depth)
    return made


def _fill(made: Message, field: Any, chance: random.Random, depth: int) -> None:
    count = chance.randrange(3) if _is_list(made, field) else 1
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for _ in range(count):
            getattr(made, field.name)[chance.randrange(-3, 2**40)] = chance.randrange(-9, 9)
    elif field.message_type is not None:
        for _ in range(count if depth < 5 else 0):
            inner = filled(field.message_type.full_name, chance, depth + 1)
            target_of = getattr(made, field.name)
            (target_of.add() if _is_list(made, field) else target_of).MergeFrom(inner)
            if not _is_list(made, field):
                target_of.SetInParent()
    else:
        values = [_scalar(field, chance) for _ in range(count)]
        if _is_list(made, field):
            getattr(made, field.name).extend(values)
        else:
            setattr(made, field.name, values[0])


def _is_list(made: Message, field: Any) -> bool:
    value = getattr(made, field.name)
    return hasattr(value, "__len__") and not isinstance(value, str | bytes)


def _scalar(field: Any, chance: random.Random) -> Any:
    if field.type == field.TYPE_STRING:
        return "".join(chance.choice("aZ09_\n\t\"'\\{}é漢\U0001f600:,") for _ in range(chance.randrange(12)))
    if field.type == field.TYPE_BYTES:
        return chance.randbytes(chance.randrange(12))
    if field.type == field.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == field.TYPE_ENUM:
        return chance.choice([*(value.number for value in field.enum_type.values), 77, -1])
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return chance.choice([0.0, 1.5, -2.25])
    if field.type == field.TYPE_UINT64:
        return chance.choice([0, 1, 2**64 - 1])
    small = field.type == field.TYPE_INT32
    return chance.choice([0, 1, -1, 64, 2**31 - 1, -(2**31)] + ([] if small else [2**63 - 1, -(2**63)]))


seeds = st.integers(0, 2**64)
