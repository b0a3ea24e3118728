"""The `program` component: canonical StableHLO, and what can be said of a program for people.

The only folder of this floor that uses jaxlib's MLIR bindings; it imports them when called.
"""

from rewarm.identity.program.arguments import Argument, arguments_of
from rewarm.identity.program.bytecode import Shape, shape_of
from rewarm.identity.program.canonical import Program, canonical_program
from rewarm.identity.program.listing import Listing, Operation, list_operations, signature_of, with_locations

__all__ = [
    "Argument",
    "Listing",
    "Operation",
    "Program",
    "Shape",
    "arguments_of",
    "canonical_program",
    "list_operations",
    "shape_of",
    "signature_of",
    "with_locations",
]
