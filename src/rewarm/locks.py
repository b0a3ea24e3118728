"""Locks on files: held for as long as a process lives, whatever ends it.

Not promised: anything where the file system has no `flock`, or keeps it to one host; the callers say what they do
there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rewarm.small_files import Modes

_PAUSE = 0.005


def try_lock(descriptor: int) -> bool | None:
    """Take the exclusive lock of a file: whether it is ours now, or `None` where there are no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


@contextlib.contextmanager
def held(path: Path, seconds: float, modes: Modes) -> Iterator[int | None]:
    """Hold the lock of the file `path`, which is made, waiting for at most so many seconds.

    Yields the open file; `None` when somebody else kept the lock all that time. Where there are no locks, the file.

    Raises:
      OSError: the file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), modes.file)
    try:
        until = time.monotonic() + seconds
        while (ours := try_lock(descriptor)) is False and time.monotonic() < until:
            time.sleep(_PAUSE)
        yield None if ours is False else descriptor
    finally:
        os.close(descriptor)
