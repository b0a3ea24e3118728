"""The quarantine: files that lay under an entry's name and were not that entry, put aside to be looked at.

Not promised: that a file stays there. The newest 32 do, as far as they fit into 256 MiB.

Two processes that put aside at once may leave one more than that, or remove one more; the next one sees to it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from rewarm.small_files import Modes, make_folder
from rewarm.store.files import remove

NAME = "quarantine"

# Enough to see a pattern.
_KEEPS = 32

# They count towards no bound, since nobody knows what they are; large executables have tens of megabytes, so this
# keeps a few of the largest and all of the usual ones.
_KEEPS_BYTES = 256 << 20


def put_aside(root: Path, path: Path, reason: str, modes: Modes) -> None:
    """Move what lies at `path` into the quarantine of `root`; the reason becomes part of its name.

    Raises:
      OSError: it could not be moved.
    """
    folder = root / NAME
    make_folder(folder, modes.directory)
    path.rename(folder / f"{path.name}.{time.time_ns()}.{_slug(reason)}")
    _keep_newest(folder)


def quarantined(root: Path) -> list[Path]:
    """The files in quarantine."""
    with contextlib.suppress(OSError):
        return sorted((root / NAME).iterdir())
    return []


def drop(root: Path, paths: Iterable[Path]) -> int:
    """Remove these files, as far as they lie in the quarantine of `root`; returns how many went."""
    gone = 0
    for path in paths:
        if path.parent == root / NAME and path.name not in (os.curdir, os.pardir):
            with contextlib.suppress(OSError):
                remove(path)
                gone += 1
    return gone


def _keep_newest(folder: Path) -> None:
    # By when they were put aside, which the name says; a file keeps the mtime it had as an entry.
    size = 0
    for number, path in enumerate(sorted(folder.iterdir(), key=_put_aside, reverse=True)):
        with contextlib.suppress(OSError):
            size += path.lstat().st_size
        if number >= _KEEPS or (number and size > _KEEPS_BYTES):
            with contextlib.suppress(OSError):
                remove(path)


def _put_aside(path: Path) -> int:
    moment = path.name.split(".")[1:2]
    return int(moment[0]) if moment and moment[0].isdecimal() else 0


def _slug(reason: str) -> str:
    words = "".join(letter if letter.isalnum() else "-" for letter in reason.lower())
    return "-".join(part for part in words.split("-") if part)[:60] or "bad"
