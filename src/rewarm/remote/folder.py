"""A folder as a remote: a network share, or a disk that several users have.

Not promised: an answer. A hung network mount holds whoever touches it in the kernel, where no timeout and no signal
reaches: the thread is lost until the mount comes back, and a process that is to end cannot end before. The guard's
deadline lets the caller go (`guard.py`), but whether the process can end is the mount's to decide ("soft" mounts give
up by themselves). Nor is promised that another host sees a blob at once, or what `only_new` says between hosts whose
caches differ (NFS "close-to-open").

    <root>/<segment>/.../<segment>   the blobs, by their names
    <root>/.../.<segment>.*.tmp      being written
    <root>/.../.<segment>.claim      somebody makes this blob, where there are no hard links

The root is never made: where a share is not mounted, its mount point is an ordinary folder of the local disk, or is
missing. (Name a folder inside of the share. One that is the mount point itself looks the same when nothing is mounted
there.) Below the root no link is followed: each folder is opened from the one above it, so a name cannot lead out, not
even while somebody exchanges folders for links. Rights follow from the root's own.

Races, and their worst outcome:

* two puts: both write their own temporary file, the later rename wins. With `only_new` and hard links, one wins.
* two puts with `only_new` where there are no hard links: who makes the claim wins, and the other is told "it is
  there" a moment before it is. When the winner dies with the claim, others are told so for a minute, then take it.
  A put without `only_new` heeds no claim, and may be overwritten by one.
* a put beside the removal of its folder: one error, `UnreachableError`.

In a sticky folder (mode 1777) a file is its owner's alone. That is one name's trouble, and no reason to take the whole
for one that cannot be written to (`TakenError`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rewarm.remote.blobs import (
    TOO_LARGE,
    BlobInfo,
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    TakenError,
    TooLargeError,
    UnreachableError,
    check_name,
)
from rewarm.small_files import Modes

if TYPE_CHECKING:
    from rewarm.remote.address import Address

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOEXEC
# Without O_NONBLOCK a FIFO under a blob's name would hold the thread for ever.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NOFOLLOW | _CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC

_EFFECTIVE = os.access in os.supports_effective_ids

# What one call reads and writes at most, in bytes.
_PART = 16 << 20

# A claim that is older than this, in seconds of the file system's clock, is a dead writer's.
_CLAIM_HOLDS = 60.0

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EINVAL}
_REFUSED = {
    errno.EACCES: "no right to do this",
    errno.EPERM: "no right to do this",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "the quota is used up",
}
_IN_THE_WAY = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ENOTEMPTY, errno.EEXIST}
_OURS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class FolderBlobs:
    """The blobs below the folder `root`, which must be there. Safe for any number of threads and processes.

    Attributes:
      root: the folder.

    Raises:
      RefusedError: on this system nothing can be kept inside a folder.
    """

    reopens_after_fork = True

    def __init__(self, root: Path) -> None:
        self.root = root
        if not (os.open in os.supports_dir_fd and _NOFOLLOW):
            raise RefusedError("this system cannot keep to a folder (openat, O_NOFOLLOW)")

    @classmethod
    def of(cls, address: Address) -> FolderBlobs:
        """The blobs at an address.

        Raises:
          RefusedError: see above.
        """
        return cls(Path(address.path))

    @property
    def place(self) -> str:
        """Such as "file:///shared/folder"."""
        return self.root.as_uri() if self.root.is_absolute() else f"file:{self.root}"

    def get(self, name: str, *, limit: int) -> bytes | None:
        """The content of a regular file; see `Blobs.get`."""
        try:
            return self._get(check_name(name), limit)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise _kind_of(error) from error
        # Another host renamed a new file over the one that was open here: the new one is as good.
        try:
            return self._get(name, limit)
        except OSError as error:
            raise _kind_of(error) from error

    def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
        """Write a temporary file, force it to disk, and give it its name; see `Blobs.put`."""
        *above, last = check_name(name).split("/")
        try:
            with self._folder(above, make=True) as (folder, modes):
                temporary = f".{last}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
                try:
                    moment = _write(folder, temporary, data, modes.file)
                    with _anothers():
                        return _publish(folder, temporary, last, moment, only_new=only_new)
                finally:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary, dir_fd=folder)
        except PermissionError as error:
            raise (TakenError() if self._is_writable(above[:-1]) else _kind_of(error)) from error
        except OSError as error:
            raise _kind_of(error) from error

    def delete(self, name: str) -> None:
        """Remove a file; see `Blobs.delete`."""
        *above, last = check_name(name).split("/")
        try:
            with self._folder(above) as (folder, _):
                os.unlink(last, dir_fd=folder)
        except FileNotFoundError:
            return
        except PermissionError as error:
            raise (TakenError() if self._is_writable(above) else _kind_of(error)) from error
        except OSError as error:
            raise _kind_of(error) from error

    def scan(self, prefix: str) -> Iterator[BlobInfo]:
        """The regular files whose names are names of blobs; see `Blobs.scan`."""
        try:
            with self._folder(check_name(prefix).split("/")) as (folder, _):
                yield from _below(folder, prefix)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _kind_of(error) from error

    def close(self) -> None:
        """Nothing is held between two verbs."""

    def remove_leftovers(self, prefix: str, older_than: float = 86400.0) -> int:
        """Remove what writers left that died, so many seconds ago by this host's clock; returns how many files went.
        It lies beside the blobs whose name starts with `prefix` and a "/".

        Raises:
          NoSuchPlaceError: the root is not there.
        """
        gone = 0
        before = time.time() - older_than
        try:
            with self._folder(check_name(prefix).split("/")) as (above, _):
                for _, _, files, folder in os.fwalk(".", dir_fd=above):
                    for name in filter(_is_leftover, files):
                        with contextlib.suppress(OSError):
                            if os.lstat(name, dir_fd=folder).st_mtime < before:
                                os.unlink(name, dir_fd=folder)
                                gone += 1
        except (FileNotFoundError, NotADirectoryError):
            return gone
        except OSError as error:
            raise _kind_of(error) from error
        return gone

    def _get(self, name: str, limit: int) -> bytes | None:
        *above, last = name.split("/")
        try:
            with self._folder(above) as (folder, _):
                descriptor = os.open(last, _READ, dir_fd=folder)
        except FileNotFoundError:
            return None
        try:
            return _content(descriptor, limit)
        finally:
            os.close(descriptor)

    def _is_writable(self, segments: list[str]) -> bool:
        """Whether files can be made in this folder: then what cannot be done in one below it is that one's trouble."""
        try:
            with self._folder(segments) as (folder, _):
                return bool(segments) and os.access(".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=_EFFECTIVE)
        except (OSError, RemoteError):
            return False

    @contextlib.contextmanager
    def _folder(self, segments: list[str], *, make: bool = False) -> Iterator[tuple[int, Modes]]:
        """The open folder of these segments below the root, and the rights of what is made there.

        Raises:
          NoSuchPlaceError: the root is not there.
          OSError: a folder cannot be opened, or is not there and is not to be made.
        """
        try:
            folder = os.open(self.root, _FOLDER)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NoSuchPlaceError("the folder is not there (a share that is not mounted?)") from error
        try:
            modes = _modes_of(folder)
            for segment in segments:
                inner = _open_folder(folder, segment, modes, make=make)
                os.close(folder)
                folder = inner
            yield folder, modes
        finally:
            os.close(folder)


@contextlib.contextmanager
def _anothers() -> Iterator[None]:
    """In a folder in which this user has just made a file: a name that he may not touch is another's.

    Raises:
      TakenError: it is.
    """
    try:
        yield
    except PermissionError as error:
        raise TakenError from error


def _modes_of(root: int) -> Modes:
    """As the root's own: who may read there may read files, whose group may write there may write to files.

    Not `small_files.modes_in`: what one user writes here is for others to read, whether or not they may write.
    """
    mode = stat.S_IMODE(os.fstat(root).st_mode)
    return Modes(directory=0o700 | mode & 0o3777, file=0o600 | mode & 0o064)


def _open_folder(above: int, segment: str, modes: Modes, *, make: bool) -> int:
    try:
        return os.open(segment, _FOLDER | _NOFOLLOW, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
    try:
        os.mkdir(segment, modes.directory, dir_fd=above)
    except FileExistsError:  # another writer was quicker
        return os.open(segment, _FOLDER | _NOFOLLOW, dir_fd=above)
    folder = os.open(segment, _FOLDER | _NOFOLLOW, dir_fd=above)
    with contextlib.suppress(OSError):
        os.fchmod(folder, modes.directory)  # undo what a umask took away
    return folder


def _content(descriptor: int, limit: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise RemoteError("something else lies under the name")
    if status.st_size > limit:
        raise TooLargeError("larger than the reader wants")
    parts: list[bytes] = []
    room = limit + 1  # a file may be longer than its status says
    while part := os.read(descriptor, min(_PART, room)):
        parts.append(part)
        room -= len(part)
        if room == 0:
            raise TooLargeError("larger than the reader wants")
    return b"".join(parts)


def _write(folder: int, name: str, data: bytes, mode: int) -> float:
    """Write a new file and force it to disk; returns the file system's clock."""
    descriptor = os.open(name, _CREATE, mode, dir_fd=folder)
    try:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, mode)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest[:_PART]) :]
        os.fsync(descriptor)
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _publish(folder: int, temporary: str, name: str, moment: float, *, only_new: bool) -> bool:
    """Give a finished file its name; returns whether it got it."""
    if not only_new:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return True
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        # NFS asks again when an answer is lost, and is then told that its own link is there.
        return os.stat(temporary, dir_fd=folder, follow_symlinks=False).st_nlink > 1
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _publish_claimed(folder, temporary, name, moment)
    return True


def _publish_claimed(folder: int, temporary: str, name: str, moment: float) -> bool:
    """The same where there are no hard links: whoever makes the claim looks whether the name is free, and takes it."""
    claim = f".{name}.claim"
    if not _make_claim(folder, claim, moment):
        return False
    try:
        if _is_there(folder, name):
            return False
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return True
    finally:
        with contextlib.suppress(OSError):
            os.unlink(claim, dir_fd=folder)


def _make_claim(folder: int, claim: str, moment: float) -> bool:
    for _ in range(2):
        try:
            os.close(os.open(claim, _CREATE, 0o600, dir_fd=folder))
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):  # it was just let go
                if moment - os.stat(claim, dir_fd=folder, follow_symlinks=False).st_mtime < _CLAIM_HOLDS:
                    return False
                os.unlink(claim, dir_fd=folder)
        else:
            return True
    return False


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _below(folder: int, prefix: str) -> Iterator[BlobInfo]:
    for where, _, files, inner in os.fwalk(".", onerror=_raise_unless_gone, dir_fd=folder):
        path = prefix + where[1:]
        for file in files:
            if (info := _info(f"{path}/{file}", file, inner)) is not None:
                yield info


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _info(name: str, file: str, folder: int) -> BlobInfo | None:
    """What a scan says of a file; `None` where it is no blob, or is gone."""
    try:
        status = os.stat(file, dir_fd=folder, follow_symlinks=False)
        return BlobInfo(check_name(name), status.st_size, status.st_mtime) if stat.S_ISREG(status.st_mode) else None
    except (FileNotFoundError, ValueError):
        return None


def _is_leftover(name: str) -> bool:
    return name.startswith(".") and name.endswith((".tmp", ".claim"))


def _kind_of(error: OSError) -> RemoteError:
    """What an error of the system says about the remote."""
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    if error.errno in _REFUSED:
        return RefusedError(_REFUSED[error.errno])
    if error.errno == errno.EFBIG:
        return TooLargeError(TOO_LARGE)
    if error.errno in _IN_THE_WAY:
        return RemoteError("something else lies under the name")
    if error.errno in _OURS or error.errno == errno.ENAMETOOLONG:
        return RemoteError(reason)
    return UnreachableError(reason)
