"""The `program` component: canonical StableHLO.

Not promised, yet: that renaming a function keeps the key. Debug information (source locations, argument names) is
stripped; the names of the module, of private functions and of results still count.

The only file of this floor that uses jaxlib's MLIR bindings, and it imports them when called.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple

# What may not be keyed by the text of the module. MLIR bytecode keeps every string as it is, so looking for the
# call's name in the bytes finds each such call; a string of the user's that has the name inside costs him the
# caching of that program, nothing else.
_UNKEYABLE = {
    # Its configuration is the address of a Python object: another one in every process, and, worse, possibly the
    # same one for another function.
    b"CustomSPMDPartitioning": "custom_partitioning",
    # Its Python function runs while the program compiles: a hit would never call it.
    b"InspectSharding": "inspect_array_sharding",
}


class Program(NamedTuple):
    """A program as its key sees it.

    Attributes:
      name: the module's name, such as `jit_train_step`.
      canonical: MLIR bytecode of the canonical module.
      unkeyable: why the program cannot have a key, or `None`.
    """

    name: str
    canonical: bytes
    unkeyable: str | None


def canonical_program(module: Any, *, metadata_in_key: bool) -> Program:
    """The canonical form of an MLIR module (`jaxlib.mlir.ir.Module`), which stays as it is.

    With `metadata_in_key` source locations stay in, as `jax_compilation_cache_include_metadata_in_key` asks.
    """
    from jaxlib.mlir import ir

    name = ir.StringAttr(module.operation.attributes["sym_name"]).value
    canonical = _bytecode(module.operation) if metadata_in_key else _stripped(module)
    found = [reason for call, reason in _UNKEYABLE.items() if call in canonical]
    return Program(name, canonical, found[0] if found else None)


def _stripped(module: Any) -> bytes:
    from jaxlib.mlir import passmanager

    with module.context:
        # A clone, since the module that is compiled must keep its locations for error messages and profiles.
        operation = module.operation.clone(ip=False).operation
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(operation)
        return _bytecode(operation)


def _bytecode(operation: Any) -> bytes:
    buffer = io.BytesIO()
    operation.write_bytecode(file=buffer)
    return buffer.getvalue()
