"""Whose code a line of a traceback is: the user's own is what an error is to point to.

Not promised: to tell a user's installed package from a library's where both are in a traceback and neither is the plan.

It goes by the packages that code belongs to and by where Python says that packages are installed, never by the names of
folders: a plan may be installed, and lie below a folder of any name.
"""

from __future__ import annotations

import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# JAX, the wrappers around its compilers, and this package.
_NOT_USERS = frozenset({"jax", "jaxlib", "jax_plugins", "libtpu", "rewarm"})


class _Place(NamedTuple):
    package: str
    path: Path
    line: int


def line(error: BaseException, plan: str = "") -> str:
    """ "file:line" of the innermost line of the user's own code in an error's traceback; "" where there is none.

    Before what is installed comes what is not; of what is installed, the package of the plan.

    Args:
      error: as it was caught.
      plan: the plan's name, `module:function` or `path/file.py:function`.
    """
    places = list(_places(error))
    where = plan.rpartition(":")[0]
    package = Path(where).stem if where.endswith(".py") else where.partition(".")[0]
    own = [one for one in places if not any(one.path.is_relative_to(folder) for folder in _installed())]
    for found in (own, [one for one in places if one.package == package], places):
        if found:
            return f"{found[0].path}:{found[0].line}"
    return ""


def _installed() -> Iterator[Path]:
    """Where packages are installed, also those of an environment that this one builds on."""
    yield from map(Path, (*site.getsitepackages(), site.getusersitepackages()))
    yield from (Path(folder) for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages"))


def _places(error: BaseException) -> Iterator[_Place]:
    """The lines that are neither JAX's, nor rewarm's, nor of Python's own library; the innermost first."""
    library, here = Path(sysconfig.get_path("stdlib")), Path(__file__).parents[1]
    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        path = Path(frame.f_code.co_filename)
        of_python = package in sys.stdlib_module_names and path.is_relative_to(library)
        if path.is_absolute() and package not in _NOT_USERS and not (of_python or path.is_relative_to(here)):
            yield _Place(package, path, number)
