"""A helper of the program beside it, in which `peers.py` makes its edits."""

from __future__ import annotations

import jax


def scaled(x: jax.Array) -> jax.Array:
    """Returns the values times a constant."""
    factor = 0.25
    return x * factor
