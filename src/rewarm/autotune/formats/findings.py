"""Findings: what is wrong with a tuning file, where, and how much it matters.

Not promised: that a file without findings makes a program fast, or that its kernels exist. Nothing here runs one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

_SHOWN = 200  # characters of what was found: a file can be one line of many megabytes


class Severity(enum.StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """XLA refuses the file, falls back in silence, fails the compile, or compiles something that is not meant."""
    WARNING = "warning"
    """An entry serves nothing here, or is not what a tuner would write."""
    INFO = "info"
    """Worth knowing; nothing is lost."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is.

    Attributes:
      path: the file or folder; empty for entries that lie in none.
      line, column: of a text, counted from 1; 0 where they are not known.
      offset: of a binary file, in bytes from its beginning; -1 where it is not known.
      entry: which entry of a file, counted from 1; 0 for the file itself.
    """

    path: str = ""
    line: int = 0
    column: int = 0
    offset: int = -1
    entry: int = 0

    def __str__(self) -> str:
        text = self.path or "(no file)"
        if self.line:
            text += f":{self.line}" + (f":{self.column}" if self.column else "")
        if self.offset >= 0:
            text += f", byte {self.offset}"
        if self.entry:
            text += f", entry {self.entry}"
        return text


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
      code: what, as a name that does not change: "num-warps".
      severity: how much it matters.
      place: where.
      expected: what should be there, in words.
      found: what is there, in words; shortened and printable.
    """

    code: str
    severity: Severity
    place: Place
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.code}: expected {self.expected}, found {self.found}"

    def at(self, path: str) -> Finding:
        """The same, in this file."""
        return replace(self, place=replace(self.place, path=path))


def error(code: str, place: Place, expected: str, found: str) -> Finding:
    """A finding that matters."""
    return Finding(code, Severity.ERROR, place, expected, shown(found))


def warning(code: str, place: Place, expected: str, found: str) -> Finding:
    """A finding that should be looked at."""
    return Finding(code, Severity.WARNING, place, expected, shown(found))


def info(code: str, place: Place, expected: str, found: str) -> Finding:
    """A finding that is worth knowing."""
    return Finding(code, Severity.INFO, place, expected, shown(found))


def shown(text: str) -> str:
    """`text` in one line, printable and not long: it comes from a file that anyone may have written."""
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in cut)
