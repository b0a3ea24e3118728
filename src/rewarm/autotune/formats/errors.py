"""What can go wrong with tuning files, as errors that name the place."""

from __future__ import annotations

from rewarm.autotune.formats.findings import Finding
from rewarm.errors import RewarmError


class MissingLibraryError(RewarmError, ImportError):
    """`protobuf` is not installed, or is one that rewarm cannot use."""


class TuningFormatError(RewarmError, ValueError):
    """A tuning file, or something that was to become one, is not what it should be.

    Attributes:
      finding: where, what was expected and what was found.
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        return str(self.finding)
