"""Arrays to measure with: the caller's, or made from shapes.

Not promised: values like those of the user's program. What a function's time depends on beside shapes (sparsity, how
soon a loop ends) only the caller's own arrays have.

Made values are never all zero, since zeros cost less power and, for some units, less time: floats are normal with
standard deviation 1, divided by the square root of the last axis where there are two or more (as weights are, so that
products keep their scale); complex likewise; integers uniform in 1 to 127, or in what the type and `integers` allow;
booleans fair coins; keys of JAX's generators are keys.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

_INTEGERS = (1, 127)


def made(struct: Any, seed: int, integers: tuple[int, int] = _INTEGERS) -> Any:
    """An array of that shape and type.

    Args:
      struct: has `shape` and `dtype`.
      seed: another seed gives other values.
      integers: lowest and highest value of integers, both included.

    Raises:
      ValueError: there is no making values of that type.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    dtype, shape = struct.dtype, tuple(struct.shape)
    rng = np.random.default_rng([seed, zlib.crc32(repr((shape, str(dtype))).encode())])
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        keys = jax.random.split(jax.random.key(seed + 1, impl=dtype._impl.name), shape or None)
        return keys if shape else keys.reshape(())[()]
    if jnp.issubdtype(dtype, jnp.bool_):
        return jnp.asarray(rng.random(shape) < 0.5)
    if jnp.issubdtype(dtype, jnp.integer):
        low, high = max(integers[0], int(jnp.iinfo(dtype).min)), min(integers[1], int(jnp.iinfo(dtype).max))
        return jnp.asarray(rng.integers(low, high, size=shape, endpoint=True), dtype)
    scale = 1.0 / np.sqrt(shape[-1]) if len(shape) > 1 and shape[-1] else 1.0
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return jnp.asarray((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * scale, dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.asarray((rng.standard_normal(shape) * scale).astype(np.float32), dtype)
    raise ValueError(f"expected a type of numbers, booleans or keys, found {dtype}; give the arrays themselves")


def concrete(leaves: Sequence[Any], structs: Sequence[Any], seed: int = 0) -> list[Any]:
    """The caller's arrays, and made ones in place of those that are only described."""
    import jax

    return [
        made(struct, seed + place) if isinstance(leaf, (jax.ShapeDtypeStruct, jax.core.Tracer)) else leaf
        for place, (leaf, struct) in enumerate(zip(leaves, structs, strict=True))
    ]


def shuffled(arrays: Sequence[Any], seed: int) -> list[Any]:
    """Other inputs of the same kind: the values of each array in another order, so of the same distribution."""
    return [_shuffled(array, seed + place) for place, array in enumerate(arrays)]


def _shuffled(array: Any, seed: int) -> Any:
    import jax
    import numpy as np

    if not hasattr(array, "shape") or not array.shape:
        return array
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return array
    values = np.asarray(array)
    order = np.random.default_rng(seed).permutation(values.size)
    return jax.numpy.asarray(values.reshape(-1)[order].reshape(values.shape))
