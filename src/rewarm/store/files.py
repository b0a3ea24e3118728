"""One file of a store: reading an entry, writing one, removing one.

Not promised: that what is read is an entry. That is the envelope's to say.
"""

# Strings instead of Path objects on the way of every hit and put: building a Path costs more than the system call.
# ruff: noqa: PTH123

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from pathlib import Path

from rewarm.envelope import Header, read_header
from rewarm.envelope.format import header_bytes
from rewarm.errors import BadEntryError, StoreError
from rewarm.small_files import Modes

# Without O_NONBLOCK a FIFO under an entry's name would hold the program for ever.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)

# What one call reads of a file that is longer than its status says, in bytes; Linux reads no more than 2 GiB at once.
_PART = 64 << 20

# A header that says it is longer than this, in bytes, is not read for a list or for ranking.
_LONGEST_HEADER = 16 << 20


def read(path: str) -> tuple[bytes, os.stat_result]:
    """The content of a regular file, and its status.

    Raises:
      BadEntryError: it is something else.
      OSError: it cannot be read.
    """
    descriptor, status = _open(path)
    try:
        # One call for nearly every file; it asks for a byte more, so that a file that grew meanwhile shows.
        data = os.read(descriptor, status.st_size + 1)
        if len(data) == status.st_size:
            return data, status
        parts = [data]
        while parts[-1]:
            parts.append(os.read(descriptor, _PART))
        return b"".join(parts), status
    finally:
        os.close(descriptor)


def _open(path: str) -> tuple[int, os.stat_result]:
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):  # a socket, a circle of links
            raise BadEntryError("not a regular file") from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadEntryError("not a regular file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def tail(path: str, limit: int) -> bytes:
    """The last `limit` bytes of a regular file.

    Raises:
      BadEntryError: it is something else.
      OSError: it cannot be read.
    """
    descriptor, status = _open(path)
    with open(descriptor, "rb") as file:
        if status.st_size > limit:
            file.seek(status.st_size - limit)
        return file.read(limit)


def header_of(path: Path) -> Header | None:
    """The header of an entry, NOT verified; `None` when the file ends before it does.

    Raises:
      BadEntryError: the file is not an entry.
      OSError: it cannot be read.
    """
    descriptor, _ = _open(os.fspath(path))
    with open(descriptor, "rb") as file:
        start = file.read(header_bytes())
        header = read_header(start)
        if header is None and header_bytes(start) <= _LONGEST_HEADER:
            header = read_header(start + file.read(header_bytes(start) - len(start)))
        return header


def temporary_for(folder: str, name: str) -> str:
    """A name in `folder` that no other writer uses, and that a sweep knows."""
    return f"{folder}/.{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a file of this name was being written by somebody."""
    return name.startswith(".") and name.endswith(".tmp")


def create(path: str, modes: Modes) -> int:
    """A descriptor of a new file, with its mode whatever the umask.

    Raises:
      OSError: it cannot be made, or it is there already.
    """
    descriptor = os.open(path, _CREATE, modes.file)
    if modes.file & 0o077:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, modes.file)
    return descriptor


def write(descriptor: int, data: bytes, *, durable: bool = True) -> os.stat_result:
    """Write all of `data`, force it to disk where it is to be `durable`, close the file; returns its status as the file
    system has it.

    Raises:
      OSError: it is not, or not wholly, written. The descriptor is closed all the same.
    """
    with open(descriptor, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        if durable:
            os.fsync(file.fileno())
        return os.fstat(file.fileno())


def info_of(path: str) -> os.stat_result | None:
    """The status of the regular file at `path`, or `None` when there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def remove(path: Path) -> None:
    """Remove a file, or a directory with all it holds; what is not there is removed already.

    Raises:
      OSError: it is still there.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def failed(verb: str, path: Path, error: OSError) -> StoreError:
    """What a verb of the store raises for an error of the system."""
    return StoreError(error.errno or 0, f"cannot {verb}: {error.strerror or error}", str(path))
