"""Targets by name or by file.

Not promised: that the file stays as it was; it is read at each call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from rewarm.targets import captured, cpus, gpus, tpus
from rewarm.targets.model import MOST_SAID, Target
from rewarm.targets.wrong import TargetError, UnknownTargetError


def names() -> tuple[str, ...]:
    """The targets that are described here."""
    return (*gpus.names(), *tpus.names(), *cpus.names())


def named(name_or_path: str | Path) -> Target:
    """A target by its name, in any case of letters, or from a file.

    Args:
      name_or_path: one of `names`; for a CPU, "NAME:THREADS" also says how many threads XLA divides work among there
        (by default as many as in this process); or the path of a file that `rewarm target capture` made, or of a text
        GpuTargetConfigProto. What is there under both is the name: put ./ before a file.

    Raises:
      UnknownTargetError: neither; the message lists the names.
      TargetError: the file is none of these, or cannot be read.
    """
    name = str(name_or_path)
    word, colon, count = name.lower().partition(":")
    found = _builtin(word if colon and word in cpus.names() else name.lower())
    if found is not None:
        return found.with_threads(_threads(name, count)) if colon else found
    if not os.path.exists(name):  # noqa: PTH110 - unlike Path.exists it never raises
        raise UnknownTargetError(
            f"no target is called {name!r} and there is no such file; there are {', '.join(names())}, "
            "and the files that rewarm target capture makes"
        )
    return captured.read(Path(name))


def _builtin(name: str) -> Target | None:
    rooms: tuple[Callable[[str], Target], ...] = (gpus.target, tpus.target, cpus.target)
    for room in rooms:
        try:
            return room(name)
        except KeyError:
            continue
    return None


def _threads(name: str, count: str) -> int:
    if not (count.isdecimal() and len(count) < 9 and 0 < int(count) <= MOST_SAID):
        raise TargetError(f"{name}: expected a number of threads up to {MOST_SAID} behind the colon, found {count!r}")
    return int(count)


def listed() -> Mapping[str, Target]:
    """All that are described here, by name."""
    return {name: named(name) for name in names()}
