"""Which entries were evicted, when and why: a journal for people. Nothing in the store reads it.

Not promised: every eviction. The newest lines are kept, about 2,000 of them, and a line that cannot be written is
missing. What a user removed (`rewarm clear`) is not here.

    <root>/evicted    line := time " " key " " bytes " " why "\\n"

`time` is in whole seconds since the epoch, by this host's clock; `bytes` is what the entry took, 0 for unknown; `why`
is "age", "size" or "entries", the bound that it went for. Each line is one write to a file opened for appending. Of two
that shorten it at once the later wins, and lines that others add meanwhile may be lost.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import NamedTuple

from rewarm import small_files
from rewarm.small_files import Modes

NAME = "evicted"

AGE, SIZE, ENTRIES = "age", "size", "entries"

_MOST_BYTES = 256 << 10


class Evicted(NamedTuple):
    """One entry that went.

    Attributes:
      time: when, in seconds since the epoch.
      key: 64 hexadecimal digits.
      size: bytes; 0 for unknown.
      why: `AGE`, `SIZE` or `ENTRIES`.
    """

    time: float
    key: str
    size: int
    why: str


def note(root: str, key: str, size: int, why: str, modes: Modes) -> None:
    """Write down that an entry went. Never raises an `OSError`."""
    path = Path(root, NAME)
    with contextlib.suppress(OSError):
        length = small_files.append(path, f"{int(time.time())} {key} {size} {why}\n".encode("ascii"), modes.file)
        if length > _MOST_BYTES:
            small_files.shorten(path, _MOST_BYTES)


def read(root: Path) -> list[Evicted]:
    """What is known, the latest first; lines that are none are passed over."""
    with contextlib.suppress(OSError):
        lines = small_files.contents(root / NAME, 2 * _MOST_BYTES).decode("ascii", "replace").splitlines()
        return sorted(filter(None, map(_parsed, lines)), key=lambda one: -one.time)
    return []


def _parsed(line: str) -> Evicted | None:
    words = line.split(" ")
    if len(words) != 4 or len(words[1]) != 64 or words[3] not in (AGE, SIZE, ENTRIES):
        return None
    if not (words[0].isdecimal() and words[2].isdecimal() and len(words[0]) < 16 and len(words[2]) < 20):
        return None
    return Evicted(float(words[0]), words[1], int(words[2]), words[3])
