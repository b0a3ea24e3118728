"""Which entries are meant: by device, build, backend and fusion.

Not promised: an answer for every entry. A file of a legacy directory says neither its device nor its build, and a
new entry of a library's backend says its build only together with the device: there the answer is `None`, which a list
leaves out and whoever removes entries leaves alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rewarm.autotune import targets
from rewarm.autotune.describing import fingerprint_of, name_of
from rewarm.autotune.formats import BUILDS, Build, Device, Family, Format, TuningEntry, device_of_legacy, schema
from rewarm.autotune.formats.keys import codegen_version, codegen_versions, is_device
from rewarm.errors import RewarmError

_DEVICE_TEXT = re.compile(r"(CUDA|ROCM): [^,]+, Cores: ")
_CODEGEN = re.compile(r"[0-9a-f]{16}")
_NONE: Mapping[str, str] = MappingProxyType({})


class SelectionError(RewarmError, ValueError):
    """A filter names something that is not known; the message lists what is."""


@dataclass(frozen=True, slots=True)
class WantedDevice:
    """A device: its fingerprint, and where a whole legacy text was given, that (else any version of cuDNN will do)."""

    fingerprint: str
    legacy: str = ""

    def admits(self, entry: TuningEntry) -> bool | None:
        """Whether an entry is for it; `None` where the entry does not say."""
        if entry.device is None:
            return None
        if entry.family is Family.NEW:
            return entry.device == self.fingerprint
        return entry.device == self.legacy if self.legacy else fingerprint_of(entry.device) == self.fingerprint


@dataclass(frozen=True, slots=True)
class WantedBuild:
    """A build that is known, or what an entry of another one says: a legacy entry version, or a codegen version."""

    build: Build | None = None
    entry_version: int | None = None
    codegen: str | None = None

    def admits(self, entry: TuningEntry) -> bool | None:
        """Whether an entry would serve it; `None` where the entry does not say."""
        if self.build:
            return serves(entry, self.build)
        if entry.family is Family.NEW:
            return entry.versions.codegen == self.codegen
        return None if entry.device is None else entry.versions.entry == self.entry_version


@dataclass(frozen=True, slots=True)
class Selection:
    """What is meant: of each kind any one will do, and a kind without any admits all.

    Attributes:
      fusions: parts of the HLO text, or beginnings of a name (`describing.name_of`).
    """

    devices: tuple[WantedDevice, ...] = ()
    builds: tuple[WantedBuild, ...] = ()
    backends: tuple[str, ...] = ()
    fusions: tuple[str, ...] = ()

    def admits(self, entry: TuningEntry, texts: Mapping[str, str] = _NONE) -> bool | None:
        """Whether an entry is meant; `None` where it does not say enough and nothing else excludes it.

        Args:
          texts: HLO texts by the fingerprints of the new formats, as far as they are known.
        """
        answers = (
            _any(self.devices, entry),
            _any(self.builds, entry),
            not self.backends or entry.backend in self.backends,
            not self.fusions or any(_is_fusion(entry, part, texts) for part in self.fusions),
        )
        return False if False in answers else None if None in answers else True

    def of(self, entries: Iterable[TuningEntry], texts: Mapping[str, str] = _NONE) -> tuple[TuningEntry, ...]:
        """The entries that are meant for certain."""
        return tuple(entry for entry in entries if self.admits(entry, texts))


def _any(wanted: Iterable[WantedDevice | WantedBuild], entry: TuningEntry) -> bool | None:
    answers = [one.admits(entry) for one in wanted]
    return True if not answers or True in answers else None if None in answers else False


def _is_fusion(entry: TuningEntry, part: str, texts: Mapping[str, str]) -> bool:
    text = entry.fusion if entry.family is Family.LEGACY else texts.get(entry.fusion or "")
    return name_of(entry).startswith(part) or part in (text or "")


def selection(
    *,
    devices: Iterable[str] = (),
    builds: Iterable[str] = (),
    backends: Iterable[str] = (),
    fusions: Iterable[str] = (),
) -> Selection:
    """A selection from what a user typed.

    Args:
      devices: names of `targets`, paths of descriptions, device texts of XLA's, or fingerprints.
      builds: versions of JAX ("0.12.0.1", "0.12"), legacy entry versions ("56") or codegen versions (16 digits).
      backends: XLA's names, in any case of letters.
      fusions: see `Selection`.

    Raises:
      SelectionError: something is not known.
      TuningFormatError, MissingLibraryError: see `targets.device`.
    """
    return Selection(
        tuple(map(device_wanted, devices)),
        tuple(map(build_wanted, builds)),
        tuple(map(backend_wanted, backends)),
        tuple(part for part in fusions if part),
    )


def device_wanted(word: str) -> WantedDevice:
    """A device from what a user typed.

    Raises:
      SelectionError, TuningFormatError, MissingLibraryError: see `selection`.
    """
    if _DEVICE_TEXT.match(word):
        told = device_of_legacy(word)
        return WantedDevice(told.fingerprint, word if told.dnn_version else "")
    if is_device(word):
        return WantedDevice(word)
    try:
        return WantedDevice(targets.device(word).fingerprint)
    except targets.UnknownTargetError as wrong:
        raise SelectionError(f"{wrong}; a device text of XLA's or its fingerprint (16 digits) does as well") from None


def build_wanted(word: str) -> WantedBuild:
    """A build from what a user typed.

    Raises:
      SelectionError: see `selection`.
    """
    found = [build for build in BUILDS if build.jax == word or build.jax.startswith(f"{word}.")]
    if len(found) == 1:
        return WantedBuild(found[0])
    if word.isdecimal() and word.isascii() and 0 < len(word) < 10:
        return WantedBuild(entry_version=int(word))
    if _CODEGEN.fullmatch(word):
        return WantedBuild(codegen=word)
    raise SelectionError(
        f"no build is known as {word!r}; known are JAX {', '.join(build.jax for build in BUILDS)}; an entry version "
        "of the legacy formats (a number) or a codegen version of the new ones (16 digits) does as well"
    )


def backend_wanted(word: str) -> str:
    """A backend from what a user typed.

    Raises:
      SelectionError: see `selection`.
    """
    known = sorted(value.name for value in schema.backends().values() if value.number)
    if word.upper() not in known:
        raise SelectionError(f"XLA has no backend {word!r}; it has {', '.join(known)}")
    return word.upper()


def serves(entry: TuningEntry, build: Build, device: Device | None = None) -> bool | None:
    """Whether a build finds an entry, by XLA's own rule; `None` where that cannot be told.

    Args:
      device: whose versions of cuDNN and CUDA are asked for; by default those of each device of `targets`.
    """
    if entry.family is Family.NEW:
        return _new_serves(entry, build, device)
    if entry.device is None or entry.fusion is None:
        return None
    return entry.versions.entry in (0, build.entry_version)


def _new_serves(entry: TuningEntry, build: Build, device: Device | None) -> bool | None:
    """The codegen version, or else the version of the entry's own backend."""
    told = entry.versions
    if Format.NEW_DIRECTORY not in build.formats or not (told.codegen or told.backend):
        return False
    if told.codegen in codegens(build, device):
        return True
    if device is None and entry.backend not in build.backend_versions:
        return None
    versions = codegen_versions(build, device) if device else build.backend_versions
    return bool(told.backend) and versions.get(entry.backend) == told.backend


@functools.lru_cache(256)
def codegens(build: Build, device: Device | None = None) -> frozenset[str]:
    """The codegen versions that a build asks for, on a device or on each of `targets`, as far as they are known."""
    made = (codegen_versions(build, one) for one in ((device,) if device else targets.devices().values()))
    return frozenset(codegen_version(versions) for versions in made if versions and all(versions.values()))


def builds_of(entry: TuningEntry) -> tuple[Build, ...]:
    """The known builds that find an entry for certain."""
    return tuple(build for build in BUILDS if serves(entry, build))


def build_in_words(entry: TuningEntry) -> str:
    """Who made an entry, or would find it."""
    if entry.family is Family.LEGACY and (entry.device is None or entry.fusion is None):
        return "not said"
    if entry.family is Family.LEGACY and not entry.versions.entry:
        return "any"
    found = builds_of(entry)
    if found:
        return "JAX " + ", ".join(build.jax for build in found)
    if entry.family is Family.LEGACY:
        return f"version {entry.versions.entry}"
    return f"codegen {entry.versions.codegen}" if entry.versions.codegen else "not said"
