"""JAX's own values, taken apart into plain ones, for fingerprints of Python that holds them.

Not promised: every type. What is not known here is followed like any object, or refused.
"""

from __future__ import annotations

import copyreg
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rewarm.errors import NotFingerprintableError
from rewarm.jax_adapter import seam

_ADDRESS = " at 0x"

# What `jax.jit` itself puts on a function; anything else is the user's.
_OF_JIT = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__type_params__", "__wrapped__", "_fun", "_jit_info"})


def trace_context() -> list[str]:
    """What decides a trace beside the functions: options of JAX, and the state of numpy that code can see."""
    import numpy

    options = [text_of(value, "the options that shape a trace") for value in seam.trace_context()]
    settings = (numpy.geterr(), numpy.get_printoptions(), numpy.getbufsize())
    return [*options, *(text_of(value, "numpy") for value in settings)]


def classes_of(*trees: Any) -> list[type]:
    """The classes of the nodes of trees, each once: whoever is handed such objects calls their methods."""
    found: dict[type, None] = {}
    for tree in trees:
        _add_classes(tree, found)
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


def text_of(value: Any, path: str) -> str:
    """A value of JAX's own that says all of itself in its text."""
    text = repr(value)
    if _ADDRESS in text:
        raise NotFingerprintableError(path, type(value).__name__, "its text is an address")
    return text


_registered: dict[type, Callable[[Any], Any]] = {}


def register_reducer(cls: type, reducer: Callable[[Any], Any]) -> None:
    """Have instances of a class of ours taken apart like JAX's own."""
    _registered[cls] = reducer


def reducers() -> Mapping[type, Callable[[Any], Any]]:
    """How JAX's own types, and ours, are taken apart into plain values."""
    return {**_of_jax(), **_registered}


@functools.cache
def _of_jax() -> Mapping[type, Callable[[Any], Any]]:
    import jax

    return {
        jax.sharding.Mesh: _mesh,
        jax.tree_util.PyTreeDef: _tree,
        jax.sharding.PartitionSpec: lambda spec: ("partition spec", text_of(spec, "a PartitionSpec")),
        jax.sharding.NamedSharding: lambda one: ("sharding", one.mesh, one.spec, str(one.memory_kind)),
        jax.ShapeDtypeStruct: _shape,
        seam.primitive_type(): _primitive,
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

    key = seam.key_parts(array)
    if key is not None:
        return "random key", *key
    if not array.is_fully_addressable:
        raise NotFingerprintableError("a jax.Array", str(array.sharding), "parts of it are on other hosts")
    return "array", numpy.asarray(array), bool(getattr(array, "weak_type", False)), *_place(array)


def _place(array: Any) -> tuple[Any, ...]:
    """Where an array lies, which code can ask for and a program keeps; the devices as each process numbers its own."""
    import jax

    sharding = array.sharding
    committed = bool(getattr(array, "committed", True))
    if isinstance(sharding, jax.sharding.NamedSharding):
        return sharding, committed
    parts = (
        sharding.devices_indices_map(array.shape)
        if len(sharding.device_set) > 1
        else dict.fromkeys(sharding.device_set)
    )
    places = tuple((_number(device), repr(part)) for device, part in parts.items())
    return type(sharding).__name__, places, str(sharding.memory_kind), committed


@functools.lru_cache
def _number(device: Any) -> int:
    """The place of a device among those of its process."""
    return list(device.client.local_devices()).index(device)


def _shape(one: Any) -> Any:
    more = [(name, getattr(one, name)) for name in ("weak_type", "vma", "is_ref") if hasattr(one, name)]
    return "shape", one.shape, str(one.dtype), one.sharding, more


def _primitive(primitive: Any) -> Any:
    """One of JAX's own, by name. What another does is in tables of JAX, where it is not followed."""
    import jax

    # Whoever holds one of the others has it from there, or from a module of JAX's that is private.
    for module in (jax.lax, sys.modules.get("jax.extend.core.primitives")):
        if module is not None and any(held is primitive for held in vars(module).values()):
            return "primitive", primitive.name
    raise NotFingerprintableError("a primitive", str(primitive), "its rules are in tables of JAX")


def companions(cls: type) -> Any:
    """What belongs to a class of the user without being in it: how it is taken apart, and how it is copied."""
    return seam.registered_as_tree(cls), copyreg.dispatch_table.get(cls)


def _jitted(function: Any) -> Any:
    wrapped, settings = seam.jitted_parts(function)
    own = {name: value for name, value in vars(function).items() if name not in _OF_JIT}
    return "jit", wrapped, settings, own
