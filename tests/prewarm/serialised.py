"""Serialised executables, taken apart as far as their forms are known: what they hold, and for which processor.

    varint n, n bytes            a message of the runtime's, about shapes and names
    a protocol buffer            CPU; GPU of JAX 0.9
    records of Riegeli's         TPU; GPU of JAX 0.11 and later; within a protocol buffer in 0.10. Records hold others.

    records                      blocks of 64 KiB, each with a header of 24 bytes, and in them chunks: a header of 40
                                 bytes and data, plain or in Snappy's form

Formats: https://github.com/google/riegeli/blob/master/doc/riegeli_records_file_format.md;
https://github.com/google/snappy/blob/main/format_description.txt; ELF: the System V ABI; where NVIDIA's say which
processor: cubins that ptxas 12 and 13 made for known ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from rewarm.identity import wire

RIEGELI = b"\x83\xafp\xd1\r\x88J?"
_BLOCK, _OF_BLOCK, _OF_CHUNK = 1 << 16, 24, 40
_ELF = b"\x7fELF\x02\x01"
X86, ARM, CUDA = 62, 183, 190


class Object(NamedTuple):
    """An ELF file.

    Attributes:
      machine: `X86`, `ARM`, `CUDA`.
      processor: of CUDA: 90 for sm_90.
      sections: names.
    """

    machine: int
    processor: int
    sections: tuple[str, ...]


def body(executable: bytes) -> bytes:
    """What comes behind the runtime's message.

    Raises:
      ValueError: there is no such message.
    """
    length, start = wire.varint(executable, 0)
    list(wire.fields(executable[start : start + length]))
    return executable[start + length :]


def objects(executable: bytes) -> list[Object]:
    """The ELF files in an executable; each is whole.

    Raises:
      ValueError: it is no executable of a form that is known, or an ELF file in it is damaged.
    """
    return [_object(one) for one in _leaves(body(executable)) if one.startswith(_ELF)]


def _leaves(data: bytes) -> Iterator[bytes]:
    """What is in records and messages and is neither."""
    if data.startswith(RIEGELI):
        for record in records(data):
            yield from _leaves(record)
        return
    try:
        inside = [] if data.startswith(_ELF) else [one for one in wire.fields(data) if one.kind == wire.BYTES]
    except ValueError:
        inside = []
    if not inside:
        yield data
    for field in inside:
        yield from _leaves(field.data)


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file of Riegeli's.

    Raises:
      ValueError: it is none, or does not end where its last chunk does.
    """
    if not data.startswith(RIEGELI):
        raise ValueError("no records")
    stream = b"".join(data[at + _OF_BLOCK : at + _BLOCK] for at in range(0, len(data), _BLOCK))
    at = 0
    while at < len(stream):
        if len(stream) - at < _OF_CHUNK:
            raise ValueError("a chunk's header is cut")
        size, _, kind, decoded = struct.unpack_from("<QQQQ", stream, at + 8)
        chunk = stream[at + _OF_CHUNK : at + _OF_CHUNK + size]
        if len(chunk) < size:
            raise ValueError("a chunk is cut")
        if kind & 0xFF == ord("r"):
            yield from _of_chunk(chunk, kind >> 8, decoded)
        elif kind & 0xFF != ord("s"):
            raise ValueError("a chunk of another kind")
        at += max(_OF_CHUNK + size, kind >> 8)  # each record has an address of its own


def _of_chunk(chunk: bytes, count: int, decoded: int) -> Iterator[bytes]:
    length, start = wire.varint(chunk, 1)
    unpack = {0: bytes, ord("s"): _snappy}[chunk[0]]
    sizes, values = unpack(chunk[start : start + length]), unpack(chunk[start + length :])
    at = place = 0
    for _ in range(count):
        size, place = wire.varint(sizes, place)
        yield values[at : at + size]
        at += size
    if (at, len(values)) != (decoded, decoded):
        raise ValueError("a chunk does not hold its records")


def _snappy(data: bytes) -> bytes:
    """Riegeli says the length once more before the form that says it itself."""
    length, at = wire.varint(data, 0)
    again, at = wire.varint(data, at)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            size = (tag >> 2) + 1
            if size > 60:
                more = size - 60
                size, at = int.from_bytes(data[at : at + more], "little") + 1, at + more
            out += data[at : at + size]
            at += size
            continue
        if tag & 3 == 1:
            size, back, at = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[at], at + 1
        else:
            width = 2 if tag & 3 == 2 else 4
            size, back, at = (tag >> 2) + 1, int.from_bytes(data[at : at + width], "little"), at + width
        for _ in range(size):
            out.append(out[-back])
    if not length == again == len(out):
        raise ValueError("what was packed is cut")
    return bytes(out)


def _object(data: bytes) -> Object:
    machine, abi = struct.unpack_from("<H", data, 18)[0], data[8]
    table, flags = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<I", data, 48)[0]
    size, count, names = struct.unpack_from("<HHH", data, 58)
    if table + size * count > len(data):
        raise ValueError("the table of sections lies outside")
    rows = [struct.unpack_from("<IIQQQQ", data, table + size * number) for number in range(count)]
    for _, kind, _, _, offset, length in rows:
        if kind != 8 and offset + length > len(data):  # NOBITS has no bytes
            raise ValueError("a section lies outside")
    texts = data[rows[names][4] : rows[names][4] + rows[names][5]] if count else b""
    said = tuple(texts[row[0] : texts.index(b"\0", row[0])].decode() for row in rows)
    number = (flags >> 8 if abi >= 8 else flags) & 0xFF
    return Object(machine, number if machine == CUDA else 0, said)
