"""A notebook's session: cells of jax.numpy, linalg and fft, one operation after the other, on data of one size.

Without `jax.jit` each operation is a program of its own, so a session asks for many small ones. A session may stop
after some of its cells, as people run a notebook again down to the cell that they are at.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _result import print_result
from jax.scipy import optimize

Cells = Iterator[Any]


def signals(size: int) -> Cells:
    """Spectra and filters of a noisy signal."""
    time = jnp.linspace(0.0, 4.0, size)
    noise = jax.random.normal(jax.random.key(0), (size,))
    signal = jnp.sin(2 * jnp.pi * 5 * time) + 0.5 * noise
    yield signal
    spectrum = jnp.fft.rfft(signal * jnp.hanning(size))
    yield jnp.abs(spectrum)
    yield jnp.fft.irfft(jnp.where(jnp.arange(len(spectrum)) < 30, spectrum, 0), size)
    yield jnp.convolve(signal, jnp.ones(9) / 9, mode="same")
    yield jnp.correlate(signal, signal, mode="full")[size - 1 :]
    blocks = signal[: size // 16 * 16].reshape(16, -1)
    yield 10 * jnp.log10(jnp.abs(jnp.fft.fft(blocks, axis=1)) ** 2 + 1e-6)


def algebra(size: int) -> Cells:
    """Factorisations of a random matrix and what they are used for."""
    a = jax.random.normal(jax.random.key(1), (size, size))
    yield jnp.linalg.norm(a, axis=0)
    symmetric = a @ a.T / size + jnp.eye(size)
    values, vectors = jnp.linalg.eigh(symmetric)
    yield values
    yield (vectors * jnp.sqrt(values)) @ vectors.T
    yield jnp.linalg.svd(a, compute_uv=False)
    q, r = jnp.linalg.qr(a)
    yield jnp.abs(q @ r - a).max()
    yield jnp.linalg.solve(symmetric, jnp.ones(size))
    yield jnp.linalg.slogdet(symmetric)[1]
    yield jax.scipy.linalg.expm(a / size)


def statistics(size: int) -> Cells:
    """Summaries of a table, a regression and a bootstrap."""
    table = jax.random.normal(jax.random.key(2), (size, 4)) * jnp.array([1.0, 2.0, 0.5, 3.0])
    yield jnp.concatenate([table.mean(0), table.std(0), jnp.median(table, axis=0)])
    yield jnp.corrcoef(table.T)
    yield jnp.percentile(table, jnp.array([5.0, 50.0, 95.0]), axis=0)
    yield jnp.linalg.lstsq(table[:, :3], table[:, 3])[0]
    picks = jax.random.randint(jax.random.key(3), (200, size), 0, size)
    yield jnp.sort(table[:, 0][picks].mean(axis=1))
    yield jnp.histogram(table[:, 1], bins=20)[0].astype(jnp.float32)
    yield jax.scipy.stats.norm.logpdf(table).sum(axis=0)


def images(size: int) -> Cells:
    """Smoothing, edges and a rotation of a synthetic picture."""
    y, x = jnp.mgrid[0:size, 0:size] / size
    picture = jnp.exp(-((x - 0.5) ** 2 + (y - 0.4) ** 2) * 20) + 0.1 * jnp.sin(40 * x)
    yield picture
    frequencies = jnp.fft.fftfreq(size)
    low = jnp.exp(-50 * (frequencies[:, None] ** 2 + frequencies**2))
    yield jnp.fft.ifft2(jnp.fft.fft2(picture) * low).real
    across, down = jnp.gradient(picture)
    yield jnp.hypot(across, down)
    yield jax.scipy.signal.convolve2d(picture, jnp.ones((5, 5)) / 25, mode="same")
    angle = jnp.array([[0.8, -0.6], [0.6, 0.8]])
    where = jnp.tensordot(angle, jnp.stack([y, x]) * size, axes=1)
    yield jax.scipy.ndimage.map_coordinates(picture, list(where), order=1)
    yield jax.image.resize(picture, (size // 2, size // 2), "bilinear")


def dynamics(size: int) -> Cells:
    """An orbit by Runge and Kutta, its sensitivity, and a fit by BFGS."""
    from jax.experimental.ode import odeint

    def force(state: jax.Array, _time: jax.Array) -> jax.Array:
        return jnp.concatenate([state[2:], -state[:2] / (1e-3 + jnp.sum(state[:2] ** 2)) ** 1.5])

    start, times = jnp.array([1.0, 0.0, 0.0, 0.9]), jnp.linspace(0.0, 6.0, size)
    orbit = odeint(force, start, times)
    yield orbit
    yield jnp.hypot(orbit[:, 2], orbit[:, 3]).max()
    yield jax.jacobian(lambda state: odeint(force, state, times)[-1])(start)
    target = orbit[:, 0]

    def loss(guess: jax.Array) -> jax.Array:
        return ((guess[0] * jnp.cos(guess[1] * times) - target) ** 2).mean()

    yield optimize.minimize(loss, jnp.ones(2), method="BFGS").x
    yield jax.hessian(loss)(jnp.ones(2))


NOTEBOOKS: dict[str, Callable[[int], Cells]] = {
    notebook.__name__: notebook for notebook in (signals, algebra, statistics, images, dynamics)
}


def main() -> None:
    """Runs the cells; the result is what each of them showed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--notebook", choices=NOTEBOOKS, default="signals")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--cells", type=int, default=100, help="how many cells at most")
    arguments = parser.parse_args()
    cells = NOTEBOOKS[arguments.notebook](arguments.size)
    shown = [np.asarray(cell) for _, cell in zip(range(arguments.cells), cells, strict=False)]
    print(f"{len(shown)} cells")
    print_result(shown)


if __name__ == "__main__":
    main()
