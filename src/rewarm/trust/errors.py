"""What is wrong with an entry that others made, and with a key.

Not promised: that a reason tells an attack from an accident; bytes cannot say which it was.
"""

from __future__ import annotations

from rewarm.errors import RewarmError

# Every reason there is, so that counts by reason stay few.
UNSIGNED = "not signed"
STRANGER = "signed by an unknown key"
REVOKED = "signed by a revoked key"
WRONG = "the signature does not match"
OTHER_ALGORITHM = "signed by another algorithm than the key's"
MALFORMED = "the signed frame is malformed"
NEWER = "the signed frame is of another version"
UNSOUND = "the entry is damaged, or another's"
UNCHECKABLE = "the signature cannot be checked"


class RefusedEntryError(RewarmError, ValueError):
    """An entry from a remote is not to be used. Nothing of it was unpacked.

    Attributes:
      reason: one of the few texts above, for a log line and for a counter.
      signer: the id of the key that the entry names, 32 hexadecimal digits, unproved; `None` where it names none.
      detail: more words for people, without control characters, or "".
    """

    def __init__(self, reason: str, signer: str | None = None, detail: str = "") -> None:
        super().__init__(reason, signer, detail)
        self.reason = reason
        self.signer = signer
        self.detail = "".join(letter if letter.isprintable() else "?" for letter in detail)

    def __str__(self) -> str:
        named = f"{self.reason} (signer {self.signer})" if self.signer else self.reason
        return f"{named}: {self.detail}" if self.detail else named


class UnusableKeyError(RewarmError, ValueError):
    """A key, or what holds keys, cannot be used. The message never holds a part of a key.

    Attributes:
      where: a path, a setting, or a command.
      expected: what should be there.
      found: what is there.
      advice: what to do next.
    """

    def __init__(self, where: str, expected: str, found: str, advice: str) -> None:
        super().__init__(where, expected, found, advice)
        self.where = where
        self.expected = expected
        self.found = found
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}; {self.advice}"
