"""Who may hand entries to whom: signatures, keys, and how much is asked of a remote. An entry is code.

Not promised: secrecy. Entries are signed, not encrypted.
"""

from rewarm.trust.errors import STRANGER, RefusedEntryError, UnusableKeyError
from rewarm.trust.frame import Trusted, signed, trusted, unsigned_entry
from rewarm.trust.keyring import Keyring, KeySources, default_folder, load, tag_of_signing
from rewarm.trust.keys import Algorithm, SigningKey, TrustedKey
from rewarm.trust.posture import POSTURES, Posture, as_posture

__all__ = [
    "POSTURES",
    "STRANGER",
    "Algorithm",
    "KeySources",
    "Keyring",
    "Posture",
    "RefusedEntryError",
    "SigningKey",
    "Trusted",
    "TrustedKey",
    "UnusableKeyError",
    "as_posture",
    "default_folder",
    "load",
    "signed",
    "tag_of_signing",
    "trusted",
    "unsigned_entry",
]
