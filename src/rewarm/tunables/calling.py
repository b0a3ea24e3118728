"""Calling what users gave: functions that take those of many values that they name.

Not promised: that what is called is pure, or quick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import BoundArguments, Parameter, Signature
from typing import Any

from rewarm.errors import SpaceError


def name_of(thing: Any) -> str:
    """What a function is called in lists: its qualified name, that of what a partial holds, or that of its class."""
    held = getattr(thing, "func", None)
    if callable(held) and not hasattr(thing, "__qualname__"):
        return f"partial({name_of(held)})"
    return str(getattr(thing, "__qualname__", None) or type(thing).__qualname__)


def call_by_name(function: Callable[..., Any], known: Mapping[str, Any], title: str) -> Any:
    """Call with those of the known values that the function names; `*args` or else `**kwargs` gets all others.

    Args:
      function: what is called.
      known: name -> value.
      title: what it is, for the error.

    Raises:
      SpaceError: it needs a name that is not known.
      Exception: whatever it raises.
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # a built-in that does not say
        return function(*known.values())
    bound = BoundArguments(signature, _bound(signature, known, title))
    bound.apply_defaults()
    return function(*bound.args, **bound.kwargs)


def _bound(signature: Signature, known: Mapping[str, Any], title: str) -> dict[str, Any]:
    rest = {name: value for name, value in known.items() if name not in signature.parameters}
    found: dict[str, Any] = {}
    for name, one in signature.parameters.items():
        if one.kind is Parameter.VAR_POSITIONAL:
            found[name] = tuple(rest.values())
            rest = {}
        elif one.kind is Parameter.VAR_KEYWORD:
            found[name] = rest
        elif name in known:
            found[name] = known[name]
        elif one.default is Parameter.empty:
            there = ", ".join(known) or "nothing"
            raise SpaceError(f"{title} takes {name!r}, which is not there; there is {there}")
    return found
