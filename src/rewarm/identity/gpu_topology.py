"""What XLA's serialised topology of GPUs says, field by field and by name.

Not promised: a name for each field of a newer XLA. One without a name is shown by its numbers, with its bytes, so that
two topologies that say different things never read the same; only the order of fields is lost.

    PjRtTopologyDescriptionProto   1: platform_id, 2: platform_name, 3: platform_version, 9: Any {2: GpuTopologyProto}
    GpuTopologyProto               3: platform_version, 4: partitions, 5: hosts, 6: devices, 8: GpuTargetConfigProto,
                                   9: the CPU beside the GPUs (JAX 0.12)
    GpuTargetConfigProto           1: gpu_device_info, 4: platform_name, 7: device_description_str, 8: runtime_version

Names by numbers: from topologies that the compilers of JAX 0.11.2 and 0.12.0.1 made of descriptions whose values were
known.

The CPU is left out. Executables of JAX 0.12.0.1 for described H200s whose hosts were called differently, down to
another architecture, were compared field by field (a softmax of a product, a sort, a program with a computation on the
host): the two fields that repeat the CPU's name differ, and nothing else that one process does not change from run to
run. So a key with the name in it would differ from host to host for nothing.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rewarm.identity.wire import BYTES, FIXED32, Field, fields

_LONG = 40


class _Message(NamedTuple):
    """Names of fields, and the messages among them."""

    names: Mapping[int, str]
    inner: Mapping[int, _Message]


# The fields of `stream_executor.GpuDeviceInfoProto`, of the capability in it, and of what is around it.
INFO_FIELDS: Mapping[int, str] = {
    **{1: "threads_per_block_limit", 2: "threads_per_warp", 3: "shared_memory_per_block"},
    **{4: "shared_memory_per_core", 5: "threads_per_core_limit", 6: "core_count", 7: "fpus_per_core"},
    **{8: "block_dim_limit_x", 9: "block_dim_limit_y", 10: "block_dim_limit_z", 11: "memory_bandwidth"},
    **{12: "l2_cache_size", 13: "clock_rate_ghz", 14: "device_memory_size", 15: "shared_memory_per_block_optin"},
    **{16: "cuda_compute_capability", 18: "registers_per_core_limit", 19: "registers_per_block_limit"},
    **{23: "driver_version", 25: "runtime_version", 26: "compile_time_toolkit_version", 27: "dnn_version"},
    **{30: "device_vendor", 31: "platform_version", 34: "name", 37: "thread_dim_limit_x"},
    **{38: "thread_dim_limit_y", 39: "thread_dim_limit_z", 40: "device_address_bits"},
}
CAPABILITY_FIELDS: Mapping[int, str] = {1: "major", 2: "minor", 3: "feature_extension"}
CONFIG_FIELDS: Mapping[int, str] = {
    1: "gpu_device_info",
    4: "platform_name",
    7: "device_description_str",
    8: "runtime_version",
}

_VERSION = _Message({1: "major", 2: "minor", 3: "patch"}, {})
_INFO = _Message(INFO_FIELDS, {16: _Message(CAPABILITY_FIELDS, {})})
_CONFIG = _Message(CONFIG_FIELDS, {1: _INFO, 8: _VERSION})
_HOST = 9
_GPUS = _Message({3: "platform_version", 4: "partitions", 5: "hosts", 6: "devices", 8: "gpu"}, {8: _CONFIG})
_ANY = _Message({1: "type_url", 2: "gpus"}, {2: _GPUS})
_TOPOLOGY = _Message({1: "platform_id", 2: "platform_name", 3: "platform_version", 9: "topology"}, {9: _ANY})


def fields_of(topology: bytes) -> dict[str, str]:
    """Name to value of each field that is part of keys. Of a field that is there more often the others have a number.

    Raises:
      ValueError: it is no topology of GPUs.
    """
    found: dict[str, str] = {}
    for name, value in _leaves(topology, _TOPOLOGY, ""):
        short = name.removeprefix("topology.gpus.")
        number = next(number for number in range(1, len(found) + 2) if _numbered(short, number) not in found)
        found[_numbered(short, number)] = value
    if "devices" not in found or not any(name.startswith("gpu.") for name in found):
        raise ValueError("the bytes are no topology of GPUs")
    return found


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} ({number})"


def _leaves(data: bytes, message: _Message, prefix: str) -> Iterator[tuple[str, str]]:
    for field in fields(data):
        if message is _GPUS and field.number == _HOST:
            continue
        name = prefix + message.names.get(field.number, f"#{field.number}")
        inner = message.inner.get(field.number)
        if inner is not None and field.kind == BYTES and field.data:
            yield from _leaves(field.data, inner, f"{name}.")
        else:
            yield name, _text(field, named=field.number in message.names)


def _text(field: Field, *, named: bool) -> str:
    if isinstance(field.value, int):
        return str(field.value)
    if named and field.kind == FIXED32:
        return _shortest(field.value)
    if named and field.kind == BYTES:
        return field.value.decode(errors="surrogateescape")
    long = len(field.value) > _LONG
    return f"sha256 {hashlib.sha256(field.value).hexdigest()}" if long else f"bytes {field.value.hex()}"


def _shortest(data: bytes) -> str:
    """A float of four bytes, in as few digits as say it."""
    value = struct.unpack("<f", data)[0]
    texts = (f"{value:.{digits}g}" for digits in range(3, 10))
    return next((text for text in texts if struct.pack("<f", float(text)) == data), data.hex())
