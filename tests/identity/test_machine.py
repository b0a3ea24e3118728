"""Which CPU code is made for, out of what XLA writes; and nothing but a `ValueError` out of anything else."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

import pytest
import wire_encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from rewarm.identity import Machine, machine_of_executable, machine_of_topology, wire
from rewarm.identity.machine import parse

TRIPLE = "x86_64-unknown-linux-gnu"
FEATURES = "+sse2,-avx512f,+avx2,+prefer-no-gather,+fma,-prefer-no-scatter"
MACHINE = Machine(TRIPLE, ("avx2", "fma", "sse2"))
field = wire_encoder.field


def options(triple: str = TRIPLE, features: str = FEATURES, cpu: str = "emeraldrapids") -> bytes:
    """A `TargetMachineOptionsProto`."""
    return field(1, triple) + field(2, cpu) + field(3, features)


def bare_topology(machine: bytes) -> bytes:
    """A `CpuTopologyProto`, as 0.9 gives it."""
    return field(1, field(2, 0) + field(3, 0)) + field(5, machine)


def wrapped_topology(machine: bytes) -> bytes:
    """A `PjRtTopologyDescriptionProto`, since 0.11."""
    inner = field(1, "type.googleapis.com/xla.CpuTopologyProto") + field(2, bare_topology(machine))
    return field(1, 1) + field(2, "cpu") + field(3, "cpu") + field(9, inner)


def executable(machine: bytes, before: bytes = b"shapes") -> bytes:
    """A serialised executable, as far as the machine's place in it."""
    result = field(1, b"module") + field(2, b"object" * 50) + field(9, machine) + field(10, b"more")
    return wire_encoder.varint(len(before)) + before + field(1, result) + field(2, b"options") + field(3, "cpu")


# -- what XLA writes -----------------------------------------------------------------------------------------------


def test_features_that_are_present_count_without_those_that_only_steer_tuning() -> None:
    assert parse(options()) == MACHINE
    assert parse(options(features="")) == Machine(TRIPLE, ())
    assert parse(options(features="+b,+a,-c,+b2,,+")) == Machine(TRIPLE, ("", "a", "b", "b2"))
    assert parse(options(cpu="znver4")) == MACHINE


def test_the_machine_is_found_at_its_places() -> None:
    assert machine_of_topology(bare_topology(options())) == MACHINE
    assert machine_of_topology(wrapped_topology(options())) == MACHINE
    assert machine_of_executable(executable(options())) == MACHINE
    assert machine_of_executable(executable(options(), before=b"s" * 1000)) == MACHINE
    assert machine_of_executable(executable(options(), before=b"")) == MACHINE


def test_what_names_no_machine_is_refused() -> None:
    for message in (
        b"",
        field(2, "znver4"),
        field(1, ""),
        field(1, 7),
        options() + field(1, 7),
        field(3, 5) + field(1, "t"),
    ):
        assert refused(message), message
    for topology in (b"", bare_topology(b""), wrapped_topology(b""), field(9, field(2, b"")), field(9, b"")):
        with pytest.raises(ValueError, match="names no target machine"):
            machine_of_topology(topology)
    for serialized in (b"", b"\0", executable(b""), executable(b"\xff"), wire_encoder.varint(10**6) + b"short"):
        assert machine_of_executable(serialized) is None


def refused(message: bytes) -> bool:
    """Whether it is a `ValueError`; any other exception is a failure of the test."""
    try:
        parse(message)
    except ValueError:
        return True
    return False


def test_what_a_machine_lacks() -> None:
    small, large = Machine(TRIPLE, ("a", "b")), Machine(TRIPLE, ("a", "b", "c", "d"))
    assert large.lacks(small) == large.lacks(large) == small.lacks(small) == ()
    assert small.lacks(large) == ("c", "d")
    assert large.lacks(Machine("aarch64-unknown-linux-gnu", ())) == ("aarch64-unknown-linux-gnu",)


@given(st.sets(st.text("abc", min_size=1, max_size=2)), st.sets(st.text("abc", min_size=1, max_size=2)))
def test_a_machine_lacks_exactly_the_difference(mine: set[str], theirs: set[str]) -> None:
    one, other = (parse(options(features=",".join(f"+{word}" for word in words))) for words in (mine, theirs))
    assert set(one.lacks(other)) == theirs - mine
    assert list(one.lacks(other)) == sorted(one.lacks(other))


# -- anything else -------------------------------------------------------------------------------------------------

garbage = st.one_of(
    st.binary(max_size=100),
    st.builds(options, features=st.text(max_size=30)),
    st.builds(
        lambda rows: b"".join(field(*row) for row in rows),
        st.lists(st.tuples(st.integers(1, 12), st.binary(max_size=9))),
    ),
    st.builds(
        lambda rows: b"".join(field(*row) for row in rows),
        st.lists(st.tuples(st.integers(1, 12), st.integers(0, 2**64 - 1))),
    ),
)


@given(garbage, st.integers(0, 6), st.binary(max_size=4))
@settings(deadline=None, max_examples=300)
def test_garbage_is_refused_or_read(data: bytes, depth: int, more: bytes) -> None:
    refused(data)
    for _ in range(depth):
        data = field(9, data) + more
    for read in (data, bare_topology(data), wrapped_topology(data), field(9, data)):
        with contextlib.suppress(ValueError):
            machine_of_topology(read)
    for serialized in (data, executable(data), wire_encoder.varint(len(data)) + data + more):
        found = machine_of_executable(serialized)
        assert found is None or found.triple


@pytest.mark.parametrize("make", [bare_topology, wrapped_topology, executable])
def test_a_message_that_is_cut_names_the_machine_or_none(make: Any) -> None:
    whole = make(options())
    for length in range(len(whole)):
        if make is executable:
            assert machine_of_executable(whole[:length]) in (None, MACHINE)
            continue
        try:
            found = machine_of_topology(whole[:length])
        except ValueError:
            continue
        assert found == MACHINE


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple), st.binary(max_size=60), st.integers(0, 70))
@settings(deadline=None, max_examples=300)
def test_locating_in_garbage_gives_a_part_or_nothing(path: tuple[int, ...], data: bytes, start: int) -> None:
    for message in (data, field(path[0], data), wire_encoder.fixed(path[0], b"1234") + field(path[0], data)):
        try:
            found = wire.locate(message, path, start)
        except ValueError:
            continue
        assert found is None or found in message


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.binary(max_size=20), st.binary(max_size=9))
@settings(deadline=None)
def test_locating_finds_what_was_put_there(path: list[int], data: bytes, before: bytes) -> None:
    message = data
    for number in reversed(path):
        # Before it: other fields, and one of its number that is no message.
        message = field(number + 10, before) + field(number, 7) + field(number, message) + field(number, b"second")
    assert wire.locate(message, tuple(path)) == data
    assert wire.locate(before + message, tuple(path), len(before)) == data
    assert wire.locate(message, (*path[:-1], path[-1] + 1)) is None or path[-1] + 1 in path


# -- what this JAX writes ------------------------------------------------------------------------------------------


@cache
def real() -> tuple[bytes | None, bytes]:
    """This CPU's topology, where this JAX can serialise it, and an executable that was made for it."""
    import jax

    from rewarm.jax_adapter import seam

    devices = jax.devices("cpu")
    return seam.topology(devices)[0], seam.compile_smallest(devices[0].client)


@pytest.mark.contract
def test_a_real_executable_names_this_machine() -> None:
    topology, serialized = real()
    found = machine_of_executable(serialized)
    assert found is not None
    assert "-" in found.triple
    assert list(found.features) == sorted(set(found.features))
    assert not any(word.startswith(("+", "-", "prefer-")) or "," in word for word in found.features)
    if found.triple.startswith("x86_64"):
        assert "sse2" in found.features
    if topology is not None:
        assert machine_of_topology(topology) == found


@pytest.mark.contract
def test_a_real_topology_is_there_but_in_one_version() -> None:
    import jaxlib

    topology, _ = real()
    assert (topology is None) == jaxlib.__version__.startswith("0.10.")


@pytest.mark.contract
@given(st.data())
@settings(deadline=None, max_examples=60)
def test_a_damaged_real_executable_or_topology_raises_nothing_else(data: st.DataObject) -> None:
    for whole in filter(None, real()):
        raw = bytearray(whole)
        for _ in range(data.draw(st.integers(0, 5))):
            raw[data.draw(st.integers(0, min(len(raw), 400) - 1))] = data.draw(st.integers(0, 255))
        cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
        machine_of_executable(cut)
        with contextlib.suppress(ValueError):
            machine_of_topology(cut)
