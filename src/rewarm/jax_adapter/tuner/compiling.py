"""Candidates that compile in several children at once, into the cache that the measuring one shares.

Not promised: anything. It is ahead of the need: what is not compiled here is compiled where it is measured.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from typing import Any

from rewarm.jax_adapter.tuner.worker import FailedError

# What compiling must take, all together, before children are started for it, in seconds.
WORTH_A_CHILD = 8.0


def compile_ahead(children: Sequence[Any], choices: Sequence[Any], until: float) -> None:
    """Have these children compile these choices; they are closed then. Nothing here fails: it is ahead of the need."""
    waiting = [pickle.dumps(choice, protocol=5) for choice in choices]
    busy: list[Any] = []
    idle = list(children)
    try:
        while (waiting or busy) and time.monotonic() < until:
            while idle and waiting:
                child = idle.pop()
                child.send_compile(waiting.pop(0))
                busy.append(child)
            for child in [one for one in busy if one.is_done()]:
                busy.remove(child)
                try:
                    child.wait()
                    idle.append(child)
                except FailedError as error:
                    if not error.died:
                        idle.append(child)
            if not idle and not busy:
                break
            time.sleep(0.01)
    finally:
        for child in children:
            child.close()
