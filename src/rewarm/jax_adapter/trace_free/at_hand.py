"""Objects that a call has at hand, each with a way by which another process finds its own.

Not promised: everything that is reachable. The tree of a call's results may hold objects that no pickle can name, such
as the functions of an optimiser, which it has from the arguments, from what the function captured, or from its module.
They are written as ways from the call, and the process that reads them goes that way.

A way leads through containers, attributes, closures, bound objects and the globals that code reads, step by step, and
each step has a name. The guards have found all of it to be as it was, so each step leads where it led; what else is
there now makes no difference.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from rewarm.fingerprint.code import code_facts

_MOST = 20_000

# What a pickle writes by content or by name, and what leads nowhere.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), CodeType, ModuleType, BuiltinFunctionType)

Step = tuple[str, Any]
Way = tuple[Step, ...]


def ways_to_objects(roots: Sequence[object]) -> dict[int, tuple[object, Way]]:
    """Functions and instances that the roots lead to, by id, each with the shortest way to it."""
    found: dict[int, tuple[object, Way]] = {}
    seen: dict[int, object] = {}
    waiting: deque[tuple[object, Way]] = deque((one, (("root", number),)) for number, one in enumerate(roots))
    while waiting and len(seen) < _MOST:
        one, way = waiting.popleft()
        if isinstance(one, _PLAIN) or id(one) in seen:
            continue
        seen[id(one)] = one
        if is_found_by_way(one):
            found[id(one)] = one, way
        waiting.extend((inner, (*way, step)) for step, inner in _inside(one))
    return found


def at_the_end_of(way: Way, roots: Sequence[object]) -> object:
    """Where a way leads in this process.

    Raises:
      LookupError: nowhere.
    """
    (_, number), *steps = way
    at = roots[number]
    for step in steps:
        at = next((inner for name, inner in _inside(at) if name == step), _NOWHERE)
        if at is _NOWHERE:
            raise LookupError(f"{step[0]} {step[1]} is not there any more")
    return at


_NOWHERE = object()


def is_found_by_way(value: object) -> bool:
    """Whether an object is one that is looked up instead of being written out."""
    if type(value) is FunctionType:
        return True
    if isinstance(value, (type, list, dict, set, frozenset, MethodType, *_PLAIN)):
        return False
    if isinstance(value, tuple) and not hasattr(type(value), "_fields"):
        return False
    return not type(value).__module__.startswith(("jax", "numpy", "builtins"))


def _inside(value: Any) -> Iterator[tuple[Step, object]]:
    kind = type(value)
    if kind in (tuple, list) or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        items = tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)
        yield from ((("item", number), item) for number, item in enumerate(items))
    elif kind is dict:
        yield from ((("value", number), item) for number, item in enumerate(value.values()))
    elif kind.__name__ == "PyTreeDef":
        node = value.node_data()
        yield ("node", 0), None if node is None else node[1]
        yield from ((("child", number), child) for number, child in enumerate(value.children()))
    elif kind is MethodType:
        yield ("self", 0), value.__self__
        yield ("function", 0), value.__func__
    elif kind is FunctionType:
        yield from _of_function(value)
    elif not isinstance(value, type):
        if isinstance(value, functools.partial):
            yield from ((("part", number), one) for number, one in enumerate((value.func, value.args, value.keywords)))
        held = getattr(value, "__dict__", None)
        if type(held) is dict:
            yield from ((("attribute", name), one) for name, one in list(held.items()))


def _of_function(function: FunctionType) -> Iterator[tuple[Step, object]]:
    yield from ((("default", number), one) for number, one in enumerate(function.__defaults__ or ()))
    yield from ((("default", name), one) for name, one in (function.__kwdefaults__ or {}).items())
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield ("closed over", name), cell.cell_contents
        except ValueError:
            continue
    # Globals that the code reads, which are guarded; not all that have a name which it uses.
    for name in code_facts(function.__code__).globals:
        if name in function.__globals__:
            yield ("global", name), function.__globals__[name]
    yield from ((("attribute", name), one) for name, one in vars(function).items())
