"""Coverage: which of the fusions that a program looks up are served by a set of tuning entries, why others are not, and
what is left over.

Not promised: that a covered fusion is fast, nor that the list of fusions stays the same while some are missing. An
entry can change the program behind it (one that takes a fusion apart leaves other fusions over), so what follows from a
missing one is known only once it is there.

Whether XLA finds an entry is XLA's own rule (`selecting.serves`): in the legacy formats the device text and the version
must be equal; in the new ones the device, and the version of all backends ("strict") or else that of the entry's own
backend ("loose"). Results in a place of rewarm's cache directory are given to the build of that place alone.

A file or folder of XLA's is judged as XLA would take it from there, as it is, and not as rewarm could repair it: an
error of the whole file makes all its entries corrupt, an entry under another name or device is not found, and of
several entries of a new file for one fusion XLA takes (JAX 0.12.0.1) the first key that matches, with the last entry of
that key. Links inside a folder are the exception: XLA follows them, rewarm does not, and says so. Of a place and of a
lock file it is what rewarm gives XLA.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import PurePath

from rewarm.autotune import lock, merging, selecting, targets
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
from rewarm.autotune.sources import Loaded

_CACHES = (Format.NEW_TEXT, Format.NEW_BINARY)


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
    LINK = "link"
    """Its file is a link inside a folder: XLA follows it, rewarm does not."""
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
      place: the build's id in managed places (`build_ids`); "" where that is not known: then a place of the same JAX
        release is the reader's.
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
    """In which formats a lock of these entries is to be: the build's default, unless they are all of the other.

    With a lock in force rewarm tells XLA which formats it is in.
    """
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
    amiss = [finding for one in known for finding in _of_files(one)]
    found: dict[tuple[Family, str], list[_Candidate]] = defaultdict(list)
    for candidate in _candidates(known, reader, texts):
        found[candidate.entry.family, candidate.entry.fusion or candidate.entry.digest].append(candidate)
    verdicts = tuple(_verdict(one, found, reader, amiss) for one in needed)
    used = {id(one.entry) for one in verdicts if one.state is State.COVERED} | _kept_twice(known, verdicts)
    wanted = {(family, one.fusion(family)) for one in needed for family in Family}
    surplus = tuple(
        _surplus(one, reader, is_needed=key in wanted)
        for key, group in found.items()
        for one in group
        if id(one.entry) not in used
    )
    return Coverage(reader, verdicts, surplus, broken)


def _kept_twice(sources: Iterable[Loaded], verdicts: Iterable[Verdict]) -> set[int]:
    """The same results in other places of a cache directory as those that serve: where JAX does not say its device
    (before 0.11), what was imported is taken over into the place of the device that runs, and lies in both.
    """
    kept = [entry for one in sources if one.in_cache for entry in one.entries]
    serving = {id(one.entry) for one in verdicts if one.state is State.COVERED}
    results = {entry for entry in kept if id(entry) in serving}
    return {id(entry) for entry in kept if entry in results}


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
        wrong = _Wrong.of(source, reader, texts)
        made = [_candidate(entry, reader, elsewhere, wrong) for entry in source.entries]
        yield from _as_xla_takes(made) if source.reading.format in _CACHES else made


def _as_xla_takes(made: Iterable[_Candidate]) -> list[_Candidate]:
    """Those of a new text or binary, of which XLA takes one for each fusion and never looks at the others.

    Of equal keys the last one counts, in the place of the first. Of the keys of a fusion the first that matches serves,
    whether it does so strictly or loosely.
    """
    last = {one.entry.key: one for one in made}  # in the order of the first of each
    taken: dict[str | None, _Candidate] = {}
    for one in last.values():
        if one.reason in (Reason.NONE, Reason.CORRUPT):
            taken.setdefault(one.entry.fusion, one)
    kept = []
    for one in made:
        winner = taken.get(one.entry.fusion)
        if one is winner or one.reason not in (Reason.NONE, Reason.CORRUPT) or winner is None:
            kept.append(one)
        else:
            kept.append(_Candidate(one.entry, Reason.REPEATED, f"XLA takes entry {winner.entry.source.index}"))
    return kept


@dataclass(frozen=True, slots=True)
class _Wrong:
    """What `validate` has against the entries of one source.

    Attributes:
      whole: of a file that XLA refuses, or cannot be given, why.
      reason: what that is.
      entries: the first error of each entry, by its `id`.
    """

    whole: str = ""
    reason: Reason = Reason.NONE
    entries: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Loaded, reader: Reader, texts: Mapping[str, str]) -> _Wrong:
        reading = source.reading
        told = reading.format
        if told in (Format.LEGACY_FUSION, Format.NEW_FUSION):
            return cls("one file of a folder; what XLA can be given is the folder", Reason.OTHER_FORMAT)
        known = {**source.says, **texts}
        validated = partial(validate, build=reader.build, device=reader.device, fusions=known)
        if told is None:  # of no file of XLA's, so nothing says which of them a finding is about
            each = ((one, _first(validated([one]))) for one in source.entries)
            return cls(entries={id(one): words for one, words in each if words})
        errors = [one for one in (*reading.findings, *validated(reading)) if one.severity is Severity.ERROR]
        if not told.is_directory:
            broken = _first(one for one in errors if _is_of_all(one, told))
            if broken:
                return cls(f"XLA refuses the whole file: {broken}", Reason.CORRUPT)
        found = {(one.place.path, one.place.entry): _in_words(one) for one in reversed(errors)}
        words = {id(one): _of_entry(one, found) for one in source.entries}
        return cls(entries={one: said for one, said in words.items() if said})


def _of_entry(entry: TuningEntry, found: Mapping[tuple[str, int], str]) -> str:
    """What is wrong with its file in a folder, or with itself."""
    path = entry.source.path
    return found.get((path, 0), "") or found.get((path, entry.source.index), "")


def _first(findings: Iterable[Finding]) -> str:
    return next((_in_words(one) for one in findings if one.severity is Severity.ERROR), "")


def _is_of_all(finding: Finding, told: Format) -> bool:
    """Whether XLA refuses a whole file for this. The generation of a file is another question."""
    if finding.code == "format-unknown":
        return False
    of_all = {"duplicate"} | ({"field-of-other-build"} if told.is_text else set())
    return not finding.place.entry or finding.code in of_all


def _in_words(finding: Finding) -> str:
    return f"{finding.code}: expected {finding.expected}, found {finding.found}"


def _of_files(source: Loaded) -> Iterator[Finding]:
    """What stands in the place of an entry, in a folder: files that cannot be read, under a wrong name, and links."""
    yield from (one for one in source.reading.findings if one.severity is Severity.ERROR or one.code == "link")
    if source.reading.format is not None and source.reading.format.is_directory:
        yield from (one for one in validate(source.reading) if one.code in ("file-name", "folder"))


def _other_place(source: Loaded, reader: Reader) -> str:
    """The build of a managed place that is not the reader's; "" for one that is, and for files of anybody's."""
    from rewarm.autotune.build_ids import jax_of

    is_ours = source.build == reader.place if reader.place else jax_of(source.build) == reader.build.jax
    return "" if is_ours or not source.build else source.build


def _candidate(entry: TuningEntry, reader: Reader, elsewhere: str, wrong: _Wrong) -> _Candidate:
    if wrong.whole:
        return _Candidate(entry, wrong.reason, wrong.whole)
    other = _other_device(entry, reader.device)
    if other:
        return _Candidate(entry, Reason.OTHER_GPU, other)
    serves = selecting.serves(entry, reader.build, reader.device)
    if elsewhere or serves is False:
        return _Candidate(entry, Reason.OTHER_BUILD, _other_build(entry, reader, elsewhere, is_loose=serves is True))
    if entry.versions.explicit:
        words = f"of the explicit version {entry.versions.explicit}, and JAX asks for entries without one"
        return _Candidate(entry, Reason.OTHER_BUILD, words)
    unsound = wrong.entries.get(id(entry))
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


def _verdict(
    needed: Needed,
    found: Mapping[tuple[Family, str], Sequence[_Candidate]],
    reader: Reader,
    broken: Sequence[Finding],
) -> Verdict:
    here = found.get((reader.family, needed.fusion(reader.family)), ())
    serving = [one for one in here if not one.reason]
    if serving:
        best, nearest = serving[0], merging.Reader(reader.build, reader.device)
        for one in serving[1:]:
            best = best if merging.better(best.entry, one.entry, nearest) == best.entry else one
        return Verdict(needed, State.COVERED, words=best.words, entry=best.entry)
    for reason, state in (
        (Reason.CORRUPT, State.STALE),
        (Reason.OTHER_BUILD, State.STALE),
        (Reason.OTHER_GPU, State.MISSING),
        (Reason.OTHER_FORMAT, State.MISSING),
    ):
        first = next((one for one in here if one.reason is reason), None)
        damaged = _damaged(needed, reader, broken) if reason is Reason.CORRUPT else None
        if first is not None:
            return Verdict(needed, state, reason, first.words, first.entry)
        if damaged is not None:
            return Verdict(needed, State.STALE, *_damage(damaged))
    return _never(needed, found, reader, broken)


def _never(
    needed: Needed,
    found: Mapping[tuple[Family, str], Sequence[_Candidate]],
    reader: Reader,
    broken: Sequence[Finding],
) -> Verdict:
    other = Family.LEGACY if reader.family is Family.NEW else Family.NEW
    theirs = found.get((other, needed.fusion(other)), ())
    elsewhere = [one for one in theirs if not one.reason]
    corrupt = next((one for one in theirs if one.reason is Reason.CORRUPT), None)
    if corrupt is not None and not elsewhere:
        words = f"{corrupt.words}; and it is in the {other} formats"
        return Verdict(needed, State.STALE, Reason.CORRUPT, words, corrupt.entry)
    if elsewhere:
        words = f"there is one in the {other} formats; rewarm autotune convert makes one of the {reader.family} ones"
        return Verdict(needed, State.MISSING, Reason.OTHER_FORMAT, words, elsewhere[0].entry)
    words = "new or changed in the model"
    if broken:
        words += f"; or it was in a file that cannot be read ({len(broken)} of them)"
    return Verdict(needed, State.MISSING, Reason.NEVER_TUNED, words)


def _damage(finding: Finding) -> tuple[Reason, str]:
    if finding.code != "link":
        return Reason.CORRUPT, str(finding)
    words = "a link, which XLA follows and rewarm does not, so nothing is known of it (cp -rL makes files of links)"
    return Reason.LINK, f"{finding.place}: {words}"


def _damaged(needed: Needed, reader: Reader, broken: Sequence[Finding]) -> Finding | None:
    """The file of a directory that was to hold the entry, or its folder, where that cannot be read."""
    if reader.family is Family.NEW:
        device, name = reader.device.fingerprint, f"{needed.fingerprint}.pb"
        ends = {(device, name), (device,)}
    else:
        digest = keys.legacy_digest(reader.device.legacy, needed.legacy, reader.build.entry_version)
        ends = {(f"{digest}.textproto",)}
    for one in broken:
        parts = PurePath(one.place.path).parts
        if parts[-2:] in ends or parts[-1:] in ends:
            return one
    return None


def _surplus(one: _Candidate, reader: Reader, *, is_needed: bool) -> Surplus:
    if one.reason:
        return Surplus(one.entry, one.reason, one.words)
    if is_needed and one.entry.family is not reader.family:
        return Surplus(one.entry, Reason.OTHER_FORMAT)
    return Surplus(one.entry, Reason.REPEATED if is_needed else Reason.NOT_NEEDED)


def directory_format(family: Family) -> Format:
    """The directory of a family."""
    return Format.NEW_DIRECTORY if family is Family.NEW else Format.LEGACY_DIRECTORY
