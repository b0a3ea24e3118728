"""What fusions are that XLA's per-fusion files do not say: HLO texts by fingerprint, and keys by the names of files.

Not promised: all of them, or any. They come from files that said them, or from somebody who saw a compiler ask, and are
kept beside a place's results. A text that is wrong makes a check wrong; only its owner can write there.

    <place>/fusions.json    {"version": 1, "fusions": {fingerprint: text}, "legacy": {name: [device, text, version]}}
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rewarm import small_files
from rewarm.autotune.formats.model import Family, TuningEntry
from rewarm.small_files import Modes

NAME = "fusions.json"
VERSION = 1
_BYTES = 64 << 20


class Texts(NamedTuple):
    """What fusions are: by the fingerprints of the new formats, and whole keys by the names of legacy files."""

    fusions: dict[str, str]
    legacy: dict[str, tuple[str, str, int]]

    def has(self, other: Texts) -> bool:
        """Whether all of the other is in it."""
        return other.fusions.items() <= self.fusions.items() and other.legacy.items() <= self.legacy.items()

    def with_(self, other: Texts) -> Texts:
        """Both; where they differ the other counts."""
        return Texts({**self.fusions, **other.fusions}, {**self.legacy, **other.legacy})


def load(place: Path) -> Texts:
    """What is known in a place; nothing where it cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        told = json.loads(small_files.contents(place / NAME, _BYTES))
        if told["version"] == VERSION:
            legacy = {name: (str(row[0]), str(row[1]), int(row[2])) for name, row in told["legacy"].items()}
            return Texts({name: str(text) for name, text in told["fusions"].items()}, legacy)
    return Texts({}, {})


def save(place: Path, texts: Texts, modes: Modes) -> None:
    """Keep them.

    Raises:
      OSError: they cannot be written.
    """
    data = json.dumps({"version": VERSION, **texts._asdict()}).encode()
    small_files.replace(place / NAME, data, modes.file)


def legacy_keys(entries: Mapping[str, TuningEntry]) -> dict[str, tuple[str, str, int]]:
    """The keys of legacy results that say theirs, by the names of their files, from results by path."""
    return {
        Path(path).stem: (entry.device, entry.fusion, entry.versions.entry)
        for path, entry in entries.items()
        if entry.family is Family.LEGACY and entry.device is not None and entry.fusion is not None
    }
