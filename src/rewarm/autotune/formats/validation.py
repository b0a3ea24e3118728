"""What is wrong with entries that could be read: `validate`, apart from parsing.

Not promised: that an entry without findings is fast, compiles, or is what a tuner would find. Shared memory, the limits
of a kernel, and whether a library's algorithm exists are known only to a compiler and a device. `limits` has the bounds
of sizes, and `fitting` which backend can be that of which instruction.

Without a build or a device the rules that need one are left out, and no build is guessed. A finding is an error where
XLA was seen to refuse, to fall back in silence, to fail a compile or to compile something that was not meant; see
`findings.Severity`.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from rewarm.autotune.formats import fitting, hlo, keys, limits, matching, records, schema
from rewarm.autotune.formats.builds import FILE_VERSION, Build
from rewarm.autotune.formats.findings import Finding, Place, error, info, warning
from rewarm.autotune.formats.model import Family, Format, TuningEntry
from rewarm.autotune.formats.reading import Reading

# Which configuration a backend takes. Backends that are not here take several, or are of no GPU.
_CONFIGS = {
    "TRITON": "triton",
    "CUBLAS": "gemm",
    "CUBLASLT": "gemm",
    "CUBLASLT_FISSION": "gemm",
    "CUBLAS_FISSION": "gemm",
    "HIPBLASLT": "gemm",
    "HIPBLASLT_FISSION": "gemm",
    "CUDNN": "algorithm",
    "MIOPEN": "algorithm",
    "BLOCK_LEVEL_EMITTER": "block_level",
    "NATIVE_EMITTER": "native_emitter",
    "TENSOR_IR": "tensor_ir",
}

# Fields of an old result that no known build reads.
_UNREAD = frozenset({"conv", "cuda_conv_plan"})


@dataclass(frozen=True, slots=True)
class _Means:
    """What the caller knows beside the entries."""

    build: Build | None
    device: keys.Device | None
    fusions: Mapping[str, str] = field(default_factory=dict)


def validate(
    what: Reading | Iterable[TuningEntry],
    *,
    build: Build | None = None,
    device: keys.Device | None = None,
    fusions: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Everything that is wrong, file by file and entry by entry; nothing of a reading's own findings is in it.

    Args:
      what: a reading, or entries that lie in no file.
      build: who is to read them.
      device: what they are meant for.
      fusions: new fingerprint -> the instruction's HLO text, where it is known.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    means = _Means(build, device, fusions or {})
    reading = what if isinstance(what, Reading) else None
    entries = list(what.entries if isinstance(what, Reading) else what)
    findings: list[Finding] = []
    if reading is not None and reading.format is not None:
        findings += _file(reading, reading.format, means)
    findings += _duplicates(entries, means)
    findings += _second_matches(entries, means)
    is_text = reading is not None and reading.format is not None and reading.format.is_text
    for entry in entries:
        findings += _entry(entry, means, is_text=is_text)
        if reading is not None and reading.format is not None and reading.format.files.value.endswith("fusion"):
            findings += _file_name(entry)
    return findings


def _file(reading: Reading, told: Format, means: _Means) -> Iterator[Finding]:
    place = Place(str(reading.path))
    whole = told in (Format.LEGACY_TEXT, Format.LEGACY_BINARY)
    if whole and reading.header.version != FILE_VERSION:
        yield error("file-version", place, f"version {FILE_VERSION}", f"version {reading.header.version}")
    if means.build is not None and told.files not in {one.files for one in means.build.formats}:
        yield error("format-unknown", place, f"a format that JAX {means.build.jax} reads", told.value)
    scope = reading.header.device_scope
    if scope and any(entry.device != scope for entry in reading.entries):
        yield warning("scope", place, f"entries of the device {scope}, which the file says it is for", "others")


def _duplicates(entries: list[TuningEntry], means: _Means) -> Iterator[Finding]:
    """Two entries of one key: XLA refuses a whole legacy file for it, and takes the last of a new one.

    So of a new file the last is what serves, and the finding is on each that does not.
    """
    current = means.build.entry_version if means.build else 0
    counted: Counter[tuple[str, tuple[str, ...]]] = Counter()
    last = _last_of_each_key(entries)
    for entry in entries:
        if entry.family is Family.NEW:
            taken = last[entry.source.path, entry.key]
            if taken is not entry:
                found = f"another with the same key after it, entry {taken.source.index}, which XLA takes"
                yield warning("duplicate", _place(entry), "one entry for each key", found)
            continue
        key = entry.key
        if len(key) == 4 and not entry.versions.entry:
            key = (*key[:3], str(current))
        counted[entry.source.path, key] += 1
        if counted[entry.source.path, key] == 2:
            yield error("duplicate", _place(entry), "one entry for each key", "another with the same key before it")


def _last_of_each_key(entries: list[TuningEntry]) -> dict[tuple[str, tuple[str, ...]], TuningEntry]:
    """By file and key, what XLA has of it, in the order in which it looks: that of each key's first entry."""
    return {(entry.source.path, entry.key): entry for entry in entries if entry.family is Family.NEW}


def _second_matches(entries: list[TuningEntry], means: _Means) -> Iterator[Finding]:
    """Entries of a new file that XLA would find, if it did not find another one for their fusion first (0.11, 0.12).

    Of the keys of a fusion it takes the first that matches, strictly or loosely, and says nothing of the others. Equal
    keys are duplicates: XLA has the last entry of one, in the place of the first.
    """
    build, device = means.build, means.device
    if build is None or device is None:
        return
    last = _last_of_each_key(entries)
    found = {one: entry for one, entry in last.items() if matching.finds(entry, build, device)}
    taken: dict[tuple[str, str | None], TuningEntry] = {}
    for entry in found.values():
        taken.setdefault((entry.source.path, entry.fusion), entry)
    for entry in entries:
        known = (entry.source.path, entry.key) in found
        first = taken.get((entry.source.path, entry.fusion)) if known else None
        if first is not None and first.key != entry.key:
            rules = matching.rule(first, build, device), matching.rule(entry, build, device)
            expected = f"one entry that this XLA finds for the fusion; it takes entry {first.source.index}"
            words = f"another whose key is before it: that matches {rules[0]}ly, this one {rules[1]}ly"
            yield warning("second-match", _place(entry), expected, words)


def _place(entry: TuningEntry) -> Place:
    return Place(entry.source.path, entry=entry.source.index)


def _entry(entry: TuningEntry, means: _Means, *, is_text: bool) -> Iterator[Finding]:
    place = _place(entry)
    name, message = records.chosen(entry)
    yield from _choice(entry, name, message, place)
    yield from _backend(entry, name, means, place)
    if message is not None:
        yield from _CHECKS.get(name, _nothing)(message, means, place)
        yield from _for_build(entry, means, place, is_text=is_text)
    yield from _on_fusion(entry, name, message, means, place)
    yield from (_new_key if entry.family is Family.NEW else _legacy_key)(entry, means, place)


def _choice(entry: TuningEntry, name: str, message: Any, place: Place) -> Iterator[Finding]:
    """Whether there is a configuration at all."""
    if entry.family is Family.LEGACY and not name:
        result = records.to_result(entry)
        if result.HasField("failure"):
            yield error("failure-only", place, "a configuration", f"only a failure: {result.failure.msg}")
            return
    if not name:
        kinds = "triton, gemm, algorithm, block_level or another"
        yield error("no-config", place, f"a configuration ({kinds})", "none of those that are known")
    elif name in _UNREAD:
        yield error("no-config", place, "a configuration that this XLA reads", f"{name}, which only old ones did")
    elif message is None:
        held = records.to_result(entry).other.config.type_url or "an Any without a type"
        yield error("other-config", place, "an Any that holds an xla.autotuner.BackendConfig", held)


def _backend(entry: TuningEntry, name: str, means: _Means, place: Place) -> Iterator[Finding]:
    known = {value.name for value in schema.backends().values() if value.number}
    if entry.backend not in known:
        # A legacy entry without a configuration has no backend either, which has been said.
        if entry.family is Family.NEW or name:
            yield error("backend", place, "a backend of XLA's", entry.backend or "none")
        return
    if means.build is not None and entry.backend not in means.build.backends and not _by_field(entry):
        has = ", ".join(sorted(means.build.backends))
        yield error("backend", place, f"a backend that JAX {means.build.jax} has ({has})", entry.backend)
    elif others := _others_of_its_maker(entry, means):
        had = ", ".join(sorted(others))
        yield error("backend", place, f"a backend that its maker had, by the codegen version ({had})", entry.backend)
    wanted = _CONFIGS.get(entry.backend)
    if wanted and name and name not in ("other", *_UNREAD) and name != wanted:
        yield error("config-of-other-backend", place, f"{wanted} for {entry.backend}", name)


def _others_of_its_maker(entry: TuningEntry, means: _Means) -> frozenset[str]:
    """The backends that the codegen version of a new entry is made of, where its own is not among them: such an XLA
    does not have it, and passes the entry over."""
    if entry.family is Family.LEGACY or means.build is None or means.device is None:
        return frozenset()
    versions, codegen = matching.asked_for(means.build, means.device)
    is_own = bool(versions) and all(versions.values()) and codegen == entry.versions.codegen
    return frozenset(versions) if is_own and entry.backend not in versions else frozenset()


def _by_field(entry: TuningEntry) -> bool:
    """Whether a legacy entry's backend follows from its field, which each build takes for the one that it has."""
    return entry.family is Family.LEGACY and records.to_result(entry).WhichOneof("key") != "other"


def _triton(config: Any, means: _Means, place: Place) -> Iterator[Finding]:
    yield from limits.triton(config, place)
    if config.split_k > 1 and not (means.build and means.build.takes_split_k):
        make = error if means.build else warning
        yield make("split-k", place, "split_k 0 or 1 (JAX after 0.9 refuses more)", str(config.split_k))


def _block_level(config: Any, _means: _Means, place: Place) -> Iterator[Finding]:
    return limits.block_level(config, place)


def _native_emitter(config: Any, _means: _Means, place: Place) -> Iterator[Finding]:
    return limits.native_emitter(config, place)


def _nothing(_config: Any, _means: _Means, _place: Place) -> Iterator[Finding]:
    return iter(())


_CHECKS = {"triton": _triton, "block_level": _block_level, "native_emitter": _native_emitter}


def _for_build(entry: TuningEntry, means: _Means, place: Place, *, is_text: bool) -> Iterator[Finding]:
    """Fields that the build does not have: it refuses the text, and skips them in binary."""
    if means.build is None:
        return
    if entry.family is Family.LEGACY:
        top = records.to_result(entry)
        if top.WhichOneof("key") == "other" and means.build.minor < (0, 10):
            yield error(
                "field-of-other-build", place, f"a configuration that JAX {means.build.jax} has", "BackendConfig"
            )
            return
    else:
        top = records.to_new(entry)
    if _has_all(top.DESCRIPTOR.full_name, means.build.minor):
        return
    for path in dict.fromkeys(_lacking(top, means.build.minor, "")):
        make = error if is_text else warning
        yield make("field-of-other-build", place, f"fields that JAX {means.build.jax} has", path)


@functools.cache
def _has_all(name: str, minor: schema.Minor) -> bool:
    """Whether a JAX has every field that there is in a message, and in all inside it."""
    left, seen = [name], set[str]()
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            rows = schema.fields_of(one).values()
            if not all(row.known.to(minor) for row in rows):
                return False
            left += (row.type for row in rows)
    return True


def _lacking(message: Any, minor: schema.Minor, within: str) -> Iterator[str]:
    rows = schema.fields_of(message.DESCRIPTOR.full_name)
    for descriptor, value in message.ListFields():
        path = f"{within}.{descriptor.name}" if within else descriptor.name
        row = rows.get(descriptor.name)
        if row is not None and not row.known.to(minor):
            yield path
        elif descriptor.type == descriptor.TYPE_MESSAGE and row is not None and not row.map_of:
            for one in value if row.repeated else (value,):
                yield from _lacking(one, minor, path)


def _on_fusion(entry: TuningEntry, name: str, message: Any, means: _Means, place: Place) -> Iterator[Finding]:
    """Whether the backend can be that of the instruction, as far as its text tells."""
    text = entry.fusion if entry.family is Family.LEGACY else means.fusions.get(entry.fusion or "")
    told = hlo.instruction(text) if text else None
    if told is None or not entry.backend or not name:
        return
    wanted = fitting.misfit(entry.backend, name, message, told)
    if wanted:
        yield error("backend-of-other-fusion", place, f"{wanted}, for {told}", entry.backend)


def _legacy_key(entry: TuningEntry, means: _Means, place: Place) -> Iterator[Finding]:
    version, build = entry.versions.entry, means.build
    if version < 0:
        yield error("entry-version", place, "a version of 0 or above", str(version))
    elif build is not None and version not in (0, build.entry_version) and entry.device is not None:
        expected = f"version {build.entry_version} (JAX {build.jax}) or 0: others are never found"
        yield warning("entry-version", place, expected, f"version {version}")
    if entry.device == "" or entry.fusion == "":
        yield error("no-key", place, "a device and an HLO text", "one of them empty")
    elif means.device is not None and entry.device is not None and entry.device != means.device.legacy:
        yield warning("other-device", place, means.device.legacy, entry.device)


def _new_key(entry: TuningEntry, means: _Means, place: Place) -> Iterator[Finding]:
    if not keys.is_device(entry.device or "") or not keys.is_fusion(entry.fusion or ""):
        expected = "a device of 16 hexadecimal digits and a fusion of 32"
        yield error("no-key", place, expected, f"{entry.device!r} and {entry.fusion!r}")
    elif means.device is not None and entry.device != means.device.fingerprint:
        yield warning("other-device", place, means.device.fingerprint, str(entry.device))
    if entry.versions.explicit:
        yield info("explicit-version", place, "no explicit version (JAX asks for none)", entry.versions.explicit)
    told = entry.versions
    if not told.codegen and not told.backend:
        yield warning("no-version", place, "a codegen version or the backend's version: others are never found", "none")
    elif means.build is not None and means.device is not None:
        yield from _match(entry, means.build, means.device, place)


def _match(entry: TuningEntry, build: Build, device: keys.Device, place: Place) -> Iterator[Finding]:
    versions, _ = matching.asked_for(build, device)
    if all(versions.values()) and versions and matching.rule(entry, build, device) is None:
        expected = f"{entry.backend} of version {versions.get(entry.backend, '?')} (JAX {build.jax})"
        yield warning("stale", place, expected, f"version {entry.versions.backend or 'unknown'}")


def _file_name(entry: TuningEntry) -> Iterator[Finding]:
    """A per-fusion file is found by its name, and XLA does not compare the name with what is inside."""
    path = PurePath(entry.source.path)
    if entry.family is Family.LEGACY:
        yield from _legacy_name(entry, path)
        return
    above = list(path.parts[:-1])[-2:]
    explicit = entry.versions.explicit
    folders = [part for part in (entry.device, explicit) if part]
    if path.name != f"{entry.fusion}.pb":
        yield error("file-name", Place(str(path)), f"{entry.fusion}.pb, after its content", path.name)
    if above[-len(folders) :] != folders:
        yield error("folder", Place(str(path)), f"a folder {'/'.join(folders)}, after its content", "/".join(above))


def _legacy_name(entry: TuningEntry, path: PurePath) -> Iterator[Finding]:
    place, found = Place(str(path)), path.name
    if entry.device is not None and entry.fusion is not None:
        wanted = keys.legacy_digest(entry.device, entry.fusion, entry.versions.entry)
        if found != f"{wanted}.textproto":
            yield error("file-name", place, f"{wanted}.textproto, after its key", found)
    elif not keys.is_legacy_digest(found.removesuffix(".textproto")):
        yield error("file-name", place, "a digest of 43 letters and .textproto", found)
