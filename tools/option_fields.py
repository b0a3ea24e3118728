"""Print the fields of the installed jaxlib's compile options that the option table does not have, as rows for it.

    python tools/option_fields.py

Each row goes into src/rewarm/identity/option_rows.py, under the `# class: reason` that fits, or under a new one. If in
doubt whether a field changes code, it is `affects`. The library itself describes its messages: the descriptors of its
protocol buffers lie in it, uncompressed. Exit code 1 if a row is missing.
"""

from __future__ import annotations

import mmap
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rewarm.identity import wire
from rewarm.identity.option_table import MESSAGES, OptionField, enums, message

# Numbers of google.protobuf.FieldDescriptorProto.Type, as the table spells them.
_TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    5: "int32",
    8: "bool",
    9: "string",
    11: "message",
    12: "bytes",
    14: "enum",
}
_REPEATED = 3
_LEADING = {**dict.fromkeys(range(1, 15), wire.BYTES), 10: wire.VARINT, 11: wire.VARINT, 14: wire.VARINT}


class Field(NamedTuple):
    """A field as the library describes it: number, name, type as the table spells it, full name of what it holds."""

    number: int
    name: str
    type: str
    of: str


class Descriptors(NamedTuple):
    """What the library describes.

    Attributes:
      messages: fields by full name of their message, "xla.DebugOptions".
      enums: number -> names, by full name of the enum, "xla.PrecisionConfig.Precision".
    """

    messages: dict[str, list[Field]]
    enums: dict[str, dict[int, list[str]]]


def library() -> Path:
    """The installed jaxlib's compiler."""
    import jaxlib

    return Path(jaxlib.__file__).parent / "libjax_common.so"


def descriptors(path: Path) -> Descriptors:
    """The messages and enums of XLA that a library describes."""
    found = Descriptors({}, {})
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        # A FileDescriptorProto starts with its name, which is a path.
        for start in re.finditer(rb"\x0a([\x06-\x7f])(?=xla/[\w./]+\.proto\x12)", data):
            end = start.end() + start[1][0]
            if data[end - 6 : end + 1] == b".proto\x12":
                _read_file(data[start.start() : start.start() + 400_000], found)
    return found


def _read_file(data: bytes, found: Descriptors) -> None:
    package = ""
    for field in _leading_fields(data):
        if field.number == 2:
            package = field.data.decode()
        elif field.number == 4:
            _read_message(field.data, package, found)
        elif field.number == 5:
            _read_enum(field.data, package, found)


def _leading_fields(data: bytes) -> Iterator[wire.Field]:
    """Fields up to the last of a FileDescriptorProto: its syntax (12), or what is no such field."""
    names = 0
    try:
        for field in wire.fields(data):
            names += field.number == 1
            if names > 1 or field.kind != _LEADING.get(field.number):
                return
            yield field
            if field.number == 12:
                return
    except ValueError:
        return


def _read_message(data: bytes, scope: str, found: Descriptors) -> None:
    parts = list(wire.fields(data))
    name = f"{scope}.{_name(parts)}"
    found.messages.setdefault(name, [])
    for part in parts:
        if part.number == 3:
            _read_message(part.data, name, found)
        elif part.number == 4:
            _read_enum(part.data, name, found)
    found.messages[name] = [_read_field(part.data, found) for part in parts if part.number == 2]


def _read_field(data: bytes, found: Descriptors) -> Field:
    values = {part.number: part.value for part in wire.fields(data)}
    of = bytes(values.get(6, b"")).decode().removeprefix(".")
    kind = _TYPES.get(int(values[5]), f"type-{values[5]!r}")
    spelled = f"{kind}:{of.rpartition('.')[2]}" if of else kind
    if values[4] == _REPEATED:
        entry = {field.name: field.type for field in found.messages.get(of, []) if of.endswith("Entry")}
        spelled = f"map:{entry['value']}" if entry.get("key") == "string" else f"repeated:{spelled}"
    return Field(int(values[3]), bytes(values[1]).decode(), spelled, of)


def _read_enum(data: bytes, scope: str, found: Descriptors) -> None:
    parts = list(wire.fields(data))
    members: dict[int, list[str]] = {}
    for part in parts:
        if part.number == 2:
            values = {inner.number: inner.value for inner in wire.fields(part.data)}
            number = int(values.get(2, 0))
            number = number - 2**64 if number >= 2**63 else number
            members.setdefault(number, []).append(bytes(values[1]).decode())
    found.enums[f"{scope}.{_name(parts)}"] = members


def _name(parts: list[wire.Field]) -> str:
    return next(part.data.decode() for part in parts if part.number == 1)


def spelled(row: OptionField) -> str:
    """The type of a row of the table, as the table spells it."""
    one = f"{row.type}:{row.of}" if row.of else row.type
    return f"{row.many}:{one}" if row.many else one


def complaints(found: Descriptors) -> Iterator[str]:
    """What the table lacks or has otherwise than the library, as lines that say what to do."""
    for name in MESSAGES:
        table = message(name)
        for field in found.messages[f"xla.{name}"]:
            row = table.get(field.number)
            if row is None:
                yield f"{name}: add and classify the row: {field.number} {field.type} {field.name}"
            elif (row.name, spelled(row)) != (field.name, field.type):
                here = f"{spelled(row)} {row.name}"
                yield f"{name}: the table has {here} for the row: {field.number} {field.type} {field.name}"
            if field.of in found.enums:
                yield from _enum_complaints(field.of, found)


def _enum_complaints(full: str, found: Descriptors) -> Iterator[str]:
    short = full.rpartition(".")[2]
    known = enums().get(short, {})
    for number, names in found.enums[full].items():
        for name in names:
            if name not in known.get(number, ()):
                yield f"enum {short}: add {number}={name}"


def main() -> int:
    """Print what is missing."""
    lines = list(complaints(descriptors(library())))
    print("\n".join(dict.fromkeys(lines)) if lines else "The option table has every field of this jaxlib.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
