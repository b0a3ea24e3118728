"""XLA's serialised topologies, taken apart and put together: how many devices there are, and which CPU is meant.

Not promised: what a newer jaxlib writes. Fields that are not named here are kept as they are.

    PjRtTopologyDescriptionProto   9: Any {2: one of the two below}
    CpuTopologyProto               1: device {2: process, 3: number in it}, repeated; 5: TargetMachineOptionsProto
    GpuTopologyProto               4: partitions, 5: hosts of one, 6: devices of one; 9: the host's CPU (0.12)
    TargetMachineOptionsProto      1: triple, 2: cpu, 3: features

Numbers: from topologies that jaxlib 0.11.2 and 0.12.0.1 made of devices whose number was known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rewarm.identity import wire
from rewarm.targets import Processor

_ANY, _VALUE = 9, 2
_DEVICE, _PROCESS, _NUMBER, _MACHINE = 1, 2, 3, 5
_COUNTS, _HOST = (4, 5, 6), 9
_TRIPLE, _CPU, _FEATURES = 1, 2, 3


def processor_of(topology: bytes) -> Processor:
    """The CPU that a CPU topology is for: one in an `Any`, or bare, as JAX 0.9 has it.

    Raises:
      ValueError: it names none.
    """
    inner = wire.locate(topology, (_ANY, _VALUE))
    message = wire.locate(topology if inner is None else inner, (_MACHINE,))
    said = {field.number: field.data.decode() for field in wire.fields(message or b"") if field.kind == wire.BYTES}
    if not said.get(_TRIPLE):
        raise ValueError("the CPU topology names no target machine")
    return Processor(said[_TRIPLE], said.get(_CPU, ""), said.get(_FEATURES, ""))


def for_cpus(topology: bytes, processes: int, local: int, processor: Processor | None) -> bytes:
    """A CPU topology with so many processes and devices in each, of another CPU where one is given.

    Raises:
      ValueError: the bytes are no topology.
    """
    devices = b"".join(
        _bytes(_DEVICE, _number(_PROCESS, process) + _number(_NUMBER, number))
        for process in range(processes)
        for number in range(local)
    )
    kept = b"".join(
        field.raw
        for field in wire.fields(_inside(topology))
        if field.number not in (_DEVICE, *((_MACHINE,) if processor is not None else ()))
    )
    machine = b"" if processor is None else _bytes(_MACHINE, _machine(processor))
    return _around(topology, devices + kept + machine)


def shape_of_gpus(topology: bytes) -> tuple[int, int, int]:
    """Partitions, hosts of one, devices of one.

    Raises:
      ValueError: the topology does not say.
    """
    said = {field.number: field.value for field in wire.fields(_inside(topology))}
    partitions, hosts, devices = (said.get(number, 0) for number in _COUNTS)
    if not (isinstance(partitions, int) and isinstance(hosts, int) and isinstance(devices, int)):
        raise ValueError("the GPU topology counts in no numbers")
    if min(partitions, hosts, devices) < 1:
        raise ValueError("the GPU topology does not say how many devices there are")
    return partitions, hosts, devices


def host_of_gpus(topology: bytes) -> str:
    """The CPU beside the GPUs, as "triple/model"; "" where the topology names none.

    Raises:
      ValueError: the bytes are no topology.
    """
    message = wire.locate(_inside(topology), (_HOST,))
    said = {field.number: field.data.decode() for field in wire.fields(message or b"") if field.kind == wire.BYTES}
    return "/".join(said[number] for number in (_TRIPLE, _CPU) if said.get(number))


def for_gpus(topology: bytes, shape: tuple[int, ...]) -> bytes:
    """The same GPUs in another number of partitions, hosts and devices.

    Raises:
      ValueError: the bytes are no topology.
    """
    counts: Mapping[int, int] = dict(zip(_COUNTS, shape, strict=True))
    return _around(topology, b"".join(_counted(_inside(topology), counts)))


def _counted(inside: bytes, counts: Mapping[int, int]) -> Iterator[bytes]:
    """The fields with these numbers in the place of theirs; in the order of XLA's own, by number."""
    left = dict(counts)
    for field in wire.fields(inside):
        while left and min(left) < field.number:
            number = min(left)
            yield _number(number, left.pop(number))
        if field.number not in counts:
            yield field.raw
    yield from (_number(number, value) for number, value in left.items())


def _inside(topology: bytes) -> bytes:
    found = wire.locate(topology, (_ANY, _VALUE))
    if found is None:
        raise ValueError("the topology does not say what is in it")
    return found


def _around(topology: bytes, inside: bytes) -> bytes:
    outer = wire.locate(topology, (_ANY,)) or b""
    any_of_it = b"".join(field.raw for field in wire.fields(outer) if field.number != _VALUE) + _bytes(_VALUE, inside)
    return b"".join(_bytes(_ANY, any_of_it) if field.number == _ANY else field.raw for field in wire.fields(topology))


def _machine(processor: Processor) -> bytes:
    texts = {_TRIPLE: processor.triple, _CPU: processor.cpu, _FEATURES: processor.features}
    return b"".join(_bytes(number, text.encode()) for number, text in texts.items() if text)


def _bytes(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | wire.BYTES) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    """Zero is what is not there."""
    return _varint(number << 3 | wire.VARINT) + _varint(value) if value else b""


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
