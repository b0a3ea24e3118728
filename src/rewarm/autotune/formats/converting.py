"""Entries to the entries of another format, as far as what they say is enough.

Not promised: that all can be. What cannot is left out, and a finding says why and what would be needed.

    within a family    text, binary and directory hold the same, but for: a legacy directory needs the entry version
                       (the build says it) and a legacy file the device and fusion (`reading.with_keys` finds them); a
                       new directory has room for one entry of a fusion, a new file for one of each environment
    legacy to new      the fingerprint of a fusion is that of the whole instruction, of which a legacy key has only the
                       computation. For Triton's gemm fusions the rest is known; for others `fusions` must say it
    new to legacy      a fingerprint has no way back: `device` and `fusions` must have the texts

An entry that comes from another family is as old as it was: it gets the versions of the build that its own version
names, never those of the build that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rewarm.autotune.formats import binary, keys, matching, records
from rewarm.autotune.formats.builds import BUILDS, Build
from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Finding, Place, error
from rewarm.autotune.formats.model import Family, Format, TuningEntry, Versions
from rewarm.autotune.formats.protobuf import message_class

_BACKEND_CONFIG = "xla.autotuner.BackendConfig"


@dataclass(frozen=True, slots=True)
class Conversion:
    """What could be converted, in its order, and why the rest could not."""

    entries: tuple[TuningEntry, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Means:
    """What the caller knows beside the entries."""

    build: Build | None
    device: keys.Device | None
    fusions: Mapping[str, str] = field(default_factory=dict)


def convert(
    entries: Iterable[TuningEntry],
    to: Format,
    *,
    build: Build | None = None,
    device: keys.Device | None = None,
    fusions: Mapping[str, str] | None = None,
) -> Conversion:
    """The entries as the format can hold them.

    Args:
      build: who is to read them. Legacy entries of version 0 get its version; of several entries that have one place in
        a new directory, one that it finds strictly stays, else one that it finds loosely, and of those the first.
      device: what described or real device they are for; its texts stand for fingerprints, and its versions of cuDNN
        and CUDA go into what names a backend's version.
      fusions: legacy HLO text -> new fingerprint, as a compiler asked for both.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    means = _Means(build, device, fusions or {})
    made: list[TuningEntry] = []
    findings: list[Finding] = []
    for entry in entries:
        try:
            made.append(_converted(entry, to, means))
        except TuningFormatError as wrong:
            findings.append(wrong.finding)
    if to is Format.NEW_DIRECTORY:
        made, dropped = _one_for_each_place(made, means)
        findings += dropped
    return Conversion(tuple(made), tuple(findings))


def _converted(entry: TuningEntry, to: Format, means: _Means) -> TuningEntry:
    if entry.family is not to.family:
        entry = _to_new(entry, means) if to.family is Family.NEW else _to_legacy(entry, means)
    if to.family is Family.NEW:
        return entry
    named = entry.device is not None and entry.fusion is not None
    if to.files is not Format.LEGACY_FUSION:
        if not named:
            raise _impossible(entry, "device and fusion (a file's name is only their digest; the keys would tell)")
        return entry
    if named and not entry.versions.entry:
        if means.build is None:
            raise _impossible(entry, "the build, whose entry version is in the file's name")
        return replace(entry, versions=Versions(entry=means.build.entry_version))
    return entry


def _impossible(entry: TuningEntry, needed: str) -> TuningFormatError:
    place = Place(entry.source.path, entry=entry.source.index)
    found = f"an entry of the {entry.family} family, {entry.backend or 'no backend'}"
    return TuningFormatError(error("cannot-convert", place, needed, found))


def _one_for_each_place(entries: list[TuningEntry], means: _Means) -> tuple[list[TuningEntry], list[Finding]]:
    """A directory has one file for a fusion, whatever environment its entry is of."""
    kept: dict[tuple[str | None, str, str | None], TuningEntry] = {}
    findings = []
    for entry in entries:
        place = (entry.device, entry.versions.explicit, entry.fusion)
        earlier = kept.get(place)
        if earlier is not None and earlier != entry:
            stays = entry if _is_taken(entry, earlier, means) else earlier
            goes = entry if stays is earlier else earlier
            findings.append(_impossible(goes, "a place of its own: another entry is of the same fusion").finding)
            entry = stays  # noqa: PLW2901 - the one that has the place now
        kept[place] = entry
    return list(kept.values()), findings


def _is_taken(entry: TuningEntry, earlier: TuningEntry, means: _Means) -> bool:
    """Whether an entry has the place of an earlier one of its fusion: XLA takes the last of one key, and of several the
    first that it finds. What is found strictly comes before what is found loosely, though."""
    if entry.key == earlier.key:
        return True
    return _nearness(entry, means) < _nearness(earlier, means)


def _nearness(entry: TuningEntry, means: _Means) -> int:
    """How an entry is found by who is to read, as far as that is known: the smaller comes first."""
    if means.build is None:
        return 0
    if means.device is not None and means.device.fingerprint == entry.device:
        found = matching.rule(entry, means.build, means.device)
        if found is not None:
            return 0 if found == "strict" else 1
    its = entry.versions.backend
    return 1 if its and means.build.backend_versions.get(entry.backend) == its else 2


def _to_new(entry: TuningEntry, means: _Means) -> TuningEntry:
    if entry.device is None or entry.fusion is None:
        raise _impossible(entry, "device and fusion (a file's name is only their digest; the keys would tell)")
    config = _backend_config(entry)
    told = keys.device_of_legacy(entry.device)
    if means.device is not None and means.device.legacy == entry.device:
        told = means.device
    return TuningEntry(
        Family.NEW,
        told.fingerprint,
        _fingerprint(entry, means),
        entry.backend,
        config.SerializeToString(deterministic=True),
        _new_versions(entry, told, means),
        source=entry.source,
    )


def _fingerprint(entry: TuningEntry, means: _Means) -> str:
    fusion = entry.fusion or ""
    if fusion in means.fusions:
        return means.fusions[fusion]
    if records.to_result(entry).WhichOneof("key") != "triton":
        raise _impossible(entry, "the whole instruction (its kind and backend_config are not in a legacy key)")
    try:
        return keys.fusion_fingerprint(fusion, "kCustom", keys.TRITON_GEMM_CONFIG)
    except ValueError:
        raise _impossible(entry, "the computation of a fusion as XLA writes it") from None


def _new_versions(entry: TuningEntry, device: keys.Device, means: _Means) -> Versions:
    """Of the build that made the entry; of the one that reads it only where an entry says to be of whoever reads it."""
    number = entry.versions.entry
    maker = next((build for build in BUILDS if build.entry_version == number), None) if number else means.build
    versions = keys.codegen_versions(maker, device) if maker else {}
    if not versions.get(entry.backend):
        raise _impossible(entry, f"the version of {entry.backend or 'the backend'} in the build that made the entry")
    return Versions(
        codegen=keys.codegen_version(versions) if all(versions.values()) else "",
        backend=versions[entry.backend],
    )


def _backend_config(entry: TuningEntry) -> Any:
    """The `BackendConfig` of a legacy entry."""
    result = records.to_result(entry)
    name, message = records.chosen(entry)
    config = message_class(_BACKEND_CONFIG)()
    if message is None or name not in config.DESCRIPTOR.fields_by_name:
        raise _impossible(entry, "a configuration that the new formats have")
    if entry.rest or next(binary.unknown_fields(_without_key(result)), None):
        raise _impossible(entry, "only fields that are known, since there is no place for others")
    if result.WhichOneof("key") == "other":
        config.MergeFromString(result.other.config.value)
    else:
        getattr(config, name).MergeFrom(message)
        getattr(config, name).SetInParent()
    return config


def _without_key(result: Any) -> Any:
    """The result but for its configuration, whose unknown fields come along."""
    bare = type(result)()
    bare.CopyFrom(result)
    if bare.WhichOneof("key"):
        bare.ClearField(bare.WhichOneof("key"))
    return bare


def _to_legacy(entry: TuningEntry, means: _Means) -> TuningEntry:
    if means.device is None or means.device.fingerprint != entry.device:
        raise _impossible(entry, "the device whose fingerprint the entry has")
    if not means.device.dnn_version:
        raise _impossible(entry, "the device's version of cuDNN, which is in legacy keys")
    fusion = next((text for text, fingerprint in means.fusions.items() if fingerprint == entry.fusion), None)
    if fusion is None:
        raise _impossible(entry, "the HLO text of the fusion, which its fingerprint does not give back")
    if entry.rest:
        raise _impossible(entry, "only fields that are known, since there is no place for others")
    result = _legacy_result(entry, fusion, means)
    version = next((build.entry_version for build in BUILDS if _made(build, entry)), None)
    if version is None:
        raise _impossible(entry, "a known build that made the entry, whose version is in legacy keys")
    return TuningEntry(
        Family.LEGACY,
        means.device.legacy,
        fusion,
        records.legacy_backend(result, fusion),
        result.SerializeToString(deterministic=True),
        Versions(entry=version),
        source=entry.source,
    )


def _made(build: Build, entry: TuningEntry) -> bool:
    """Whether an entry's own version is this build's: only backends whose version is fixed in a build can tell."""
    versions = set(build.backend_versions.values()) - {"v1"}
    return entry.versions.backend in versions


def _legacy_result(entry: TuningEntry, fusion: str, means: _Means) -> Any:
    """The `AutotuneResult`, in the form that XLA itself would write."""
    name, message = records.chosen(entry)
    if message is None:
        raise _impossible(entry, "a configuration")
    result = message_class(records.RESULT)()
    if name in ("triton", "gemm", "algorithm"):
        getattr(result, name).MergeFrom(message)
        getattr(result, name).SetInParent()
        if records.legacy_backend(result, fusion) == entry.backend:
            return result
        result.Clear()
    if means.build is not None and means.build.minor < (0, 10):
        raise _impossible(entry, f"a configuration that JAX {means.build.jax} has ({name} is not)")
    result.other.name = entry.backend
    result.other.config.type_url = f"type.googleapis.com/{_BACKEND_CONFIG}"
    result.other.config.value = entry.config
    return result
