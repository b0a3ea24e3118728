"""Folders and files of a managed place, looked at from outside: whose they are, and what goes out of XLA's sight.

Not promised: that access lists, or the folders above the cache directory, let nobody else in; see `store/access.py`.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from rewarm import small_files
from rewarm.autotune import checked
from rewarm.autotune.formats import files
from rewarm.identity import wire
from rewarm.small_files import Modes

# A folder whose mtime is younger than this, in seconds, may change again without one that shows it.
_SETTLED = 2.0


class UnusableError(Exception):
    """A place cannot be used, for the reason in the words."""


def usable(folder: Path, *, shared: bool) -> bool:
    """Whether a folder can be written to; one's own is made private.

    Raises:
      UnusableError: it is no folder, or others may write to it.
    """
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise UnusableError(f"{folder} is {files.kind_of(status.st_mode)}, and was to be a folder")
    if not shared and hasattr(os, "geteuid"):
        if status.st_uid not in (os.geteuid(), 0):
            raise UnusableError(f"{folder} belongs to uid {status.st_uid}")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            folder.chmod(stat.S_IMODE(status.st_mode) & 0o755)
    if not os.access(folder, os.R_OK | os.X_OK):
        raise UnusableError(f"{folder} cannot be read")
    return os.access(folder, os.W_OK)


def no_kernels(path: Path) -> str:
    """Why a file is no kernel cache, as far as that is seen from outside; "" where nothing says so."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        return f"expected a regular file, found {files.kind_of(status.st_mode)}"
    if hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0) and not status.st_mode & stat.S_IWGRP:
        return f"expected a file of one's own, found one of uid {status.st_uid}"
    try:
        found = [one.number for one in wire.fields(path.read_bytes())]
    except (OSError, ValueError) as wrong:
        return f"expected a binary message, found none ({wrong})"
    return "" if found else "expected a binary message, found an empty file"


def mtimes(directory: Path) -> tuple[tuple[str, int], ...]:
    """The folders that hold results, and their mtimes in nanoseconds: a file that is renamed into one changes it."""
    found = [("", os.lstat(directory).st_mtime_ns)]
    with os.scandir(directory) as items:
        for one in items:
            if one.is_dir(follow_symlinks=False) and one.name != checked.TEMPORARY:
                found.append((one.name, one.stat(follow_symlinks=False).st_mtime_ns))
    return tuple(sorted(found))


def is_settled(folders: tuple[tuple[str, int], ...]) -> bool:
    """Whether these mtimes are old enough for another change to show."""
    return all(abs(time.time() - mtime / 1e9) > _SETTLED for _, mtime in folders)


def put_aside(path: Path, folder: Path, name: str, why: str, modes: Modes) -> str:
    """Move something out of XLA's sight, into `folder`; returns a line that says so.

    Raises:
      OSError: it cannot be moved.
    """
    small_files.make_folder(folder, modes.directory)
    flat = name.replace("/", "+")
    to = folder / flat
    for number in range(1, 1000):
        if not os.path.lexists(to):
            break
        to = folder / f"{flat}.{number}"
    path.rename(to)
    return f"tuning file {path} was moved to {to}: {why}"
