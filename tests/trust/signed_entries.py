"""Entries and keys for the tests of trust."""

from __future__ import annotations

import hashlib
import struct

from rewarm.envelope import Header, seal
from rewarm.trust import Algorithm, Keyring, Posture, RefusedEntryError, SigningKey, TrustedKey, unsigned_entry

KEY = hashlib.sha256(b"a key").hexdigest()
OTHER_KEY = hashlib.sha256(b"another key").hexdigest()
SPACE = "main"
FRAME = struct.Struct("<4sBB16sH")


def entry_of(key: str = KEY, content: bytes = b"code " * 20, codec: str = "raw") -> bytes:
    """A sound entry of `key`."""
    header = Header(
        kind="executable",
        key=key,
        components=({"name": "format", "digest": hashlib.sha256(b"1").hexdigest(), "value": 1},),
        program="jit_step",
        compile_seconds=1.5,
        created=1.7e9,
        producer={"jax": "0.10.2"},
        target="cpu x1",
    )
    return seal(header, {"executable": content}, codec=codec)


def fixed_key(algorithm: Algorithm, number: int = 0) -> SigningKey:
    """A key that is the same in every run."""
    return SigningKey(algorithm, hashlib.sha256(f"{algorithm.name} {number}".encode()).digest())


def trusting(*keys: SigningKey | TrustedKey, revoked: tuple[str, ...] = ()) -> Keyring:
    """A keyring of somebody who signs with none of these."""
    return Keyring(None, [key.public if isinstance(key, SigningKey) else key for key in keys], revoked)


def refusal(
    blob: bytes, keyring: Keyring, posture: Posture = Posture.REQUIRE, key: str = KEY, space: str = SPACE
) -> str | None:
    """Why a blob is refused, or `None` when it is accepted."""
    try:
        unsigned_entry(blob, key, space, keyring, posture)
    except RefusedEntryError as error:
        return error.reason
    return None
