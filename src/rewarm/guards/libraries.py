"""Code of libraries, JAX and Python: that it is what it was, in the files and in memory.

Not promised: that a value in a library that changes by itself while a function is traced (a cache, a counter) means
nothing; such are left out. Nor values in the modules of JAX and of Python: JAX's settings are in the key of a program.

What is held, for code that ran:

* its file, by content, and all of its distribution, by RECORD and sizes;
* itself: under the name that it says, the module still has it (nobody put another in its place);
* the functions and classes that its global names lead to, by where they come from;
* the variables of libraries that it names, by what they hold (`holdings.py`), also those that stand in a class;
* the functions that its class has, and the class of the object that it was called for, by where they come from: those
  that stand for an operator, and an override, are named by nobody;
* for libraries: what else its global names hold, by value.

A name counts as read if the code names it at all, as a global or as an attribute of a module that it names; that is
more than what is read, and costs no look at instructions.
"""

from __future__ import annotations

import abc
import builtins
import functools
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from rewarm.guards.holdings import OF_C, Tree, differing, held_by_class, is_holding, rendered, tree_of
from rewarm.guards.origins import MISSING, codes_of, functions_of, origin_of
from rewarm.guards.owners import installed, split
from rewarm.guards.places import kind_of_file, kind_of_module
from rewarm.guards.seen import Ran, Seen

# How many calls deep the code is followed that a kept trace stands for.
_LEVELS = 8
# What a module has without having been written.
_OF_MODULES = frozenset({"__name__", "__doc__", "__file__", "__spec__", "__loader__", "__path__", "__package__"})


Values = dict[str, dict[str, tuple[str, list[str]]]]


class Held(NamedTuple):
    """What was found of the code of others.

    Attributes:
      files: `.dist-info` folder (its name alone) to its identity and to the files of which code ran.
      anchors: module to the qualified names of code that ran and is found there.
      origins: module to name to where the function or class under it comes from.
      values: module of a library to name to what it holds, and the places in it that change by themselves.
      classes: module to the name of a class to where all of its functions come from, in one text.
    """

    files: dict[str, tuple[str, list[str]]]
    anchors: dict[str, list[str]]
    origins: dict[str, dict[str, str]]
    values: Values
    classes: dict[str, dict[str, str]]


def held_by(seen: Seen) -> Held:
    """What must hold again, of all that ran."""
    anchors: dict[str, set[str]] = {}
    origins: dict[str, dict[str, str]] = {"builtins": _origins_in(vars(builtins))}
    values: Values = {}
    files: dict[str, tuple[str, set[str]]] = {}
    classes: dict[str, dict[str, str]] = {}
    done: set[tuple[int, str]] = set()
    waiting = [*seen.codes.values(), *_behind_traces(seen)]
    known = {id(ran.code) for ran in waiting}
    while waiting:
        ran = waiting.pop()
        kind = kind_of_file(ran.code.co_filename)
        module = module_of(ran.scope)
        if kind in ("jax", "library"):
            _add_file(ran.code.co_filename, files)
        if kind != "python":
            _add_named_classes(seen, ran, origins, values)
        if kind in ("user", "made") or module is None:
            continue
        if is_anchored(module, ran.code.co_qualname):
            anchors.setdefault(module, set()).add(ran.code.co_qualname)
        for holder, name, value in _named_by(ran, done):
            _add_value(seen, holder, name, value, origins, values)
            if kind != "python":
                waiting += _kept(value, known)
        if kind == "library":
            _add_class(seen, ran, module, done, origins, values)
        for cls in _classes_of(ran, module):
            _add_functions(cls, classes)
    return Held(
        {info: (identity, sorted(names)) for info, (identity, names) in sorted(files.items())},
        {module: sorted(names) for module, names in sorted(anchors.items())},
        {module: dict(sorted(names.items())) for module, names in sorted(origins.items())},
        {module: dict(sorted(names.items())) for module, names in sorted(values.items())},
        {module: dict(sorted(names.items())) for module, names in sorted(classes.items())},
    )


def _behind_traces(seen: Seen) -> list[Ran]:
    """Code of JAX that did not run because JAX had a trace of the function, and what such code names in turn."""
    found: list[Ran] = []
    known = set(seen.codes)
    done: set[tuple[int, str]] = set()
    at = [ran for ran in seen.codes.values() if kind_of_file(ran.code.co_filename) != "python"]
    for level in range(_LEVELS):
        named = [value for ran in at for _, _, value in _named_by(ran, done)]
        if level == 0:
            named = [value for value in named if type(value).__name__ == "PjitFunction"]
            done.clear()
        at = []
        for function in (function for value in named for function in functions_of(value)):
            code = function.__code__
            if id(code) not in known and kind_of_file(code.co_filename) == "jax":
                known.add(id(code))
                at.append(Ran(code, function.__globals__, None))
        found += at
    return found


def _kept(value: object, known: set[int]) -> Iterator[Ran]:
    """Library code behind a name of code that ran, and that did not run itself: a wrapper may have kept its results.

    What it names is followed in the same way, so all of it counts as if it had run.
    """
    for function in functions_of(value):
        code = function.__code__
        if id(code) not in known and kind_of_file(code.co_filename) == "library":
            known.add(id(code))
            yield Ran(code, function.__globals__, None)


def _add_named_classes(seen: Seen, ran: Ran, origins: dict[str, dict[str, str]], values: Values) -> None:
    """What classes of libraries hold that code names, and what is registered with abstract classes of Python's."""
    for cls in _classes_in(ran.scope, ran.code, 0):
        home = _home(cls)
        if home is None or not _is_at(cls, home):
            continue
        if kind_of_module(home) == "library":
            for name, value in held_by_class(cls):
                if name in ran.code.co_names:
                    _add_text(seen, home, f"{cls.__qualname__}.{name}", value, values)
        elif isinstance(cls, abc.ABCMeta) and kind_of_module(home) == "python":
            origins.setdefault(home, {})[cls.__qualname__] = str(origin_of(cls))


def _classes_in(scope: Mapping[str, Any], code: CodeType, depth: int) -> Iterator[type]:
    for name in code.co_names:
        value = scope.get(name)
        if isinstance(value, type):
            yield value
        elif type(value) is ModuleType and depth < 3:
            yield from _classes_in(vars(value), code, depth + 1)


def _add_class(
    seen: Seen,
    ran: Ran,
    module: str,
    done: set[tuple[int, str]],
    origins: dict[str, dict[str, str]],
    values: Values,
) -> None:
    """What the class of a method holds under names that the method uses: `self.strict` may be one of the class."""
    path = ran.code.co_qualname.rpartition(".")[0]
    cls = at_name(module, path) if path and "<locals>" not in path else None
    if not isinstance(cls, type):
        return
    for base in cls.__mro__:
        home = _home(base)
        if home is None or kind_of_module(home) != "library":
            continue
        space = type.__dict__["__dict__"].__get__(base)
        for name in ran.code.co_names:
            if name not in space or name.startswith("__") or (id(base), name) in done or not _is_at(base, home):
                continue
            done.add((id(base), name))
            value = space[name]
            origin = origin_of(value)
            if origin is not None:
                origins.setdefault(home, {})[f"{base.__qualname__}.{name}"] = origin
            elif is_holding(value) and not isinstance(value, OF_C):
                _add_text(seen, home, f"{base.__qualname__}.{name}", value, values)


def _classes_of(ran: Ran, module: str) -> Iterator[type]:
    """The class that code stands in, and the class of the object that it was first called for, with its bases."""
    path = ran.code.co_qualname.partition(".<locals>")[0]
    for name in (path, path.rpartition(".")[0]):
        cls = at_name(module, name) if name else None
        if isinstance(cls, type):
            yield cls
    if ran.first is not None:
        yield from ran.first.__mro__


def _add_functions(cls: type, classes: dict[str, dict[str, str]]) -> None:
    home = _home(cls)
    if home is None or cls.__qualname__ in classes.get(home, {}):
        return
    if home != "__main__" and kind_of_module(home) != "user" and _is_at(cls, home):
        classes.setdefault(home, {})[cls.__qualname__] = functions_of_class(cls)


def functions_of_class(cls: Any) -> str:
    """Where all functions of a class come from; "" for what is no class."""
    space = type.__dict__["__dict__"].__get__(cls) if isinstance(cls, type) else {}
    return "\n".join(f"{name} {origin}" for name, origin in _origins_in(space).items())


def _origins_in(space: Mapping[str, Any]) -> dict[str, str]:
    found = ((name, origin_of(value)) for name, value in sorted(space.items()))
    return {name: origin for name, origin in found if origin is not None}


def _home(cls: type) -> str | None:
    module = type.__dict__["__module__"].__get__(cls)
    return module if isinstance(module, str) and module in sys.modules else None


def _is_at(cls: type, module: str) -> bool:
    return at_name(module, cls.__qualname__) is cls


def at_name(module: str, path: str) -> Any:
    """What a dotted name leads to in a module, without asking anybody; `MISSING` if it leads nowhere."""
    at: Any = sys.modules.get(module, MISSING)
    for part in path.split("."):
        space = _space(at)
        if space is None or part not in space:
            return MISSING
        at = space[part]
    return at


def _add_file(file: str, files: dict[str, tuple[str, set[str]]]) -> None:
    found = installed().find(file)
    wheel = installed().wheel(found[0]) if found is not None else None
    if found is not None and wheel is not None:
        info = found[0].rpartition("/")[2]
        files.setdefault(info, (wheel.owner.identity, set()))[1].add(found[1])


def module_of(scope: dict[str, Any]) -> str | None:
    """The name of the module whose namespace this is, if that is how it is found."""
    name = scope.get("__name__")
    if not isinstance(name, str):
        return None
    module = sys.modules.get(name)
    return name if module is not None and vars(module) is scope else None


def _named_by(ran: Ran, done: set[tuple[int, str]]) -> Iterator[tuple[dict[str, Any], str, object]]:
    """Holder, name and value, for all that the code's names may mean."""
    for name in ran.code.co_names:
        value = ran.scope.get(name, MISSING)
        if value is MISSING or name in _OF_MODULES:
            continue
        if (id(ran.scope), name) not in done:
            done.add((id(ran.scope), name))
            yield ran.scope, name, value
        if type(value) is ModuleType:
            yield from _in_module(value, ran.code, done, 0)


def _in_module(
    module: ModuleType, code: CodeType, done: set[tuple[int, str]], depth: int
) -> Iterator[tuple[dict[str, Any], str, object]]:
    scope = vars(module)
    for name in code.co_names:
        value = scope.get(name, MISSING)
        if value is MISSING or name in _OF_MODULES:
            continue
        if (id(scope), name) not in done:
            done.add((id(scope), name))
            yield scope, name, value
        if type(value) is ModuleType and depth < 3 and value is not module:
            yield from _in_module(value, code, done, depth + 1)


def _add_value(
    seen: Seen,
    scope: dict[str, Any],
    name: str,
    value: object,
    origins: dict[str, dict[str, str]],
    values: Values,
) -> None:
    module = module_of(scope)
    if module is None:
        return
    origin = origin_of(value)
    if origin is not None:
        origins.setdefault(module, {})[name] = origin
    if is_holding(value) and kind_of_module(module) == "library":
        _add_text(seen, module, name, value, values)


def _add_text(seen: Seen, module: str, name: str, value: object, values: Values) -> None:
    """What a variable holds, but for what changed while the function was traced."""
    after = tree_of(value)
    before: Tree = seen.values.get(id(vars(sys.modules[module])), {}).get(name, after)
    without = differing(before, after)
    if "" not in without:
        values.setdefault(module, {})[name] = rendered(after, frozenset(without)), without


def is_anchored(module: str, qualname: str) -> bool:
    """Whether code of this name is where its module has it."""
    home = sys.modules.get(module)
    if home is None:
        return False
    at = MISSING if "<locals>" in qualname else at_name(module, qualname)
    if at is MISSING:
        return False
    file = getattr(home, "__file__", None)
    if type(at) is FunctionType and at.__code__.co_qualname == qualname and at.__code__.co_filename == file:
        return True  # nearly all: the rest is slower
    return any(code.co_qualname == qualname and _is_of(code, file) for code in codes_of(at))


def _is_of(code: CodeType, file: str | None) -> bool:
    return file is None or code.co_filename.startswith("<frozen ") or _same_file(code.co_filename, file)


@functools.lru_cache(maxsize=1 << 14)
def _same_file(one: str, other: str) -> bool:
    return one == other or split(one) == split(other) != ("", "")


def _space(at: Any) -> Any:
    if type(at) is ModuleType or issubclass(type(at), ModuleType):
        return at.__dict__
    return type.__dict__["__dict__"].__get__(at) if isinstance(at, type) else None
