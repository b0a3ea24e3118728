"""What a command is given: XLA's files and folders, lock files, cache directories of JAX's and of rewarm's.

Not promised: one moment in time. A folder that a program tunes into while it is read is read as far as it has come.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rewarm.autotune.formats import Finding, Format, Reading, Severity, TuningEntry, TuningFormatError, read
from rewarm.errors import RewarmError

_LOCK_FILE = b"rewarm-autotune-lock "
# What a cache directory has beside tuning: without one of these a folder of this name is anybody's.
_OF_CACHE = ("CACHEDIR.TAG", "autotune")

# Where JAX lets XLA keep its results, in a cache directory of its own.
_OF_JAX = "xla_gpu_per_fusion_autotune_cache_dir"


class SourceError(RewarmError, LookupError):
    """There is nothing where something was to be read."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One set of entries.

    Attributes:
      reading: entries and what is broken.
      build: of a place in the cache directory, the build's id there; empty for a file or folder of anybody's.
      device: of a place, XLA's text where it is known.
      fusions: HLO texts by the fingerprints of the new formats, as far as the place knows them.
      says: of a lock file, what its fusions are, in one line each, by the names that its entries have for them.
      is_lock: whether it is a lock file.
    """

    reading: Reading
    build: str = ""
    device: str = ""
    fusions: Mapping[str, str] = field(default_factory=dict)
    says: Mapping[str, str] = field(default_factory=dict)
    is_lock: bool = False

    @property
    def in_cache(self) -> bool:
        """Whether it is a place in a cache directory, which rewarm keeps by itself."""
        return bool(self.build)

    @property
    def is_xlas(self) -> bool:
        """Whether XLA could be given it as it is: a whole file or folder of XLA's."""
        one_file = (Format.LEGACY_FUSION, Format.NEW_FUSION)
        return not self.build and not self.is_lock and self.reading.format not in (None, *one_file)

    @property
    def path(self) -> Path:
        """What was read."""
        return self.reading.path

    @property
    def entries(self) -> tuple[TuningEntry, ...]:
        """In the order of the files."""
        return self.reading.entries

    @property
    def broken(self) -> tuple[Finding, ...]:
        """What could not be read."""
        return tuple(finding for finding in self.reading.findings if finding.severity is Severity.ERROR)


def load(paths: Iterable[Path]) -> Iterator[Loaded]:
    """What lies at these paths.

    Raises:
      SourceError: there is nothing at one of them.
      MissingLibraryError: protobuf is not there. All else is in the findings.
    """
    for path in paths:
        if not os.path.lexists(path):
            raise SourceError(f"{path}: there is no such file or folder")
        if is_cache(path):
            yield from of_cache(path)
        elif is_lock(path):
            yield _lock(path)
        else:
            yield Loaded(read(of_xla(path)))


def is_cache(path: Path) -> bool:
    """Whether a folder is a cache directory of rewarm's, with or without results."""
    return all(os.path.lexists(path / name) for name in _OF_CACHE)


def of_xla(path: Path) -> Path:
    """What XLA would be given of a path: of a cache directory of JAX's the folder inside it."""
    inside = path / _OF_JAX
    return inside if os.path.isdir(inside) else path  # noqa: PTH112 - unlike Path.is_dir it never raises


def of_cache(root: Path) -> Iterator[Loaded]:
    """Every place of a cache directory, one for each build and device; one without results yet is no fault."""
    from rewarm.autotune.locating import places

    for place in places(root):
        reading = place.entries()
        faults = tuple(one for one in reading.findings if one.place.path != str(reading.path))
        yield Loaded(replace(reading, findings=faults), place.build, place.device, place.fusions())


def is_lock(path: Path) -> bool:
    """Whether a file is a lock file, sound or not."""
    try:
        if not path.is_file():  # opening a FIFO would wait
            return False
        with path.open("rb") as file:
            return file.read(len(_LOCK_FILE)) == _LOCK_FILE
    except OSError:
        return False


def _lock(path: Path) -> Loaded:
    from rewarm.autotune import lock_file

    try:
        known = lock_file.read(path)
    except TuningFormatError as wrong:
        return Loaded(Reading(path, None, findings=(wrong.finding,)), is_lock=True)
    return Loaded(Reading(path, None, known.entries), says=known.says, is_lock=True)
