"""What is said to the user: lines that are said once, since what fails for one program mostly fails for all of them.

Not promised: once for a process. Each teller remembers for itself, and lives as long as what it speaks for.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("rewarm")


class Teller:
    """Says each line once, at WARNING. Two threads at the same moment may say it twice."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, line: str, *, kind: str | None = None) -> None:
        """Say `rewarm: <line>`, if nothing of this `kind` (default: the line itself) was said yet."""
        if (kind or line) not in self._told:
            self._told.add(kind or line)
            logger.warning("rewarm: %s", line)


def say_nothing(line: str) -> None:
    """For whoever must be told, where nobody wants to hear."""
    del line


def one_line(text: str) -> str:
    """A text without line ends and other characters that steer a terminal."""
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
