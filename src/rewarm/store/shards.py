"""The 256 directories of a store: what lies in one, and the lock on one.

Not promised: that whoever changes a directory holds its lock. No verb waits for a lock; it is a courtesy between
those that keep the books (see `accounts.py`), and everything holds without it.

The lock is a `flock` on the directory itself, so there is no lock file to make, to give rights on, or to remove. It
is only ever asked for without waiting. A process that is stopped, or dies, while it holds one costs the others
nothing but the exactness that `accounts.py` describes. Where the file system has no such locks (on NFS a directory
cannot be locked), everybody does as if they had it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rewarm.store.contract import EntryInfo, is_key
from rewarm.store.files import is_temporary

try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
except ImportError:  # not a POSIX system
    CAN_LOCK = False
else:
    CAN_LOCK = True

SHARDS = tuple(f"{number:02x}" for number in range(256))

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


class Listing(NamedTuple):
    """What lies in one directory.

    Attributes:
      entries: the entries, in no order.
      temporaries: names of files that are being written, or were, with their mtimes.
    """

    entries: list[EntryInfo]
    temporaries: list[tuple[str, float]]


def shard_of(key: str) -> int:
    """The number of the directory that a key's entry lies in."""
    return int(key[:2], 16)


def list_shard(root: str, index: int) -> Listing:
    """Look one directory over; one that is not there, or is another's alone, has nothing in it.

    Raises:
      OSError: it cannot be listed.
    """
    listing, name = Listing([], []), SHARDS[index]
    try:
        items = os.scandir(f"{root}/{name}")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return listing
    with items:
        for item in items:
            if (info := entry_info(item, name)) is not None:
                listing.entries.append(info)
            elif is_temporary(item.name):
                with contextlib.suppress(OSError):
                    listing.temporaries.append((item.name, item.stat(follow_symlinks=False).st_mtime))
    return listing


def absent(root: str, indexes: Iterable[int]) -> list[int]:
    """Which of these directories are not there.

    Raises:
      OSError: `root` cannot be listed.
    """
    there = {path.name for path in Path(root).iterdir()}
    return [index for index in indexes if SHARDS[index] not in there]


def entry_info(item: os.DirEntry[str], shard: str) -> EntryInfo | None:
    """The entry that `item` of the directory `shard` is, or `None` for what is no entry."""
    if not (is_key(item.name) and item.name.startswith(shard) and is_file(item)):
        return None
    try:
        status = item.stat(follow_symlinks=False)
    except OSError:  # removed since
        return None
    return EntryInfo(item.name, status.st_size, status.st_mtime)


def is_file(item: os.DirEntry[str]) -> bool:
    """Whether it is a regular file, itself and not through a link."""
    return item.is_file(follow_symlinks=False)


@contextlib.contextmanager
def lock(root: str, index: int) -> Iterator[bool]:
    """The lock on one directory, for as long as the block runs, without waiting; yields whether we have it."""
    descriptor, held = _try_lock(f"{root}/{SHARDS[index]}")
    try:
        yield held
    finally:
        if descriptor is not None:
            # Given back before it is closed: a child that was forked meanwhile has the descriptor too.
            with contextlib.suppress(OSError):
                flock(descriptor, LOCK_UN)
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _try_lock(folder: str) -> tuple[int | None, bool]:
    if not CAN_LOCK:
        return None, True
    try:
        descriptor = os.open(folder, _DIRECTORY)
    except OSError:  # nothing there that could be guarded
        return None, True
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError as error:
        return descriptor, error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, True
