"""Whether a candidate gives what the default gives.

Not promised: that the default is right, or a bound on each element's error. Two results are the same if shapes and
types are, if what is not finite stands in the same places, and if no element differs by more than the tolerance times
the largest finite magnitude of the default's array: orders of summation differ between candidates, and what they do to
an element goes with the sums, not with the element.

Tolerances by type, unless one is given: f64 and c128 1e-9, f32 and c64 1e-4, f16 2e-3, bf16 2e-2, eight bits and fewer
0.15; whole numbers and booleans must be equal. Source: the unit round-off of each, times some thousands (hundreds for
the short ones), which sums over 10^6 elements stay below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 2e-3,
    "bfloat16": 2e-2}  # fmt: skip
_SHORT = 0.15


def tolerance_of(dtype: str) -> float:
    """The tolerance for results of a type; 0.0 for those that must be equal."""
    if dtype.startswith(("int", "uint", "bool")):
        return 0.0
    return _TOLERANCE.get(dtype, _SHORT)


def as_numpy(outputs: Any) -> list[Any]:
    """The leaves of results, here."""
    import jax
    import numpy as np

    found = []
    for leaf in jax.tree_util.tree_leaves(outputs):
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            found.append(np.asarray(jax.random.key_data(leaf)))
        else:
            found.append(np.asarray(leaf))
    return found


def difference(expected: Sequence[Any], found: Sequence[Any], tolerance: float | None = None) -> str:
    """How results differ from the default's beyond the tolerance, in words; "" if they do not."""
    if len(expected) != len(found):
        return f"{len(found)} arrays in place of {len(expected)}"
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        words = _of_arrays(one, other, tolerance)
        if words:
            return words if len(expected) == 1 else f"result {number}: {words}"
    return ""


def _of_arrays(expected: Any, found: Any, tolerance: float | None) -> str:
    import numpy as np

    if expected.shape != found.shape or expected.dtype != found.dtype:
        return f"{found.dtype}{list(found.shape)} in place of {expected.dtype}{list(expected.shape)}"
    allowed = tolerance_of(str(expected.dtype)) if tolerance is None else tolerance
    if str(expected.dtype).startswith(("int", "uint", "bool")):
        allowed = 0.0 if tolerance is None else tolerance
    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    one, other = expected.astype(wide), found.astype(wide)
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)) or not np.array_equal(
        one[~finite], other[~finite], equal_nan=True
    ):
        return "what is not finite stands in other places"
    if not finite.any():
        return ""
    scale = float(np.abs(one[finite]).max())
    largest = float(np.abs(one[finite] - other[finite]).max())
    if largest <= allowed * scale:
        return ""
    return f"differs by {largest:.3g}, allowed {allowed:g} times the largest magnitude {scale:.3g}"
