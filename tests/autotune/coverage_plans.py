"""Plans for the tests of coverage: run by children alone, never imported by a test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

import rewarm

SIZE = int(os.environ.get("PLAN_SIZE", "1024"))


def shape(*sizes: int, dtype: Any = jnp.bfloat16) -> Any:
    return jax.ShapeDtypeStruct(sizes, dtype)


@jax.jit
def mlp(p: Any, q: Any) -> Any:
    return jax.nn.softmax(jax.nn.gelu(p @ q) @ q, axis=-1)


@jax.jit
def other(p: Any) -> Any:
    return jnp.tanh(p @ p.T).sum(axis=0)


def small() -> Iterator[Any]:
    yield mlp, (shape(SIZE, SIZE), shape(SIZE, SIZE))


def two() -> Iterator[Any]:
    yield from small()
    yield "named", other, (shape(2048, 1024),)


def pallas() -> Iterator[Any]:
    """A kernel of Pallas for Triton, which asks for the device while it is lowered."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plt

    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...] * 2

    square = shape(64, 64, dtype=jnp.float32)
    doubled = pl.pallas_call(kernel, out_shape=square, compiler_params=plt.CompilerParams(num_warps=4))
    yield "kernel", jax.jit(doubled), (square,)


def with_options() -> Iterator[Any]:
    """Compiled as a run of its own options would be; where tuning comes from is not for a plan to say."""
    places = {"xla_gpu_per_fusion_autotune_cache_dir": "/nowhere", "xla_dump_to": "/nowhere"}
    arguments = (shape(SIZE, SIZE), shape(SIZE, SIZE))
    yield rewarm.Program(
        mlp, *arguments, name="options", compiler_options={"xla_gpu_enable_triton_gemm": False, **places}
    )


def other_formats() -> Iterator[Any]:
    options = {"xla_gpu_use_new_autotune_cache_format": False}
    yield rewarm.Program(mlp, shape(SIZE, SIZE), shape(SIZE, SIZE), compiler_options=options)


def with_caches() -> Iterator[Any]:
    """A plan that turns caches on, as a user's file may when it is imported, and names a place for tuning."""
    folder = os.environ["PLAN_CACHES"]
    rewarm.enable(f"{folder}/rewarm")
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", f"{folder}/jax")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    options = {"xla_gpu_per_fusion_autotune_cache_dir": "/nowhere", "xla_gpu_autotune_level": 0}
    yield rewarm.Program(mlp, shape(SIZE, SIZE), shape(SIZE, SIZE), compiler_options=options)


def nothing_at_all() -> list[Any]:
    return []


def wrong_kind() -> Iterator[Any]:
    yield 42


def raises() -> Iterator[Any]:
    yield from small()
    raise RuntimeError("the plan's own")


def does_not_compile() -> Iterator[Any]:
    yield from small()
    yield "bad", jax.jit(lambda p: p @ p), (shape(3, 4),)


def sharded(devices: list[Any]) -> Iterator[Any]:
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(devices), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    batch = jax.ShapeDtypeStruct((1024 * len(devices), 1024), jnp.bfloat16, sharding=rows)
    yield "step", jax.jit(lambda w, x: jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)), (shape(1024, 1024), batch)


def elsewhere() -> Iterator[Any]:
    """As one writes it for a run, where `jax.devices()` are the GPUs: here they are this process's own."""
    mesh = jax.make_mesh((len(jax.devices()),), ("data",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    yield "step", mlp, (jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16, sharding=rows),) * 2


def partly_elsewhere() -> Iterator[Any]:
    yield from small()
    yield from elsewhere()


def jitted_elsewhere() -> Iterator[Any]:
    here = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    function = jax.jit(lambda p, q: jnp.tanh(p @ q), in_shardings=(here, here))
    yield "step", function, (shape(SIZE, SIZE), shape(SIZE, SIZE))


def leaves() -> Iterator[Any]:
    yield from small()
    sys.exit(0)


def same_key() -> Iterator[Any]:
    """Two products that differ in a constant alone, which no key's text has."""
    arguments = (shape(SIZE, SIZE), shape(SIZE, SIZE))
    for name, factor in (("one", 0.3), ("other", 0.7)):
        yield name, jax.jit(lambda p, q, factor=factor: jnp.tanh(p @ q) * factor), arguments


def transformer() -> Iterator[Any]:
    """A train step of two layers: attention, MLP, norms, loss, gradients, momentum."""
    width, heads, hidden, words, layers = 512, 8, 2048, 4096, 2
    batch, length = 4, 512

    def norm(x: Any, scale: Any) -> Any:
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)).astype(x.dtype) * scale

    def attend(x: Any, layer: Any) -> Any:
        parts = [(x @ layer[name]).reshape(batch, length, heads, width // heads) for name in ("q", "k", "v")]
        scores = jnp.einsum("bqhd,bkhd->bhqk", parts[0], parts[1]) / (width // heads) ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        weights = jax.nn.softmax(scores.astype(jnp.float32), -1).astype(x.dtype)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, parts[2]).reshape(batch, length, width) @ layer["o"]

    def loss(params: Any, tokens: Any) -> Any:
        x = params["embed"][tokens]
        for layer in params["layers"]:
            x = x + attend(norm(x, layer["norm1"]), layer)
            x = x + jax.nn.gelu(norm(x, layer["norm2"]) @ layer["up"]) @ layer["down"]
        logits = (norm(x, params["norm"]) @ params["embed"].T).astype(jnp.float32)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), tokens[:, 1:, None], -1)
        return -picked.mean()

    @jax.jit
    def train_step(params: Any, momentum: Any, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return value, jax.tree.map(lambda p, m: p - 0.01 * m, params, momentum), momentum

    layer = {
        **{name: shape(width, width) for name in ("q", "k", "v", "o")},
        **{"up": shape(width, hidden), "down": shape(hidden, width), "norm1": shape(width), "norm2": shape(width)},
    }
    params = {"embed": shape(words, width), "norm": shape(width), "layers": [dict(layer) for _ in range(layers)]}
    yield train_step, (params, params, shape(batch, length, dtype=jnp.int32))


def kinds() -> Iterator[Any]:
    """Instructions of many kinds, for their keys. None is so large that XLA's log would cut its text."""
    f32, wide = jnp.float32, shape(512, 512, dtype=jnp.float32)
    images, filters = shape(8, 64, 64, 128), shape(3, 3, 128, 128)
    numbers = ("NHWC", "HWIO", "NHWC")

    def convolve(x: Any, w: Any) -> Any:
        return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers))

    def pool(x: Any) -> Any:
        pooled = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return pooled.astype(f32).sum()

    yield "convolve", convolve, (images, filters)
    yield "pool", jax.grad(pool), (images,)
    yield "small dot", lambda a: (a @ a.T + a) * 0.3, (shape(256, 256, dtype=f32),)
    yield "argmax", lambda a: (jnp.argmax(a, -1), jnp.cumsum(a * 0.7, -1), jax.lax.top_k(a, 4)), (wide,)
    yield "sort", lambda a: jnp.sort(a, -1)[:, ::2] * 1.7, (wide,)
    yield "scatter", lambda a, i: a.at[i].add(a[::-1] * 2.5), (wide, shape(512, dtype=jnp.int32))
    yield "loop", lambda a: jax.lax.fori_loop(0, 9, lambda _, b: jnp.tanh(b @ a), a), (wide,)
    yield (
        "chosen",
        lambda a, i: jax.lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], a * 3.1),
        (wide, shape(dtype=jnp.int32)),
    )
    yield "complex", lambda a: jnp.fft.fft(a * 1j).real * a, (wide,)
    eighth = jax.ShapeDtypeStruct((1024, 1024), jnp.float8_e4m3fn)
    contracted = (((1,), (0,)), ((), ()))
    yield "eighth", lambda a, b: jax.lax.dot_general(a, b, contracted, preferred_element_type=f32), (eighth, eighth)
    yield (
        "whole",
        lambda a: jax.lax.dot_general(a, a, contracted, preferred_element_type=jnp.int32),
        (shape(512, 512, dtype=jnp.int8),),
    )
