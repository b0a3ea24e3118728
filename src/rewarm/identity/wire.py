"""Reading a serialised protocol buffer without its descriptor: field by field, in the order of the bytes.

Not promised: that the bytes are such a message. What does not parse raises `ValueError`; what parses by accident is
the caller's risk, so only messages whose type is known are read.

Format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}


class Field(NamedTuple):
    """One field as it lies in the bytes.

    Attributes:
      number: the field's number in its message.
      kind: the wire type: VARINT, FIXED64, BYTES or FIXED32.
      value: an int for VARINT, else the raw bytes.
      raw: the whole field, tag included.
    """

    number: int
    kind: int
    value: int | bytes
    raw: bytes

    @property
    def data(self) -> bytes:
        """The bytes of a BYTES field.

        Raises:
          ValueError: it is another kind of field.
        """
        if not isinstance(self.value, bytes):
            raise ValueError(f"field {self.number} holds a number where bytes were expected")
        return self.value


def fields(message: bytes) -> Iterator[Field]:
    """The fields of `message`, top level only.

    Raises:
      ValueError: the bytes are not a message.
    """
    for span in _spans(message, 0, len(message)):
        data = message[span.start : span.end]
        value = varint(message, span.start)[0] if span.kind == VARINT else data
        yield Field(span.number, span.kind, value, message[span.tag : span.end])


class _Span(NamedTuple):
    """Where a field lies: its tag, and its value from `start` to `end`."""

    number: int
    kind: int
    tag: int
    start: int
    end: int


def _spans(message: bytes, position: int, end: int) -> Iterator[_Span]:
    while position < end:
        tag = position
        header, position = varint(message, position)
        number, kind, start = header >> 3, header & 7, position
        if kind == VARINT:
            position = varint(message, position)[1]
        elif kind == BYTES:
            length, start = varint(message, position)
            position = start + length
        elif kind in _FIXED:
            position += _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind} at byte {tag}")
        if position > end:
            raise ValueError(f"field {number} at byte {tag} is longer than the message")
        yield _Span(number, kind, tag, start, position)


def locate(message: bytes, path: tuple[int, ...], start: int = 0) -> bytes | None:
    """The bytes of the field at `path`, one number for each message on the way; `None` when one is not there.

    Of a field that is there more than once the first counts. Copies nothing but the result, so that a small part of a
    large message is found quickly. `start` is where the outermost message begins.

    Raises:
      ValueError: the bytes are not a message.
    """
    end = len(message)
    for wanted in path:
        spans = (one for one in _spans(message, start, end) if one.number == wanted and one.kind == BYTES)
        found = next(spans, None)
        if found is None:
            return None
        start, end = found.start, found.end
    return message[start:end]


def packed(data: bytes, kind: int) -> Iterator[int | bytes]:
    """The values of a packed list, of the wire type `kind`: VARINT, FIXED64 or FIXED32.

    Raises:
      ValueError: the bytes are not such a list.
    """
    position = 0
    while position < len(data):
        if kind == VARINT:
            value, position = varint(data, position)
            yield value
        else:
            length = _FIXED[kind]
            if position + length > len(data):
                raise ValueError("the bytes end within a number")
            yield data[position : position + length]
            position += length


def varint(message: bytes, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it.

    Raises:
      ValueError: the bytes end within it, or it has more than 64 bits.
    """
    result = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if result >> 64:
                break
            return result, position
        shift += 7
        if shift > 63:
            break
    else:
        raise ValueError("the bytes end within a number")
    raise ValueError("a number of more than 64 bits")
