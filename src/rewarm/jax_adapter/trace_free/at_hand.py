"""Objects that a call has at hand, in an order that is the same in each process where the guards hold.

Not promised: everything that is reachable. The tree of a call's results may hold objects that no pickle can name, such
as the functions of an optimiser, which it has from the arguments, from what the function captured, or from its module.
They are written as places in this order, and looked up there by the process that reads them.

What is at hand is walked breadth first, through containers, attributes, closures and bound objects; the guards have
found all of it to be as it was, so the walk meets the same things in the same order.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from rewarm.fingerprint.naming import contents_of_cells

_MOST = 20_000

# What a pickle writes by content or by name, and what leads nowhere.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), CodeType, ModuleType, BuiltinFunctionType)


def objects_at_hand(roots: Iterable[object]) -> list[object]:
    """Functions and instances that the roots lead to, each once."""
    found: list[object] = []
    seen: dict[int, object] = {}
    waiting = deque(roots)
    while waiting and len(seen) < _MOST:
        one = waiting.popleft()
        if isinstance(one, _PLAIN) or id(one) in seen:
            continue
        seen[id(one)] = one
        if is_named_by_place(one):
            found.append(one)
        waiting.extend(_inside(one))
    return found


def is_named_by_place(value: object) -> bool:
    """Whether an object is one that is looked up instead of being written out."""
    if type(value) is FunctionType:
        return True
    if isinstance(value, (type, list, dict, set, frozenset, MethodType, *_PLAIN)):
        return False
    if isinstance(value, tuple) and not hasattr(type(value), "_fields"):
        return False
    return not type(value).__module__.startswith(("jax", "numpy", "builtins"))


def _inside(value: Any) -> Iterator[object]:
    kind = type(value)
    if kind in (tuple, list) or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        yield from tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)
    elif kind is dict:
        yield from value.values()
    elif kind.__name__ == "PyTreeDef":
        node = value.node_data()
        yield None if node is None else node[1]
        yield from value.children()
    elif kind is MethodType:
        yield value.__self__
        yield value.__func__
    elif kind is FunctionType:
        yield from value.__defaults__ or ()
        yield from (value.__kwdefaults__ or {}).values()
        yield from contents_of_cells(value)
        yield from (value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__)
        yield from vars(value).values()
    elif not isinstance(value, type):
        if isinstance(value, functools.partial):
            yield from (value.func, value.args, value.keywords)
        held = getattr(value, "__dict__", None)
        if type(held) is dict:
            yield from list(held.values())
