"""Programs of a plan, as users write them: `rewarm.Program`, and abstract arguments for it.

Not promised: that the arguments fit the function; that shows when the program is lowered, and the error names the
program and the line where it was made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

_HERE = Path(__file__).parent.parent


class Program:
    """One program to be compiled: a jitted function with abstract arguments.

    Attributes:
      function: as it was given.
      arguments, keywords: pytrees whose leaves have a shape and a dtype (`jax.ShapeDtypeStruct`, arrays, of which
        nothing else is used), or are passed on as they are (static arguments).
      name: for people; different programs of one plan may not share it.
      compiler_options: as `jax.jit` and `Lowered.compile` take them; a run must use the same.
      line: "file:line" of whoever made this.
    """

    def __init__(
        self,
        jitted: Callable[..., Any],
        /,
        *arguments: Any,
        name: str | None = None,
        compiler_options: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        """Make one; nothing is traced or compiled.

        Raises:
          TypeError: `jitted` is not callable, or the name or the options are none.
        """
        self.line = line_of_caller()
        if not callable(jitted):
            raise TypeError(
                f"{self.line}: rewarm.Program: expected a jitted function, such as jax.jit(f), and then its abstract "
                f"arguments, found {type(jitted).__name__}"
            )
        if name is not None and not str(name).strip():
            raise TypeError(f"{self.line}: rewarm.Program: expected a name, found an empty one")
        self.function = jitted
        self.arguments = arguments
        self.keywords = keywords
        self.name = str(name or getattr(jitted, "__name__", "program"))
        self.compiler_options = dict(compiler_options or {})

    def __repr__(self) -> str:
        return f"<rewarm.Program {self.name} ({self.line})>"


def line_of_caller() -> str:
    """ "file:line" of the nearest caller outside this package; "" where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and Path(frame.f_code.co_filename).is_relative_to(_HERE):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def abstract(tree: Any, *, sharding: Any = None, mesh: Any = None) -> Any:
    """See `rewarm.abstract`."""
    import jax

    if sharding is None:
        return jax.tree.map(lambda leaf: _leaf(leaf, None, mesh), tree)

    def under(one: Any, part: Any) -> Any:
        return jax.tree.map(lambda leaf: _leaf(leaf, _placed(one, mesh), mesh), part)

    return jax.tree.map(under, sharding, tree, is_leaf=_is_sharding)


def _is_sharding(value: Any) -> bool:
    import jax

    return value is None or isinstance(value, jax.sharding.Sharding | jax.sharding.PartitionSpec)


def _placed(one: Any, mesh: Any) -> Any:
    import jax

    if one is None or isinstance(one, jax.sharding.Sharding):
        return one
    if not isinstance(one, jax.sharding.PartitionSpec):
        raise TypeError(f"rewarm.abstract: expected shardings, PartitionSpecs or None, found {type(one).__name__}")
    if mesh is None:
        raise ValueError(f"rewarm.abstract: {one} says how to divide and not over what: give mesh= too")
    return jax.sharding.NamedSharding(mesh, one)


def _leaf(leaf: Any, sharding: Any, mesh: Any) -> Any:
    """A leaf without its values, with the sharding that is asked for, or its own where that can be had."""
    import jax

    if not hasattr(leaf, "shape") and not isinstance(leaf, bool | int | float | complex):
        return leaf
    own = sharding
    said = getattr(leaf, "sharding", None)
    if own is None and isinstance(leaf, jax.ShapeDtypeStruct):
        own = said
    if own is None and mesh is not None and isinstance(said, jax.sharding.NamedSharding):
        own = jax.sharding.NamedSharding(mesh, said.spec, memory_kind=said.memory_kind)
    if not isinstance(leaf, jax.ShapeDtypeStruct | jax.Array):
        leaf = jax.eval_shape(lambda value: value, leaf)  # the type that JAX gives a NumPy array or a number
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=own, weak_type=bool(getattr(leaf, "weak_type", False)))
