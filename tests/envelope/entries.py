"""Entries for tests: good ones, and ones whose header lies although the digest holds."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

from rewarm.envelope import Header, seal
from rewarm.envelope.format import ENVELOPE_VERSION, MAGIC

KEY = hashlib.sha256(b"a key").hexdigest()
PREFIX_BYTES = 9
DIGEST_BYTES = 32
SECTIONS = {"executable": b"code " * 20, "program": b"stablehlo"}
HEADER = Header(
    kind="executable",
    key=KEY,
    components=({"name": "format", "digest": hashlib.sha256(b"1").hexdigest(), "value": 1},),
    program="jit_step",
    compile_seconds=1.5,
    created=1.7e9,
    producer={"jax": "0.10.2"},
    target="cpu x1",
)


def small_entry(codec: str = "zstd") -> bytes:
    """A good entry of a few hundred bytes."""
    return seal(HEADER, SECTIONS, codec=codec)


def with_digest(body: bytes) -> bytes:
    """`body` and its right digest."""
    return body + hashlib.sha256(body).digest()


def entry_of(head: bytes, payload: bytes, *, magic: bytes = MAGIC, version: int = ENVELOPE_VERSION) -> bytes:
    """An entry with any header at all; its digest holds."""
    return with_digest(struct.pack("<4sBI", magic, version, len(head)) + head + payload)


def head_and_payload(entry: bytes) -> tuple[dict[str, Any], bytes]:
    """The header's JSON and the payload of a good entry."""
    (length,) = struct.unpack_from("<I", entry, 5)
    end = PREFIX_BYTES + length
    return json.loads(entry[PREFIX_BYTES:end]), entry[end:-DIGEST_BYTES]


def with_fields(changes: Mapping[str, Any], *, codec: str = "raw") -> bytes:
    """A small entry whose header has these values; its digest holds."""
    fields, payload = head_and_payload(small_entry(codec))
    return entry_of(json.dumps({**fields, **changes}).encode(), payload)


def with_section(changes: Mapping[str, Any], *, which: int = 0, codec: str = "raw") -> bytes:
    """A small entry one of whose sections is described otherwise; its digest holds."""
    fields, payload = head_and_payload(small_entry(codec))
    fields["sections"][which] = {**fields["sections"][which], **changes}
    return entry_of(json.dumps(fields).encode(), payload)
