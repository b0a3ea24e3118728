"""Why something was tuned although results were loaded.

Not promised: the cause in XLA. What was tuned is compared with what was loaded, by what keys say; where they say the
same, the reason is that XLA did not look there, and this module cannot know why.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rewarm.autotune.describing import device_in_words
from rewarm.autotune.formats import BUILDS, Family, Severity, TuningEntry, validate
from rewarm.autotune.formats.keys import legacy_digest


class Why(enum.StrEnum):
    """Why a fusion was tuned."""

    NEVER_TUNED = "never tuned"
    """No result for such a fusion was loaded: it is new, or changed, in the program."""
    OTHER_DEVICE = "other device"
    OTHER_BUILD = "other build"
    UNSOUND = "unsound"
    """A result for it was there and was kept from XLA, since it would have done harm."""
    NOT_READ = "not read"
    """A result for it was given to XLA, which tuned all the same."""


class Reason(NamedTuple):
    """Why, and what was compared, in words."""

    why: Why
    said: str

    def __str__(self) -> str:
        return f"{self.why}: {self.said}" if self.said else self.why


@dataclass(slots=True)
class Known:
    """What was loaded.

    Attributes:
      given: entries that XLA was given.
      kept_back: entries that it was not given, and why not.
    """

    given: list[TuningEntry] = field(default_factory=list)
    kept_back: list[tuple[TuningEntry, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.given) + len(self.kept_back)

    def reason(self, tuned: TuningEntry) -> Reason:
        """Why this was tuned, although that was loaded."""
        for entry, wrong in self.kept_back:
            if _is_same_fusion(entry, tuned) and _is_same_device(entry, tuned):
                return Reason(Why.UNSOUND, wrong)
        same = [entry for entry in self.given if _is_same_fusion(entry, tuned)]
        here = [entry for entry in same if _is_same_device(entry, tuned)]
        if any(_serves(entry, tuned) for entry in here):
            return Reason(Why.NOT_READ, "a result for it was loaded; was the first program compiled before?")
        if here:
            return Reason(Why.OTHER_BUILD, f"{_versions(here[0])}, and this is {_versions(tuned)}")
        if same:
            others = ", ".join(dict.fromkeys(device_in_words(entry.device) for entry in same))
            return Reason(Why.OTHER_DEVICE, f"tuned for {others}; this is {device_in_words(tuned.device)}")
        return Reason(Why.NEVER_TUNED, "new or changed in the program")


def _is_same_fusion(known: TuningEntry, tuned: TuningEntry) -> bool:
    if known.family is not tuned.family:
        return False
    if tuned.fusion is not None and known.fusion is not None:
        return known.fusion == tuned.fusion
    # A file of a legacy directory has the digest of its key alone: it is found by those that its key can have been.
    named, digest = (known, tuned.digest) if tuned.fusion is None else (tuned, known.digest)
    if named.device is None or named.fusion is None:
        return bool(digest) and known.digest == tuned.digest
    versions = {named.versions.entry, *(build.entry_version for build in BUILDS)}
    return any(digest == legacy_digest(named.device, named.fusion, version) for version in versions)


def _is_same_device(known: TuningEntry, tuned: TuningEntry) -> bool:
    if known.device is None or tuned.device is None:
        return True  # the digest was of this device
    if known.family is Family.LEGACY:
        return known.device == tuned.device
    return known.device == tuned.device and known.versions.explicit == tuned.versions.explicit


def _serves(known: TuningEntry, tuned: TuningEntry) -> bool:
    """XLA's rule: of the new formats the codegen version, or else that of the entry's own backend."""
    ours, asked = known.versions, tuned.versions
    if known.family is Family.LEGACY:
        return ours.entry in (0, asked.entry) or known.digest == tuned.digest != ""
    same_backend = known.backend == tuned.backend and ours.backend != "" and ours.backend == asked.backend
    return ours.codegen == asked.codegen or same_backend


def _versions(entry: TuningEntry) -> str:
    told = entry.versions
    if entry.family is Family.LEGACY:
        found = next((f" (JAX {build.jax})" for build in BUILDS if build.entry_version == told.entry), "")
        return f"version {told.entry}{found}"
    return f"codegen {told.codegen or 'unknown'} with {entry.backend} {told.backend[:12] or 'unknown'}"


def error_of(entry: TuningEntry) -> str:
    """The first thing wrong with an entry by itself, in words; empty for none."""
    found = next((one for one in validate((entry,)) if one.severity is Severity.ERROR), None)
    return f"{found.code}: expected {found.expected}, found {found.found}" if found else ""


def sorted_out(entries: Iterable[TuningEntry]) -> Known:
    """Entries that XLA may see, and those that it may not."""
    known = Known()
    for entry in entries:
        wrong = error_of(entry)
        if wrong:
            known.kept_back.append((entry, wrong))
        else:
            known.given.append(entry)
    return known
