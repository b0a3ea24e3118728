"""Shows a kernel whose block size is tuned; examples/demo_tuning_checks.py says how continuous integration checks it.

    rewarm tune run kernels:total --shapes "f32[65536]" --budget 10

The directory that the command and the program share is REWARM_DIR.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

import rewarm


@rewarm.tunable(space={"chunk": [64, 256, 1024]}, default={"chunk": 64})
def total(x: Array, *, chunk: int) -> Array:
    """The sum of tanh over an array, so many elements at a time."""

    def step(carry: Array, part: Array) -> tuple[Array, None]:
        return carry + jnp.tanh(part).sum(), None

    return lax.scan(step, jnp.float32(0), x.reshape(-1, chunk))[0]
