"""numpy's arrays, scalars and dtypes, where numpy has been imported.

Not promised: the layout in memory. An array counts by dtype, shape and elements in row-major order, so a transposed
copy and a view agree; that two arrays share memory does not count.
"""

from __future__ import annotations

import sys
from typing import Any

from rewarm.fingerprint.allowed import LAYOUT_READS
from rewarm.fingerprint.digest import frame, integer, text, texts
from rewarm.fingerprint.node import Context, Edge, Node, RefusedError

# Kinds whose bytes are the value. Not: pointers (O, T) and long doubles, whose last bytes are whatever was there.
_FLAT_KINDS = frozenset("biufcSUmMV")
_LONG_DOUBLES = frozenset("gG")


def describe_numpy(value: Any, context: Context) -> Node | None:
    """The node of an array, a scalar or a dtype, or `None` if it is none of them."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    kind = type(value)
    try:
        array, scalar, dtype = numpy.ndarray, numpy.generic, numpy.dtype
    except AttributeError:  # numpy is being imported, or is another thing of that name
        return None
    if kind is array:
        context.beware(LAYOUT_READS, "an array is on the way, whose attribute of this name tells of its memory")
        return _array(value)
    if issubclass(kind, array):
        raise RefusedError("a kind of array that may hold more than its elements")
    if issubclass(kind, scalar):
        if context.trusted.owner(kind.__module__) is None:
            raise RefusedError("a kind of numpy scalar that may hold more than its value")
        return Node("scalar", b"", (("value", numpy.asarray(value)),), lasting=False)
    return _dtype(value) if issubclass(kind, dtype) else None


def is_numpy(kind: type) -> bool:
    """Whether instances of this class are arrays, scalars or dtypes."""
    numpy: Any = sys.modules.get("numpy")
    try:
        return numpy is not None and issubclass(kind, (numpy.ndarray, numpy.generic, numpy.dtype))
    except AttributeError:  # numpy is being imported, or is another thing of that name
        return False


def size_of(value: Any) -> int:
    """Bytes that describing this value would read."""
    numpy: Any = sys.modules.get("numpy")
    array = getattr(numpy, "ndarray", None)
    return int(value.nbytes) if array is not None and type(value) is array else 0


def _array(value: Any) -> Node:
    shape = frame(*(integer(length) for length in value.shape))
    dtype = value.dtype
    edges: list[Edge] = [("dtype", dtype)]
    if dtype.names is not None:  # not as a whole: there may be gaps between the fields
        edges += ((f"field {name}", value[name]) for name in dtype.names)
        return Node("array", shape, tuple(edges))
    if dtype.hasobject:
        edges += ((f"item {index}", item) for index, item in enumerate(value.ravel().tolist()))
        return Node("array", shape, tuple(edges))
    if dtype.kind not in _FLAT_KINDS or dtype.char in _LONG_DOUBLES:
        raise RefusedError(f"an array of {dtype.name}, whose bytes do not tell its value")
    return Node("array", frame(shape, value.tobytes()), tuple(edges))


def _dtype(value: Any) -> Node:
    own = frame(text(value.str), text(value.name), integer(value.itemsize), integer(value.isalignedstruct))
    edges: list[Edge] = [("type", value.type), ("metadata", value.metadata)]
    if value.subdtype is not None:
        edges.append(("element", value.subdtype))
    if value.names is not None:
        own = frame(own, texts(tuple(value.names)))
        edges += ((f"field {name}", tuple(value.fields[name])) for name in value.names)
    return Node("dtype", own, tuple(edges), lasting=False)
