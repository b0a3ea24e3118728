"""What a variable of a library holds, as a tree of short texts that is equal in each process while it means the same.

Not promised: all of it. A variable counts with up to 2,000 values (lists and dictionaries of nothing but plain values:
100,000), 40 levels deep, and arrays of up to 32 MiB; of what is beyond, how long it is counts (of a larger array, its
type, its shape and 65,536 of its elements). What an object keeps in C is not seen, nor what objects of Python's own
library hold, but for those that are plain values.
"""

from __future__ import annotations

import collections
import contextvars
import functools
import hashlib
import sys
import threading
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any

from rewarm.fingerprint.code import code_facts
from rewarm.fingerprint.values import by_name
from rewarm.guards.numbers_held import text_of_numbers
from rewarm.guards.places import JAX, kind_of_file

# A leaf, or what it is with its items, each under a label that a path can be made of.
Tree = str | tuple[str, list[tuple[str, Any]]]
Items = Iterable[tuple[str, object]]

_DEPTH = 40
_VALUES = 2_000
_PLAIN_VALUES = 100_000
_LONGEST = 200
# Objects of JAX's are followed less deep: its settings are in the key of a program.
_DEPTH_OF_JAX = 3
# In this range lie the numbers of objects, which are others in each process.
_ADDRESSES = range(1 << 40, 1 << 48)
_SCALARS = (bool, int, float, complex, str, bytes, bytearray, type(None), type(...), type(NotImplemented))
_SIMPLE = frozenset({bool, int, float, str, type(None)})
_CONTAINERS = (list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict)
# Types whose values say all of themselves.
PLAIN = frozenset({*_SCALARS, *_CONTAINERS})
_SKIPPED = (types.ModuleType, types.BuiltinFunctionType, type)
_WRAPPERS = (functools._lru_cache_wrapper, staticmethod, classmethod)
_DISPATCHING = "singledispatch.<locals>.wrapper"
# Classes of Python's own library that hold what somebody put into them, and nothing else.
_OPEN = (types.SimpleNamespace, collections.Counter, collections.UserDict, collections.UserList, collections.ChainMap)
_OPEN_BY_NAME = frozenset({("argparse", "Namespace")})
_NAMED_ONLY = frozenset({("logging", "Logger"), ("logging", "RootLogger")})


def is_holding(value: object) -> bool:
    """Whether this is something to be told by value: neither a module, a class nor a function that was made of
    nothing."""
    if type(value) is FunctionType:
        return bool(value.__closure__ or value.__defaults__ or value.__kwdefaults__)
    return not issubclass(type(value), _SKIPPED)


def tree_of(value: object, most: int = _VALUES) -> Tree:
    """The tree."""
    return _Trees(most).of(value, _DEPTH)


def text_of(value: object, without: Iterable[str] = (), most: int = _VALUES) -> str:
    """The text of the tree, but for what lies at some paths."""
    return rendered(tree_of(value, most), frozenset(without))


def rendered(tree: Tree, without: frozenset[str] = frozenset(), path: str = "") -> str:
    """A tree as text; what lies at a path of `without` does not count."""
    if path and path in without:
        return "*"
    if isinstance(tree, str):
        return tree
    head, items = tree
    if not without:
        return f"{head}[{', '.join(label + rendered(item) for label, item in items)}]"
    return f"{head}[{', '.join(label + rendered(item, without, path + label) for label, item in items)}]"


def differing(before: Tree, after: Tree, path: str = "") -> list[str]:
    """The paths at which two trees of one variable differ; "" for all of it."""
    if before == after:
        return []
    if isinstance(before, str) or isinstance(after, str) or before[0] != after[0]:
        return [path]
    if [label for label, _ in before[1]] != [label for label, _ in after[1]]:
        return [path]
    pairs = zip(before[1], after[1], strict=True)
    return [found for (label, one), (_, two) in pairs for found in differing(one, two, path + label)]


class _Trees:
    """One tree: how much more may go into it."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._way: dict[int, int] = {}

    def of(self, value: object, depth: int) -> Tree:
        """The tree of one value in it."""
        kind = type(value)
        self._left -= 1
        if kind in _SCALARS:
            return _scalar(kind, value)
        if self._left < 0 or not depth:
            return f"<{_name(kind)} that is cut>"
        if id(value) in self._way:
            return f"<itself, {self._way[id(value)] - depth} up>"
        self._way[id(value)] = depth
        try:
            return self._known(value, kind, depth)
        except Exception as error:  # noqa: BLE001 - the objects are anybody's
            return f"<{_name(kind)} that raises {type(error).__name__}>"
        finally:
            del self._way[id(value)]

    def _known(self, value: Any, kind: type, depth: int) -> Tree:
        if kind in _CONTAINERS:
            return self._contained(value, kind, kind, depth)
        if kind is FunctionType:
            return self._all(_said_function(value), list(_made_with(value)), depth)
        if issubclass(kind, (type, types.BuiltinFunctionType)):
            return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        numbers = text_of_numbers(value, kind)
        if numbers is not None:
            return numbers
        inside = _inside(value, kind)
        return f"<{_name(kind)}>" if inside is None else self._instance(value, kind, inside, depth)

    def _instance(self, value: Any, kind: type, inside: Items, depth: int) -> Tree:
        if _name(kind).partition(".")[0] in JAX:
            depth = min(depth, _DEPTH_OF_JAX)
        items = list(inside)
        base = next((base for base in (dict, list, tuple, set, frozenset) if issubclass(kind, base)), None)
        if base is not None:
            items.append((".content", _Content(value, base)))
        elif issubclass(kind, (int, float, str, bytes)):
            plain = next(base for base in (int, float, str, bytes) if issubclass(kind, base))
            items.append((".content", plain(value) if plain is not str else str.__str__(value)))
        return self._all(f"<{_name(kind)}>", items, depth)

    def _all(self, head: str, items: list[tuple[str, object]], depth: int) -> Tree:
        if self._left < len(items):
            return f"{head} with {len(items)}, cut"
        found = []
        for label, item in items:
            if type(item) is _Content:
                found.append((label, self._contained(item.value, item.base, item.base, depth - 1)))
            else:
                found.append((f"{label} ", self.of(item, depth - 1)))
        return (head, found) if found else head

    def _contained(self, value: Any, kind: type, base: Any, depth: int) -> Tree:
        length = base.__len__(value)
        if self._left < length:
            return _in_short(value, kind, base, length)
        if issubclass(base, dict):
            pairs = list(dict.items(value))
            return self._all(kind.__name__, [(f"[{self._key(key, depth)}]", item) for key, item in pairs], depth)
        items = list(base.__iter__(value))
        if issubclass(base, (set, frozenset)):
            return f"{kind.__name__}[{', '.join(sorted(self._key(item, depth) for item in items))}]"
        return self._all(kind.__name__, [(f"[{at}]", item) for at, item in enumerate(items)], depth)

    def _key(self, key: object, depth: int) -> str:
        kind = type(key)
        return _scalar(kind, key) if kind in _SCALARS else rendered(self.of(key, depth - 1))


class _Content:
    """What an instance of a class that is derived from a container contains."""

    def __init__(self, value: object, base: type) -> None:
        self.value = value
        self.base = base


def _in_short(value: Any, kind: type, base: Any, length: int) -> str:
    """A container that is too large to be looked at item by item: one of plain values only, by the text of all."""
    if base in (dict, list, tuple) and length <= _PLAIN_VALUES:
        items = [*dict.keys(value), *dict.values(value)] if base is dict else list(base.__iter__(value))
        if _SIMPLE.issuperset(map(type, items)):
            return _shortened(f"{kind.__name__} of {length}", repr(items))
    return f"{kind.__name__} of {length}, cut"


def _scalar(kind: type, value: Any) -> str:
    if kind is int and not -(1 << 64) < value < 1 << 64:
        return _shortened("int", hex(value))
    if kind is int and value in _ADDRESSES:
        return "int of the size of an address"
    return _shortened(kind.__name__, repr(value))


def _shortened(kind: str, text: str) -> str:
    if len(text) <= _LONGEST:
        return f"{kind}:{text}"
    return f"{kind}:#{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _said_function(value: FunctionType) -> str:
    """By its name, and a function of the user's, which a library was handed, by its code too."""
    name = f"{value.__module__}.{value.__qualname__}"
    if kind_of_file(value.__code__.co_filename) == "user":
        return f"{name} {code_facts(value.__code__).digest.hex()[:16]}"
    return name


def _made_with(value: FunctionType) -> Iterator[tuple[str, object]]:
    """What a function has beside its code: the values of its defaults and what it closed over."""
    if value.__code__.co_qualname == _DISPATCHING:
        # What else it closed over is a cache, and a number that grows with each registration in the process.
        registry: Any = getattr(value, "registry", {})
        found = [(f".for {_name(cls)}", function) for cls, function in list(registry.items())]
        yield from sorted(found, key=lambda one: one[0])
        return
    for at, default in enumerate(value.__defaults__ or ()):
        yield f".default {at}", default
    for name, default in (value.__kwdefaults__ or {}).items():
        yield f".default {name}", default
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            yield f".closure {name}", cell.cell_contents
        except ValueError:
            yield f".closure {name}", "empty"


def _inside(value: Any, kind: type) -> Items | None:
    """What an object holds, under labels; `None` for one that says no more than its type."""
    rule = _RULES.get(kind)
    if rule is not None:
        return rule(value)
    if kind.__name__ == "PjitFunction" or issubclass(kind, _WRAPPERS):
        return ((".wraps", getattr(value, "__wrapped__", None)),)
    if kind.__name__ == "Device" and kind.__module__.partition(".")[0] in JAX:
        return ((".id", getattr(value, "id", None)),)
    return _inside_of_python(value, kind)


def _inside_of_python(value: Any, kind: type) -> Items | None:
    """The same of an object whose class is written in Python, or is a plain one of Python's own library."""
    known = by_name(kind) if (kind.__module__, kind.__name__) not in _NAMED_ONLY else None
    if known is not None:
        content = known(value)
        return [(".own", content.own), *((f".{label}", item) for label, item in content.edges)]
    module = vars(kind).get("__module__")
    if not isinstance(module, str) or (module.partition(".")[0] in JAX and module.endswith("._src.config")):
        return None
    # The rest of Python's own (loggers, locks, weak dictionaries) hold caches and lists of whatever else there is.
    is_open = issubclass(kind, _OPEN) or (module, kind.__name__) in _OPEN_BY_NAME
    if module.partition(".")[0] in sys.stdlib_module_names and not is_open:
        return None
    return list(_attributes(value, kind))


_RULES: dict[type, Callable[[Any], Items]] = {
    contextvars.ContextVar: lambda value: ((f".{value.name} here", _here(value)),),
    types.SimpleNamespace: lambda value: _attributes(value, types.SimpleNamespace),
    range: lambda value: ((".range", repr(value)),),
    slice: lambda value: ((".start", value.start), (".stop", value.stop), (".step", value.step)),
    types.MappingProxyType: lambda value: ((".mapping", dict(value)),),
    MethodType: lambda value: ((".function", value.__func__), (".self", value.__self__)),
    property: lambda value: ((".get", value.fget), (".set", value.fset), (".delete", value.fdel)),
    functools.partial: lambda value: ((".func", value.func), (".args", value.args), (".keywords", value.keywords)),
    threading.local: lambda value: tuple((f".{name}", item) for name, item in value.__dict__.items()),
}


def _attributes(value: Any, kind: type) -> Iterator[tuple[str, object]]:
    """Of an instance of a class that is written in Python: those of its dictionary and of its slots."""
    look: Any = threading.local if issubclass(kind, threading.local) else object
    try:
        held = look.__getattribute__(value, "__dict__")
    except AttributeError:
        held = None
    if type(held) is dict:
        yield from ((f".{name}", item) for name, item in list(held.items()))
    for base in kind.__mro__:
        for name, slot in vars(base).items():
            if type(slot) is MemberDescriptorType and slot.__objclass__ is base and name != "__dict__":
                try:
                    yield f".{name}", slot.__get__(value)
                except AttributeError:
                    continue


def _here(variable: contextvars.ContextVar[Any]) -> object:
    """The value in this context, or the variable's default."""
    try:
        return variable.get()
    except LookupError:
        return "not set"


def snapshot(scope: dict[str, Any]) -> dict[str, Tree]:
    """All that a module holds and that is told by value, also in its classes, under dotted names."""
    found = {}
    for name, value in list(scope.items()):
        if name.startswith("__"):
            continue
        if is_holding(value):
            found[name] = tree_of(value)
        elif isinstance(value, type) and type.__dict__["__module__"].__get__(value) == scope.get("__name__"):
            for label, item in held_by_class(value):
                found[f"{value.__qualname__}.{label}"] = tree_of(item)
    return found


# What C gives a class, which stands for itself.
OF_C = (
    *(types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType),
    *(types.ClassMethodDescriptorType, staticmethod, classmethod, property, FunctionType),
)


def held_by_class(cls: type) -> Iterator[tuple[str, object]]:
    """The values that stand in the body of a class."""
    for name, value in list(type.__dict__["__dict__"].__get__(cls).items()):
        if not name.startswith("__") and is_holding(value) and not isinstance(value, OF_C):
            yield name, value
