"""Machines described as data, so that programs can be compiled for one that is not there. No JAX, no compiler.

Not promised: that a machine reports what its data sheet says. A target that was captured on the machine says what it
reported; for the others `differences` names each field that is not the same, and whether it is part of keys.

    named("h200"), named("v5e"), named("x86-64-v3"), named("host"), named("host:64"), named("their-machine.json")

`jax_adapter.described` makes JAX's devices of a target and a topology.
"""

from rewarm.targets.captured import read, write
from rewarm.targets.comparing import Difference, differences
from rewarm.targets.model import Processor, Reported, Target
from rewarm.targets.names import named, names
from rewarm.targets.topologies import Topology
from rewarm.targets.wrong import TargetError, TopologyError, UnknownTargetError

__all__ = [
    "Difference",
    "Processor",
    "Reported",
    "Target",
    "TargetError",
    "Topology",
    "TopologyError",
    "UnknownTargetError",
    "differences",
    "named",
    "names",
    "read",
    "write",
]
