"""Functions: their code, and everything that the code names.

Not promised: what a function does to the containers that it captures. Their contents at the time of the fingerprint
count, so a cache that fills up gives a new digest and not a wrong one. Functions that set variables outside
themselves (`global`, `nonlocal`) are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from rewarm.fingerprint.allowed import NAMING, REFLECTION
from rewarm.fingerprint.code import Chain, CodeFacts, code_facts
from rewarm.fingerprint.digest import frame, said_text, texts
from rewarm.fingerprint.modules import edges_of_import, edges_of_module, is_module
from rewarm.fingerprint.naming import is_module_level, named, owner_of_function
from rewarm.fingerprint.node import Absent, Context, Edge, Node, RefusedError


def describe_function(function: Any, context: Context) -> Node:
    """A function of Python, whoever wrote it."""
    owned = owner_of_function(function, context)
    facts = code_facts(function.__code__)
    if owned is None:
        return _followed(function, facts, context)
    owner, module = owned
    context.reads_annotations = context.reads_annotations or module == "inspect"
    name = function.__code__.co_qualname
    node = named(owner, module, name, context, code=facts.digest)
    if is_module_level(function, module, context):
        return node
    if module == "functools" and name == "singledispatch.<locals>.wrapper":
        # Its closure also holds a cache of weak references, filled as it is called.
        edges: list[Edge] = [("registry", function.registry), ("function", function.__wrapped__)]
    else:
        cells = ((name, context.held(module, function, name, value)) for name, value in _cells(function))
        edges = [*_state(function), *((f"closure {name}", value) for name, value in cells)]
    own = frame(node.own, texts(tuple(label for label, _ in edges)))
    return node._replace(own=own, edges=tuple(edges), lasting=True, is_part=True, captures=True)


def _followed(function: FunctionType, facts: CodeFacts, context: Context) -> Node:
    idle = context.is_idle(function)
    if not idle:
        _look(facts, context)
        if context.watched is not None:
            context.watched.codes[id(function.__code__)] = function.__code__
    edges = [*_state(function)]
    for name, value in _cells(function):
        edges += _gathered(f"closure {name}", _closed(name, value, facts, context), idle=idle)
    for name, chains in facts.globals.items():
        edges += _gathered(f"global {name}", _global(function, name, chains, context), idle=idle)
    for statement in facts.imports:
        label = f"import {statement.module}"
        edges += _gathered(label, edges_of_import(statement, function.__globals__, context), idle=idle)
    context.names.append(_names(function))
    context.functions.append(function)
    return Node(
        "function",
        frame(facts.digest, texts(tuple(label for label, _ in edges))),
        tuple(edges),
        note=f"code {facts.digest.hex()[:12]}",
        is_part=True,
        captures=True,
        later=idle,
    )


def _gathered(label: str, edges: Iterator[Edge], *, idle: bool) -> list[Edge]:
    """The edges; of code that did not run, what cannot be identified is left out."""
    try:
        return list(edges)
    except RefusedError:
        if not idle:
            raise
        return [(label, Absent("something that cannot be identified"))]


def _look(facts: CodeFacts, context: Context) -> None:
    """Refuses code that changes or looks behind things, and notes what it reads."""
    if facts.stores:
        raise RefusedError(f"it sets a variable outside itself ({facts.stores[0]}), so a second call may differ")
    behind = sorted(facts.words & REFLECTION)
    if behind:
        raise RefusedError(f"it reads {behind[0]}, behind which anything can be")
    context.words |= facts.words
    if "from_callable" in facts.words:  # the other way to a signature
        context.reads_annotations = True
    if facts.formats or facts.words & NAMING or facts.globals.keys() & NAMING:
        context.reads_names = True


def _names(function: FunctionType) -> bytes:
    doc = function.__doc__
    said = (function.__name__, function.__qualname__, function.__module__, function.__code__.co_name)
    return frame(b"function", *(said_text(word) for word in (*said, doc)))


def annotations_of(function: FunctionType) -> bytes:
    """The annotations of a function, as far as words tell them."""
    try:
        told = [word for name, one in function.__annotations__.items() for word in (name, _annotation(one))]
    except Exception:  # noqa: BLE001 - from 3.14 on, the user's expressions are evaluated here
        told = ["annotations that cannot be evaluated"]
    return texts(tuple(told))


def _annotation(value: Any) -> str:
    """An annotation in words: a text, a class or what `typing` makes of classes; of anything else its type."""
    if type(value) is str:
        return repr(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if type(value).__module__ in ("builtins", "types", "typing"):
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _state(function: FunctionType) -> Iterator[Edge]:
    for index, value in enumerate(function.__defaults__ or ()):
        yield f"default {index}", value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield f"default {name}", value
    for name, value in function.__dict__.items():
        yield f"attribute {name}", value


def _cells(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            content = Absent("empty cell")
        yield name, content


def _closed(name: str, value: object, facts: CodeFacts, context: Context) -> Iterator[Edge]:
    label = f"closure {name}"
    if is_module(value):
        yield from edges_of_module(label, value, facts.free.get(name, frozenset()), context)
    else:
        yield label, value


def _global(function: FunctionType, name: str, chains: frozenset[Chain], context: Context) -> Iterator[Edge]:
    known: Any = function  # not every checker knows the second
    scope, builtins = known.__globals__, known.__builtins__
    label = f"global {name}"
    if name in ("__builtins__", "__loader__", "__spec__"):
        raise RefusedError("the machinery of imports", found=name, label=label)
    value = scope[name] if name in scope else builtins.get(name, Absent("global"))
    if is_module(value):
        yield from edges_of_module(label, value, chains, context)
    elif value is hash and function.__code__.co_name == "__hash__":
        # Dictionaries and sets find the same things whatever the hash is; frozen dataclasses have this method.
        yield label, Absent("the builtin hash")
    else:
        yield label, value
