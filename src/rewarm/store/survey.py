"""One directory looked over: which entries it has, and what each is worth.

Not promised: a snapshot. What is written or removed meanwhile may or may not show.
"""

from __future__ import annotations

import math
import time
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from rewarm import policy
from rewarm.errors import BadEntryError
from rewarm.policy import Usage
from rewarm.store import usage
from rewarm.store.contract import EntryInfo
from rewarm.store.files import header_of
from rewarm.store.shards import SHARDS, list_shard
from rewarm.store.totals import Row
from rewarm.store.usage import Known


class Survey(NamedTuple):
    """What one look over a directory found.

    Attributes:
      entries: the entries by key.
      temporaries: names of files that are being written, or were, with their mtimes.
      known: what the journal says of them, by key; those it says nothing of are not there.
      journal: the bytes of the journal.
    """

    entries: dict[str, EntryInfo]
    temporaries: list[tuple[str, float]]
    known: dict[str, Known]
    journal: int

    def without(self, keys: Container[str]) -> Survey:
        """The same without some of the entries."""
        return self._replace(entries={key: info for key, info in self.entries.items() if key not in keys})

    def usage(self, info: EntryInfo) -> Usage:
        """What is known of one entry, and the priority that it has by that."""
        known = self.known.get(info.key, usage.UNKNOWN)
        # A clock that jumped left files of the future; they must not stay for ever.
        worth = policy.priority(min(info.used, time.time()), known.seconds, known.uses, info.size)
        return Usage(info.key, info.size, known.seconds, known.uses, worth)

    def usages(self) -> list[Usage]:
        """What is known of every entry."""
        return [self.usage(info) for info in self.entries.values()]

    def row(self, sequence: int = 0, lowest: float | None = None) -> Row:
        """The row of the table of totals that says this; who knows the lowest priority spares us the look."""
        infos = self.entries.values()
        if lowest is None:
            lowest = min((self.usage(info).priority for info in infos), default=math.inf)
        oldest = min((info.used for info in infos), default=math.inf)
        return Row(sum(info.size for info in infos), len(infos), 0, lowest, oldest, sequence)

    def is_crowded(self) -> bool:
        """Whether the journal is to be replaced by its sum."""
        return usage.is_crowded(self.journal, len(self.entries))

    def summary(self) -> dict[str, Known]:
        """What the journal says of the entries that are there, and no more."""
        return {key: known for key, known in self.known.items() if key in self.entries}


def look(root: str, index: int) -> Survey:
    """Look one directory over.

    Raises:
      OSError: it cannot be listed.
    """
    listing = list_shard(root, index)
    entries = {info.key: info for info in listing.entries}
    known, journal = usage.load(f"{root}/{SHARDS[index]}", entries)
    return Survey(entries, listing.temporaries, known, journal)


def learn(root: str, seen: Survey, deadline: float = math.inf) -> tuple[Survey, bool]:
    """Read the seconds of entries whose journal does not have them from their headers, until `deadline` (monotonic).

    An entry that no journal has heard of was used once. Returns what is known then, and whether that is more than
    before.
    """
    known = dict(seen.known)
    for key in seen.entries:
        one = known.get(key)
        if one is not None and one.seconds > 0:
            continue
        if time.monotonic() > deadline:
            break
        spared = _seconds(Path(root, key[:2], key))
        known[key] = Known(spared, 1) if one is None else one._replace(seconds=spared)
    return seen._replace(known=known), known != seen.known


def _seconds(path: Path) -> float:
    """What a hit spares by the entry's own, unverified word: good enough for ranking."""
    try:
        header = header_of(path)
    except (BadEntryError, OSError):
        header = None
    return policy.LEAST_SECONDS if header is None else max(header.compile_seconds, policy.LEAST_SECONDS)
