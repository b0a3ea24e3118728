"""Which entries no longer serve anything, and taking them out.

Not promised: that what stays is used by a program (`coverage` says that of one program), or that what goes was of no
use to anybody else: a build or a device is only judged where one was asked for. What an entry does not say is never
held against it: a file of a legacy directory stays, whatever build or device is asked for.

Files of a folder are removed one by one, so a reader finds each whole or not at all; a results or cache file is written
anew, whole. An entry that XLA puts in the place of one that is just being removed is removed with it, and tuned again.
No file is removed but what is a tuning file beyond doubt (`beyond_doubt.py`): what cannot be read goes only if its name
is of XLA's own form. A set of which nothing would be left stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rewarm.autotune.beyond_doubt import is_named, tuning_files
from rewarm.autotune.formats import (
    Build,
    Device,
    Finding,
    Format,
    Reading,
    Severity,
    TuningEntry,
    files,
    validate,
)
from rewarm.autotune.formats.matching import finds
from rewarm.autotune.formats.writing import contents
from rewarm.autotune.merging import Reader, better, slot
from rewarm.autotune.outputs import OutputError, followed, modes_for
from rewarm.autotune.selecting import WantedDevice, serves

# What makes a file of a folder useless for everyone; one that only this user cannot read may be another's.
_BROKEN = frozenset({"binary", "binary-where-text", "empty", "header-only", "text", "text-where-binary"})


class Dropped(NamedTuple):
    """What goes, and why, in words. Without an entry it is a file that could not be read."""

    entry: TuningEntry | None
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What stays and what goes of one file or folder."""

    reading: Reading
    kept: tuple[TuningEntry, ...]
    dropped: tuple[Dropped, ...]


def plan(reading: Reading, *, builds: Sequence[Build] = (), devices: Sequence[Device] = (), whole: str = "") -> Plan:
    """What would go.

    Args:
      builds: who is to be served; any one will do. Without any, the versions are not judged.
      devices: what is to be served; as above.
      whole: why all of it goes, in words; empty where each entry is looked at.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    dropped = _useless_files(reading)
    unsound = _unsound(reading)
    certain = tuning_files(reading)
    staying: list[TuningEntry] = []
    for entry in reading.entries:
        why = whole or unsound.get(_identity(entry)) or _serves_nobody(entry, builds, devices)
        if why and _of_folder(reading) and not (entry.source.path in certain or _is_named(entry.source.path, reading)):
            continue  # maybe no tuning file at all: neither kept as one nor removed
        if why:
            dropped.append(Dropped(entry, entry.source.path, why))
        else:
            staying.append(entry)
    kept, repeated = _one_for_each_place(staying, builds, devices)
    kept, never = _that_are_taken(kept, builds, devices)
    return Plan(reading, tuple(kept), (*dropped, *repeated, *never))


def _identity(entry: TuningEntry) -> tuple[str, int]:
    return entry.source.path, entry.source.index


def _words(finding: Finding) -> str:
    return f"{finding.code}: expected {finding.expected}, found {finding.found}"


def _useless_files(reading: Reading) -> list[Dropped]:
    """Files of a folder that were not read as results and have their names, each with the first thing that is wrong."""
    read_ = {entry.source.path for entry in reading.entries}
    found: dict[str, Finding] = {}
    for one in reading.findings:
        is_broken = one.severity is Severity.ERROR and one.code in _BROKEN
        if is_broken and one.place.path not in read_ and _is_named(one.place.path, reading):
            found.setdefault(one.place.path, one)
    return [Dropped(None, path, _words(one)) for path, one in found.items()]


def _is_named(path: str, reading: Reading) -> bool:
    return is_named(Path(path), reading.path)


def _of_folder(reading: Reading) -> bool:
    return reading.format is not None and reading.format.is_directory


def _unsound(reading: Reading) -> dict[tuple[str, int], str]:
    """Of each entry with an error the first one. Duplicates are another question, and so is the file as a whole."""
    found: dict[tuple[str, int], str] = {}
    of_folder = _of_folder(reading)
    for one in (*reading.findings, *validate(reading)):
        if one.severity is not Severity.ERROR or one.code == "duplicate":
            continue
        # A finding about a file is one about its entry where each entry has a file.
        index = one.place.entry or (1 if of_folder else 0)
        if index:
            found.setdefault((one.place.path, index), _words(one))
    return found


def _serves_nobody(entry: TuningEntry, builds: Sequence[Build], devices: Sequence[Device]) -> str:
    if devices and all(WantedDevice(one.fingerprint).admits(entry) is False for one in devices):
        return "of another device"
    asked = [(build, device) for build in builds for device in (devices or (None,))]
    if asked and all(serves(entry, build, device) is False for build, device in asked):
        return "of another build"
    if not (entry.versions.codegen or entry.versions.backend) and entry.family == "new":
        return "without a version: no build finds it"
    return ""


def _one_for_each_place(
    entries: Iterable[TuningEntry], builds: Sequence[Build], devices: Sequence[Device]
) -> tuple[list[TuningEntry], list[Dropped]]:
    """The best of each place, at the place of the first."""
    build = builds[0] if len(builds) == 1 else None
    reader = Reader(build, devices[0] if len(devices) == 1 else None)
    best: dict[tuple[str, ...], TuningEntry] = {}
    dropped = []
    for entry in entries:
        place = slot(entry, build)
        earlier = best.get(place)
        best[place] = entry if earlier is None else better(earlier, entry, reader)
        if earlier is not None:
            goes = entry if best[place] is earlier else earlier
            dropped.append(Dropped(goes, goes.source.path, "another entry has its place"))
    return list(best.values()), dropped


def _that_are_taken(
    entries: list[TuningEntry], builds: Sequence[Build], devices: Sequence[Device]
) -> tuple[list[TuningEntry], list[Dropped]]:
    """Without the lesser of several that a build finds for one fusion, as long as no other build or device takes it.

    What none of them finds for certain is not judged here.
    """
    readers = [Reader(build, device) for build in builds for device in devices]
    taken: dict[tuple[int, str | None], TuningEntry] = {}
    found: list[TuningEntry] = []
    for entry in entries:
        of = [one for one, reader in enumerate(readers) if _finds(entry, reader)]
        found += [entry] if of else []
        for one in of:
            known = taken.get((one, entry.fusion))
            taken[one, entry.fusion] = entry if known is None else better(known, entry, readers[one])
    lesser = {id(entry) for entry in found} - {id(entry) for entry in taken.values()}
    words = "another entry for the fusion is nearer to the build that is served"
    dropped = [Dropped(entry, entry.source.path, words) for entry in entries if id(entry) in lesser]
    return [entry for entry in entries if id(entry) not in lesser], dropped


def _finds(entry: TuningEntry, reader: Reader) -> bool:
    return reader.build is not None and reader.device is not None and finds(entry, reader.build, reader.device)


def apply(plan: Plan, *, may_be_empty: bool = False) -> int:
    """Take out what goes; returns how many entries and files went.

    Args:
      may_be_empty: whether a folder may lose all its files.

    Raises:
      OutputError: nothing would be left, or it is no file or folder of XLA's.
      TuningFormatError: the rest of a file cannot be written.
      OSError: something cannot be removed or written. Of a folder some of it may be done, each file whole.
    """
    told = plan.reading.format
    if not plan.dropped:
        return 0
    if told is None:
        raise OutputError(f"{plan.reading.path}: only XLA's own files and folders can be pruned in place")
    if not plan.kept and not (may_be_empty and told.is_directory):
        raise OutputError(f"{plan.reading.path}: no entry would be left; remove it yourself if it is not wanted")
    if told.files in (Format.LEGACY_FUSION, Format.NEW_FUSION):
        for path in _only_dropped(plan):
            with contextlib.suppress(FileNotFoundError):
                Path(path).unlink()
    else:
        # What is behind a link is what was read, and what XLA reads: that is written, and the link stays.
        behind = followed(plan.reading.path)
        ((_, data, _),) = contents(plan.kept, plan.reading.path, told, header=plan.reading.header)
        files.write(behind, data, modes_for(behind))
    return len(plan.dropped)


def _only_dropped(plan: Plan) -> list[str]:
    kept = {entry.source.path for entry in plan.kept}
    return [path for path in dict.fromkeys(one.path for one in plan.dropped) if path not in kept]
