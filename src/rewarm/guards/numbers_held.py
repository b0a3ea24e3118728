"""Arrays and numbers that a variable of a library holds, as a short text.

Not promised: all elements of an array of more than 32 MiB: of those, 65,536 of the elements count, spread evenly; of
such an array of JAX's, its type and shape. Arrays of objects count by type and shape. NumPy need not be imported.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

_ARRAY = 32 << 20
_SAMPLE = 1 << 16
_LONGEST = 200


def text_of_numbers(value: Any, kind: type) -> str | None:
    """An array, a number or a type of numpy's, or an array of JAX's; `None` for anything else."""
    numpy: Any = sys.modules.get("numpy")
    dtype, generic = getattr(numpy, "dtype", None), getattr(numpy, "generic", None)
    if dtype is None or generic is None:
        return None
    if issubclass(kind, dtype):
        return f"dtype:{value!r}"
    if issubclass(kind, generic):
        text = repr(value) if kind.__name__ != "void" else ""
        said = text if text and len(text) <= _LONGEST else _short_digest(value.tobytes())
        return f"{kind.__name__}:{said}"
    if kind.__name__ not in ("ndarray", "ArrayImpl") or kind.__module__.partition(".")[0] not in ("numpy", "jaxlib"):
        return None
    try:
        return _of_array(value, numpy, kind)
    except Exception:  # noqa: BLE001 - one that was given away, or lies on other hosts
        return "an array"


def _of_array(value: Any, numpy: Any, kind: type) -> str:
    said = f"array {value.dtype} {value.shape}"
    if value.dtype.hasobject:
        return said
    if value.nbytes <= _ARRAY:
        raw = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8)  # a buffer of any type, of bfloat16 too
        return f"{said} {_short_digest(raw)}" if value.size else said
    if kind.__name__ != "ndarray":
        return f"{said}, cut"
    some = numpy.ascontiguousarray(value.reshape(-1)[:: value.size // _SAMPLE])
    return f"{said}, cut {_short_digest(some.tobytes())}"


def _short_digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
