"""Paths of files that several processes of several hosts write, each its own.

Not promised: that two paths differ, where a placeholder that would tell them apart is not in them.

    %h  the host's name
    %p  the process's number
    %r  the rank that Slurm, Open MPI or torchrun gave the process, else 0
    %%  a percent sign
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rewarm import settings
from rewarm.errors import SettingError

_MARK = re.compile(r"%(.?)", re.DOTALL)
_NAMES = {"h": "host", "p": "pid", "r": "rank"}


class Template(NamedTuple):
    """A path with placeholders that were checked.

    Attributes:
      text: as it was given.
      marks: the letters of the placeholders in it, each once.
    """

    text: str
    marks: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The path for this process, as it is now."""
        values = {"%": "%", **_values()}
        return Path(_MARK.sub(lambda found: values[found[1]], self.text))

    @property
    def labels(self) -> Mapping[str, str]:
        """The placeholders by name, with their values for this process."""
        values = _values()
        return {_NAMES[mark]: values[mark] for mark in self.marks}


def template(path: str | os.PathLike[str]) -> Template:
    """A path as the user gives it.

    Raises:
      SettingError: it is empty, or has another placeholder.
    """
    text = os.fspath(path)
    found = _MARK.findall(text)
    wrong = [mark for mark in found if mark not in (*_NAMES, "%")]
    if wrong or not text.strip():
        what = f"%{wrong[0]}" if wrong else "nothing"
        raise SettingError(f"{text!r}: expected a path, in which %h, %p, %r and %% may stand, found {what}")
    return Template(text, tuple(mark for mark in _NAMES if mark in found))


def _values() -> dict[str, str]:
    place = settings.launched_as()
    host = re.sub(r"[^\w.-]", "_", platform.node()) or "unknown"
    return {"h": host, "p": str(os.getpid()), "r": "0" if place is None else str(place.rank)}
