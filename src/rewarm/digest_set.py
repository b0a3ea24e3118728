"""A set of digests on disk: 8 bytes for each, in sixteen files, appended.

Not promised: memory for all of them. A file that has grown long is started anew, and what it held is forgotten.

    <folder>/<hex digit>   8 bytes for each digest that starts with this digit: what follows it

Races, and their worst outcome:

* two processes that append: 8 bytes go in at once. Where they do not (a network file system), or a disk takes a part
  of them, the file's length is no multiple of 8 and it is started anew by whoever adds the next.
* a file started anew beside an append: the append is lost.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rewarm.small_files import PRIVATE, Modes, append, make_folder, replace

_FILE_BYTES = 64 << 10
_ITEM = 8
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class DigestSet:
    """Digests of 64 hexadecimal digits. No method raises.

    Args:
      folder: where its files lie; it, and the folder above it, are made at the first digest.
      modes: the rights of what is made.
    """

    def __init__(self, folder: Path, modes: Modes = PRIVATE) -> None:
        self.folder = folder
        self._place = os.fspath(folder)  # a string: this is the way of every hit
        self._modes = modes
        self._files: dict[str, bytes] = {}
        self._added: set[str] = set()

    @property
    def was_read(self) -> bool:
        """Whether anything on disk was looked at."""
        return bool(self._files)

    def has(self, digest: str) -> bool:
        """Whether it is in the set; what others added since a file was read is not seen."""
        if digest in self._added:
            return True
        data = self._files.get(digest[0])
        if data is None:
            data = self._files[digest[0]] = self._read(digest[0])
        return _among(_item(digest), data)

    def add(self, digest: str) -> None:
        """Put it into the set."""
        if digest in self._added:
            return
        self._added.add(digest)
        path, item = self.folder / digest[0], _item(digest)
        with contextlib.suppress(OSError):  # read-only or full
            size = self._append(path, item)
            if size % _ITEM or size > _FILE_BYTES:
                replace(path, item, self._modes.file)

    def _read(self, name: str) -> bytes:
        try:
            descriptor = os.open(f"{self._place}/{name}", _READ)
        except OSError:
            return b""
        try:
            return os.read(descriptor, _FILE_BYTES)
        except OSError:  # a folder, a FIFO that somebody holds
            return b""
        finally:
            os.close(descriptor)

    def _append(self, path: Path, item: bytes) -> int:
        try:
            return append(path, item, self._modes.file)
        except FileNotFoundError:
            for folder in (self.folder.parent, self.folder):
                make_folder(folder, self._modes.directory)
            return append(path, item, self._modes.file)


def _item(digest: str) -> bytes:
    return bytes.fromhex(digest[1 : 1 + 2 * _ITEM])


def _among(item: bytes, data: bytes) -> bool:
    place = data.find(item)
    while place >= 0 and place % _ITEM:
        place = data.find(item, place + 1)
    return place >= 0
