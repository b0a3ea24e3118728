"""The journal of one directory: what its entries are worth, as lines of text.

Not promised: that it is complete, or there at all. It is derived and disposable: whatever is lost costs quality of
the choice what to evict, never an entry, and never a wrong one.

    <root>/<2 hex>/.usage

    put := "\n" key " " seconds " " uses ";\n"     an entry was written; or the sum of what was known of it
    use := "\n" key ";\n"                          it was read

`seconds` are those that a hit spares, 0.0 for unknown. When an entry was last used is its file's mtime. A later put
starts anew. Each line is one write to a file opened for appending, without a lock. It starts
and ends with a newline and has an end mark, so a torn one spoils no other, and cannot pass for a whole one. Lines
that are none of these are passed over, as are those of entries that are no longer there.

Races, and their worst outcome:

* a line that is appended while another process replaces the journal by its sum is lost: one use counts less, or one
  entry's seconds are read from its header again.
* two that replace it at once: the later wins, and both hold nearly the same.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple

from rewarm import small_files
from rewarm.errors import BadEntryError
from rewarm.small_files import Modes
from rewarm.store.files import tail

NAME = ".usage"

# The newest bytes that are looked at. Sums of 60,000 entries in one directory, 15 million in the store, fit in.
_MOST_BYTES = 8 << 20

# About the bytes of one entry's sum.
_LINE = 96

# A journal may have twice what the sums of its entries need, and this many bytes more.
_SLACK = 16 * 1024


class Known(NamedTuple):
    """What the journal says of one entry.

    Attributes:
      seconds: what a hit spares; 0.0 for unknown.
      uses: how often it was written or read.
    """

    seconds: float
    uses: int


UNKNOWN = Known(0.0, 1)


def note_puts(folder: str, puts: Mapping[str, Known], modes: Modes) -> int:
    """Add a line for each put, with one write; returns the bytes of the journal.

    Raises:
      OSError: it cannot be written.
    """
    return small_files.append(Path(folder, NAME), _lines(puts), modes.file)


def note_use(folder: str, key: str, modes: Modes) -> int:
    """Add the line of a use; returns the bytes of the journal.

    Raises:
      OSError: it cannot be written.
    """
    return small_files.append(Path(folder, NAME), f"\n{key};\n".encode("ascii"), modes.file)


def is_crowded(size: int, entries: int) -> bool:
    """Whether a journal of `size` bytes over so many entries is to be replaced by its sum."""
    return size > _SLACK + 2 * _LINE * entries


def load(folder: str, keys: Container[str]) -> tuple[dict[str, Known], int]:
    """What is known of `keys`, and the bytes that were read. A journal that cannot be read knows nothing."""
    try:
        data = tail(f"{folder}/{NAME}", _MOST_BYTES)
    except (BadEntryError, OSError):
        return {}, 0
    known: dict[str, Known] = {}
    for line in data.decode("ascii", "replace").split("\n"):
        if line.endswith(";"):
            _apply(line[:-1].split(" "), known, keys)
    return known, len(data)


def replace(folder: str, known: Mapping[str, Known], modes: Modes) -> None:
    """Make the journal the sum of what is known.

    Raises:
      OSError: it cannot be written; it is as it was.
    """
    small_files.replace(Path(folder, NAME), _lines(known), modes.file)


def _lines(known: Mapping[str, Known]) -> bytes:
    return b"".join(_put(key, one) for key, one in known.items())


def _put(key: str, known: Known) -> bytes:
    return f"\n{key} {known.seconds!r} {known.uses};\n".encode("ascii")


def _apply(fields: list[str], known: dict[str, Known], keys: Container[str]) -> None:
    if fields[0] not in keys:
        return
    try:
        if len(fields) == 3:
            known[fields[0]] = _checked(float(fields[1]), int(fields[2]))
        elif len(fields) == 1:
            seen = known.get(fields[0], UNKNOWN)
            known[fields[0]] = _checked(seen.seconds, seen.uses + 1)
    except ValueError:  # not a number, or no number that we wrote
        return


def _checked(seconds: float, uses: int) -> Known:
    if not (math.isfinite(seconds) and seconds >= 0 and uses > 0):
        raise ValueError("out of range")
    return Known(seconds, min(uses, 1 << 30))
