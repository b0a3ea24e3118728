"""Many small programs, each another one, compiled and run one after the other: a start that is all compilation.

    python _many_functions.py [COUNT]

Not one of the programs that other benchmarks run by themselves (hence its name); `remote.py` does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from _result import print_result

COUNT = 300
STEPS: list[Callable[[jax.Array], jax.Array]] = [
    jnp.tanh,
    lambda x: x @ x.T / x.shape[0],
    lambda x: x - x.mean(axis=0),
    lambda x: jnp.where(x > 0, x, 0.1 * x),
    lambda x: jax.nn.softmax(x, axis=-1),
    lambda x: jnp.sort(x, axis=0),
    lambda x: jnp.cumsum(x, axis=1) / x.shape[1],
]


def function_of(number: int) -> Callable[[jax.Array], jax.Array]:
    """A function whose steps are the digits of `number`, so that no two have the same."""

    def steps(x: jax.Array) -> jax.Array:
        rest = number + len(STEPS)
        while rest:
            rest, step = divmod(rest, len(STEPS))
            x = STEPS[step](x) + 0.5
        return x.sum()

    steps.__name__ = f"function_{number}"
    return steps


def main() -> None:
    """Compile and run them all, as a notebook or a test suite would: each when it is its turn."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    x = np.linspace(-1.0, 1.0, 64, dtype=np.float32).reshape(8, 8)
    print_result(np.array([jax.jit(function_of(number))(x) for number in range(count)]))


if __name__ == "__main__":
    main()
