"""Files that options name: what is in them counts, and not where they lie.

Not promised: an answer for everything that a path can name. Where reading is not safe, or where what was read need not
be what XLA reads, there is `UnidentifiableFileError`, and a program under such options has no key.

Races: a file can change between the look at it here and XLA's own reading, and nothing here sees that. The worst
outcome is an entry made from the newer content under the key of the older, so whoever edits an input while programs
compile must not rely on the cache. A change while the file is read here is seen.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from rewarm.identity.option_table import OptionField

MISSING = "missing"
_ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP))

# Digests of the files that XLA reads once per process, as they were when they were first named.
_first_seen: dict[tuple[str, str], str] = {}


class UnidentifiableFileError(ValueError):
    """What an option names cannot be identified by content; the message names the option and says why."""


def file_row(field: OptionField, path: str) -> tuple[str, str, str]:
    """Name of the option, base name where it counts, and what stands for the content.

    That is 64 hexadecimal digits for a file (the SHA-256 of its bytes), "folder:" with the digest of names and
    contents, "missing" where nothing is there, and "text:" with a digest where the option takes text in its place.

    Raises:
      UnidentifiableFileError: it cannot be read, is no file or folder, lies in another file system than the local
        one, changed while it was read, or is not what it was when XLA read it.
    """
    try:
        content = content_of(path)
    except OSError as error:
        raise UnidentifiableFileError(f"{field.name} names what cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UnidentifiableFileError(f"{field.name} names {error}") from error
    if content == MISSING and field.mark == "inline":
        content = "text:" + hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()
    if field.mark == "once" and _first_seen.setdefault((field.name, path), content) != content:
        raise UnidentifiableFileError(f"{field.name} names a file that changed since this process first used it")
    return field.name, Path(path).name if field.group == "named_file" else "", content


def content_of(path: str | os.PathLike[str]) -> str:
    """What stands for the content of `path`, see `file_row`.

    Raises:
      OSError: it cannot be read.
      ValueError: it is no file or folder of the local file system, or changed while it was read.
    """
    if "://" in os.fspath(path):
        raise ValueError("what is in no local file system")
    place = Path(path)
    try:
        mode = place.stat().st_mode
    except OSError as error:
        if error.errno in _ABSENT:
            return MISSING
        raise
    except ValueError:  # a zero byte in it
        return MISSING
    if stat.S_ISDIR(mode):
        return _folder(place)
    # Looking comes before opening: to open a pipe or a device does something to it, and may block.
    if not stat.S_ISREG(mode):
        raise ValueError("what is neither file nor folder")
    return _file(place)


def _file(place: Path) -> str:
    """SHA-256 of a file, read in pieces. Where a pipe took its place since it was looked at, this does not block."""
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise ValueError("what is neither file nor folder")
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        after = os.fstat(file.fileno())
    if _times(before) != _times(after):
        raise ValueError("a file that changed while it was read")
    return digest


def _times(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _folder(place: Path) -> str:
    total = hashlib.sha256()
    for relative in sorted(_names(place)):
        for part in (os.fsencode(relative), content_of(str(place / relative)).encode("ascii")):
            total.update(struct.pack("<Q", len(part)) + part)
    return "folder:" + total.hexdigest()


def _names(place: Path) -> Iterator[str]:
    """Files below a folder, relative to it. Links to folders are not followed."""

    def fail(error: OSError) -> NoReturn:
        raise error

    for folder, _, files in os.walk(place, onerror=fail):
        yield from ((Path(folder) / name).relative_to(place).as_posix() for name in files)
