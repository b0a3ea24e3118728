"""Cleaning a whole store at once, in the exact order of the policy: what `rewarm gc` does.

Not promised: that the store is within its bounds when it is over, if others write meanwhile.

A put keeps to the bounds about (see `eviction.py`). This looks over all directories, counts every one exactly, sums
up every journal, and removes by one order over the whole store.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from rewarm import policy
from rewarm.policy import Bounds, Usage
from rewarm.store.accounts import NOTHING, ORPHAN_AFTER, Accounts, Change, Upkeep
from rewarm.store.contract import EntryInfo
from rewarm.store.files import create, info_of, is_temporary, temporary_for, write
from rewarm.store.shards import SHARDS, lock, shard_of
from rewarm.store.survey import Survey, learn, look


class Removed(NamedTuple):
    """An entry that went, or would go.

    Attributes:
      key: 64 hexadecimal digits.
      size: bytes.
      seconds: what a hit spared.
      used: when it was last used, in seconds since the epoch.
      reason: "age", "size" or "entries".
    """

    key: str
    size: int
    seconds: float
    used: float
    reason: str


def collect(accounts: Accounts, bounds: Bounds, now: float, *, dry_run: bool) -> Iterator[Removed]:
    """Remove what `bounds` do not allow, and say of each entry why; with `dry_run` say it and touch nothing.

    `now` is the file system's clock, in seconds since the epoch.

    Raises:
      OSError: a directory cannot be listed.
    """
    if not dry_run:
        accounts.forget_trouble()
        _remove_orphans(accounts, now)
    surveys = [_dry(accounts, index) if dry_run else _clean(accounts, index, now) for index in range(len(SHARDS))]
    going = list(_going(surveys, bounds, now))
    touched = set()
    for one, info, reason in going:
        if dry_run or _remove(accounts, info, reason):
            touched.add(shard_of(info.key))
            yield Removed(one.key, one.size, one.seconds, info.used, reason)
    if not dry_run:
        for index in touched:
            _count(accounts, index)


def usages(accounts: Accounts) -> Iterator[Usage]:
    """What is known of every entry of the store.

    Raises:
      OSError: a directory cannot be listed.
    """
    for index in range(len(SHARDS)):
        yield from _dry(accounts, index).usages()


def _remove_orphans(accounts: Accounts, now: float) -> None:
    """Remove what lost writers left in the root itself: the tag, the probe of the clock, small files."""
    with os.scandir(accounts.root) as items:
        for item in items:
            if is_temporary(item.name):
                with contextlib.suppress(OSError):
                    if now - item.stat(follow_symlinks=False).st_mtime > ORPHAN_AFTER:
                        accounts.remove(item.name)


def _dry(accounts: Accounts, index: int) -> Survey:
    return learn(accounts.root, look(accounts.root, index))[0]


def _clean(accounts: Accounts, index: int, now: float) -> Survey:
    with lock(accounts.root, index) as held:
        # Entries that are too old go by name, below, so that each is told of: here only lost writers' files do.
        seen = accounts.look(index, Upkeep(now, Bounds()))
        seen, _ = learn(accounts.root, seen)
        if held and (seen.known or seen.journal):
            accounts.compact(index, seen)
        _count(accounts, index)
    return seen


def _count(accounts: Accounts, index: int) -> None:
    with contextlib.suppress(OSError):  # a table that cannot be written is no reason to leave a store as it is
        accounts.count(index)


def _going(surveys: list[Survey], bounds: Bounds, now: float) -> Iterator[tuple[Usage, EntryInfo, str]]:
    staying: list[Usage] = []
    infos: dict[str, EntryInfo] = {}
    for seen in surveys:
        infos.update(seen.entries)
        for one in seen.usages():
            if bounds.expired(now - infos[one.key].used):
                yield one, infos[one.key], "age"
            else:
                staying.append(one)
    bytes_over = _over(bounds.max_size, sum(one.size for one in staying))
    entries_over = _over(bounds.max_entries, len(staying))
    for one in policy.victims(staying, bytes_over, entries_over):
        yield one, infos[one.key], "size" if bytes_over > 0 else "entries"
        bytes_over -= one.size


def _over(bound: int | None, value: int) -> int:
    return 0 if bound is None else value - bound


def _remove(accounts: Accounts, info: EntryInfo, reason: str) -> bool:
    """Remove one entry that was looked at a while ago; returns whether it was there and went."""
    went = False

    def act() -> Change:
        nonlocal went
        there = info_of(f"{accounts.root}/{info.key[:2]}/{info.key}")
        if there is None or (reason == "age" and there.st_mtime > info.used):
            return NOTHING
        went = accounts.remove_entry(info.key, there.st_size, reason)
        return Change(-there.st_size, -1) if went else NOTHING

    accounts.change(shard_of(info.key), act)
    return went


def file_system_clock(accounts: Accounts) -> float:
    """The clock that writes the store's mtimes, in seconds since the epoch; where it cannot be read, this host's."""
    probe = temporary_for(accounts.root, "clock")
    try:
        return write(create(probe, accounts.modes), b"").st_mtime
    except OSError:
        return time.time()
    finally:
        accounts.remove(probe.removeprefix(accounts.root + "/"))
