"""Objects that count by their name: code of Python's pure modules and of unmodified trusted distributions.

Not promised: that the settings which such code reads are known. What `jax.config` or `numpy.errstate` say is for the
caller to add.

A name is believed only if it leads back to the very object: `functools.wraps` gives any function any name.
"""

from __future__ import annotations

import abc
import functools
import sys
import types
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from rewarm.fingerprint.code import code_facts
from rewarm.fingerprint.digest import frame, text
from rewarm.fingerprint.node import Context, Node, RefusedError
from rewarm.fingerprint.trust import Owner, single_owner
from rewarm.fingerprint.values import decimal_context

# Types of Python that no module holds under their own name.
_UNNAMED_TYPES: dict[type, str] = {
    kind: f"types.{name}" for name, kind in sorted(vars(types).items()) if type(kind) is type
} | {type({}.keys()): "dict_keys", type({}.values()): "dict_values", type({}.items()): "dict_items"}

# Where ufuncs, which say no module, are found.
_UFUNC_MODULES = ("numpy", "numpy._core.umath", "scipy.special", "scipy.special._ufuncs", "ml_dtypes")


def namespace(value: Any) -> dict[str, Any]:
    """The dictionary of a module or class, whatever it overrides."""
    if issubclass(type(value), type):
        return dict(type.__dict__["__dict__"].__get__(value))
    found: dict[str, Any] = vars(ModuleType)["__dict__"].__get__(value)
    return found


def leads_to(value: object, module: str, qualname: str) -> bool:
    """Whether the name leads to the object."""
    home = sys.modules.get(module)
    if home is None:
        return False
    at: Any = home
    for part in qualname.split("."):
        if not issubclass(type(at), (ModuleType, type)):
            return False
        at = namespace(at).get(part)
    # jaxlib has a class whose qualified name holds its module.
    return at is value or namespace(home).get(qualname.rpartition(".")[2]) is value


def named(owner: Owner, module: str, name: str, context: Context, *, code: bytes = b"") -> Node:
    """The node of an object that counts by name."""
    reason = context.trusted.objection(owner, module, name)
    if reason is not None:
        raise RefusedError(reason)
    return Node(
        "named", frame(text(owner.identity), text(module), text(name), code), lasting=False, note=f"{module}.{name}"
    )


def owner_of_function(function: FunctionType, context: Context) -> tuple[Owner, str] | None:
    """Who answers for a function, and its real module; a forged `__module__` does not help."""
    scope = function.__globals__
    module = scope.get("__name__")
    if type(module) is not str or getattr(sys.modules.get(module), "__dict__", None) is not scope:
        return None
    name = function.__code__.co_qualname
    owner = single_owner(module, name) if leads_to(function, module, name) else None
    owner = owner or context.trusted.owner(module)
    return None if owner is None else (owner, module)


def is_module_level(function: FunctionType, module: str, context: Context) -> bool:
    """Whether a trusted function is one that its module defines, with nothing foreign closed over."""
    if not leads_to(function, module, function.__code__.co_qualname):
        return False
    return not any(
        type(inner) is FunctionType and owner_of_function(inner, context) is None for inner in _closed_over(function)
    )


def _closed_over(function: FunctionType) -> Iterator[object]:
    for content in contents_of_cells(function):
        yield content.__func__ if type(content) is MethodType else content


def contents_of_cells(function: FunctionType) -> Iterator[object]:
    """What a function has closed over, in the order of its cells; those that are empty are left out."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


def named_class(cls: type, context: Context) -> Node | None:
    """The node of a class that counts by name, or `None`."""
    found: Node | None = context.of_class("named", cls, lambda one: _named_class(one, context))
    return found


def _named_class(cls: type, context: Context) -> Node | None:
    if cls in _UNNAMED_TYPES:
        return Node("type", text(_UNNAMED_TYPES[cls]), lasting=False, note=_UNNAMED_TYPES[cls])
    module, qualname = type.__dict__["__module__"].__get__(cls), type.__dict__["__qualname__"].__get__(cls)
    if type(module) is not str:
        return None
    owner = context.trusted.owner(module)
    if owner is None or not leads_to(cls, module, qualname):
        return None
    if isinstance(cls, abc.ABCMeta):
        _refuse_registered(cls, context)
    if module == "builtins":  # only functions are on the list of what is pure
        return Node("type", frame(text(owner.identity), text(qualname)), lasting=False, note=qualname)
    return named(owner, module, qualname, context, code=text(decimal_context()) if module == "decimal" else b"")


def _refuse_registered(cls: abc.ABCMeta, context: Context) -> None:
    """An abstract class by name says nothing of the classes of the user that were registered with it."""
    for found in (reference() for reference in abc._get_dump(cls)[0]):  # type: ignore[attr-defined]
        module = str(getattr(found, "__module__", ""))
        if module.partition(".")[0] not in sys.stdlib_module_names and context.trusted.owner(module) is None:
            raise RefusedError(f"{module}.{found.__name__} is registered with it")


def named_builtin(function: BuiltinFunctionType, context: Context) -> Node:
    """The node of a function of a C module."""
    home = function.__self__
    module = home.__name__ if type(home) is ModuleType else function.__module__
    name = function.__name__
    if type(module) is str and leads_to(function, module, name):
        owner = single_owner(module, name) or context.trusted.owner(module)
        if owner is not None:
            return named(owner, module, name, context)
    raise RefusedError(f"a C function of {module or 'an unknown module'}, which may read anything")


def named_object(value: object, context: Context) -> Node | None:
    """The node of any other object that a trusted module holds under the name that it says, or `None`.

    Only objects whose type counts by name are asked for their name: others could answer with code.
    """
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if type(name) is not str:
        return None
    said = getattr(value, "__module__", None)
    for module in (said,) if type(said) is str else _UFUNC_MODULES:
        owner = context.trusted.owner(module) if module in sys.modules else None
        if owner is not None and leads_to(value, module, name):
            code = _wrapped_code(value, context)
            return None if code is None else named(owner, module, name, context, code=code)
    return None


def _wrapped_code(value: Any, context: Context) -> bytes | None:
    """The digest of the Python function at the bottom of an object (b"" without one); `None` if it is foreign."""
    for _ in range(20):
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is None:
            break
        value = wrapped.func if type(wrapped) is functools.partial else wrapped
    if type(value) is not FunctionType:
        return b""
    if owner_of_function(value, context) is None:
        return None
    return code_facts(value.__code__).digest
