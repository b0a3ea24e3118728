"""How two programs differ: by their lines where they can be read, else by their shape.

Not promised: the smallest difference. The first places are shown where the two part, in their own order.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rewarm.explain.words import parting
from rewarm.identity.program import Listing, Operation
from rewarm.ledger.explanation import Change, Finding

_PLACES = 4
_WIDTH = 160
_WINDOW = 400

_VALUE = re.compile(r"%[A-Za-z_]?[\w$.-]*(?::\d+)?(?:#\d+)?")
_TENSOR = re.compile(r"tensor<[^<>]*>")
_NUMBER = re.compile(r"(?<![\w.%@])-?\d+(?![\w.])")
_DIMENSIONS = re.compile(r"(?:(?:\d+|\?)x)+")
# After the sizes of a tensor ("4xf32") as well as alone ("<f32>").
_WIDE = re.compile(r"(?<![a-wyzA-Z0-9_])(f64|i64|ui64|f32|i32|ui32)\b")
_NARROW = {"f64": "f32", "i64": "i32", "ui64": "ui32"}
_CONSTANT = "stablehlo.constant"


class Difference(NamedTuple):
    """What differs between two programs.

    Attributes:
      changes: the first places where they differ; `item` is the source line where it is known.
      findings: what that means.
    """

    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]


def compare(before: Listing, after: Listing) -> Difference:
    """How `after` differs from `before`."""
    old, new = before.operations, after.operations
    same_order = len(old) == len(new)
    pairs = [(one, other) for one, other in zip(old, new, strict=False) if one.text != other.text]
    if same_order and not pairs:
        return Difference((), ())
    if same_order and all(one.text.startswith("func.func ") for one, _ in pairs) and not _sizes_differ(pairs):
        return Difference(_places(pairs), (SIGNATURE,))
    if same_order:
        for alike, finding in _RULES:
            if finding is SHAPES and not _sizes_differ(pairs):
                continue
            if all(alike(one.text) == alike(other.text) for one, other in pairs):
                return Difference(_places(pairs), (finding,))
    if _same_but_for_order(old, new):
        wired = [_kind(one.text) for one in old] == [_kind(one.text) for one in new]
        return Difference(_parting(old, new), (OPERANDS if wired else ORDER,))
    if _widths(old) == _widths(new) and _number_types(old) != _number_types(new):
        narrow = [{_NARROW.get(name, name) for name in _number_types(side)} for side in (old, new)]
        return Difference(_parting(old, new), (TYPES if narrow[0] == narrow[1] else OTHER_TYPES,))
    return Difference(_parting(old, new), (OPERATIONS,))


CONSTANTS = Finding("constants", "the same operations with other constants")
SHAPES = Finding("shapes", "the same program for other shapes")
ORDER = Finding(
    "order",
    "the same operations in another order; if nobody changed the source, something unordered decides it, such as a "
    "Python set, a dict that is filled in another order, or a hash seed (PYTHONHASHSEED)",
)
OPERANDS = Finding("operands", "the same operations on other operands")
TYPES = Finding(
    "types",
    "the same program in other number types: jax_enable_x64, or a Python scalar where an array was (weak types)",
)
OTHER_TYPES = Finding("types", "the same program in other number types")
SIGNATURE = Finding(
    "signature",
    "the same operations; what is said of arguments and results differs (donation, sharding, layout, memory)",
)
OPERATIONS = Finding("operations", "other operations")


def same_but_for_width(before: str, after: str) -> bool:
    """Whether two signatures differ in the width of their numbers alone."""
    return before != after and _without_width(before) == _without_width(after)


def _without_constant(text: str) -> str:
    start, end = text.find("dense"), text.rfind(":")
    return text[:start] + text[end:] if _CONSTANT in text and 0 <= start < end else text


def _without_width(text: str) -> str:
    return _WIDE.sub(lambda found: _NARROW.get(found.group(), found.group()), text)


def _without_sizes(text: str) -> str:
    without = _TENSOR.sub(lambda found: _DIMENSIONS.sub("", found.group()), text)
    return without if _CONSTANT in text else _NUMBER.sub("N", without)


_RULES: tuple[tuple[Callable[[str], str], Finding], ...] = (
    (_without_constant, CONSTANTS),
    (_without_width, TYPES),
    (_without_sizes, SHAPES),
    (lambda text: _without_sizes(_without_constant(text)), SHAPES),
)


def _kind(text: str) -> str:
    """An operation without the numbers of the values that it takes and gives."""
    return _VALUE.sub("%", text)


def _same_but_for_order(old: Sequence[Operation], new: Sequence[Operation]) -> bool:
    return len(old) == len(new) and Counter(_kind(one.text) for one in old) == Counter(_kind(one.text) for one in new)


def _widths(operations: Sequence[Operation]) -> list[str]:
    """The operations without number types and without the conversions between them."""
    return [_TENSOR.sub("tensor", _kind(one.text)) for one in operations if "stablehlo.convert" not in one.text]


def _number_types(operations: Sequence[Operation]) -> set[str]:
    return {found for one in operations for found in _WIDE.findall(one.text)}


def _sizes_differ(pairs: Sequence[tuple[Operation, Operation]]) -> bool:
    """Whether any tensor has another type; other numbers (a dimension that is reduced) may differ alone."""
    return any(_TENSOR.findall(one.text) != _TENSOR.findall(other.text) for one, other in pairs)


def _places(pairs: Sequence[tuple[Operation, Operation]]) -> tuple[Change, ...]:
    return tuple(_change(one, other) for one, other in pairs[:_PLACES])


def _change(one: Operation | None, other: Operation | None) -> Change:
    source = (other.source if other else "") or (one.source if one else "")
    texts = parting(one.text if one else "", other.text if other else "", _WIDTH)
    return Change("program", source, *texts)


def _parting(old: Sequence[Operation], new: Sequence[Operation]) -> tuple[Change, ...]:
    """The first places where two programs part, by the kinds of their operations."""
    kinds = [_kind(one.text) for one in old], [_kind(one.text) for one in new]
    if kinds[0] == kinds[1]:  # the same operations, wired differently
        at = next(at for at, (one, other) in enumerate(zip(old, new, strict=True)) if one.text != other.text)
        return (_change(old[at], new[at]),)
    start = _alike(kinds[0], kinds[1])
    rest = [side[start:] for side in kinds]
    end = _alike(rest[0][::-1], rest[1][::-1])
    windows = [slice(start, min(len(side) - end, start + _WINDOW)) for side in kinds]
    matcher = difflib.SequenceMatcher(None, kinds[0][windows[0]], kinds[1][windows[1]], autojunk=False)
    found = _lines(matcher, old[windows[0]], new[windows[1]])
    return tuple(change for change, _ in zip(found, range(_PLACES), strict=False))


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines two lists have in common from their start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _lines(
    matcher: difflib.SequenceMatcher[str], old: Sequence[Operation], new: Sequence[Operation]
) -> Iterator[Change]:
    for tag, first, last, from_, to in matcher.get_opcodes():
        if tag == "equal":
            continue
        removed, added = list(old[first:last]), list(new[from_:to])
        for at in range(max(len(removed), len(added))):
            one = removed[at] if at < len(removed) else None
            other = added[at] if at < len(added) else None
            yield _change(one, other)
