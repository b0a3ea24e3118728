"""Entries damaged on purpose: cut, extended, with bits turned over, emptied, full of zeros. Pure, but for `replace`."""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
from pathlib import Path

_PREFIX = struct.Struct("<4sBI")
_DIGEST = 32

REGIONS = ("anywhere", "magic", "version", "header length", "header", "sections", "digest")
BITS = (1, 2, 8)


def region(data: bytes, name: str) -> range:
    """Where a part of an entry lies, by the format in `rewarm.envelope.format`."""
    _, _, head = _PREFIX.unpack_from(data)
    start, end = _PREFIX.size + head, len(data) - _DIGEST
    return {
        "anywhere": range(len(data)),
        "magic": range(4),
        "version": range(4, 5),
        "header length": range(5, _PREFIX.size),
        "header": range(_PREFIX.size, start),
        "sections": range(start, end),
        "digest": range(end, len(data)),
    }[name]


def flipped(data: bytes, where: range, bits: int, choice: random.Random) -> bytes:
    """`data` with that many different bits of one part turned over."""
    changed = bytearray(data)
    for bit in choice.sample(range(8 * len(where)), bits):
        changed[where[bit // 8]] ^= 1 << bit % 8
    assert changed != data
    return bytes(changed)


def cut(data: bytes, length: int) -> bytes:
    """The first `length` bytes."""
    assert length < len(data)
    return data[:length]


def extended(data: bytes, choice: random.Random) -> bytes:
    """With garbage behind it, or the start of itself, or zeros."""
    more = choice.choice((choice.randbytes(choice.randrange(1, 5000)), data[: choice.randrange(1, 99)], bytes(512)))
    return data + more


def unwritten(data: bytes, start: int) -> bytes:
    """What a file system leaves that knew the length before a power cut and not yet the data: zeros from `start` on."""
    changed = data[:start] + bytes(len(data) - start)
    assert changed != data
    return changed


def replace(path: Path, data: bytes) -> None:
    """Put `data` in the place of whatever lies at `path`, as a file of its own."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
