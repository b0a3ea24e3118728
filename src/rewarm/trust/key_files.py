"""Files of keys: who may read and write them, and what their lines say.

Not promised: anything about who owns a file, about access lists, or about the folders above the one that is named.

Race: a file that is put into a folder of keys, or taken out, while the folder is read counts or does not. Rights are
read from the open file, so they are those of what was read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rewarm.trust.errors import UnusableKeyError
from rewarm.trust.keys import SigningKey, TrustedKey, is_id

PUBLIC_SUFFIX = ".pub"
REVOKED = "revoked"

_LIMIT = 1 << 20
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_START = 64
# Without O_NONBLOCK a FIFO under a file's name would hold the program for ever.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ANYTHING = stat.S_IRWXG | stat.S_IRWXO


class _File(NamedTuple):
    """A file's lines by number, without comments and empty ones, and its mode."""

    path: Path
    lines: list[tuple[int, str]]
    mode: int


def signing_key(path: Path) -> SigningKey:
    """The one key in a file that nobody else may read.

    Raises:
      UnusableKeyError: it is not there, holds something else, or others may read it.
    """
    file = _read(path, "a file with a signing key")
    _check_private(file)
    if len(file.lines) != 1:
        raise UnusableKeyError(
            f"{path}", "one line with a signing key", f"{len(file.lines)} lines", "make a key with `rewarm keys new`"
        )
    return SigningKey.from_text(file.lines[0][1], f"{path}")


def trusted_keys(path: Path) -> list[TrustedKey]:
    """The keys in a file, one a line; with secrets among them nobody else may read it.

    Raises:
      UnusableKeyError: it is not there, holds none or something else, or others may change it.
    """
    file = _read(path, "a file with trusted keys")
    keys = [TrustedKey.from_text(text, f"{path}, line {number}") for number, text in file.lines]
    if not keys:
        raise UnusableKeyError(f"{path}", "a line for each trusted key", "none", "fill it, or remove it")
    if any(key.holds_secret for key in keys):
        _check_private(file)
    return keys


def revoked_ids(path: Path) -> list[str]:
    """The ids in a file, the first word of each line.

    Raises:
      UnusableKeyError: it is not there, holds something else, or others may change it.
    """
    file = _read(path, "a file with ids of revoked keys")
    found = [(number, text.split()[0].lower()) for number, text in file.lines]
    for number, word in found:
        if not is_id(word):
            raise UnusableKeyError(
                f"{path}, line {number}", "the id of a key, 32 hexadecimal digits", "something else", "correct the line"
            )
    return [word for _, word in found]


def keys_in(folder: Path) -> list[TrustedKey]:
    """The keys in the files `*.pub` of a folder that others may not write to.

    Raises:
      UnusableKeyError: it cannot be listed, others may write to it, or one of the files cannot be used.
    """
    check_folder(folder)
    try:
        # Hidden files are what others leave beside: temporary ones, and macOS's on foreign file systems.
        paths = sorted(path for path in folder.iterdir() if path.suffix == PUBLIC_SUFFIX and path.name[0] != ".")
    except OSError as error:
        raise _unreadable(folder, "a folder of keys", error) from None
    found = []
    for path in paths:
        try:
            found += trusted_keys(path)
        except UnusableKeyError:
            if exists(path):  # else it was taken out meanwhile
                raise
    return found


def check_folder(folder: Path) -> None:
    """See to it that nobody else may put keys into a folder.

    Raises:
      UnusableKeyError: somebody may, or it is no folder.
    """
    try:
        status = folder.stat()
    except OSError as error:
        raise _unreadable(folder, "a folder of keys", error) from None
    if not stat.S_ISDIR(status.st_mode):
        raise UnusableKeyError(f"{folder}", "a folder of keys", "something else", "move it out of the way")
    if status.st_mode & _OTHERS_WRITE and os.name != "nt" and not _is_read_only(folder):
        raise _writable(folder, status.st_mode)


def lines_of(data: bytes, where: str) -> list[tuple[int, str]]:
    """The lines of keys or ids, with their numbers, without comments and empty ones. A mark at the start that some
    editors put before UTF-8 is none of them.

    Raises:
      UnusableKeyError: it is text of another encoding, as PowerShell's ">" writes it.
    """
    if data.startswith(_UTF_16) or b"\0" in data[:_START]:
        advice = "save it as UTF-8 (PowerShell: | Out-File -Encoding ascii)"
        raise UnusableKeyError(where, "text in UTF-8", "text in UTF-16, or none", advice)
    return list(_lines(data.decode("utf-8-sig", "replace")))


def exists(path: Path) -> bool:
    """Whether something is there.

    Raises:
      UnusableKeyError: that cannot be told. What cannot be seen may be a list of revoked keys.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(path, "a place for keys", error) from None
    return True


# -- inside --------------------------------------------------------------------------------------------------------


def _read(path: Path, expected: str) -> _File:
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        raise _unreadable(path, expected, error) from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UnusableKeyError(f"{path}", expected, "something that is no file", "move it out of the way")
        if mode & _OTHERS_WRITE and os.name != "nt" and not _is_read_only(descriptor):
            raise _writable(path, mode)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(_LIMIT + 1)
    except OSError as error:
        raise _unreadable(path, expected, error) from None
    finally:
        os.close(descriptor)
    if len(data) > _LIMIT:
        raise UnusableKeyError(f"{path}", expected, f"more than {_LIMIT} bytes", "see whether it is the right file")
    return _File(path, lines_of(data, f"{path}"), mode)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            yield number, text


def _check_private(file: _File) -> None:
    if file.mode & _OTHERS_ANYTHING and os.name != "nt":
        raise UnusableKeyError(
            f"{file.path}",
            "a file with a secret that only its owner may read (mode 0600)",
            f"mode {stat.S_IMODE(file.mode):04o}",
            f"run `chmod 600 {file.path}`, and make a new key if others may have read this one",
        )


def _is_read_only(place: Path | int) -> bool:
    """Whether nobody here can write, whatever the mode: a mounted secret of a cluster is such a place."""
    try:
        return bool(os.statvfs(place).f_flag & os.ST_RDONLY)
    except (OSError, AttributeError):
        return False


def _writable(path: Path, mode: int) -> UnusableKeyError:
    who = "everybody" if mode & stat.S_IWOTH else "its group"
    return UnusableKeyError(
        f"{path}",
        "keys that only their owner may change",
        f"mode {stat.S_IMODE(mode):04o}: {who} may write there, and so decide whose code runs here",
        f"see that the keys are the right ones, then run `chmod go-w {path}`",
    )


def _unreadable(path: Path, expected: str, error: OSError) -> UnusableKeyError:
    if isinstance(error, FileNotFoundError):
        return UnusableKeyError(f"{path}", expected, "nothing", "correct the path, or make it with `rewarm keys`")
    return UnusableKeyError(
        f"{path}", expected, f"something that cannot be read ({error.strerror or error})", "correct its rights"
    )
