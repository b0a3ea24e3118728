"""XLA's kernel cache in a place (`xla_gpu_kernel_cache_file`): one file, which XLA reads and writes whole.

Not promised: that XLA can read what is there. Of its content only the outermost structure is looked at, so whoever
compiles must be ready for more: call `prepare` again with `suspect` and compile anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
from pathlib import Path

from rewarm import small_files
from rewarm.autotune import folders
from rewarm.autotune.formats import files
from rewarm.autotune.places import ASIDE, KERNELS, KERNELS_KNOWN, MOST_BYTES, Place
from rewarm.identity import wire

logger = logging.getLogger("rewarm")


def prepare(place: Place, *, suspect: bool = False) -> Path | None:
    """Where XLA may keep its kernels; a file that is none, or is `suspect`, is moved aside. `None`: nowhere.

    Two threads, or processes, that do this at once: one of them moves the file.
    """
    if not place.make():
        return None
    path = place.kernels
    try:
        why = "XLA cannot read it" if suspect else _why_none(path)
        if why and os.path.lexists(path):
            modes = small_files.modes_in(place.cache_root)
            logger.warning("rewarm: %s", folders.put_aside(path, place.root / ASIDE, KERNELS, why, modes))
    except FileNotFoundError:
        pass
    except OSError:
        return None
    return path


def are_known(place: Place) -> bool:
    """Whether the kernel cache is as a compile left it that ended well, or is not there."""
    with contextlib.suppress(OSError):
        if not place.kernels.exists():
            return True
        known = small_files.contents(place.root / KERNELS_KNOWN, MOST_BYTES).decode("ascii", "replace")
        return known == _digest_of(place.kernels)
    return False


def note(place: Place) -> None:
    """A compile ended well with the kernel cache as it is. Never raises."""
    with contextlib.suppress(OSError):
        if place.kernels.exists() and not are_known(place):
            modes = small_files.modes_in(place.cache_root)
            small_files.replace(place.root / KERNELS_KNOWN, _digest_of(place.kernels).encode(), modes.file)


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _why_none(path: Path) -> str:
    """Why a file is no kernel cache, as far as that is seen from outside; "" where nothing says so."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        return f"expected a regular file, found {files.kind_of(status.st_mode)}"
    if hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0) and not status.st_mode & stat.S_IWGRP:
        return f"expected a file of one's own, found one of uid {status.st_uid}"
    try:
        found = [one.number for one in wire.fields(path.read_bytes())]
    except (OSError, ValueError) as wrong:
        return f"expected a binary message, found none ({wrong})"
    return "" if found else "expected a binary message, found an empty file"
