"""Refusals that stand: a call that could not be recorded is not recorded again at each start, which costs a fifth of
its trace and more.

Not promised: that a refusal is still true. It stands for a day, as long as what is installed and the files of the
user's modules that are imported before the call are as they were; where a value alone has changed since, or a module
that the trace imports, the call is traced though it might be recorded. Nothing stands in a notebook, or for a program
without a file: what it consists of has no date.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from rewarm.errors import NotFingerprintableError
from rewarm.guards.places import kind_of_file
from rewarm.guards.roots import code_digest

_SECONDS = 86_400.0
_WRAPS = ("__wrapped__", "__func__", "func")
_DEEPEST = 8


def surroundings(function: object, likeness: str) -> str:
    """A digest of what a refusal of a function stands for; "" for what can change without a trace on the disk.

    Functions of one name are told apart by their code, and by the `likeness` of what they have closed over.
    """
    main, code = getattr(sys.modules.get("__main__"), "__file__", None), _code(function)
    if not isinstance(main, str) or "ipykernel" in sys.modules or code is None:
        return ""
    try:
        told = repr((code_digest(code), likeness, sorted(_files()), sorted(_sites())))
    except (OSError, NotFingerprintableError):
        return ""
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Refusal(NamedTuple):
    """One that stands.

    Attributes:
      why: in words.
      since: when it was found, in seconds since the epoch.
    """

    why: tuple[str, ...]
    since: float


def standing(last: Mapping[str, Any], now: str) -> Refusal | None:
    """What was found of a call, if that still stands.

    Args:
      last: what `Records.last` has of the call's kind.
      now: its `surroundings`.
    """
    why, since = last.get("why"), last.get("since")
    if not now or last.get("stands") != now or not isinstance(since, float) or not isinstance(why, list):
        return None
    if not 0 <= time.time() - since < _SECONDS or not all(isinstance(line, str) for line in why):
        return None
    return Refusal(tuple(why), since)


def _code(function: Any) -> CodeType | None:
    """That of a function, within what wraps it; `None` where there is none to be seen."""
    for _ in range(_DEEPEST):
        if isinstance(function, FunctionType):
            return function.__code__
        function = next((one for name in _WRAPS if (one := getattr(function, name, None)) is not None), None)
    return None


def _files() -> Iterator[tuple[str, int, int]]:
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and kind_of_file(path) == "user":
            status = Path(path).stat()
            yield path, status.st_size, status.st_mtime_ns


def _sites() -> Iterator[tuple[str, int]]:
    """Where packages are: installing one changes the time of the folder."""
    for path in sys.path:
        if path.endswith(("site-packages", "dist-packages")) and Path(path).is_dir():
            yield path, Path(path).stat().st_mtime_ns
