"""The little of protocol buffers' encoding that tests need to make messages of their own, compile options above all."""

from __future__ import annotations

import struct
from typing import Any

from rewarm.identity import CanonicalOptions, canonical_options
from rewarm.identity.option_table import OptionField, flags
from rewarm.identity.wire import BYTES, FIXED32, FIXED64, VARINT

BUILD, OVERRIDES, DEBUG, DEVICE_ASSIGNMENT = 3, 7, 3, 9
UNKNOWN = 100_000  # a number without a row
NUMBERS = {name: row.number for name, row in flags().items()}


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
        return tag(number, VARINT) + varint(value % 2**64)  # negative ones as XLA writes them
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return tag(number, BYTES) + varint(len(data)) + data


def fixed(number: int, data: bytes) -> bytes:
    """A field of four or eight bytes."""
    return tag(number, {4: FIXED32, 8: FIXED64}[len(data)]) + data


def packed(number: int, values: list[int]) -> bytes:
    """A repeated field of numbers in one piece."""
    return field(number, b"".join(varint(value % 2**64) for value in values))


def encoded(row: OptionField, value: Any) -> bytes:
    """One field with this plain value; whole numbers of a list are packed."""
    if row.many == "map":
        return b"".join(field(row.number, field(1, key) + field(2, one)) for key, one in value.items())
    if row.many == "repeated":
        if row.type in ("string", "message"):
            return b"".join(field(row.number, one) for one in value)
        return packed(row.number, value)
    if row.type in ("float", "double"):
        return fixed(row.number, struct.pack("<f" if row.type == "float" else "<d", value))
    return field(row.number, value)


def message(*, debug: bytes = b"", build: bytes = b"", rest: bytes = b"", overrides: bytes = b"") -> bytes:
    """A `CompileOptionsProto` with these debug options, build options, further fields and overrides."""
    return rest + field(BUILD, build + field(DEBUG, debug)) + overrides


def override(name: str, value: bool | int | float | str) -> bytes:
    """One entry of the map `env_option_overrides`."""
    if isinstance(value, str):
        inner = field(1, value)
    elif isinstance(value, bool):
        inner = field(2, int(value))
    elif isinstance(value, int):
        inner = field(3, value)
    else:
        inner = fixed(4, struct.pack("<d", value))
    return field(OVERRIDES, field(1, name) + field(2, inner))


def of(**parts: bytes) -> CanonicalOptions:
    """The canonical form of such a message."""
    return canonical_options(message(**parts))


def counts(one: CanonicalOptions) -> tuple[Any, ...]:
    """What goes into the key."""
    return one.canonical, one.inputs


def flag(name: str, value: Any) -> bytes:
    """The flag as a field of `DebugOptions`."""
    return encoded(flags()[name], value)
