"""One call of a jitted function, as far as JAX looks at it before it traces.

Not promised: that two calls of one kind trace alike: what the function reads beside its arguments is for the guards.

The kind of a call is a digest over the function's name, how it was jitted, an outline of the static arguments and of
the tree of the others, for each leaf shape, type, weak type and (where it is committed) sharding and layout, and the
surroundings: all options of JAX that could shape a trace, the devices, and `XLA_FLAGS`. Static arguments and what is in
the nodes of the tree are objects of anybody's, which an outline has by type: they are guarded like the function itself.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from rewarm import settings
from rewarm.errors import NotFingerprintableError
from rewarm.fingerprint import fingerprint
from rewarm.fingerprint.naming import contents_of_cells
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.jax_values import classes_of, companions, reducers, trace_context
from rewarm.jax_adapter.seam.jitted import Parts
from rewarm.jax_adapter.trace_free.outlines import name_of_class, outline_of_tree

# Bump when records of before would be misread, or believed for less than is asked now.
SCHEMA = 1


class Asked(NamedTuple):
    """One call.

    Attributes:
      kind: the digest, 64 hexadecimal digits.
      name: of the function, for people.
      flat: the arguments that are not static, in the order of their tree.
      tree: theirs, of `(arguments, named arguments)`.
      told: what the digest was made of, by name, for people.
      objects: the static arguments, and the tree with its classes: what a trace sees of the call beside the leaves.
      likeness: a digest of the plain values that the function has closed over or as defaults: among the functions that
        one factory made, those of one likeness are looked at first. It decides nothing.
    """

    kind: str
    name: str
    flat: list[Any]
    tree: Any
    told: Mapping[str, str]
    objects: tuple[Any, ...]
    likeness: str

    @property
    def known_as(self) -> tuple[str, int]:
        """What tells it from other calls of its kind in this process: the hash of what is static, by which JAX goes."""
        (positional, named), tree, _ = self.objects
        try:
            return self.kind, hash((tuple(positional), tuple(named), tree))
        except Exception:  # noqa: BLE001 - the user's own; or a node of a tree, which JAX only compares
            return self.kind, 0


class NotAskedError(Exception):
    """Such a call is not served without a trace; the text says why, and "" that it is nothing to tell of."""


def asked(fun: Any, parts: Parts, jitted: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Asked:
    """What is asked for by `jitted(*args, **kwargs)`.

    Raises:
      NotAskedError: a call inside of a transformation or another trace, or one that cannot be told from others.
    """
    if seam.is_watched() or not seam.nothing_is_traced():
        raise NotAskedError("")
    import jax

    static, given = _divided(parts, args, kwargs)
    flat, tree = jax.tree_util.tree_flatten(given)
    leaves = [seam.leaf_of(value) for value in flat]
    if None in leaves:
        raise NotAskedError("")  # a tracer, or what JAX itself refuses
    try:
        told = {
            "function": name_of(fun),
            "jitted": _fingerprint(seam.jitted_parts(jitted)[1], "the arguments of rewarm.jit"),
            "static": _digest(_outline(static)),
            "tree": _digest(outline_of_tree(tree, _outline)),
            "arguments": _digest([[leaf.aval, leaf.placed] for leaf in leaves if leaf is not None]),
            "options": _digest(seam.options_of_a_trace()),
            "context": _digest(trace_context()),
            "devices": _digest(_devices()),
            "python": _digest([SCHEMA, sys.version, sys.flags.optimize, settings.xla_flags(), seam.version()]),
        }
    except NotFingerprintableError as error:
        raise NotAskedError(str(error)) from error
    kind = _digest(told)
    return Asked(kind, told["function"], flat, tree, told, (static, tree, classes_of(tree)), _digest(_held_by(fun)))


def name_of(fun: Any) -> str:
    """What a user calls a function: module and name, of what is wrapped where that has one."""
    for _ in range(20):
        inner = getattr(fun, "func", None) if isinstance(fun, functools.partial) else getattr(fun, "__wrapped__", None)
        if inner is None:
            break
        fun = inner
    named = fun if hasattr(fun, "__qualname__") else type(fun)
    return f"{named.__module__}.{named.__qualname__}"


def _held_by(fun: Any) -> list[Any]:
    held: list[Any] = []
    for _ in range(8):
        if isinstance(fun, functools.partial):
            held += [_outline(fun.args), _outline(tuple(fun.keywords.items()))]
            fun = fun.func
        elif isinstance(fun, MethodType):
            held.append(name_of_class(type(fun.__self__)))
            fun = fun.__func__
        else:
            break
    if isinstance(fun, FunctionType):
        held += [_outline(content) for content in contents_of_cells(fun)]
        held.append(_outline(fun.__defaults__))
    return held


def _divided(parts: Parts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The static arguments, and the others as JAX flattens them."""
    numbers = parts.static_among(len(args))
    static = (
        [(number, args[number]) for number in sorted(numbers) if number < len(args)],
        sorted((name, value) for name, value in kwargs.items() if name in parts.static_argnames),
    )
    positional = tuple(value for number, value in enumerate(args) if number not in numbers)
    return static, (positional, {name: value for name, value in kwargs.items() if name not in parts.static_argnames})


def _outline(value: Any) -> Any:
    """Plain values as they are, and everything else by its type."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return [type(value).__name__, repr(value)]
    if type(value) in (tuple, list):
        return [type(value).__name__, *map(_outline, value)]
    return name_of_class(type(value))


def _fingerprint(value: Any, name: str) -> str:
    found = fingerprint(value, name=name, reducers=reducers(), companions=companions)
    if found.unordered:
        raise NotFingerprintableError(name, "a set", "its order is another in each process")
    return found.digest


def _devices() -> list[Any]:
    """What a trace can see of the devices, whichever of them it is for."""
    import jax

    kinds = sorted({str(device.device_kind) for device in jax.devices()})
    return [jax.default_backend(), kinds, jax.device_count(), jax.local_device_count(), jax.process_index()]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
