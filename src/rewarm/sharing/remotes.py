"""The remotes of one session, in the order in which the user named them.

Not promised: that any of them answers. No verb waits for longer than the deadlines of the remotes that are not known to
be dead, and none raises, but for a remote of which the user wants to know each failure (`errors=fail`, and strict).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from rewarm.coordination import Lead
from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError, StoreError
from rewarm.sharing.ahead import Ahead
from rewarm.sharing.fleet import Fleet
from rewarm.sharing.tier import LARGEST, RemoteTier, Traffic
from rewarm.sharing.uploads import Uploads
from rewarm.store import LocalStore
from rewarm.trust import Posture

logger = logging.getLogger("rewarm")

# Who wants an entry that is under way waits for it this long, in seconds; each remote has its own, shorter deadline.
_PATIENCE = 30.0

# Of one entry that is fetched ahead, in bytes: each thread may have one in memory. The program fetches larger ones.
_AHEAD_LARGEST = 64 << 20

# All that is fetched ahead in one process, in bytes, or half of what the store may hold where that is less: a plan that
# somebody else wrote is not to push out what is here.
_AHEAD_BYTES = 4 << 30


class Fetched(NamedTuple):
    """An entry that came from a remote.

    Attributes:
      data: the entry, checked and trusted.
      tier: which remote.
      kept: whether it lies in the local store already.
    """

    data: bytes
    tier: str
    kept: bool = False


class Remotes:
    """What the cache asks when the local store has nothing (`cache.Remotes`). Safe for any number of threads.

    Args:
      tiers: the remotes, the nearest first.
      uploads: how entries get there.
      store: the local store, or `None` where nothing can be written to it: then nothing is fetched ahead.
    """

    def __init__(self, tiers: Sequence[RemoteTier], uploads: Uploads, store: LocalStore | None) -> None:
        self.tiers = tuple(tiers)
        self.uploads = uploads
        self._store = store
        self._came_from: dict[str, str] = {}
        self._room = _AHEAD_BYTES
        if store is not None and store.bounds.max_size is not None:
            self._room = min(_AHEAD_BYTES, store.bounds.max_size // 2)
        self._ahead = Ahead(self._keep)
        self._fleet = Fleet(self.tiers, None if store is None else store.root)

    def fetch(self, key: str) -> Fetched | None:
        """The entry from the first remote that has one to be trusted; those before it are sent it.

        Raises:
          RemoteError: a remote that `fails` gave no answer.
        """
        if self._ahead.settle(key, _PATIENCE) and (kept := self._kept(key)) is not None:
            return kept
        return self._fetch(key)

    def fetch_ahead(self, keys: Iterable[str]) -> None:
        """The program is likely to want these entries, in this order."""
        if self._store is not None:
            self._ahead.start(keys)

    def announce(self, key: str) -> None:
        """An entry is about to be stored here, and will be published: a process that is killed in between owes it."""
        self.uploads.announce(key)

    def publish(self, key: str, entry: bytes, *, stored: bool) -> None:
        """An entry was made here: it goes to every remote that is written to, in the background.

        `stored`: it lies in the local store, so nobody needs to hold its bytes.

        Raises:
          RemoteError: it did not arrive in a remote that `fails`; of such a one the program waits for the answer.
        """
        kept = self._fleet.keep(key)
        self.uploads.add(key, None if stored else entry, [tier for tier in self.tiers if not tier.fails])
        try:
            for tier in self.tiers:
                if tier.fails and tier.writes:
                    tier.put(key, entry)
        finally:
            if kept is not None:
                self.uploads.when_settled(key, *kept)

    def lead(self, key: str, size: int) -> AbstractContextManager[Lead]:
        """Leave to compile a program of so many bytes that no remote has, or the news that another host did."""
        return self._fleet.lead(key, size, lambda tier: self._came(key, tier))

    def find_out(self) -> None:
        """See what the remotes really do, where that is not known; takes some round trips."""
        self._fleet.find_out()

    def traffic(self) -> tuple[Traffic, ...]:
        """What came from each remote and went there."""
        return tuple(tier.traffic() for tier in self.tiers)

    def close(self) -> None:
        """Begin with nothing new."""
        self._ahead.stop()

    def leave(self) -> None:
        """The process ends, and what could be sent is: others need not wait for it any more."""
        self._fleet.close()

    # -- inside ------------------------------------------------------------------------------------------------

    def _fetch(self, key: str, limit: int = LARGEST) -> Fetched | None:
        for number, tier in enumerate(self.tiers):
            data = tier.get(key, limit=limit)
            if data is not None:
                nearer = [one for one in self.tiers[:number] if _asks_no_more(one.posture, tier.posture)]
                if nearer:  # with its bytes: it is not in the local store yet, and may never be
                    self.uploads.add(key, data, nearer)
                return Fetched(data, tier.place)
        return None

    def _keep(self, key: str) -> bool:
        """Have an entry in the local store, if any remote has it; in a thread of `Ahead`."""
        assert self._store is not None
        if self._store.path(key).exists():
            return True
        try:
            fetched = self._fetch(key, _AHEAD_LARGEST)
            if fetched is None or not self._has_room(len(fetched.data)):
                return False
            self._store.put(key, fetched.data, seconds=open_entry(fetched.data, key).header.compile_seconds)
            self._came_from[key] = fetched.tier
        except Exception:
            logger.debug("rewarm: entry %s cannot be fetched ahead", key[:12], exc_info=True)
        return key in self._came_from

    def _came(self, key: str, tier: RemoteTier) -> bool:
        """Have an entry in the local store that another host may have made meanwhile."""
        if self._store is None:
            return False
        data = tier.get(key, again=True)
        if data is not None:
            self._store.put(key, data, seconds=open_entry(data, key).header.compile_seconds)
        return data is not None

    def _has_room(self, size: int) -> bool:
        """Take so many bytes of what may be fetched ahead; where too few are left nothing more is."""
        self._room -= size  # threads that do so at once may pass the bound by what each has in hand
        if self._room < 0:
            self._ahead.stop()
        return self._room >= 0

    def _kept(self, key: str) -> Fetched | None:
        assert self._store is not None
        with contextlib.suppress(StoreError, BadEntryError):
            data = self._store.get(key)
            if data is not None:
                return Fetched(data, self._came_from.get(key, self._store.tier), kept=True)
        return None


def _asks_no_more(nearer: Posture, source: Posture) -> bool:
    """Whether what was accepted from one remote would be from the other: else our signature would make it so."""
    return nearer.takes_unsigned >= source.takes_unsigned and nearer.takes_strangers >= source.takes_strangers
