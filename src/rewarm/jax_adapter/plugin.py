"""The entry point in JAX's group `jax_plugins`: JAX calls `initialize` before its first compile.

Not promised: a backend. rewarm registers none; this is how it turns on without a change to the user's code.
"""

from __future__ import annotations

import gc
import importlib
import sys

from rewarm import settings


def initialize() -> None:
    """Turn rewarm on where the environment asks, or where `rewarm.enable` was called before JAX was imported.

    Does nothing, and imports nothing, otherwise.
    """
    already = "rewarm.jax_adapter.activation" in sys.modules
    if already or settings.environment_mentions_rewarm():
        _import_activation()
        from rewarm.jax_adapter import activation

        activation.turn_on_if_asked()


def _import_activation() -> None:
    """Import what rewarm needs without a collection of garbage on the way.

    Importing makes only objects that stay. With JAX and a model's libraries loaded, one full collection, which the
    new objects can bring on, takes twice as long as the import: 85 ms in place of 25 were measured.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        importlib.import_module("rewarm.jax_adapter.activation")
    finally:
        if collecting:
            gc.enable()
