"""The entry point in JAX's group `jax_plugins`: JAX calls `initialize` before its first compile.

Not promised: a backend. rewarm registers none; this is how it turns on without a change to the user's code.
"""

from __future__ import annotations

import gc
import importlib
import logging
import sys
from typing import Any


def initialize() -> None:
    """Turn rewarm on where the environment asks, or where `rewarm.enable` was called before JAX was imported.

    Does nothing, and imports nothing, otherwise.
    """
    try:
        activation = _activation_if_asked()
    except Exception:  # an upgrade that was cut off, files of two versions: JAX would end every program of the user's
        logging.getLogger("rewarm").exception("rewarm: cannot be turned on, its installation is broken; reinstall it")
        return
    if activation is not None:
        activation.turn_on_if_asked()


def _activation_if_asked() -> Any:
    from rewarm import settings

    if "rewarm.jax_adapter.activation" in sys.modules or settings.environment_mentions_rewarm():
        _import_activation()
        return sys.modules["rewarm.jax_adapter.activation"]
    return None


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
