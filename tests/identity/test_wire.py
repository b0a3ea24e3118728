"""Reading protocol buffers: what was encoded is read, and anything else is a `ValueError`."""

from __future__ import annotations

import pytest
import wire_encoder
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rewarm.identity import wire
from rewarm.identity.wire import BYTES, FIXED32, FIXED64, VARINT, Field

LAST_NUMBER = 2**29 - 1
numbers = st.integers(1, LAST_NUMBER) | st.integers(1, 20)
encoded_fields = st.one_of(
    st.tuples(numbers, st.just(VARINT), st.integers(0, 2**64 - 1) | st.integers(0, 300)),
    st.tuples(numbers, st.just(BYTES), st.binary(max_size=200)),
    st.tuples(numbers, st.just(FIXED32), st.binary(min_size=4, max_size=4)),
    st.tuples(numbers, st.just(FIXED64), st.binary(min_size=8, max_size=8)),
)
messages = st.lists(encoded_fields, max_size=8)


def encode(number: int, kind: int, value: int | bytes) -> bytes:
    if kind in (FIXED32, FIXED64):
        assert isinstance(value, bytes)
        return wire_encoder.fixed(number, value)
    return wire_encoder.field(number, value)


def read(message: bytes) -> list[Field] | None:
    """The fields, or `None` where the bytes are refused; any other outcome is a failure of the test."""
    try:
        return list(wire.fields(message))
    except ValueError:
        return None


@given(messages)
@settings(max_examples=200, deadline=None)
def test_what_was_encoded_is_read(message: list[tuple[int, int, int | bytes]]) -> None:
    encoded = [encode(*parts) for parts in message]
    found = list(wire.fields(b"".join(encoded)))
    assert [(field.number, field.kind, field.value) for field in found] == message
    assert [field.raw for field in found] == encoded


@given(messages)
@settings(max_examples=100, deadline=None)
def test_a_truncated_message_is_read_up_to_a_boundary_or_refused(message: list[tuple[int, int, int | bytes]]) -> None:
    encoded = [encode(*parts) for parts in message]
    whole = b"".join(encoded)
    boundaries = {sum(map(len, encoded[:count])): count for count in range(len(encoded) + 1)}
    for length in range(len(whole)):
        found = read(whole[:length])
        assert (found is None) == (length not in boundaries)
        assert found is None or len(found) == boundaries[length]


@given(st.binary(max_size=200))
@settings(max_examples=400, deadline=None)
@example(b"\x80" * 20)
@example(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(b"\xff" * 9 + b"\x7f")
def test_garbage_is_refused_or_read_to_the_last_byte(garbage: bytes) -> None:
    found = read(garbage)
    assert found is None or b"".join(field.raw for field in found) == garbage


@given(st.integers(0, 2**64 - 1), st.binary(max_size=5), st.binary(max_size=5))
@settings(deadline=None)
def test_a_number_is_read_where_it_lies(number: int, before: bytes, after: bytes) -> None:
    encoded = wire_encoder.varint(number)
    assert wire.varint(before + encoded + after, len(before)) == (number, len(before) + len(encoded))


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff" * 9])
def test_a_number_that_does_not_end_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="the bytes end within a number"):
        wire.varint(encoded, 0)


@pytest.mark.parametrize("encoded", [b"\x80" * 10 + b"\x01", b"\xff" * 10 + b"\x01", b"\x80" * 9 + b"\x02"], ids=repr)
def test_a_number_of_more_than_64_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="more than 64 bits"):
        wire.varint(encoded, 0)


@pytest.mark.parametrize("kind", [3, 4, 6, 7])
def test_groups_and_unknown_wire_types_are_refused(kind: int) -> None:
    with pytest.raises(ValueError, match=f"wire type {kind} at byte 3"):
        list(wire.fields(b"\x08\x96\x01" + wire_encoder.tag(1, kind) + b"\0" * 20))


def test_a_field_longer_than_its_message_is_refused() -> None:
    for length in (6, 2**31, 2**63, 2**64 - 1):
        with pytest.raises(ValueError, match="longer than the message"):
            list(wire.fields(wire_encoder.tag(2, BYTES) + wire_encoder.varint(length) + b"five!"))


def test_bytes_are_asked_of_a_field_that_holds_bytes() -> None:
    number, text = wire.fields(wire_encoder.field(1, 7) + wire_encoder.field(2, b"text"))
    assert text.data == b"text"
    with pytest.raises(ValueError, match="field 1 holds a number"):
        _ = number.data
