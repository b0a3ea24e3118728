"""The description of a GPU that is attached, as XLA's compiler takes one for a GPU that is not (`targets`).

Not promised: that a JAX before 0.11 tells it; its topologies do not say what they are made of. Fields that are not
known here are left out: they are in no key, and may be in what the compiler decides.

A topology of XLA:GPU's, serialised, is a PjRtTopologyDescriptionProto with a `GpuTopologyProto` inside, in which the
field 8 is the `GpuTargetConfigProto`. Names by numbers: `identity.gpu_topology`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from rewarm.autotune.formats import TuningFormatError
from rewarm.autotune.formats.findings import Place, error
from rewarm.identity import wire
from rewarm.identity.gpu_topology import CAPABILITY_FIELDS, CONFIG_FIELDS, INFO_FIELDS

_ANY, _TARGET = 9, 8
_INFO, _CAPABILITY = 1, 16

_OF_TARGET = {number: CONFIG_FIELDS[number] for number in (4, 7)}


def description(topology: bytes) -> str:
    """The text `GpuTargetConfigProto` of a topology's devices.

    Args:
      topology: a topology of a GPU client or of a description, serialised.

    Raises:
      TuningFormatError: it does not say what its devices are.
    """
    try:
        inside = _first(_first(topology, _ANY), 2)
        target = _first(inside, _TARGET)
        lines = ["gpu_device_info {", *_info(_first(target, _INFO)), "}", *_texts(target, _OF_TARGET)]
    except (ValueError, LookupError) as wrong:
        expected = "a topology that says what its GPUs are (JAX 0.11 or later)"
        raise TuningFormatError(error("topology", Place(), expected, str(wrong) or "none")) from None
    return "\n".join(lines) + "\n"


def _first(data: bytes, number: int) -> bytes:
    """The first message or text of a field.

    Raises:
      LookupError: there is none.
      ValueError: it is no message.
    """
    for field in wire.fields(data):
        if field.number == number and isinstance(field.value, bytes):
            return field.value
    raise LookupError(f"no field {number}")


def _info(data: bytes) -> Iterator[str]:
    for field in wire.fields(data):
        name = INFO_FIELDS.get(field.number)
        if name and field.kind == wire.FIXED32 and isinstance(field.value, bytes):
            yield f"  {name}: {_shortest(field.value)}"
        elif name and isinstance(field.value, int):
            yield f"  {name}: {field.value}"
        elif field.number == _CAPABILITY and isinstance(field.value, bytes):
            yield f"  cuda_compute_capability {{ {' '.join(_capability(field.value))} }}"
    yield from (f"  {line}" for line in _texts(data, INFO_FIELDS, _CAPABILITY))


def _shortest(data: bytes) -> str:
    """A float of four bytes, in as few digits as say it."""
    value = struct.unpack("<f", data)[0]
    texts = (f"{value:.{digits}g}" for digits in range(3, 10))
    return next((text for text in texts if struct.pack("<f", float(text)) == data), f"{value:.9g}")


def _capability(data: bytes) -> Iterator[str]:
    for field in wire.fields(data):
        if field.number in CAPABILITY_FIELDS and isinstance(field.value, int):
            yield f"{CAPABILITY_FIELDS[field.number]}: {field.value}"


def _texts(data: bytes, names: Mapping[int, str], *without: int) -> Iterator[str]:
    for field in wire.fields(data):
        if (
            field.number in names
            and field.number not in without
            and field.kind == wire.BYTES
            and isinstance(field.value, bytes)
        ):
            escaped = field.value.decode(errors="replace").replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
            yield f'{names[field.number]}: "{escaped}"'
