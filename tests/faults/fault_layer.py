"""The fault layer, seen from Python: building it, starting a process under it, and arming it inside that process.

Not promised: faults where there is no C compiler or no LD_PRELOAD; the tests that need them skip.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("faultlayer.c")


class Call(IntEnum):
    """The calls that can be made to fail; numbered as in `faultlayer.c`."""

    OPEN = 0
    READ = 1
    WRITE = 2
    FSYNC = 3
    RENAME = 4
    UNLINK = 5
    FLOCK = 6
    UTIME = 7
    MKDIR = 8
    STAT = 9
    CHMOD = 10
    LIST = 11
    CLOSE = 12
    TRUNCATE = 13


class How(IntEnum):
    """What becomes of such a call."""

    FAIL = 0  # it is not made, and an error is returned
    SHORT = 1  # half of the bytes are read or written
    KILL = 2  # SIGKILL, before it is made
    STOP = 3  # SIGSTOP, before it is made
    AFTER = 4  # it is made, and an error is returned


# Which errors make sense for which calls: what a file system, a network file system or the kernel may answer.
_ANY = ("EIO", "ESTALE", "EACCES")
ERRORS: dict[Call, tuple[str, ...]] = {
    Call.OPEN: (*_ANY, "ENOSPC", "EDQUOT", "EROFS", "EMFILE", "EINTR"),
    Call.READ: ("EIO", "ESTALE", "EINTR"),
    Call.WRITE: ("EIO", "ESTALE", "ENOSPC", "EDQUOT", "EINTR"),
    Call.FSYNC: ("EIO", "ESTALE", "ENOSPC", "EDQUOT", "EINTR"),
    Call.RENAME: (*_ANY, "ENOSPC", "EDQUOT", "EROFS"),
    Call.UNLINK: (*_ANY, "EROFS"),
    Call.FLOCK: ("EIO", "ENOLCK", "EINTR", "EAGAIN"),
    Call.UTIME: (*_ANY, "EROFS"),
    Call.MKDIR: (*_ANY, "ENOSPC", "EDQUOT", "EROFS"),
    Call.STAT: _ANY,
    Call.CHMOD: (*_ANY, "EROFS"),
    Call.LIST: ("EIO", "ESTALE"),
    Call.CLOSE: ("EIO", "ENOSPC", "EDQUOT"),
    Call.TRUNCATE: ("EIO", "EROFS"),
}
ALL_ERRORS = tuple(dict.fromkeys(name for names in ERRORS.values() for name in names))


class Layer:
    """The layer in this process, which was started under it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.fault_seen.restype = ctypes.c_long
        self._library.fault_struck.restype = ctypes.c_long
        self._library.fault_call.argtypes = [ctypes.c_long]

    def arm(
        self,
        under: str | os.PathLike[str],
        *,
        calls: Iterable[Call] = Call,
        first: int = 0,
        last: int | None = None,
        error: str = "EIO",
        how: How = How.FAIL,
        chance: float = 0.0,
        seed: int = 0,
    ) -> None:
        """From now on the first-th to the last-th (else only the first-th) such call below a path goes wrong.

        With a `chance` each does with that probability. `first=0` only counts.
        """
        mask = sum(1 << call for call in calls)
        self._library.fault_arm(
            os.fsencode(under),
            ctypes.c_ulong(mask),
            ctypes.c_long(first),
            ctypes.c_long(first if last is None else last),
            getattr(errno, error),
            int(how),
            ctypes.c_double(chance),
            ctypes.c_long(seed),
        )

    def disarm(self) -> None:
        """No more faults."""
        self._library.fault_disarm()

    @property
    def struck(self) -> int:
        """How many calls went wrong since it was armed."""
        return int(self._library.fault_struck())

    def calls(self) -> list[Call]:
        """The calls that matched since it was armed, in their order; of the first 4096."""
        seen = min(int(self._library.fault_seen()), 4096)
        return [Call(self._library.fault_call(number)) for number in range(1, seen + 1)]


@functools.cache
def obstacle() -> str | None:
    """Why there is no fault layer here, or `None`."""
    if not sys.platform.startswith("linux"):
        return "LD_PRELOAD as it is on Linux is needed"
    if _compiler() is None:
        return "no C compiler"
    return None


def build(folder: Path) -> Path:
    """The layer, compiled into `folder`."""
    compiler = _compiler()
    assert compiler is not None
    library = folder / "faultlayer.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


def _compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")
