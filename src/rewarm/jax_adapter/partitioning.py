"""The `callbacks` component: the Python of `custom_partitioning`, which runs while a program compiles, by content.

Not promised: a value for every callback. What cannot be followed is not guessed: it is a `NotFingerprintableError`
that names the object which stood in the way, and the program is compiled and not stored.

What decides the result of such a callback: the functions themselves with all that they reach, the static arguments,
the trees of arguments and results, the mesh, and the options of JAX that shape a trace, since the callback returns a
function that JAX traces there and then.
"""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Callable, Mapping
from typing import Any

from rewarm.errors import NotFingerprintableError
from rewarm.jax_adapter import seam

_ADDRESS = " at 0x"

# What `jax.jit` itself puts on a function; anything else is the user's.
_OF_JIT = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__type_params__", "__wrapped__", "_fun", "_jit_info"})


def callbacks_value(addresses: tuple[str, ...]) -> list[dict[str, Any]]:
    """The component's value: for each call its digest, and digests of its parts.

    Args:
      addresses: what the calls' configurations hold, in the order of the program.

    Raises:
      NotFingerprintableError: something that takes part cannot be identified by content.
    """
    _reducers()  # first: it imports parts of JAX, and such an import can add an option to those of a trace
    context = _trace_context()
    return [{**_content(address), "context": context} for address in addresses]


def _content(address: str) -> dict[str, Any]:
    call = seam.partitioning_call(address)
    if call is None:
        raise NotFingerprintableError("custom_partitioning", "a call", "its Python is gone")
    call = {**call, "classes": _classes_of_trees(call)}
    # Imported when a program needs it: few do.
    from rewarm.fingerprint import fingerprint

    found = fingerprint(call, name="custom_partitioning", reducers=_reducers(), companions=_companions)
    parts = dict(found.parts)
    if found.unordered:
        # The order of such a set may be that of the program. With a fixed PYTHONHASHSEED this is one value.
        parts["the order of sets (PYTHONHASHSEED)"] = f"{hash('rewarm') & 0xFFFF_FFFF:08x}"
    return {"digest": found.digest, "parts": parts}


def _trace_context() -> list[str]:
    """What decides a trace beside the functions: options of JAX, and the state of numpy that code can see."""
    import numpy

    options = [_text(value, "the options that shape a trace") for value in seam.trace_context()]
    return [*options, _text(numpy.geterr(), "numpy"), _text(numpy.get_printoptions(), "numpy")]


def _classes_of_trees(call: Mapping[str, Any]) -> list[type]:
    """The classes of the arguments and results: a callback is handed their objects, and calls their methods."""
    found: dict[type, None] = {}
    for name in ("in_tree", "out_tree"):
        _add_classes(call[name], found)
    return list(found)


def _add_classes(tree: Any, found: dict[type, None]) -> None:
    node = tree.node_data()
    if node is not None:
        found[node[0]] = None
    for child in tree.children():
        _add_classes(child, found)


def _tree(tree: Any) -> Any:
    """A tree by the class and the auxiliary data of each node, which are objects of the user's."""
    node = tree.node_data()
    if node is None:
        return "leaf" if tree.num_leaves else "none"
    kind, auxiliary = node
    return "node", kind, auxiliary, tuple(_tree(child) for child in tree.children())


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
    import jax.extend.core.primitives

    return {
        jax.sharding.Mesh: _mesh,
        jax.tree_util.PyTreeDef: _tree,
        jax.sharding.PartitionSpec: lambda spec: ("partition spec", _text(spec, "a PartitionSpec")),
        jax.sharding.NamedSharding: lambda one: ("sharding", one.mesh, one.spec, str(one.memory_kind)),
        jax.ShapeDtypeStruct: _shape,
        jax.extend.core.Primitive: _primitive,
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


def _shape(one: Any) -> Any:
    more = [(name, getattr(one, name)) for name in ("weak_type", "vma", "is_ref") if hasattr(one, name)]
    return "shape", one.shape, str(one.dtype), one.sharding, more


def _primitive(primitive: Any) -> Any:
    """One of JAX's own, by name. What another does is in tables of JAX, where it is not followed."""
    import jax

    for module in (jax.lax, jax.extend.core.primitives):
        if any(held is primitive for held in vars(module).values()):
            return "primitive", primitive.name
    raise NotFingerprintableError("a primitive", str(primitive), "its rules are in tables of JAX")


def _companions(cls: type) -> Any:
    """What belongs to a class of the user without being in it: how it is taken apart, and how it is copied."""
    return seam.registered_as_tree(cls), copyreg.dispatch_table.get(cls)


def _jitted(function: Any) -> Any:
    wrapped, settings = seam.jitted_parts(function)
    own = {name: value for name, value in vars(function).items() if name not in _OF_JIT}
    return "jit", wrapped, settings, own
