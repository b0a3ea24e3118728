"""Bytes for plain values, framed so that no two structures give the same bytes.

Not promised: that a digest means the same to another version of Python. Bytecode differs between versions, so the
version is the first thing that is hashed.

    frame  := (length:u64le bytes)*
    scalar := tag:1B frame
"""

from __future__ import annotations

import functools
import re
import struct
import sys
from collections.abc import Callable
from types import EllipsisType, NoneType, NotImplementedType
from typing import Any

# Bump when the same value is to give another digest: a rule, an order or a tag changed.
FINGERPRINT_SCHEMA = 2

PYTHON = "{} {} {}".format(
    sys.implementation.name, sys.implementation.cache_tag, ".".join(str(part) for part in sys.version_info)
)


_LENGTH = struct.Struct("<Q").pack


def frame(*fields: bytes) -> bytes:
    """The fields, each behind its length."""
    return b"".join([part for field in fields for part in (_LENGTH(len(field)), field)])


def text(value: str) -> bytes:
    """A string as bytes, lone surrogates too."""
    return str.encode(value, "utf-8", "surrogatepass")


def said_text(value: object) -> bytes:
    """A name or docstring. Dataclasses put the text of their defaults into theirs, addresses in it."""
    return text(_ADDRESS.sub("", value)) if type(value) is str else b""


@functools.lru_cache(maxsize=1 << 12)
def texts(values: tuple[str, ...]) -> bytes:
    """Strings as one field."""
    return frame(*(text(value) for value in values))


def integer(value: int) -> bytes:
    """An integer of any size; a subclass's own methods are not asked."""
    return int.to_bytes(value, int.bit_length(value) // 8 + 1, "little", signed=True)


def floating(value: float) -> bytes:
    """The eight bytes: 0.0 and -0.0 differ, and so do the payloads of NaNs."""
    return struct.pack("<d", value)


def imaginary(value: complex) -> bytes:
    """Both halves, by their bytes."""
    return struct.pack("<dd", complex.real.__get__(value), complex.imag.__get__(value))


_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")
# Longer strings are not kept, in characters.
_SHORT = 80


@functools.lru_cache(maxsize=1 << 13)
def _string(value: str) -> bytes:
    # Names of attributes and types come again and again.
    data = text(value)
    return b"".join((b"s", _LENGTH(len(data)), data))


_SCALARS: dict[type, Callable[[Any], bytes]] = {
    str: lambda value: _string(value) if len(value) <= _SHORT else b"s" + frame(text(value)),
    int: lambda value: b"i" + frame(integer(value)),
    bool: lambda value: b"T" if value else b"F",
    float: lambda value: b"f" + floating(value),
    bytes: lambda value: b"b" + frame(value),
    complex: lambda value: b"c" + imaginary(value),
    NoneType: lambda _: b"N",
    EllipsisType: lambda _: b".",
    NotImplementedType: lambda _: b"!",
}


def scalar(value: object) -> bytes | None:
    """The bytes of a value of exactly a plain immutable type, or `None` for every other value."""
    made = _SCALARS.get(type(value))
    return None if made is None else made(value)
