"""Backends and devices: what can be stored, and what the compiler knows of the target.

Not promised: a topology on every JAX; see `topology`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from typing import Any

from rewarm.jax_adapter.seam.memories import real

# Why executables for devices that are not there are left to JAX.
DESCRIBED = "the devices are only described, not attached"


def backend_obstacle(backend: Any) -> str | None:
    """Why executables of this backend cannot be stored and loaded, or `None`."""
    from jax._src import compilation_cache
    from jax._src.lib import _jax

    if isinstance(backend, getattr(_jax, "CompileOnlyPyClient", ())):
        return DESCRIBED
    if backend.platform not in ("cpu", "gpu", "tpu"):
        return f"no support for platform {backend.platform!r}"
    if "rocm" in str(backend.platform_version).lower():
        return "no support for ROCm"
    if not getattr(backend, "supports_executable_serialization", True):
        return f"the {backend.platform} backend cannot serialise executables"
    if backend.runtime_type in compilation_cache._UNSUPPORTED_RUNTIMES:
        return f"runtime {backend.runtime_type!r} cannot serialise executables"
    return None


def topology_function() -> Any:
    """`get_topology_for_devices` of this jaxlib."""
    from jax._src.lib import xla_client

    return xla_client.get_topology_for_devices


def topology(devices: Sequence[Any]) -> tuple[bytes | None, int | None]:
    """The serialised topology and its fingerprint; 0.9 has only the first, 0.10 only the second, and so have several
    slices of TPUs, which libtpu does not serialise (0.0.50, with JAX 0.12.0.1)."""
    from jax._src.lib import _jax

    try:
        described = topology_function()(real(devices))
    except _jax.JaxRuntimeError:
        return None, None
    serialized = fingerprint = None
    with contextlib.suppress(_jax.JaxRuntimeError):
        serialized = described.serialize() if hasattr(described, "serialize") else None
    if serialized is None and hasattr(described, "fingerprint"):
        fingerprint = int(described.fingerprint())
    return serialized, fingerprint


_SMALLEST = """
module @smallest {
  func.func public @main(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
}
"""


def compile_smallest(backend: Any) -> bytes:
    """The serialised executable of a program that does nothing, to see what this backend writes into it."""
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir

    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(_SMALLEST)
        options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
        devices = xla_client.DeviceList(tuple(backend.local_devices()[:1]))
        compile_ = inspect.unwrap(compiler.backend_compile_and_load)
        executable = compile_(backend, module, devices, options, [])
    return bytes(
        backend.serialize_executable(executable) if hasattr(backend, "serialize_executable") else executable.serialize()
    )
