"""Messages in binary: read with the place of each fault, and what of them is not known.

Not promised: that bytes which parse are of the message that they were read as; most bytes parse as something.

Bounds: what goes in has at most `LARGEST` bytes, `MOST_FIELDS` fields and `MOST_MESSAGES` messages; the library refuses
more than 100 messages inside each other. They are counted before the library begins, since a message of two bytes takes
it nearly three hundred of memory. Files below `_SMALL` bytes cannot hold enough to matter, and are not counted.

Format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Place, error
from rewarm.autotune.formats.protobuf import Message, message_class, module
from rewarm.identity.wire import varint

LARGEST = 64 << 20
MOST_FIELDS = 4_000_000
MOST_MESSAGES = 600_000
_VARINT, _FIXED64, _BYTES, _GROUP, _END, _FIXED32 = range(6)
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_STRING_TYPE, _MESSAGE_TYPE = 9, 11
_DEEPEST = 100
_SMALL = 1 << 20


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f]")


class _FaultError(Exception):
    """Where bytes stop being a message."""

    code = "binary"

    def __init__(self, offset: int, expected: str, found: str) -> None:
        super().__init__(offset, expected, found)
        self.finding = error(self.code, Place(offset=offset), expected, found)


class _TooManyError(_FaultError):
    """Where bytes have more in them than is ever looked at."""

    code = "too-many"


def parse(data: bytes, name: str) -> Message:
    """Read bytes as the message of this full name.

    Raises:
      TuningFormatError: they are no such message; the finding has the offset, and no path.
    """
    if len(data) > LARGEST:
        raise TuningFormatError(error("too-large", Place(), f"at most {LARGEST} bytes", f"{len(data)} bytes"))
    made = message_class(name)
    if len(data) > _SMALL:
        fault = _fault(data, made.DESCRIPTOR)
        if fault:
            raise TuningFormatError(fault.finding)
    try:
        return made.FromString(data)
    except Exception as wrong:  # noqa: BLE001 - the library's own error, or that of its plain Python form
        fault = _fault(data, made.DESCRIPTOR) or _FaultError(0, f"a binary {name}", str(wrong))
    raise TuningFormatError(fault.finding)


def unknown_fields(message: Message) -> Iterator[str]:
    """Fields that the schema does not have, as words: "results.result.triton: field 12"."""
    if not _has_unknown(message):
        return
    unknown = module("unknown_fields").UnknownFieldSet
    for path, one in _all(message):
        for field in unknown(one):
            yield f"{path or message.DESCRIPTOR.name}: field {field.field_number}"


def _has_unknown(message: Message) -> bool:
    """Whether there is any: a question of bytes, which the library answers faster than a look at each message."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return bool(known.ByteSize() != message.ByteSize())


def strangeness(message: Message) -> int:
    """How unlikely it is that bytes were meant as this message: unknown fields, and texts with control characters."""
    unknown = module("unknown_fields").UnknownFieldSet if _has_unknown(message) else None
    count = 0
    for _, one in _all(message):
        count += len(unknown(one)) if unknown else 0
        for descriptor, value in one.ListFields():
            if descriptor.type == _STRING_TYPE and isinstance(value, str):
                count += bool(_CONTROL.search(value))
    return count


def _all(message: Message) -> Iterator[tuple[str, Message]]:
    """A message and all inside it, each with the names of the fields that lead to it."""
    left = [("", message)]
    while left:
        path, one = left.pop()
        yield path, one
        for descriptor, value in one.ListFields():
            if descriptor.type == _MESSAGE_TYPE and not descriptor.message_type.GetOptions().map_entry:
                name = f"{path}.{descriptor.name}" if path else descriptor.name
                left += ((name, inner) for inner in (value if _is_list(value) else (value,)))


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and not hasattr(value, "DESCRIPTOR")


def _fault(data: bytes, descriptor: Any) -> _FaultError | None:
    try:
        _Walk(data).message(0, len(data), descriptor, 0)
    except _FaultError as fault:
        return fault
    return None


class _Walk:
    """A look through bytes, field by field, up to the first that is not sound."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._fields = self._messages = 0

    def message(self, position: int, end: int, descriptor: Any, depth: int) -> None:
        """Look through one message."""
        self._messages += 1
        if self._messages > MOST_MESSAGES:
            raise _TooManyError(position, f"at most {MOST_MESSAGES} messages", "more")
        if depth > _DEEPEST:
            raise _FaultError(position, f"at most {_DEEPEST} messages inside each other", "more")
        groups: list[int] = []
        while position < end:
            tag = position
            number, kind, position = self._tag(position, end)
            if kind == _GROUP:
                groups.append(number)
            elif kind == _END:
                if not groups or groups.pop() != number:
                    raise _FaultError(tag, "a field", f"the end of group {number}, which has not begun")
            else:
                field = None if groups or descriptor is None else descriptor.fields_by_number.get(number)
                position = self._value(position, end, kind, field, depth)
        if groups:
            raise _FaultError(end, f"the end of group {groups[-1]}", "the end of the bytes")

    def _tag(self, position: int, end: int) -> tuple[int, int, int]:
        header, after = _number(self._data, position, end)
        self._fields += 1
        if self._fields > MOST_FIELDS:
            raise _TooManyError(position, f"at most {MOST_FIELDS} fields", "more")
        if not header >> 3 or header >> 32:
            raise _FaultError(position, "the tag of a field", f"{header:#x}")
        if header & 7 > _FIXED32:
            raise _FaultError(position, "a wire type from 0 to 5", str(header & 7))
        return header >> 3, header & 7, after

    def _value(self, position: int, end: int, kind: int, field: Any, depth: int) -> int:
        """Look at one value; returns where it ends."""
        if kind == _VARINT:
            return _number(self._data, position, end)[1]
        if kind in _FIXED:
            return _ends(position, position, _FIXED[kind], end, field)
        length, start = _number(self._data, position, end)
        stop = _ends(position, start, length, end, field)
        if field is not None and field.type == _MESSAGE_TYPE:
            self.message(start, stop, field.message_type, depth + 1)
        elif field is not None and field.type == _STRING_TYPE:
            _check_text(self._data, start, stop, field)
        return stop


def _ends(at: int, start: int, length: int, end: int, field: Any) -> int:
    if start + length > end:
        name = f" of {field.full_name}" if field is not None else ""
        raise _FaultError(at, f"{length} bytes{name}", f"{end - start} bytes up to the end of the message")
    return start + length


def _check_text(data: bytes, start: int, stop: int, field: Any) -> None:
    try:
        data[start:stop].decode()
    except UnicodeDecodeError as wrong:
        at = start + wrong.start
        raise _FaultError(at, f"UTF-8 in {field.full_name}", f"byte {data[at]:#04x}") from None


def _number(data: bytes, position: int, end: int) -> tuple[int, int]:
    try:
        value, after = varint(data[position : min(end, position + 10)], 0)
    except ValueError as wrong:
        raise _FaultError(position, "a number of at most 64 bits", str(wrong)) from None
    return value, position + after
