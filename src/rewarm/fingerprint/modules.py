"""Modules: followed along the attributes that code names, and otherwise identified as a whole or refused.

Not promised: that `sys.modules` holds tomorrow what it holds now; what a name leads to is looked up at each
fingerprint.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from rewarm.fingerprint.allowed import ANY_NAME, IMPURE, IMPURE_PURE
from rewarm.fingerprint.code import Chain, Import
from rewarm.fingerprint.digest import frame, text
from rewarm.fingerprint.naming import namespace
from rewarm.fingerprint.node import Absent, Context, Edge, Node, RefusedError


def is_module(value: object) -> bool:
    """Whether this is a module of any kind."""
    return issubclass(type(value), ModuleType)


def _name(module: Any) -> str:
    said = namespace(module).get("__name__")
    return said if isinstance(said, str) else ""


def edges_of_module(label: str, module: Any, chains: frozenset[Chain], context: Context) -> Iterator[Edge]:
    """One edge per way in which code uses a variable that holds a module."""
    for chain in sorted(chains):
        step, value = label, module
        for depth, attribute in enumerate(chain):
            if not is_module(value):
                break
            step = f"{label}.{'.'.join(chain[: depth + 1])}"
            value = _attribute(value, attribute, step, context)
        yield step, value


def _attribute(module: Any, name: str, label: str, context: Context) -> object:
    said = _name(module)
    owner = context.trusted.owner(said)
    if owner is not None and owner.distribution and (reason := context.trusted.objection(owner, said, name)):
        raise RefusedError(reason, label=label, found="a function or module")
    if name == "__dict__":
        raise RefusedError("the namespace of a module holds more than can be followed", label=label, found="a module")
    if owner is None and type(module) is not ModuleType:
        raise RefusedError("a module of its own kind, which may answer with code", label=label, found="a module")
    held = namespace(module)
    if name in held:
        return held[name]
    if owner is None or not owner.distribution:
        return _absent(held, name, label)
    try:  # packages that import their parts when they are first named
        return getattr(module, name)
    except AttributeError:
        return Absent("attribute")
    except Exception as error:
        raise RefusedError(f"it cannot be had: {type(error).__name__}", label=label, found="an attribute") from error


def _absent(held: dict[str, Any], name: str, label: str) -> Absent:
    if "__getattr__" in held:
        raise RefusedError("the module makes this attribute when it is asked", label=label, found="an attribute")
    if hasattr(ModuleType, name):
        raise RefusedError("an attribute of the module object itself", label=label, found="an attribute")
    return Absent("attribute")


def edges_of_import(statement: Import, scope: dict[str, Any], context: Context) -> Iterator[Edge]:
    """The edges of an import statement inside a function: what it will find."""
    label = f"import {'.' * statement.level}{statement.module}"
    name, bound = (_absolute(part, statement.level, scope, label) for part in (statement.module, statement.bound))
    module, attributes = sys.modules.get(bound), statement.attributes
    if name not in sys.modules or module is None:
        raise RefusedError(_LATE, label=label, found="a module")
    if attributes and name == bound and attributes[0] not in namespace(module):
        # `from package import part` also finds, or imports, a module that is not an attribute.
        part = sys.modules.get(f"{name}.{attributes[0]}")
        if part is None and "__getattr__" not in namespace(module):
            raise RefusedError(_LATE, label=f"{label}.{attributes[0]}", found="a module or attribute")
        if part is not None:
            module, attributes = part, attributes[1:]
    yield from edges_of_module(label, module, frozenset(attributes + chain for chain in statement.chains), context)


_LATE = "it is imported only when the function runs"


def _absolute(name: str, level: int, scope: dict[str, Any], label: str) -> str:
    if not level:
        return name
    try:
        return importlib.util.resolve_name("." * level + name, scope.get("__package__"))
    except (ImportError, TypeError) as error:
        raise RefusedError("a relative import of an unknown package", label=label, found="a module") from error


def describe_module(module: Any, context: Context) -> Node:
    """A module that is used as a value: whoever gets it can read any attribute.

    Raises:
      RefusedError: it is no module of Python's pure ones or of a trusted distribution.
    """
    name = _name(module)
    owner = context.trusted.owner(name)
    if owner is None or sys.modules.get(name) is not module:
        raise RefusedError("a module used as a value: which of its attributes count cannot be told")
    if name == "builtins":
        raise RefusedError("all builtin functions, as a value")
    if reason := context.trusted.objection(owner, name, ""):
        raise RefusedError(reason)
    words = IMPURE.get(owner.distribution) if owner.distribution else IMPURE_PURE.get(name)
    context.beware(
        (words or frozenset()) | ANY_NAME,
        f"the module {name} is used as a value, and its attribute of this name is not pure",
    )
    return Node("module", frame(text(owner.identity), text(name)), lasting=False, note=name)
