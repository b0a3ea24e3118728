"""The CPU that code is made for: XLA's `TargetMachineOptionsProto`, as topologies and executables hold it.

Not promised: that a host which has every instruction of a machine is as quick as it. The words among the features that
only steer tuning (`prefer-no-gather`) count for nothing here.
"""

from __future__ import annotations

from typing import NamedTuple

from rewarm.identity import wire

_TUNING = "prefer-"
_TRIPLE, _FEATURES = 1, 3
_ANY, _ANY_VALUE, _TARGET_MACHINE = 9, 2, 5  # in a topology
_RESULT, _RESULT_MACHINE = 1, 9  # in an executable, of jaxlib 0.9 to 0.12


class Machine(NamedTuple):
    """A CPU as its code sees it.

    Attributes:
      triple: such as "x86_64-unknown-linux-gnu".
      features: the instruction sets that are present, sorted, such as "avx2".
    """

    triple: str
    features: tuple[str, ...]

    def lacks(self, other: Machine) -> tuple[str, ...]:
        """What code for `other` may use and this CPU has not; another triple is the whole of it."""
        if self.triple != other.triple:
            return (other.triple,)
        return tuple(sorted(set(other.features) - set(self.features)))


def machine_of_topology(topology: bytes) -> Machine:
    """The machine in a serialised CPU topology: the bare `CpuTopologyProto` (0.9) or an `Any` around it.

    Raises:
      ValueError: there is none.
    """
    inner = wire.locate(topology, (_ANY, _ANY_VALUE))
    found = wire.locate(inner if inner is not None else topology, (_TARGET_MACHINE,))
    if found is None:
        raise ValueError("the CPU topology names no target machine")
    return parse(found)


def machine_of_executable(serialized: bytes) -> Machine | None:
    """The machine that a serialised XLA:CPU executable was made for; `None` when it does not say."""
    try:
        length, start = wire.varint(serialized, 0)
        found = wire.locate(serialized, (_RESULT, _RESULT_MACHINE), start + length)
        return parse(found) if found is not None else None
    except ValueError:
        return None


def parse(message: bytes) -> Machine:
    """The machine in a `TargetMachineOptionsProto`.

    Raises:
      ValueError: the bytes are not such a message, or name no triple.
    """
    said = {field.number: field.value for field in wire.fields(message)}
    triple, features = said.get(_TRIPLE, b""), said.get(_FEATURES, b"")
    if not (isinstance(triple, bytes) and isinstance(features, bytes) and triple):
        raise ValueError("the message names no target machine")
    present = (word[1:] for word in features.decode("utf-8").split(",") if word.startswith("+"))
    return Machine(triple.decode("utf-8"), tuple(sorted(word for word in present if not word.startswith(_TUNING))))
