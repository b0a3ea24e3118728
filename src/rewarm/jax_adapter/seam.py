"""The seam: the one function of JAX that rewarm replaces, and everything else of `jax._src` that rewarm reads.

Not promised: that a future JAX keeps any of this. `probe` looks before anything is replaced.

`jax._src.compiler.compile_or_get_cached` has had one signature in JAX 0.7 to 0.12 and is called by name through its
module, from one place (0.10 and later) or two (0.9, whose second is pmap). Replacing that attribute is all that
rewarm changes for good; `ExecuteReplicated.__call__` is replaced while an executable waits for its first run (see
`watch_runs`), and put back.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rewarm.errors import UnsupportedJaxError

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

# JAX's default of jax_persistent_cache_min_compile_time_secs. The option cannot say whether it was set; the object
# that it holds can, once it is another one.
_DEFAULT_MIN_COMPILE_SECONDS = 1.0

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


class JaxOptions(NamedTuple):
    """JAX's options of its persistent cache, as they are for this thread now."""

    cache_dir: str | None
    enabled: bool
    min_compile_seconds: float
    min_compile_seconds_set: bool
    min_entry_bytes: int
    metadata_in_key: bool
    check_contents: bool
    raise_errors: bool
    explain_misses: bool
    log_compiles: bool
    max_size: int
    share_binary: bool
    profile_guided: bool


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


# ---------------------------------------------------------------------------------------------------------------
# Replacing the function


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


# ---------------------------------------------------------------------------------------------------------------
# Reading JAX's options


@functools.cache
def _holders() -> Any:
    from jax._src import config

    return config


_first_min_compile_seconds: object = None


def remember_defaults() -> None:
    """Keep the object that stands for "not set", so that a later update to the same number shows."""
    global _first_min_compile_seconds  # noqa: PLW0603 - one fact of the process, like the option it belongs to
    if _first_min_compile_seconds is None:
        _first_min_compile_seconds = _holders().persistent_cache_min_compile_time_secs.value


def read_options() -> JaxOptions:
    """JAX's options as they are for this thread now."""
    config = _holders()
    threshold = config.persistent_cache_min_compile_time_secs.value
    untouched = threshold == _DEFAULT_MIN_COMPILE_SECONDS and threshold is _first_min_compile_seconds
    return JaxOptions(
        cache_dir=config.compilation_cache_dir.value,
        enabled=config.enable_compilation_cache.value,
        min_compile_seconds=threshold,
        min_compile_seconds_set=not untouched,
        min_entry_bytes=config.persistent_cache_min_entry_size_bytes.value,
        metadata_in_key=config.compilation_cache_include_metadata_in_key.value,
        check_contents=config.compilation_cache_check_contents.value,
        raise_errors=config.raise_persistent_cache_errors.value,
        explain_misses=config.explain_cache_misses.value,
        log_compiles=config.log_compiles.value,
        max_size=config.compilation_cache_max_size.value,
        share_binary=config.share_binary_between_hosts.value,
        profile_guided=bool(
            (config.enable_pgle.value and config.pgle_profiling_runs.value > 0)
            or config.compilation_cache_expect_pgle.value
        ),
    )


@functools.cache
def _cache_key() -> Any:
    from jax._src import cache_key

    return cache_key


def salt_of_hooks(arguments: Sequence[str]) -> tuple[str, ...]:
    """What the user's hooks add to a key: `cache_key.custom_hook()`, then, sorted, the program arguments with a prefix
    that was given to `cache_key.add_flag_prefixes`."""
    cache_key = _cache_key()
    prefixes = tuple(cache_key.get_flag_prefixes())
    flags = sorted(argument for argument in arguments if argument.startswith(prefixes)) if prefixes else []
    return (str(cache_key.custom_hook()), *flags)


# ---------------------------------------------------------------------------------------------------------------
# What JAX's own function does beside caching


def before_compile_step(call: Call) -> None:
    """Dump the module where `jax_dump_ir_to` asks for it, as JAX's function does first."""
    from jax._src.interpreters import mlir

    if dumped_to := mlir.dump_module_to_file(call.computation, "compile"):
        compiler_log.info("Dumped the module to %s.", dumped_to)


def compile_now(call: Call) -> Any:
    """Compile and load, through JAX's own function with its error handlers and profiler annotation."""
    from jax._src import compiler

    return compiler.backend_compile_and_load(
        call.backend, call.computation, call.executable_devices, call.compile_options, call.host_callbacks
    )


def drop_override(call: Call, name: str) -> None:
    """Take one entry of `compiler_options=` out of a call's options."""
    overrides = call.compile_options.env_option_overrides
    call.compile_options.env_option_overrides = [row for row in overrides if row[0] != name]


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


# ---------------------------------------------------------------------------------------------------------------
# Python that runs while a program compiles


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
    holders = _holders()
    more = tuple((name, getattr(holders, name).value) for name in _MORE_OF_A_TRACE if hasattr(holders, name))
    return (*(_axes(value) or value for value in holders.trace_context()), *more)


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


# ---------------------------------------------------------------------------------------------------------------
# Backends and devices


def backend_obstacle(backend: Any) -> str | None:
    """Why executables of this backend cannot be stored and loaded, or `None`."""
    from jax._src import compilation_cache
    from jax._src.lib import _jax

    if isinstance(backend, getattr(_jax, "CompileOnlyPyClient", ())):
        return "the devices are only described, not attached"
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
    """The serialised topology and its fingerprint; 0.9 has only the first, 0.10 only the second."""
    from jax._src.lib import _jax

    try:
        described = topology_function()(list(devices))
    except _jax.JaxRuntimeError:
        return None, None
    serialized = described.serialize() if hasattr(described, "serialize") else None
    fingerprint = None
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


# ---------------------------------------------------------------------------------------------------------------
# Compiling a program again, beside the one that the user's thread has


class Copy(NamedTuple):
    """What compiling a program again takes, apart from JAX's module, which only the user's thread may touch.

    Attributes:
      call: the call that the program came with, without its module and options.
      program: MLIR bytecode of the module.
      options: the serialised `CompileOptions`.
    """

    call: Call
    program: bytes
    options: bytes


def copy_of(call: Call) -> Copy:
    """A copy of what a call asked for, made in the thread of the call; some milliseconds for each MB of program."""
    program = io.BytesIO()
    call.computation.operation.write_bytecode(file=program)
    bare = call._replace(computation=None, compile_options=None, pgle_profiler=None)
    return Copy(bare, program.getvalue(), call.compile_options.SerializeAsString())


def compile_copy(copy: Copy) -> Any:
    """As `compile_now`, in a context of its own and safe in any thread.

    JAX's options of this thread do not count: all that shapes the executable is in the arguments.
    """
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir

    call = copy.call
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(copy.program)
        options = xla_client.CompileOptions.ParseFromString(copy.options)
        compile_ = inspect.unwrap(compiler.backend_compile_and_load)
        return compile_(call.backend, module, call.executable_devices, options, call.host_callbacks)


def backends_are_up() -> bool:
    """Whether JAX has made a client in this process, so that XLA has threads."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def run_once(executable: Any, device: Any, inputs: Sequence[Any]) -> list[Any]:
    """Run an executable of one device on NumPy arrays, as they are; returns JAX arrays that may not be ready yet."""
    from jax._src import core
    from jax._src.lib import _jax
    from jax.sharding import SingleDeviceSharding

    place = SingleDeviceSharding(device)
    # Copied, since a program may take its inputs' memory for its results.
    copied = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    arguments = [
        _jax.batched_device_put(
            core.ShapedArray(array.shape, array.dtype),
            place,
            [array],
            [device],
            host_buffer_semantics=copied,
            enable_x64=True,  # whatever this thread's option says, since the program has its types
        )
        for array in inputs
    ]
    results = executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
    return [shards[0] for shards in results]


def optimised_programs(executable: Any) -> list[str]:
    """The optimised HLO of each module of an executable, without metadata and without the values of large constants.

    Holds the interpreter's lock for some 0.06 s for each MB of text; programs of 1.7 MB take a minute to compile.
    """
    found = []
    for module in executable.hlo_modules():
        options = _print_options(type(module).__module__)
        found.append(module.to_string(options))
    return found


@functools.cache
def _print_options(home: str) -> Any:
    # JAX 0.9 has them beside everything else, 0.10 and later in jaxlib._hlo.
    options = importlib.import_module(home).HloPrintOptions()
    options.print_metadata = False
    options.print_program_shape = False  # the one place where names stand without a mark
    return options


def serialised_programs(executable: Any) -> list[bytes]:
    """The `HloModuleProto` of each module of an executable."""
    return [bytes(module.as_serialized_hlo_module_proto()) for module in executable.hlo_modules()]


class Buffers(NamedTuple):
    """What an executable needs of memory.

    Attributes:
      sizes: bytes by what they are for, of those that this JAX tells.
      assignment: the `BufferAssignmentProto`; empty where the runtime does not keep it.
    """

    sizes: dict[str, int]
    assignment: bytes


_BUFFER_SIZES = ("argument", "output", "alias", "temp")


def buffers(executable: Any) -> Buffers:
    """The memory of an executable. Holds the interpreter's lock for some time, so it is asked once."""
    told = executable.get_compiled_memory_stats()
    names = [f"{where}{what}_size_in_bytes" for where in ("", "host_") for what in _BUFFER_SIZES]
    sizes = {name: int(getattr(told, name)) for name in names if hasattr(told, name)}
    return Buffers(sizes, bytes(getattr(told, "serialized_buffer_assignment_proto", b"")))


# ---------------------------------------------------------------------------------------------------------------
# Watching first runs
#
# `pxla.ExecuteReplicated.__call__` runs an executable's first call in JAX 0.9 to 0.12, whichever way it comes (jit,
# AOT, pmap); most later calls go past Python.


class _Watch(NamedTuple):
    ours: Callable[..., Any]
    original: Callable[..., Any]


_watch: _Watch | None = None


def watch_runs(on_trial: Mapping[int, Any], run: Callable[[Callable[..., Any], Any, tuple[Any, ...]], Any]) -> bool:
    """Have `run(original, self, arguments)` called in the place of each run of an executable whose `id` is in
    `on_trial`, until `unwatch_runs`; whether this JAX has where to stand for that."""
    global _watch  # noqa: PLW0603 - what stands in JAX's class is one fact of the process
    from jax._src.interpreters import pxla

    runner: Any = getattr(pxla, "ExecuteReplicated", None)
    if "__call__" not in getattr(runner, "__dict__", ()) or not hasattr(runner, "xla_executable"):
        return False
    if _watch is not None:
        return True
    original: Callable[..., Any] = vars(runner)["__call__"]

    @functools.wraps(original)
    def watched(self: Any, *arguments: Any) -> Any:
        if id(self.xla_executable) in on_trial:
            return run(original, self, arguments)
        return original(self, *arguments)

    _watch = _Watch(watched, original)
    runner.__call__ = watched
    return True


def unwatch_runs() -> None:
    """Put JAX's own method back. Where somebody has put another around ours, ours stays and passes calls on."""
    global _watch  # noqa: PLW0603 - as above
    from jax._src.interpreters import pxla

    if _watch is not None and pxla.ExecuteReplicated.__call__ is _watch.ours:
        pxla.ExecuteReplicated.__call__ = _watch.original
        _watch = None


def array_of(outputs: Any) -> Any | None:
    """One array among the outputs of a run, to see whether it is done; arrays of keys are arrays inside."""
    for output in outputs:
        array = getattr(output, "_base_array", output)
        if hasattr(array, "is_ready") and hasattr(array, "is_deleted"):
            return array
    return None


# ---------------------------------------------------------------------------------------------------------------
# Functions that programs call by name


def untyped_targets() -> list[str]:
    """The names of functions for CPU that were registered in this process with an interface older than XLA's FFI."""
    from jax._src.lib import xla_client

    # A typed one is a mapping of stages to functions. Takes 50 microseconds.
    return [name for name, found in xla_client.custom_call_targets("Host").items() if not isinstance(found, dict)]


def initialise_lapack() -> None:
    """Have jaxlib find LAPACK's functions, as lowering a program that calls them does."""
    from jax._src.lib import lapack

    lapack._lapack.initialize()


# ---------------------------------------------------------------------------------------------------------------
# Loading in another process


def client_with(platform: str, devices: Sequence[int]) -> Any:
    """The client of a platform whose devices have these ids, in a process where JAX has not made any yet.

    Raises:
      Exception: what JAX raises where there is no such platform.
      ValueError: a device has none of these ids.
    """
    import jax

    jax.config.update("jax_platforms", {"gpu": "cuda,cpu"}.get(platform, platform))
    if platform == "cpu" and len(devices) and max(devices) > 0:
        jax.config.update("jax_num_cpu_devices", max(devices) + 1)
    found = jax.local_devices(backend=platform)
    _of_ids(found, devices)
    return found[0].client


def load_bytes(client: Any, raw: bytes, devices: Sequence[int], options: bytes) -> Any:
    """Load a serialised executable on these devices of a client; without host callbacks, so it must not be run.

    Raises:
      Exception: what JAX raises.
    """
    from jax._src.lib import xla_client

    placed = xla_client.DeviceList(tuple(_of_ids(client.local_devices(), devices)))
    return client.deserialize_executable(raw, placed, xla_client.CompileOptions.ParseFromString(options))


def _of_ids(devices: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
    by_id = {device.id: device for device in devices}
    lacking = sorted(set(wanted) - by_id.keys())
    if lacking:
        raise ValueError(f"there is no device {lacking[0]}; there are {sorted(by_id)}")
    return [by_id[one] for one in wanted]
