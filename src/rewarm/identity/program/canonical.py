"""The canonical form of a program: equal when nothing that shapes its machine code differs.

Not promised: that two programs which compute the same are equal; operations are not reordered or simplified.

What does not count: source locations, the module's name, names of private functions (they become f.0, f.1, ... in the
order in which the program has them), names of results and arguments, source locations inside kernels, and the
address by which a `custom_partitioning` call finds its Python (its content is the `callbacks` component).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from rewarm.identity.program import bytecode, payloads

CUSTOM_PARTITIONING = "CustomSPMDPartitioning"

# Python that runs while the program compiles: a hit would never call it.
_UNKEYABLE = {"InspectSharding": "inspect_array_sharding"}

# Attributes of functions' arguments and results that hold names of the user's and nothing else.
_NAMES = frozenset({"jax.result_info", "jax.arg_info"})

# Where one operation names another by symbol. Meshes are named inside attributes and have their own rule.
_REFERENCES = {
    "func.call": "callee",
    "func.constant": "value",
    "stablehlo.composite": "decomposition",
}
_CALLED = "called_computations"
_FUNCTION, _MODULE, _MESH = "func.func", "builtin.module", "sdy.mesh"
_CUSTOM_CALLS = ("stablehlo.custom_call", "mhlo.custom_call")
_WANTED = frozenset({*_REFERENCES, *_CUSTOM_CALLS, _FUNCTION, _MODULE, _MESH})

# Dialects whose other operations refer to no function. A program with an operation of any other keeps its names.
_KNOWN_DIALECTS = frozenset({"stablehlo", "chlo", "mhlo", "sdy", "func", "arith", "math", "tensor", "shape", "builtin"})
_OWN_NAME = re.compile(r"f\.\d+")


class Program(NamedTuple):
    """A program as its key sees it.

    Attributes:
      name: the module's name, such as `jit_train_step`.
      canonical: MLIR bytecode of the canonical module.
      callbacks: for each `custom_partitioning` call, in order, what its configuration holds: a decimal number, the
        address under which JAX finds the call's Python.
      unkeyable: why the program cannot have a key, or `None`.
      kinds: the names of its operations, sorted, each once.
    """

    name: str
    canonical: bytes
    callbacks: tuple[str, ...]
    unkeyable: str | None
    kinds: tuple[str, ...] = ()


def canonical_program(module: Any, *, metadata_in_key: bool) -> Program:
    """The canonical form of an MLIR module (`jaxlib.mlir.ir.Module`), which stays as it is.

    With `metadata_in_key` locations and names stay in, as `jax_compilation_cache_include_metadata_in_key` asks.
    """
    from jaxlib.mlir import ir

    name = ir.StringAttr(module.operation.attributes["sym_name"]).value
    with module.context, ir.Location.unknown(module.context):
        # A clone, since the module that is compiled must keep its locations for error messages and profiles.
        operation = module.operation.clone(ip=False).operation
        found, others = _collect(operation)
        callbacks = _number_callbacks(found)
        if metadata_in_key:
            canonical = payloads.write(operation)
        else:
            payloads.strip_locations(operation)
            canonical = _finished(operation, found, _without_names(operation, found, others))
    return Program(name, canonical, callbacks, _unkeyable(found), tuple(sorted({*found, *others})))


_Found = dict[str, list[Any]]


def _collect(operation: Any) -> tuple[_Found, set[str]]:
    """The operations that canonicalising looks at, by name, in program order; and the names of all others."""
    from jaxlib.mlir import ir

    found: _Found = {}
    others: set[str] = set()
    advance = ir.WalkResult.ADVANCE

    def look(one: Any) -> Any:
        # The way of most operations comes first: this runs once for each.
        name = one.name
        if name in others:
            return advance
        if name in _WANTED:
            found.setdefault(name, []).append(one)
        else:
            others.add(name)
        return advance

    operation.walk(look, ir.WalkOrder.PRE_ORDER)
    return found, others


def _custom_calls(found: _Found) -> list[tuple[str, Any]]:
    """Target and operation of each custom call."""
    calls = [one for name in _CUSTOM_CALLS for one in found.get(name, ())]
    return [(one.attributes["call_target_name"].value, one) for one in calls]


def _unkeyable(found: _Found) -> str | None:
    return next((_UNKEYABLE[target] for target, _ in _custom_calls(found) if target in _UNKEYABLE), None)


def _number_callbacks(found: _Found) -> tuple[str, ...]:
    """Put a running number in place of each address; returns the addresses."""
    from jaxlib.mlir import ir

    addresses = []
    for target, call in _custom_calls(found):
        if target == CUSTOM_PARTITIONING:
            addresses.append(call.attributes["backend_config"].value)
            call.attributes["backend_config"] = ir.StringAttr.get(str(len(addresses) - 1))
    return tuple(addresses)


def rename(operation: Any) -> None:
    """Give the functions of a module the names of the canonical form, and keep its source locations."""
    found, others = _collect(operation)
    _number_callbacks(found)
    if _without_names(operation, found, others) is not None:
        _rename_meshes(operation, found)


def _without_names(operation: Any, found: _Found, others: set[str]) -> dict[str, str] | None:
    """Take names out, as far as it is known where they are.

    Returns the new name of each function that had another, or `None` where functions and meshes keep their names.
    """
    functions = [_function(one.attributes) for one in found.get(_FUNCTION, ())]
    _strip_payloads(found)
    for function in functions:
        if not function.private:  # JAX names the results of no other
            _drop_names(function.attributes)
    _rename_module(operation)
    known = {name.partition(".")[0] for name in others} <= _KNOWN_DIALECTS
    nested = len(found.get(_MODULE, ())) > 1
    if nested or not known or any(_OWN_NAME.fullmatch(one.name) for one in functions if not one.private):
        return None
    return _rename_functions(operation, functions, found)


class _Function(NamedTuple):
    attributes: Any
    name: str
    private: bool


def _function(attributes: Any) -> _Function:
    private = "sym_visibility" in attributes and attributes["sym_visibility"].value == "private"
    return _Function(attributes, attributes["sym_name"].value, private)


def _strip_payloads(found: _Found) -> None:
    for target, call in _custom_calls(found):
        for name, value in payloads.without_locations(target, call.attributes).items():
            call.attributes[name] = value


def _drop_names(attributes: Any) -> None:
    from jaxlib.mlir import ir

    for which in ("arg_attrs", "res_attrs"):
        rows = list(attributes[which]) if which in attributes else []
        # Counted first: taking a row apart costs ten times as much, and most rows hold names alone or none.
        named = [sum([name in row for name in _NAMES]) for row in rows]
        if not any(named):
            continue
        if named == [len(row) for row in rows]:
            del attributes[which]  # as in a program that never had names
        else:
            kept = [_nameless(row) if has else row for row, has in zip(rows, named, strict=True)]
            attributes[which] = ir.ArrayAttr.get(kept)


def _nameless(row: Any) -> Any:
    from jaxlib.mlir import ir

    return ir.DictAttr.get({part.name: part.attr for part in row if part.name not in _NAMES})


def _rename_module(operation: Any) -> None:
    from jaxlib.mlir import ir

    operation.attributes["sym_name"] = ir.StringAttr.get("m")


def _rename_functions(operation: Any, functions: list[_Function], found: _Found) -> dict[str, str]:
    """Number the private functions; returns old name to new."""
    from jaxlib.mlir import ir

    private = [_with_foreign_name(operation, function, functions) for function in functions if function.private]
    new = {function.name: f"f.{number}" for number, function in enumerate(private)}
    for function in private:
        function.attributes["sym_name"] = ir.StringAttr.get(new[function.name])
    references = {name: ir.FlatSymbolRefAttr.get(own) for name, own in new.items()}
    for kind, attribute in _REFERENCES.items():
        for one in found.get(kind, ()):
            _rename_reference(one.attributes, attribute, references)
    for _, call in _custom_calls(found):
        attributes = call.attributes
        called = list(attributes[_CALLED]) if _CALLED in attributes else []
        if called:
            attributes[_CALLED] = ir.ArrayAttr.get([references.get(one.value, one) for one in called])
    return new


def _with_foreign_name(operation: Any, function: _Function, functions: list[_Function]) -> _Function:
    """A function under a name that is no canonical one, so that old and new names can be told apart."""
    from jaxlib.mlir import ir

    if not _OWN_NAME.fullmatch(function.name):
        return function
    name = _unused(f"rewarm.{function.name}", {other.name for other in functions})
    ir.SymbolTable.replace_all_symbol_uses(function.name, name, operation)
    function.attributes["sym_name"] = ir.StringAttr.get(name)
    return function._replace(name=name)


def _rename_reference(attributes: Any, name: str, references: dict[str, Any]) -> None:
    own = references.get(attributes[name].value)
    if own is not None:
        attributes[name] = own


def _finished(operation: Any, found: _Found, renamed: dict[str, str] | None) -> bytes:
    """The bytecode, once no reference to a renamed function is left under its old name, and meshes are numbered.

    A reference in a place that is not known (an attribute that somebody's own lowering hung on an operation) would
    point to nothing, and two programs that differ in it could look alike. Such a reference keeps the old name among
    the bytecode's strings, so only when one shows there the whole program is searched. Meshes come last: one may be
    given the name that a function had.
    """
    from jaxlib.mlir import ir

    written = payloads.write(operation)
    if renamed is None:
        return written
    left = _still_named(written, renamed) if renamed else []
    for name in left:
        ir.SymbolTable.replace_all_symbol_uses(name, renamed[name], operation)
    return payloads.write(operation) if _rename_meshes(operation, found) or left else written


def _still_named(written: bytes, renamed: dict[str, str]) -> list[str]:
    encoded = {name.encode("utf-8", "surrogateescape"): name for name in renamed}
    return sorted(encoded[text] for text in bytecode.among_strings(written, encoded.keys()))


def _rename_meshes(operation: Any, found: _Found) -> bool:
    """Number the meshes as JAX does, in order; returns whether any had another name.

    The name of a mesh of one device says which, and stays.
    """
    from jaxlib.mlir import ir

    names = {mesh: mesh.attributes["sym_name"].value for mesh in found.get(_MESH, ())}
    meshes = [mesh for mesh, name in names.items() if not name.startswith("maximal")]
    wanted = ["mesh", *(f"mesh_{number}" for number in range(len(meshes) - 1))][: len(meshes)]
    if [names[mesh] for mesh in meshes] == wanted:
        return False
    taken = {one.attributes["sym_name"].value for one in found.get(_FUNCTION, ())} | set(names.values())
    aside = [_unused(f"rewarm.{name}", taken) for name in wanted]
    if taken & set(wanted) - {names[mesh] for mesh in meshes}:
        return False  # a public function has the name: the meshes keep theirs
    # In two steps, since old and new names overlap. Each walks the whole program; programs have one to three meshes.
    for step in (aside, wanted):
        for mesh, name in zip(meshes, step, strict=True):
            ir.SymbolTable.replace_all_symbol_uses(mesh.attributes["sym_name"].value, name, operation)
            ir.SymbolTable.set_symbol_name(mesh, name)
    return True


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "."
    return name
