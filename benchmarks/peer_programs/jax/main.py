"""The forward pass of a small transformer in JAX, as one program; PEER_JIT=rewarm takes `rewarm.jit` for `jax.jit`,
PEER_WITHOUT names packages to do without.

Prints `READY` and the seconds since its start when all is imported, `FIRST` and the seconds of the first call (with
`rewarm.jit` too, a trace or a look-up included), and `RESULT` with a digest of what the call gave. `peers.py` counts
compiles from outside.
"""

# ruff: noqa: E402  # the time that imports take is measured

from __future__ import annotations

import time

STARTED = time.perf_counter()

import hashlib
import os
import sys

for name in os.environ.get("PEER_WITHOUT", "").split():
    sys.modules[name] = None  # type: ignore[assignment]  # as if it were not installed

if os.environ.get("PEER_JIT") == "rewarm":
    import rewarm

    rewarm.enable()
    import jax

    jax.jit = rewarm.jit

import jax
import jax.numpy as jnp
import numpy as np
from helper import scaled

WIDTH, TOKENS = 64, 32


def normal(x: jax.Array) -> jax.Array:
    """Each row less its mean, over its deviation."""
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def forward(x: jax.Array, layers: list[dict[str, jax.Array]]) -> jax.Array:
    """Attention and a feed-forward layer, as often as there are weights."""
    for layer in layers:
        y = normal(x)
        query, key, value = y @ layer["query"], y @ layer["key"], y @ layer["value"]
        x = x + jax.nn.softmax(scaled(query @ key.T), axis=-1) @ value
        x = x + jnp.tanh(normal(x) @ layer["up"]) @ layer["down"]
    return normal(x)


def weights(count: int) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
    """The same numbers at every start."""
    draw = np.random.default_rng(0)
    shapes = {"query": (WIDTH, WIDTH), "key": (WIDTH, WIDTH), "value": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    layers = [
        {name: draw.standard_normal(shape, np.float32) * 0.1 for name, shape in shapes.items()} for _ in range(count)
    ]
    return draw.standard_normal((TOKENS, WIDTH), np.float32), layers


def main() -> None:
    """Call it once."""
    arguments = weights(int(sys.argv[1]))
    jax.devices()
    begun = time.perf_counter()
    print(f"READY {begun - STARTED}")
    result = np.asarray(jax.jit(forward)(*arguments))
    print(f"FIRST {time.perf_counter() - begun}")
    print(f"RESULT {hashlib.sha256(result.tobytes()).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
