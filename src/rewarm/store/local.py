"""The local store: a directory of files, which are the truth; there is no index and no lock.

Not promised: that a put survives a power cut (the data is synced before it gets its name, the name itself is not
forced to disk), nor protection from others who may write to the directory.

    <root>/CACHEDIR.TAG           so that backups pass it over (https://bford.info/cachedir/)
    <root>/<2 hex>/<64 hex>       the entries, in 256 directories by the first two digits
    <root>/<2 hex>/.*.tmp         being written
    <root>/quarantine/<64 hex>.*  what lay under an entry's name and was not that entry

Races, and their worst outcome:

* two writers of one key: both write their own temporary file, the later rename wins; all writers are equally good.
* a reader beside a writer: it opened the old file or the new one, never a mixture, since files are not changed.
* quarantine beside a writer: a file is moved only while it still holds the bytes that were found bad; between that
  look and the rename a writer can slip in, and its good entry is moved aside: one more rebuild.
* removal beside anything: a miss.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rewarm.errors import BadEntryError, StoreError
from rewarm.store.contract import EntryInfo, check_key, is_key

QUARANTINE = "quarantine"
TAG_NAME = "CACHEDIR.TAG"
_TAG = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# This file is a cache directory tag created by rewarm, a compilation cache for JAX.\n"
    b"# For information about cache directory tags, see https://bford.info/cachedir/\n"
)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_SHARDS = tuple(f"{number:02x}" for number in range(256))

# A hit renews the file's mtime only when it is older than this, in seconds: recency for a later clean-up at the
# price of one system call in ten minutes.
_RENEW_AFTER = 600.0

# A temporary file older than this, in seconds, has lost its writer.
_ORPHAN_AFTER = 3600.0

_QUARANTINE_KEEPS = 32
_SHOWN = 2


class LocalStore:
    """The store in the directory `root`, which is made (mode 0700) at the first put.

    Safe for any number of threads and processes at once. Reads take no lock and write nothing but an mtime.
    """

    tier = "local"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._place = os.fspath(root)
        self._swept: set[str] = set()

    def path(self, key: str) -> Path:
        """Where the entry of `key` lies."""
        return self.root / key[:_SHOWN] / check_key(key)

    # -- the four verbs ----------------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """The bytes last put under `key`, or `None`; see `Store.get`."""
        # A string, not a Path: this is the way of every hit.
        place = f"{self._place}/{key[:2]}/{check_key(key)}"
        try:
            data, status = _read(place)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed("read", self.path(key), error) from error
        _renew(place, status)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Write `data` beside its place, sync it, and give it its name; see `Store.put`."""
        shard = f"{self._place}/{check_key(key)[:2]}"
        temporary = f"{shard}/.{key}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        try:
            _write(self._create(shard, temporary), data)
            os.replace(temporary, f"{shard}/{key}")
        except BaseException as error:  # Ctrl-C too: leave nothing behind
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            if isinstance(error, OSError):
                raise _failed("write", self.path(key), error) from error
            raise
        self._sweep(shard)

    def delete(self, key: str) -> None:
        """Remove the entry; see `Store.delete`."""
        path = self.path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            if isinstance(error, NotADirectoryError):
                return
            raise _failed("remove", path, error) from error

    def scan(self) -> Iterator[EntryInfo]:
        """The entries, one directory after the other; strays are passed over; see `Store.scan`."""
        for name in _SHARDS:
            try:
                shard = os.scandir(self.root / name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _failed("list", self.root / name, error) from error
            with shard:
                for item in shard:
                    info = _info(item, name)
                    if info is not None:
                        yield info

    # -- beside the contract -----------------------------------------------------------------------------------

    def quarantine(self, key: str, reason: str, seen: bytes | None) -> None:
        """Move what lies under `key` to `<root>/quarantine`, where the newest 32 stay; see `Store.quarantine`."""
        path = self.path(key)
        target = self.root / QUARANTINE / f"{key}.{time.time_ns()}.{_slug(reason)}"
        with contextlib.suppress(OSError):
            if stat.S_ISREG(path.lstat().st_mode) and path.read_bytes() != seen:
                return  # rewritten since: the new entry is somebody's good work
            target.parent.mkdir(mode=0o700, exist_ok=True)
            path.rename(target)
            _keep_newest(target.parent)

    def quarantined(self) -> list[Path]:
        """The files in quarantine."""
        with contextlib.suppress(OSError):
            return sorted((self.root / QUARANTINE).iterdir())
        return []

    def prepare(self) -> str | None:
        """Make the directory, and say in a few words what stands in the way of writing there, or `None`.

        Raises:
          StoreError: the directory cannot even be read.
        """
        try:
            self._make_root()
        except OSError as error:
            if not os.path.isdir(self.root):
                in_the_way = error.errno in (errno.EEXIST, errno.ENOTDIR)
                what = f"{error.filename} is not a directory" if in_the_way else f"cannot make it: {error.strerror}"
                raise StoreError(error.errno or 0, what, str(self.root)) from error
        if not os.access(self.root, os.R_OK | os.X_OK):
            raise StoreError(errno.EACCES, "no right to read the directory", str(self.root))
        return None if os.access(self.root, os.W_OK) else "read-only"

    def misplaced(self) -> Iterator[EntryInfo]:
        """What lies under an entry's name and is no file: a scan passes it over, a get refuses it."""
        for shard in _SHARDS:
            with contextlib.suppress(OSError), os.scandir(f"{self._place}/{shard}") as items:
                for item in items:
                    if is_key(item.name) and item.name.startswith(shard) and not _is_file(item):
                        yield EntryInfo(item.name, 0, item.stat(follow_symlinks=False).st_mtime)

    def others_may_write(self) -> str | None:
        """Why entries here may be another user's work, or `None`: the directory is not ours, or open to others."""
        try:
            status = self.root.stat()
        except OSError:
            return None
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            return f"it belongs to uid {status.st_uid}"
        return "others may write to it" if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else None

    def remove_leftovers(self, patterns: Iterable[str] = ()) -> int:
        """Remove quarantine, temporary files of lost writers and empty directories; returns how many files went.

        `patterns` name more files of rewarm's below the root that go as well, such as "runs/*.jsonl".
        """
        gone = 0
        mine = [path for pattern in ("[0-9a-f][0-9a-f]/.*.tmp", *patterns) for path in self.root.glob(pattern)]
        for path in [*self.quarantined(), *mine]:
            with contextlib.suppress(OSError):
                _remove(path)
                gone += 1
        folders = sorted({path.parent for path in mine} - {self.root}, reverse=True)
        for folder in [self.root / QUARANTINE, *folders, *(self.root / shard for shard in _SHARDS)]:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return gone

    def is_ours(self) -> bool:
        """Whether the directory carries the tag that rewarm leaves in its own."""
        try:
            return (self.root / TAG_NAME).read_bytes() == _TAG
        except OSError:
            return False

    # -- inside ------------------------------------------------------------------------------------------------

    def _create(self, shard: str, temporary: str) -> int:
        try:
            return os.open(temporary, _CREATE, 0o600)
        except FileNotFoundError:  # the first entry of this directory, or somebody cleared it meanwhile
            self._make_shard(shard)
            return os.open(temporary, _CREATE, 0o600)

    def _make_shard(self, shard: str) -> None:
        try:
            os.mkdir(shard, 0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self._make_root()
            os.makedirs(shard, 0o700, exist_ok=True)
        self._swept.add(shard)  # it was empty a moment ago

    def _make_root(self) -> None:
        self.root.parent.mkdir(parents=True, exist_ok=True)
        self.root.mkdir(mode=0o700, exist_ok=True)
        tag = self.root / TAG_NAME
        if not tag.exists():
            temporary = self.root / f".{TAG_NAME}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
            try:
                _write(os.open(temporary, _CREATE, 0o600), _TAG)
                temporary.replace(tag)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise

    def _sweep(self, shard: str) -> None:
        """Remove the temporary files of writers that died, once per directory and process."""
        if shard in self._swept:
            return
        self._swept.add(shard)
        with contextlib.suppress(OSError), os.scandir(shard) as items:
            for item in items:
                lost = item.name.startswith(".") and item.name.endswith(".tmp")
                if lost and time.time() - item.stat(follow_symlinks=False).st_mtime > _ORPHAN_AFTER:
                    os.unlink(item.path)


def _read(path: str) -> tuple[bytes, os.stat_result]:
    # Without O_NONBLOCK a FIFO under an entry's name would hold the program for ever.
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ELOOP):  # a socket, a circle of links
            raise BadEntryError("not a regular file") from error
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise BadEntryError("not a regular file")
    with open(descriptor, "rb", buffering=0) as file:
        return file.readall(), status


def _write(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())


def _renew(path: str, status: os.stat_result) -> None:
    if time.time() - status.st_mtime > _RENEW_AFTER:
        with contextlib.suppress(OSError):  # read-only, or not ours: recency is a courtesy
            os.utime(path)


def _is_file(item: os.DirEntry[str]) -> bool:
    return item.is_file(follow_symlinks=False)


def _info(item: os.DirEntry[str], shard: str) -> EntryInfo | None:
    if not (is_key(item.name) and item.name.startswith(shard) and _is_file(item)):
        return None
    try:
        status = item.stat(follow_symlinks=False)
    except OSError:  # removed since
        return None
    return EntryInfo(item.name, status.st_size, status.st_mtime)


def _slug(reason: str) -> str:
    words = "".join(letter if letter.isalnum() else "-" for letter in reason.lower())
    return "-".join(part for part in words.split("-") if part)[:60] or "bad"


def _keep_newest(folder: Path) -> None:
    # By when they were put aside, which the name says; a file keeps the mtime it had as an entry.
    for path in sorted(folder.iterdir(), key=_put_aside)[:-_QUARANTINE_KEEPS]:
        with contextlib.suppress(OSError):
            _remove(path)


def _put_aside(path: Path) -> int:
    moment = path.name.split(".")[1:2]
    return int(moment[0]) if moment and moment[0].isdecimal() else 0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _failed(verb: str, path: Path, error: OSError) -> StoreError:
    return StoreError(error.errno or 0, f"cannot {verb}: {error.strerror or error}", str(path))
