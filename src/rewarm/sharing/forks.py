"""What a child of fork makes new before its first line runs: locks that a thread of its parent held, and queues.

Not promised: anything for a child that was forked past Python, by native code.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def renew_in_child(thing: T, renew: Callable[[T], None]) -> None:
    """Call `renew(thing)` in every child, as long as the thing lives; it is not kept alive by this."""
    if not hasattr(os, "register_at_fork"):
        return
    here = weakref.ref(thing)

    def act() -> None:
        alive = here()
        if alive is not None:
            renew(alive)

    os.register_at_fork(after_in_child=act)
