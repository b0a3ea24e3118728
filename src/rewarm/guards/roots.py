"""The user's own code and values: one walk of `fingerprint` from the root, and what that walk came by.

Not promised: that code reached by other ways is known; `making.py` compares what ran with what this walk came by.

Beyond what `fingerprint` identifies, these count: variables of contexts and of threads (by the value here and now),
weak references (by what they refer to), locks (by nothing), the environment and what is printed to (by nothing: the
recording sees what is read), and a class that has a digest protocol of its own (by what that says).
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import logging
import os
import sys
import threading
import typing
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from rewarm.fingerprint.allowed import HOPELESS
from rewarm.fingerprint.code import code_facts
from rewarm.fingerprint.node import Context, Ran, Reducer, RefusedError
from rewarm.fingerprint.walk import Budget, Walk
from rewarm.guards.harmless import AXES_OF_MESH, MADE_FLOAT
from rewarm.guards.owners import Owners
from rewarm.guards.rules import Rules

_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")
# Whoever asks for these may see names and docstrings.
_NAMING = frozenset({"getdoc", "pformat", "pprint", "dumps", "saferepr"})
_CACHED = type(functools.lru_cache(len))


class Root(NamedTuple):
    """What one walk found.

    Attributes:
      digest: of everything that the root leads to.
      parts: what it is made of, in words, each with a short text that changes with it and a digest.
      unordered: whether the order of sets of strings may count.
      codes: the code of all functions that the walk followed, by id.
      classes: the classes that it followed, by id.
      kept: the ids of the code of functions whose results are kept.
    """

    digest: str
    parts: list[tuple[str, str, str]]
    unordered: bool
    codes: dict[int, CodeType]
    classes: dict[int, type]
    kept: frozenset[int]


def code_digest(code: CodeType) -> str:
    """What a piece of code does, in 32 digits: the same wherever it lies."""
    return code_facts(code).digest.hex()[:32]


def walk_root(root: object, rules: Rules, ran: Callable[[CodeType], bool], *, strictly: bool = True) -> Root:
    """Everything that the root and what was declared lead to.

    Args:
      root: the function.
      rules: what the caller knows better.
      ran: whether a piece of code ran while the function was traced.
      strictly: whether functions whose results are kept must read nothing but what the walk sees, unless they ran.

    Raises:
      NotFingerprintableError: something on the way cannot be identified.
    """
    kept: dict[int, object] = {}
    watched = Ran(ran)
    reducers = {**_own_reducers(kept), **_noting(rules.reducers, kept)}
    context = _Asking(_owners(), reducers, _companions(rules), watched, rules.digest_protocol)
    walk = Walk(context, Budget())
    roots: Any = root if not rules.depends_on else (root, *rules.depends_on)
    name = str(getattr(root, "__name__", "the function"))
    with _without_collections():
        digest = walk.digest(roots, (None, name)).hex()
    for function in list(kept.values()) if strictly else ():
        _look_strictly(function, rules, ran)
    codes = frozenset(id(one.__code__) for one in kept.values() if type(one) is FunctionType)
    return Root(digest, walk.told(), walk.unordered, watched.codes, watched.classes, codes)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """A walk makes many small objects, and Python would look through all of JAX's for garbage again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _look_strictly(function: object, rules: Rules, ran: Callable[[CodeType], bool]) -> None:
    """A function whose results are kept, and which did not run: then nobody saw what it reads, so it may read nothing.

    Raises:
      NotFingerprintableError: it mentions something that lies outside.
    """
    inner = function
    while type(inner) is not FunctionType:
        inner = getattr(inner, "__wrapped__", None) or getattr(inner, "func", None)
        if inner is None:
            return
    if ran(inner.__code__):
        return
    reducers = {**rules.reducers, weakref.ReferenceType: _weak}
    context = _Asking(_strict_owners(), reducers, _companions(rules), None, rules.digest_protocol)
    Walk(context, Budget()).digest(inner, (None, f"{inner.__qualname__} (its results are kept, so it did not run)"))


class _Asking(Context):
    """A context in which classes may say themselves what counts of their instances."""

    def __init__(
        self,
        trusted: Owners,
        reducers: Mapping[type, Reducer],
        companions: Callable[[type], object] | None,
        watched: Ran | None,
        protocol: str,
    ) -> None:
        super().__init__(trusted, _WithProtocol(reducers, protocol), companions, watched)
        self._protocol = protocol
        self._plain = reducers

    @property
    def reads_names(self) -> bool:
        """Also where code asks by ways that only here are possible."""
        return self._reads_names or not self.words.isdisjoint(_NAMING)

    @reads_names.setter
    def reads_names(self, found: bool) -> None:
        self._reads_names = found

    def fresh(self) -> Context:
        context = _Asking(self.trusted, self._plain, self.companions, self.watched, self._protocol)  # type: ignore[arg-type]
        context.idle = self.idle
        return context

    def held(self, module: str, function: FunctionType, name: str, value: object) -> object:
        if type(value) is int and (module, function.__code__.co_qualname, name) in MADE_FLOAT:
            return float(value)
        if module.startswith("jax.") and (module[4:], function.__code__.co_qualname, name) == AXES_OF_MESH[:3]:
            return _axes_of(function, value)
        return value


def _axes_of(function: FunctionType, value: object) -> object:
    """The axes that a function maps over, as JAX will fill them in, in an order of their own: JAX depends on none."""
    captured = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    axes: Any = value
    with contextlib.suppress(KeyError, ValueError, AttributeError):
        axes = value or captured[AXES_OF_MESH[3]].cell_contents.axis_names
    return ("axes", *sorted(axes)) if all(type(axis) is str for axis in axes) else value


class _WithProtocol(dict[type, Reducer]):
    """Reducers, and for a class with the digest protocol its own method."""

    def __init__(self, reducers: Mapping[type, Reducer], protocol: str) -> None:
        super().__init__(reducers)
        self._protocol = protocol

    def __contains__(self, cls: object) -> bool:
        return super().__contains__(cls) or self._method(cls) is not None

    def __getitem__(self, cls: type) -> Reducer:
        known = self.get(cls)
        if known is not None:
            return known
        method = self._method(cls)
        if method is None:
            raise KeyError(cls)
        # What its methods do counts all the same.
        return lambda value: ("by its own digest", method(value), type(value))

    def __bool__(self) -> bool:
        return True

    def _method(self, cls: object) -> Reducer | None:
        for base in type.__dict__["__mro__"].__get__(cls) if isinstance(cls, type) else ():
            found = type.__dict__["__dict__"].__get__(base).get(self._protocol)
            if type(found) is FunctionType:
                return lambda value: ("says", found(value), type(value))
        return None


@functools.cache
def _owners() -> Owners:
    return Owners()


@functools.cache
def _strict_owners() -> Owners:
    return Owners(strictly=True)


def _noting(reducers: Mapping[type, Reducer], kept: dict[int, object]) -> dict[type, Reducer]:
    """The reducers, of which those for jitted functions note what they wrap: JAX keeps its traces."""

    def noted(reducer: Reducer) -> Reducer:
        def reduce(value: Any) -> object:
            wrapped = getattr(value, "__wrapped__", None)
            if wrapped is not None:
                kept[id(wrapped)] = wrapped
            return reducer(value)

        return reduce

    return {cls: noted(reducer) if cls.__name__ == "PjitFunction" else reducer for cls, reducer in reducers.items()}


def _own_reducers(kept: dict[int, object]) -> dict[type, Reducer]:
    def cached(value: Any) -> object:
        kept[id(value.__wrapped__)] = value.__wrapped__
        setting = value.cache_parameters()
        own = {name: held for name, held in vars(value).items() if name not in _LEFT}
        return "cached function", value.__wrapped__, setting["maxsize"], setting["typed"], own

    return {
        _CACHED: cached,
        contextvars.ContextVar: _context_variable,
        threading.local: lambda value: ("of this thread", value.__dict__),
        weakref.ReferenceType: _weak,
        type(threading.Lock()): lambda _: "a lock",
        type(threading.RLock()): lambda _: "a lock",
        type(vars(os)["environ"]): lambda _: "the environment",
        type(sys.__stdout__): _stream,
        typing.TypeVar: _type_variable,
        logging.Logger: _logger,
        logging.RootLogger: _logger,
    }


def _companions(rules: Rules) -> Callable[[type], object] | None:
    asked = rules.companions
    return None if asked is None else lambda cls: _plain_made(asked(cls))


def _plain_made(value: Any) -> object:
    """In place of functions that equinox makes from text, to take its classes apart: their code, which is all of them.

    They name attributes behind which anything can be, and read none of them.
    """
    if type(value) in (tuple, list):
        return tuple(_plain_made(item) for item in value)
    if type(value) is functools.partial:
        return "partial", _plain_made(value.func), value.args, value.keywords
    if type(value) is FunctionType and value.__code__.co_filename.startswith("<generated_"):
        return "made by equinox", code_digest(value.__code__)
    return value


_LEFT = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "cache_parameters", "__type_params__"})


def _weak(value: Any) -> object:
    return "weak reference", value()


def _context_variable(value: Any) -> object:
    try:
        held = value.get()
    except LookupError:
        held = "no value"
    return "context variable", value.name, held


def _type_variable(value: Any) -> object:
    """With what it says of the types that it stands for, in words: those may be written as text."""
    try:
        return "type variable", value.__name__, repr((value.__bound__, value.__constraints__))
    except Exception:  # noqa: BLE001 - from 3.12 on, the user's expression is evaluated here
        return "type variable", value.__name__


def _logger(value: Any) -> object:
    """What code can ask for; where it writes does not change a result."""
    handlers = [f"{type(one).__module__}.{type(one).__qualname__}" for one in value.handlers]
    return "logger", value.name, value.getEffectiveLevel(), value.disabled, handlers


def _stream(value: Any) -> object:
    for name in _STREAMS:
        if getattr(sys, name, None) is value:
            return "standard stream", name.strip("_")
    raise RefusedError(HOPELESS["_io", "TextIOWrapper"])


def ran_in(digests: Iterable[str]) -> Callable[[CodeType], bool]:
    """Whether a piece of code ran when the guards were made, by what it does."""
    known = frozenset(digests)
    return lambda code: code_digest(code) in known
