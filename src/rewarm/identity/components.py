"""The component table: what a key is made of, in one order, by name.

Not promised: that a key survives a new version of rewarm. `KEY_SCHEMA` is the first component, so a change of the
table starts a new set of entries instead of misreading the old.

The key is the SHA-256 over the components in the order of `TABLE`, each as

    name_length:u32le name digest:32B          digest := SHA-256 of the component's bytes

so that a header, which keeps every name and digest (and the value itself where it is small), proves its own key.
Names are framed and digests have one length: no two tables give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

# Bump when the bytes of any component change their meaning for programs that exist: a canonical form, the order or
# the set of components. Every entry made before then becomes unreachable, and none can be served wrongly.
KEY_SCHEMA = 2

TABLE: tuple[str, ...] = (
    "format",  # the schema of the key
    "program",  # canonical StableHLO
    "callbacks",  # Python that shapes the program while it compiles
    "options",  # the effective compile options, free of locations
    "inputs",  # content of the files that options name
    "toolchain",  # the native libraries that make code, by content
    "target",  # what the compiler reads of the device
    "salt",  # the user's own
)


# A value whose text is longer than this many characters is not kept in a header, which every list reads.
_SMALL = 2048


class Component(NamedTuple):
    """One row of the table.

    Attributes:
      name: one of `TABLE`.
      digest: SHA-256 of the component's bytes, hexadecimal.
      value: the value itself, as JSON; `None` for bytes, which count by digest alone.
      small: whether a header keeps the value.
    """

    name: str
    digest: str
    value: Any = None
    small: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The row as a header keeps it, in plain JSON values."""
        plain = {"name": self.name, "digest": self.digest}
        return {**plain, "value": self.value} if self.small and self.value is not None else plain


def component(name: str, value: Any) -> Component:
    """A row from `value`: bytes count by digest, any other (JSON) value is also kept."""
    if isinstance(value, bytes):
        return Component(name, hashlib.sha256(value).hexdigest())
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Component(name, hashlib.sha256(text.encode("ascii")).hexdigest(), value, len(text) <= _SMALL)


_FORMAT = component("format", KEY_SCHEMA)


class KeyComponents(NamedTuple):
    """The filled table of one program.

    Attributes:
      rows: one per name of `TABLE`, in its order.
    """

    rows: tuple[Component, ...]

    @classmethod
    def of(cls, rows: Mapping[str, Component]) -> KeyComponents:
        """The table with these rows; `format` is added.

        Raises:
          KeyError: a name of `TABLE` is missing.
        """
        filled = {**rows, "format": _FORMAT}
        return cls(tuple(filled[name] for name in TABLE))

    def large_values(self) -> dict[str, Any]:
        """Name to value, of the rows whose value a header does not keep."""
        return {row.name: row.value for row in self.rows if not row.small}

    def key(self) -> str:
        """The key: 64 hexadecimal digits."""
        return derive_key((row.name, row.digest) for row in self.rows)


def derive_key(rows: Iterable[tuple[str, str]]) -> str:
    """The key of `(name, hexadecimal digest)` rows, as a header keeps them."""
    framed = bytearray()
    for name, digest in rows:
        raw = bytes.fromhex(digest)
        if len(raw) != 32:
            raise ValueError(f"the digest of {name!r} has {len(raw)} bytes")
        framed += _FRAMES.get(name) or _frame(name)
        framed += raw
    return hashlib.sha256(framed).hexdigest()


def _frame(name: str) -> bytes:
    encoded = name.encode("utf-8")
    return struct.pack("<I", len(encoded)) + encoded


_FRAMES = {name: _frame(name) for name in TABLE}
