"""The entry point in JAX's group `jax_plugins`: JAX calls `initialize` before its first compile.

Not promised: a backend. rewarm registers none; this is how it turns on without a change to the user's code.
"""

from __future__ import annotations

import sys

from rewarm import settings


def initialize() -> None:
    """Turn rewarm on where the environment asks, or where `rewarm.enable` was called before JAX was imported.

    Does nothing, and imports nothing, otherwise.
    """
    already = "rewarm.jax_adapter.activation" in sys.modules
    if already or settings.environment_mentions_rewarm():
        from rewarm.jax_adapter import activation

        activation.turn_on_if_asked()
