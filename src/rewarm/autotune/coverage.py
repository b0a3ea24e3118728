"""Coverage: which of the fusions that a program looks up are served by a set of tuning entries, why others are not, and
what is left over.

Not promised: that a covered fusion is fast, nor that the list of fusions stays the same while some are missing. An
entry can change the program behind it (one that takes a fusion apart leaves other fusions over), so what follows from a
missing one is known only once it is there.

Whether XLA finds an entry is XLA's own rule (`selecting.serves`): in the legacy formats the device text and the version
must be equal; in the new ones the device, and the version of all backends ("strict") or else that of the entry's own
backend ("loose"). Results in a place of rewarm's cache directory are given to the build of that place alone.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath

from rewarm.autotune import lock, selecting, targets
from rewarm.autotune.describing import device_in_words
from rewarm.autotune.formats import (
    BUILDS,
    Build,
    Device,
    Family,
    Finding,
    Format,
    Severity,
    TuningEntry,
    device_of_legacy,
    keys,
    validate,
    with_keys,
)
from rewarm.autotune.merging import better
from rewarm.autotune.sources import Loaded


class State(enum.StrEnum):
    """How a fusion stands."""

    COVERED = "covered"
    STALE = "stale"
    """There is an entry for this device, and XLA does not find it, or should not."""
    MISSING = "missing"


class Reason(enum.StrEnum):
    """Why a fusion is not covered, or an entry serves nothing."""

    NONE = ""
    NEVER_TUNED = "never tuned"
    """New or changed in the model, or never run on such a device."""
    OTHER_GPU = "other GPU"
    OTHER_BUILD = "other XLA build"
    OTHER_FORMAT = "other format"
    CORRUPT = "corrupt"
    NOT_NEEDED = "not in the plan"
    REPEATED = "repeated"


@dataclass(frozen=True)
class Needed:
    """One fusion that XLA looks up.

    Attributes:
      text: what its key in the new formats is made of.
      legacy: what its key in the legacy formats has.
      name: the instruction's name in one of the programs.
      programs: which programs need it.
    """

    text: str
    legacy: str
    name: str
    programs: tuple[str, ...]

    @cached_property
    def fingerprint(self) -> str:
        """Its name in the new formats."""
        return keys.fingerprint128(self.text)

    @cached_property
    def says(self) -> str:
        """What it is, in one line."""
        return lock.saying(self.text)

    def fusion(self, family: Family) -> str:
        """Its name in a family."""
        return self.fingerprint if family is Family.NEW else self.legacy


@dataclass(frozen=True, slots=True)
class Verdict:
    """What there is for one fusion.

    Attributes:
      entry: that serves it, or that would but for the reason.
      words: more about the reason, or about the match.
    """

    needed: Needed
    state: State
    reason: Reason = Reason.NONE
    words: str = ""
    entry: TuningEntry | None = None


@dataclass(frozen=True, slots=True)
class Surplus:
    """An entry that serves no fusion of the plan."""

    entry: TuningEntry
    reason: Reason
    words: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who is to read the entries.

    Attributes:
      build: the compiler.
      device: what it compiles for.
      family: the formats that it is told to use.
      place: the build's id in managed places (`places.build_id`); "" where that is not known: then a place of the same
        JAX release is the reader's.
    """

    build: Build
    device: Device
    family: Family
    place: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The answer.

    Attributes:
      verdicts: one for each fusion, in the order in which XLA looked them up.
      surplus: entries that serve nothing here.
      broken: files that could not be read, or not whole.
    """

    reader: Reader
    verdicts: tuple[Verdict, ...]
    surplus: tuple[Surplus, ...]
    broken: tuple[Finding, ...]

    @property
    def is_complete(self) -> bool:
        """Whether each fusion is covered."""
        return all(one.state is State.COVERED for one in self.verdicts)

    @property
    def entries(self) -> tuple[TuningEntry, ...]:
        """Those that serve."""
        return tuple(one.entry for one in self.verdicts if one.state is State.COVERED and one.entry is not None)

    def of(self, state: State) -> tuple[Verdict, ...]:
        """The fusions that stand so."""
        return tuple(one for one in self.verdicts if one.state is state)

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs with a fusion that is not covered."""
        lacking = (name for one in self.verdicts if one.state is not State.COVERED for name in one.needed.programs)
        return tuple(dict.fromkeys(lacking))


def family_for(build: Build, sources: Iterable[Loaded]) -> Family:
    """Which formats a build is to use for these entries: its default, unless they are all of the other."""
    found = {entry.family for one in sources for entry in one.entries}
    other = Family.LEGACY if build.default is Family.NEW else Family.NEW
    reads_other = any(one.family is other for one in build.formats)
    return other if reads_other and found == {other} else build.default


def usable(sources: Iterable[Loaded], reader: Reader, excluded: Iterable[TuningEntry] = ()) -> list[TuningEntry]:
    """The entries that XLA may be given: for this device and build, and sound as far as that is known without texts."""
    left_out = set(excluded)
    return [
        one.entry
        for one in _candidates(sources, reader, {})
        if one.entry not in left_out and not one.reason and one.entry.family is reader.family
    ]


def judge(
    needed: Sequence[Needed],
    sources: Sequence[Loaded],
    reader: Reader,
) -> Coverage:
    """How each fusion stands, and which entries serve nothing.

    Args:
      needed: what XLA looked up.
      sources: where entries come from.
      reader: for whom.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    texts = {one.fingerprint: one.text for one in needed}
    known = [_named(one, needed, reader) for one in sources]
    broken = tuple(finding for one in known for finding in one.broken)
    found: dict[tuple[Family, str], list[_Candidate]] = defaultdict(list)
    for candidate in _candidates(known, reader, texts):
        found[candidate.entry.family, candidate.entry.fusion or candidate.entry.digest].append(candidate)
    verdicts = tuple(_verdict(one, found, reader, broken) for one in needed)
    used = {id(one.entry) for one in verdicts if one.state is State.COVERED}
    wanted = {(family, one.fusion(family)) for one in needed for family in Family}
    surplus = tuple(
        _surplus(one, is_needed=key in wanted)
        for key, group in found.items()
        for one in group
        if id(one.entry) not in used
    )
    return Coverage(reader, verdicts, surplus, broken)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An entry, and why XLA does not find it or should not; no reason where it does."""

    entry: TuningEntry
    reason: Reason = Reason.NONE
    words: str = field(default="")


def _named(source: Loaded, needed: Sequence[Needed], reader: Reader) -> Loaded:
    """The same, where legacy files that are named by a digest have the device and fusion of what is needed."""
    if not any(entry.family is Family.LEGACY and entry.device is None for entry in source.entries):
        return source
    devices = dict.fromkeys([reader.device.legacy, *(one.legacy for one in targets.devices().values())])
    versions = dict.fromkeys([reader.build.entry_version, *(build.entry_version for build in BUILDS)])
    known = ((device, one.legacy, version) for one in needed for device in devices for version in versions)
    return replace(source, reading=replace(source.reading, entries=with_keys(source.entries, known)))


def _candidates(
    sources: Iterable[Loaded],
    reader: Reader,
    texts: Mapping[str, str],
) -> Iterator[_Candidate]:
    for source in sources:
        elsewhere = _other_place(source, reader)
        for entry in source.entries:
            yield _candidate(entry, reader, texts, elsewhere)


def _other_place(source: Loaded, reader: Reader) -> str:
    """The build of a managed place that is not the reader's; "" for one that is, and for files of anybody's."""
    from rewarm.autotune.places import jax_of

    is_ours = source.build == reader.place if reader.place else jax_of(source.build) == reader.build.jax
    return "" if is_ours or not source.build else source.build


def _candidate(entry: TuningEntry, reader: Reader, texts: Mapping[str, str], elsewhere: str) -> _Candidate:
    other = _other_device(entry, reader.device)
    if other:
        return _Candidate(entry, Reason.OTHER_GPU, other)
    serves = selecting.serves(entry, reader.build, reader.device)
    if elsewhere or serves is False:
        return _Candidate(entry, Reason.OTHER_BUILD, _other_build(entry, reader, elsewhere, is_loose=serves is True))
    unsound = _unsound(entry, reader, texts)
    if unsound:
        return _Candidate(entry, Reason.CORRUPT, unsound)
    return _Candidate(entry, words=_match(entry, reader))


def _other_device(entry: TuningEntry, device: Device) -> str:
    """What device an entry is for, in words, where it is another."""
    if entry.device is None:
        return ""
    if entry.family is Family.NEW:
        return "" if entry.device == device.fingerprint else device_in_words(entry.device)
    told = device_of_legacy(entry.device)
    if told.text != device.text:
        return device_in_words(entry.device)
    if told.dnn_version != device.dnn_version:
        return f"the same GPU with cuDNN {told.dnn_version or 'unknown'}, which is in legacy keys"
    return ""


def _other_build(entry: TuningEntry, reader: Reader, elsewhere: str, *, is_loose: bool) -> str:
    by = f"of {elsewhere}" if elsewhere else f"of {selecting.build_in_words(entry)}"
    if is_loose:
        return f"{by}; it would match here, under the rule {_match(entry, reader)}: rewarm autotune import brings it in"
    if entry.family is Family.LEGACY:
        return f"{by}; legacy entries match by their version alone ({reader.build.entry_version} is wanted)"
    return f"{by}; the loose rule does not match either: {entry.backend} has another version"


def _match(entry: TuningEntry, reader: Reader) -> str:
    """By which rule XLA finds an entry."""
    if entry.family is Family.LEGACY:
        return ""
    versions = keys.codegen_versions(reader.build, reader.device)
    strict = bool(versions) and all(versions.values()) and keys.codegen_version(versions) == entry.versions.codegen
    return "strict" if strict else "loose"


def _unsound(entry: TuningEntry, reader: Reader, texts: Mapping[str, str]) -> str:
    # Its place in a folder is another question, and was asked when it was read.
    findings = validate([entry], build=reader.build, device=reader.device, fusions=texts)
    first = next((one for one in findings if one.severity is Severity.ERROR), None)
    return f"{first.code}: expected {first.expected}, found {first.found}" if first else ""


def _verdict(
    needed: Needed,
    found: Mapping[tuple[Family, str], Sequence[_Candidate]],
    reader: Reader,
    broken: Sequence[Finding],
) -> Verdict:
    here = found.get((reader.family, needed.fusion(reader.family)), ())
    serving = [one for one in here if not one.reason]
    if serving:
        best = serving[0]
        for one in serving[1:]:
            best = best if better(best.entry, one.entry) == best.entry else one
        return Verdict(needed, State.COVERED, words=best.words, entry=best.entry)
    for reason, state in (
        (Reason.CORRUPT, State.STALE),
        (Reason.OTHER_BUILD, State.STALE),
        (Reason.OTHER_GPU, State.MISSING),
    ):
        first = next((one for one in here if one.reason is reason), None)
        damaged = _damaged(needed, reader, broken) if reason is Reason.CORRUPT else None
        if first is not None:
            return Verdict(needed, state, reason, first.words, first.entry)
        if damaged is not None:
            return Verdict(needed, State.STALE, Reason.CORRUPT, str(damaged))
    return _never(needed, found, reader, broken)


def _never(
    needed: Needed,
    found: Mapping[tuple[Family, str], Sequence[_Candidate]],
    reader: Reader,
    broken: Sequence[Finding],
) -> Verdict:
    other = Family.LEGACY if reader.family is Family.NEW else Family.NEW
    elsewhere = [one for one in found.get((other, needed.fusion(other)), ()) if not one.reason]
    if elsewhere:
        words = f"there is one in the {other} formats; rewarm autotune convert makes one of the {reader.family} ones"
        return Verdict(needed, State.MISSING, Reason.OTHER_FORMAT, words, elsewhere[0].entry)
    words = "new or changed in the model"
    if broken:
        words += f"; or it was in a file that cannot be read ({len(broken)} of them)"
    return Verdict(needed, State.MISSING, Reason.NEVER_TUNED, words)


def _damaged(needed: Needed, reader: Reader, broken: Sequence[Finding]) -> Finding | None:
    """The file of a directory that was to hold the entry, where it cannot be read."""
    if reader.family is Family.NEW:
        names = {f"{needed.fingerprint}.pb"}
    else:
        digest = keys.legacy_digest(reader.device.legacy, needed.legacy, reader.build.entry_version)
        names = {f"{digest}.textproto"}
    for one in broken:
        path = PurePath(one.place.path)
        if path.name in names and (reader.family is Family.LEGACY or reader.device.fingerprint in path.parts):
            return one
    return None


def _surplus(one: _Candidate, *, is_needed: bool) -> Surplus:
    if one.reason:
        return Surplus(one.entry, one.reason, one.words)
    return Surplus(one.entry, Reason.REPEATED if is_needed else Reason.NOT_NEEDED)


def directory_format(family: Family) -> Format:
    """The directory of a family."""
    return Format.NEW_DIRECTORY if family is Family.NEW else Format.LEGACY_DIRECTORY
