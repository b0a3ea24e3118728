"""Whether a candidate gives what the default gives.

Not promised: that the default is right, or a bound on each element's error. Two results are the same if they have one
form (tree, shapes, types, and which of these are weak, since that decides the types of what a program makes of them),
if what is not finite stands in the same places, and if no element differs by more than the tolerance times the largest
finite magnitude of the default's array: orders of summation differ between candidates, and what they do to an element
goes with the sums, not with the element. A tolerance of 0 is equality to the bit, but for the bits of a NaN.

Tolerances by type, unless one is given: f64 and c128 1e-9, f32 and c64 1e-4, f16 2e-3, bf16 2e-2, eight bits and fewer
0.15; whole numbers and booleans must be equal. Source: the unit round-off of each, times some thousands (hundreds for
the short ones), which sums over 10^6 elements stay below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 2e-3,
    "bfloat16": 2e-2}  # fmt: skip
_SHORT = 0.15
# Of elements that differ so many are told apart for the words.
_LOOKED_AT = 1000


def tolerance_of(dtype: str) -> float:
    """The tolerance for results of a type; 0.0 for those that must be equal."""
    if dtype.startswith(("int", "uint", "bool")):
        return 0.0
    return _TOLERANCE.get(dtype, _SHORT)


class Form(NamedTuple):
    """What results are beside their values.

    Attributes:
      tree: in which the arrays are.
      weak: of each, whether its type is weak.
    """

    tree: Any
    weak: tuple[bool, ...]


def form_of(results: Any) -> Form:
    """The form of what a function returned under a trace."""
    import jax

    leaves, tree = jax.tree_util.tree_flatten(results)
    return Form(tree, tuple(bool(getattr(jax.typeof(leaf), "weak_type", False)) for leaf in leaves))


def difference_of_form(expected: Form | None, found: Form | None) -> str:
    """How the form of results differs from that of the default's, in words; "" if it does not."""
    if expected is None or found is None or expected == found:
        return ""
    if expected.tree != found.tree:
        return f"a tree {found.tree!s:.120} in place of {expected.tree!s:.120}"
    at = next(number for number, weak in enumerate(expected.weak) if weak != found.weak[number])
    said = "a weak type in place of a strong one" if found.weak[at] else "a strong type in place of a weak one"
    return f"result {at}: {said}"


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
    if allowed == 0.0 and str(expected.dtype).startswith(("int", "uint", "bool")):
        # As they are: no type of floats holds all numbers of 64 bits.
        return "" if np.array_equal(expected, found) else _by_how_much(expected, found)
    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    return _of_floats(expected.astype(wide), found.astype(wide), allowed)


def _of_floats(expected: Any, found: Any, allowed: float) -> str:
    import numpy as np

    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)) or not np.array_equal(
        expected[~finite], found[~finite], equal_nan=True
    ):
        return "what is not finite stands in other places"
    one, other = expected[finite], found[finite]
    if not one.size:
        return ""
    scale = float(np.abs(one).max())
    largest = float(np.abs(one - other).max())
    if largest > allowed * scale:
        return f"differs by {largest:.3g}, allowed {allowed:g} times the largest magnitude {scale:.3g}"
    if allowed == 0.0 and not np.array_equal(_signs(one), _signs(other)):
        return "zeros have another sign, where results are to be equal to the bit"
    return ""


def _by_how_much(expected: Any, found: Any) -> str:
    import numpy as np

    one, other = expected.reshape(-1), found.reshape(-1)
    places = np.flatnonzero(one != other)[:_LOOKED_AT]
    largest = max(abs(int(one[place]) - int(other[place])) for place in places)
    return f"differs by {largest:,}, where whole numbers are to be equal"


def _signs(array: Any) -> Any:
    import numpy as np

    return np.signbit(np.stack([array.real, array.imag])) if np.iscomplexobj(array) else np.signbit(array)
