"""The signed form of an entry, as it lies in a remote.

Not promised: that an entry is new. Whoever holds an old entry that a trusted key signed for the same key and namespace
can put it back; all entries of a key are equally good, until their key is revoked.

    blob      := "RWSG" version:u8 algorithm:u8 signer:16B length:u16le signature entry
    signature := by algorithm 1 Ed25519 (64 bytes) or 2 HMAC-SHA256 (32 bytes), over

    each of domain, algorithm:u8, signer:16B, namespace (UTF-8), key (64 hexadecimal digits), the 32-byte digest that
    ends the entry, the entry's length in bytes:u64le; each after its own length:u64le

The digest covers header and payload. Namespace and key are signed, so a blob is of no use in another's place. An
unsigned entry lies in a remote as it is, beginning with "RWRM".

Bump `FRAME_VERSION`, and with it the domain, when what is signed or where it lies changes.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from rewarm.envelope import Header, content_of, open_entry
from rewarm.errors import BadEntryError
from rewarm.trust import errors
from rewarm.trust.errors import RefusedEntryError, UnusableKeyError
from rewarm.trust.keyring import Keyring
from rewarm.trust.keys import ID_BYTES, Algorithm, SigningKey, framed
from rewarm.trust.posture import Posture

MAGIC = b"RWSG"
FRAME_VERSION = 1
_DOMAIN = b"rewarm signed entry v1"
_PREFIX = struct.Struct(f"<4sBB{ID_BYTES}sH")
_DIGEST_BYTES = 32
_KEY = re.compile("[0-9a-f]{64}")
_ALGORITHMS = {int(algorithm): algorithm for algorithm in Algorithm}


class _Frame(NamedTuple):
    """A frame as it was read; nothing of it is proved."""

    algorithm: Algorithm
    signer: str
    signature: bytes
    entry: bytes


def signed(entry: bytes, key: str, namespace: str, signer: SigningKey) -> bytes:
    """`entry` in its signed form, for this place alone.

    Raises:
      BadEntryError: it is not a sound entry of `key`; nothing else is ever signed.
      UnusableKeyError: the signer cannot sign here (no library for Ed25519).
    """
    open_entry(entry, key)
    name = signer.id
    signature = signer.sign(_message(signer.algorithm, name, namespace, key, entry))
    start = _PREFIX.pack(MAGIC, FRAME_VERSION, signer.algorithm, bytes.fromhex(name), len(signature))
    return b"".join((start, signature, entry))


class Trusted(NamedTuple):
    """An entry that may be used.

    Attributes:
      data: its bytes.
      header: what it says of itself.
    """

    data: bytes
    header: Header


def unsigned_entry(blob: bytes, key: str, namespace: str, keyring: Keyring, posture: Posture) -> bytes:
    """As `trusted`, the bytes alone."""
    return trusted(blob, key, namespace, keyring, posture).data


def trusted(blob: bytes, key: str, namespace: str, keyring: Keyring, posture: Posture) -> Trusted:
    """The entry in `blob`: allowed by `posture`, and a sound entry of `key` by every check of the envelope.

    The signature is checked before the entry's header is read, and nothing is unpacked.

    Args:
      blob: what lay in the remote, signed or not.
      key: 64 hexadecimal digits, what was asked for.
      namespace: what was asked for.
      keyring: whose signatures count.
      posture: what passes.

    Raises:
      RefusedEntryError: it is not to be used, with the reason.
    """
    signer = None
    if blob[: len(MAGIC)] == MAGIC:
        frame = _read(blob)
        signer = frame.signer
        _check_signature(frame, key, namespace, keyring, posture)
        entry = frame.entry
    elif posture.takes_unsigned:
        entry = blob
    else:
        raise RefusedEntryError(errors.UNSIGNED)
    try:
        return Trusted(entry, open_entry(entry, key).header)
    except BadEntryError as error:
        raise RefusedEntryError(errors.UNSOUND, signer, error.reason) from error


def _read(blob: bytes) -> _Frame:
    if len(blob) > len(MAGIC) and blob[len(MAGIC)] != FRAME_VERSION:
        found = f"version {blob[len(MAGIC)]}, this rewarm reads {FRAME_VERSION}"
        raise RefusedEntryError(errors.NEWER, detail=found)
    if len(blob) < _PREFIX.size:
        raise RefusedEntryError(errors.MALFORMED, detail="it ends early")
    _, _, number, signer, length = _PREFIX.unpack_from(blob)
    algorithm = _ALGORITHMS.get(number)
    if algorithm is None:
        raise RefusedEntryError(errors.MALFORMED, signer.hex(), f"algorithm {number} is not known")
    if length != algorithm.signature_bytes:
        raise RefusedEntryError(errors.MALFORMED, signer.hex(), f"a signature of {length} bytes")
    start = _PREFIX.size + length
    if len(blob) < start + _DIGEST_BYTES:
        raise RefusedEntryError(errors.MALFORMED, signer.hex(), "it ends early")
    return _Frame(algorithm, signer.hex(), blob[_PREFIX.size : start], blob[start:])


def _check_signature(frame: _Frame, key: str, namespace: str, keyring: Keyring, posture: Posture) -> None:
    if keyring.is_revoked(frame.signer):
        raise RefusedEntryError(errors.REVOKED, frame.signer)
    try:
        trusted = keyring.find(frame.signer)
        if trusted is None:
            if posture.takes_strangers:
                return
            raise RefusedEntryError(errors.STRANGER, frame.signer)
        # The key says by which algorithm it is to be checked, never the frame.
        if trusted.algorithm is not frame.algorithm:
            raise RefusedEntryError(errors.OTHER_ALGORITHM, frame.signer)
        message = _message(trusted.algorithm, trusted.id, namespace, key, frame.entry)
        if not trusted.verify(message, frame.signature):
            raise RefusedEntryError(errors.WRONG, frame.signer, "damaged, forged, or signed for another place")
    except UnusableKeyError as error:
        raise RefusedEntryError(errors.UNCHECKABLE, frame.signer, str(error)) from error


def _message(algorithm: Algorithm, signer: str, namespace: str, key: str, entry: bytes) -> bytes:
    if not _KEY.fullmatch(key):
        raise ValueError(f"not a key: {key!r:.80}")
    return framed(
        _DOMAIN,
        bytes([algorithm]),
        bytes.fromhex(signer),
        namespace.encode("utf-8", "surrogatepass"),
        key.encode("ascii"),
        bytes.fromhex(content_of(entry)),
        struct.pack("<Q", len(entry)),
    )
