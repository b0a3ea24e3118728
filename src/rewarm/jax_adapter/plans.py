"""Plans: the programs that a model consists of, as a function of the user's that yields them with abstract arguments.

Not promised: that a plan is all that a model compiles; it is what its author put into it.

A plan is `module:function` or `path/file.py:function`. Called, the function yields (or returns a list of)
`rewarm.Program`, or

    (function, arguments)
    (function, arguments, keyword arguments)
    (name, function, arguments[, keyword arguments])

where `function` is jitted (another callable is jitted here) and arguments are a tuple of pytrees whose leaves have a
shape and a dtype: `jax.ShapeDtypeStruct`, or arrays, of which nothing else is used. Other leaves are passed on as they
are. A plan function with a parameter is given the list of devices, described or attached, so that it can make a mesh
and say shardings. A program that says none is one for the first device. One that says shardings of other devices, as
of a mesh of `jax.devices()` where a described GPU is asked of, is an error (`refuse_others`).

`python -m rewarm.jax_adapter.plans PLAN [--only NAME]...` compiles the programs for the attached devices, so that XLA
tunes what it does not know yet. Nothing is run. Each is compiled, and none is taken from a cache, rewarm's or JAX's,
whatever the environment and the plan say of them: XLA tunes nothing for a program that is found. Where results lie is
for `XLA_FLAGS` alone to say, and not for the `compiler_options` of a program.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import itertools
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import rewarm
from rewarm import settings
from rewarm.autotune import xla_flags
from rewarm.autotune.xla_errors import deterministic
from rewarm.errors import RewarmError
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.programs import Program as Said

_FORMS = "rewarm.Program, (function, arguments[, keyword arguments]) or (name, function, arguments[, keywords])"


class PlanError(RewarmError, ValueError):
    """A plan cannot be found or used; the message says what was expected and found."""


class Program(NamedTuple):
    """One program of a plan.

    Attributes:
      name: of the function, or as the plan says; different for each.
      function: jitted.
      arguments, keywords: as the plan gives them.
      compiler_options: what `Lowered.compile` is to have.
      line: "file:line" in the plan, where that is known.
    """

    name: str
    function: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    compiler_options: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    line: str = ""

    @property
    def where(self) -> str:
        """Its name, and where the plan makes it."""
        return f"{self.name} ({self.line})" if self.line else self.name


def read(plan: str) -> Callable[..., Any]:
    """The function of a plan, whose module is imported for it.

    Raises:
      PlanError: it is not there; what the module raises itself is passed on.
    """
    return _function(plan)


def programs(plan: str, devices: Sequence[Any], function: Callable[..., Any] | None = None) -> Iterator[Program]:
    """The programs of a plan, for these devices; `function` is the plan's, where it was read already.

    The plan stands at its `yield` until the next program is asked for: what is lowered before that is lowered with
    the plan's variables, and in its contexts, such as `with jax.enable_x64(True):`.

    Raises:
      PlanError: the plan is not there, or yields something else; what it raises itself is passed on.
    """
    seen: set[str] = set()
    items = _items(plan, devices, function or _function(plan))
    for number, item in enumerate(items, start=1):
        one = _program(plan, number, item)
        one = one if one.line else one._replace(line=_line_of(items))
        names = (one.name if at == 1 else f"{one.name}#{at}" for at in itertools.count(1))
        name = next(name for name in names if name not in seen)
        seen.add(name)
        yield one if name == one.name else one._replace(name=name)


def without_caches() -> None:
    """Turn every cache of this process off, so that JAX compiles what it is asked for and adds no directory of results.

    For before a plan is read, and before each compile: the plan is the user's code and may turn a cache on. JAX
    remembers for the process whether it uses one, hence the reset.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    rewarm.disable()
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()


def own_options(program: Program) -> dict[str, Any]:
    """The plan's options for a program, as in a run, but for where tuning comes from and what is dumped."""
    options = program.compiler_options
    return {name: options[name] for name in options if not xla_flags.says_where(name)}


ON_FIRST = "traced with its arguments on the first device, since it computes there while it is traced"


def lowered(program: Program, devices: Sequence[Any], notes: list[str] | None = None) -> Any:
    """A program for these devices, not yet compiled, as a run with arrays of the same kind would lower it.

    Shardings are in the text of a program and its fusions, so in keys. One whose arguments say none is lowered as for
    arrays that nobody has put on a device: for the devices that its function names, else for the first one. Where the
    function computes on the device while it is traced, which a described one cannot, the arguments are taken for arrays
    that were put on the first device; `notes` gets a line that says so, as a run with others asks for another program.

    Raises:
      Exception: what JAX and the function raise.
    """
    import jax

    given = (program.arguments, program.keywords)
    if any(getattr(leaf, "sharding", None) is not None for leaf in _described(given)):
        return _lowered(program, None)
    said = jax.config.jax_default_device  # the plan's own, in its context
    first = said if said in devices else devices[0]
    try:
        with jax.default_device(first):
            return _lowered(program, None)
    except Exception as wrong:  # noqa: BLE001 - raised below
        try:
            made = _lowered(program, jax.sharding.SingleDeviceSharding(first))
            if notes is not None:
                notes.append(f"{ON_FIRST} ({type(wrong).__name__} else)")
            return made
        except Exception:  # noqa: BLE001 - the first one is what a run would show
            raise wrong from None


def compiled(program: Program, lowered: Any, devices: Collection[Any], options: Mapping[str, Any] | None) -> Any:
    """Compile what was lowered, where it is for these devices.

    Which ones a program is for JAX says at its compile step: shardings, `jax.jit` and constants all have a part in it.

    Raises:
      PlanError: it is for others; then it is not compiled.
      Exception: what the compiler raises.
    """
    compile_step = seam.current()

    def look(backend: Any, computation: Any, assigned: Any, *rest: Any, **named: Any) -> Any:
        refuse_others(program, devices, assigned.flat)
        return compile_step(backend, computation, assigned, *rest, **named)

    seam.install(look)
    try:
        return lowered.compile(compiler_options=dict(options) if options else None)
    finally:
        seam.install(compile_step)


def refuse_others(program: Program, devices: Collection[Any], meant: Iterable[Any]) -> None:
    """Compare the devices that a program is for with those that the plan was given.

    Raises:
      PlanError: there is another one among them.
    """
    others = [device for device in meant if device not in devices]
    if others:
        raise PlanError(
            f"{program.where}: its shardings, or what jax.jit is told, are for {others[0]} of this process and not for "
            "the devices that the plan was given: take those, plan(devices), for its meshes, in the place of "
            "jax.devices() and jax.make_mesh()"
        )


def _lowered(program: Program, sharding: Any) -> Any:
    import jax

    given = (program.arguments, program.keywords)
    arguments, keywords = jax.tree.map(lambda leaf: _abstract(leaf, sharding), given)
    return program.function.lower(*arguments, **keywords)


def _described(given: Any) -> list[Any]:
    """Leaves that only say a shape. An array has a sharding, too, which says where it lies here."""
    import jax

    return [leaf for leaf in jax.tree.leaves(given) if isinstance(leaf, jax.ShapeDtypeStruct)]


def _abstract(leaf: Any, sharding: Any) -> Any:
    import jax

    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return leaf
    said = leaf.sharding if isinstance(leaf, jax.ShapeDtypeStruct) else None
    weak = bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=said or sharding, weak_type=weak)


def _items(plan: str, devices: Sequence[Any], function: Callable[..., Any]) -> Iterable[Any]:
    made = function(list(devices)) if _takes_devices(function) else function()
    if not isinstance(made, Iterable) or isinstance(made, str | bytes | dict):
        raise PlanError(f"{plan}: expected a function that yields {_FORMS}, found one that returns {_kind(made)}")
    return made


def _line_of(items: Any) -> str:
    """Where a generator stands: the line of its `yield`; "" of anything else."""
    frame = getattr(items, "gi_frame", None)
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _takes_devices(function: Callable[..., Any]) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.kind in kinds and one.default is inspect.Parameter.empty
    ]
    return len(needed) == 1


def check_form(plan: str) -> tuple[str, str]:
    """The module or file, and the function, that a plan's name says; nothing is imported.

    Raises:
      PlanError: it is no such name, or the file is not there.
    """
    where, colon, name = plan.rpartition(":")
    is_file = where.endswith(".py")
    is_module = all(part.isidentifier() for part in where.split("."))
    if not colon or not name.isidentifier() or not (is_file or is_module):
        raise PlanError(f"{plan}: expected module:function or path/file.py:function")
    if is_file and not Path(where).is_file():
        raise PlanError(f"{where}: expected a Python file with the plan, found none")
    return where, name


def _function(plan: str) -> Callable[..., Any]:
    where, name = check_form(plan)
    module = _of_file(Path(where)) if where.endswith(".py") else _of_name(where)
    found = getattr(module, name, None)
    if not callable(found):
        there = [key for key, value in vars(module).items() if inspect.isfunction(value) and not key.startswith("_")]
        raise PlanError(f"{plan}: {where} has no function {name}; it has {', '.join(sorted(there)) or 'none'}")
    made: Callable[..., Any] = found
    return made


def _of_name(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as wrong:
        if wrong.name and (name == wrong.name or name.startswith(f"{wrong.name}.")):
            raise PlanError(
                f"there is no module {name} here ({wrong}); a file is named path/file.py:function"
            ) from None
        raise


def _of_file(path: Path) -> Any:
    sys.path.append(str(path.resolve().parent))  # behind everything else: its neighbours must not stand for JAX
    name = path.stem
    if name in sys.modules or name in sys.stdlib_module_names:  # nor may it itself stand for another module
        name = f"_rewarm_plan_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PlanError(f"{path}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _program(plan: str, number: int, item: Any) -> Program:
    if isinstance(item, Said):
        function = _jitted(item.function)
        return Program(item.name, function, item.arguments, item.keywords, item.compiler_options, item.line)
    parts = list(item) if isinstance(item, tuple | list) else []
    name = parts.pop(0) if parts and isinstance(parts[0], str) else ""
    if not 2 <= len(parts) <= 3 or not callable(parts[0]) or not isinstance(parts[1], tuple | list):
        raise PlanError(f"{plan}: expected {_FORMS}, found {_kind(item)} as number {number}")
    keywords = parts[2] if len(parts) == 3 else {}
    if not isinstance(keywords, dict):
        raise PlanError(f"{plan}: expected keyword arguments as a dict, found {_kind(keywords)} in number {number}")
    function = _jitted(parts[0])
    return Program(name or getattr(parts[0], "__name__", "program"), function, tuple(parts[1]), keywords)


def _jitted(function: Any) -> Any:
    if hasattr(function, "lower"):
        return function
    import jax

    return jax.jit(function)


def _kind(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {', '.join(type(one).__name__ for one in value) or 'nothing'}"
    return f"a {type(value).__name__}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile the programs of a plan for the attached devices; the exit code is how many did not compile."""
    parser = argparse.ArgumentParser(
        prog="python -m rewarm.jax_adapter.plans", description="Compile a plan's programs."
    )
    parser.add_argument("plan", help="module:function or path/file.py:function")
    parser.add_argument("--only", action="append", metavar="NAME", help="a program's name; may be repeated")
    asked = parser.parse_args(arguments)
    import jax

    without_caches()
    sys.path.append("")  # a module in the working directory
    failed = 0
    names = []
    for program in programs(asked.plan, jax.devices()):
        names.append(program.name)
        if not asked.only or program.name in asked.only:
            failed += not _compiled(program, jax.devices())
    unknown = sorted(set(asked.only or ()) - set(names))
    if unknown:
        print(f"the plan has no program {', '.join(unknown)}; it has {', '.join(names) or 'none'}", file=sys.stderr)
    return min(failed + len(unknown), 100)


def _compiled(program: Program, devices: Sequence[Any]) -> bool:
    since = time.perf_counter()
    try:
        options = _to_tune(program)
        without_caches()
        compiled(program, lowered(program, devices), devices, options)
    except Exception as wrong:  # noqa: BLE001 - the next program may compile
        print(f"{program.name}: {type(wrong).__name__}: {wrong}", file=sys.stderr)
        return False
    print(f"{program.name}: compiled in {time.perf_counter() - since:.1f} s", flush=True)
    own = {name: str(value).lower() in ("true", "1") for name, value in options.items()}
    if on := deterministic({**xla_flags.switches(settings.xla_flags()), **own}):
        print(f"{program.name}: {on} is on, with which XLA times nothing", file=sys.stderr)
    return True


def _to_tune(program: Program) -> dict[str, Any]:
    """Its options for a compile that tunes: `XLA_FLAGS` alone say in which formats, and results are wanted."""
    own = own_options(program)
    return {
        name: own[name] for name in own if name != xla_flags.NEW_FORMAT and not xla_flags.turns_off(name, own[name])
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PlanError as wrong:
        print(f"Error: {wrong}", file=sys.stderr)
        sys.exit(101)
