"""A program as a list of operations in words, for explanations.

Not promised: that two lists which are equal come from programs that are; the key decides that, never this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from rewarm.identity.program import canonical, payloads

# What MLIR prints at the end of a line for its source; the first file and line in it is the innermost frame.
_LOCATION = re.compile(r" loc\(.*\)$")
_ARGUMENT_LOCATION = re.compile(r' loc\((?:"(?:[^"\\]|\\.)*"|unknown|#loc\d*)(?:\([^()]*\))?\)(?=[,)])')
_CONSTANT = re.compile(r"(%[\w$.-]+) = stablehlo.constant ")
_NAME = re.compile(r"%[\w$.-]+")
_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+|(#loc\d*)')


class Operation(NamedTuple):
    """One line of a program.

    Attributes:
      text: the operation, with names as in the canonical program.
      source: "file:line" of the innermost frame it came from, or "" where that is not known.
    """

    text: str
    source: str


class Listing(NamedTuple):
    """A program in words.

    Attributes:
      operations: its lines, in order.
    """

    operations: tuple[Operation, ...]


def signature_of(module: Any) -> str:
    """The types of the main function's arguments and results, or "" where a module has no such function."""
    for one in module.body.operations:
        if one.operation.name == "func.func" and one.attributes["sym_name"].value == "main":
            return str(one.attributes["function_type"].value)
    return ""


def with_locations(module: Any) -> bytes:
    """A module in MLIR bytecode as it is, with the source locations that the canonical form leaves out."""
    return payloads.write(module.operation)


def list_operations(bytecode: bytes) -> Listing:
    """The lines of a program in MLIR bytecode, with source locations where the bytecode has them.

    Takes some 4 microseconds for each operation.

    Raises:
      ValueError: this jaxlib cannot read the bytecode.
    """
    from jaxlib.mlir import ir

    try:
        with ir.Context() as context, ir.Location.unknown(context):
            _register(context)
            module = ir.Module.parse(bytecode)
            canonical.rename(module.operation)
            # Not verified: a program of a newer or older StableHLO is for reading here, not for running.
            text = module.operation.get_asm(enable_debug_info=True, use_local_scope=False, assume_verified=True)
    except Exception as error:
        raise ValueError(f"this jaxlib cannot read the program: {type(error).__name__}: {error}") from error
    lines = text.splitlines()
    sources = _Sources(line for line in lines if line.startswith("#loc"))
    told = (line for line in lines if line.strip() not in ("", "}") and not line.startswith("#loc"))
    found = [_operation(line, sources) for line in told]
    return Listing(tuple(_placed(found)))


def _register(context: Any) -> None:
    from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

    payloads.register_dialects(context)
    context.allow_unregistered_dialects = True
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    sdy.register_dialect(context)


class _Sources:
    """What the names of locations, such as #loc12, stand for: each is printed once, however deep the calls are."""

    def __init__(self, definitions: Iterable[str]) -> None:
        self._texts = {name: text for name, _, text in (line.partition(" = ") for line in definitions)}
        self._known: dict[str, str] = {}

    def of(self, text: str) -> str:
        """ "file:line" of the innermost frame, or ""."""
        for found in _PLACE.finditer(text):
            source = f"{found[1]}:{found[2]}" if found[2] else self._named(found[3])
            if source:
                return source
        return ""

    def _named(self, name: str) -> str:
        if name not in self._known:
            self._known[name] = ""  # should one name itself
            self._known[name] = self.of(self._texts.get(name, ""))
        return self._known[name]


def _operation(line: str, sources: _Sources) -> Operation:
    found = _LOCATION.search(line)
    text = line[: found.start()] if found else line
    if " loc(" in text:
        text = _ARGUMENT_LOCATION.sub("", text)
    return Operation(text.strip(), sources.of(found.group()) if found else "")


def _placed(operations: list[Operation]) -> list[Operation]:
    """Operations with each constant where it is first used: JAX places it where the whole program was called."""
    used: dict[str, str] = {}
    placed = []
    for one in reversed(operations):
        constant = _CONSTANT.match(one.text)
        if constant is not None:
            one = one._replace(source=used.pop(constant.group(1), "") or one.source)  # noqa: PLW2901
        elif one.source:
            used.update(dict.fromkeys(_NAME.findall(one.text), one.source))
        elif one.text.startswith("func.func"):
            used.clear()
        placed.append(one)
    return placed[::-1]
