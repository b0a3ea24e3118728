"""Programs of many kinds, each small, for checks that must find nothing: `python sampled_programs.py first|second`.

The second run has other names for functions and other lines than the first, and the same keys.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import sampled

sampled.on()

X = np.random.RandomState(0).randn(8, 8).astype(np.float32)
S = X @ X.T + 8 * np.eye(8, dtype=np.float32)
BIG = np.random.RandomState(1).randn(64, 64).astype(np.float32)
IMAGE = np.random.RandomState(2).randn(2, 3, 12, 12).astype(np.float32)
KERNEL = np.random.RandomState(3).randn(4, 3, 3, 3).astype(np.float32)

NAME = sys.argv[1]


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls another, under names and from lines that depend on the run."""
    lines = "\n" * (7 if NAME == "first" else 31)
    source = f"{lines}def {NAME}_inner(*a): return f(*a)\ndef {NAME}_of(*a): return jax.jit({NAME}_inner)(*a)\n"
    space: dict[str, Any] = {"f": function, "jax": jax}
    exec(compile(source, f"{NAME}.py", "exec"), space)
    found: Callable[..., Any] = space[f"{NAME}_of"]
    return found


def cast(kind: Any) -> Callable[[Any], Any]:
    return lambda x: (x.astype(kind) @ x.astype(kind)).astype(jnp.float32)


def looped(x: Any) -> Any:
    return jax.lax.while_loop(lambda c: c[0] < 100, lambda c: (c[0] + (c[1] ** 2).sum() + 1, c[1]), (0.0, x))


def scanned(x: Any) -> Any:
    return jax.lax.scan(lambda c, y: (jnp.tanh(c @ c) + y, c.sum()), x, jnp.stack([x] * 5))


PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), (X,)),
    (jnp.linalg.svd, (X,)),
    (jnp.linalg.qr, (X,)),
    (jnp.linalg.eigh, (S,)),
    (jnp.linalg.solve, (S, X)),
    (jnp.linalg.cholesky, (S,)),
    (jnp.argsort, (X,)),
    (lambda x: jax.lax.top_k(x, 3), (X,)),
    (lambda x, i: x.at[i].add(1.0), (X, np.arange(3))),
    (lambda x, i: x[i], (X, np.arange(3))),
    (lambda seed: jax.random.normal(jax.random.key(seed), (100,)), (3,)),
    (lambda seed: jax.random.permutation(jax.random.key(seed), 50), (3,)),
    (lambda seed: jax.random.bits(jax.random.key(seed, impl="rbg"), (10,)), (3,)),
    (looped, (X,)),
    (scanned, (X,)),
    (lambda i, x: jax.lax.switch(i, [jnp.sin, jnp.cos, lambda y: y @ y], x), (1, X)),
    (jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y @ y)))(x).sum()), (X,)),
    (cast(jnp.bfloat16), (X,)),
    (cast(jnp.float16), (X,)),
    (cast(jnp.int8), (X,)),
    (cast(jnp.float8_e4m3fn), (X,)),
    (lambda x: x.astype(jnp.int4), (X,)),
    (lambda x: x @ x * 1j, (X.astype(np.complex64),)),
    (lambda x, i: jax.lax.dynamic_slice(x, (i, i), (3, 3)), (X, 2)),
    (lambda x, i: jax.lax.dynamic_update_slice(x, jnp.ones((2, 2)), (i, i)), (X, 2)),
    (lambda x, k: jax.lax.conv_general_dilated(x, k, (1, 1), "SAME"), (IMAGE, KERNEL)),
    (jax.grad(lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (2, 2), "VALID").sum()), (X,)),
    (lambda x: jax.lax.associative_scan(jnp.multiply, x), (X,)),
    (lambda x: BIG @ x, (np.ones((64, 3), np.float32),)),
    (lambda x: jnp.log(x) + jnp.sqrt(x), (X,)),
    (lambda x: jnp.sort(jax.nn.softmax(jax.nn.gelu(x @ x))), (X,)),
]


def main() -> None:
    for function, arguments in PROGRAMS:
        jax.jit(named(function))(*arguments)
    jax.jit(named(lambda x: x * 2 + 1), donate_argnums=0)(jnp.asarray(X))
    wide = jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(True)
    with wide:
        jax.jit(named(lambda x: jnp.tanh(x @ x) * 3))(X.astype(np.float64))
    sampled.done()


if __name__ == "__main__":
    main()
