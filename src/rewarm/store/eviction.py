"""Making room: which entries go so that another fits in, a little at each put.

Not promised: exactly the order of the policy over the whole store; that is `collection.py`'s. Here the directory with
the lowest priority is taken, one that somebody else works in is passed over, and of a directory of 50 entries or more
up to 2 in 100 go at once, although another directory may have a lower one: looking a directory over is paid once for
all of them. Keys are hashes, so each directory is a fair sample of the store, and its lowest 2 in 100 are about the
store's.

The price of a put is therefore the same at any size: looking over a directory of n entries brings n/50 evictions.
A store that was never bounded, or whose bound was lowered, is counted and emptied over several puts, each of which
spends a tenth of a second on it at most (one look over one directory is always finished).

Races, and their worst outcome:

* eight processes find room for one entry at the same time: the bound is exceeded by the entries in flight, which the
  next puts see.
* two evict from the same directory (only without locks, or where all are taken): each writes down what it found left.
* an entry is evicted while somebody reads it: the reader has the file open and reads on.
* an entry is evicted that another process just used: one miss.
"""

from __future__ import annotations

import contextlib
import errno
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

from rewarm import policy
from rewarm.errors import StoreError
from rewarm.policy import Bounds, Usage
from rewarm.store import shards
from rewarm.store.accounts import Accounts, Upkeep
from rewarm.store.evicted import ENTRIES, SIZE
from rewarm.store.survey import learn
from rewarm.store.totals import Snapshot

# What one put may spend on others' entries, in seconds.
_BUDGET = 0.1

# Room is made down to the bound less a sixty-fourth, so that not every put has to.
_LOW_WATER = 64

# One in so many of a directory's entries may go although another directory has a lower one.
_SAMPLE = 50


class Need(NamedTuple):
    """What is about to come in.

    Attributes:
      key: whose entry; what lies under this key is not evicted.
      size: bytes that the store will have more.
      entries: entries that it will have more, none when one is replaced.
    """

    key: str
    size: int
    entries: int


class _Chosen(NamedTuple):
    """A directory to evict from: whether we have its lock, and the lowest priority of the next one."""

    shard: int
    held: bool
    next_lowest: float


class Room:
    """Makes room in one store. What it remembers between puts is only what it may not remove."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        # By directory, the lowest priority that we may remove there, where we met what we may not.
        self._removable: dict[int, float] = {}
        self._stale: set[int] = set()

    def make(self, bounds: Bounds, need: Need, now: float) -> None:
        """Let what is too old go, and then the least worth until `need` fits within `bounds`.

        `now` is the file system's clock, in seconds since the epoch.

        Raises:
          StoreError: it does not fit, and nothing that is there may be removed.
        """
        if bounds == Bounds():
            return
        deadline, upkeep = time.monotonic() + _BUDGET, Upkeep(now, bounds)
        if self._accounts.forget_trouble():
            self._removable.clear()
            self._stale.clear()
        with _undisturbed():
            self.count_missing(upkeep, deadline)
            self._expire(upkeep, deadline)
            self._evict(_Goal(bounds, need), upkeep, deadline)
        self._removable.pop(shards.shard_of(need.key), None)  # there will be something of ours

    def free(self, size: int, least: int, key: str, now: float) -> bool:
        """Remove the least worth, about `size` bytes, but not `key`; returns whether anything went.

        Nothing goes when the store does not even hold `least` bytes: all of it would not be enough.
        """
        deadline = time.monotonic() + _BUDGET
        upkeep = Upkeep(now, Bounds())
        with contextlib.suppress(OSError):
            held, _ = self.estimate(deadline).total()
            if held >= least:
                self.count_missing(upkeep, deadline)
                goal = _Goal(Bounds(max_size=max(held - size, 0)), Need(key, 0, 0))
                return self._evict(goal, upkeep, deadline)
        return False

    def count_missing(self, upkeep: Upkeep | None, deadline: float) -> Snapshot:
        """Count directories that are not counted, until `deadline` (monotonic); returns the table then.

        Never raises an `OSError`.
        """
        accounts = self._accounts
        snapshot = accounts.totals.read()
        missing = snapshot.uncounted()
        if not missing:
            return snapshot
        with contextlib.suppress(OSError):
            accounts.totals.fill(shards.absent(accounts.root, missing))
        for index in accounts.totals.read().uncounted():
            if time.monotonic() > deadline:
                break
            with contextlib.suppress(OSError), shards.lock(accounts.root, index) as held:
                accounts.count(index, upkeep if held else None)
        return accounts.totals.read()

    def estimate(self, deadline: float) -> Snapshot:
        """The table as `count_missing` would leave it, with nothing written. Never raises an `OSError`."""
        snapshot = self._accounts.totals.read().copy()
        for index in snapshot.uncounted():
            if time.monotonic() > deadline:
                break
            with contextlib.suppress(OSError):
                snapshot.set(index, self._accounts.look(index).row())
        return snapshot

    # -- age ---------------------------------------------------------------------------------------------------

    def _expire(self, upkeep: Upkeep, deadline: float) -> None:
        while time.monotonic() < deadline and (index := self._expired(upkeep)) is not None:
            with shards.lock(self._accounts.root, index) as held:
                if not held:
                    return  # somebody is there, perhaps for this
                seen = self._accounts.count(index, upkeep)
            if upkeep.bounds.expired(upkeep.now - seen.row().oldest):
                self._stale.add(index)  # it may not be removed, and would be looked at again and again

    def _expired(self, upkeep: Upkeep) -> int | None:
        if upkeep.bounds.max_age is None:
            return None
        oldest = self._accounts.totals.read().oldest
        index = oldest.index(min(oldest))
        if index in self._stale:
            others = (other for other in range(len(oldest)) if other not in self._stale)
            index = min(others, key=oldest.__getitem__, default=index)
        fresh = index in self._stale or not upkeep.bounds.expired(upkeep.now - oldest[index])
        return None if fresh else index

    # -- worth -------------------------------------------------------------------------------------------------

    def _evict(self, goal: _Goal, upkeep: Upkeep, deadline: float) -> bool:
        """Evict until `goal` is reached, or the deadline is and something went; returns whether anything went."""
        gone, looked_at = False, dict(self._removable)
        while True:
            snapshot = self._accounts.totals.read()
            late = time.monotonic() > deadline
            if (wanted := goal.wanted(*snapshot.total())) is None or (late and gone):
                return gone
            with self._choose(snapshot, looked_at) as chosen:
                if chosen is None or time.monotonic() > deadline + _BUDGET:
                    return gone or self._give_up()
                # When time is up, the lowest of what is at hand goes, though another directory may have a lower one.
                visit = _Visit(self._accounts, chosen, wanted, goal.need.key, least=int(late))
                gone = visit.evict(upkeep, deadline) or gone
            looked_at[chosen.shard] = visit.left
            if visit.refused:
                self._removable[chosen.shard] = visit.left

    @contextlib.contextmanager
    def _choose(self, snapshot: Snapshot, looked_at: dict[int, float]) -> Iterator[_Chosen | None]:
        """The directory with the lowest priority whose lock is free; the very lowest when none is."""
        lowest = list(snapshot.lowest)
        for index, left in looked_at.items():
            lowest[index] = max(lowest[index], left)
        order = sorted([index for index, one in enumerate(lowest) if one < math.inf], key=lowest.__getitem__)
        after = [*(lowest[index] for index in order[1:]), math.inf]
        for index, next_lowest in zip(order, after, strict=False):
            with shards.lock(self._accounts.root, index) as held:
                if held:
                    yield _Chosen(index, True, next_lowest)
                    return
        yield _Chosen(order[0], False, after[0]) if order else None

    def _give_up(self) -> bool:
        if self._accounts.refused:
            text = "no room: the store is at its bound, and what it holds may not be removed"
            raise StoreError(errno.EDQUOT, text, self._accounts.root)
        return False  # the books say that there is something, and there is nothing


class _Goal(NamedTuple):
    """How much may be there, and what is to come in."""

    bounds: Bounds
    need: Need

    def wanted(self, size: int, entries: int) -> tuple[int, int] | None:
        """The bytes and entries to gain in a store of so many, `None` when what is needed fits in."""
        size, entries = size + self.need.size, entries + self.need.entries
        if not self.bounds.exceeded(size, entries):
            return None
        return _over(self.bounds.max_size, size), _over(self.bounds.max_entries, entries)


def _over(bound: int | None, value: int) -> int:
    return 0 if bound is None else value - (bound - bound // _LOW_WATER)


class _Visit:
    """Evicting from one directory.

    Attributes:
      left: the lowest priority of what is left there and may be removed.
      refused: whether something there may not be removed.
    """

    def __init__(self, accounts: Accounts, chosen: _Chosen, wanted: tuple[int, int], keep: str, least: int) -> None:
        self._accounts = accounts
        self._chosen = chosen
        self._wanted = wanted
        self._keep = keep
        self._least = least
        self.left = math.inf
        self.refused = False

    def evict(self, upkeep: Upkeep, deadline: float) -> bool:
        """Evict the lowest; returns whether anything went."""
        accounts, index = self._accounts, self._chosen.shard
        sequence = accounts.sequence(index)
        seen, learned = learn(accounts.root, accounts.look(index, upkeep), deadline)
        usages = seen.usages()
        gone = self._remove(self._removable(usages))
        went = {one.key for one in gone}
        rest = [one for one in usages if one.key not in went]
        removable = self._removable(rest)
        self.left = min((one.priority for one in removable), default=math.inf)
        self.refused = any(accounts.is_refused(one.key) for one in rest)
        seen = seen.without(went)
        if not accounts.enter(index, seen, sequence, lowest=min((one.priority for one in rest), default=math.inf)):
            accounts.count(index)
        if self._chosen.held and (learned or seen.is_crowded()):
            accounts.compact(index, seen)
        return bool(gone)

    def _removable(self, usages: list[Usage]) -> list[Usage]:
        return [one for one in usages if one.key != self._keep and not self._accounts.is_refused(one.key)]

    def _remove(self, candidates: list[Usage]) -> list[Usage]:
        gone: list[Usage] = []
        sample = max(len(candidates) // _SAMPLE, self._least)
        why = SIZE if self._wanted[0] > 0 else ENTRIES
        for number, one in enumerate(policy.victims(candidates, *self._wanted)):
            if one.priority > self._chosen.next_lowest and number >= sample:
                break
            if self._accounts.remove_entry(one.key, one.size, why):
                gone.append(one)
        return gone


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Trouble with the books must not stop a put; that there is no room must."""
    try:
        yield
    except StoreError:
        raise
    except OSError:
        return
