"""Lock files as sections: XLA's tuning comes first (`autotune/lock_file.py`), and others follow it by their names.

Not promised: that a section is sound, or one that anybody here knows. Who rewrites his own part keeps all others as
they are.

    rewarm-autotune-lock 1
    ...                       XLA's tuning; nothing, where only others are pinned
    section tuned 1           each begins at the start of a line: a name, and the version of what follows
    ...
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rewarm import small_files

FIRST = "rewarm-autotune-lock 1"
LARGEST = 64 << 20
_START = "section "


class Parts(NamedTuple):
    """A lock file's text, taken apart.

    Attributes:
      main: up to the first section, with the first line.
      sections: name -> its text, with its first line; in the order of the file. Of two of one name both are one text.
      lines: name -> the number of its first line in the file, from 1.
    """

    main: str
    sections: Mapping[str, str]
    lines: Mapping[str, int]

    @property
    def has_main(self) -> bool:
        """Whether XLA's tuning is pinned: the main part says more than that this is a lock file."""
        said = [line for line in self.main.split("\n") if line.strip() and not line.lstrip().startswith("#")]
        return said[:1] != [FIRST] or len(said) > 1


def split(text: str) -> Parts:
    """The parts of a lock file, or of any text, which is then its main part."""
    main: list[str] = []
    sections: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    at = main
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(_START):
            name = line.removeprefix(_START).partition(" ")[0]
            at = sections.setdefault(name, [])
            lines.setdefault(name, number)
        at.append(line)
    return Parts("\n".join(main), {name: "\n".join(rows) for name, rows in sections.items()}, lines)


def joined(main: str, sections: Mapping[str, str]) -> str:
    """One text again: the main part, then the sections by their names, an empty line before each."""
    parts = [main.rstrip("\n") or FIRST, *(sections[name].rstrip("\n") for name in sorted(sections))]
    return "\n\n".join(parts) + "\n"


def read(path: Path) -> Parts:
    """The parts of a lock file.

    Raises:
      OSError: it cannot be read, or is larger than any lock file.
      UnicodeDecodeError: it is no text.
    """
    return split(small_files.contents(path, LARGEST).decode())


def beside(path: Path, main: str) -> str:
    """What is to be written so that a new main part takes the place of the one there, and sections stay."""
    try:
        parts = read(path)
    except (OSError, UnicodeDecodeError):
        return main
    return joined(main, parts.sections) if parts.main.startswith(FIRST) and parts.sections else main
