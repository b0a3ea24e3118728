"""What the tests of this folder are made of: records, lists of operations, and programs that JAX really lowered."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rewarm.cache import Evidence
from rewarm.explain import Remembered
from rewarm.identity.components import TABLE
from rewarm.identity.program import Listing, Operation, canonical_program, list_operations, signature_of, with_locations


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def components(**changes: str) -> dict[str, str]:
    """Name to digest, of a table whose rows are made of their names, or of what `changes` gives them."""
    return {name: digest(changes.get(name, name)) for name in TABLE}


def remembered(*, like: Mapping[str, str] | None = None, **fields: Any) -> Remembered:
    """A miss that was stored, with these fields; `like` are texts that its components are made of."""
    table = components(**(like or {}))
    plain: dict[str, Any] = {
        "key": digest(repr(sorted(table.items()))),
        "program": "jit_step",
        "time": 1.0,
        "outcome": "stored",
        "why": "",
        "components": table,
        "structure": "structure",
        "attributes": "attributes",
        "operations": 10,
        "signature": "(tensor<4xf32>) -> tensor<4xf32>",
        "producer": {"jax": "0.10.2", "jaxlib": "0.10.2"},
    }
    return Remembered(**{**plain, **fields})


def listing(lines: Iterable[str], source: str = "train.py:1") -> Listing:
    return Listing(tuple(Operation(line, source) for line in lines))


def lowered(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The module that JAX makes of a function, as it would go to the compiler."""
    import jax

    return jax.jit(function, **options).lower(*arguments).compiler_ir("stablehlo")


def listed(function: Callable[..., Any], *arguments: Any) -> Listing:
    """Its lines, with their source."""
    return list_operations(with_locations(lowered(function, *arguments)))


def evidence(module: Any) -> Evidence:
    """What the adapter says of a module."""
    program = canonical_program(module, metadata_in_key=False)
    return Evidence(
        canonical=program.canonical,
        signature=functools.partial(signature_of, module),
        source=functools.partial(with_locations, module),
        kinds=program.kinds,
    )
