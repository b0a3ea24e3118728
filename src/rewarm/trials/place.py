"""Where the trials of a cache directory are kept: inside it, or where nothing can be written there, beside it.

Not promised: that what was kept in one place counts in the other, beyond the keys that are refused; nor a place at
all where the user may write nowhere.

    <root>/trials                                        where the directory may be written to and has room
    <default directory>/elsewhere/<16 hex of the root>   otherwise: another directory of the user's own

A read-only directory, baked into an image or mounted for many, is where an entry that ends the process would do so at
every start: no other start can take it away.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from rewarm.in_force import default_directory, temporary_directory
from rewarm.small_files import PRIVATE

FOLDER = "trials"
ELSEWHERE = "elsewhere"

# Less room than this, in bytes, and a mark may not fit: they grow to 64 KiB, and many processes make one each.
_ROOM = 1 << 20


def place_of(root: Path) -> Path:
    """The folder in which trials of the cache directory `root` are kept now. Its parent is there, if it can be."""
    inside = root / FOLDER
    if _may_be_written(root):
        return inside
    for base in (default_directory(), temporary_directory()):
        folder = base / ELSEWHERE
        if base != root and _is_made(base) and _is_made(folder):
            return folder / hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    return inside


def places_of(root: Path) -> tuple[Path, ...]:
    """All folders in which something may be known of the cache directory `root`."""
    return tuple(dict.fromkeys((root / FOLDER, place_of(root))))


def _may_be_written(folder: Path) -> bool:
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    with contextlib.suppress(OSError, AttributeError):
        room = os.statvfs(folder)
        # Some file systems do not say how large they are.
        return room.f_blocks == 0 or room.f_bavail * room.f_frsize >= _ROOM
    return True


def _is_made(folder: Path) -> bool:
    """Whether this folder is there or was made, and is the user's alone: others could accuse the innocent in it."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=PRIVATE.directory, parents=True, exist_ok=True)
        status = folder.lstat()
        mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        alone = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return stat.S_ISDIR(status.st_mode) and mine and alone and _may_be_written(folder)
    return False
