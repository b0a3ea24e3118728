"""Bundles: chosen entries in one file, for container images, CI caches and machines without a network.

Not promised: that a bundle is complete, or that what is in it is for this machine. Each entry proves itself as one from
a remote does, and is refused like one; nothing in a bundle is a name of a file to be written.

A bundle is a ZIP file (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT), members stored as they are:

    rewarm-bundle.json    {"version": 1, "created": s, "entries": {key: {"program":, "target":, "bytes":}}}
    entries/<64 hex>      an entry, in the form of `trust/frame.py`, signed for the namespace "bundle"

A signature says who made an entry, so what goes into a bundle is what was made here (`made.py`). What others made stays
in one with the signature with which it came there; a store keeps none, so from there it goes in only where that is
asked for, and is signed like one's own then.

The table is for people; loading looks at the members alone. No namespace of a remote may have that name
(`setting_values.py`). A bundle is written beside its place and renamed; behind a link, the file that it leads to is
replaced, with the mode that it has. Who is killed leaves what he had written: `.<name>.<pid>.<8 hex>.tmp`, which a
later writer of the bundle removes once it is an hour old.

Race: several that write one bundle take turns, by a lock on its folder (`flock`), so that each adds to what the one
before has written. Where the folder cannot be locked (Windows, no right to read it, some network file systems, hosts
that do not see each other's locks), the last to finish wins, and what the others added meanwhile is lost.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
import struct
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError, RewarmError, StoreError
from rewarm.locks import try_lock
from rewarm.setting_values import OF_BUNDLES
from rewarm.sharing import tuning
from rewarm.sharing.made import Made
from rewarm.sharing.tier import LARGEST
from rewarm.store import LocalStore
from rewarm.store.accounts import ORPHAN_AFTER
from rewarm.store.contract import is_key
from rewarm.telling import say_nothing
from rewarm.trust import Keyring, Posture, RefusedEntryError, SigningKey, signed, unsigned_entry

NAMESPACE = OF_BUNDLES
VERSION = 1
_TABLE = "rewarm-bundle.json"
_FOLDER = "entries/"
_TABLE_BYTES = 64 << 20

# Seconds. Another may have gigabytes to write; one that was stopped is not waited for for ever.
_PATIENCE = 600.0
_PAUSE = 0.05

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)

# What zipfile raises for a file that is no sound archive.
_DAMAGE = (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, IndexError, OverflowError, struct.error)

# ZIP's earliest time: two bundles of the same entries differ in their table's "created" alone.
_EPOCH = (1980, 1, 1, 0, 0, 0)


class BadBundleError(RewarmError, ValueError):
    """A file is no bundle, or one of a newer rewarm."""


class Member(NamedTuple):
    """One entry of a bundle.

    Attributes:
      key: 64 hexadecimal digits.
      size: bytes as it lies in the bundle.
      program: its name, as the table says; "" where it does not.
      target: a few words on the device, likewise.
    """

    key: str
    size: int
    program: str
    target: str


class Loaded(NamedTuple):
    """What became of one entry of a bundle.

    Attributes:
      key: 64 hexadecimal digits.
      outcome: "stored", "there already", or why it was refused, or not stored.
      size: bytes of the entry; 0 where it is not here.
    """

    key: str
    outcome: str
    size: int = 0


class Updated(NamedTuple):
    """What became of a bundle that entries were added to.

    Attributes:
      added: entries that it had not.
      replaced: entries that it had, in a form that is refused here, and has now as this host has them.
      refused: why each entry that stays in it would be refused here; this host has none of the same key.
      dropped: why each entry is not in it any more: it could not be read, and this host has none of the same key.
      kept: how many entries stay as they were, and are accepted here.
      passed_over: keys of entries that are not in it, since they are not known to be made here.
      foreign: names of members that are not in it any more, since they are none of a bundle's.
    """

    added: list[Member]
    replaced: list[Member]
    refused: Mapping[str, str]
    dropped: Mapping[str, str]
    kept: int = 0
    passed_over: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


STORED, THERE = "stored", "there already"

# What is said of entries that are passed over.
PASSED_OVER = "passed over, since not known to be made here; --all takes them, with your signature"


def save(
    path: Path,
    store: LocalStore,
    keys: Iterable[str],
    keyring: Keyring,
    *,
    made: Made | None,
    only_new: bool = False,
    tell: Callable[[str], None] = say_nothing,
) -> Updated:
    """Write a bundle of these entries, in place of what is there.

    Entries that are gone or damaged are left out. What is in it is signed if there is a key to sign with.

    Args:
      path: the file.
      store: where the entries are.
      keys: which.
      keyring: with what they are signed.
      made: what this user made here; other entries are passed over. `None`: they are taken, and so signed, too.
      only_new: what is there stays, and is an error.
      tell: hears one line where another is waited for.

    Raises:
      OSError: it cannot be written, or is there (`FileExistsError`); what was there is as it was.
      UnusableKeyError: there is a key to sign with, and it cannot be used.
    """
    with _turn(path, tell) as place, _beside(place, only_new=only_new) as bundle:
        source = _Source(store, keyring.signing_key(), made)
        added = list(source.add_to(bundle, keys))
        _finish(bundle, added)
    return Updated(added, [], {}, {}, passed_over=tuple(source.passed_over))


def update(
    path: Path,
    store: LocalStore,
    keys: Iterable[str],
    keyring: Keyring,
    *,
    made: Made | None,
    tell: Callable[[str], None] = say_nothing,
) -> Updated:
    """Add entries to a bundle, which need not be there; the arguments are those of `save`.

    What is in it stays, unless this user would refuse it where entries have to be signed: that is replaced by the entry
    of these that has the same key. Without a key to sign with, what would be added would be refused there too; then
    only that goes which is refused even where whoever wrote it is trusted.

    Raises:
      OSError: it cannot be written; what was there is as it was.
      BadBundleError: what is there is no bundle.
      UnusableKeyError: there is a key to sign with, and it cannot be used.
    """
    signer = keyring.signing_key()
    posture = Posture.STORE if signer is None else Posture.REQUIRE
    source = _Source(store, signer, made)
    with _turn(path, tell) as place, _beside(place) as bundle:
        if not place.exists():
            added = list(source.add_to(bundle, keys))
            _finish(bundle, added)
            return Updated(added, [], {}, {}, passed_over=tuple(source.passed_over))
        with _opened(place) as older:
            there = list(_members(older, _table(older)))
            kept, refused, dropped = _keep(there, older, bundle, keyring, posture)
            taken = list(source.add_to(bundle, (key for key in keys if key not in kept)))
            replaced = {one.key for one in taken} & {*refused, *dropped}
            stays = [one for one in there if one.key in refused and one.key not in replaced]
            for one in stays:
                _put(bundle, one.key, _read(older, f"{_FOLDER}{one.key}", LARGEST))
            _finish(bundle, [*(one for one in there if one.key in kept), *stays, *taken])
            foreign = tuple(_foreign(older))
    return Updated(
        [one for one in taken if one.key not in replaced],
        [one for one in taken if one.key in replaced],
        {one.key: refused[one.key] for one in stays},
        {key: why for key, why in dropped.items() if key not in replaced},
        len(kept),
        tuple(source.passed_over),
        foreign,
    )


def members(path: Path) -> list[Member]:
    """What a bundle says that it holds, NOT verified.

    Raises:
      BadBundleError: it is no bundle.
      OSError: it cannot be read.
    """
    with _opened(path) as bundle:
        return list(_members(bundle, _table(bundle)))


def load(path: Path, store: LocalStore, keyring: Keyring, posture: Posture) -> Iterator[Loaded]:
    """Put the entries of a bundle into a store, each once it was checked and found to be one that may be trusted.

    Raises:
      BadBundleError: it is no bundle.
      OSError: it cannot be read.
      StoreError: an entry cannot be stored.
    """
    with _opened(path) as bundle:
        for member in _members(bundle, _table(bundle)):
            yield _load(bundle, member.key, store, keyring, posture)


def _load(bundle: zipfile.ZipFile, key: str, store: LocalStore, keyring: Keyring, posture: Posture) -> Loaded:
    if _is_there(store, key):
        return Loaded(key, THERE)
    try:
        entry = unsigned_entry(_read(bundle, f"{_FOLDER}{key}", LARGEST), key, NAMESPACE, keyring, posture)
    except (RefusedEntryError, BadEntryError) as error:
        return Loaded(key, f"refused: {error}")
    header = open_entry(entry, key).header
    try:
        store.put(key, entry, seconds=header.compile_seconds)
    except StoreError as error:
        if error.errno != errno.EFBIG:
            raise
        return Loaded(key, f"not stored: {error.strerror}")
    tuning.note_if_tuning(store.root, header)
    return Loaded(key, STORED, len(entry))


def _is_there(store: LocalStore, key: str) -> bool:
    """Whether the store has a sound entry of this key: a damaged one is to be replaced."""
    try:
        data = store.get(key, use=False)
        return data is not None and open_entry(data, key) is not None
    except (BadEntryError, StoreError):
        return False


class _Source:
    """The store that entries of a bundle come from.

    Attributes:
      passed_over: keys of what is there and was not taken, since it is not known to be made here.
    """

    def __init__(self, store: LocalStore, signer: SigningKey | None, made: Made | None) -> None:
        self._store = store
        self._signer = signer
        self._made = made
        self.passed_over: list[str] = []

    def add_to(self, bundle: zipfile.ZipFile, keys: Iterable[str]) -> Iterator[Member]:
        for key in dict.fromkeys(keys):  # a bundle in which one is twice is none
            try:
                entry = self._store.get(key, use=False)
                header = open_entry(entry, key).header if entry is not None else None
            except (BadEntryError, StoreError):
                continue
            if entry is None or header is None:
                continue
            if self._made is not None and not self._made.has(entry):
                self.passed_over.append(key)
                continue
            blob = entry if self._signer is None else signed(entry, key, NAMESPACE, self._signer)
            _put(bundle, key, blob)
            yield Member(key, len(blob), header.program, header.target)


def _keep(
    there: Iterable[Member], older: zipfile.ZipFile, bundle: zipfile.ZipFile, keyring: Keyring, posture: Posture
) -> tuple[set[str], dict[str, str], dict[str, str]]:
    """Take over what is accepted here. Returns the keys of that, and why others are refused, or cannot be read."""
    kept: set[str] = set()
    refused: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for key in (member.key for member in there):
        try:
            blob = _read(older, f"{_FOLDER}{key}", LARGEST)
            unsigned_entry(blob, key, NAMESPACE, keyring, posture)
        except BadEntryError as error:
            unreadable[key] = error.reason
        except RefusedEntryError as error:
            refused[key] = error.reason
        else:
            _put(bundle, key, blob)
            kept.add(key)
    return kept, refused, unreadable


def _put(bundle: zipfile.ZipFile, key: str, blob: bytes) -> None:
    bundle.writestr(_info(f"{_FOLDER}{key}"), blob)


def _finish(bundle: zipfile.ZipFile, entries: Iterable[Member]) -> None:
    """Write the table."""
    table = {one.key: {"program": one.program, "target": one.target, "bytes": one.size} for one in entries}
    said = {"version": VERSION, "created": time.time(), "entries": table}
    bundle.writestr(_info(_TABLE), json.dumps(said, sort_keys=True, indent=1))


# -- the file ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _turn(path: Path, tell: Callable[[str], None]) -> Iterator[Path]:
    """The file that is to be written, behind all links, while nobody else writes one in its folder.

    Raises:
      TimeoutError: somebody else does, for ten minutes.
    """
    place = Path(os.path.realpath(path))
    try:
        descriptor = os.open(place.parent, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:  # it cannot be locked; where nothing can be written either, that is said then
        yield place
        return
    try:
        if _locked(descriptor, place, tell):
            _remove_leftovers(place)
        yield place
    finally:
        os.close(descriptor)


def _locked(folder: int, place: Path, tell: Callable[[str], None]) -> bool:
    """Wait for the lock; whether there are locks."""
    until = time.monotonic() + _PATIENCE
    told = False
    while (ours := try_lock(folder)) is False:
        if not told:
            tell(f"waiting for another that writes a bundle in {place.parent}")
            told = True
        if time.monotonic() > until:
            raise TimeoutError(
                errno.ETIMEDOUT, f"another has been writing a bundle there for {_PATIENCE:.0f} s", str(place)
            )
        time.sleep(_PAUSE)
    return ours is True


def _remove_leftovers(place: Path) -> None:
    """Remove what writers of this bundle left that died."""
    ours = re.compile(rf"\.{re.escape(place.name)}\.[0-9]+\.[0-9a-f]{{8}}\.tmp")
    with contextlib.suppress(OSError), os.scandir(place.parent) as items:
        for item in items:
            if ours.fullmatch(item.name) and time.time() - item.stat(follow_symlinks=False).st_mtime > ORPHAN_AFTER:
                with contextlib.suppress(OSError):  # another's
                    Path(item).unlink()


@contextlib.contextmanager
def _beside(place: Path, *, only_new: bool = False) -> Iterator[zipfile.ZipFile]:
    """An archive that takes the place of the file, with its mode and owner, once it is whole.

    Raises:
      OSError: it cannot be written; what was there is as it was.
    """
    if only_new and os.path.lexists(place):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
    temporary = place.with_name(f".{place.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(_made_like(place, temporary), "w+b") as file, zipfile.ZipFile(file, "w") as bundle:
            yield bundle
        temporary.replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _made_like(place: Path, temporary: Path) -> int:
    """A new file that nobody may read who may not read the one that it replaces; open."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        there = place.stat()
    except OSError:
        return os.open(temporary, flags, 0o666)
    descriptor = os.open(temporary, flags, 0o600)
    if hasattr(os, "fchown"):
        with contextlib.suppress(OSError):  # another's; then it is ours from now on
            os.fchown(descriptor, there.st_uid, there.st_gid)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
    return descriptor


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    with _regular(path) as file:
        try:
            bundle = zipfile.ZipFile(file)
        except (*_DAMAGE, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # which an offset is that cannot be
                raise
            raise _bad(path, "it is no ZIP file, or was cut short") from error
        names = bundle.namelist()
        if len(set(names)) < len(names):  # what one reader checks another might not read
            raise _bad(path, "two of its members have one name")
        if sum(info.compress_size for info in bundle.infolist()) > os.fstat(file.fileno()).st_size:
            raise _bad(path, "its members say that they have more bytes than it has")
        yield bundle


def _regular(path: Path) -> BinaryIO:
    """The file, opened. Without O_NONBLOCK a FIFO under its name would hold the program for ever.

    Raises:
      BadBundleError: it is something else.
      OSError: it cannot be read.
    """
    file = open(path, "rb", opener=lambda name, _: os.open(name, _READ))  # noqa: SIM115 - its caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _bad(path, "it is no file, but a folder, a pipe or a device")
    return file


def _bad(path: Path | str | None, why: str) -> BadBundleError:
    return BadBundleError(f"{path} is no bundle of rewarm: {why}; make one with rewarm bundle save")


def _table(bundle: zipfile.ZipFile) -> dict[str, Any]:
    path = getattr(bundle.fp, "name", None)
    try:
        said = json.loads(_read(bundle, _TABLE, _TABLE_BYTES))
        version, entries = said["version"], said["entries"]
    except KeyError as error:
        raise _bad(path, f"it has no {_TABLE}, or not all that belongs there") from error
    except (ValueError, TypeError, BadEntryError, RecursionError) as error:
        raise _bad(path, "its table cannot be read") from error
    if version != VERSION or not isinstance(entries, dict):
        raise BadBundleError(f"{path} is a bundle of version {version!r}, this rewarm reads {VERSION}")
    return entries


def _members(bundle: zipfile.ZipFile, table: dict[str, Any]) -> Iterator[Member]:
    for info in bundle.infolist():
        key = info.filename.removeprefix(_FOLDER)
        if info.filename.startswith(_FOLDER) and is_key(key):
            said = table.get(key)
            said = said if isinstance(said, dict) else {}
            yield Member(key, info.file_size, _word(said.get("program")), _word(said.get("target")))


def _foreign(bundle: zipfile.ZipFile) -> Iterator[str]:
    """Names of members that are none of a bundle's, for a terminal."""
    for name in bundle.namelist():
        if name not in (_TABLE, _FOLDER) and not (name.startswith(_FOLDER) and is_key(name.removeprefix(_FOLDER))):
            yield _word(name)


def _word(said: Any) -> str:
    """A word of the table, which anybody may have written, for a terminal."""
    return "".join(letter for letter in said[:200] if letter.isprintable()) if isinstance(said, str) else ""


def _read(bundle: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """The bytes of a member, which was not compressed.

    Raises:
      BadEntryError: it was, or is damaged, or says that it has more bytes than `limit`: nothing is unpacked here.
      KeyError: there is none.
    """
    info = bundle.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
        raise BadEntryError("the bundle's member is compressed or encrypted")
    if info.file_size > limit:
        raise BadEntryError("the bundle's member is larger than any entry")
    try:
        return bundle.read(info)
    except (*_DAMAGE, RuntimeError, OSError) as error:  # OSError: an offset that cannot be
        raise BadEntryError("the bundle is damaged, or cannot be read") from error


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.external_attr = 0o644 << 16
    return info
