"""Which codegen versions XLA itself wrote into a managed place: of the build and the libraries that read there.

    <place>/own.json    {"version": 1, "codegens": [text, ...]}, the latest first

The codegen version has the versions of cuDNN and CUDA in it, which differ from host to host and which no file of a
place says; so it is learnt from what XLA writes. It decides alone which of several results is nearer (`merging`).

Not promised: that XLA wrote them. Whoever puts a file into the place by hand is taken for it; and where the place's
memory (`checked.json`) is lost, all that lies there is. Two processes that learn at once: one of them learns again when
XLA writes the next result. Without the file nothing is known, and nothing is lost.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from rewarm import small_files
from rewarm.small_files import Modes

NAME = "own.json"
VERSION = 1

# A host has one, and hosts that share a place few.
_MOST = 8
_BYTES = 64 << 10


def load(place: Path) -> tuple[str, ...]:
    """What is known; nothing where it cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        told = json.loads(small_files.contents(place / NAME, _BYTES))
        if told["version"] == VERSION:
            return tuple(one for one in told["codegens"] if isinstance(one, str))
    return ()


def learn(place: Path, codegens: Iterable[str], modes: Modes) -> None:
    """Keep those that XLA wrote; none is written that is known. What cannot be written is not kept."""
    known = load(place)
    new = sorted({one for one in codegens if one} - set(known))
    if new:
        told = {"version": VERSION, "codegens": [*new, *known][:_MOST]}
        with contextlib.suppress(OSError):
            small_files.replace(place / NAME, json.dumps(told).encode(), modes.file)
