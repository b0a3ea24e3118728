"""State of libraries that a trace reads and no argument shows.

Not promised: every library. What is not listed here is seen only where it is a value that the library's code names:
`guards/holdings.py` looks some levels into it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from rewarm.fingerprint.naming import contents_of_cells
from rewarm.guards import Adapter
from rewarm.guards.places import kind_of_file
from rewarm.guards.roots import code_digest
from rewarm.jax_adapter import seam

_DEPTH = 6


def _rules_of_the_user() -> list[tuple[str, str, str]]:
    """What the user put into JAX's tables of rules, by code: a rule that ran and counts nowhere else is refused."""
    return sorted(
        (table, primitive, code_digest(function.__code__))
        for table, primitive, rule in seam.rules_of_primitives()
        for function in _functions(rule, _DEPTH)
        if kind_of_file(function.__code__.co_filename) == "user"
    )


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


ADAPTERS: tuple[Adapter, ...] = (Adapter("jax", _rules_of_the_user),)
