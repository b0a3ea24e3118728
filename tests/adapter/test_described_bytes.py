"""Topologies as bytes: what is changed in them, and what stays as it is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewarm.identity import machine_of_topology, wire
from rewarm.jax_adapter import topology_bytes
from rewarm.jax_adapter.described import shape_of_slice
from rewarm.targets import Processor


def field(number: int, value: int | str | bytes) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value % 128 | 128]) + _varint(value // 128)


MACHINE = field(1, "x86_64-unknown-linux-gnu") + field(2, "znver4") + field(3, "+avx,-sse4a")
DEVICE = field(3, 1)


def around(inside: bytes) -> bytes:
    any_of_it = field(1, "type.googleapis.com/xla.Topology") + field(2, inside)
    return field(1, 7) + field(2, "cpu") + field(9, any_of_it) + field(12, "what is not known")


def test_the_cpu_of_a_topology_is_read_in_both_forms() -> None:
    inside = DEVICE + field(5, MACHINE)
    expected = Processor("x86_64-unknown-linux-gnu", "znver4", "+avx,-sse4a")
    assert topology_bytes.processor_of(around(inside)) == topology_bytes.processor_of(inside) == expected
    for wrong in (b"", around(DEVICE), around(field(5, field(2, "znver4"))), around(field(5, 3))):
        with pytest.raises(ValueError, match=r".+"):
            topology_bytes.processor_of(wrong)


def test_devices_and_cpu_are_replaced_and_the_rest_stays() -> None:
    topology = around(field(1, DEVICE) + field(5, MACHINE) + field(8, "new"))
    same = topology_bytes.for_cpus(topology, 2, 2, None)
    inside = wire.locate(same, (9, 2))
    assert inside is not None
    numbers = [[(one.number, one.value) for one in wire.fields(f.data)] for f in wire.fields(inside) if f.number == 1]
    assert numbers == [[], [(3, 1)], [(2, 1)], [(2, 1), (3, 1)]], "zero is what is not there"
    assert inside.endswith(field(5, MACHINE) + field(8, "new"))
    assert [one.raw for one in wire.fields(same) if one.number != 9] == [
        one.raw for one in wire.fields(topology) if one.number != 9
    ]
    other = topology_bytes.for_cpus(topology, 1, 300, Processor("aarch64-unknown-linux-gnu", "", "+neon"))
    assert machine_of_topology(other) == ("aarch64-unknown-linux-gnu", ("neon",))
    assert topology_bytes.processor_of(other) == Processor("aarch64-unknown-linux-gnu", "", "+neon")


@given(st.tuples(*[st.integers(1, 1 << 20)] * 3), st.tuples(*[st.integers(1, 1 << 20)] * 3))
def test_the_counts_of_gpus_are_replaced_where_they_stand(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    def gpus(counts: tuple[int, int, int]) -> bytes:
        told = b"".join(field(number, count) for number, count in zip((4, 5, 6), counts, strict=True))
        return around(field(3, "cuda 13000") + told + field(8, b"config") + field(9, MACHINE))

    assert topology_bytes.shape_of_gpus(gpus(one)) == one
    assert topology_bytes.host_of_gpus(gpus(one)) == "x86_64-unknown-linux-gnu/znver4"
    assert topology_bytes.for_gpus(gpus(one), other) == gpus(other)


def test_a_topology_that_does_not_count_its_gpus() -> None:
    assert topology_bytes.host_of_gpus(around(field(4, 1))) == ""
    for wrong in (b"", around(field(4, 1) + field(5, 1)), around(field(4, 1) + field(5, 1) + field(6, "x"))):
        with pytest.raises(ValueError, match=r".+"):
            topology_bytes.shape_of_gpus(wrong)
    assert topology_bytes.for_gpus(around(field(8, b"config")), (1, 2, 3)) == around(
        field(4, 1) + field(5, 2) + field(6, 3) + field(8, b"config")
    )


def test_the_shape_of_a_slice_is_in_the_coordinates_of_its_devices() -> None:
    def slice_(size: tuple[int, int, int], host: tuple[int, int]) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(coords=[x, y, z], process_index=(x // host[0], y // host[1], z))
            for x in range(size[0])
            for y in range(size[1])
            for z in range(size[2])
        ]

    assert shape_of_slice(slice_((2, 4, 1), (2, 2)), 2) == "2x4@2x2"
    assert shape_of_slice(slice_((2, 4, 1), (2, 4)), 2) == "2x4"
    assert shape_of_slice(slice_((2, 2, 4), (2, 2)), 3) == "2x2x4@2x2x1"
    several = [
        SimpleNamespace(coords=one.coords, process_index=(number, one.process_index), slice_index=number)
        for number in (0, 1)
        for one in slice_((2, 4, 1), (2, 2))
    ]
    assert shape_of_slice(several, 2) == "2*2x4@2x2"
