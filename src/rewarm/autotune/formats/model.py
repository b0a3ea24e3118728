"""A tuning entry, in one form for all of XLA's formats.

Not promised: that an entry is sound; `validate` says that. An entry says what a file said, no more: a file of a legacy
directory does not say its device and fusion, since its name is a digest of both.

The families differ in what names a fusion. Legacy formats have XLA's device text and the fusion's HLO text; the new
ones have a fingerprint of each, and no way back.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Family(enum.StrEnum):
    """The two generations of XLA's formats."""

    LEGACY = "legacy"
    NEW = "new"


class Format(enum.StrEnum):
    """How entries lie on disk. All but the two of a single fusion are what a flag of XLA can name."""

    LEGACY_DIRECTORY = "legacy-dir"
    """A text `xla.AutotuneResult` for each fusion: `DIR/<base64url of SHA-256 of the key>.textproto`."""
    LEGACY_TEXT = "legacy-text"
    """A text `xla.AutotuneResults`."""
    LEGACY_BINARY = "legacy-binary"
    """A binary `xla.AutotuneResults`."""
    LEGACY_FUSION = "legacy-fusion"
    """One file of a legacy directory."""
    NEW_DIRECTORY = "new-dir"
    """A binary `xla.autotuner.AutotuneEntry` for each fusion: `DIR/<device>/[<explicit version>/]<fusion>.pb`."""
    NEW_TEXT = "new-text"
    """A text `xla.autotuner.AutotuneCache`."""
    NEW_BINARY = "new-binary"
    """A binary `xla.autotuner.AutotuneCache`."""
    NEW_FUSION = "new-fusion"
    """One file of a new directory."""

    @property
    def family(self) -> Family:
        """Its generation."""
        return Family.LEGACY if self.value.startswith("legacy") else Family.NEW

    @property
    def is_directory(self) -> bool:
        """Whether it is a folder of files."""
        return self in (Format.LEGACY_DIRECTORY, Format.NEW_DIRECTORY)

    @property
    def is_text(self) -> bool:
        """Whether its files are text."""
        return self in (Format.LEGACY_DIRECTORY, Format.LEGACY_FUSION, Format.LEGACY_TEXT, Format.NEW_TEXT)

    @property
    def files(self) -> Format:
        """For a directory the format of one of its files; else itself."""
        one = {Format.LEGACY_DIRECTORY: Format.LEGACY_FUSION, Format.NEW_DIRECTORY: Format.NEW_FUSION}
        return one.get(self, self)


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that an entry says; empty where its family or its file has none.

    Attributes:
      entry: legacy: the version in the key. 0 in a results file means that of whoever reads it.
      explicit: new: a version that the user chose; part of the target.
      codegen: new: a fingerprint of the versions of all backends, 16 hexadecimal digits.
      codegen_options: new: a fingerprint of the options; XLA ignores it when it looks up.
      backend: new: the version of the backend that won.
    """

    entry: int = 0
    explicit: str = ""
    codegen: str = ""
    codegen_options: str = ""
    backend: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Where an entry comes from.

    Attributes:
      path: the file; empty for one that was made.
      index: its place in the file, from 1.
      note: whatever is said about it, in words.
    """

    path: str = ""
    index: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class TuningEntry:
    """How one fusion is best compiled for one device. Two entries are equal whatever file they come from.

    Attributes:
      family: the generation of the formats that it can be written in.
      device: XLA's device text (legacy), or its fingerprint; `None` where the file does not say.
      fusion: the HLO text of the fusion's computation (legacy), or the instruction's fingerprint; `None` where the file
        does not say.
      backend: the backend that won, by XLA's name ("TRITON"), a number in digits that has no name, or "" for none. Of a
        legacy entry it follows from `config`, whose text wins when the entry is written.
      config: the serialised message: `xla.AutotuneResult` (legacy), `xla.autotuner.BackendConfig` (new). Fields that
        are not known are in it.
      versions: the versions that it says.
      digest: legacy, and only where device or fusion are not known: the name of its file, without ".textproto".
      rest: what the record has beside all this, as a serialised message: fields that are not known, and which empty
        messages are there. Empty for nearly all.
      run_time: seconds that the winner took, where the file says it; also in `config`.
      source: where it comes from.
    """

    family: Family
    device: str | None
    fusion: str | None
    backend: str
    config: bytes
    versions: Versions = Versions()
    digest: str = ""
    rest: bytes = b""
    run_time: float | None = field(default=None, compare=False)
    source: Source = field(default=Source(), compare=False)

    @property
    def key(self) -> tuple[str, ...]:
        """What XLA looks an entry up by. Two entries with one key cannot both serve in one place.

        In the new family `versions.codegen` and `codegen_options` are in it: a cache file holds entries of several.
        """
        if self.family is Family.NEW:
            told = self.versions
            return ("new", self.device or "", told.explicit, self.fusion or "", told.codegen, told.codegen_options)
        if self.device is None or self.fusion is None:
            return ("legacy", self.digest)
        return ("legacy", self.device, self.fusion, str(self.versions.entry))


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about all its entries.

    Attributes:
      version: legacy: of the file's structure (3 in every known build).
      device_scope, explicit_version_scope: new: what the file is for; XLA ignores them.
      rest: fields of the file that are not known, as a serialised message.
    """

    version: int = 0
    device_scope: str = ""
    explicit_version_scope: str = ""
    rest: bytes = b""
