"""The merge rule: which of several results for one fusion stays.

Not promised: that the one that stays is the fastest. Run times are those of one tuner on one host: two hosts' clocks,
temperatures and neighbours differ, so a run time that is shorter by a few per cent decides, and means little. Nor is
anything run or compiled here; a sound entry is one that `validate` has no error for, without a build or a device.

What XLA looks up by one key has one place. Where build and device of the reader are known, all that it finds for one
fusion in the new formats has one place, too: it takes one of them. Of several entries for a place the first by this
order stays:

    1. a sound one before an unsound one
    2. one that says its device and fusion before one that is known by its file's name alone (legacy directories)
    3. one that says its version before one of version 0, where the build makes one place of both
    4. where the reader is known, the one that is nearer to it (new formats; `_Near`): its own, found strictly, before
       what it finds by the loose rule, and that before what it does not find
    5. one that says the version of its backend before one that does not (new formats: it outlives an upgrade)
    6. one with a measured run time before one without
    7. the shorter run time
    8. the smaller content, byte by byte, and for equal contents the smaller name of the source

The last rule means nothing and never says that something is better: it makes the choice the same everywhere. Each rule
looks at one entry alone, so this is a total order, and the result the same in any order and grouping of the sets
(associative, commutative, idempotent). When an entry was made is no rule: clocks of hosts differ, and files are copied.

XLA's files have no room for where an entry comes from. `TuningEntry.source` has it in memory, and `Merged.conflicts`
says what lost to what and why; whoever writes a file keeps that beside it, or loses it.

The order of what stays is one in which XLA may look: of a new file it takes the first entry of a fusion that matches,
also loosely. So the entries of a fusion are sorted by the same nearness. Where no reader is known, entries of a newer
build come first: a file outlives the builds that it was made with, and what is read next is newer. An older build may
then take a newer one's entry by the loose rule (`Merged.ambiguous` has such fusions); no order suits both.
"""

from __future__ import annotations

import enum
import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rewarm.autotune import selecting
from rewarm.autotune.formats import (
    BUILDS,
    Build,
    Device,
    Family,
    MissingLibraryError,
    Severity,
    TuningEntry,
    chosen,
    validate,
)
from rewarm.autotune.formats.keys import codegen_versions, legacy_digest
from rewarm.autotune.formats.matching import finds

_Slot = tuple[str, ...]


class Reader(NamedTuple):
    """Who is to read results, as far as it is known.

    Attributes:
      build: whose XLA.
      device: for what; one without the versions of its libraries counts as one whose codegen version is not known.
      own: codegen versions that are known to be the reader's, as it wrote them itself.
    """

    build: Build | None = None
    device: Device | None = None
    own: frozenset[str] = frozenset()


_NOBODY = Reader()


class _Near(enum.IntEnum):
    """How near an entry of the new formats is to its reader; the smaller stays, and comes first in a file."""

    ITS_OWN = 0
    OF_ITS_BUILD = 1
    """Of the reader's build, with the libraries of its device; where those are not known, of a device of `targets`."""
    MADE_ELSEWHERE = 2
    """Its codegen version is nobody's that is known: found by the loose rule, unless it is the reader's after all."""
    OF_ANOTHER_BUILD = 3
    """Another known build's, or without a codegen version: found by the loose rule alone."""
    NOT_FOUND = 4


class Lost(NamedTuple):
    """An entry that another one replaces, and by which rule, in words."""

    entry: TuningEntry
    why: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Results for one fusion that decide differently.

    Attributes:
      kept: the one that stays.
      lost: the others, the best first; none of them decides what `kept` does.
    """

    kept: TuningEntry
    lost: tuple[Lost, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """What several sets come to.

    Attributes:
      entries: one for each place, sorted by key, and those of one fusion as the module's text says.
      conflicts: where the sets of this merge disagreed, in the order of `entries`. Those of an earlier merge, whose
        result was one of the sets, are not among them.
      given: how many entries went in.
      ambiguous: of how many fusions there are several entries, of which one build may find more than one: in one new
        file XLA takes the first.
    """

    entries: tuple[TuningEntry, ...]
    conflicts: tuple[Conflict, ...]
    given: int
    ambiguous: int = 0

    @property
    def repeated(self) -> int:
        """How many entries went in that said nothing new."""
        return self.given - len(self.entries) - sum(len(conflict.lost) for conflict in self.conflicts)


def merge(
    *sets: Iterable[TuningEntry],
    build: Build | None = None,
    device: Device | None = None,
    own: frozenset[str] = frozenset(),
) -> Merged:
    """One entry for each place, by the rule.

    Args:
      sets: entries of any family and device; they may repeat each other.
      build: who is to read the result: a legacy entry of version 0 then has the place of this build's.
      device: on what it is to be read: all that the build finds there for one fusion then has one place.
      own: see `Reader`.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    reader = Reader(build, device, own)
    places: dict[_Slot, list[TuningEntry]] = {}
    given = 0
    for one in sets:
        for entry in one:
            given += 1
            places.setdefault(slot(entry, build, device), []).append(entry)
    settled = sorted((_settled(found, reader) for found in places.values()), key=lambda done: _order(done[0], reader))
    conflicts = tuple(Conflict(kept, lost) for kept, lost in settled if lost)
    entries = tuple(kept for kept, _ in settled)
    return Merged(entries, conflicts, given, _ambiguous(entries, reader))


def better(a: TuningEntry, b: TuningEntry, reader: Reader = _NOBODY) -> TuningEntry:
    """The one that stays; of equal ones, that whose source has the smaller name.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    if a == b:
        return min(a, b, key=_measure)
    return min(a, b, key=lambda entry: _rank(entry, reader))


def slot(entry: TuningEntry, build: Build | None = None, device: Device | None = None) -> tuple[str, ...]:
    """The place of an entry: entries of two places never meet in one look-up of XLA's.

    A file of a legacy directory has the place of the entry that its name is a digest of. Without build and device,
    entries of the new formats that one look-up may come to, and are of several builds, have places of their own.
    """
    if entry.family is Family.NEW and build is not None and device is not None and finds(entry, build, device):
        return ("new", entry.device or "", "", entry.fusion or "")
    if entry.family is Family.NEW or entry.device is None or entry.fusion is None:
        return entry.key
    version = entry.versions.entry or (build.entry_version if build else 0)
    return ("legacy", legacy_digest(entry.device, entry.fusion, version)) if version else entry.key


def _order(entry: TuningEntry, reader: Reader) -> tuple[_Slot, int, int, _Slot]:
    """By key, and the entries of a fusion that XLA may choose among with the nearest first, then the newest build's."""
    if entry.family is Family.LEGACY:
        return entry.key, 0, 0, ()
    return entry.key[:4], _near(entry, reader), -_newest(entry), entry.key


def _newest(entry: TuningEntry) -> int:
    """Which known build a new entry is of, or else which one's backend: the greater is the newer; 0 for none."""
    return _of_codegen(entry.versions.codegen) or _of_backend(entry.versions.backend)


@functools.lru_cache(256)
def _of_codegen(codegen: str) -> int:
    """The newest known build with this codegen version, from 1; before all that are told by their backends."""
    found = [number for number, build in enumerate(BUILDS, 1) if codegen in selecting.codegens(build)]
    return len(BUILDS) + found[-1] if found else 0


@functools.lru_cache(256)
def _of_backend(version: str) -> int:
    found = [number for number, build in enumerate(BUILDS, 1) if version and version in build.backend_versions.values()]
    return found[-1] if found else 0


def _ambiguous(entries: Iterable[TuningEntry], reader: Reader) -> int:
    """See `Merged`; of a reader that is known, what it does not find is passed over."""
    counted = Counter(
        entry.key[:4]
        for entry in entries
        if entry.family is Family.NEW and (reader.build is None or _near(entry, reader) is not _Near.NOT_FOUND)
    )
    return sum(number > 1 for number in counted.values())


def is_sound(entry: TuningEntry) -> bool:
    """Whether nothing is wrong with an entry by itself that XLA refuses, falls over, or takes for something else."""
    return not _unsound(entry)


def _unsound(entry: TuningEntry) -> str:
    """The first error, in words; empty for none."""
    try:
        found = next((one for one in validate((entry,)) if one.severity is Severity.ERROR), None)
    except MissingLibraryError:
        raise
    except Exception as wrong:  # noqa: BLE001 - the library's own error for bytes that are no message
        return f"its configuration cannot be read: {wrong}"
    return f"{found.code}: expected {found.expected}, found {found.found}" if found else ""


def _settled(found: list[TuningEntry], reader: Reader) -> tuple[TuningEntry, tuple[Lost, ...]]:
    """What stays, and what decides something else."""
    distinct: dict[TuningEntry, TuningEntry] = {}
    for entry in found:
        known = distinct.get(entry)
        distinct[entry] = entry if known is None else better(known, entry, reader)
    if len(distinct) == 1:
        return next(iter(distinct.values())), ()
    ranked = ((_rank(entry, reader), entry) for entry in distinct.values())
    (rank, kept), *others = sorted(ranked, key=lambda one: one[0])
    said = {_decision(kept)}
    lost = []
    for other, entry in others:
        decision = _decision(entry)
        if decision not in said:
            said.add(decision)
            lost.append(Lost(entry, _why(rank, other, entry)))
    return kept, tuple(lost)


def _decision(entry: TuningEntry) -> tuple[str, bytes]:
    """What an entry decides, without what it says of itself, such as run times."""
    try:
        name, message = chosen(entry)
    except MissingLibraryError:
        raise
    except Exception:  # noqa: BLE001 - as above
        return entry.backend, entry.config
    said = entry.config if message is None else message.SerializeToString(deterministic=True)
    # "CUBLASLT" of an unnamed entry and "CUBLASLT_FISSION" of a named one are one decision.
    return (name if entry.family is Family.LEGACY else f"{name}/{entry.backend}"), said


class _Measure(NamedTuple):
    """The last three rules, which also choose among equal entries; the smaller stays."""

    unmeasured: bool
    run_time: float
    content: tuple[object, ...]


class _Rank(NamedTuple):
    """The order of the module's text; the smaller stays."""

    unsound: bool
    unnamed: bool
    any_version: bool
    near: _Near
    no_backend_version: bool
    measure: _Measure


def _rank(entry: TuningEntry, reader: Reader) -> _Rank:
    legacy = entry.family is Family.LEGACY
    unnamed = entry.device is None or entry.fusion is None
    return _Rank(
        unsound=not is_sound(entry),
        unnamed=unnamed,
        any_version=legacy and not unnamed and not entry.versions.entry,
        near=_near(entry, reader),
        no_backend_version=not legacy and not entry.versions.backend,
        measure=_measure(entry),
    )


def _near(entry: TuningEntry, reader: Reader) -> _Near:
    """Of one entry and the reader alone; the same for all where no reader is known."""
    if entry.family is Family.LEGACY or reader == _NOBODY:
        return _Near.ITS_OWN
    codegen = entry.versions.codegen
    if codegen in reader.own:
        return _Near.ITS_OWN
    if reader.build is None:
        return _Near.MADE_ELSEWHERE
    if not _is_found(entry, reader.build, reader.device):
        return _Near.NOT_FOUND
    return _near_by_codegen(codegen, reader.build, _with_versions(reader.build, reader.device))


@functools.lru_cache(1 << 10)
def _near_by_codegen(codegen: str, build: Build, device: Device | None) -> _Near:
    if codegen in selecting.codegens(build, device):
        return _Near.OF_ITS_BUILD
    if not codegen or any(codegen in selecting.codegens(other) for other in BUILDS if other.jax != build.jax):
        return _Near.OF_ANOTHER_BUILD
    return _Near.MADE_ELSEWHERE


def _is_found(entry: TuningEntry, build: Build, device: Device | None) -> bool:
    """Whether a build may find an entry on the entry's own device, as far as it can be told."""
    told = device if device is not None and device.fingerprint == entry.device else None
    return selecting.serves(entry, build, _with_versions(build, told)) is not False


@functools.lru_cache(64)
def _with_versions(build: Build, device: Device | None) -> Device | None:
    """A device, if its libraries' versions are known."""
    versions = codegen_versions(build, device) if device is not None else {}
    return device if versions and all(versions.values()) else None


def _measure(entry: TuningEntry) -> _Measure:
    """A result that took no time, or less, was not measured."""
    seconds = entry.run_time if entry.run_time is not None and entry.run_time > 0 else 0.0
    return _Measure(not seconds, seconds, _content(entry))


def _content(entry: TuningEntry) -> tuple[object, ...]:
    """Everything that an entry has, in an order: two are equal here only if nothing tells them apart."""
    told, source = entry.versions, entry.source
    return (
        entry.config,
        entry.rest,
        entry.backend,
        (entry.device or "", entry.fusion or "", entry.digest, entry.device is None, entry.fusion is None),
        (told.entry, told.explicit, told.codegen, told.codegen_options, told.backend),
        (entry.family.value, entry.run_time is None, entry.run_time or 0.0),
        (source.path, source.index, source.note),
    )


_FARTHER = {
    _Near.OF_ITS_BUILD: "not made by this XLA with these libraries",
    _Near.MADE_ELSEWHERE: "made elsewhere, and found by the loose rule at most",
    _Near.OF_ANOTHER_BUILD: "of another build, and found by the loose rule alone",
    _Near.NOT_FOUND: "of another build, which does not serve this one",
}


def _why(first: _Rank, second: _Rank, lost: TuningEntry) -> str:
    """The first rule that tells the two apart, in words about the second, which lost."""
    words = (
        (first.unsound, second.unsound, f"unsound ({_unsound(lost)})" if second.unsound else ""),
        (first.unnamed, second.unnamed, "says neither its device nor its fusion"),
        (first.any_version, second.any_version, "of version 0, which is any build's"),
        (first.near, second.near, _FARTHER.get(second.near, "")),
        (first.no_backend_version, second.no_backend_version, "does not say the version of its backend"),
        (first.measure.unmeasured, second.measure.unmeasured, "no measured run time"),
        (first.measure.run_time, second.measure.run_time, f"slower: {_times(second)}, the other took {_times(first)}"),
    )
    told = next((said for one, other, said in words if one != other), "")
    return told or "nothing tells which is better: the smaller content stays"


def _times(rank: _Rank) -> str:
    return f"{rank.measure.run_time * 1e6:.6g} µs"
