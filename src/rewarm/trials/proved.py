"""The entries that were loaded and run on this host, so that they need no mark any more.

Not promised: memory for all of them. What is forgotten is marked and proved again at its next load.

    <root>/trials/<host>/<hex digit>   8 bytes for each entry whose digest starts with this digit: what follows it

An entry is known by the digest that ends its envelope, not by its key: another entry under the same key (made on
another host, rebuilt, changed by somebody) has proved nothing.

Races, and their worst outcome:

* two processes that append: 8 bytes go in at once. Where they do not (a network file system), or a disk takes a part
  of them, the file's length is no multiple of 8 and it is started anew by whoever adds the next.
* a file started anew beside an append: the append is lost, and that entry is proved again.
* a folder removed beside a start: it was not used for 30 days; its entries are proved again.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from rewarm.small_files import Modes, append, make_folder, replace

_SHARD_BYTES = 64 << 10
_ITEM = 8
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_HOST = re.compile(r"[0-9a-f]{16}")

# A host's folder is said to be in use once a day, and is removed by others after 30 days without.
_RENEW_AFTER = 86_400.0
_UNUSED_AFTER = 30 * 86_400.0
_REMOVED_AT_ONCE = 4


class Proved:
    """What was proved on one host, in one cache directory. No method raises.

    Args:
      folder: `<root>/trials`.
      host: 16 hexadecimal digits.
      modes: the rights of what is made.
    """

    def __init__(self, folder: Path, host: str, modes: Modes) -> None:
        self._folder = folder
        self._own = folder / host
        self._place = os.fspath(self._own)  # a string: this is the way of every hit
        self._modes = modes
        self._shards: dict[str, bytes] = {}
        self._added: set[str] = set()

    def has(self, content: str) -> bool:
        """Whether the entry with this digest (64 hexadecimal digits) was proved."""
        if content in self._added:
            return True
        shard = self._shards.get(content[0])
        if shard is None:
            shard = self._shards[content[0]] = self._read(content[0])
        return _among(_item(content), shard)

    def add(self, content: str) -> None:
        """This entry was loaded and run."""
        if content in self._added:
            return
        self._added.add(content)
        path, item = self._own / content[0], _item(content)
        with contextlib.suppress(OSError):  # read-only or full: proved again next time
            size = self._append(path, item)
            if size % _ITEM or size > _SHARD_BYTES:
                replace(path, item, self._modes.file)

    def remove_unused_hosts(self) -> None:
        """Remove folders that hosts have not used for 30 days; a few at once, the rest at the next start."""
        removed = 0
        with contextlib.suppress(OSError), os.scandir(self._folder) as items:
            for item in items:
                if removed < _REMOVED_AT_ONCE and _HOST.fullmatch(item.name) and item.name != self._own.name:
                    removed += _remove_if_unused(item)

    def _read(self, shard: str) -> bytes:
        with contextlib.suppress(OSError):
            if not self._shards and time.time() - self._own.stat().st_mtime > _RENEW_AFTER:
                os.utime(self._own)
        try:
            descriptor = os.open(f"{self._place}/{shard}", _READ)
        except OSError:
            return b""
        try:
            return os.read(descriptor, _SHARD_BYTES)
        except OSError:  # a folder, a FIFO that somebody holds
            return b""
        finally:
            os.close(descriptor)

    def _append(self, path: Path, item: bytes) -> int:
        try:
            return append(path, item, self._modes.file)
        except FileNotFoundError:
            for folder in (self._folder, self._own):
                make_folder(folder, self._modes.directory)
            return append(path, item, self._modes.file)


def _item(content: str) -> bytes:
    return bytes.fromhex(content[1 : 1 + 2 * _ITEM])


def _among(item: bytes, shard: bytes) -> bool:
    place = shard.find(item)
    while place >= 0 and place % _ITEM:
        place = shard.find(item, place + 1)
    return place >= 0


def _remove_if_unused(item: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        if time.time() - item.stat(follow_symlinks=False).st_mtime < _UNUSED_AFTER:
            return False
        with os.scandir(item.path) as shards:
            for shard in shards:
                os.unlink(shard.path)  # noqa: PTH108
        os.rmdir(item.path)  # noqa: PTH106
        return True
    return False
