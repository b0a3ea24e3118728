"""A plan for the benchmark and the campaigns of pre-warming: one train step of a transformer, for any devices.

    rewarm prewarm benchmarks/prewarm_plan.py:plan --target h200 --topology 1x1x8

The batch is divided over the axis "data" and the matrices over "model", as a user would: two devices share each matrix
where there are as many, eight from 32 devices on. Plain JAX; 2 layers of width 1024, 8 sequences of 1024 tokens for
each device of the axis "data", bfloat16 with float32 moments (Adam), donated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import rewarm

WIDTH, HEADS, HIDDEN, WORDS, LAYERS = 1024, 16, 4096, 32768, 2
SEQUENCES, LENGTH = 8, 1024

# By the name of a parameter, how it is divided.
_ROWS, _COLUMNS = PartitionSpec("model", None), PartitionSpec(None, "model")
_DIVIDED = {"embed": _ROWS, "q": _COLUMNS, "k": _COLUMNS, "v": _COLUMNS, "o": _ROWS, "up": _COLUMNS, "down": _ROWS}


def norm(x: Any, scale: Any) -> Any:
    """Root mean square normalisation, in float32."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def attend(x: Any, layer: Any) -> Any:
    """Causal self-attention."""
    batch, length, _ = x.shape
    q, k, v = ((x @ layer[name]).reshape(batch, length, HEADS, WIDTH // HEADS) for name in ("q", "k", "v"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    weights = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(x.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, WIDTH) @ layer["o"]


def loss_of(params: Any, tokens: Any) -> Any:
    """The mean cross-entropy of the next token."""
    x = params["embed"][tokens]
    for layer in params["layers"]:
        x = x + attend(norm(x, layer["norm1"]), layer)
        x = x + jax.nn.gelu(norm(x, layer["norm2"]) @ layer["up"]) @ layer["down"]
    logits = (norm(x, params["norm"]) @ params["embed"].T).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), tokens[:, 1:, None], -1).mean()


def train_step(params: Any, moments: Any, tokens: Any) -> tuple[Any, Any, Any]:
    """One step of Adam without its corrections."""
    loss, slopes = jax.value_and_grad(loss_of)(params, tokens)
    first, second = moments
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g.astype(jnp.float32), first, slopes)
    second = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * jnp.square(g.astype(jnp.float32)), second, slopes)
    moved = jax.tree.map(
        lambda p, m, v: (p.astype(jnp.float32) - 1e-3 * m * jax.lax.rsqrt(v + 1e-8)).astype(p.dtype),
        params,
        first,
        second,
    )
    return moved, (first, second), loss


def parameters() -> Any:
    """Their shapes."""

    def shape(*sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, jnp.bfloat16)

    layer = {
        **{name: shape(WIDTH, WIDTH) for name in ("q", "k", "v", "o")},
        **{"up": shape(WIDTH, HIDDEN), "down": shape(HIDDEN, WIDTH), "norm1": shape(WIDTH), "norm2": shape(WIDTH)},
    }
    return {"embed": shape(WORDS, WIDTH), "norm": shape(WIDTH), "layers": [dict(layer) for _ in range(LAYERS)]}


def plan(devices: list[Any]) -> Iterator[Any]:
    """The train step for these devices."""
    model = 1 if len(devices) < 2 else 2 if len(devices) < 32 else 8
    mesh = Mesh(np.array(devices).reshape(-1, model), ("data", "model"))

    def placed(path: Any, _: Any) -> Any:
        return NamedSharding(mesh, _DIVIDED.get(path[-1].key, PartitionSpec()))

    shapes = parameters()
    places = jax.tree_util.tree_map_with_path(placed, shapes)
    wide = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), shapes)
    params, moments = rewarm.abstract(shapes, sharding=places), rewarm.abstract(wide, sharding=places)
    rows = NamedSharding(mesh, PartitionSpec("data"))
    tokens = jax.ShapeDtypeStruct((SEQUENCES * mesh.shape["data"], LENGTH), jnp.int32, sharding=rows)
    yield rewarm.Program(jax.jit(train_step, donate_argnums=(0, 1)), params, (moments, moments), tokens)
