"""Keys that sign entries and keys that are trusted to: Ed25519, and HMAC-SHA256 with a shared secret.

Not promised: that a secret leaves no trace in memory. It is in no `repr`, error or log line of rewarm's.

One key is one line, with an optional comment after a space:

    rewarm-ed25519-secret:<base64 of the 32-byte seed of RFC 8032>     signs
    rewarm-ed25519:<base64 of the 32-byte public key>                  is trusted
    rewarm-hmac-secret:<base64 of 32 to 64 bytes>                      signs, and is trusted: whoever checks could sign

A key is named by its id: the first 16 bytes of a SHA-256 over its algorithm and what is public of it, so a signer's
name never fits a key of the other algorithm.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import secrets
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rewarm.trust import ed25519
from rewarm.trust.errors import UnusableKeyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ID_BYTES = 16
_HMAC_BYTES = hashlib.sha256().digest_size
_HMAC_SECRET = range(32, 65)  # more than a block of SHA-256 (64 bytes) would be hashed first
_LONGEST_COMMENT = 200

_ID_DOMAIN = b"rewarm key id v1"
_HMAC_DOMAIN = b"rewarm hmac secret v1"
_TAG_DOMAIN = b"rewarm key tag v1"

TAG_DIGITS = 16


class Algorithm(enum.IntEnum):
    """How entries are signed. The numbers are those of the signed frame."""

    ED25519 = 1
    HMAC = 2

    @property
    def signature_bytes(self) -> int:
        """The length of every signature."""
        return ed25519.SIGNATURE_BYTES if self is Algorithm.ED25519 else _HMAC_BYTES


_SIGNING = {"rewarm-ed25519-secret": Algorithm.ED25519, "rewarm-hmac-secret": Algorithm.HMAC}
_TRUSTED = {"rewarm-ed25519": Algorithm.ED25519, "rewarm-hmac-secret": Algorithm.HMAC}
_WORDS = {
    "rewarm-ed25519-secret": "the secret half of an Ed25519 key",
    "rewarm-ed25519": "the public half of an Ed25519 key",
    "rewarm-hmac-secret": "the secret of an HMAC key",
}


def framed(*fields: bytes) -> bytes:
    """The fields one after the other, each after its length (u64le), so that no two lists of fields look alike."""
    return b"".join([part for field in fields for part in (struct.pack("<Q", len(field)), field)])


class TrustedKey:
    """A key whose signatures count.

    Attributes:
      algorithm: of all its signatures.
      id: 32 hexadecimal digits.
      comment: a few words on whose it is, or "".
      where: where it was read, for people.
    """

    __slots__ = ("_checker", "_material", "algorithm", "comment", "id", "where")

    def __init__(self, algorithm: Algorithm, material: bytes, comment: str = "", where: str = "a key") -> None:
        self.algorithm = algorithm
        self.comment = comment
        self.where = where
        self.id = _id_of(algorithm, material)
        self._material = material
        self._checker: Ed25519PublicKey | None = None

    @classmethod
    def from_text(cls, text: str, where: str = "a trusted key") -> TrustedKey:
        """The key of one line.

        Raises:
          UnusableKeyError: the line holds none, or one that must not be trusted.
        """
        expected = "rewarm-ed25519:<base64> (or rewarm-hmac-secret:<base64>)"
        algorithm, material, comment = _parsed(text, _TRUSTED, where, expected)
        if algorithm is Algorithm.ED25519 and ed25519.is_weak(material):
            raise UnusableKeyError(
                where, expected, "a key for which anybody can sign (of small order, or not canonical)", "do not use it"
            )
        return cls(algorithm, material, comment, where)

    def to_text(self) -> str:
        """The line. That of an HMAC key is its secret (`holds_secret`)."""
        kind = "rewarm-ed25519" if self.algorithm is Algorithm.ED25519 else "rewarm-hmac-secret"
        return _line(kind, self._material, self.comment)

    @property
    def holds_secret(self) -> bool:
        """Whether who reads this key could sign with it."""
        return self.algorithm is Algorithm.HMAC

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether `signature` is this key's for `message`. Of another length it never is.

        Raises:
          UnusableKeyError: an Ed25519 key, without the library.
        """
        if len(signature) != self.algorithm.signature_bytes:
            return False
        if self.algorithm is Algorithm.HMAC:
            return hmac.compare_digest(hmac.digest(self._material, message, "sha256"), signature)
        if self._checker is None:
            self._checker = ed25519.public_key(self._material)
        return ed25519.verifies(self._checker, message, signature)

    def __repr__(self) -> str:
        return f"<TrustedKey {self.algorithm.name} {self.id}>"


class SigningKey:
    """A secret that signs.

    Attributes:
      algorithm: of all its signatures.
      comment: a few words on whose it is, or "".
      where: where it was read, for people.
    """

    __slots__ = ("_public", "_secret", "_signer", "algorithm", "comment", "where")

    def __init__(self, algorithm: Algorithm, secret: bytes, comment: str = "", where: str = "a key") -> None:
        self.algorithm = algorithm
        self.comment = comment
        self.where = where
        self._secret = secret
        self._public: TrustedKey | None = None
        self._signer: Ed25519PrivateKey | None = None

    @classmethod
    def generate(cls, algorithm: Algorithm = Algorithm.ED25519, comment: str = "") -> SigningKey:
        """A new key, from the system's random bytes.

        Raises:
          UnusableKeyError: the comment cannot be one.
        """
        return cls(algorithm, secrets.token_bytes(32), _checked_comment(comment, "a new key"))

    @classmethod
    def from_text(cls, text: str, where: str = "a signing key") -> SigningKey:
        """The key of one line.

        Raises:
          UnusableKeyError: the line holds none.
        """
        expected = "rewarm-ed25519-secret:<base64> or rewarm-hmac-secret:<base64>"
        return cls(*_parsed(text, _SIGNING, where, expected), where)

    def to_text(self) -> str:
        """The line: the secret itself."""
        kind = "rewarm-ed25519-secret" if self.algorithm is Algorithm.ED25519 else "rewarm-hmac-secret"
        return _line(kind, self._secret, self.comment)

    @property
    def public(self) -> TrustedKey:
        """What others need to check this key's signatures; of an HMAC key that is the secret.

        Raises:
          UnusableKeyError: an Ed25519 key, without the library.
        """
        if self._public is None:
            self._public = TrustedKey(self.algorithm, self._public_material(), self.comment, self.where)
        return self._public

    @property
    def id(self) -> str:
        """32 hexadecimal digits, those of `public`.

        Raises:
          UnusableKeyError: an Ed25519 key, without the library.
        """
        return self.public.id

    @property
    def tag(self) -> str:
        """16 hexadecimal digits that tell this key from another one here, without the library that `id` needs."""
        return tag_of(bytes([self.algorithm]), self._secret)

    def sign(self, message: bytes) -> bytes:
        """The signature of `message`.

        Raises:
          UnusableKeyError: an Ed25519 key, without the library.
        """
        if self.algorithm is Algorithm.HMAC:
            return hmac.digest(self._secret, message, "sha256")
        return ed25519.signature_of(self._ed25519(), message)

    def __repr__(self) -> str:
        return f"<SigningKey {self.algorithm.name}>"

    def _ed25519(self) -> Ed25519PrivateKey:
        if self._signer is None:
            self._signer = ed25519.private_key(self._secret)
        return self._signer

    def _public_material(self) -> bytes:
        if self.algorithm is Algorithm.HMAC:
            return self._secret
        return self._ed25519().public_key().public_bytes_raw()


def tag_of(*fields: bytes) -> str:
    """`TAG_DIGITS` hexadecimal digits, of which nothing can be read."""
    return hashlib.sha256(framed(_TAG_DOMAIN, *fields)).hexdigest()[:TAG_DIGITS]


def is_id(text: str) -> bool:
    """Whether `text` is the id of a key."""
    return len(text) == 2 * ID_BYTES and not set(text) - set("0123456789abcdef")


# -- inside --------------------------------------------------------------------------------------------------------


def _id_of(algorithm: Algorithm, material: bytes) -> str:
    if algorithm is Algorithm.HMAC:  # the id is in every frame: it must not help to guess the secret
        material = hashlib.sha256(framed(_HMAC_DOMAIN, material)).digest()
    return hashlib.sha256(framed(_ID_DOMAIN, bytes([algorithm]), material)).digest()[:ID_BYTES].hex()


def _line(kind: str, material: bytes, comment: str) -> str:
    text = f"{kind}:{base64.b64encode(material).decode('ascii')}"
    return f"{text} {comment}" if comment else text


def _parsed(text: str, good: Mapping[str, Algorithm], where: str, expected: str) -> tuple[Algorithm, bytes, str]:
    if len(text.strip().splitlines()) > 1:
        raise UnusableKeyError(where, f"one line, {expected}", "several lines", "give one of them")
    kind, _, rest = text.strip().partition(":")
    if kind not in good:
        found = _WORDS.get(kind, "something else")
        raise UnusableKeyError(
            where, expected, found, "make a key with `rewarm keys new`; `rewarm keys show` prints it"
        )
    encoded, _, comment = rest.strip().partition(" ")
    material = _decoded(encoded)
    lengths = range(32, 33) if good[kind] is Algorithm.ED25519 else _HMAC_SECRET
    if material is None or len(material) not in lengths:
        size = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
        found = "text that is not base64" if material is None else f"{len(material)} bytes"
        raise UnusableKeyError(where, f"{kind}: and {size} bytes in base64", found, "copy the whole line again")
    return good[kind], material, _checked_comment(comment, where)


def _decoded(encoded: str) -> bytes | None:
    try:
        material = base64.b64decode(encoded, validate=True)
    except ValueError:
        return None
    # Base64 has spare bits: of one key's spellings only the one counts.
    return material if base64.b64encode(material).decode("ascii") == encoded else None


def _checked_comment(comment: str, where: str) -> str:
    comment = comment.strip()
    if len(comment) > _LONGEST_COMMENT or not comment.isprintable():
        raise UnusableKeyError(
            where, f"a comment of one line, {_LONGEST_COMMENT} characters at most", "another one", "shorten it"
        )
    return comment
