"""The table of a store's totals: one small file with a row for each directory, read with one call at every put.

Not promised: that a row is right to the last entry; see `accounts.py`. It is derived and disposable: a row that is
missing or damaged means "not counted", and the directory is counted again.

    <root>/sizes := row{256}              each 40 bytes, little-endian
    row  := bytes:i64 entries:u32 changes:u32 lowest:f64 oldest:f64 sequence:u32 check:u32

`check` is the CRC-32 of what stands before it, started from the row's number, so a row that was never written, is torn
or stands in another's place shows. A table of another layout takes another name.

A row is one write of 40 bytes. Two processes that write the same row at the same moment: the later wins, and
`accounts.py` says how they keep out of each other's way.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from rewarm.small_files import Modes

NAME = "sizes"

_COUNT = 256
_ROW = struct.Struct("<qIIddI")
_CHECK = struct.Struct("<I")
_BYTES = _ROW.size + _CHECK.size
_ALL = _BYTES * _COUNT

# Rows are looked at in blocks, since at most puts only a few differ from what was read before.
_BLOCK = 16
_OPEN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

# With fewer rows than this counted, their mean says little of the others.
_FEW = 16


class Row(NamedTuple):
    """What is known of one directory.

    Attributes:
      size: bytes of its entries.
      entries: how many.
      changes: since it was last counted.
      lowest: no entry has a lower priority; infinite without entries.
      oldest: no entry was last used earlier, in seconds since the epoch; infinite without entries.
      sequence: goes up by one with every write, so that two looks tell whether somebody wrote in between.
    """

    size: int
    entries: int
    changes: int
    lowest: float
    oldest: float
    sequence: int


class Snapshot:
    """The whole table at one moment, in columns. A directory that is not counted has no size and nothing to evict."""

    __slots__ = ("counted", "entries", "lowest", "oldest", "raw", "sizes")

    def __init__(self) -> None:
        self.raw = b""
        self.sizes = [0] * _COUNT
        self.entries = [0] * _COUNT
        self.lowest = [math.inf] * _COUNT
        self.oldest = [math.inf] * _COUNT
        self.counted = [False] * _COUNT

    def after(self, raw: bytes) -> Snapshot:
        """The snapshot of a table whose bytes are `raw` by now; only what differs is taken apart."""
        if raw == self.raw:
            return self
        new = self.copy()
        new.raw = raw
        step = _BLOCK * _BYTES
        for start in range(0, _ALL, step):
            if raw[start : start + step] != self.raw[start : start + step]:
                new._take(start // _BYTES, self.raw)
        return new

    def copy(self) -> Snapshot:
        """Another one with the same rows, which may be changed."""
        new = Snapshot()
        new.raw = self.raw
        new.sizes, new.entries, new.counted = list(self.sizes), list(self.entries), list(self.counted)
        new.lowest, new.oldest = list(self.lowest), list(self.oldest)
        return new

    def _take(self, first: int, before: bytes) -> None:
        for index in range(first, first + _BLOCK):
            place = slice(_offset(index), _offset(index) + _BYTES)
            if self.raw[place] != before[place]:
                self.set(index, _decode(self.raw[place], index))

    def set(self, index: int, row: Row | None) -> None:
        """Give one directory another row."""
        self.counted[index] = row is not None
        row = row or _EMPTY
        self.sizes[index], self.entries[index] = row.size, row.entries
        self.lowest[index], self.oldest[index] = row.lowest, row.oldest

    def uncounted(self) -> list[int]:
        """The directories that are not counted."""
        return [index for index, counted in enumerate(self.counted) if not counted]

    def total(self) -> tuple[int, int]:
        """Bytes and entries of the whole store; while some directories are not counted, as if they were the mean."""
        size, entries, counted = sum(self.sizes), sum(self.entries), sum(self.counted)
        if _FEW <= counted < _COUNT:
            return size * _COUNT // counted, entries * _COUNT // counted
        return size, entries


_EMPTY = Row(0, 0, 0, math.inf, math.inf, 0)


class Totals:
    """The table of one store. It is opened for each call: somebody may have removed the directory meanwhile."""

    def __init__(self, root: str, modes: Modes) -> None:
        self._path = f"{root}/{NAME}"
        self._modes = modes
        self._last = Snapshot()

    def read(self) -> Snapshot:
        """The table as it is; one that cannot be read has nothing counted."""
        last = self._last  # another thread may put a newer one there; ours is as good to start from
        self._last = last.after(self._bytes(_ALL, 0))
        return self._last

    def row(self, index: int) -> Row | None:
        """One row as it is; `None` when the directory is not counted."""
        return _decode(self._bytes(_BYTES, _offset(index)), index)

    def write(self, index: int, row: Row) -> None:
        """Replace one row; the file is made when it is not there.

        Raises:
          OSError: it cannot be written.
        """
        self._write(_encode(row, index), _offset(index))

    def fill(self, indexes: Iterable[int]) -> None:
        """Write down that these directories have nothing in them, unless somebody wrote something else meanwhile.

        Raises:
          OSError: it cannot be written.
        """
        descriptor = self._open()
        try:
            for index in indexes:
                if _decode(_read(descriptor, _BYTES, _offset(index)), index) is None:
                    _write(descriptor, _encode(_EMPTY, index), _offset(index))
        finally:
            os.close(descriptor)

    def _bytes(self, length: int, offset: int) -> bytes:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | _OPEN)
        except OSError:
            return b""
        try:
            return _read(descriptor, length, offset)
        except OSError:  # no regular file
            return b""
        finally:
            with contextlib.suppress(OSError):  # the bytes are there, whatever a network file system says to this
                os.close(descriptor)

    def _write(self, data: bytes, offset: int) -> None:
        descriptor = self._open()
        try:
            _write(descriptor, data, offset)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | _OPEN)
        except FileNotFoundError:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _OPEN, self._modes.file)
        if self._modes.file & 0o077:
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, self._modes.file)
        return descriptor


# Not `pread` and `pwrite`, which not every system has: each descriptor serves one call of one thread.
def _read(descriptor: int, length: int, offset: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, length)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    os.lseek(descriptor, offset, os.SEEK_SET)
    os.write(descriptor, data)


def _offset(index: int) -> int:
    return index * _BYTES


def _encode(row: Row, index: int) -> bytes:
    size, entries = max(row.size, 0), max(row.entries, 0)
    packed = _ROW.pack(size, entries, row.changes, row.lowest, row.oldest, row.sequence & 0xFFFFFFFF)
    return packed + _CHECK.pack(zlib.crc32(packed, index))


def _decode(raw: bytes, index: int) -> Row | None:
    if len(raw) != _BYTES or zlib.crc32(raw[: -_CHECK.size], index) != _CHECK.unpack_from(raw, _ROW.size)[0]:
        return None
    row = Row(*_ROW.unpack_from(raw))
    return row if row.size >= 0 and not math.isnan(row.lowest) and not math.isnan(row.oldest) else None
