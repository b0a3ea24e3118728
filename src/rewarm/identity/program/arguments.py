"""What the arguments of a program are: names, shapes, types, and how they are divided over a mesh.

Not promised: all that was passed. What a program does not use is not in it, static arguments are not, and of a number
that Python passed it does not say that its type was weak. A division that was not said by the names of a mesh's axes
(a program lowered without Shardy) is given as the text that XLA has of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_SHARDING, _OTHER_SHARDING, _MEMORY = "sdy.sharding", "mhlo.sharding", "mhlo.memory_kind"


class Argument(NamedTuple):
    """One argument of the main function.

    Attributes:
      name: as the function has it, with the path to the leaf: "params['layers'][0].w"; "" where it is not known.
      shape: sizes.
      kind: the element type as MLIR writes it, such as "bf16".
      mesh: names and sizes of the axes of the mesh that it lies on; none of one device; `None` where nothing is said.
      axes: for each dimension the names of the mesh's axes that divide it; `None` where nothing is said.
      memory: the kind of memory that was asked for, or "".
      text: a division in other words than axes, or "".
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    mesh: tuple[tuple[str, int], ...] | None = None
    axes: tuple[tuple[str, ...], ...] | None = None
    memory: str = ""
    text: str = ""

    def plain(self) -> list[Any]:
        """For JSON; `of_plain` takes it back."""
        return list(self)


def of_plain(row: Any) -> Argument:
    """What `Argument.plain` gave.

    Raises:
      TypeError, ValueError: it is none.
    """
    name, shape, kind, mesh, axes, memory, text = row
    return Argument(
        str(name),
        tuple(int(size) for size in shape),
        str(kind),
        None if mesh is None else tuple((str(axis), int(size)) for axis, size in mesh),
        None if axes is None else tuple(tuple(str(axis) for axis in one) for one in axes),
        str(memory),
        str(text),
    )


def arguments_of(module: Any) -> list[Argument]:
    """The arguments of a module's main function, in their order.

    Raises:
      ValueError: it has none.
    """
    meshes: dict[str, Any] = {}
    main = None
    for one in module.body.operations:
        name = one.operation.name
        if name == "sdy.mesh":
            meshes[one.attributes["sym_name"].value] = one.attributes["mesh"]
        elif name == "func.func" and one.attributes["sym_name"].value == "main":
            main = one
    if main is None:
        raise ValueError("the program has no main function")
    entry = main.regions[0].blocks[0]
    said = list(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else [{}] * len(entry.arguments)
    return [_argument(one, attributes, meshes) for one, attributes in zip(entry.arguments, said, strict=True)]


def _argument(value: Any, attributes: Any, meshes: dict[str, Any]) -> Argument:
    from jaxlib.mlir import ir

    kind = ir.RankedTensorType(value.type)
    found = Argument(_name(value.location), tuple(kind.shape), str(kind.element_type))
    if _MEMORY in attributes:
        found = found._replace(memory=attributes[_MEMORY].value)
    if _SHARDING in attributes:
        return _divided(found, attributes[_SHARDING], meshes)
    if _OTHER_SHARDING in attributes:
        return found._replace(text=attributes[_OTHER_SHARDING].value)
    return found


def _name(location: Any) -> str:
    """The name of a location, as JAX gives one to each argument."""
    # JAX 0.9's bindings read a name without a look whether there is one, which ends the process where there is none.
    if hasattr(location, "is_a_name") and not location.is_a_name():
        return ""
    name = getattr(location, "name_str", None)
    if name is None:  # older bindings
        text = str(location)
        name = text[5:-2] if text.startswith('loc("') and text.endswith('")') else ""
    return "" if name == "unknown" else str(name)


def _divided(found: Argument, sharding: Any, meshes: dict[str, Any]) -> Argument:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import sdy

    said = sdy.TensorShardingAttr(sharding)
    mesh = said.mesh_or_ref
    if isinstance(mesh, ir.FlatSymbolRefAttr) or ir.FlatSymbolRefAttr.isinstance(mesh):
        mesh = meshes[ir.FlatSymbolRefAttr(mesh).value]
    mesh = sdy.MeshAttr(mesh)
    axes = []
    for dimension in said.dimension_shardings:
        one = sdy.DimensionShardingAttr(dimension)
        refs = [sdy.AxisRefAttr(axis) for axis in one.axes]
        if any(ref.sub_axis_info is not None for ref in refs):
            return found._replace(text=str(sharding))
        axes.append(tuple(ref.name for ref in refs))
    named = tuple((one.name, one.size) for one in (sdy.MeshAxisAttr(axis) for axis in mesh.axes))
    return found._replace(mesh=named, axes=tuple(axes))
