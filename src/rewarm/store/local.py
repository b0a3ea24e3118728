"""The local store: a directory of files, which are the truth. No verb waits for another process.

Not promised: that a put survives a power cut (the data is synced before it gets its name, the name itself is not
forced to disk), nor protection from others who may write to the directory.

    <root>/CACHEDIR.TAG           so that backups pass it over (https://bford.info/cachedir/)
    <root>/<2 hex>/<64 hex>       the entries, in 256 directories by the first two digits
    <root>/<2 hex>/.*.tmp         being written
    <root>/<2 hex>/.usage         what the entries are worth (`usage.py`); disposable
    <root>/sizes                  what each directory holds (`totals.py`); disposable
    <root>/quarantine/<64 hex>.*  what lay under an entry's name and was not that entry

A get reads one file and takes no lock; once in ten minutes per entry it also renews the file's mtime and notes the
use. A put makes room (`eviction.py`), writes one file, and writes down what changed (`accounts.py`). Neither costs
more when the store holds more. An unbounded store keeps the same books: another process may have a bound.

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
import functools
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rewarm import policy, small_files
from rewarm.errors import BadEntryError, StoreError
from rewarm.policy import Bounds, Usage
from rewarm.store import access, collection, quarantine, totals, usage
from rewarm.store.accounts import NOTHING, Accounts, Change, Upkeep
from rewarm.store.collection import Removed
from rewarm.store.contract import EntryInfo, check_key, is_key
from rewarm.store.eviction import Need, Room
from rewarm.store.files import create, failed, info_of, read, remove, temporary_for, write
from rewarm.store.shards import SHARDS, entry_info, is_file, shard_of
from rewarm.store.usage import Known

QUARANTINE = quarantine.NAME
TAG_NAME = "CACHEDIR.TAG"
_TAG = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# This file is a cache directory tag created by rewarm, a compilation cache for JAX.\n"
    b"# For information about cache directory tags, see https://bford.info/cachedir/\n"
)

# A hit renews the file's mtime, and counts as a use, only when the mtime is further off than this, in seconds: recency
# at the price of two small writes in ten minutes. Further off in the future too: clocks are set back.
_RENEW_AFTER = 600.0

# How many entries a process remembers having renewed.
_RENEWED = 4096

# How often a put is begun anew when somebody removes the directory under it.
_TRIES = 5

# How long `total` may count what is not counted yet, in seconds.
_COUNT_FOR = 0.1

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_UNBOUNDED = Bounds()


class _GoneError(Exception):
    """What a put had made was gone before it was done."""


class Copy(NamedTuple):
    """The bytes of an entry that another place has too.

    Attributes:
      data: the entry.
      seconds: that a hit spares; see `Store.put`.
    """

    data: bytes
    seconds: float


class _New(NamedTuple):
    """An entry that is written and has no name yet."""

    key: str
    size: int
    seconds: float
    temporary: str

    @property
    def known(self) -> Known:
        return Known(self.seconds if 0 < self.seconds < math.inf else 0.0, 1)


class LocalStore:
    """The store in the directory `root`, which is made at the first put: for its user alone, or for a group.

    Safe for any number of threads and processes at once, and across a fork.

    Attributes:
      root: the directory.
      bounds: how much it may hold; may be set at any time.
      shared: whether it is a group's: directories of mode 2770 and files of mode 0660 whatever the umask.
      read_only: whether `prepare` found that nothing can be written: then nothing is attempted to be.
      own_alone: whether an entry that is another user's, or that others may write to, is refused. May be set any time.
    """

    tier = "local"

    def __init__(self, root: Path, *, bounds: Bounds = _UNBOUNDED, shared: bool = False) -> None:
        self.root = root
        self.bounds = bounds
        self.shared = shared
        self.read_only = False
        self.own_alone = False
        self._place = os.fspath(root)
        self._modes = small_files.SHARED if shared else small_files.PRIVATE
        self._accounts = Accounts(self._place, self._modes)
        self._room = Room(self._accounts)
        self._renewed: dict[str, float] = {}

    @functools.cached_property
    def _owners(self) -> frozenset[int]:
        """Whose entries are trusted like one's own: the owner of the directory is looked at by `others_may_write`."""
        owner = _status_of(self.root)
        mine = {os.geteuid(), 0} if hasattr(os, "geteuid") else set()
        return frozenset(mine if owner is None else {*mine, owner.st_uid})

    def tell_evictions(self, heard: Callable[[], object]) -> None:
        """Call `heard` for each entry that this process lets go from now on."""
        self._accounts.on_evicted = heard

    def path(self, key: str) -> Path:
        """Where the entry of `key` lies."""
        return self.root / key[:2] / check_key(key)

    # -- the four verbs ----------------------------------------------------------------------------------------

    def get(self, key: str, *, use: bool = True) -> bytes | None:
        """The bytes last put under `key`, or `None`; see `Store.get`."""
        # A string, not a Path: this is the way of every hit.
        place = f"{self._place}/{key[:2]}/{check_key(key)}"
        try:
            data, status = read(place)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failed("read", self.path(key), error) from error
        if self.own_alone and (reason := access.not_ones_own(status, self._owners)) is not None:
            raise BadEntryError(reason)
        if use and abs(time.time() - status.st_mtime) > _RENEW_AFTER and not self.read_only:
            self._renew(key, place)
        return data

    def put(self, key: str, data: bytes, *, seconds: float = 0.0) -> None:
        """Make room, write `data` beside its place, sync it, and give it its name; see `Store.put`."""
        shard = f"{self._place}/{check_key(key)[:2]}"
        self._refuse(key, len(data))
        for _ in range(_TRIES):
            with contextlib.suppress(_GoneError):
                return self._put(key, data, seconds, temporary_for(shard, key))
        raise StoreError(errno.ENOENT, "the directory is removed again and again", str(self.path(key)))

    def _put(self, key: str, data: bytes, seconds: float, temporary: str) -> None:
        with self._leaving_nothing(key, [temporary]):
            now = self._write(key, temporary, data)
            self._room.make(self.bounds, self._need(key, len(data)), now)
            self._publish([_New(key, len(data), seconds, temporary)], now)

    def put_copies(self, copies: Mapping[str, Copy]) -> None:
        """Put entries that another place has anyway, cheaper than one by one: none is synced, and room is made once.

        After a power cut their files may be damaged, which shows when they are read. An entry whose directory somebody
        removes meanwhile is not stored. Of a process that is killed meanwhile the books do not know what it had written
        in one directory, until that is next counted.

        Raises:
          StoreError: others are not stored either.
        """
        by_shard: dict[str, list[_New]] = {}
        for key, copy in copies.items():
            self._refuse(check_key(key), len(copy.data))
            new = _New(key, len(copy.data), copy.seconds, temporary_for(f"{self._place}/{key[:2]}", key))
            by_shard.setdefault(key[:2], []).append(new)
        need = Need("", sum(len(copy.data) for copy in copies.values()), len(copies))
        for news in by_shard.values():
            with contextlib.suppress(_GoneError), self._leaving_nothing(news[0].key, [new.temporary for new in news]):
                for new in news:
                    now = self._write(new.key, new.temporary, copies[new.key].data, durable=False)
                if need.entries:
                    self._room.make(self.bounds, need._replace(key=news[0].key), now)
                    need = Need("", 0, 0)
                self._publish(news, now)

    @contextlib.contextmanager
    def _leaving_nothing(self, key: str, temporaries: Iterable[str]) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # Ctrl-C too: leave nothing behind
            for temporary in temporaries:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            if isinstance(error, FileNotFoundError):  # somebody cleared the directory meanwhile
                raise _GoneError from error
            if isinstance(error, OSError) and not isinstance(error, StoreError):
                raise failed("write", self.path(key), error) from error
            raise

    def delete(self, key: str) -> None:
        """Remove the entry; see `Store.delete`."""
        path = self.path(key)
        if self.read_only:
            raise self._read_only(path)

        def act() -> Change:
            status = info_of(f"{path}")
            path.unlink(missing_ok=True)
            return NOTHING if status is None else Change(-status.st_size, -1)

        try:
            self._accounts.change(shard_of(key), act)
        except NotADirectoryError:
            return
        except OSError as error:
            raise failed("remove", path, error) from error

    def scan(self) -> Iterator[EntryInfo]:
        """The entries, one directory after the other; strays are passed over; see `Store.scan`."""
        for name in SHARDS:
            try:
                with os.scandir(self.root / name) as items:
                    infos = [info for item in items if (info := entry_info(item, name)) is not None]
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise failed("list", self.root / name, error) from error
            yield from infos

    def quarantine(self, key: str, reason: str, seen: bytes | None) -> None:
        """Move what lies under `key` to `<root>/quarantine`; see `Store.quarantine` and `quarantine.py`."""
        path = self.path(key)

        def act() -> Change:
            status = info_of(f"{path}")
            if status is not None and path.read_bytes() != seen:
                return NOTHING  # rewritten since: the new entry is somebody's good work
            if status is None and not os.path.lexists(path):
                return NOTHING
            quarantine.put_aside(self.root, path, reason, self._modes)
            return NOTHING if status is None else Change(-status.st_size, -1)

        if not self.read_only:
            with contextlib.suppress(OSError):
                self._accounts.change(shard_of(key), act)

    # -- how much there is, and what goes ----------------------------------------------------------------------

    def total(self) -> tuple[int, int]:
        """Bytes and number of the entries, from the books; counting what is missing there takes 0.1 s at most."""
        deadline = time.monotonic() + _COUNT_FOR
        if self.read_only or not self.is_ours():
            return self._room.estimate(deadline).total()
        return self._room.count_missing(None, deadline).total()

    def collect(self, bounds: Bounds, *, dry_run: bool = False) -> Iterator[Removed]:
        """Bring the whole store within `bounds`, in the exact order of the policy, and say what went and why.

        Counts every directory, and removes the temporary files of lost writers, too. With `dry_run` nothing changes.

        Raises:
          StoreError: a directory cannot be listed.
        """
        if not os.path.isdir(self.root):
            return
        dry_run = dry_run or self.read_only
        now = time.time() if dry_run else collection.file_system_clock(self._accounts)
        try:
            yield from collection.collect(self._accounts, bounds, now, dry_run=dry_run)
        except OSError as error:
            raise failed("clean", self.root, error) from error

    def usages(self) -> dict[str, Usage]:
        """What eviction knows of each entry, by key. Reads the start of each entry that no journal knows.

        Raises:
          StoreError: a directory cannot be listed.
        """
        try:
            return {one.key: one for one in collection.usages(self._accounts)}
        except OSError as error:
            raise failed("list", self.root, error) from error

    # -- beside the contract -----------------------------------------------------------------------------------

    def quarantined(self) -> list[Path]:
        """The files in quarantine."""
        return quarantine.quarantined(self.root)

    def drop_quarantined(self, paths: Iterable[Path]) -> int:
        """Remove these files from quarantine; returns how many went."""
        return quarantine.drop(self.root, paths)

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
        self.read_only = not os.access(self.root, os.W_OK)
        return "read-only" if self.read_only else None

    def misplaced(self) -> Iterator[EntryInfo]:
        """What lies under an entry's name and is no file: a scan passes it over, a get refuses it."""
        for shard in SHARDS:
            with contextlib.suppress(OSError), os.scandir(f"{self._place}/{shard}") as items:
                for item in items:
                    if is_key(item.name) and item.name.startswith(shard) and not is_file(item):
                        yield EntryInfo(item.name, 0, item.stat(follow_symlinks=False).st_mtime)

    def others_may_write(self) -> str | None:
        """Why entries here may be the work of others who were not said to be trusted, or `None`; see `access.py`."""
        return None if self.shared else access.others_may_write(self.root)

    def remove_leftovers(self, patterns: Iterable[str] = ()) -> int:
        """Remove quarantine, temporary files of lost writers, the books and empty directories.

        `patterns` name more files of rewarm's below the root that go as well, such as "runs/*.jsonl". Returns how many
        files went, without the books, which are made anew when they are needed.
        """
        gone, patterns = 0, tuple(patterns)
        mine = {path for pattern in ("[0-9a-f][0-9a-f]/.*.tmp", ".*.tmp", *patterns) for path in self.inside(pattern)}
        for path in {*self.quarantined(), *mine}:
            with contextlib.suppress(OSError):
                remove(path)
                gone += 1
        self._remove_books()
        above = {folder for path in mine for folder in path.parents if self.root in folder.parents}
        for pattern in patterns:  # folders that are empty, too
            for folder in Path(pattern).parents[:-1]:
                above |= {path for path in self.inside(f"{folder}") if path.is_dir()}
        folders = sorted(above, reverse=True)
        for folder in [self.root / QUARANTINE, *folders, *(self.root / shard for shard in SHARDS)]:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return gone

    def inside(self, pattern: str) -> Iterator[Path]:
        """What matches a pattern below the root, and not through a link: what lies behind one is somebody else's."""
        for path in self.root.glob(pattern):
            between = path.relative_to(self.root).parents
            if not any((self.root / folder).is_symlink() for folder in between if folder.name):
                yield path

    def is_ours(self) -> bool:
        """Whether the directory carries the tag that rewarm leaves in its own."""
        try:
            # Not `read_bytes`: a FIFO under its name would hold the program for ever, and a device has no end.
            return small_files.contents(self.root / TAG_NAME, 2 * len(_TAG)) == _TAG
        except OSError:
            return False

    # -- inside ------------------------------------------------------------------------------------------------

    def _refuse(self, key: str, size: int) -> None:
        """Refuse at once what cannot be stored whatever is done."""
        if self.read_only:
            raise self._read_only(self.path(key))
        if self.bounds.exceeded(size, 1):
            raise StoreError(errno.EFBIG, "the entry alone is more than the store may hold", str(self.path(key)))

    def _read_only(self, path: Path) -> StoreError:
        return StoreError(errno.EROFS, "the directory is read-only", str(path))

    def _need(self, key: str, size: int) -> Need:
        there = info_of(f"{self._place}/{key[:2]}/{key}")
        return Need(key, size, 1) if there is None else Need(key, size - there.st_size, 0)

    def _write(self, key: str, temporary: str, data: bytes, *, durable: bool = True) -> float:
        """Write the temporary file; returns the file system's clock. On a full disk, room is made once."""
        try:
            return write(self._create(temporary), data, durable=durable).st_mtime
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            if not self._room.free(2 * len(data), len(data), key, time.time()):
                raise
        return write(self._create(temporary), data, durable=durable).st_mtime

    def _publish(self, news: Sequence[_New], now: float) -> None:
        """Give entries of one directory their names, and write down what changed."""

        def act() -> Change:
            size, entries, lowest = 0, 0, math.inf
            for new in news:
                place = f"{self._place}/{new.key[:2]}/{new.key}"
                before = info_of(place)
                os.replace(new.temporary, place)
                size += new.size - (0 if before is None else before.st_size)
                entries += before is None
                lowest = min(lowest, policy.priority(now, new.known.seconds, new.known.uses, new.size))
            return Change(size, entries, lowest, now)

        self._accounts.note_puts({new.key: new.known for new in news})
        self._accounts.change(shard_of(news[0].key), act, Upkeep(now, self.bounds))

    def which(self, key: str) -> tuple[int, ...] | None:
        """What tells the file of an entry from any that takes its place; `None` where there is none. Never raises."""
        return self._which(f"{self._place}/{key[:2]}/{check_key(key)}")[0]

    def use_if_still(self, key: str, which: tuple[int, ...] | None) -> bool:
        """Count a use of an entry that was read earlier, as no use, if its file is still the one that it was then.

        One that was put aside, removed or written anew meanwhile is not. Never raises.
        """
        place = f"{self._place}/{key[:2]}/{check_key(key)}"
        now, changed = self._which(place)
        if now is None or now != which:
            return False
        if not self.read_only and abs(time.time() - changed) > _RENEW_AFTER:
            self._renew(key, place)
        return True

    def _which(self, place: str) -> tuple[tuple[int, ...] | None, float]:
        try:
            status = os.stat(place)
        except OSError:
            return None, 0.0
        return (status.st_dev, status.st_ino, status.st_size), status.st_mtime

    def _renew(self, key: str, place: str) -> None:
        # Where the file system's clock is not ours, or it does not keep mtimes, an entry would look old at every hit.
        moment = time.monotonic()
        if moment - self._renewed.get(key, -_RENEW_AFTER) < _RENEW_AFTER:
            return
        if len(self._renewed) >= _RENEWED:
            self._renewed.clear()
        self._renewed[key] = moment
        with contextlib.suppress(OSError):  # read-only, or not ours: recency is a courtesy
            os.utime(place)
            self._accounts.note_use(key)

    def _create(self, temporary: str) -> int:
        try:
            return create(temporary, self._modes)
        except FileNotFoundError:  # the first entry of this directory, or somebody cleared it meanwhile
            self._make_shard(Path(temporary).parent)
            return create(temporary, self._modes)

    def _make_shard(self, shard: Path) -> None:
        try:
            small_files.make_folder(shard, self._modes.directory)
        except FileNotFoundError:
            self._make_root()
            small_files.make_folder(shard, self._modes.directory)

    def _make_root(self) -> None:
        self.root.parent.mkdir(parents=True, exist_ok=True)
        small_files.make_folder(self.root, self._modes.directory)
        tag = self.root / TAG_NAME
        if not tag.is_file():
            with contextlib.suppress(OSError):
                tag.rmdir()  # an empty folder has no business here, and a full one stays
            if not tag.is_dir():
                self._write_tag(tag)

    def _write_tag(self, tag: Path) -> None:
        temporary = temporary_for(self._place, TAG_NAME)
        try:
            write(create(temporary, self._modes), _TAG)
            os.replace(temporary, tag)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _remove_books(self) -> None:
        for path in (self.root / totals.NAME, *(self.root / shard / usage.NAME for shard in SHARDS)):
            with contextlib.suppress(OSError):
                path.unlink()


def _status_of(folder: Path) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        return folder.stat()
    return None
