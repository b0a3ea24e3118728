"""What a place takes of results that are added to it, and what each of its files is to hold then, by the merge rule.

Not promised: that a result is fast, or that XLA looks for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rewarm.autotune import checked
from rewarm.autotune.checked import Means, Seen
from rewarm.autotune.formats.builds import Build
from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Place, error
from rewarm.autotune.formats.model import Family, TuningEntry
from rewarm.autotune.formats.reading import read_bytes
from rewarm.autotune.formats.writing import fusion_path, serialised
from rewarm.autotune.merging import Reader, better


def refuse_family(entries: Iterable[TuningEntry], family: Family | None, build: str) -> None:
    """See to it that none is of the family that the build does not use; `None`: it may use either.

    Raises:
      TuningFormatError: one is.
    """
    for entry in entries:
        if family not in (None, entry.family):
            expected = f"an entry of the {family} family, which {build} uses"
            raise TuningFormatError(error("other-family", Place(entry.source.path), expected, entry.family.value))


def wanted(entries: Iterable[TuningEntry], means: Means, reader: Reader) -> dict[str, TuningEntry]:
    """One result for each file, by the file's path: of several the one that is better for whoever reads the place.

    Raises:
      TuningFormatError: one does not say what a file's name is made of, or is not sound.
    """
    found: dict[str, TuningEntry] = {}
    for entry in entries:
        # Its source is no file of this place, whose name and folder would be held against it.
        why = checked.first_error((replace(entry, source=type(entry.source)()),), means)
        if why:
            raise TuningFormatError(error("unsound", Place(entry.source.path), "a sound entry", why))
        named = _with_version(entry, means.build)
        path = fusion_path(named)
        found[path] = better(found[path], named, reader) if path in found else named
    return found


def _with_version(entry: TuningEntry, build: Build | None) -> TuningEntry:
    """A legacy result of whoever reads it is this build's, whose version is in the file's name."""
    if entry.family is Family.LEGACY and entry.device is not None and not entry.versions.entry and build:
        return replace(entry, versions=replace(entry.versions, entry=build.entry_version))
    return entry


def content(
    entry: TuningEntry, path: Path, seen: Seen | None, here: TuningEntry | None, reader: Reader
) -> bytes | None:
    """What a file is to hold; `None`: what it holds.

    Args:
      entry: that is added.
      path: the file.
      seen: what is known of the file, if it is there.
      here: the entry in it, if there is one.
      reader: who reads the place.
    """
    data = serialised(entry, lossy=True)
    if seen is None:
        return data
    if digest(data) == seen.digest:
        return None
    # A legacy file does not say its key, and one that is compared with it must not either.
    if here is not None and better(here, next(iter(read_bytes(data, path).entries), here), reader) == here:
        return None
    return data


def holds(entry: TuningEntry, seen: Seen | None) -> bool:
    """Whether a file has this entry as it is."""
    return seen is not None and seen.digest == digest(serialised(entry, lossy=True))


def digest(data: bytes) -> str:
    """As `checked.Seen` has it."""
    return hashlib.sha256(data).hexdigest()
