"""What it means for two executables to be the same optimised program, whatever their bytes and names.

Not promised: that two executables found alike have the same machine code. What is compared is what the compiler
decided (the optimised HLO with its schedule, its constants and the options of the backend) and where it put its
buffers.

Left out is what differs legitimately where an entry serves a program with other names and source locations: the
module's name, names of computations and instructions (they are numbered in the order of their first appearance),
metadata, the origins of values, and kernels that custom calls carry with source locations in their bytes.
"""

from __future__ import annotations

import hashlib
import re
from itertools import zip_longest
from typing import Any

from rewarm.identity import wire
from rewarm.jax_adapter import seam

# Of computations and instructions, and (with @) of meshes.
_NAME = re.compile(r"[%@][\w.\-]+")
_MODULE_NAME = re.compile(r"\AHloModule [^,\n]*")
# Where a value came from: names of instructions as they were before the optimisation.
_ORIGIN = re.compile(r", origin=\{.*?\}(?=, [a-z_\-]+=|\n|\Z)")
# A digest that XLA:GPU writes of the module as it came, with its names.
_FINGERPRINT = re.compile(r'fingerprint_before_lhs="[^"]*"')
_MESH_NAME = re.compile(r"[\w.\-]+ = (?=#sdy\.mesh<)")
# As in identity/program/payloads.py; what is in them counts in the key.
_KERNEL = re.compile(r'custom_call_target="(?:__gpu\$xla\.gpu\.triton|mosaic_gpu_v2|tpu_custom_call)".*')
_ELIDED = "constant({...})"
_TUNED = re.compile(r'custom_call_target="__cu|kind=kCustom|"autotun|"selected_algorithm"|triton')

# Fields of HloModuleProto and BufferAssignmentProto (xla/service/hlo.proto).
_COMPUTATIONS, _INSTRUCTIONS, _LITERAL = 3, 2, 8
_ALLOCATIONS, _ASSIGNED, _OFFSET, _SIZE = 3, 9, 2, 3

_SHOWN = 160


def difference(one: Any, other: Any) -> str | None:
    """In what two loaded executables differ, in words for one line; `None` where they are alike.

    Raises:
      Exception: what the runtime raises where it cannot tell.
    """
    return _in_programs(one, other) or _in_buffers(one, other)


def tuned(executable: Any) -> bool:
    """Whether XLA:GPU chose parts of this program by the clock, so that the next compile may choose others."""
    return any(_TUNED.search(text) for text in seam.optimised_programs(executable))


def _in_programs(one: Any, other: Any) -> str | None:
    first, second = seam.optimised_programs(one), seam.optimised_programs(other)
    if len(first) != len(second):
        return f"{len(first)} modules stored, {len(second)} compiled"
    for stored, compiled in zip(first, second, strict=True):
        if stored != compiled and (found := _in_lines(plain(stored), plain(compiled))) is not None:
            return found
    if any(_ELIDED in text for text in first) and _literals(one) != _literals(other):
        return "the values of a constant"
    return None


def plain(text: str) -> str:
    """The text of a module without what may differ between programs of one key."""
    text = _MODULE_NAME.sub("HloModule", text)
    for other_name in (_ORIGIN, _FINGERPRINT, _MESH_NAME, _KERNEL):
        text = other_name.sub("", text)
    numbers: dict[str, str] = {}
    return _NAME.sub(lambda name: numbers.setdefault(name[0], f"%{len(numbers)}"), text)


def _in_lines(one: str, other: str) -> str | None:
    if one == other:
        return None
    for first, second in zip_longest(one.splitlines(), other.splitlines()):
        if first != second:
            return f"stored `{_shown(first, second)}`, compiled `{_shown(second, first)}`"
    return None


def _shown(line: str | None, other: str | None) -> str:
    """A line, or where it is long the part of it around the first character that differs."""
    if line is None:
        return "nothing"
    line, other = line.strip(), (other or "").strip()
    same = next((at for at, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), 0)
    start = max(0, same - _SHOWN // 2) if len(line) > _SHOWN else 0
    cut = line[start : start + _SHOWN]
    return f"{'...' if start else ''}{cut}{'...' if start + _SHOWN < len(line) else ''}"


def _literals(executable: Any) -> list[bytes]:
    """A digest of each constant, in the order of the program: the text leaves out the values of large ones."""
    found = []
    for module in seam.serialised_programs(executable):
        for computation in (field.data for field in wire.fields(module) if field.number == _COMPUTATIONS):
            for instruction in (field.data for field in wire.fields(computation) if field.number == _INSTRUCTIONS):
                literal = wire.locate(instruction, (_LITERAL,))
                if literal is not None:
                    found.append(hashlib.sha256(literal).digest())
    return found


def _in_buffers(one: Any, other: Any) -> str | None:
    first, second = seam.buffers(one), seam.buffers(other)
    for name in first.sizes.keys() & second.sizes.keys():
        if first.sizes[name] != second.sizes[name]:
            return f"{name}: {first.sizes[name]} stored, {second.sizes[name]} compiled"
    stored, compiled = first.assignment, second.assignment
    # A runtime that keeps none in its serialised executables has none here.
    if stored and compiled and stored != compiled and _allocations(stored) != _allocations(compiled):
        return "the assignment of buffers"
    return None


def _allocations(assignment: bytes) -> list[tuple[Any, ...]]:
    """The allocations, each with what is placed in it: offsets and sizes, since the buffers' numbers mean nothing."""
    return [_allocation(field.data) for field in wire.fields(assignment) if field.number == _ALLOCATIONS]


def _allocation(raw: bytes) -> tuple[Any, ...]:
    rows = list(wire.fields(raw))
    placed = [
        sorted((part.number, part.value) for part in wire.fields(row.data) if part.number in (_OFFSET, _SIZE))
        for row in rows
        if row.number == _ASSIGNED
    ]
    return [(row.number, row.value) for row in rows if row.number != _ASSIGNED], sorted(placed)
