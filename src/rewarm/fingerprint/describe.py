"""One object to one node: which rule applies.

Not promised: an answer. What no rule knows is refused.
"""

from __future__ import annotations

import functools
from types import BuiltinFunctionType, FunctionType
from typing import Any

from rewarm.fingerprint.allowed import CLOCK_READS, HOPELESS, NAMING, PATH_READS
from rewarm.fingerprint.arrays import describe_numpy, is_numpy
from rewarm.fingerprint.classes import describe_class, dictionary, is_of_c, layout, state
from rewarm.fingerprint.code import SETS
from rewarm.fingerprint.digest import frame, text, texts
from rewarm.fingerprint.functions import describe_function
from rewarm.fingerprint.modules import describe_module, is_module
from rewarm.fingerprint.naming import named_builtin, named_class, named_object
from rewarm.fingerprint.node import Absent, Context, Edge, Node, RefusedError
from rewarm.fingerprint.values import CONTENT, EXACT, PLAIN, WITH_ATTRIBUTES, Content, attributes, by_name

_OUTSIDE = {
    "pathlib": (PATH_READS, "a path is on the way, whose attribute of this name reads the file system"),
    "pathlib._local": (PATH_READS, "a path is on the way, whose attribute of this name reads the file system"),
    "datetime": (CLOCK_READS, "a date is on the way, whose attribute of this name reads the clock or the time zone"),
}


def describe(value: Any, context: Context) -> Node:  # noqa: PLR0911 - one line per rule
    """The node of any object but plain scalars.

    Raises:
      RefusedError: nothing is known about it, or too much.
    """
    kind = type(value)
    if kind is FunctionType:
        return describe_function(value, context)
    if kind is Absent:
        return Node("absent", text(value.what), lasting=False, note=value.what)
    reduced = _reduced(value, kind, context)
    if reduced is not None:
        return reduced
    if kind in CONTENT:
        content = CONTENT[kind](value)
        if kind in WITH_ATTRIBUTES:
            content = content._replace(edges=(*content.edges, ("attributes", attributes(value))))
        return _builtin(kind, content, lasting=kind not in PLAIN)
    if issubclass(kind, type):
        return _class(value, context)
    if kind is BuiltinFunctionType:
        return _c_function(value, context)
    if is_module(value):
        return describe_module(value, context)
    if kind in EXACT:
        return _builtin(kind, EXACT[kind](value), lasting=False)
    return _instance(value, kind, context)


def _builtin(kind: type, content: Content, *, lasting: bool) -> Node:
    return Node(_name_of(kind), content.own, content.edges, lasting, unordered=content.unordered)


@functools.cache
def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"


def _class(value: Any, context: Context) -> Node:
    node = named_class(value, context)
    if node is None:
        return describe_class(value, context)
    _can(value.__name__, context)
    if value is set or value is frozenset:  # under whatever name: what is made with it has an order
        context.words.add(SETS)
    return node


def _can(name: str, context: Context) -> None:
    """Whoever holds `getattr` or `str` under another name can read any name or make text of it."""
    context.words.add(name)
    context.reads_names = context.reads_names or name in NAMING


def _c_function(value: Any, context: Context) -> Node:
    owner = value.__self__
    if owner is None or is_module(owner):
        node = named_builtin(value, context)
        _can(value.__name__, context)
        return node
    return Node("method of C", text(value.__name__), (("self", owner),), lasting=False)


def _reduced(value: object, kind: type, context: Context) -> Node | None:
    if not context.reducers:
        return None
    known = context.reduced_as(kind)
    if known is None:
        return None
    plain = context.reducers[known](value)
    edges: list[Edge] = [("content", plain)]
    if known is not kind:  # what the reducer does not know of
        edges.append(("class", kind))
        edges += ((f"attribute {name}", item) for name, item in dictionary(value))
    labels = tuple(label for label, _ in edges)
    return Node("reduced", frame(text(f"{known.__module__}.{known.__qualname__}"), texts(labels)), tuple(edges))


def _instance(value: object, kind: type, context: Context) -> Node:
    if context.of_class("plain", kind, lambda one: _is_plain(one, context)):
        return _state_and_class(value, kind, context)
    rule = by_name(kind)
    if rule is not None:
        content = rule(value)
        if kind.__module__ in _OUTSIDE:
            context.beware(*_OUTSIDE[kind.__module__])
        return _builtin(kind, content, lasting=False)
    hopeless = context.of_class("hopeless", kind, _hopeless)
    if hopeless is not None:
        raise RefusedError(hopeless)
    node = describe_numpy(value, context)
    if node is not None:
        return node
    # Only a type that counts by name, or one of C that cannot be followed anyway, is asked for its name.
    is_known = named_class(kind, context) is not None or context.of_class("of C", kind, is_of_c)
    if is_known and (node := named_object(value, context)) is not None:
        return node
    if kind.__base__ is tuple and hasattr(kind, "n_sequence_fields"):  # sys.version_info and its like
        return Node("structure", text(f"{kind.__module__}.{kind.__name__}"), (("fields", value.__reduce__()[1]),))
    return _state_and_class(value, kind, context)


def _is_plain(kind: type, context: Context) -> bool:
    """Whether instances of a class are what their attributes hold, as those of nearly all classes are."""
    return not (
        by_name(kind) is not None
        or context.of_class("hopeless", kind, _hopeless) is not None
        or is_numpy(kind)
        or named_class(kind, context) is not None
        or context.of_class("of C", kind, is_of_c)
        or (kind.__base__ is tuple and hasattr(kind, "n_sequence_fields"))
    )


def _hopeless(kind: type) -> str | None:
    return next((HOPELESS[key] for cls in kind.__mro__ if (key := (cls.__module__, cls.__name__)) in HOPELESS), None)


def _state_and_class(value: Any, kind: type, context: Context) -> Node:
    base = next(cls for cls in kind.__mro__ if cls in CONTENT)
    labels, edges = state(value, context.of_class("layout", kind, lambda one: layout(one, base)))
    content = CONTENT[base](value)
    if content.unordered:
        elements: Any = frozenset(base.__iter__(value))  # type: ignore[attr-defined]
        content = Content(b"", (("elements", elements),))
    return Node(
        "instance",
        frame(content.own, texts(labels), len(content.edges).to_bytes(8, "little")),
        (("class", kind), *content.edges, *edges),
    )
