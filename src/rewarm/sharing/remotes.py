"""The remotes of one session, in the order in which the user named them.

Not promised: that any of them answers. No verb waits for longer than the deadlines of the remotes that are not known to
be dead, and none raises, but for a remote of which the user wants to know each failure (`errors=fail`, and strict).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from rewarm.coordination import Lead
from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError, StoreError
from rewarm.sharing import packs, plans
from rewarm.sharing.ahead import Ahead
from rewarm.sharing.early import Early
from rewarm.sharing.fleet import Fleet
from rewarm.sharing.made import Made
from rewarm.sharing.tier import LARGEST, CannotSignError, RemoteTier, Traffic
from rewarm.sharing.tuning import Fetching
from rewarm.sharing.uploads import Uploads
from rewarm.store import Copy, LocalStore
from rewarm.trust import Posture, Trusted, UnusableKeyError

logger = logging.getLogger("rewarm")

# Who wants an entry that is under way waits for it this long, in seconds; each remote has its own, shorter deadline.
_PATIENCE = 30.0

# Of one entry that is fetched ahead, in bytes: each thread may have one in memory. The program fetches larger ones.
_AHEAD_LARGEST = 64 << 20

# All that is fetched ahead in one process, in bytes, or half of what the store may hold where that is less: a plan that
# somebody else wrote is not to push out what is here.
_AHEAD_BYTES = 4 << 30

# Entries that came in a pack are checked and kept so many at once: the program may have to wait for them.
_UNPACKED_AT_ONCE = 16

# New packs are made of what is in none when it is at least this part of a plan.
_PART_OF_PLAN = 8


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
      early: what was asked of these remotes for this start; its sources are numbered as `tiers` are.
      made: which entries were made here, and are signed; by default only what this process publishes.
    """

    def __init__(
        self,
        tiers: Sequence[RemoteTier],
        uploads: Uploads,
        store: LocalStore | None,
        early: Early | None = None,
        made: Made | None = None,
    ) -> None:
        self.tiers = tuple(tiers)
        self.uploads = uploads
        self._store = store
        self._made = made if made is not None else Made(None if store is None else store.root)
        self._came_from: dict[str, str] = {}
        self._small: dict[str, _Small] = {}
        self._small_room = packs.MOST * packs.LARGEST
        self._room = _AHEAD_BYTES
        if store is not None and store.bounds.max_size is not None:
            self._room = min(_AHEAD_BYTES, store.bounds.max_size // 2)
        self._ahead = Ahead(self._keep)
        # What came in packs waits for nobody: one thread, since all that it does keeps the program from its own work.
        self._unpacking = Ahead(self._keep_packed, threads=1, at_once=_UNPACKED_AT_ONCE)
        self._early = early
        self._fleet = Fleet(self.tiers, None if store is None else store.root)
        if early is not None and store is not None:
            early.attach(self._hear)

    def fetch(self, key: str) -> Fetched | None:
        """The entry from the first remote that has one to be trusted; those before it are sent it.

        Raises:
          RemoteError: a remote that `fails` gave no answer.
        """
        if self._early is not None:
            self._early.wait(key)
        under_way = [ahead.settle(key, _PATIENCE) for ahead in (self._unpacking, self._ahead)]
        # It may also have come since the program looked.
        if (any(under_way) or key in self._came_from) and (kept := self._kept(key)) is not None:
            return kept
        unpacked = self._unpacked(key)
        if unpacked is not None:
            return Fetched(unpacked[1].data, unpacked[0], kept=self._put_copy(key, unpacked[1]))
        fetched = self._fetch(key)
        if fetched is not None:
            self._came_from[key] = fetched.tier
        return fetched

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
        self._made.add(entry)
        kept = self._fleet.keep(key)
        self.uploads.add(key, None if stored else entry, [tier for tier in self.tiers if not tier.fails])
        try:
            for tier in self.tiers:
                if tier.fails and tier.writes:
                    tier.put(key, entry)
        finally:
            if kept is not None:
                self.uploads.when_settled(key, *kept)

    def publish_results(self, place: str, key: str) -> None:
        """An entry with tuning results for this place lies in the local store: it goes to every remote that takes some,
        in the background, and others will find it. Never raises."""
        self.uploads.add_results(place, key)

    def fetch_results(self, place: str, have: Iterable[str], take: Callable[[dict[str, bytes]], None]) -> Fetching:
        """Begin to fetch the entries with results for this place that are not here; see `tuning.Fetching`."""

        def owe(tier: RemoteTier, keys: Iterable[str]) -> None:
            for key in keys:
                if self._was_made(key):
                    self.uploads.add_results(place, key, [tier])

        def pass_on(key: str, blob: bytes, namespace: str, number: int) -> None:
            nearer = [one for one in self.tiers[:number] if _may_have(one, namespace, self.tiers[number])]
            self.uploads.pass_on_results(place, key, blob, nearer)

        return Fetching(self.tiers, place, have, take, owe, pass_on)

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
        self._unpacking.stop()

    def leave(self) -> None:
        """The process ends, and what could be sent is: others need not wait for it any more."""
        self._fleet.close()

    # -- inside ------------------------------------------------------------------------------------------------

    def _fetch(self, key: str, limit: int = LARGEST) -> Fetched | None:
        for number, tier in enumerate(self.tiers):
            came = tier.fetch(key, limit=limit)
            if came is not None:
                self._arrived(key, came.blob, came.namespace, number)
                return Fetched(came.entry, tier.place)
        return None

    def _arrived(self, key: str, blob: bytes, namespace: str, number: int) -> None:
        """An entry came from the remote of this number, and was accepted: those before it are sent it, as it is."""
        tier = self.tiers[number]
        self._note_small(key, blob, namespace, tier)
        nearer = [one for one in self.tiers[:number] if _may_have(one, namespace, tier)]
        if nearer:
            self.uploads.pass_on(key, blob, nearer)

    def _note_small(self, key: str, blob: bytes, namespace: str, tier: RemoteTier) -> None:
        """Remember how a small entry lay in a remote: so it may go into a pack, with the signature of its maker."""
        if len(blob) <= packs.LARGEST_ENTRY and self._small_room >= len(blob) and any(one.writes for one in self.tiers):
            self._small_room -= len(blob)
            self._small[key] = _Small(blob, namespace, tier)

    def _was_made(self, key: str) -> bool:
        """Whether what lies in the local store under this key was made here."""
        with contextlib.suppress(StoreError, BadEntryError):
            entry = self._store.get(key, use=False) if self._store is not None else None
            return entry is not None and self._made.has(entry)
        return False

    def _keep(self, keys: Sequence[str]) -> None:
        """Have an entry in the local store, if any remote has it; in a thread of `Ahead`."""
        assert self._store is not None
        [key] = keys
        if self._store.path(key).exists():
            return
        try:
            fetched = self._fetch(key, _AHEAD_LARGEST)
            if fetched is None or not self._has_room(len(fetched.data)):
                return
            seconds = open_entry(fetched.data, key).header.compile_seconds
            self._store.put_copies({key: Copy(fetched.data, seconds)})
            self._came_from[key] = fetched.tier
        except Exception:
            logger.debug("rewarm: entry %s cannot be fetched ahead", key[:12], exc_info=True)

    def _put_copy(self, key: str, entry: Trusted) -> bool:
        """Keep an entry that the program has in hand; returns whether it is."""
        with contextlib.suppress(StoreError):
            if self._store is not None:
                self._store.put_copies({key: Copy(entry.data, entry.header.compile_seconds)})
                return True
        return False

    def written(self, packed: Mapping[str, Mapping[str, str]]) -> list[list[RemoteTier]]:
        """The remotes that are written to; those together that may have the same new packs, by what is known of the
        packs that each has (`Plan.at`)."""
        groups: dict[tuple[Posture, frozenset[tuple[str, str]]], list[RemoteTier]] = {}
        for tier in self.tiers:
            if tier.writes:
                about = tier.posture, frozenset(packed.get(place_of(tier), {}).items())
                groups.setdefault(about, []).append(tier)
        return list(groups.values())

    def new_packs(
        self,
        keys: Sequence[str],
        compiled: Container[str],
        planned: int,
        *,
        head: bool,
        tiers: Sequence[RemoteTier] | None = None,
    ) -> Iterator[tuple[list[str], bytes]]:
        """New packs of those of these entries that are small, each with the keys in it; none if they are too few.

        What this process compiled is signed once more for it. What came from a remote goes in as it came, if it lay in
        the namespace that is written to, in a remote that asks for no less than those which are to have the packs.

        Args:
          keys: of entries that are in no pack.
          compiled: which of them this process compiled.
          planned: how many entries the plan has.
          head: the first pack is to be the plan's head.
          tiers: the remotes that are to have them; by default all that are written to.
        """
        written = [tier for tier in self.tiers if tier.writes] if tiers is None else tiers
        if not written:
            return
        passed = {
            key: one.blob
            for key, one in self._small.items()
            if all(_may_have(to, one.namespace, one.tier) for to in written)
        }
        keys = [key for key in keys if key in compiled or key in passed]
        if len(keys) < max(packs.FEWEST, planned // _PART_OF_PLAN):
            return
        for blobs in packs.divided(self._blobs_for(written[0], keys, passed), head=head):
            yield list(blobs), packs.pack(blobs)

    def _blobs_for(
        self, tier: RemoteTier, keys: Iterable[str], passed: Mapping[str, bytes]
    ) -> Iterator[tuple[str, bytes]]:
        """What would be put there of these entries: as they came, or those that are here and were made here; nothing
        where those cannot be signed."""
        for key in keys:
            if key in passed:
                yield key, passed[key]
                continue
            try:
                entry = self._store.get(key, use=False) if self._store is not None else None
                if entry is not None and len(entry) <= packs.LARGEST_ENTRY and self._made.has(entry):
                    yield key, tier.as_put(key, entry)
            except (StoreError, BadEntryError):
                continue
            except (CannotSignError, UnusableKeyError):
                return

    def _hear(self, packed: Iterable[str], left: Iterable[str]) -> None:
        self._unpacking.start(packed)
        self._ahead.start(left)

    def _keep_packed(self, keys: Sequence[str]) -> None:
        """Have entries that came in a pack in the local store; in a thread of `Ahead`."""
        assert self._store is not None
        found = {key: one for key in keys if (one := self._unpacked(key)) is not None}
        self._ahead.start([key for key in keys if key not in found])
        copies = {
            key: Copy(one.data, one.header.compile_seconds)
            for key, (_, one) in found.items()
            if self._has_room(len(one.data))
        }
        with contextlib.suppress(StoreError):
            self._store.put_copies(copies)

    def _unpacked(self, key: str) -> tuple[str, Trusted] | None:
        """The entry that came in a pack, checked, and from which remote."""
        packed = self._early.take(key) if self._early is not None else None
        if packed is None:
            return None
        tier = self.tiers[packed.source.number]
        entry = tier.accept(packed.blob, key, packed.source.namespace)
        if entry is None:
            return None
        self._came_from[key] = tier.place
        self._arrived(key, packed.blob, packed.source.namespace, packed.source.number)
        return tier.place, entry

    def _came(self, key: str, tier: RemoteTier) -> bool:
        """Have an entry in the local store that another host may have made meanwhile."""
        if self._store is None:
            return False
        came = tier.fetch(key, again=True)
        if came is None:
            return False
        self._arrived(key, came.blob, came.namespace, self.tiers.index(tier))
        self._store.put(key, came.entry, seconds=open_entry(came.entry, key).header.compile_seconds)
        return True

    def _has_room(self, size: int) -> bool:
        """Take so many bytes of what may be fetched ahead; where too few are left nothing more is."""
        self._room -= size  # threads that do so at once may pass the bound by what each has in hand
        if self._room < 0:
            self.close()
        return self._room >= 0

    def _kept(self, key: str) -> Fetched | None:
        assert self._store is not None
        with contextlib.suppress(StoreError, BadEntryError):
            data = self._store.get(key)
            if data is not None:
                return Fetched(data, self._came_from.get(key, self._store.tier), kept=True)
        return None


class _Small(NamedTuple):
    """A small entry as it lay in a remote."""

    blob: bytes
    namespace: str
    tier: RemoteTier


def place_of(tier: RemoteTier) -> str:
    """What stands for the remote, and the namespace of it that is written to, in a plan."""
    return plans.place_of(tier.identity, tier.namespaces.write)


def _may_have(tier: RemoteTier, namespace: str, source: RemoteTier) -> bool:
    """Whether an entry of a source may go on to another remote as it is: a signature is for one namespace, and what was
    accepted from a remote that asks for less is nothing for one that asks for more."""
    return namespace == tier.namespaces.write and _asks_no_more(tier.posture, source.posture)


def _asks_no_more(nearer: Posture, source: Posture) -> bool:
    """Whether what was accepted from one remote would be from the other."""
    return nearer.takes_unsigned >= source.takes_unsigned and nearer.takes_strangers >= source.takes_strangers
