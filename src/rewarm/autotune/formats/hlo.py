"""What the HLO text of a key tells: which instruction it is, and what it is made of.

Not promised: a parse of HLO. Lines are looked at one by one, and what they do not tell is left open; a rule that asks
here must do without an answer.

A legacy key has the computation that a fusion calls, or the instruction itself for anything else (a custom call). A new
key's text, where anyone has it, is the instruction with its computation inside. A lock file has one line of that: the
instruction, then the operations inside (`autotune.lock.saying`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATION = re.compile(r" ([a-z][a-z0-9-]*)\(")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_NEW_FUSION = re.compile(r"^\(?[a-z0-9]+\[.* fusion\(", re.MULTILINE)
_KIND = re.compile(r"\bkind=(k[A-Za-z]+)")
_LISTED = re.compile(r": ((?:[a-z][a-z0-9-]*(?:, |$))+)$")
_PARAMETER = re.compile(r"parameter\((\d+)\)")

_DOTS = frozenset({"dot", "scaled-dot", "ragged-dot"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """What a key's text tells.

    Attributes:
      is_fusion: whether it is a fusion.
      operations: the operations inside it, by HLO's names; the instruction's own for one that is no fusion.
      custom_call: the target of a custom call; empty for anything else.
      kind: of a fusion: "kLoop", "kInput", "kOutput" or "kCustom"; empty where the text does not say it.
    """

    is_fusion: bool
    operations: frozenset[str]
    custom_call: str
    kind: str = ""

    @property
    def has_dot(self) -> bool:
        """Whether there is a matrix product in it."""
        return bool(self.operations & _DOTS)

    @property
    def has_convolution(self) -> bool:
        """Whether there is a convolution in it."""
        return "convolution" in self.operations

    def __str__(self) -> str:
        if self.custom_call:
            return f"a custom call of {self.custom_call}"
        inside = "a dot" if self.has_dot else "a convolution" if self.has_convolution else "neither dot nor convolution"
        return f"a fusion with {inside}" if self.is_fusion else f"no fusion ({', '.join(sorted(self.operations))})"


def instruction(text: str) -> Instruction | None:
    """What the text tells; `None` where it tells nothing (a fingerprint is no text)."""
    if text.startswith("{") or (_NEW_FUSION.search(text) and "calls=" in text):
        lines = (line.partition(" = ")[2] for line in text.splitlines())
        operations = frozenset(name for line in lines if (name := _operation(line)))
        return Instruction(True, operations, "", _kind(text.partition("calls=")[0]))
    name = _operation(text.partition(" = ")[2] or text)
    if not name:
        return None
    if name == "fusion":  # without its computation it is a lock file's line
        return Instruction(True, frozenset(_named_behind(text)), "", _kind(text))
    target = _TARGET.search(text)
    return Instruction(False, frozenset({name}), target[1] if target else "")


def _kind(text: str) -> str:
    found = _KIND.search(text)
    return found[1] if found else ""


def _named_behind(text: str) -> Iterator[str]:
    """The operations behind the last colon of a lock file's line; none where there are none."""
    listed = _LISTED.search(text)
    yield from listed[1].split(", ") if listed else ()


def _operation(text: str) -> str:
    """The operation in what stands behind "name = ": a shape, the operation, its operands."""
    found = _OPERATION.match(text, len(_shape(text)))
    return found[1] if found else ""


def fusion_text(body: str, kind: str, backend_config: str = "") -> str:
    """The text of a fusion as the new formats take its fingerprint, from its computation as the legacy key has it.

    Args:
      body: the computation, as in a legacy key.
      kind: "kLoop", "kInput", "kOutput" or "kCustom".
      backend_config: as JSON with sorted keys; empty for none.

    Raises:
      ValueError: the body is no such computation.
    """
    shapes: dict[int, str] = {}
    result = ""
    for line in body.splitlines():
        name, equals, rest = line.strip().partition(" = ")
        if not equals:
            continue
        shape = _shape(rest)
        parameter = _PARAMETER.match(rest, len(shape) + 1)
        if parameter:
            shapes[int(parameter[1])] = shape
        if name.startswith("ROOT "):
            result = shape
    if not body.startswith("{") or not result or sorted(shapes) != list(range(len(shapes))):
        raise ValueError("not the computation of a fusion as a legacy key has it")
    operands = ", ".join(shapes[number] for number in range(len(shapes)))
    tail = f", backend_config={backend_config}" if backend_config else ""
    return f"{result} fusion({operands}), kind={kind}, calls=\n{body}{tail}"


def _shape(text: str) -> str:
    """The shape that a text begins with; a tuple's has blanks inside its parentheses."""
    if not text.startswith("("):
        return text.partition(" ")[0]
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return text[: at + 1]
    return ""
