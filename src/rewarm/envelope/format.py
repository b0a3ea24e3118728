"""The envelope: one file per entry, self-describing and self-verifying.

Not promised: secrecy, or any defence against somebody who may write to the store and can compute a SHA-256.

    entry   := "RWRM" version:u8 header_len:u32le header payload digest:32B
    header  := canonical JSON (sorted names, no spaces, ASCII), see `Header`
    payload := the sections, back to back, in the order of the header
    digest  := SHA-256 of everything before it

Bump `ENVELOPE_VERSION` when a reader of the present version would misread the new bytes; a new name in the header
alone needs no bump. A version has golden files in `tests/golden/`.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from rewarm.envelope.codec import compress, decompress
from rewarm.errors import BadEntryError
from rewarm.telling import one_line

MAGIC = b"RWRM"
ENVELOPE_VERSION = 1
_PREFIX = struct.Struct("<4sBI")
_DIGEST_BYTES = 32
_SMALLEST = _PREFIX.size + len(b"{}") + _DIGEST_BYTES

# A read of this many bytes holds the whole header of every entry that rewarm writes today.
_HEADER_READ = 16 * 1024


class Section(NamedTuple):
    """Where one section lies in the payload, and what it must unpack to.

    Attributes:
      name: "executable", later also "program".
      codec: "zstd" or "raw".
      offset: bytes from the payload's start.
      length: bytes as stored.
      raw_length: bytes once unpacked.
      sha256: of the bytes as stored, hexadecimal, so that one section can be checked by itself.
    """

    name: str
    codec: str
    offset: int
    length: int
    raw_length: int
    sha256: str


class Header(NamedTuple):
    """What an entry says of itself.

    Attributes:
      kind: "executable".
      key: 64 hexadecimal digits.
      components: the key's components in their order, each a mapping with `name`, `digest` and, when small, `value`.
      program: the module's name, such as `jit_train_step`. Of an entry that is read, this and other texts are shown as
        they are printed, whoever wrote them: what steers a terminal is escaped.
      compile_seconds: what compiling took, in seconds.
      load_seconds: what loading took when last seen, in seconds; `None` before the first load.
      created: seconds since the epoch.
      producer: versions of what made it: rewarm, jax, jaxlib, python.
      target: a few words on the device, for lists.
      tuning: which autotuning results an executable was compiled with (`autotune/states.py`); `None` for all others.
      sections: filled in by `seal`.
    """

    kind: str
    key: str
    components: tuple[Mapping[str, Any], ...]
    program: str
    compile_seconds: float
    created: float
    producer: Mapping[str, str]
    target: str
    load_seconds: float | None = None
    sections: tuple[Section, ...] = ()
    tuning: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The header as plain JSON values."""
        told = self._asdict()
        del told["tuning"]  # most entries have none, and say nothing of it
        return {
            **told,
            **({} if self.tuning is None else {"tuning": dict(self.tuning)}),
            "components": [dict(component) for component in self.components],
            "producer": dict(self.producer),
            "sections": [section._asdict() for section in self.sections],
        }


class Entry(NamedTuple):
    """An opened entry: every check of the envelope held, and nothing is unpacked yet."""

    header: Header
    payload: memoryview

    def section(self, name: str) -> bytes:
        """The unpacked bytes of one section.

        Raises:
          BadEntryError: there is no such section, or it does not unpack to the length that the header promises.
        """
        for section in self.header.sections:
            if section.name == name:
                packed = self.payload[section.offset : section.offset + section.length]
                return decompress(section.codec, packed, section.raw_length)
        raise BadEntryError(f"no section {name!r}")


def content_of(entry: bytes) -> str:
    """What one content of an entry is known by, in hexadecimal digits: the digest that it ends with, NOT verified."""
    return entry[-_DIGEST_BYTES:].hex()


def seal(header: Header, sections: Mapping[str, bytes], *, codec: str = "zstd", level: int = 3) -> bytes:
    """The bytes of an entry that holds `sections`, each packed by `codec` at `level`."""
    packed = {name: compress(codec, raw, level) for name, raw in sections.items()}
    described, offset = [], 0
    for name, raw in sections.items():
        digest = hashlib.sha256(packed[name]).hexdigest()
        described.append(Section(name, codec, offset, len(packed[name]), len(raw), digest))
        offset += len(packed[name])
    fields = {**header.as_dict(), "sections": [section._asdict() for section in described]}
    head = _canonical(fields)
    body = b"".join((_PREFIX.pack(MAGIC, ENVELOPE_VERSION, len(head)), head, *packed.values()))
    return body + hashlib.sha256(body).digest()


def _canonical(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def open_entry(data: bytes, key: str) -> Entry:
    """Check `data` as the entry of `key`: magic, version, digest, key, layout, in this order.

    Raises:
      BadEntryError: with the reason, on the first check that fails. Nothing was unpacked by then.
    """
    head_length = _head_length(data)
    if hashlib.sha256(memoryview(data)[:-_DIGEST_BYTES]).digest() != data[-_DIGEST_BYTES:]:
        raise BadEntryError("digest does not match: truncated or damaged")
    start = _PREFIX.size + head_length
    if start > len(data) - _DIGEST_BYTES:
        raise BadEntryError("the header is longer than the file")
    header = _header(data[_PREFIX.size : start])
    if header.key != key:
        raise BadEntryError(f"it is the entry of another key, {header.key[:12]}")
    payload = memoryview(data)[start:-_DIGEST_BYTES]
    _check_layout(header.sections, len(payload))
    return Entry(header, payload)


def read_header(start: bytes) -> Header | None:
    """The header alone, from the first bytes of a file, NOT verified: for lists, never for loading.

    Returns `None` when `start` is too short to hold the header; `header_bytes` says how many are needed.

    Raises:
      BadEntryError: the bytes are not the start of an entry.
    """
    length = _head_length(start, whole=False)
    if len(start) < _PREFIX.size + length:
        return None
    return _header(start[_PREFIX.size : _PREFIX.size + length])


def header_bytes(start: bytes = b"") -> int:
    """How many bytes to read to have the whole header: a guess without `start`, exact with its first bytes."""
    if len(start) < _PREFIX.size:
        return _HEADER_READ
    return _PREFIX.size + _head_length(start, whole=False)


def _head_length(data: bytes, *, whole: bool = True) -> int:
    if not data:
        raise BadEntryError("empty file")
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise BadEntryError("not an entry of rewarm")
    if len(data) < (_SMALLEST if whole else _PREFIX.size):
        raise BadEntryError("digest does not match: truncated or damaged")
    _, version, length = _PREFIX.unpack_from(data)
    if version != ENVELOPE_VERSION:
        raise BadEntryError(f"envelope version {version}, this rewarm reads {ENVELOPE_VERSION}")
    return int(length)


def _header(head: bytes) -> Header:
    try:
        fields = json.loads(head)
        sections = tuple([_section(row) for row in _list(fields["sections"])])
        return Header(
            kind=one_line(_text(fields["kind"])),
            key=_text(fields["key"]),
            components=tuple([_mapping(row) for row in _list(fields["components"])]),
            program=one_line(_text(fields["program"])),
            compile_seconds=_number(fields["compile_seconds"]),
            load_seconds=None if fields["load_seconds"] is None else _number(fields["load_seconds"]),
            created=_number(fields["created"]),
            producer={one_line(_text(name)): one_line(_text(value)) for name, value in fields["producer"].items()},
            target=one_line(_text(fields["target"])),
            sections=sections,
            tuning=None if fields.get("tuning") is None else _mapping(fields["tuning"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise BadEntryError(f"the header cannot be read: {type(error).__name__}: {error}") from error


def _section(fields: Mapping[str, Any]) -> Section:
    return Section(
        name=_text(fields["name"]),
        codec=_text(fields["codec"]),
        offset=_length(fields["offset"]),
        length=_length(fields["length"]),
        raw_length=_length(fields["raw_length"]),
        sha256=_text(fields["sha256"]),
    )


def _length(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"a length expected, found {value!r:.40}")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a list expected, found {type(value).__name__}")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"a mapping expected, found {type(value).__name__}")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"a finite number expected, found {type(value).__name__}")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, found {type(value).__name__}")
    return value


def _check_layout(sections: tuple[Section, ...], payload_length: int) -> None:
    end = 0
    for section in sections:
        if section.offset != end:
            raise BadEntryError(f"section {section.name!r} does not start where the one before it ends")
        end += section.length
    if end != payload_length:
        raise BadEntryError(f"the payload has {payload_length} bytes, its sections {end}")
