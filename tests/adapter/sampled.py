"""Turns on checks of sampled hits in the program that imports it, and prints what came of them."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from rewarm.jax_adapter import sampling, session

CHECKS = sampling.Checks(seed=1)


def on(share: float = 1.0, *, writable: bool = True) -> None:
    """Have this share of the hits of this process checked."""
    real = session.CompileCache

    def cache(store: Any, **arguments: Any) -> Any:
        sampler = sampling.Sampling(share, CHECKS, store if writable else None)
        return real(store, **{**arguments, "sampler": sampler})

    session.CompileCache = cache  # type: ignore[assignment, misc]
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    logging.getLogger("rewarm").setLevel(logging.DEBUG)


def done() -> None:
    """Wait until everything is checked, and print the numbers as one line of JSON."""
    assert CHECKS.wait(200)
    print(json.dumps(CHECKS.numbers._asdict()))
