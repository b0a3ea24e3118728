"""What JAX keeps of the Python that runs while a program compiles.

Not promised: all of it; `fingerprint/` follows what is found here.
"""

from __future__ import annotations

import inspect
from typing import Any

from rewarm.jax_adapter.seam.options import holders


def partitioning_call(address: str) -> dict[str, Any] | None:
    """What a `custom_partitioning` call's Python is made of, by name; `None` when JAX does not know the address."""
    from jax._src import custom_partitioning

    info = custom_partitioning._sharding_callbacks.get(address.encode())
    if info is None:
        return None
    parts = ("partition", "infer_sharding_from_operands", "propagate_user_sharding", "static_args", "mesh")
    # The last holds how shardings are turned into JAX's, which the user chooses too (decode_shardings).
    decoding = inspect.getclosurevars(info.to_mesh_pspec_sharding).nonlocals.get("decode_shardings")
    told = {name: getattr(info, name) for name in (*parts, "in_tree", "out_tree")}
    return {**told, "decode_shardings": decoding, "platforms": tuple(info.module_context.platforms)}


def registered_as_tree(cls: type) -> tuple[Any, Any] | None:
    """The functions that take a class of the user apart into leaves and put it together, if it is a pytree."""
    from jax._src import tree_util

    entry = tree_util._registry.get(cls)
    return (entry.to_iter, entry.from_iter) if entry is not None else None


# Options that lowering or a library function reads while a function is traced, and that JAX leaves out of the context
# by which it keys its own caches.
_MORE_OF_A_TRACE = (
    "default_prng_impl",
    "enable_custom_prng",
    "jax_ragged_dot_use_ragged_dot_instruction",
    "bcoo_cusparse_lowering",
    "gpu_use_magma",
    "jax_mosaic_allow_hlo",
)


def trace_context() -> tuple[Any, ...]:
    """The values of JAX's options that shape a trace, as they are for this thread now."""
    config = holders()
    more = tuple((name, getattr(config, name).value) for name in _MORE_OF_A_TRACE if hasattr(config, name))
    return (*(_axes(value) or value for value in config.trace_context()), *more)


def _axes(value: Any) -> tuple[Any, ...] | None:
    """What is in JAX's environment of axes, whose own text is an address; `None` for anything else."""
    if type(value).__name__ != "AxisEnv":
        return None
    names = ("axis_sizes", "spmd_axis_names", "explicit_mesh_axis_names")
    return tuple((name, getattr(value, name)) for name in names if hasattr(value, name))


def jitted_type() -> type:
    """The type of what `jax.jit` returns."""
    import jax

    return type(jax.jit(lambda: None))


def jitted_parts(function: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that was jitted, and what it was jitted with."""
    info = function._jit_info
    names = [name for name in info._fields if not name.startswith("fun_")]
    return function._fun, tuple((name, getattr(info, name)) for name in names)
