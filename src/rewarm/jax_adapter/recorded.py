"""Programs of a plan with the arguments that a run had: `rewarm.recorded`.

Not promised: that the record says everything. It is what the compiled program has: an argument that the function does
not use is in no program, a static one neither, and that a number's type was weak does not show. Where that matters the
argument is given, and the error says which.

A run (`ledger/journal.py`) says which keys were asked for under which name; their entries keep what the arguments were
(`identity/program/arguments.py`): names with the path to each leaf, shapes, types, and how each was divided over the
axes of a mesh, by name. The same division is made anew over another mesh whose axes have these names.

What pre-warming did is no run and is passed over. Race: an entry that is evicted meanwhile; then the next older run
is taken.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewarm import settings
from rewarm.cache import AHEAD, ARGUMENTS
from rewarm.envelope import Entry, open_entry
from rewarm.errors import BadEntryError, RewarmError, StoreError
from rewarm.identity.program import Argument
from rewarm.identity.program.arguments import of_plain
from rewarm.jax_adapter.programs import Program, abstract, line_of_caller
from rewarm.ledger.runs import BadRunError, iterate_events, runs
from rewarm.store import LocalStore

_TYPES = {
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"ui{bits}": f"uint{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{"i1": "bool", "bf16": "bfloat16", "complex<f32>": "complex64", "complex<f64>": "complex128"},
}
_SMALL_FLOAT = re.compile(r"f([48])(E\dM\d(?:B11)?(?:FNUZ|FNU|FN)?)")
_STEP = re.compile(r"\[('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+)\]|\.(\w+)|\[<flat index (\d+)>\]")
_LISTED = 6


class RecordError(RewarmError, ValueError):
    """The record of a run does not say what a plan needs; the message says what is missing, and what to give."""


def recorded(
    jitted: Any,
    /,
    *like: Any,
    on: Any = None,
    key: str | None = None,
    directory: Any = None,
    name: str | None = None,
    compiler_options: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Program:
    """See `rewarm.recorded`."""
    function = str(getattr(jitted, "__name__", ""))
    if not callable(jitted) or not function:
        raise TypeError(f"rewarm.recorded: expected a jitted function, such as jax.jit(f), found {jitted!r:.80}")
    found = _record(function, key, settings.of_command(directory=directory).directory)
    place = _Placing(found, on)
    signature = inspect.signature(jitted)
    if like or keywords:
        args, named = _as_given(signature, like, keywords, found, place)
    else:
        args, named = _from_names(signature, found, place)
    made = Program(jitted, *args, name=name, compiler_options=compiler_options, **named)
    made.line = line_of_caller()
    return made


# -- finding the record --------------------------------------------------------------------------------------------


def _record(function: str, key: str | None, root: Path) -> list[Argument]:
    """The arguments of the newest program of this name that ran, or of that key, whose entry is still there."""
    store, wanted = LocalStore(root), _plain(f"jit_{function}")
    names: dict[str, None] = {}
    gone = 0
    for program, found in _asked_for(root):
        names.setdefault(program)
        if (key is None and _plain(program) != wanted) or (key is not None and not found.startswith(key.lower())):
            continue
        entry = _entry(store, found)
        rows = None if entry is None else _arguments(entry)
        if rows is not None:
            return rows
        gone += 1
    what = f"with a key that begins with {key}" if key is not None else f"called {function}"
    if gone:
        raise RecordError(
            f"rewarm.recorded: the runs in {root} have {gone} programs {what}, and no entry of them that says its "
            "arguments is there any more; run the program once more, or give its arguments"
        )
    known = ", ".join(list(names)[:_LISTED]) or "none"
    raise RecordError(
        f"rewarm.recorded: no run in {root} has a program {what}; it has {known}. Run the program with rewarm on and "
        "this directory, or name another directory"
    )


def _asked_for(root: Path) -> Iterator[tuple[str, str]]:
    """Name and key of each program of the runs, the newest first."""
    for info in runs(root):
        if AHEAD in info.about:
            continue
        try:
            events = list(iterate_events(info.path))
        except (BadRunError, OSError):
            continue
        for event in reversed(events):
            if isinstance(event.get("key"), str):
                yield str(event.get("program")), str(event["key"])


def _plain(name: str) -> str:
    return re.sub(r"\W+", "", name).lower()


def _entry(store: LocalStore, key: str) -> Entry | None:
    try:
        data = store.get(key, use=False)
        return None if data is None else open_entry(data, key)
    except (BadEntryError, StoreError, ValueError):
        return None


def _arguments(entry: Entry) -> list[Argument] | None:
    try:
        return [of_plain(row) for row in json.loads(entry.section(ARGUMENTS))]
    except (BadEntryError, ValueError, TypeError, RecursionError):
        return None


# -- shapes and divisions ------------------------------------------------------------------------------------------


class _Placing:
    """Makes abstract values of recorded arguments, divided over the mesh of a plan.

    Args:
      found: the record.
      on: a mesh, a device, or `None`.
    """

    def __init__(self, found: Sequence[Argument], on: Any) -> None:
        import jax

        self._is_divided = any(one.mesh for one in found)
        self._mesh = on if isinstance(on, jax.sharding.Mesh) else None
        self._device = on if self._mesh is None else self._mesh.devices.flat[0]
        # One that was put on a device says so; of numbers every one does, wherever it lay.
        self._is_put = not self._is_divided and any(one.mesh == () and one.shape for one in found)

    def value(self, one: Argument, weak: bool = False) -> Any:
        """The abstract value."""
        import jax
        import jax.numpy as jnp

        return jax.ShapeDtypeStruct(
            one.shape, jnp.dtype(_type(one)), sharding=self.sharding(one), weak_type=weak and not one.shape
        )

    def sharding(self, one: Argument) -> Any:
        """Where it is to lie; `None` where nobody had said.

        Raises:
          RecordError: it was divided in a way that cannot be made anew here.
        """
        import jax

        if one.text:
            raise RecordError(
                f"rewarm.recorded: {one.name or 'an argument'} was divided by {one.text}, which names no axes of a "
                "mesh; give the arguments with shardings of your own"
            )
        if one.mesh is None or not one.mesh:
            return self._on_one(one)
        if self._mesh is None:
            axes = ", ".join(f"{name}={size}" for name, size in one.mesh)
            raise RecordError(f"rewarm.recorded: the run had a mesh of {axes}: give on=, a mesh with axes named so")
        unknown = {axis for axes in one.axes or () for axis in axes} - set(self._mesh.axis_names)
        if unknown:
            raise RecordError(
                f"rewarm.recorded: {one.name or 'an argument'} was divided over {', '.join(sorted(unknown))}; the mesh "
                f"that was given has {', '.join(map(str, self._mesh.axis_names))}"
            )
        parts = [axes[0] if len(axes) == 1 else axes or None for axes in one.axes or ()]
        memory = one.memory if one.memory not in ("", "device") else None
        return jax.sharding.NamedSharding(self._mesh, jax.sharding.PartitionSpec(*parts), memory_kind=memory)

    def _on_one(self, one: Argument) -> Any:
        import jax

        if one.mesh is None or not self._is_put:
            return None
        if self._device is None:
            raise RecordError(
                f"rewarm.recorded: the run had put {one.name or 'its arguments'} on a device: give on=, the device"
            )
        return jax.sharding.SingleDeviceSharding(self._device)


def _type(one: Argument) -> str:
    known = _TYPES.get(one.kind)
    if known is not None:
        return known
    small = _SMALL_FLOAT.fullmatch(one.kind)
    if small is None:
        raise RecordError(f"rewarm.recorded: {one.name or 'an argument'} has a type that is not known here: {one.kind}")
    return f"float{small[1]}_{small[2].lower()}"


# -- with the structure of arguments that are given -----------------------------------------------------------------


def _as_given(
    signature: inspect.Signature,
    like: Sequence[Any],
    keywords: Mapping[str, Any],
    found: Sequence[Argument],
    place: _Placing,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that are given, their shapes and divisions as recorded; what is in no record stays as it is."""
    import jax

    left = {one.name: one for one in found}
    names = _names_of(signature, like, keywords)
    plain = abstract((tuple(like), dict(keywords)))

    def of(path: Any, leaf: Any, kept: Any) -> Any:
        one = left.pop(_name_of(names, path), None)
        if one is None:
            return kept
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.extended):  # a program has its words alone
            return kept
        return place.value(one, weak=bool(getattr(kept, "weak_type", False)))

    args, named = jax.tree_util.tree_map_with_path(of, (tuple(like), dict(keywords)), plain)
    if left:
        raise RecordError(
            f"rewarm.recorded: the run had {_some(left)} beside the arguments that were given; give all that it had, "
            "or none"
        )
    return args, named


def _names_of(signature: inspect.Signature, like: Sequence[Any], keywords: Mapping[str, Any]) -> dict[Any, str]:
    """The name that JAX gives to each argument, by its number or keyword."""
    names: dict[Any, str] = {}
    number = 0
    for one in signature.parameters.values():
        if one.kind is inspect.Parameter.VAR_POSITIONAL:
            names |= {at: f"{one.name}[{at - number}]" for at in range(number, len(like))}
            number = len(like)
        elif one.kind is inspect.Parameter.VAR_KEYWORD:
            names |= {word: f"{one.name}[{word!r}]" for word in keywords if word not in names}
        elif one.kind is inspect.Parameter.KEYWORD_ONLY:
            names[one.name] = one.name
        else:
            names |= {number: one.name, one.name: one.name}
            number += 1
    return names


def _name_of(names: Mapping[Any, str], path: Any) -> str:
    import jax

    side, which, *rest = path
    word = which.idx if side.idx == 0 else which.key
    return names.get(word, str(word)) + str(jax.tree_util.keystr(tuple(rest)))


# -- from the names alone ------------------------------------------------------------------------------------------


def _from_names(
    signature: inspect.Signature, found: Sequence[Argument], place: _Placing
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments made of the paths in their names: dicts, and lists for what has numbers."""
    roots: dict[str, dict[Any, Any]] = {}
    for one in found:
        root, steps = _path(one)
        at = roots.setdefault(root, {})
        for step in steps:
            at = at.setdefault(step, {})
        at[None] = place.value(one)
    made = {root: _built(node, root) for root, node in roots.items()}
    args: list[Any] = []
    named: dict[str, Any] = {}
    by_keyword = False  # from the first on that has its default
    for parameter in signature.parameters.values():
        if parameter.name in made:
            _put(parameter, made.pop(parameter.name), args, named, by_keyword)
        elif parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        elif parameter.default is inspect.Parameter.empty:
            raise RecordError(
                f"rewarm.recorded: {parameter.name} is in no record: it is static, or the function does not use it; "
                "give the arguments, as the function takes them"
            )
        else:
            by_keyword = True
    if made:
        raise RecordError(f"rewarm.recorded: the run had {_some(made)}, which this function does not take")
    return tuple(args), named


def _put(parameter: inspect.Parameter, made: Any, args: list[Any], named: dict[str, Any], by_keyword: bool) -> None:
    kind = parameter.kind
    if kind is inspect.Parameter.VAR_POSITIONAL:
        args.extend(made)
    elif kind is inspect.Parameter.VAR_KEYWORD:
        named.update(made)
    elif kind is inspect.Parameter.KEYWORD_ONLY or by_keyword:
        named[parameter.name] = made
    else:
        args.append(made)


def _path(one: Argument) -> tuple[str, list[Any]]:
    root = re.match(r"\w+", one.name)
    steps, at = [], 0 if root is None else root.end()
    while root is not None and at < len(one.name):
        step = _STEP.match(one.name, at)
        if step is None or step[1] is None:
            raise RecordError(
                f"rewarm.recorded: {one.name} lies in an object of a class of its own, which no record can make; give "
                "the arguments (jax.eval_shape of what makes them will do)"
            )
        steps.append(ast.literal_eval(step[1]))
        at = step.end()
    if root is None:
        raise RecordError("rewarm.recorded: the record names no arguments; give them, as the function takes them")
    return root[0], steps


def _built(node: Mapping[Any, Any], name: str) -> Any:
    if None in node:
        return node[None]
    if all(isinstance(step, str) for step in node):
        return {step: _built(one, f"{name}[{step!r}]") for step, one in node.items()}
    if list(node) != list(range(len(node))):
        raise RecordError(
            f"rewarm.recorded: of {name} the record has the members {', '.join(map(str, node))}: the function does not "
            "use others, or it is a dict with numbers; give the arguments, as the function takes them"
        )
    return [_built(one, f"{name}[{step}]") for step, one in node.items()]


def _some(names: Mapping[str, Any]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(repr(name) for name in listed[:_LISTED]) + more
