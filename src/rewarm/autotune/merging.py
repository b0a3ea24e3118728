"""The merge rule: which of several results for one fusion stays.

Not promised: that the one that stays is the fastest. Run times are those of one tuner on one host: two hosts' clocks,
temperatures and neighbours differ, so a run time that is shorter by a few per cent decides, and means little. Nor is
anything run or compiled here; a sound entry is one that `validate` has no error for, without a build or a device.

What XLA looks up by one key has one place. Of several entries for a place the first by this order stays:

    1. a sound one before an unsound one
    2. one that says its device and fusion before one that is known by its file's name alone (legacy directories)
    3. one that says its version before one of version 0, where the build makes one place of both
    4. one that says the version of its backend before one that does not (new formats: it outlives an upgrade)
    5. one with a measured run time before one without
    6. the shorter run time
    7. the smaller content, byte by byte, and for equal contents the smaller name of the source

The last rule means nothing and never says that something is better: it makes the choice the same everywhere. Each rule
looks at one entry alone, so this is a total order, and the result the same in any order and grouping of the sets
(associative, commutative, idempotent). When an entry was made is no rule: clocks of hosts differ, and files are copied.

XLA's files have no room for where an entry comes from. `TuningEntry.source` has it in memory, and `Merged.conflicts`
says what lost to what and why; whoever writes a file keeps that beside it, or loses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rewarm.autotune.formats import Build, Family, MissingLibraryError, Severity, TuningEntry, chosen, validate
from rewarm.autotune.formats.keys import legacy_digest

_Slot = tuple[str, ...]


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
      entries: one for each place, sorted by key.
      conflicts: where the sets of this merge disagreed, in the order of `entries`. Those of an earlier merge, whose
        result was one of the sets, are not among them.
      given: how many entries went in.
    """

    entries: tuple[TuningEntry, ...]
    conflicts: tuple[Conflict, ...]
    given: int

    @property
    def repeated(self) -> int:
        """How many entries went in that said nothing new."""
        return self.given - len(self.entries) - sum(len(conflict.lost) for conflict in self.conflicts)


def merge(*sets: Iterable[TuningEntry], build: Build | None = None) -> Merged:
    """One entry for each place, by the rule.

    Args:
      sets: entries of any family and device; they may repeat each other.
      build: who is to read the result: a legacy entry of version 0 then has the place of this build's.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    places: dict[_Slot, list[TuningEntry]] = {}
    given = 0
    for one in sets:
        for entry in one:
            given += 1
            places.setdefault(slot(entry, build), []).append(entry)
    settled = sorted((_settled(found) for found in places.values()), key=lambda done: done[0].key)
    conflicts = tuple(Conflict(kept, lost) for kept, lost in settled if lost)
    return Merged(tuple(kept for kept, _ in settled), conflicts, given)


def better(a: TuningEntry, b: TuningEntry) -> TuningEntry:
    """The one that stays; of equal ones, that whose source has the smaller name.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    if a == b:
        return min(a, b, key=_measure)
    return min(a, b, key=_rank)


def slot(entry: TuningEntry, build: Build | None = None) -> tuple[str, ...]:
    """The place of an entry: entries of two places never meet in one look-up of XLA's.

    A file of a legacy directory has the place of the entry that its name is a digest of.
    """
    if entry.family is Family.NEW or entry.device is None or entry.fusion is None:
        return entry.key
    version = entry.versions.entry or (build.entry_version if build else 0)
    return ("legacy", legacy_digest(entry.device, entry.fusion, version)) if version else entry.key


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


def _settled(found: list[TuningEntry]) -> tuple[TuningEntry, tuple[Lost, ...]]:
    """What stays, and what decides something else."""
    distinct: dict[TuningEntry, TuningEntry] = {}
    for entry in found:
        known = distinct.get(entry)
        distinct[entry] = entry if known is None else better(known, entry)
    if len(distinct) == 1:
        return next(iter(distinct.values())), ()
    (rank, kept), *others = sorted(((_rank(entry), entry) for entry in distinct.values()), key=lambda one: one[0])
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
    no_backend_version: bool
    measure: _Measure


def _rank(entry: TuningEntry) -> _Rank:
    legacy = entry.family is Family.LEGACY
    unnamed = entry.device is None or entry.fusion is None
    return _Rank(
        unsound=not is_sound(entry),
        unnamed=unnamed,
        any_version=legacy and not unnamed and not entry.versions.entry,
        no_backend_version=not legacy and not entry.versions.backend,
        measure=_measure(entry),
    )


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


def _why(first: _Rank, second: _Rank, lost: TuningEntry) -> str:
    """The first rule that tells the two apart, in words about the second, which lost."""
    words = (
        (first.unsound, second.unsound, f"unsound ({_unsound(lost)})" if second.unsound else ""),
        (first.unnamed, second.unnamed, "says neither its device nor its fusion"),
        (first.any_version, second.any_version, "of version 0, which is any build's"),
        (first.no_backend_version, second.no_backend_version, "does not say the version of its backend"),
        (first.measure.unmeasured, second.measure.unmeasured, "no measured run time"),
        (first.measure.run_time, second.measure.run_time, f"slower: {_times(second)}, the other took {_times(first)}"),
    )
    told = next((said for one, other, said in words if one != other), "")
    return told or "nothing tells which is better: the smaller content stays"


def _times(rank: _Rank) -> str:
    return f"{rank.measure.run_time * 1e6:.6g} µs"
