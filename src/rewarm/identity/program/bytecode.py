"""Reading the outer form of MLIR bytecode: its strings, and the section that holds the operations.

Not promised: anything of what the sections mean; no operation, type or attribute is decoded.

    bytecode := "ML\\xefR" version:varint producer:cstring section*
    section  := id:u8 (0x80: aligned) length:varint [alignment:varint 0xcb*] data

Format: https://mlir.llvm.org/docs/BytecodeFormat/
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Set
from typing import NamedTuple

_MAGIC = b"ML\xefR"
_ALIGNED = 0x80
_LARGE = 4 << 20
_ODD = bytes(range(1, 256, 2))
_STRINGS, _ATTRIBUTES, _OPERATIONS = 0, 2, 4


def among_strings(bytecode: bytes, wanted: Set[bytes]) -> set[bytes]:
    """Those of `wanted` (without a NUL at the end) that are strings of the module, and perhaps some that only look so.

    Raises:
      ValueError: the bytes are no MLIR bytecode.
    """
    section = _section(bytecode, _STRINGS)
    found = set(section[_first_string(section) :].split(b"\0")) & wanted
    # Splitting breaks strings with a NUL inside, so such are looked for as they are.
    return found | {text for text in wanted if b"\0" in text and text in section}


def _first_string(section: bytes) -> int:
    """Where the strings start: the section is a count, as many lengths, and the strings, each with a NUL at its end."""
    count, position = _varint(section, 0)
    if position + count > len(section):
        raise ValueError("there are more strings than bytes")
    if not section[position : position + count].translate(None, _ODD):
        return position + count  # the way of nearly all programs: an odd byte is a whole number
    for _ in range(count):
        _, position = _varint(section, position)
    return position


class Shape(NamedTuple):
    """What two programs can be compared by without reading either: digests of 32 hexadecimal digits.

    Attributes:
      structure: of how the operations hang together. Programs that differ in constants, shapes or element types alone
        mostly have the same one, since the section of operations names attributes and types by number.
      attributes: of the attributes and types, or their length where they are large. Programs that differ in the order
        of their operations alone mostly have the same one.
      operations: bytes of the section of operations.
    """

    structure: str
    attributes: str
    operations: int


def shape_of(bytecode: bytes) -> Shape:
    """The shape of a program in MLIR bytecode.

    Raises:
      ValueError: the bytes are no MLIR bytecode.
    """
    operations, attributes = _section(bytecode, _OPERATIONS), _section(bytecode, _ATTRIBUTES)
    large = len(attributes) > _LARGE  # megabytes of constants would take longer than an explanation may
    return Shape(_digest(operations), f"{len(attributes)} bytes" if large else _digest(attributes), len(operations))


def _digest(section: bytes) -> str:
    return hashlib.sha256(section).hexdigest()[:32]


def _section(bytecode: bytes, wanted: int) -> bytes:
    for identifier, start, length in _sections(bytecode):
        if identifier == wanted:
            return bytecode[start : start + length]
    raise ValueError(f"no section {wanted} in the bytecode")


def _sections(bytecode: bytes) -> Iterator[tuple[int, int, int]]:
    if bytecode[:4] != _MAGIC:
        raise ValueError("not MLIR bytecode")
    _, position = _varint(bytecode, len(_MAGIC))
    position = bytecode.index(b"\0", position) + 1
    while position < len(bytecode):
        identifier = bytecode[position]
        length, position = _varint(bytecode, position + 1)
        if identifier & _ALIGNED:
            alignment, position = _varint(bytecode, position)
            position += -position % max(alignment, 1)
        if position + length > len(bytecode):
            raise ValueError("a section is longer than the bytecode")
        yield identifier & ~_ALIGNED, position, length
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number whose first byte says by its trailing zeros how many bytes follow."""
    if position >= len(data):
        raise ValueError("the bytecode ends within a number")
    first = data[position]
    if first == 0:
        end = position + 9
        value = int.from_bytes(data[position + 1 : end], "little")
    else:
        more = (first & -first).bit_length() - 1
        end = position + 1 + more
        value = int.from_bytes(data[position:end], "little") >> (more + 1)
    if end > len(data):
        raise ValueError("the bytecode ends within a number")
    return value, end
