"""Files as they lie on disk: read without waiting and within bounds, written whole.

Not promised: that a folder does not change while it is read. A file that is replaced meanwhile is read as one or the
other; one that goes is a finding.

A FIFO, a socket, a device or a folder in a file's place is a finding and is never waited for: the descriptor is opened
without blocking and looked at before it is read. Links are followed only where the user named one; inside a folder a
link is a finding, since it can lead anywhere and a writer of this room never makes one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rewarm import small_files
from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Finding, Place, error
from rewarm.small_files import PRIVATE, Modes

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_THREADS = 8

# In one folder: more than all entries that are ever read.
MOST_NAMES = 400_000
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def read(path: str, limit: int, *, follow: bool = False) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Raises:
      TuningFormatError: it is no such file, or cannot be read; the finding has the path.
    """
    try:
        descriptor = os.open(path, _READ | (0 if follow else _NO_LINK))
    except (OSError, ValueError) as wrong:  # ValueError: a NUL in the name
        raise TuningFormatError(_unreadable(path, wrong)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TuningFormatError(error("not-a-file", Place(path), "a regular file", kind_of(status.st_mode)))
        if status.st_size > limit:
            found = f"{status.st_size} bytes"
            raise TuningFormatError(error("too-large", Place(path), f"at most {limit} bytes", found))
        return _all(descriptor, path, limit)
    finally:
        os.close(descriptor)


def kind_of(mode: int) -> str:
    """What lies under a name, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def _all(descriptor: int, path: str, limit: int) -> bytes:
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as wrong:
        raise TuningFormatError(_unreadable(path, wrong)) from None
    if len(data) > limit:  # it grew
        raise TuningFormatError(error("too-large", Place(path), f"at most {limit} bytes", "more"))
    return data


def _unreadable(path: str, wrong: OSError | ValueError) -> Finding:
    return error("unreadable", Place(path), "a file that can be read", getattr(wrong, "strerror", None) or str(wrong))


def write(path: Path, data: bytes, modes: Modes = PRIVATE) -> None:
    """Make `data` the content of `path`, whole and synced: who reads finds the old content or the new.

    Raises:
      OSError: it cannot be written. Nothing is left behind, unless the process is killed: then a file with a dot in
        front and ".tmp" at its end, which no reader takes for an entry.
    """
    write_all([(path, data)], modes)


def write_all(contents: Iterable[tuple[Path, bytes]], modes: Modes = PRIVATE) -> int:
    """Write many files, each whole: returns how many. Folders that are missing are made, with the mode given.

    Each file is synced before it gets its name, and each folder once at the end. Disks sync several files at a time in
    little more than the time of one, so there are a few threads.

    Raises:
      OSError: one cannot be written; some of the others are.
    """
    listed = list(contents)
    folders = {path.parent for path, _ in listed}
    for folder in folders:
        _make_folders(folder, modes.directory)
    if len(listed) == 1:
        _write_one(*listed[0], modes.file)
    else:
        with ThreadPoolExecutor(_THREADS) as pool:
            for done in [pool.submit(_write_one, path, data, modes.file) for path, data in listed]:
                done.result()
    for folder in folders:
        _sync_folder(folder)
    return len(listed)


def _make_folders(folder: Path, mode: int) -> None:
    if folder.is_dir():
        return
    _make_folders(folder.parent, mode)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode)
        folder.chmod(mode)


def _write_one(path: Path, data: bytes, mode: int) -> None:
    small_files.replace(path, data, mode, durable=True)


def _sync_folder(folder: Path) -> None:
    """So that the names outlive a power cut; where a file system cannot, the files are still whole."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def listed(folder: str) -> Iterator[os.DirEntry[str]]:
    """What a folder holds, by name.

    Raises:
      TuningFormatError: it cannot be listed, or holds more than `MOST_NAMES`; the finding has the path.
    """
    try:
        with os.scandir(folder) as found:
            entries = sorted(itertools.islice(found, MOST_NAMES + 1), key=lambda one: one.name)
    except OSError as wrong:
        raise TuningFormatError(_unreadable(folder, wrong)) from None
    if len(entries) > MOST_NAMES:
        raise TuningFormatError(error("too-many", Place(folder), f"a folder of at most {MOST_NAMES} files", "more"))
    yield from entries
