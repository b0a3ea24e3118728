"""The `callbacks` component: the Python of `custom_partitioning`, which runs while a program compiles, by content.

Not promised: a value for every callback. What cannot be followed is not guessed: it is a `NotFingerprintableError`
that names the object which stood in the way, and the program is compiled and not stored.

What decides the result of such a callback: the functions themselves with all that they reach, the static arguments,
the trees of arguments and results, the mesh, and the options of JAX that shape a trace, since the callback returns a
function that JAX traces there and then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from rewarm.errors import NotFingerprintableError
from rewarm.jax_adapter import seam

_ADDRESS = " at 0x"


def callbacks_value(addresses: tuple[str, ...]) -> list[dict[str, Any]]:
    """The component's value: for each call its digest, and digests of its parts.

    Args:
      addresses: what the calls' configurations hold, in the order of the program.

    Raises:
      NotFingerprintableError: something that takes part cannot be identified by content.
    """
    context = _trace_context()
    return [{**_content(address), "context": context} for address in addresses]


def _content(address: str) -> dict[str, Any]:
    call = seam.partitioning_call(address)
    if call is None:
        raise NotFingerprintableError("custom_partitioning", "a call", "its Python is gone")
    # Imported when a program needs it: few do.
    from rewarm.fingerprint import fingerprint

    found = fingerprint(call, name="custom_partitioning", reducers=_reducers(), companions=seam.registered_as_tree)
    return {"digest": found.digest, "parts": dict(found.parts)}


def _trace_context() -> list[str]:
    return [_text(value, "the options that shape a trace") for value in seam.trace_context()]


def _text(value: Any, path: str) -> str:
    """A value of JAX's own that says all of itself in its text."""
    text = repr(value)
    if _ADDRESS in text:
        raise NotFingerprintableError(path, type(value).__name__, "its text is an address")
    return text


@functools.cache
def _reducers() -> Mapping[type, Callable[[Any], Any]]:
    """How JAX's own types are taken apart into plain values."""
    import jax

    return {
        jax.sharding.Mesh: _mesh,
        jax.tree_util.PyTreeDef: lambda tree: ("tree", _text(tree, "a tree of arguments")),
        jax.sharding.PartitionSpec: lambda spec: ("partition spec", _text(spec, "a PartitionSpec")),
        jax.sharding.NamedSharding: lambda one: ("sharding", one.mesh, one.spec, str(one.memory_kind)),
        jax.ShapeDtypeStruct: lambda one: ("shape", one.shape, str(one.dtype), one.sharding),
        jax.Array: _array,
        seam.jitted_type(): _jitted,
    }


def _mesh(mesh: Any) -> Any:
    """Axes and devices, by id: a callback can make either a constant of the program. All ranks see the same ids."""
    ids = tuple(int(device.id) for device in mesh.devices.flat)
    kinds = tuple(sorted({str(device.device_kind) for device in mesh.devices.flat}))
    return "mesh", mesh.axis_names, mesh.devices.shape, ids, kinds, repr(getattr(mesh, "axis_types", None))


def _array(array: Any) -> Any:
    import numpy

    if not array.is_fully_addressable:
        raise NotFingerprintableError("a jax.Array", str(array.sharding), "parts of it are on other hosts")
    return "array", numpy.asarray(array), bool(getattr(array, "weak_type", False))


def _jitted(function: Any) -> Any:
    wrapped, settings = seam.jitted_parts(function)
    return "jit", wrapped, settings
