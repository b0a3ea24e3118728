"""What tuner.py tunes: functions of JAX with a choice, of which the default is what one would write first."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import rewarm


def attention(q: jax.Array, k: jax.Array, v: jax.Array, *, chunk: int) -> jax.Array:
    """Softmax attention of one head over chunks of keys, with the running maximum and sum (Rabe and Staats, 2021)."""
    scale = q.shape[-1] ** -0.5

    def step(carry: Any, part: Any) -> Any:
        top, total, summed = carry
        keys, values = part
        scores = q @ keys.T * scale
        higher = jnp.maximum(top, scores.max(-1))
        weights = jnp.exp(scores - higher[:, None])
        shrink = jnp.exp(top - higher)
        return (higher, total * shrink + weights.sum(-1), summed * shrink[:, None] + weights @ values), None

    parts = (k.reshape(-1, chunk, k.shape[-1]), v.reshape(-1, chunk, v.shape[-1]))
    length = q.shape[0]
    begin = (jnp.full(length, -jnp.inf), jnp.zeros(length), jnp.zeros((length, v.shape[-1])))
    (_, total, summed), _ = jax.lax.scan(step, begin, parts)
    return summed / total[:, None]


def cumulative(x: jax.Array, *, tile: int) -> jax.Array:
    """Running sum: inside of tiles at once, and the tiles one after the other."""
    inner = jnp.cumsum(x.reshape(-1, tile), axis=1)

    def step(total: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return total + row[-1], row + total

    return jax.lax.scan(step, jnp.zeros((), x.dtype), inner)[1].reshape(-1)


def log_sum(x: jax.Array, *, tile: int) -> jax.Array:
    """log(sum(exp(x))) over the last axis, tile by tile."""

    def step(carry: Any, part: jax.Array) -> Any:
        top, total = carry
        higher = jnp.maximum(top, part.max(-1))
        return (higher, total * jnp.exp(top - higher) + jnp.exp(part - higher[:, None]).sum(-1)), None

    parts = jnp.moveaxis(x.reshape(x.shape[0], -1, tile), 1, 0)
    begin = (jnp.full(x.shape[0], -jnp.inf), jnp.zeros(x.shape[0]))
    (top, total), _ = jax.lax.scan(step, begin, parts)
    return top + jnp.log(total)


def directly(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolution by definition."""
    return jnp.convolve(x, kernel, mode="full")


def by_fft(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolution in the frequency domain, padded to a power of two."""
    length = x.size + kernel.size - 1
    padded = 1 << (length - 1).bit_length()
    return jnp.fft.irfft(jnp.fft.rfft(x, padded) * jnp.fft.rfft(kernel, padded), padded)[:length]


def by_products(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolution as one shifted multiple of the signal for each tap."""
    length = x.size + kernel.size - 1
    padded = jnp.pad(x, (kernel.size - 1, kernel.size - 1))
    rows = jax.vmap(lambda shift: jax.lax.dynamic_slice(padded, (shift,), (length,)))(jnp.arange(kernel.size))
    return kernel[::-1] @ rows


def convolve(x: jax.Array, kernel: jax.Array, *, how: Callable[..., jax.Array]) -> jax.Array:
    """Convolution by one of three algorithms."""
    return how(x, kernel)


def _divisors(size: int, choices: tuple[int, ...]) -> list[int]:
    return [one for one in choices if size % one == 0]


tunable_attention = rewarm.tunable(
    attention, space={"chunk": lambda k: _divisors(k.shape[0], (16, 64, 256, 1024))}, default={"chunk": 64}
)
tunable_cumulative = rewarm.tunable(
    cumulative, space={"tile": lambda x: _divisors(x.size, (16, 64, 256, 1024, 4096))}, default={"tile": 256}
)
tunable_log_sum = rewarm.tunable(
    log_sum, space={"tile": lambda x: _divisors(x.shape[1], (16, 64, 256, 1024, 4096))}, default={"tile": 64}
)
tunable_convolve = rewarm.tunable(convolve, space={"how": [directly, by_fft, by_products]}, default={"how": directly})

jitted_attention = jax.jit(lambda q, k, v: jax.nn.softmax(q @ k.T * q.shape[-1] ** -0.5) @ v)


def _recurrent(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda c, r: (jnp.tanh(c @ w + r), c.sum()), x[0], x)[1]


jitted_recurrent = jax.jit(_recurrent)
jitted_elementwise = jax.jit(lambda x: jnp.where(x > 0, jnp.sin(x) * jnp.exp(-x), jnp.log1p(x * x)).sum(0))


class Case(NamedTuple):
    """One case.

    Attributes:
      name: of it.
      function: a tunable, or a jitted function whose options are tuned.
      arguments: arrays.
    """

    name: str
    function: Any
    arguments: tuple[Any, ...]

    @property
    def is_of_options(self) -> bool:
        """Whether the options of XLA are what is tuned."""
        return not hasattr(type(self.function), "__rewarm_tunable__")


def draw(*shape: int) -> jax.Array:
    """Normal numbers, the same for the same shape."""
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), jnp.float32)


def kernels() -> list[Case]:
    """Cases with a space of their own."""
    found = []
    for length in (1024, 2048, 4096, 8192):
        for width in (32, 64):
            q, k = draw(256, width), draw(length, width)
            found.append(Case(f"attention {length}x{width}", tunable_attention, (q, k, k)))
    for power in range(12, 21):
        found.append(Case(f"cumulative 2^{power}", tunable_cumulative, (draw(1 << power),)))
    for rows in (8, 64, 256):
        for length in (4096, 16384):
            found.append(Case(f"log_sum {rows}x{length}", tunable_log_sum, (draw(rows, length),)))
    for length in (256, 1024, 4096, 16384):
        for taps in (4, 16, 64, 256):
            found.append(Case(f"convolve {length}*{taps}", tunable_convolve, (draw(length), draw(taps))))
    return found


def programs() -> list[Case]:
    """Programs whose options are tuned: those of benchmarks/programs that are one function, and three more."""
    found = [
        Case("options: attention", jitted_attention, (draw(512, 64), draw(512, 64), draw(512, 64))),
        Case("options: recurrent", jitted_recurrent, (draw(128, 128), draw(128, 128))),
        Case("options: elementwise", jitted_elementwise, (draw(512, 512),)),
    ]
    here = Path(__file__).resolve().parent
    sys.path += [str(here / "programs"), str(here.parent / "examples")]
    suite = importlib.import_module("suite")
    for family in ("softmax", "layer_norm"):
        function, arguments = suite.FAMILIES[family](256)
        found.append(Case(f"options: suite {family}", jax.jit(function), arguments))
    try:
        transformer = importlib.import_module("transformer")
    except ImportError:
        return found
    config = transformer.Config()
    state = transformer.create_state(config, jax.random.key(0))
    batch = next(iter(transformer.batches(transformer.read_text(), config, 0)))
    found.append(Case("options: transformer eval", transformer.eval_step, (state, batch)))
    return found
