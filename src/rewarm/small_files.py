"""Small files: memos that are written whole, and journals of lines that are bounded.

Not promised: that a file survives a power cut; nothing is synced. What is kept here can be worked out again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import NamedTuple

# Without O_NONBLOCK a FIFO under a file's name would hold the program for ever.
_CAREFUL = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | _CAREFUL
_READ = os.O_RDONLY | _CAREFUL


class Modes(NamedTuple):
    """With which rights files and folders are made, whatever the umask."""

    directory: int
    file: int


PRIVATE = Modes(0o700, 0o600)

# A group's: what is made inside belongs to the folder's group too.
SHARED = Modes(0o2770, 0o660)


def modes_in(folder: Path) -> Modes:
    """The rights of what is made in a folder: a group's where the group may write to the folder."""
    with contextlib.suppress(OSError):
        if folder.stat().st_mode & stat.S_IWGRP:
            return SHARED
    return PRIVATE


def replace(path: Path, data: bytes, mode: int | None = None, *, durable: bool = False) -> None:
    """Make `data` the content of `path`: who reads finds the old content or the new. Of two that write the later wins.

    The file has this `mode` whatever the umask; by default that of its folder's files (`modes_in`). A `durable` one is
    whole after a power cut, too, once its folder is synced.

    Raises:
      OSError: it cannot be written. Nothing is left behind.
    """
    mode = modes_in(path.parent).file if mode is None else mode
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            _give_mode(descriptor, mode)
            file.write(data)
            if durable:
                file.flush()
                os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def make_folder(path: Path, mode: int | None = None) -> None:
    """Make one folder, whose parent is there, with this `mode` whatever the umask; one that is there stays as it is.

    By default it has the rights that its parent gives (`modes_in`).

    Raises:
      OSError: it cannot be made; `FileExistsError` where something else has its name.
    """
    mode = modes_in(path.parent).directory if mode is None else mode
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        if mode & 0o077:
            path.chmod(mode)


def append(path: Path, line: bytes, mode: int | None = None) -> int:
    """Add a line with one write, which does not mix with another's on a local disk; returns the file's size in bytes.

    Raises:
      OSError: it cannot be written, or what lies there is no regular file.
    """
    mode = modes_in(path.parent).file if mode is None else mode
    descriptor = os.open(path, _APPEND, mode)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file", str(path))
        if status.st_size == 0:
            _give_mode(descriptor, mode)
        os.write(descriptor, line)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def contents(path: Path, limit: int) -> bytes:
    """The last `limit` bytes of a file; a FIFO under its name gives nothing.

    Raises:
      OSError: it cannot be read.
    """
    descriptor = os.open(path, _READ)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        # Of a directory no file object can be made: the descriptor stays ours to close.
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            if status.st_size > limit:
                file.seek(status.st_size - limit)
            return file.read(limit)
    finally:
        os.close(descriptor)


def shorten(path: Path, limit: int) -> None:
    """Keep the newest lines of a journal, half of `limit` bytes; a line that another adds meanwhile can be lost.

    Raises:
      OSError: it cannot be read or written.
    """
    kept: list[bytes] = []
    room = limit // 2
    for line in reversed(contents(path, 2 * limit).splitlines(keepends=True)):
        room -= len(line)
        if room < 0:
            break
        kept.insert(0, line)
    replace(path, b"".join(kept))


def keep_newest(folder: Path, suffix: str, most: int) -> None:
    """Where a folder has more than `most` files with this ending, remove the oldest, down to nine tenths of that.

    Raises:
      OSError: the folder cannot be read, or a file not be removed.
    """
    with os.scandir(folder) as items:
        found = [item for item in items if item.name.endswith(suffix)]
    if len(found) > most:
        found.sort(key=lambda item: item.stat(follow_symlinks=False).st_mtime)
        for item in found[: len(found) - most * 9 // 10]:
            Path(item).unlink()


def _give_mode(descriptor: int, mode: int) -> None:
    """Undo what a umask took away, where others are meant to have rights. Only the owner may, who has just made it."""
    if mode & 0o077:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, mode)
