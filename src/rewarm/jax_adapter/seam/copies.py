"""A program compiled again, beside the one that the user's thread has, and what two executables are compared by.

Not promised: anything of the user's executable; it is looked at, never changed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from rewarm.jax_adapter.seam.compile_step import Call


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


def clients_are_made() -> bool:
    """As `backends_are_up`, without waiting for JAX while it makes them."""
    return bool(getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None))


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
