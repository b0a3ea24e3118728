"""Folders and files of a managed place, looked at from outside: whose they are, and what goes out of XLA's sight.

Not promised: that access lists, or the folders above the cache directory, let nobody else in; see `store/access.py`.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from rewarm import small_files
from rewarm.autotune import checked
from rewarm.autotune.formats import files
from rewarm.small_files import Modes

# A folder that changed less than this ago, in seconds, may change again without a stamp that shows it.
_SETTLED = 2.0


class Stamp(NamedTuple):
    """A folder by its name, and what changes with it: mtime and ctime in nanoseconds, and which one it is.

    The ctime is in it since whose a folder is, and who may write to it, can change without its mtime.
    """

    name: str
    mtime: int
    ctime: int
    inode: int


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


def stamps(directory: Path) -> tuple[Stamp, ...]:
    """The folders that hold results: a file that is renamed into one changes it.

    XLA's own folder for files that it writes changes with each, and stands here for whose it is alone.
    """
    found = [_stamp("", os.lstat(directory))]
    _add_stamps(found, directory, "", deep=True)
    return tuple(sorted(found))


def _add_stamps(found: list[Stamp], folder: Path, above: str, *, deep: bool) -> None:
    with os.scandir(folder) as items:
        for one in items:
            if not one.is_dir(follow_symlinks=False):
                continue
            status, name = one.stat(follow_symlinks=False), f"{above}{one.name}"
            if name == checked.TEMPORARY:
                found.append(Stamp(name, status.st_uid, status.st_mode, status.st_ino))
                continue
            found.append(_stamp(name, status))
            # A link to itself grows with each folder in it; explicit versions lie one level deeper, and have more.
            if deep and status.st_nlink != 2:
                _add_stamps(found, Path(one.path), f"{name}/", deep=False)


def _stamp(name: str, status: os.stat_result) -> Stamp:
    return Stamp(name, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def is_settled(found: tuple[Stamp, ...]) -> bool:
    """Whether these folders have been left alone for long enough that another change shows."""
    now = time.time()
    changes = (when for one in found if one.name != checked.TEMPORARY for when in (one.mtime, one.ctime))
    return all(abs(now - when / 1e9) > _SETTLED for when in changes)


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
