"""Values of options: from the bytes of a message to plain Python, from `compiler_options=` to a field, to JSON.

Not promised: every spelling of a value. What XLA reads in one way only, in every jaxlib that is supported, is read
here; everything else stays as it is written and counts as that, which can cost a hit and never makes a wrong one.

Plain values: bool; int for the whole numbers and for enums; float; str for strings, with `surrogateescape` where the
bytes are no UTF-8; bytes for bytes and messages; a list for a repeated field; a dict for a map.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from typing import Any, NamedTuple

from rewarm.identity import wire
from rewarm.identity.option_table import Message, OptionField, enums, message

_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
_RANGES = {"int32": _INT32, "int64": _INT64, "enum": _INT32}
_NUMBER = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+[ \t\n\v\f\r]*", re.ASCII)
_FLOATS = (2.0**-126, (2 - 2.0**-23) * 2.0**127)  # the least and the greatest that fold
_SHORT = 32  # bytes that are shown as they are

# ---------------------------------------------------------------------------------------------------------------
# From bytes


def read(data: bytes, table: Message) -> tuple[dict[int, Any], dict[int, bytes]]:
    """The plain values of the fields that `table` knows, and the raw bytes of all others, by number.

    As protocol buffers say: the last of several single values wins, single messages are joined, and a repeated field
    of numbers may be packed. A field of another wire type than its own is one that the table does not know.

    Raises:
      ValueError: the bytes are not a message.
    """
    values: dict[int, Any] = {}
    unknown: dict[int, bytes] = {}
    for found in wire.fields(data):
        number = found.number
        field = table.get(number)
        if field is not None and found.kind == field.kind and not field.many:
            value = _plain(field, found.value)
            values[number] = values.get(number, b"") + value if field.type == "message" else value
        elif field is None or not _added(values, field, found):
            unknown[number] = unknown.get(number, b"") + found.raw
    return values, unknown


def _added(values: dict[int, Any], field: OptionField, found: wire.Field) -> bool:
    """Whether this was one more value, or several, of a repeated field or of a map."""
    if field.many == "map" and found.kind == field.kind:
        entry = _entry(field, found.data)
        if entry is None:
            return False
        values.setdefault(field.number, {})[entry[0]] = entry[1]
    elif field.many == "repeated" and found.kind == field.kind:
        values.setdefault(field.number, []).append(_plain(field, found.value))
    elif field.many == "repeated" and found.kind == wire.BYTES:
        packed = values.setdefault(field.number, [])
        packed.extend(_plain(field, value) for value in wire.packed(found.data, field.kind))
    else:
        return False
    return True


def _entry(field: OptionField, data: bytes) -> tuple[str, Any] | None:
    """Key and value of one entry of a map, or `None` for one that has more in it."""
    key, value = b"", b""
    for inner in wire.fields(data):
        if inner.kind != wire.BYTES or inner.number not in (1, 2):
            return None
        if inner.number == 1:
            key = inner.data
        else:
            value = value + inner.data if field.type == "message" else inner.data
    return key.decode("utf-8"), _plain(field, value)


def _plain(field: OptionField, value: int | bytes) -> Any:
    kind = field.type
    if isinstance(value, int):
        if kind == "bool":
            return value != 0
        if kind == "int64":
            return value - 2**64 if value >= 2**63 else value
        value &= 0xFFFFFFFF  # as XLA's own parser cuts it
        return value - 2**32 if value >= 2**31 else value
    if kind == "string":
        return text_of(value)
    if kind in ("float", "double"):
        return struct.unpack("<f" if kind == "float" else "<d", value)[0]
    return value


def text_of(data: bytes) -> str:
    """Text that gives back the same bytes."""
    return data.decode("utf-8", "surrogateescape")


def is_unset(field: OptionField, value: Any) -> bool:
    """Whether XLA takes this value for none: zero, or an empty list or map.

    Not so for a message, which is there or not, and for the few fields that XLA asks whether they are set.
    """
    if value or field.mark == "presence":
        return False
    if field.type in ("float", "double"):
        return field.many != "" or math.copysign(1.0, value) > 0
    return field.type != "message" or field.many != ""


# ---------------------------------------------------------------------------------------------------------------
# From `compiler_options=`


class Override(NamedTuple):
    """One value of `compiler_options=`.

    Attributes:
      type: bool, int64, double or string, as Python had it; "" for what is none of these.
      value: the value; the raw bytes where there is no type.
    """

    type: str
    value: Any

    @classmethod
    def of(cls, data: bytes) -> Override:
        """The value in an `OptionOverrideProto`.

        Raises:
          ValueError: the bytes are not a message.
        """
        table = message("OptionOverrideProto")
        values, unknown = read(data, table)
        if unknown or len(values) != 1:
            return cls("", data)
        ((number, value),) = values.items()
        return cls(table[number].type, value)

    def as_json(self) -> Any:
        """The value as it is written, with its type."""
        if not self.type:
            return raw_as_json(self.value)
        return {self.type: _plain_as_json(self.value)}

    def folded(self, field: OptionField) -> Any:
        """The plain value that XLA gives `field`, or `None` where that is not certain or XLA refuses it.

        A repeated field is replaced, by a text with commas or by one number; an empty text empties it.
        """
        if field.many == "map" or field.type == "message":
            return None
        if not field.many:
            return self._one(field)
        if self.type != "string":
            one = self._one(field)
            return None if one is None else [one]
        parts = [_from_text(field, part) for part in self.value.split(",")] if self.value else []
        return None if None in parts else parts

    def _one(self, field: OptionField) -> Any:
        if self.type == "string":
            return _from_text(field, self.value)
        if self.type == "bool" and field.type == "bool":
            return self.value
        if self.type == "int64" and self.value in _RANGES.get(field.type, ()):
            return self.value
        # Smaller numbers, zero and negative ones among them, are refused before JAX 0.12.
        if self.type == "double" and field.type == "float" and _FLOATS[0] <= self.value <= _FLOATS[1]:
            return struct.unpack("<f", struct.pack("<f", self.value))[0]
        return None


def _from_text(field: OptionField, text: str) -> Any:
    """The value that XLA reads from `text`, or `None`. Text for a float is not read: XLA's rounding is its own."""
    if field.type == "string":
        return text
    if field.type == "bool":
        return {"True": True, "False": False}.get(text)
    if field.type in _RANGES and _NUMBER.fullmatch(text):
        number = int(text)
        return number if number in _RANGES[field.type] else None
    if field.type == "enum":
        return next((number for number, names in enums()[field.of].items() if text in names), None)
    return None


# ---------------------------------------------------------------------------------------------------------------
# To JSON


def as_json(field: OptionField, value: Any) -> Any:
    """A value of `field` for people and for the key: two different ones never look the same."""
    if field.many == "repeated":
        return [_one_as_json(field, one) for one in value]
    if field.many == "map":
        return {name: _one_as_json(field, one) for name, one in sorted(value.items())}
    return _one_as_json(field, value)


def _one_as_json(field: OptionField, value: Any) -> Any:
    if field.type == "enum":
        names = enums()[field.of].get(value)
        return names[0] if names else value
    return _plain_as_json(value)


def _plain_as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return _digest(value)
    if isinstance(value, str) and not _is_unicode(value):
        return _digest(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, float) and not math.isfinite(value):
        return {"double": struct.pack(">d", value).hex()}  # JSON has no such numbers
    return value


def raw_as_json(raw: bytes) -> Any:
    """Raw bytes: as hexadecimal digits, or, of many, the digest."""
    return raw.hex() if len(raw) <= _SHORT else _digest(raw)


def _digest(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
