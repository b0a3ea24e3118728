"""Ed25519 (RFC 8032) by the library `cryptography`, which is imported at the first signature.

Not promised: that a signature has one form only; nothing here uses a signature's bytes as a name. OpenSSL, below
`cryptography`, refuses an S that is not reduced and an R that is not canonical, but takes public keys of small order,
for which one signature holds for every message; those are refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewarm.at_end import unbroken
from rewarm.trust.errors import UnusableKeyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_BYTES = 32
SIGNATURE_BYTES = 64

_PRIME = 2**255 - 19
# The y of points of order 8 solves d*y^4 + 2*y^2 - 1 = 0 (the double of such a point has y = 0).
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset({1, _PRIME - 1, 0, _ORDER_8, _PRIME - _ORDER_8})


def is_weak(public: bytes) -> bool:
    """Whether a public key is of small order, or is not in its one canonical form."""
    y = int.from_bytes(public, "little") & ((1 << 255) - 1)
    return y >= _PRIME or y in _SMALL_ORDER


def private_key(seed: bytes) -> Ed25519PrivateKey:
    """The library's key of a seed of 32 bytes.

    Raises:
      UnusableKeyError: there is no library, or it does not do Ed25519.
    """
    try:
        with unbroken():
            key: Ed25519PrivateKey = _library().Ed25519PrivateKey.from_private_bytes(seed)
    except Exception as error:  # noqa: BLE001 - a broken library fails in many ways, and each is raised again as one
        raise _unusable(error) from None
    return key


def public_key(public: bytes) -> Ed25519PublicKey:
    """The library's key of 32 public bytes.

    Raises:
      UnusableKeyError: there is no library, or it does not do Ed25519.
    """
    try:
        with unbroken():
            key: Ed25519PublicKey = _library().Ed25519PublicKey.from_public_bytes(public)
    except Exception as error:  # noqa: BLE001 - a broken library fails in many ways, and each is raised again as one
        raise _unusable(error) from None
    return key


def verifies(key: Ed25519PublicKey, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is this key's for `message`."""
    with unbroken():
        from cryptography.exceptions import InvalidSignature

        try:
            key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


def signature_of(key: Ed25519PrivateKey, message: bytes) -> bytes:
    """This key's signature of `message`, 64 bytes."""
    with unbroken():
        return key.sign(message)


def _library() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return ed25519


def _unusable(error: Exception) -> UnusableKeyError:
    # A damaged installation fails in many ways, and an OpenSSL under FIPS rules has no Ed25519.
    missing = isinstance(error, ImportError)
    return UnusableKeyError(
        "an Ed25519 key",
        "the library cryptography",
        "none" if missing else f"one that does not do Ed25519 ({type(error).__name__})",
        'pip install "rewarm[remote]", or use HMAC keys, which need no library (rewarm keys new --hmac)',
    )
