"""The one function of JAX that rewarm replaces.

Not promised: that a future JAX keeps any of this. `probe` looks before anything is replaced.

`jax._src.compiler.compile_or_get_cached` has had one signature in JAX 0.7 to 0.12 and is called by name through its
module, from one place (0.10 and later) or two (0.9, whose second is pmap).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from rewarm.errors import UnsupportedJaxError
from rewarm.jax_adapter.seam import described
from rewarm.jax_adapter.seam.backends import DESCRIBED, backend_obstacle, topology_function
from rewarm.jax_adapter.seam.memories import real_list
from rewarm.jax_adapter.seam.options import read_options

_NAME = "compile_or_get_cached"
_SIGNATURE = (
    "backend",
    "computation",
    "devices",
    "compile_options",
    "host_callbacks",
    "executable_devices",
    "pgle_profiler",
)
_COMPILE_SIGNATURE = ("backend", "module", "executable_devices", "options", "host_callbacks")


# The loggers that users of JAX's cache turn on and search.
compiler_log = logging.getLogger("jax._src.compiler")
cache_log = logging.getLogger("jax._src.compilation_cache")


CompileFunction = Callable[..., Any]


class Call(NamedTuple):
    """One call of the replaced function: JAX's objects, as they came.

    Attributes:
      backend: the client that compiles.
      computation: the MLIR module.
      devices: array of devices, shape (replicas, partitions) or (partitions,).
      compile_options: `CompileOptions`.
      host_callbacks: the Python objects that host callbacks of the module point to by index.
      executable_devices: `DeviceList` that the executable is loaded on.
      pgle_profiler: JAX's profile collector, or `None`.
    """

    backend: Any
    computation: Any
    devices: Any
    compile_options: Any
    host_callbacks: Sequence[Any]
    executable_devices: Any
    pgle_profiler: Any

    def flat_devices(self) -> list[Any]:
        """The devices in the order of the assignment."""
        return list(self.devices.flat)


def probe() -> None:
    """Look whether this JAX has everything the seam needs.

    Raises:
      UnsupportedJaxError: naming what is missing or different, and the JAX that is installed.
    """
    try:
        from jax._src import cache_key, compiler, util
        from jax._src.interpreters import mlir, pxla

        _expect(pxla.compiler is compiler, "pxla calls another compiler module")
        _expect_signature(getattr(compiler, _NAME), _SIGNATURE)
        _expect_signature(inspect.unwrap(compiler.backend_compile_and_load), _COMPILE_SIGNATURE)
        for owner, name in (
            (cache_key, "custom_hook"),
            (cache_key, "get_flag_prefixes"),
            (mlir, "dump_module_to_file"),
            (util, "test_event"),
        ):
            _expect(callable(getattr(owner, name)), f"{name} is not a function")
        read_options()
        topology_function()
    except UnsupportedJaxError:
        raise
    except Exception as error:
        raise UnsupportedJaxError(_unsupported(f"{type(error).__name__}: {error}")) from error


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UnsupportedJaxError(_unsupported(otherwise))


def _expect_signature(function: Any, names: tuple[str, ...]) -> None:
    found = tuple(inspect.signature(function).parameters)
    _expect(found == names, f"{getattr(function, '__name__', function)} takes ({', '.join(found)})")


def _unsupported(found: str) -> str:
    return (
        f"JAX {version()}: the compile step is not where rewarm knows it (supported: 0.9 to 0.12): {found}. "
        f"JAX runs as without rewarm; look for a newer rewarm, or unset REWARM_DIR and REWARM"
    )


def version() -> str:
    """The version of JAX that is installed."""
    import jax

    return str(jax.__version__)


def jaxlib_version() -> str:
    """The version of jaxlib that is installed."""
    import jaxlib

    return str(jaxlib.__version__)


def current() -> CompileFunction:
    """The function that JAX would call now."""
    from jax._src import compiler

    function: CompileFunction = getattr(compiler, _NAME)
    return function


def install(function: CompileFunction) -> None:
    """Make JAX call `function`."""
    from jax._src import compiler

    setattr(compiler, _NAME, function)


def hide_from_tracebacks(path: str) -> None:
    """Leave frames of the file `path` out of the tracebacks that JAX filters for users."""
    from jax._src import traceback_util

    traceback_util.register_exclusion(path)


def before_compile_step(call: Call) -> None:
    """Dump the module where `jax_dump_ir_to` asks for it, as JAX's function does first."""
    from jax._src.interpreters import mlir

    if dumped_to := mlir.dump_module_to_file(call.computation, "compile"):
        compiler_log.info("Dumped the module to %s.", dumped_to)


def compile_now(call: Call) -> Any:
    """Compile and load, through JAX's own function with its error handlers and profiler annotation.

    What is for described CPUs is compiled as `described` says, and loaded nowhere. Programs for described GPUs are
    compiled without their host callbacks, as those are: an index in the program, which whoever loads it brings along.
    """
    from jax._src import compiler

    if (through := described.client_to_compile(call.backend)) is not None:
        return described.compile_through(through, call.backend, call.computation, call.compile_options)
    callbacks: Sequence[Any] = call.host_callbacks
    if call.backend.platform == "gpu" and backend_obstacle(call.backend) == DESCRIBED:
        callbacks = ()
    return compiler.backend_compile_and_load(
        call.backend, call.computation, real_list(call.executable_devices), call.compile_options, callbacks
    )


def drop_override(call: Call, name: str) -> None:
    """Take one entry of `compiler_options=` out of a call's options."""
    overrides = call.compile_options.env_option_overrides
    call.compile_options.env_option_overrides = [row for row in overrides if row[0] != name]


# Where JAX lets XLA keep caches of its own, in folders of its cache directory.
_CACHES_OF_XLA = ("xla_gpu_kernel_cache_file", "xla_gpu_per_fusion_autotune_cache_dir")


def hide_url(call: Call, cache_dir: str) -> None:
    """Take the folders that JAX made of a URL out of a call's options: XLA would take them for local ones."""
    debug_options = call.compile_options.executable_build_options.debug_options
    # As JAX writes it, which knows paths alone: "gs:/bucket" of "gs://bucket".
    made_of_it = str(PurePath(cache_dir))
    for name in _CACHES_OF_XLA:
        if str(getattr(debug_options, name, "")).startswith(made_of_it):
            setattr(debug_options, name, "")


def note_compile_after_miss() -> None:
    """The event that JAX's own test helpers count."""
    from jax._src import util

    util.test_event("compile_after_persistent_compilation_miss")


def verification_error(message: str, key: str, stored: bytes, compiled: bytes) -> Exception | None:
    """JAX's own error for contents that differ, which programs that check contents catch; 0.9 has none."""
    from jax._src import compilation_cache

    if not hasattr(compilation_cache, "CacheVerificationError"):
        return None
    error: Exception = compilation_cache.CacheVerificationError(message, key, stored, compiled)
    return error


def process_index() -> int:
    """Which process of a distributed job this is, as `jax.distributed` was told; 0 outside one. Starts no backend."""
    from jax._src import distributed

    return int(getattr(distributed.global_state, "process_id", None) or 0)


def process_count() -> int:
    """How many processes a distributed job has, as `jax.distributed` was told; 1 outside one. Starts no backend."""
    from jax._src import distributed

    return int(getattr(distributed.global_state, "num_processes", None) or 1)
