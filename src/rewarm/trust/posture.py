"""How much is asked of the entries of a remote.

Not promised: that `VERIFY` withstands somebody who may write to the remote: taking a signature off makes an unsigned
entry, which passes. It finds damage and other people's keys; `REQUIRE` is what keeps strangers' code out.
"""

from __future__ import annotations

import enum
from typing import Any


class Posture(enum.Enum):
    """What passes. Under each of them an entry by a revoked key, or with a known key's wrong signature, never does."""

    REQUIRE = "require"
    """Only what a trusted key has signed."""
    VERIFY = "verify"
    """What a trusted key has signed, and what nobody has signed."""
    STORE = "store"
    """Whoever may write to the store is trusted: unsigned entries and those of unknown keys pass, too."""

    @property
    def takes_unsigned(self) -> bool:
        """Whether an entry without a signature passes."""
        return self is Posture.VERIFY or self is Posture.STORE

    @property
    def takes_strangers(self) -> bool:
        """Whether an entry that an unknown key has signed passes."""
        return self is Posture.STORE


POSTURES: tuple[str, ...] = tuple(posture.value for posture in Posture)


def as_posture(value: Any) -> Posture:
    """The posture of this name.

    Raises:
      ValueError: there is none; its words are the good names.
    """
    if isinstance(value, Posture):
        return value
    try:
        return Posture(str(value).strip().lower())
    except ValueError:
        raise ValueError(", ".join(POSTURES[:-1]) + f" or {POSTURES[-1]}") from None
