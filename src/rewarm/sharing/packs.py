"""Packs: the small entries of a plan in a few blobs, so that a start far from its remote is a few requests.

Not promised: that a pack holds what a plan says, or anything that can be used. Its index names bytes and proves
nothing: each entry in it is in the form in which it lies in the remote by itself (`trust/frame.py`), and is checked as
ever.

    <namespace>/packs/<32 hex>       named by its content, or a head, named as a plan is

    pack  := "RWPK" version:u8 index_len:u32le index blob*
    index := [[64 hex key, length of its blob], ...] as JSON, in the order of the blobs

The head of a plan holds the first of its entries, and is asked for together with it, before anybody knows what is in
it. Of all other packs the plan says which entry is in which, so they come one round trip later.

Entries stay where they are, and what a pack holds it holds once more: so only small ones go into packs, whose requests
cost more than their bytes. A pack is not changed, but for a head, which another run may replace: what is missing in it
then is fetched by itself. What no plan has a use for goes by its age (`gc --remote`).
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Iterator

from rewarm.store.contract import is_key

FOLDER = "packs"
MAGIC = b"RWPK"
VERSION = 1

# Of one pack, in bytes: it comes within one deadline over a slow line, and the program can begin with the first.
LARGEST = 1 << 20

# Of a head, in bytes: what a program uses up while the other packs are on their way.
_HEAD = 256 << 10

# Of one entry in a pack, in bytes.
LARGEST_ENTRY = 64 << 10

# Of one plan; so a process has at most so many MiB of packs in memory.
MOST = 16

# Fewer entries than this are not worth a pack.
FEWEST = 8

_PREFIX = struct.Struct("<4sBI")
_INDEX_LINE = 80
_NAME = re.compile("[0-9a-f]{32}")


def is_name(text: object) -> bool:
    """Whether this is the name of a pack within its folder."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def name_of(pack: bytes) -> str:
    """The name of a pack within its folder."""
    return hashlib.sha256(pack).hexdigest()[:32]


def divided(blobs: Iterable[tuple[str, bytes]], *, head: bool) -> Iterator[dict[str, bytes]]:
    """The blobs of entries, by key, as they go into one pack each; too large ones into none. At most `MOST` packs, the
    first of them small if it is a `head`."""
    part: dict[str, bytes] = {}
    size, number = _PREFIX.size, 0
    for key, blob in blobs:
        if len(blob) > LARGEST_ENTRY:
            continue
        if size + len(blob) + _INDEX_LINE > (_HEAD if head and number == 0 else LARGEST):
            yield part
            part, size, number = {}, _PREFIX.size, number + 1
            if number == MOST:
                return
        part[key] = blob
        size += len(blob) + _INDEX_LINE
    if part:
        yield part


def pack(blobs: dict[str, bytes]) -> bytes:
    """The bytes of one pack."""
    index = json.dumps([[key, len(blob)] for key, blob in blobs.items()], separators=(",", ":")).encode("ascii")
    return b"".join((_PREFIX.pack(MAGIC, VERSION, len(index)), index, *blobs.values()))


def unpack(data: bytes) -> dict[str, bytes]:
    """What a pack says it holds, by key, NOT verified; nothing where it is none, or of another version."""
    try:
        magic, version, length = _PREFIX.unpack_from(data)
        if (magic, version) != (MAGIC, VERSION):
            return {}
        rows = json.loads(data[_PREFIX.size : _PREFIX.size + length])
        return dict(_blobs(rows, data, _PREFIX.size + length))
    except (struct.error, ValueError, TypeError, RecursionError):
        return {}


def _blobs(rows: list[list[object]], data: bytes, start: int) -> Iterator[tuple[str, bytes]]:
    for key, length in rows:
        if not (isinstance(key, str) and is_key(key) and type(length) is int and 0 < length <= len(data) - start):
            return
        yield key, data[start : start + length]
        start += length
