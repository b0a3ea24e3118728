"""Train steps of a transformer by `rewarm.jit`, each timed, while the start is proved in the background.

    python _proved_steps.py WIDTH LAYERS

Prints `STEPS` and JSON: the seconds of each step during the proof and after it, and what became of the proof. With
STEPS=n in the environment it makes n steps and ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
from _result import print_result

import rewarm
from rewarm.jax_adapter.trace_free import proving

_BATCH, _LENGTH, _HEADS = 4, 16, 4
_PATIENCE = 120.0


def parameters(width: int, layers: int) -> list[dict[str, Any]]:
    """Of every layer, made of numbers that are the same everywhere."""
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    return [
        {name: jnp.sin(jnp.arange(a * b, dtype=jnp.float32)).reshape(a, b) / width for name, (a, b) in shapes.items()}
        for _ in range(layers)
    ]


def block(layer: dict[str, Any], x: Any) -> Any:
    """Attention and a dense part."""
    batch, length, _ = x.shape
    q, k, v = jnp.split(x @ layer["qkv"], 3, axis=-1)
    heads = [one.reshape(batch, length, _HEADS, -1) for one in (q, k, v)]
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", heads[0], heads[1]), axis=-1)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, heads[2]).reshape(x.shape) @ layer["out"]
    return x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]


def loss(layers: list[dict[str, Any]], x: Any) -> Any:
    """Of predicting the input."""
    y = x
    for layer in layers:
        y = block(layer, y)
    return jnp.mean((y - x) ** 2)


@rewarm.jit
def step(layers: list[dict[str, Any]], x: Any) -> Any:
    """One step down the gradient."""
    value, gradient = jax.value_and_grad(loss)(layers, x)
    return value, jax.tree_util.tree_map(lambda one, slope: one - 1e-3 * slope, layers, gradient)


def main() -> None:
    """Run steps, and say how long each took."""
    width, count = int(sys.argv[1]), int(sys.argv[2])
    layers, x = parameters(width, count), jnp.ones((_BATCH, _LENGTH, width))
    few = int(os.environ.get("STEPS", "0"))
    began = proving.prover.watch() if not few else None
    steps: list[tuple[float, float]] = []
    until = time.perf_counter() + _PATIENCE
    while len(steps) < few or (not few and time.perf_counter() < until and not _enough(began, steps)):
        at = time.perf_counter()
        value, layers = step(layers, x)
        jax.block_until_ready(value)
        steps.append((at, time.perf_counter() - at))
    print_result(value)
    if began is not None:
        jitted = dict(rewarm.stats().jitted)
        start, end = began["began"], began["ended"]
        told = {
            "during": [took for at, took in steps if start <= at < end],
            "after": [took for at, took in steps if at >= end],
            "proof": end - start,
            "skipped": jitted.get("skipped", 0),
            "proofs": {name: number for name, number in jitted.items() if name.startswith("proof")},
        }
        print("STEPS", json.dumps(told))


def _enough(began: dict[str, float] | None, steps: list[tuple[float, float]]) -> bool:
    if began is None or "ended" not in began:
        return False
    after = sum(at >= began["ended"] for at, _ in steps[-2000:])
    return after >= max(100, min(2000, int((began["ended"] - began["began"]) / max(1e-4, steps[-1][1]))))


if __name__ == "__main__":
    main()
