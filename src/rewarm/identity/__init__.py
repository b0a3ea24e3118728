"""When are two compilations the same? The component table, and what fills it."""

from rewarm.identity.components import KEY_SCHEMA, Component, KeyComponents, component
from rewarm.identity.machine import Machine, machine_of_executable, machine_of_topology
from rewarm.identity.options import CanonicalOptions, canonical_options
from rewarm.identity.program import Program, canonical_program
from rewarm.identity.target import TargetFacts, canonical_target
from rewarm.identity.toolchain import Toolchain

__all__ = [
    "KEY_SCHEMA",
    "CanonicalOptions",
    "Component",
    "KeyComponents",
    "Machine",
    "Program",
    "TargetFacts",
    "Toolchain",
    "canonical_options",
    "canonical_program",
    "canonical_target",
    "component",
    "machine_of_executable",
    "machine_of_topology",
]
