"""Executables to bytes and back, and what it means for two of them to be the same.

Not promised: that a loaded executable shows everything that a compiled one does; it runs the same machine code.
Only bytes that the envelope has verified come here.
"""

from __future__ import annotations

from typing import Any

from rewarm.errors import MissingTargetError, OtherMachineError
from rewarm.identity import Machine, machine_of_executable, wire
from rewarm.jax_adapter import custom_calls
from rewarm.jax_adapter.seam import Call

_OBJECT_MAGICS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"MZ")


def serialise(call: Call, executable: Any) -> bytes:
    """The bytes of an executable, as its runtime writes them."""
    if hasattr(executable, "serialize"):
        return bytes(executable.serialize())
    return bytes(call.backend.serialize_executable(executable))


def load(call: Call, machine: Machine | None, raw: bytes) -> Any:
    """An executable on the caller's own devices, with the caller's own options and host callbacks.

    Raises:
      OtherMachineError: it was made for a CPU with instructions that `machine`, this one, has not. Nothing was loaded.
      MissingTargetError: it calls a function that this process has not registered. Nothing was loaded.
      Exception: what JAX raises.

    The callbacks of this process are passed along: an executable whose module calls the host, loaded without them,
    ends the process at its first call.
    """
    made_for = machine_of_executable(raw) if machine is not None else None
    if machine is not None and made_for is not None and (lacking := machine.lacks(made_for)):
        raise OtherMachineError(f"it was made for a CPU with {' '.join(lacking[:8])}, which this one lacks")
    arguments = [raw, call.executable_devices, call.compile_options]
    if call.host_callbacks:
        arguments.append(call.host_callbacks)
    try:
        return call.backend.deserialize_executable(*arguments)
    except Exception as error:
        target = custom_calls.missing_target(error)
        if target is None:
            raise
        raise MissingTargetError(target) from error


def same_code(platform: str, one: bytes, other: bytes) -> bool:
    """Whether two serialised executables hold the same machine code.

    XLA:CPU compiles a program's parts in parallel and stores them in the order in which they come, so its bytes vary
    from run to run while the set of object files does not. There the sets are compared, elsewhere the bytes.
    """
    if one == other:
        return True
    if platform != "cpu":
        return False
    first, second = object_files(one), object_files(other)
    return bool(first) and first == second


def object_files(serialized: bytes) -> list[bytes]:
    """The object files in a serialised XLA:CPU executable, sorted; none when its form is not the known one.

    The form, of jaxlib 0.9 to 0.12: a length and a message about shapes, then a message whose field 1 is XLA's
    `CompilationResultProto`. Its object files are found by their first bytes, in its fields and one level down.
    """
    try:
        length, start = wire.varint(serialized, 0)
        outer = list(wire.fields(serialized[start + length :]))
        results = [field.data for field in outer if field.number == 1]
        inner = [field for result in results for field in wire.fields(result) if field.kind == wire.BYTES]
    except ValueError:
        return []
    return sorted(data for field in inner for data in _object_in(field.data))


def _object_in(data: bytes) -> list[bytes]:
    if data.startswith(_OBJECT_MAGICS):
        return [data]
    try:
        return [
            field.data
            for field in wire.fields(data)
            if field.kind == wire.BYTES and field.data.startswith(_OBJECT_MAGICS)
        ]
    except ValueError:
        return []
