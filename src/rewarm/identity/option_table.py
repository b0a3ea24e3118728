"""The option table: for each field of the compile options its number, name, type and class, and the reason.

Not promised: every field of every jaxlib. See `option_rows`, which holds the rows.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from rewarm.identity import option_rows
from rewarm.identity.wire import BYTES, FIXED32, FIXED64, VARINT

CLASSES = ("affects", "no_effect", "output", "file", "named_file", "toolkit", "target", "process", "inside")
MARKS = ("", "presence", "inline", "once")
_KINDS = {"string": BYTES, "bytes": BYTES, "message": BYTES, "float": FIXED32, "double": FIXED64}


class OptionField(NamedTuple):
    """One row.

    Attributes:
      number: the field's number in its message.
      name: its name; for `DebugOptions` the name of the flag, too.
      type: bool, int32, int64, float, double, string, bytes, enum or message.
      of: the name of the enum or message, else "".
      many: "" for one value, else "repeated" or "map" (from strings).
      kind: the wire type of one value.
      group: the class, one of `CLASSES`.
      reason: why it has this class.
      mark: one of `MARKS`.
    """

    number: int
    name: str
    type: str
    of: str
    many: str
    kind: int
    group: str
    reason: str
    mark: str


Message = dict[int, OptionField]


@functools.cache
def _type(spelled: str) -> tuple[str, str, str, int]:
    many, _, rest = spelled.partition(":")
    if many not in ("repeated", "map"):
        many, rest = "", spelled
    name, _, of = rest.partition(":")
    return name, of, many, BYTES if many == "map" else _KINDS.get(name, VARINT)


def _message(text: str) -> Message:
    rows: Message = {}
    group = reason = ""
    for line in text.strip().split("\n"):
        words = line.split(" ")
        if words[0] == "#":
            group, _, reason = line[2:].partition(": ")
            continue
        number = int(words[0])
        row = (number, words[2], *_type(words[1]), group, reason, words[3] if len(words) > 3 else "")
        rows[number] = tuple.__new__(OptionField, row)  # half the time of a call, and there are hundreds
    return rows


# The messages, by their names in XLA.
_TEXTS = {
    "CompileOptionsProto": option_rows.COMPILE_OPTIONS,
    "ExecutableBuildOptionsProto": option_rows.EXECUTABLE_BUILD_OPTIONS,
    "DebugOptions": option_rows.DEBUG_OPTIONS,
    "OptionOverrideProto": option_rows.OPTION_OVERRIDE,
}
MESSAGES = tuple(_TEXTS)


@functools.cache
def message(name: str) -> Message:
    """The rows of one of `MESSAGES` by number, read when they are first asked for."""
    return _message(_TEXTS[name])


@functools.cache
def flags() -> dict[str, OptionField]:
    """The fields of `DebugOptions` by name, as `compiler_options=` has them."""
    return {field.name: field for field in message("DebugOptions").values()}


@functools.cache
def enums() -> dict[str, dict[int, tuple[str, ...]]]:
    """Enums by name: number -> names, the one to show first."""
    found = {}
    for line in option_rows.ENUMS.strip().replace("\n ", "").split("\n"):
        name, _, members = line.partition(": ")
        pairs = (member.split("=") for member in members.split(", "))
        found[name] = {int(number): tuple(names.split("|")) for number, names in pairs}
    return found
