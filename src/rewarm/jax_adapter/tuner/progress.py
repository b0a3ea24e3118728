"""How far a session is: a line on a terminal that is written over, and lines in the log.

Not promised: an exact time left: it is what the budget leaves.
"""

from __future__ import annotations

import logging
import sys
import time

from rewarm.telling import one_line

logger = logging.getLogger("rewarm")

_EVERY = 0.2
_WIDTH = 110


class Progress:
    """Shows what one session does.

    Args:
      title: what is tuned.
      budget: seconds of the session.
      shown: whether on standard error; `None`: where that is a terminal.
    """

    def __init__(self, title: str, budget: float, shown: bool | None = None) -> None:
        self._title = title
        self._ends = time.monotonic() + budget
        self._on_terminal = sys.stderr.isatty()
        self._shown = self._on_terminal if shown is None else shown
        self._last = 0.0
        self._is_open = False

    def show(self, what: str, best: str = "") -> None:
        """What is done now, and the best candidate so far."""
        left = max(0.0, self._ends - time.monotonic())
        line = one_line(f"rewarm: {self._title}: {what}, {left:.0f} s left" + (f", best {best}" if best else ""))
        logger.debug("%s", line)
        if not self._shown or (self._on_terminal and time.monotonic() - self._last < _EVERY):
            return
        self._last = time.monotonic()
        if self._on_terminal:
            self._is_open = True
            print(f"\r{line[:_WIDTH]:<{_WIDTH}}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._is_open:
            self._is_open = False
            print(f"\r{'':<{_WIDTH}}\r", end="", file=sys.stderr, flush=True)
