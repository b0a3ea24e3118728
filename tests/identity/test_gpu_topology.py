"""Topologies of GPUs, field by field: whatever is said counts, but for the CPU beside the GPUs."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_encoder import field

from rewarm.identity import TargetFacts, canonical_target, component
from rewarm.identity.gpu_topology import fields_of
from rewarm.identity.wire import FIXED32

KIND = "NVIDIA H200"


def fixed(number: int, value: float) -> bytes:
    return bytes([number << 3 | FIXED32]) + struct.pack("<f", value)


def info(clock: float = 1.98, more: bytes = b"") -> bytes:
    return field(6, 132) + fixed(13, clock) + field(16, field(1, 9)) + field(23, "13.0.0") + more


def topology(
    inner: bytes = b"", *, target: bytes | None = None, host: str = "emeraldrapids", outer: bytes = b""
) -> bytes:
    config = field(1, info()) + field(4, "CUDA") + field(8, field(1, 12) + field(2, 8)) if target is None else target
    told = field(3, KIND) + field(4, 4) + field(5, 8) + field(6, 1) + field(8, config)
    told += field(9, field(1, "x86_64-unknown-linux-gnu") + field(2, host)) + inner
    return field(2, "cuda") + field(9, field(1, "type") + field(2, told)) + outer


def keyed(data: bytes) -> str:
    facts = TargetFacts("gpu", "cuda 13000", (KIND,), ((0,),), data, None)
    return component("target", canonical_target(facts)).digest


def test_fields_have_the_names_of_a_description() -> None:
    assert fields_of(topology()) == {
        "platform_name": "cuda",
        "topology.type_url": "type",
        "platform_version": KIND,
        "partitions": "4",
        "hosts": "8",
        "devices": "1",
        "gpu.gpu_device_info.core_count": "132",
        "gpu.gpu_device_info.clock_rate_ghz": "1.98",
        "gpu.gpu_device_info.cuda_compute_capability.major": "9",
        "gpu.gpu_device_info.driver_version": "13.0.0",
        "gpu.platform_name": "CUDA",
        "gpu.runtime_version.major": "12",
        "gpu.runtime_version.minor": "8",
    }


def test_the_cpu_beside_the_gpus_does_not_count() -> None:
    assert keyed(topology(host="znver4")) == keyed(topology())


OTHERS = {
    "a clock": topology(target=field(1, info(1.755))),
    "a clock, in its last bit": topology(target=field(1, info(struct.unpack("<f", b"\xa3\x70\xfd\x3f")[0]))),
    "a field without a name": topology(target=field(1, info(more=field(99, 1)))),
    "another value of it": topology(target=field(1, info(more=field(99, 2)))),
    "a field that is there twice": topology(target=field(1, info(more=field(23, "13.0.0")))),
    "text where there was none": topology(target=field(1, info(more=field(34, "")))),
    "an empty message": topology(target=field(1, info()) + field(8, b"")),
    "no such message": topology(target=field(1, info())),
    "bytes that are no text": topology(target=field(1, info(more=field(34, b"\xff")))),
    "a long message without a name": topology(field(77, b"x" * 100)),
    "another one": topology(field(77, b"x" * 99 + b"y")),
    "outside": topology(outer=field(12, 1)),
    "one in the host's number, elsewhere": topology(target=field(1, info(more=field(9, 3)))),
}


def test_whatever_else_is_said_counts() -> None:
    found = {name: keyed(data) for name, data in OTHERS.items()}
    assert len({*found.values(), keyed(topology())}) == len(OTHERS) + 1


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff", field(9, field(2, b"")), topology(target=b"")[:-7]])
def test_of_bytes_of_another_form_all_count(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        fields_of(data)
    assert keyed(data) != keyed(data + field(1, 1))


@given(st.binary(max_size=60))
def test_whatever_bytes_there_are_it_is_a_value_error_or_fields(data: bytes) -> None:
    inside = field(9, field(2, field(6, 1) + field(8, data)))
    for whole in (data, inside):
        try:
            assert all(isinstance(value, str) for value in fields_of(whole).values())
        except ValueError:
            continue
