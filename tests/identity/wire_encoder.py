"""The little of protocol buffers' encoding that tests need to make messages of their own."""

from __future__ import annotations

from rewarm.identity.wire import BYTES, FIXED32, FIXED64, VARINT


def varint(number: int) -> bytes:
    """An unsigned number, seven bits to a byte."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(number: int, kind: int) -> bytes:
    """What a field starts with."""
    return varint(number << 3 | kind)


def field(number: int, value: int | bool | str | bytes) -> bytes:
    """A field that holds a number, or text or bytes or a message."""
    if isinstance(value, int):
        return tag(number, VARINT) + varint(value)
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return tag(number, BYTES) + varint(len(data)) + data


def fixed(number: int, data: bytes) -> bytes:
    """A field of four or eight bytes."""
    return tag(number, {4: FIXED32, 8: FIXED64}[len(data)]) + data
