"""A test suite of many small jitted programs, as a continuous integration runs it: some files, or all of them.

Each family stands for a file of tests, and each of its sizes for one test. A family's revision is an edit of the code
under test: its programs compute something else then, and are compiled anew. Most programs compile in some
hundredths of a second, a few (the unrolled ones, the factorisations, the Hessian) take up to seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _result import print_result
from jax import lax
from jax.scipy import optimize

SIZES = (4, 6, 8, 12, 16)

Function = Callable[..., Any]
Built = tuple[Function, tuple[np.ndarray, ...]]


def draw(*shape: int) -> np.ndarray:
    """Returns the same normal numbers for the same shape."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def positive(size: int) -> np.ndarray:
    """Returns a well-conditioned symmetric positive definite matrix."""
    root = draw(size, size)
    return root @ root.T + size * np.eye(size, dtype=np.float32)


def mlp(parameters: Sequence[jax.Array], x: jax.Array) -> jax.Array:
    """Applies as many tanh layers as there are matrices."""
    for matrix in parameters:
        x = jnp.tanh(x @ matrix)
    return x


def _elementwise(size: int) -> Built:
    return (lambda x: jnp.exp(-(x**2)) * jnp.sin(3 * x) + jnp.log1p(x**2)), (draw(size, size),)


def _reductions(size: int) -> Built:
    return (lambda x: (x.sum(0), x.mean(1), x.var(), jnp.linalg.norm(x, axis=1), jnp.prod(x, 0))), (draw(size, size),)


def _softmax(size: int) -> Built:
    return jax.grad(lambda x: (jax.nn.log_softmax(x, axis=-1) * jnp.cos(x)).sum()), (draw(size, size),)


def _layer_norm(size: int) -> Built:
    def loss(x: jax.Array, scale: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        return (jax.nn.gelu(centred * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale) ** 2).sum()

    return jax.grad(loss, argnums=(0, 1)), (draw(size, size), draw(size))


def _attention(size: int) -> Built:
    def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / size**0.5
        mask = jnp.tril(jnp.ones((size, size), bool))
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v).sum()

    return jax.value_and_grad(loss, argnums=(0, 1, 2)), (draw(2, size, size), draw(2, size, size), draw(2, size, size))


def _convolution(size: int) -> Built:
    def loss(kernel: jax.Array, image: jax.Array) -> jax.Array:
        out = lax.conv_general_dilated(image, kernel, (1, 1), "SAME")
        return jax.nn.relu(out).sum()

    return jax.grad(loss), (draw(3, 2, 3, 3), draw(2, 2, size, size))


def _scans(size: int) -> Built:
    return (lambda x: (jnp.cumsum(x), lax.cummax(x), lax.associative_scan(jnp.multiply, x))), (draw(8 * size),)


def _sorting(size: int) -> Built:
    return (lambda x: (jnp.sort(x), lax.top_k(x, 3)[0], jnp.median(x), jnp.quantile(x, 0.9))), (draw(8 * size),)


def _transform(size: int) -> Built:
    def spectrum(x: jax.Array) -> jax.Array:
        return jnp.abs(jnp.fft.fft(x * jnp.hanning(8 * size))) ** 2 + jnp.fft.irfft(jnp.fft.rfft(x), 8 * size)

    return spectrum, (draw(8 * size),)


def _cholesky(size: int) -> Built:
    return jax.grad(lambda a: jnp.log(jnp.diag(jnp.linalg.cholesky(a))).sum()), (positive(size),)


def _eigen(size: int) -> Built:
    return jax.grad(lambda a: jnp.linalg.eigvalsh((a + a.T) / 2).max()), (positive(size),)


def _singular(size: int) -> Built:
    return (lambda a: jnp.linalg.svd(a, full_matrices=False)[1]), (draw(size + 2, size),)


def _least_squares(size: int) -> Built:
    return (lambda a, b: jnp.linalg.lstsq(a, b)[0]), (draw(2 * size, size), draw(2 * size))


def _solve(size: int) -> Built:
    return jax.jacrev(lambda b, a: jnp.linalg.solve(a, b)), (draw(size), positive(size))


def _matrix_exponential(size: int) -> Built:
    return (lambda a: jax.scipy.linalg.expm(a / size)), (draw(size, size),)


def _recurrent(size: int) -> Built:
    def loss(w: jax.Array, u: jax.Array, xs: jax.Array) -> jax.Array:
        def cell(carry: tuple[jax.Array, jax.Array], x: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
            h, c = carry
            gates = jnp.split(x @ w + h @ u, 4)
            c = jax.nn.sigmoid(gates[0]) * c + jax.nn.sigmoid(gates[1]) * jnp.tanh(gates[2])
            return (jax.nn.sigmoid(gates[3]) * jnp.tanh(c), c), None

        return lax.scan(cell, (jnp.zeros(size), jnp.zeros(size)), xs)[0][0].sum()

    return jax.grad(loss, argnums=(0, 1)), (draw(size, 4 * size), draw(size, 4 * size), draw(10, size))


def _newton(size: int) -> Built:
    def root(a: jax.Array) -> jax.Array:
        def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, _ = state
            new = x - (x**3 - a) / (3 * x**2 + 1e-3)
            return new, jnp.abs(new - x).max()

        return lax.while_loop(lambda state: state[1] > 1e-4, step, (jnp.ones_like(a), jnp.float32(1)))[0]

    return root, (np.abs(draw(size)) + 1,)


def _network(size: int) -> Built:
    layers = tuple(draw(size, size) / size for _ in range(3))
    return jax.value_and_grad(lambda ws, x: (mlp(ws, x) ** 2).mean()), (layers, draw(4, size))  # type: ignore[return-value]


def _per_example(size: int) -> Built:
    gradient = jax.grad(lambda w, x: (jnp.tanh(w @ x) ** 2).sum())
    return jax.vmap(gradient, in_axes=(None, 0)), (draw(size, size), draw(4, size))


def _hessian(size: int) -> Built:
    return jax.hessian(lambda x, a: jnp.log1p(jnp.exp(a @ x)).sum() + (x**4).sum()), (draw(size), draw(size, size))


def _differential(size: int) -> Built:
    def trajectory(start: jax.Array) -> jax.Array:
        def slope(x: jax.Array) -> jax.Array:
            return jnp.roll(x, 1) * (jnp.roll(x, -1) - jnp.roll(x, 2)) - x + 8.0

        def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            k1 = slope(x)
            k2 = slope(x + 0.01 * k1)
            return x + 0.02 * k2, x.mean()

        return lax.scan(step, start, None, length=50)[1]

    return trajectory, (draw(size),)


def _random(size: int) -> Built:
    def sample(seed: jax.Array) -> tuple[jax.Array, ...]:
        keys = jax.random.split(jax.random.key(seed), 3)
        return (
            jax.random.normal(keys[0], (size, size)),
            jax.random.permutation(keys[1], jnp.arange(size) / size),
            jax.random.gamma(keys[2], 2.0, (size,)),
        )

    return sample, (np.int32(7),)  # type: ignore[return-value]


def _segments(size: int) -> Built:
    def pool(x: jax.Array, which: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.ops.segment_sum(x, which, size), jax.ops.segment_max(x, which, size)

    return pool, (draw(8 * size), np.arange(8 * size) % size)


def _interpolation(size: int) -> Built:
    grid = np.linspace(0, 1, size, dtype=np.float32)
    return (lambda x, y: jnp.interp(x, grid, y) + jnp.polyval(y[:4], x)), (np.abs(draw(32)) % 1, draw(size))


def _histogram(size: int) -> Built:
    return (lambda x: jnp.histogram(x, bins=size)[0] / x.size), (draw(16 * size),)


def _scatter(size: int) -> Built:
    def update(x: jax.Array, where: jax.Array) -> jax.Array:
        return x.at[where].add(1.0).at[where, where].mul(2.0)[::-1]

    return update, (draw(size, size), np.arange(0, size, 2))


def _residual(size: int) -> Built:
    def loss(x: jax.Array) -> jax.Array:
        for layer in range(6 * size):
            x = x + jnp.tanh(x @ x) / (1 + layer)
        return x.sum()

    return jax.grad(loss), (draw(size, size),)


def _mixture(size: int) -> Built:
    def loss(logits: jax.Array, means: jax.Array, x: jax.Array) -> jax.Array:
        each = jax.scipy.stats.norm.logpdf(x[:, None], means) + jax.nn.log_softmax(logits)
        return -jax.scipy.special.logsumexp(each, axis=1).mean()

    return jax.value_and_grad(loss, argnums=(0, 1)), (draw(size), draw(size), draw(64))


def _fitting(size: int) -> Built:
    def fit(start: jax.Array) -> jax.Array:
        def loss(x: jax.Array) -> jax.Array:
            return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()

        return optimize.minimize(loss, start, method="BFGS", options={"maxiter": 5}).x

    return fit, (0.1 * draw(size),)


def _kalman(size: int) -> Built:
    transition = np.eye(size, k=1, dtype=np.float32) + np.eye(size, dtype=np.float32)

    def filtered(observed: jax.Array) -> jax.Array:
        def step(state: tuple[jax.Array, jax.Array], y: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            mean, cov = transition @ state[0] * 0.9, transition @ state[1] @ transition.T * 0.8 + jnp.eye(size)
            gain = cov[:, 0] / (cov[0, 0] + 1.0)
            return (mean + gain * (y - mean[0]), cov - jnp.outer(gain, cov[0])), mean[0]

        return lax.scan(step, (jnp.zeros(size), jnp.eye(size)), observed)[1]

    return jax.grad(lambda y: (filtered(y) ** 2).sum()), (draw(20),)


FAMILIES: dict[str, Callable[[int], Built]] = {
    name.removeprefix("_"): build
    for name, build in list(globals().items())
    if name.startswith("_") and not name.startswith("__") and callable(build)
}


def run_test(family: str, size: int, revision: int) -> list[Any]:
    """Compiles and runs one test; returns its results."""
    function, arguments = FAMILIES[family](size)

    def under_test(*given: Any) -> Any:
        return jax.tree.map(lambda y: y * (1.0 + 0.01 * revision), function(*given))

    return jax.tree.leaves(jax.device_get(jax.jit(under_test)(*arguments)))


def main() -> None:
    """Runs the tests that were asked for; the result is everything that they computed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", default=",".join(FAMILIES), help="names, divided by commas; default: all")
    parser.add_argument("--revisions", default="", help="NAME=NUMBER,...: edits of the code under test")
    arguments = parser.parse_args()
    revisions = {
        name: int(number)
        for name, _, number in (pair.partition("=") for pair in arguments.revisions.split(",") if pair)
    }
    results = {
        f"{family}/{size}": run_test(family, size, revisions.get(family, 0))
        for family in arguments.families.split(",")
        for size in SIZES
    }
    print(f"{len(results)} tests ran")
    print_result(results)


if __name__ == "__main__":
    main()
