"""The store contract: four verbs.

Not promised: that what was put is there at the next get (it may have been evicted, quarantined or cleared), or that
a get sees the latest put of another process at once. There is no `exists`: a check before a read is a race.

Entries are immutable and all writers of one key are equally good, so the last one wins and no verb needs a lock. A
store moves bytes; whether they are the entry that was asked for is the envelope's to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

_KEY = re.compile(r"[0-9a-f]{64}")


def is_key(name: str) -> bool:
    """Whether `name` is 64 lower-case hexadecimal digits."""
    return _KEY.fullmatch(name) is not None


def check_key(key: str) -> str:
    """`key` itself, when it is 64 lower-case hexadecimal digits.

    Raises:
      ValueError: it is not. A key becomes a file's name, so nothing else may pass.
    """
    if not is_key(key):
        raise ValueError(f"a key has 64 lower-case hexadecimal digits, found {key!r}")
    return key


class EntryInfo(NamedTuple):
    """One entry as a scan sees it.

    Attributes:
      key: 64 hexadecimal digits.
      size: bytes.
      used: when it was written or last read, in seconds since the epoch; a read may be remembered up to ten minutes
        late.
    """

    key: str
    size: int
    used: float


class Store(Protocol):
    """What every store and every wrapper of one offers."""

    @property
    def tier(self) -> str:
        """A word for events and logs, such as "local"."""

    def get(self, key: str, *, use: bool = True) -> bytes | None:
        """The bytes last put under `key`, or `None`.

        A `use` counts for what the entry is worth; whoever only looks says no.

        Raises:
          StoreError: the store could not answer.
          BadEntryError: something lies there that cannot be an entry, such as a directory.
        """

    def put(self, key: str, data: bytes, *, seconds: float = 0.0) -> None:
        """Make `data` what `get(key)` returns, whole or not at all.

        `seconds` are those that a hit spares: a hint for a store that must choose what to keep.

        Raises:
          StoreError: it was not stored; what was there before is still there.
        """

    def delete(self, key: str) -> None:
        """Remove the entry; removing one that is not there is no error.

        Raises:
          StoreError: it is still there.
        """

    def scan(self) -> Iterator[EntryInfo]:
        """The entries, in no order; those put or removed meanwhile may or may not show.

        Raises:
          StoreError: the store could not answer.
        """

    def quarantine(self, key: str, reason: str, seen: bytes | None) -> None:
        """Take what lies under `key` out of the way, so that the next put and get are clean.

        Only `seen`, the bytes that were found bad, is moved: an entry that somebody wrote since stays. `None` stands
        for what `get` refused to read. Never raises.
        """
