"""What a variable of a library holds, in a text that is equal in each process while it means the same.

Not promised: all of it. Depth and length are bounded, and what an object keeps in C is not seen. It is meant for the
settings, flags and stacks that libraries keep in their modules, not for what a user hands them.
"""

from __future__ import annotations

import contextvars
import functools
import hashlib
import sys
import threading
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

from rewarm.fingerprint.code import code_facts
from rewarm.guards.places import kind_of_file

_DEPTH = 6
_LENGTH = 64
_LONGEST = 200
# Values in one text, and bytes of one array, that are looked at.
_VALUES = 400
_ARRAY = 1 << 20
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented))
_CONTAINERS = (list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict)
# Types whose values say all of themselves.
PLAIN = frozenset({*_SCALARS, *_CONTAINERS})
_SKIPPED = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


def is_holding(value: object) -> bool:
    """Whether this is something to be told by value: neither code nor a module."""
    return not issubclass(type(value), _SKIPPED)


def text_of(value: object) -> str:
    """The text."""
    return _Text().of(value, _DEPTH)


class _Text:
    """One text: how much more may go into it."""

    def __init__(self) -> None:
        self._left = _VALUES

    def of(self, value: object, depth: int) -> str:
        """The text of one value in it."""
        kind = type(value)
        self._left -= 1
        if kind in _SCALARS:
            return _shortened(kind.__name__, repr(value))
        if kind in _CONTAINERS:
            return self._contained(value, kind, depth)
        plain = _of_code(value, kind) or _of_numbers(value, kind)
        if plain is not None:
            return plain
        if isinstance(value, contextvars.ContextVar):
            return f"{value.name} is {self.of(_here(value), depth - 1) if depth else '...'}"
        name = f"{kind.__module__}.{kind.__qualname__}"
        held = _dictionary(value, kind)
        if kind is functools.partial:
            held = {"func": value.func, "args": value.args, **value.keywords}  # type: ignore[attr-defined]
        elif issubclass(kind, tuple):
            held = dict(enumerate(tuple.__iter__(value)))  # type: ignore[arg-type]
        if not depth or held is None:
            return f"<{name}>"
        return f"<{name} {self._contained(held, dict, depth - 1)}>"

    def _contained(self, value: Any, kind: type, depth: int) -> str:
        length = kind.__len__(value)  # type: ignore[attr-defined]
        if length > _LENGTH or not depth or self._left < length:
            return f"{kind.__name__} of {length}"
        if issubclass(kind, dict):
            items = [f"{self.of(key, depth - 1)}={self.of(item, depth - 1)}" for key, item in list(dict.items(value))]
        else:
            items = [self.of(item, depth - 1) for item in list(kind.__iter__(value))]  # type: ignore[attr-defined]
        if issubclass(kind, (set, frozenset)):
            items.sort()
        return f"{kind.__name__}[{', '.join(items)}]"


def _here(variable: contextvars.ContextVar[Any]) -> object:
    """The value in this context, or the variable's default."""
    try:
        return variable.get()
    except LookupError:
        return "not set"


def _shortened(kind: str, text: str) -> str:
    return f"{kind}:{text}" if len(text) <= _LONGEST else f"{kind}:#{_short_digest(text.encode())}"


def _short_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _of_code(value: Any, kind: type) -> str | None:
    """A function or class: by its name, and a function of the user's, which a library was handed, by its code too."""
    if not issubclass(kind, (types.FunctionType, type, types.BuiltinFunctionType)):
        return None
    name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    if kind is types.FunctionType and kind_of_file(value.__code__.co_filename) == "user":
        return f"{name} {code_facts(value.__code__).digest.hex()[:16]}"
    return name


def _of_numbers(value: Any, kind: type) -> str | None:
    """An array, a number or a type of numpy's, or an array of JAX's that is small."""
    numpy: Any = sys.modules.get("numpy")
    dtype, generic = getattr(numpy, "dtype", None), getattr(numpy, "generic", None)
    if dtype is None or generic is None:
        return None
    if issubclass(kind, (dtype, generic)):
        return _shortened(kind.__name__, str(value))
    if kind.__name__ not in ("ndarray", "ArrayImpl") or kind.__module__.partition(".")[0] not in ("numpy", "jaxlib"):
        return None
    try:
        said = f"array {value.dtype} {value.shape}"
        is_read = value.nbytes <= _ARRAY and not value.dtype.hasobject
        return f"{said} {_short_digest(numpy.asarray(value).tobytes())}" if is_read else said
    except Exception:  # noqa: BLE001 - one that was given away, or lies on other hosts
        return "an array"


def _dictionary(value: object, kind: type) -> dict[str, Any] | None:
    """Of an instance of a class that is written in Python."""
    module = vars(kind).get("__module__")
    # Python's own (loggers, locks, weak dictionaries) hold caches and lists of whatever else there is.
    if not isinstance(module, str) or module.partition(".")[0] in sys.stdlib_module_names:
        return None
    look: Any = threading.local if issubclass(kind, threading.local) else object
    try:
        held = look.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held if type(held) is dict else None


def snapshot(scope: dict[str, Any]) -> dict[str, str]:
    """All that a module holds and that is told by value."""
    found = {}
    for name, value in list(scope.items()):
        if not name.startswith("__") and is_holding(value):
            found[name] = text_of(value)
    return found
