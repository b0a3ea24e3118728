"""Devices that are only described: made of XLA's serialised topologies, and compiled for.

Not promised: any of it before JAX 0.11, whose topologies cannot be made of bytes.

A program for CPUs is compiled through a CPU client that is there for nothing else. JAX's own way would be wrong in two
cases: it hands the program to the attached client of the same version (0.11: always; 0.12: of as many devices), which
refuses programs of several processes; else to the compiler without a client, which divides the work among as many
threads as the affinity says, whatever `NPROC` is (both measured with jaxlib 0.11.2 and 0.12.0.1).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from typing import Any

from rewarm.jax_adapter.seam.backends import topology_function


def can_make_devices() -> bool:
    """Whether this JAX makes devices of a serialised topology (0.11 and later)."""
    from jax._src.lib import _jax

    return hasattr(_jax.DeviceTopology, "deserialize")


def devices_of(topology: bytes) -> list[Any]:
    """Compile-only devices of a serialised topology; the platform's plugin must have been loaded.

    Raises:
      Exception: what JAX raises of bytes that it does not take.
    """
    from jax._src.lib import _jax

    return list(_jax.DeviceTopology.deserialize(topology)._make_compile_only_devices())


def name_gpus(platform: str) -> None:
    """From now on "gpu" means this platform ("cuda") in a process that has no GPU: a Python callback is lowered for the
    platform that its client says, and JAX asks which kind of GPU is there, where none is."""
    from jax._src import xla_bridge

    original = xla_bridge.canonicalize_platform
    if getattr(original, "rewarm_names", None) == platform:
        return

    @functools.wraps(original)
    def canonical(name: str) -> str:
        try:
            return str(original(name))
        except RuntimeError:
            if name != "gpu":
                raise
            return platform

    canonical.rewarm_names = platform  # type: ignore[attr-defined]
    xla_bridge.canonicalize_platform = canonical


def mocked_gpus() -> str:
    """The topology that JAX's GPU client pretends to have, "2x8x8" or "16 processes"; "" where it pretends nothing.

    `jax_mock_gpu_topology` and `mock_num_gpu_processes` are read when the client is made; what they say later counts
    for nothing there, and would be wrong here.
    """
    from jax._src import xla_bridge

    text = str(getattr(getattr(xla_bridge, "MOCK_GPU_TOPOLOGY", None), "value", "") or "")
    processes = int(getattr(getattr(xla_bridge, "MOCK_NUM_GPU_PROCESSES", None), "value", 0) or 0)
    return text.replace(" ", "") or (f"{processes} processes" if processes > 0 else "")


def cpu_client(devices: int) -> Any:
    """A CPU client beside JAX's own, to compile through. Its pool has as many threads as `NPROC` or the affinity say
    now, or as many as it has devices where that is more.

    It is given collectives, which are never set up and never asked: without any, XLA refuses to compile a program of
    several processes.
    """
    from jax._src.lib import _jax, xla_client

    more = {}
    make = getattr(_jax, "make_mpi_collectives", None)
    if make is not None and "collectives" in inspect.signature(xla_client.make_cpu_client).parameters:
        with contextlib.suppress(_jax.JaxRuntimeError):  # then programs of one process alone can be compiled
            more["collectives"] = make()
    return xla_client.make_cpu_client(asynchronous=True, num_devices=devices, **more)


# What the devices of a described client are compiled through, where that is another client; gone with the first.
_through: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def have_compiled(described: Any, through: Any) -> None:
    """From now on `compile_now` compiles what is for the client `described` through another client."""
    _through[described] = through


def client_to_compile(backend: Any) -> Any:
    """The client that was said to `have_compiled`; `None` where none was."""
    return _through.get(backend)


def compile_through(client: Any, backend: Any, computation: Any, options: Any) -> Any:
    """Compile a module for the described devices of a backend through an attached client of the same platform.

    Host callbacks are an index in the program; whoever loads the executable brings them.

    Raises:
      Exception: what the compiler raises, as JAX's own function would.
    """
    from jax._src import compiler
    from jax._src.lib import _jax

    described = topology_function()(backend.devices())
    try:
        return client.compile(computation, topology=described, compile_options=options)
    except _jax.JaxRuntimeError as error:
        for handler in compiler._XLA_RUNTIME_ERROR_HANDLERS:
            if (better := handler(error)) is not None:
                raise better from error
        raise
