"""Many entries, made quickly and the same in every process."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace

from tuning_samples import BODY, legacy_entry, new_entry, triton_result

from rewarm.autotune.formats import Source, TuningEntry, Versions
from rewarm.autotune.formats.protobuf import Message, message_class


def fusion_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:32]


def body_of(number: int) -> str:
    return BODY.replace("f32[8,8]", f"f32[8,{number + 1}]")


def new_one(number: int, choice: int, source: str = "") -> TuningEntry:
    """What a tuner found for a fusion: `choice` says which of several configurations."""
    return replace(_new(choice), fusion=fusion_of(number), source=Source(source, number + 1))


def legacy_one(number: int, choice: int, *, micros: int = 0, version: int = 56, source: str = "") -> TuningEntry:
    """The same in the legacy family, with a run time if one is given."""
    return replace(
        _legacy(choice, micros),
        fusion=body_of(number),
        versions=Versions(entry=version),
        source=Source(source, number + 1),
    )


@functools.cache
def _new(choice: int) -> TuningEntry:
    return new_entry(message_class("xla.autotuner.BackendConfig")(triton=_triton(choice).triton))


@functools.cache
def _legacy(choice: int, micros: int) -> TuningEntry:
    result = _triton(choice)
    if micros:
        result.run_time.nanos = micros * 1000
    return legacy_entry(result, run_time=micros / 1e6 if micros else None)


def _triton(choice: int) -> Message:
    blocks = (16, 32, 64, 128)
    return triton_result(block_m=blocks[choice % 4], block_n=blocks[choice // 4 % 4], block_k=blocks[choice // 16 % 4])


def of_writer(writer: int, count: int) -> list[TuningEntry]:
    """Half of a writer's fusions are its own, and half are everybody's, with results that differ."""
    half = count // 2
    own = [new_one(1_000_000 + writer * half + number, number) for number in range(count - half)]
    return own + [new_one(number, (number + writer) % 7) for number in range(half)]
