"""Libraries: state that a trace reads and no argument shows (what the user put into tables of JAX's and of Python's),
and objects of theirs that keep more than code can depend on.

Not promised: every library. What is not listed here is seen only where it is a value that the library's code names
(`guards/holdings.py`). Nor what a library puts into such tables when it is imported: that is its code.
"""

from __future__ import annotations

import copyreg
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

from rewarm.fingerprint.naming import contents_of_cells
from rewarm.guards import Adapter
from rewarm.guards.holdings import text_of
from rewarm.guards.places import kind_of_file, kind_of_module
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.trace_free.outlines import name_of_class

_DEPTH = 6


Rows = list[tuple[str, str, str]]


def _tables() -> Rows:
    """What the user put into the tables, by code and by what that closed over: what ran and counts nowhere else is
    refused."""
    return sorted({*_rules(), *_trees(), *_copies()})


def _rules() -> Iterator[tuple[str, str, str]]:
    """Rules of JAX's primitives."""
    for table, primitive, rule in seam.rules_of_primitives():
        if _is_of_the_user(rule):
            yield table, primitive, text_of(rule)


def _trees() -> Iterator[tuple[str, str, str]]:
    """How JAX takes classes apart that are not the user's; his own count with the class."""
    for cls, functions in seam.registered_trees():
        if _is_of_others(cls) and _is_of_the_user(functions):
            yield "trees", name_of_class(cls), text_of(functions)


def _copies() -> Iterator[tuple[str, str, str]]:
    """How such classes are copied and pickled."""
    for cls, function in list(copyreg.dispatch_table.items()):
        if _is_of_others(cls) and _is_of_the_user(function):
            yield "copies", name_of_class(cls), text_of(function)


def _is_of_others(cls: type) -> bool:
    return cls.__module__ != "__main__" and kind_of_module(cls.__module__) != "user"


def _is_of_the_user(value: object) -> bool:
    found = _functions(value, _DEPTH)
    return any(kind_of_file(function.__code__.co_filename) == "user" for function in found)


def _functions(value: Any, depth: int) -> Iterator[FunctionType]:
    """A function, and those that it was made of."""
    if not depth:
        return
    if type(value) is FunctionType:
        yield value
        inner = list(contents_of_cells(value))
    elif type(value) is functools.partial:
        inner = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, tuple):
        inner = list(tuple.__iter__(value))
    else:
        inner = [value.__wrapped__] if type(getattr(value, "__wrapped__", None)) is FunctionType else []
    for one in inner:
        yield from _functions(one, depth - 1)


ADAPTERS: tuple[Adapter, ...] = (Adapter("jax", _tables),)


def reducers_of_libraries() -> Mapping[type, Callable[[Any], object]]:
    """How objects of libraries that are imported are taken apart, as of `fingerprint`."""
    known = (
        ("absl.flags", "FlagValues", _flags),
        ("pydantic", "BaseModel", _model),
        ("pydantic._internal._decorators", "Decorator", _decorator),
        ("numpyro.infer.mcmc", "MCMC", _sampling),
    )
    return {
        getattr(sys.modules[module], name): reducer
        for module, name, reducer in known
        if hasattr(sys.modules.get(module), name)
    }


def _flags(flags: Any) -> object:
    """All flags of a command line: which of them code reads cannot be told, and the rest is how they are parsed."""
    told = {name: (flags[name].value, flags[name].default, flags[name].present) for name in flags}
    return "flags", flags.is_parsed(), told


def _model(model: Any) -> object:
    """What a model of pydantic has beside its attributes and its class; the names of what was given are in no order."""
    given = tuple(sorted(model.__pydantic_fields_set__))
    return "model", given, model.__pydantic_extra__, model.__pydantic_private__


def _decorator(one: Any) -> object:
    """A validator or the like of pydantic's, without the number of its class."""
    return "decorator", one.cls_var_name, one.func, one.shim, one.info


def _sampling(mcmc: Any) -> object:
    """What a run of numpyro's is, without functions that it has made of that, which it keeps by memory addresses."""
    return "sampling", {name: value for name, value in vars(mcmc).items() if name not in _MADE_BY_SAMPLING}


_MADE_BY_SAMPLING = ("_cache", "_init_state_cache")
