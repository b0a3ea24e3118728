"""Where functions and classes come from, in a text that is equal in each process.

Not promised: that two functions of one text are one function. What a function closed over counts where a library's
variable holds it (`holdings.py`); here its code, its defaults and the arguments of a `functools.partial` count.

What rewarm itself puts around a function of JAX's counts as that function.
"""

from __future__ import annotations

import abc
import functools
import os
import sys
from collections.abc import Iterator
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from rewarm.fingerprint.code import code_facts
from rewarm.guards.holdings import text_of
from rewarm.guards.owners import split
from rewarm.guards.places import JAX, kind_of_file, kind_of_module
from rewarm.guards.records import digest_of

MISSING: Any = type("Missing", (), {})()
# What stands around no Python function: values, and what C gives a class. They are asked first, since there are many.
_BARE = frozenset(
    {type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset}
    | {MemberDescriptorType, GetSetDescriptorType, WrapperDescriptorType, MethodDescriptorType}
    | {ClassMethodDescriptorType}
)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120 - text
# Values of defaults and arguments that one text looks at.
_GIVEN = 100
_LONGEST = 200
_SIMPLE = frozenset({type(None), bool, int, float})
_FEW = 10


def codes_of(value: Any) -> Iterator[CodeType]:
    """The code of a function, and of what wrappers stand around."""
    return (function.__code__ for function in functions_of(value))


def functions_of(value: Any) -> Iterator[FunctionType]:
    for _ in range(12):
        kind = type(value)
        if kind is FunctionType:
            yield value
            inner = value.__dict__.get("__wrapped__", MISSING)
        elif kind in (staticmethod, classmethod, MethodType):
            inner = value.__func__
        elif kind is property:
            for one in (value.fget, value.fset, value.fdel):
                if one is not None:
                    yield from functions_of(one)
            return
        else:
            inner = _wrapped(value)
        if inner is MISSING:
            return
        value = inner


def _wrapped(value: Any) -> Any:
    if type(value) in _BARE:
        return MISSING
    for name in ("__wrapped__", "func", "fun"):
        try:
            return object.__getattribute__(value, name)
        except AttributeError:
            continue
        except Exception:  # noqa: BLE001 - anybody's descriptor
            return MISSING
    return MISSING


def origin_of(value: Any) -> str | None:  # noqa: PLR0911 - one line per kind
    """Where a function or class comes from; `None` for anything else."""
    kind = type(value)
    if kind is FunctionType:
        if value.__code__.co_filename.startswith(_OURS) and "__wrapped__" in value.__dict__:
            return origin_of(value.__wrapped__)
        return _origin_of_code(value.__code__) + _defaults(value)
    if kind in _BARE:
        return None
    if issubclass(kind, type):
        return f"class {value.__module__}.{value.__qualname__}{_registered(value)}"
    if kind is BuiltinFunctionType:
        owner = value.__self__
        return f"C {owner.__name__ if type(owner) is ModuleType else type(owner).__name__}.{value.__name__}"
    if kind is functools.partial:
        inside = origin_of(value.func)
        return inside and f"functools.partial of {inside} {_short(value.args, value.keywords)}"
    inner = next(functions_of(value), None) if hasattr(kind, "__call__") else None  # noqa: B004 - no instance is asked
    return f"{kind.__module__}.{kind.__qualname__} of {origin_of(inner)}" if inner is not None else None


def _defaults(function: FunctionType) -> str:
    """The defaults of a function that is not of Python's own: somebody may have set others."""
    plain, named = function.__defaults__, function.__kwdefaults__
    if (plain is None and named is None) or kind_of_file(function.__code__.co_filename) == "python":
        return ""
    if named is None and _SIMPLE.issuperset(map(type, plain or ())):  # most of them
        return f" by default {plain}" if len(plain or ()) < _FEW else f" by default {digest_of(repr(plain))}"
    return f" by default {_short(plain, named)}"


def _short(*values: object) -> str:
    text = text_of(values, most=_GIVEN)
    return text if len(text) <= _LONGEST else digest_of(text)


def _registered(cls: Any) -> str:
    """What was registered with an abstract class of Python's, of the user's, of JAX's packages and of builtins.

    Other modules register their own classes when they are imported, and more may be imported at the next start.
    """
    if not isinstance(cls, abc.ABCMeta) or cls.__module__.partition(".")[0] not in sys.stdlib_module_names:
        return ""
    found = [one for one in (reference() for reference in abc._get_dump(cls)[0]) if one is not None]  # type: ignore[attr-defined]
    names = sorted(f"{one.__module__}.{one.__qualname__}" for one in found if _is_registered_by_others(one))
    return f" with {len(names)} more, {digest_of(' '.join(names))[:12]}" if names else ""


def _is_registered_by_others(cls: type) -> bool:
    module = str(cls.__module__)
    top = module.partition(".")[0]
    if top in JAX:  # of those, JAX's compiler has classes that it registers itself
        return not module.startswith("jaxlib.mlir")
    return module in ("builtins", "__main__") or kind_of_module(module) == "user"


_origins: dict[int, tuple[CodeType, str]] = {}


def _origin_of_code(code: CodeType) -> str:
    known = _origins.get(id(code))
    if known is None or known[0] is not code:
        known = _origins[id(code)] = (code, _origin(code))
    return known[1]


def _origin(code: CodeType) -> str:
    kind = kind_of_file(code.co_filename)
    if kind in ("jax", "library"):
        return f"{split(code.co_filename)[1]}:{code.co_qualname}"
    if kind == "python":
        return f"python {code.co_qualname}"
    return f"{code.co_qualname} {code_facts(code).digest.hex()[:16]}"
