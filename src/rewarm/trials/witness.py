"""Who ended a process: a fatal signal leaves its name and the Python line that it struck at.

Not promised: a witness at all times. Python has one handler of fatal signals (`faulthandler`, whose form of a report
this reads), and while it is the user's it stays his; from the moment on, too, at which he turns it on. It is ours while
an entry is loaded or first run, for `PATIENCE` seconds at most, so that a process which is ended from outside in a long
first run (SIGTERM, SIGKILL, `os._exit`) is not taken for one that the entry ended.

Races, and their worst outcome:

* the user turns `faulthandler` on between our look whose it is and our turning it off: it is off.
* the program closes every descriptor it has, and dies of a fatal signal at once: the report goes to whatever file has
  the number by then.
"""

from __future__ import annotations

import faulthandler
import re
import weakref
from typing import NamedTuple

PATIENCE = 30.0

# Within these lines, what strikes is the executable; a thread of the runtime's own has no line at all.
_OURS = re.compile(r"[/\\](jax|jaxlib)[/\\]|[/\\]rewarm[/\\](jax_adapter|cache)[/\\]")
_AHEAD = re.compile(r"[/\\]rewarm[/\\]restart[/\\]ahead\.py$")
_FATAL = "Fatal Python error: "
_LINE = re.compile(r' +File "(.*)", line [0-9]+ in .*')


class Testimony(NamedTuple):
    """What a report of a fatal signal says.

    Attributes:
      signal: its name, such as "Segmentation fault".
      users: whether it struck at a line of Python that is neither JAX's nor rewarm's.
      ahead: whether it struck in a thread that loads ahead of the program; `None`: in no thread of Python's.
    """

    signal: str
    users: bool
    ahead: bool | None = None

    def clears(self, *, ahead: bool) -> bool:
        """Whether it struck elsewhere than in a thread that loads `ahead`, or in one while the program did it."""
        return self.ahead is not None and self.ahead != ahead


def testimony(lines: list[str]) -> Testimony | None:
    """The report among these lines, or `None`."""
    for number, line in enumerate(lines):
        if line.startswith(_FATAL):
            files = [found[1] for later in lines[number:] if (found := _LINE.fullmatch(later))]
            users = bool(files) and _OURS.search(files[0]) is None
            ahead = any(map(_AHEAD.search, files)) if files else None
            return Testimony(line.removeprefix(_FATAL).strip(), users, ahead)
    return None


class _Report:
    """The file that reports go to. `faulthandler` holds it for as long as they do: so it tells whose the handler is."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """See `io.IOBase`."""
        return self._descriptor

    def flush(self) -> None:
        """See `io.IOBase`."""


_armed: weakref.ref[_Report] | None = None


def arm(descriptor: int) -> bool:
    """Have reports written to this file; whether that is so from now on. Not while a handler is at work already."""
    global _armed  # noqa: PLW0603 - the process has one handler
    if faulthandler.is_enabled():
        return False
    report = _Report(descriptor)
    try:
        faulthandler.enable(file=report, all_threads=False)
    except (OSError, RuntimeError, ValueError):
        return False
    _armed = weakref.ref(report)
    return True


def is_armed() -> bool:
    """Whether reports are ours still."""
    return _armed is not None and _armed() is not None and faulthandler.is_enabled()


def disarm() -> None:
    """Have no more reports written, if they are ours."""
    global _armed  # noqa: PLW0603 - as above
    if is_armed():
        faulthandler.disable()
    _armed = None
