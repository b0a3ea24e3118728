"""Who ended a process: a fatal signal leaves its name and the Python line that it struck at.

Not promised: a witness at all times. Python has one handler of fatal signals (`faulthandler`, whose form of a report
this reads), and while it is the user's it stays his. It is ours while an entry is loaded or first run, for
`PATIENCE` seconds at most, so that a process which is ended from outside in a long first run (SIGTERM, SIGKILL,
`os._exit`) is not taken for one that the entry ended.

Races, and their worst outcome:

* the user turns `faulthandler` on while it is ours: it is off again when the first run is over.
* the program closes every descriptor it has, and dies of a fatal signal at once: the report goes to whatever file has
  the number by then.
"""

from __future__ import annotations

import faulthandler
import re
from typing import NamedTuple

PATIENCE = 30.0

# Within these lines, what strikes is the executable; a thread of the runtime's own has no line at all.
_OURS = re.compile(r"[/\\](jax|jaxlib)[/\\]|[/\\]rewarm[/\\](jax_adapter|cache)[/\\]")
_FATAL = "Fatal Python error: "
_LINE = re.compile(r' +File "(.*)", line [0-9]+ in .*')


class Testimony(NamedTuple):
    """What a report of a fatal signal says.

    Attributes:
      signal: its name, such as "Segmentation fault".
      users: whether it struck at a line of Python that is neither JAX's nor rewarm's.
    """

    signal: str
    users: bool


def testimony(lines: list[str]) -> Testimony | None:
    """The report among these lines, or `None`."""
    for number, line in enumerate(lines):
        if line.startswith(_FATAL):
            innermost = next((found for later in lines[number:] if (found := _LINE.fullmatch(later))), None)
            users = innermost is not None and _OURS.search(innermost[1]) is None
            return Testimony(line.removeprefix(_FATAL).strip(), users)
    return None


_armed = False


def arm(descriptor: int) -> bool:
    """Have reports written to this file; whether that is so from now on. Not while a handler is at work already."""
    global _armed  # noqa: PLW0603 - the process has one handler
    if _armed or faulthandler.is_enabled():
        return False
    try:
        faulthandler.enable(file=descriptor, all_threads=False)
    except (OSError, RuntimeError, ValueError):
        return False
    _armed = True
    return True


def disarm() -> None:
    """Have no more reports written, if they are ours."""
    global _armed  # noqa: PLW0603 - as above
    if _armed:
        _armed = False
        faulthandler.disable()
