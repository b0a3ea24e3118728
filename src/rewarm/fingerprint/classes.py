"""Classes of the user, and instances: what they are made of.

Not promised: that only the methods which run count. A class counts with all of its methods, bases and constants,
since what is called on an instance cannot be told; a method that opens a file makes the class one that has no
fingerprint.
"""

from __future__ import annotations

import abc
import types
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from rewarm.fingerprint.allowed import words
from rewarm.fingerprint.digest import frame, said_text, texts
from rewarm.fingerprint.naming import namespace
from rewarm.fingerprint.node import Absent, Context, Edge, Node, RefusedError

# What the class statement, the abc, copyreg and enum modules put into a class and what does not shape what it does,
# or grows while it is used. Annotations are refused where code reads them.
_NOISE = words(
    "__module__ __doc__ __dict__ __weakref__ __firstlineno__ __static_attributes__ __annotations__ __annotate__ "
    "__annotate_func__ __annotations_cache__ __orig_bases__ __parameters__ __type_params__ __slotnames__ "
    "_abc_impl __abstractmethods__ _value2member_map_ __qualname__ "
    # Pydantic makes these of the fields and decorators that it keeps beside them, which count.
    "__pydantic_core_schema__ __pydantic_validator__ __pydantic_serializer__"
)
_C_CODE = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
_HEAP_TYPE = 1 << 9
_POINTER = 8


def describe_class(cls: Any, context: Context) -> Node:
    """A class that does not count by its name."""
    space = namespace(cls)
    if is_of_c(cls):
        raise RefusedError("a class that is written in C")
    if context.watched is not None:
        _note(cls, space, context)
    edges: list[Edge] = [("metaclass", type(cls))]
    edges += ((f"base {base.__name__}", base) for base in cls.__bases__)
    names = tuple(sorted(name for name in space if name not in _NOISE))
    edges += ((f"attribute {name}", _member(cls, space[name])) for name in names)
    if isinstance(cls, abc.ABCMeta):
        edges.append(("registry", _registry(cls)))
    if context.companions is not None:
        edges.append(("companion", context.companions(cls)))
    # Whoever can see names can also see the order in which a class was written.
    said = (cls.__name__, cls.__qualname__, space.get("__module__"), space.get("__doc__"))
    order = texts(tuple(name for name in space if name not in _NOISE))
    context.names.append(frame(b"class", order, *(said_text(word) for word in said)))
    return Node("class", texts(tuple(_fixed(label) for label, _ in edges)), tuple(edges))


def _note(cls: type, space: dict[str, Any], context: Context) -> None:
    """Tells whoever watched of the class, and remembers its methods, which need not all run."""
    if context.watched is not None and not context.idle:
        context.watched.classes[id(cls)] = cls
    for value in space.values():
        kind = type(value)
        if kind is property:
            found = [vars(property)[name].__get__(value) for name in ("fget", "fset", "fdel")]
        elif kind in (staticmethod, classmethod):
            found = [vars(kind)["__func__"].__get__(value)]
        else:
            found = [value]
        context.methods.update((id(function), function) for function in found if type(function) is FunctionType)


def _fixed(label: str) -> str:
    """A label without the name of a base, which may change."""
    return "base" if label.startswith("base ") else label


def _member(cls: type, value: Any) -> object:
    is_slot = type(value) is MemberDescriptorType and value.__objclass__ is cls
    return Absent("slot") if is_slot else value


def _registry(cls: abc.ABCMeta) -> frozenset[object]:
    registry, *_ = abc._get_dump(cls)  # type: ignore[attr-defined]  # its registry is behind no other name
    return frozenset(found for found in (reference() for reference in registry) if found is not None)


def is_of_c(cls: Any) -> bool:
    """Whether a class has parts that are written in C, which nobody can follow."""
    if not cls.__flags__ & _HEAP_TYPE:
        return True
    for name, value in namespace(cls).items():
        kind = type(value)
        if kind in _C_CODE and value.__objclass__ is cls:
            return True
        if kind is GetSetDescriptorType and value.__objclass__ is cls and name not in ("__dict__", "__weakref__"):
            return True
        if kind is BuiltinFunctionType and value.__self__ is cls:
            return True
    return False


Layout = tuple[tuple[tuple[str, Any], ...], Any]


def layout(kind: type, content: type) -> Layout:
    """The slots of a class's instances, and what gives their dictionary, beyond the `content` of a built-in type.

    Raises:
      RefusedError: a class on the way keeps something that cannot be seen.
    """
    slots: list[tuple[str, Any]] = []
    for cls in kind.__mro__:
        for name, slot in sorted(namespace(cls).items()):
            if type(slot) is MemberDescriptorType and slot.__objclass__ is cls and cls is not content:
                slots.append((name, slot))
    _refuse_hidden_state(kind, content)
    return tuple(slots), _dictionary_of(kind)


def state(value: Any, seen: Layout) -> tuple[tuple[str, ...], list[Edge]]:
    """Names and edges of what an instance of a class with this layout holds."""
    slots, held = seen
    edges: list[Edge] = []
    for name, slot in slots:
        try:
            edges.append((f"slot {name}", slot.__get__(value)))
        except AttributeError:
            edges.append((f"slot {name}", Absent("slot")))
    if held is not None:
        edges += [(f"attribute {name}", item) for name, item in list(dict.items(held.__get__(value)))]
    return tuple(label for label, _ in edges), edges


def dictionary(value: Any) -> Iterator[tuple[object, object]]:
    """Items of an instance's dictionary, without asking its class."""
    found = _dictionary_of(type(value))
    if found is not None:
        yield from list(dict.items(found.__get__(value)))


def _dictionary_of(kind: type) -> Any:
    """What gives the dictionary of a class's instances, or `None`."""
    for cls in kind.__mro__:
        found = namespace(cls).get("__dict__")
        if type(found) is GetSetDescriptorType:
            return found
    return None


def _refuse_hidden_state(cls: type, content: type) -> None:
    """A class adds a pointer for each slot, its dictionary and its weak references; more is C's own state."""
    at: Any = cls
    while at is not content:
        base = at.__base__
        if base is None:
            break
        space = namespace(at)
        visible = sum(
            type(value) is MemberDescriptorType or name in ("__dict__", "__weakref__") for name, value in space.items()
        )
        if at.__basicsize__ - base.__basicsize__ > _POINTER * visible or at.__itemsize__ != base.__itemsize__:
            whose = "it" if at is cls else f"its base {at.__module__}.{at.__name__}"
            raise RefusedError(f"{whose} keeps state in C that cannot be read")
        at = base
