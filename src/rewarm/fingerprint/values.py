"""Values of Python's own types, and what is inside instances of classes derived from them.

Not promised: anything on the identity of immutable values: whether two places hold one and the same string, number or
tuple does not count. Lists, dictionaries and other objects that can change are told from their copies. The order of a
dictionary counts, since code may iterate over it; that of a set does not.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from rewarm.fingerprint.digest import floating, frame, imaginary, integer, text
from rewarm.fingerprint.node import Edge

Edges = tuple[Edge, ...]


class Content(NamedTuple):
    """What a value of a built-in type holds.

    Attributes:
      own: its plain bytes.
      edges: the values inside.
      unordered: whether they come in no order.
    """

    own: bytes = b""
    edges: Edges = ()
    unordered: bool = False


_ITEMS = tuple(f"item {index}" for index in range(64))


def _items(values: Any) -> Edges:
    found = tuple(values)
    if len(found) <= len(_ITEMS):
        return tuple(zip(_ITEMS, found, strict=False))
    return tuple((f"item {index}", value) for index, value in enumerate(found))


def _pairs(pairs: Any) -> Edges:
    edges: list[Edge] = []
    for index, (key, value) in enumerate(pairs):
        name = ascii(key)[:40] if type(key) in (str, int) else f"of item {index}"
        edges += ((f"key {index}", key), (f"value {name}", value))
    return tuple(edges)


def _default_dict(value: Any) -> Content:
    factory = vars(defaultdict)["default_factory"].__get__(value)
    return Content(b"", (("default", factory), *_pairs(list(dict.items(value)))))


def _deque(value: Any) -> Content:
    limit = vars(deque)["maxlen"].__get__(value)
    return Content(b"", (("maxlen", limit), *_items(deque.__iter__(value))))


def _fields(*names: str) -> Callable[[Any], Content]:
    return lambda value: Content(b"", tuple((name.strip("_"), getattr(value, name)) for name in names))


def _set(of: Any) -> Callable[[Any], Content]:
    return lambda value: Content(b"", tuple(("element", item) for item in list(of.__iter__(value))), unordered=True)


# Types whose content is known, also inside instances of classes derived from them.
CONTENT: dict[type, Callable[[Any], Content]] = {
    object: lambda _: Content(),
    int: lambda value: Content(integer(value)),
    float: lambda value: Content(floating(value)),
    complex: lambda value: Content(imaginary(value)),
    str: lambda value: Content(text(value)),
    bytes: lambda value: Content(bytes.__getitem__(value, slice(None))),
    bytearray: lambda value: Content(bytes(memoryview(value))),
    tuple: lambda value: Content(b"", _items(tuple.__iter__(value))),
    list: lambda value: Content(b"", _items(list.__iter__(value))),
    dict: lambda value: Content(b"", _pairs(list(dict.items(value)))),
    OrderedDict: lambda value: Content(b"", _pairs(list(OrderedDict.items(value)))),
    defaultdict: _default_dict,
    deque: _deque,
    set: _set(set),
    frozenset: _set(frozenset),
    types.SimpleNamespace: lambda value: Content(
        b"", _pairs(list(dict.items(object.__getattribute__(value, "__dict__"))))
    ),
    functools.partial: lambda value: Content(
        b"",
        tuple((name, vars(functools.partial)[name].__get__(value)) for name in ("func", "args", "keywords")),
    ),
    property: lambda value: Content(
        b"", tuple((name, vars(property)[name].__get__(value)) for name in ("fget", "fset", "fdel"))
    ),
    staticmethod: lambda value: Content(b"", (("function", vars(staticmethod)["__func__"].__get__(value)),)),
    classmethod: lambda value: Content(b"", (("function", vars(classmethod)["__func__"].__get__(value)),)),
}

# Of these, instances have a dictionary too.
WITH_ATTRIBUTES = frozenset({functools.partial, staticmethod, classmethod, OrderedDict})

# Instances of these very types cannot change, and comparing them by `is` means nothing.
PLAIN = frozenset({int, float, complex, str, bytes, tuple, frozenset})


def _referent(value: Any) -> object:
    """What a mapping proxy stands before; asking the proxy would ask the mapping's own methods."""
    return gc.get_referents(value)[0]


# What functools.wraps and its like leave on a wrapper.
_COPIED = frozenset(
    {"__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__type_params__", "__annotate__"}
    | {"__wrapped__", "cache_parameters"}
)


def attributes(value: Any) -> dict[str, object]:
    """What somebody set on an object that has a dictionary."""
    # A partial has none of these by itself, so what it has can say what it is to do.
    copied = _COPIED - {"__wrapped__", "__doc__"} if isinstance(value, functools.partial) else _COPIED
    return {name: item for name, item in value.__dict__.items() if name not in copied}


def _bound(value: Any) -> Content:
    return Content(text(value.__name__), (("self", value.__self__),))


def _descriptor(value: Any) -> Content:
    return Content(text(value.__name__), (("class", value.__objclass__),))


def _reduced(value: Any) -> Content:
    """Of a type of Python's, written in C, whose `__reduce_ex__` is known to give everything."""
    return Content(b"", (("state", tuple(value.__reduce_ex__(4)[1:])),))


def _cell(value: Any) -> Content:
    return Content(b"", (("content", value.cell_contents),))


def _cached_function(value: Any) -> Content:
    """The results that it keeps are what the function gives."""
    setting = value.cache_parameters()
    return Content(
        b"",
        (
            ("function", value.__wrapped__),
            ("maxsize", setting["maxsize"]),
            ("typed", setting["typed"]),
            ("attributes", attributes(value)),
        ),
    )


# Types of which only exact instances are known, by value: each look may make a new one.
EXACT: dict[type, Callable[[Any], Content]] = {
    range: _fields("start", "stop", "step"),
    slice: _fields("start", "stop", "step"),
    types.MappingProxyType: lambda value: Content(b"", (("mapping", _referent(value)),)),
    types.MethodType: lambda value: Content(b"", (("function", value.__func__), ("self", value.__self__))),
    types.MethodWrapperType: _bound,
    types.WrapperDescriptorType: _descriptor,
    types.MethodDescriptorType: _descriptor,
    types.ClassMethodDescriptorType: _descriptor,
    types.GetSetDescriptorType: _descriptor,
    types.MemberDescriptorType: _descriptor,
    types.GenericAlias: _fields("__origin__", "__args__", "__unpacked__"),
    types.UnionType: _fields("__args__"),
    types.CellType: _cell,
    type(functools.lru_cache(len)): _cached_function,
}


def decimal_context() -> str:
    """How decimals are rounded now, in this thread; only once the module is imported."""
    now = sys.modules["decimal"].getcontext()
    traps = sorted(kind.__name__ for kind, on in now.traps.items() if on)
    return repr((now.prec, now.rounding, now.Emin, now.Emax, now.capitals, now.clamp, traps))


def _decimal(value: Any) -> Content:
    return Content(text(decimal_context()), (("digits", tuple(value.as_tuple())),))


def _logger(value: Any) -> Content:
    """What is logged does not change a result; code can ask for the level."""
    return Content(frame(text(value.name), integer(value.getEffectiveLevel()), integer(value.disabled)))


def _path(value: Any) -> Content:
    return Content(text(str(value)))


def _type_variable(value: Any) -> Content:
    return Content(text(value.__name__))


def _tuple_getter(value: Any) -> Content:
    """Of a namedtuple's field; what else it holds is a docstring."""
    return Content(integer(value.__reduce__()[1][0]))


# Types that need not be imported, by module and name; exact instances, by value.
BY_NAME: dict[tuple[str, str], Callable[[Any], Content]] = {
    ("datetime", "date"): _reduced,
    ("datetime", "time"): _reduced,
    ("datetime", "datetime"): _reduced,
    ("datetime", "timedelta"): _reduced,
    ("datetime", "timezone"): _reduced,
    ("operator", "attrgetter"): _reduced,
    ("operator", "itemgetter"): _reduced,
    ("operator", "methodcaller"): _reduced,
    ("collections", "_tuplegetter"): _tuple_getter,
    ("_collections", "_tuplegetter"): _tuple_getter,  # before 3.12
    ("re", "Pattern"): _fields("pattern", "flags"),
    ("decimal", "Decimal"): _decimal,
    ("fractions", "Fraction"): _fields("numerator", "denominator"),
    ("uuid", "UUID"): _fields("int"),
    ("logging", "Logger"): _logger,
    ("logging", "RootLogger"): _logger,
    ("functools", "cached_property"): _fields("func", "attrname"),
    ("functools", "singledispatchmethod"): _fields("func", "dispatcher"),  # from 3.13 on, it has a weak cache
    ("dataclasses", "Field"): _fields(
        "name", "default", "default_factory", "repr", "hash", "init", "compare", "metadata", "kw_only", "_field_type"
    ),
    ("typing", "TypeVar"): _type_variable,
    ("typing", "ParamSpec"): _type_variable,
    ("typing", "TypeVarTuple"): _type_variable,
    ("array", "array"): _reduced,
    **{(module, name): _path for module in ("pathlib", "pathlib._local") for name in ("PosixPath", "PurePosixPath")},
    **{
        (module, name): _path for module in ("pathlib", "pathlib._local") for name in ("WindowsPath", "PureWindowsPath")
    },
}


def by_name(cls: type) -> Callable[[Any], Content] | None:
    """The rule for a type that need not be imported, if this really is that type."""
    module = type.__dict__["__module__"].__get__(cls)  # types of C do not keep it in their dictionary
    rule = BY_NAME.get((module, cls.__name__)) if type(module) is str else None
    home = sys.modules.get(module) if rule is not None else None
    return rule if home is not None and getattr(home, cls.__name__, None) is cls else None
