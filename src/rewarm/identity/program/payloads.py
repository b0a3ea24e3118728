"""Kernels inside a program: IR that custom calls carry as bytes, with its own source locations.

Not promised: that a payload of another form is stripped. What cannot be read stays as it is, with its paths: that
costs hits when a file moves, and is never wrong.

| call | where the IR is | where source locations are |
| --- | --- | --- |
| `__gpu$xla.gpu.triton` | `mhlo.backend_config.ir` | in it |
| `mosaic_gpu_v2` | `mhlo.backend_config.module` | in it, and through `kernel_hash`, its digest |
| `tpu_custom_call` | JSON, `custom_call_config.body`, base64 | in it (to JAX 0.11), or in `debug_locations` (0.12) |
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

_BACKEND_CONFIG = "backend_config"
_MHLO_BACKEND_CONFIG = "mhlo.backend_config"
# The running number of a kernel in its process, for dumps (JAX 0.11).
_DUMP_NAME = "mosaic_gpu.dump_basename"


def without_locations(target: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a custom call to `target` that must be replaced in the canonical program.

    A kernel's IR is replaced by a digest of it without locations. Must be called within the program's context.
    """
    rule = _RULES.get(target)
    if rule is None:
        return {}
    try:
        return rule(attributes)
    except Exception:  # noqa: BLE001 - of another form: it stays as it is, and counts as that
        return {}


def _triton(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return _in_dictionary(attributes, "ir", _with_triton, drop=())


def _mosaic_gpu(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return _in_dictionary(attributes, "module", register_dialects, drop=("kernel_hash",))


def _in_dictionary(
    attributes: Mapping[str, Any], where: str, register: Callable[[Any], None], drop: tuple[str, ...]
) -> dict[str, Any]:
    from jaxlib.mlir import ir

    config = attributes[_MHLO_BACKEND_CONFIG]
    digest = _digest(bytes(config[where].value_bytes), register)
    if digest is None:
        return {}
    kept = {row.name: row.attr for row in config if row.name not in drop}
    return {_MHLO_BACKEND_CONFIG: ir.DictAttr.get({**kept, where: ir.StringAttr.get(digest)})}


def _mosaic_tpu(attributes: Mapping[str, Any]) -> dict[str, Any]:
    from jaxlib.mlir import ir

    config = json.loads(attributes[_BACKEND_CONFIG].value)
    inner = config["custom_call_config"]
    body = base64.b64decode(inner["body"], validate=True)
    inner.pop("debug_locations", None)
    inner["body"] = _digest(body, _with_tpu) or inner["body"]
    return {_BACKEND_CONFIG: ir.StringAttr.get(json.dumps(config, sort_keys=True))}


_RULES: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "__gpu$xla.gpu.triton": _triton,
    "mosaic_gpu_v2": _mosaic_gpu,
    "tpu_custom_call": _mosaic_tpu,
}


# A kernel that is called a hundred times is read once.
@functools.lru_cache(maxsize=256)
def _digest(raw: bytes, register: Callable[[Any], None]) -> str | None:
    """SHA-256 of a kernel without its locations; `None` when it cannot be read."""
    from jaxlib.mlir import ir

    try:
        with ir.Context() as context:
            # Unregistered operations keep their locations in some versions, so the dialect is registered as well.
            context.allow_unregistered_dialects = True
            register(context)
            module = ir.Module.parse(raw)
            strip_locations(module.operation)
            if _DUMP_NAME in module.operation.attributes:
                del module.operation.attributes[_DUMP_NAME]
            return f"sha256:{hashlib.sha256(write(module.operation)).hexdigest()}"
    except Exception:  # noqa: BLE001 - of another form, or a dialect that this jaxlib lacks
        return None


def register_dialects(context: Any) -> None:
    """Register what JAX lowers to, StableHLO and its like apart."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext

    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)


def _with_triton(context: Any) -> None:
    from jaxlib.triton import dialect

    dialect.register_dialect(context)


def _with_tpu(context: Any) -> None:
    from jaxlib.mosaic.python import tpu

    tpu.register_dialect(context)


def strip_locations(operation: Any) -> None:
    """Remove the source locations of an operation and all within it."""
    from jaxlib.mlir import passmanager

    strip = passmanager.PassManager.parse("builtin.module(strip-debuginfo)", operation.context)
    # The module was verified when it was made; checking it again takes four fifths of this step.
    strip.enable_verifier(False)
    strip.run(operation)


def write(operation: Any) -> bytes:
    """MLIR bytecode of an operation."""
    buffer = io.BytesIO()
    operation.write_bytecode(file=buffer)
    return buffer.getvalue()
