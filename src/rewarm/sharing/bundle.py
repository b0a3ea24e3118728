"""Bundles: chosen entries in one file, for container images, CI caches and machines without a network.

Not promised: that a bundle is complete, or that what is in it is for this machine. Each entry proves itself as one from
a remote does, and is refused like one; nothing in a bundle is a name of a file to be written.

A bundle is a ZIP file (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT), members stored as they are:

    rewarm-bundle.json    {"version": 1, "created": s, "entries": {key: {"program":, "target":, "bytes":}}}
    entries/<64 hex>      an entry, in the form of `trust/frame.py`, signed for the namespace "bundle"

The table is for people; loading looks at the members alone. A bundle is written beside its place and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import struct
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError, RewarmError, StoreError
from rewarm.sharing import tuning
from rewarm.sharing.tier import LARGEST
from rewarm.store import LocalStore
from rewarm.store.contract import is_key
from rewarm.trust import Keyring, Posture, RefusedEntryError, signed, unsigned_entry

NAMESPACE = "bundle"
VERSION = 1
_TABLE = "rewarm-bundle.json"
_FOLDER = "entries/"
_TABLE_BYTES = 64 << 20

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
      outcome: "stored", "there already", or why it was refused.
      size: bytes of the entry; 0 where it was refused.
    """

    key: str
    outcome: str
    size: int = 0


STORED, THERE = "stored", "there already"


def save(path: Path, store: LocalStore, keys: Iterable[str], keyring: Keyring, *, update: bool = False) -> list[Member]:
    """Write a bundle of these entries; with `update` those of the bundle that is there stay in it.

    Entries that are gone or damaged are left out. Returns what was added.

    Raises:
      OSError: it cannot be written; what was there is as it was.
      BadBundleError: `update`, and what is there is no bundle.
      UnusableKeyError: there is a key to sign with, and it cannot be used.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "x", zipfile.ZIP_STORED) as bundle:
            table = _copy(path, bundle) if update and path.exists() else {}
            added = list(_add(bundle, store, (key for key in keys if key not in table), keyring))
            table.update({one.key: {"program": one.program, "target": one.target, "bytes": one.size} for one in added})
            said = {"version": VERSION, "created": time.time(), "entries": table}
            bundle.writestr(_info(_TABLE), json.dumps(said, sort_keys=True, indent=1))
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return added


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
    store.put(key, entry, seconds=header.compile_seconds)
    tuning.note_if_tuning(store.root, header)
    return Loaded(key, STORED, len(entry))


def _is_there(store: LocalStore, key: str) -> bool:
    """Whether the store has a sound entry of this key: a damaged one is to be replaced."""
    try:
        data = store.get(key, use=False)
        return data is not None and open_entry(data, key) is not None
    except (BadEntryError, StoreError):
        return False


def _add(bundle: zipfile.ZipFile, store: LocalStore, keys: Iterable[str], keyring: Keyring) -> Iterator[Member]:
    signer = keyring.signing_key()
    for key in keys:
        try:
            entry = store.get(key, use=False)
            header = open_entry(entry, key).header if entry is not None else None
        except (BadEntryError, StoreError):
            continue
        if entry is None or header is None:
            continue
        blob = entry if signer is None else signed(entry, key, NAMESPACE, signer)
        bundle.writestr(_info(f"{_FOLDER}{key}"), blob)
        yield Member(key, len(blob), header.program, header.target)


def _copy(path: Path, bundle: zipfile.ZipFile) -> dict[str, Any]:
    """Take over all sound members of an older bundle; returns its table."""
    copied: dict[str, Any] = {}
    with _opened(path) as older:
        table = _table(older)
        for member in _members(older, table):
            try:
                blob = _read(older, f"{_FOLDER}{member.key}", LARGEST)
            except BadEntryError:
                continue
            bundle.writestr(_info(f"{_FOLDER}{member.key}"), blob)
            copied[member.key] = {"program": member.program, "target": member.target, "bytes": member.size}
    return copied


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
