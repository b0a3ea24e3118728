"""Tuning results in the store: one entry for each compile that had new ones, a batch.

Not promised: that a batch is used. It is data for one place (`places.py`), and goes there by the merge rule like any
other result. What is in it is checked by the envelope, and in a remote by its signature, before anything is parsed.

An entry of kind "tuning" is in the form of `envelope/format.py`. Its components are two, and its key is made of them as
all keys are, so two hosts that found the same have one entry:

    place      {"build":, "device":, "family":, "fingerprint":, "name":}    see `places.Place`
    content    SHA-256 of the section

Its section "tuning" is canonical JSON, sorted by path:

    {"files": [[path below xla/, base64 of the file, HLO text or ""], ...], "version": 1}

Bump the number when a reader of the present version would misread the section.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rewarm.autotune import checked
from rewarm.autotune.formats.model import Family, TuningEntry
from rewarm.autotune.formats.reading import LARGEST_FUSION, MOST_ENTRIES, read_bytes, with_keys
from rewarm.autotune.formats.writing import fusion_path, serialised
from rewarm.autotune.places import Place
from rewarm.envelope import Header, open_entry, seal
from rewarm.errors import BadEntryError, StoreError
from rewarm.identity.components import Component, component, derive_key
from rewarm.sharing import tuning
from rewarm.store import LocalStore

SECTION = "tuning"
VERSION = 1
_LARGEST = 256 << 20

# What a batch is called in lists, where it is of no program.
PROGRAM = "tuning results"


@dataclass(frozen=True, slots=True)
class Batch:
    """What an entry holds.

    Attributes:
      place: the name of the place that it is for.
      about: what the entry says of the place: build, device, family, fingerprint.
      entries: the results.
      header: of the entry.
    """

    place: str
    about: Mapping[str, Any]
    entries: tuple[TuningEntry, ...]
    header: Header


def sealed(
    place: Place,
    entries: Iterable[TuningEntry],
    *,
    program: str = "",
    seconds: float = 0.0,
    producer: Mapping[str, str],
) -> tuple[str, bytes]:
    """The key and the bytes of an entry with these results.

    Args:
      place: what they are for.
      entries: each must say what its file's name is made of.
      producer: versions of what made them.
      program: whose compile found them, for people.
      seconds: what finding them took, as far as it is known: what a host spares that has them.

    Raises:
      TuningFormatError: an entry has no file's name.
    """
    content = _content(entries)
    rows = (_place_row(place), component("content", hashlib.sha256(content).hexdigest()))
    header = Header(
        kind=tuning.KIND,
        key=derive_key((row.name, row.digest) for row in rows),
        components=tuple(row.as_dict() for row in rows),
        program=program or PROGRAM,
        compile_seconds=seconds,
        created=time.time(),
        producer=producer,
        target=place.device or place.fingerprint,
    )
    return header.key, seal(header, {SECTION: content})


def opened(data: bytes, key: str) -> Batch:
    """What an entry holds, once the envelope was checked.

    Raises:
      BadEntryError: it is no sound entry of this key, or none with results.
    """
    entry = open_entry(data, key)
    place = tuning.place_of(entry.header)
    if place is None:
        raise BadEntryError("it is no entry with tuning results")
    if derive_key((str(row.get("name")), str(row.get("digest"))) for row in entry.header.components) != key:
        raise BadEntryError("its components are not those of its key")
    content = next(row for row in entry.header.components if row.get("name") == "content")
    if any(section.raw_length > _LARGEST for section in entry.header.sections):
        raise BadEntryError("its results are more than any compile finds")
    raw = entry.section(SECTION)
    if content.get("value") != hashlib.sha256(raw).hexdigest():
        raise BadEntryError("its results are not those of its key")
    about = next(row["value"] for row in entry.header.components if row.get("name") == tuning.PLACE)
    return Batch(place, about, tuple(_entries(raw)), entry.header)


def keep(
    store: LocalStore,
    place: Place,
    key: str,
    data: bytes,
    *,
    seconds: float = 0.0,
    made: Callable[[bytes], object] | None = None,
) -> None:
    """Put a batch into the local store, and note it in the place. `made` hears of one that was made here before it is
    stored: it is signed when it is sent.

    Raises:
      StoreError: it was not stored.
    """
    if made is not None:
        made(data)
    store.put(key, data, seconds=seconds)
    tuning.note_here(store.root, place.name, key)


def absorb(store: LocalStore, place: Place, known: set[str]) -> int:
    """Put the results of batches that lie in the store, and that hints name, into the place; returns how many are new.

    Args:
      store: where the batches are.
      place: what they are for.
      known: keys of batches that were absorbed already; those that are now are added.

    Raises:
      MissingLibraryError: protobuf is not there.
      OSError: the place cannot be written to, or its lock is held for too long; then none counts as absorbed.
    """
    fresh = [key for key in place.batches() if key not in known]
    entries: list[TuningEntry] = []
    for key in fresh:
        batch = _batch_here(store, key)
        if batch is None:
            tuning.forget_here(store.root, place.name, key)
        elif batch.place == place.name:
            entries += batch.entries
    new = add_sound(place, entries, kept=True) if entries else 0
    known.update(fresh)
    return new


def add_sound(place: Place, entries: Iterable[TuningEntry], *, kept: bool) -> int:
    """As `Place.add`, without those that are not sound, or not for this place: a batch may be another version's.

    Raises:
      MissingLibraryError, OSError: see `Place.add`.
    """
    means = checked.Means(build=place.known_build)
    bare = [replace(entry, source=type(entry.source)()) for entry in entries if place.takes(entry.family)]
    sound = [entry for entry in bare if not checked.first_error((entry,), means)]
    return place.add(sound, kept=kept) if sound else 0


def _batch_here(store: LocalStore, key: str) -> Batch | None:
    try:
        data = store.get(key, use=False)
        return opened(data, key) if data is not None else None
    except BadEntryError as error:
        store.quarantine(key, error.reason, None)
    except StoreError:
        pass
    return None


def _place_row(place: Place) -> Component:
    about = {
        "build": place.build,
        "device": place.device,
        "family": place.family.value,
        "fingerprint": place.fingerprint,
        "name": place.name,
    }
    return component(tuning.PLACE, about)


def _content(entries: Iterable[TuningEntry]) -> bytes:
    rows = {fusion_path(entry): entry for entry in entries}
    files = [
        [path, base64.b64encode(serialised(rows[path], lossy=True)).decode(), _text(rows[path])]
        for path in sorted(rows)
    ]
    told = {"version": VERSION, "files": files}
    return json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _text(entry: TuningEntry) -> str:
    """What a legacy file does not say: its whole key, so that results files can be made of it."""
    if entry.family is Family.NEW or entry.device is None or entry.fusion is None:
        return ""
    return json.dumps([entry.device, entry.fusion, entry.versions.entry])


def _entries(raw: bytes) -> Iterator[TuningEntry]:
    try:
        told = json.loads(raw)
        rows = told["files"] if told["version"] == VERSION else []
        if len(rows) > MOST_ENTRIES:
            raise BadEntryError("it holds more results than are ever read")
        for path, text, said in rows:
            if not isinstance(path, str) or len(text) > 2 * LARGEST_FUSION:
                raise BadEntryError("its results are not in the known form")
            yield from _entry(path, base64.b64decode(text, validate=True), said)
    except (ValueError, TypeError, KeyError, RecursionError, binascii.Error) as wrong:
        if isinstance(wrong, BadEntryError):
            raise
        raise BadEntryError(f"its results are not in the known form: {type(wrong).__name__}") from wrong


def _entry(path: str, data: bytes, said: str) -> Iterator[TuningEntry]:
    """One result; none where it is not what its path says, which is no fault of the others."""
    wanted = checked.format_of(path)
    if wanted is None or ".." in path.split("/"):
        return
    reading = read_bytes(data, Path(path), wanted)
    if reading.is_broken or not reading.entries:
        return
    entries = reading.entries
    if said:
        device, fusion, version = json.loads(said)
        entries = with_keys(entries, iter(((str(device), str(fusion), int(version)),)))
    # A name that its content does not have would put a result where another's belongs.
    yield from (entry for entry in entries if fusion_path(entry) == path)
