"""What a start was surrounded by, so that a later one can tell whether it is the same again.

Not promised: that two starts with equal surroundings do the same. A program may read anything. It is asked before
something is done early that could only be wrong where a program sets `XLA_FLAGS` or forks, before it uses JAX, for the
first time: that takes another environment, another file, or another library than the last time.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# A program of more files of its own is not looked through.
_FILES = 2_000


class File(NamedTuple):
    """A file or folder as it was."""

    path: str
    size: int
    changed: int


class Surroundings(NamedTuple):
    """What a start had about it when JAX made its client.

    Attributes:
      environment: digest of the variables that it was started with.
      flags: `XLA_FLAGS` at that moment.
      files: the modules that were loaded by then, but those of Python, and the folders of installed packages.
    """

    environment: str
    flags: str
    files: tuple[File, ...]

    def hold(self, environment: str, flags: str) -> bool:
        """Whether they are the same now."""
        same = (environment, flags) == (self.environment, self.flags)
        return same and all(_file(one.path) == one for one in self.files)


def surroundings(environment: str, flags: str) -> Surroundings | None:
    """Those of this process now; `None` for a program of too many files, or one that is not a file."""
    paths = sorted({*_own_modules(), *_packages()})
    if len(paths) > _FILES:
        return None
    return Surroundings(environment, flags, tuple(file for path in paths if (file := _file(path)) is not None))


def _file(path: str) -> File | None:
    with contextlib.suppress(OSError, ValueError):
        status = Path(path).stat()
        return File(path, status.st_size, status.st_mtime_ns)
    return None


def _own_modules() -> Iterator[str]:
    """Files of modules that are neither Python's own nor installed."""
    own = str(Path(__file__).parents[1])  # which sets no flags
    passed_over = tuple(f"{folder}{os.sep}" for folder in (*_packages(), *_standard_library(), own))
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and not path.startswith(passed_over):
            yield str(Path(path).absolute())


def _packages() -> list[str]:
    """Folders that packages are installed in: installing, upgrading or removing one changes their mtime."""
    named = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return sorted({path for path in sys.path if path in named or Path(path).name in ("site-packages", "dist-packages")})


def _standard_library() -> list[str]:
    return [path for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))]
