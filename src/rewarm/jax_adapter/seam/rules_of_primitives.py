"""The tables in which JAX keeps what its primitives come to, and how classes are taken apart: anybody may put a
function of his own into them.

Not promised: all tables: one that a JAX does not have under its name is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TABLES = {
    "mlir": ("_lowerings",),
    "ad": ("primitive_jvps", "primitive_transposes", "fancy_transposes", "primitive_linearizations"),
    "batching": ("primitive_batchers", "axis_primitive_batchers", "fancy_primitive_batchers"),
    "partial_eval": (
        "custom_partial_eval_rules",
        "partial_eval_jaxpr_custom_rules",
        "dce_rules",
        "const_fold_rules",
        "forwarding_rules",
        "custom_staging_rules",
    ),
}


def primitive_type() -> type:
    """JAX's class of primitives. Its public home imports kernels' options, after which JAX traces all anew."""
    from jax._src import core

    primitive: type = core.Primitive
    return primitive


def rules_of_primitives() -> Iterator[tuple[str, str, Any]]:
    """Table, name of the primitive, and what stands there."""
    import importlib

    for module, tables in _TABLES.items():
        home = importlib.import_module(f"jax._src.interpreters.{module}")
        for table in tables:
            yield from _entries(table, getattr(home, table, None))
        for platform, rules in dict(getattr(home, "_platform_specific_lowerings", {})).items():
            yield from _entries(f"lowerings of {platform}", rules)


def _entries(table: str, rules: Any) -> Iterator[tuple[str, str, Any]]:
    if isinstance(rules, dict):
        for primitive, rule in list(rules.items()):
            yield table, str(primitive), getattr(rule, "rule", rule)


def registered_trees() -> Iterator[tuple[type, tuple[Any, ...]]]:
    """Each class that JAX takes apart, with the functions that do it."""
    from jax._src import tree_util

    for cls, entry in list(getattr(tree_util, "_registry", {}).items()):
        yield cls, (getattr(entry, "to_iter", None), getattr(entry, "from_iter", None))
