"""Keeping the table of totals true: what every change of an entry does to its directory's row.

Not promised: that a row is exact at every moment. It is after a count, and a directory is counted when its row is
missing or damaged, every sixteenth change (or after as many changes as a sixteenth of its entries, where that is
more, so that the price per change stays the same), whenever something is evicted from it, and by `collect`.

Whoever changes an entry tries the directory's lock, makes the change, and adds the difference to the row, all while
having the lock. Whoever does not get the lock waits for nobody and does the same without; since two such may cross,
its change weighs as four towards the next count. A row has a sequence number, and who finds that it moved during his
work counts the directory instead. So a peer that has the lock and is stopped costs nothing, and a change is lost
between two only

* in the microseconds between the look at the sequence and the write, without the lock: two rows cross, and the row is
  off by the changes of one of them until the next count;
* by a process that is killed, or interrupted, between its rename and its row: off by one entry until the next count;
* by a peer that was stopped exactly between look and write, and goes on: its row of that time stands until the next
  count;
* on file systems without locks: as the first;
* in a store whose table cannot be written (another's, without rights): nobody learns of its changes before a count.
"""

# Strings instead of Path objects on the way of every hit and put: building a Path costs more than the system call.
# ruff: noqa: PTH108

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rewarm.policy import Bounds
from rewarm.small_files import Modes
from rewarm.store import evicted, shards, usage
from rewarm.store.survey import Survey, look
from rewarm.store.totals import Row, Totals
from rewarm.store.usage import Known

# A temporary file older than this, in seconds, has lost its writer.
ORPHAN_AFTER = 3600.0

# A directory is counted after this many changes, or after a sixteenth of its entries' number.
_COUNT_AFTER = 16

# How much a change weighs that was made without the lock.
_WITHOUT_LOCK = 4

# How often a count starts again because others change the directory meanwhile; then the last one has to do.
_TRIES = 3


class Change(NamedTuple):
    """What a verb did to a directory.

    Attributes:
      size: bytes that came, or went.
      entries: entries that came, or went.
      priority: of the entry that was written.
      used: when it was written, in seconds since the epoch.
    """

    size: int
    entries: int
    priority: float = float("inf")
    used: float = float("inf")

    def on(self, row: Row, weight: int) -> Row:
        """The row after this change, which weighs so much towards the next count."""
        return Row(
            row.size + self.size,
            row.entries + self.entries,
            row.changes + weight,
            min(row.lowest, self.priority),
            min(row.oldest, self.used),
            row.sequence + 1,
        )


NOTHING = Change(0, 0)


class Upkeep(NamedTuple):
    """What may go when a directory is looked over.

    Attributes:
      now: the file system's clock, which is not always this host's: a wrong clock here must not empty a store that
        others use.
      bounds: the age that is in force.
    """

    now: float
    bounds: Bounds


class Accounts:
    """The books of one store. Safe for threads and across a fork: all that counts is on disk.

    Attributes:
      on_evicted: called for each entry that this process lets go; `None` while nobody counts them.
    """

    def __init__(self, root: str, modes: Modes) -> None:
        self.root = root
        self.modes = modes
        self.totals = Totals(root, modes)
        # What could not be removed (another's, in a directory where only owners may) is not tried again.
        self.refused: set[str] = set()
        # Those of them that another day may be removed: the file system had a bad moment.
        self._in_trouble: set[str] = set()
        self.on_evicted: Callable[[], object] | None = None

    def change(self, index: int, act: Callable[[], Change], upkeep: Upkeep | None = None) -> None:
        """Let `act` change an entry, and write down what it did.

        Raises:
          OSError: what `act` raises, and nothing else; nothing is written down then.
        """
        with shards.lock(self.root, index) as held:
            before = self.totals.row(index)
            change = act()
            with contextlib.suppress(OSError):  # the books must not stop a verb
                self._enter_change(index, change, before, held, upkeep)

    def _enter_change(self, index: int, change: Change, before: Row | None, held: bool, upkeep: Upkeep | None) -> None:
        if change == NOTHING or (before is None and change.entries < 0):
            return
        if before is not None and not _is_due(before) and self._sequence(index) == before.sequence:
            self.totals.write(index, change.on(before, 1 if held else _WITHOUT_LOCK))
        else:
            self.count(index, upkeep if held else None)

    def count(self, index: int, upkeep: Upkeep | None = None) -> Survey:
        """Look a directory over and write down what is there; `upkeep` says what may go first.

        Raises:
          OSError: it cannot be listed, or the table cannot be written.
        """
        for number in range(_TRIES):
            sequence = self._sequence(index)
            seen = self.look(index, upkeep)
            if self.enter(index, seen, sequence, force=number == _TRIES - 1):
                break
        return seen

    def look(self, index: int, upkeep: Upkeep | None = None) -> Survey:
        """Look a directory over; what is too old, and what lost writers left, goes if `upkeep` says so.

        Raises:
          OSError: it cannot be listed.
        """
        seen = look(self.root, index)
        if upkeep is None:
            return seen
        for name, mtime in seen.temporaries:
            if upkeep.now - mtime > ORPHAN_AFTER:
                self.remove(f"{shards.SHARDS[index]}/{name}")
        old = [key for key, info in seen.entries.items() if upkeep.bounds.expired(upkeep.now - info.used)]
        gone = {key for key in old if self.remove_entry(key, seen.entries[key].size, evicted.AGE)}
        return seen.without(gone) if gone else seen

    def enter(
        self, index: int, seen: Survey, sequence: int, *, lowest: float | None = None, force: bool = False
    ) -> bool:
        """Write down what was seen, unless somebody wrote since the row had this `sequence`; returns whether.

        Raises:
          OSError: the table cannot be written.
        """
        now = self._sequence(index)
        if now != sequence and not force:
            return False
        self.totals.write(index, seen.row(now + 1, lowest))
        return True

    def sequence(self, index: int) -> int:
        """The number of the row's last write; -1 for none."""
        return self._sequence(index)

    def _sequence(self, index: int) -> int:
        row = self.totals.row(index)
        return -1 if row is None else row.sequence

    # -- what goes ---------------------------------------------------------------------------------------------

    def remove_entry(self, key: str, size: int, why: str) -> bool:
        """Remove an entry's file, of so many bytes, for whoever writes the row afterwards; returns whether it is gone.

        `why`: see `evicted.py`.
        """
        gone = self.remove(f"{key[:2]}/{key}")
        if gone:
            evicted.note(self.root, key, size, why, self.modes)
        if gone and self.on_evicted is not None:
            self.on_evicted()
        return gone

    def is_refused(self, key: str) -> bool:
        """Whether an entry's file was not to be removed."""
        return bool(self.refused) and f"{key[:2]}/{key}" in self.refused

    def remove(self, name: str) -> bool:
        """Remove a file of the store; returns whether it is gone. One that may not be removed is tried once, one
        that could not be is tried again after `forget_trouble`."""
        if name in self.refused:
            return False
        try:
            os.unlink(f"{self.root}/{name}")
        except FileNotFoundError:
            return True
        except OSError as error:
            self.refused.add(name)
            if error.errno not in (errno.EACCES, errno.EPERM):
                self._in_trouble.add(name)
            return False
        return True

    def forget_trouble(self) -> bool:
        """Let what could not be removed for no lack of rights be tried again; returns whether there was any."""
        trouble, self._in_trouble = self._in_trouble, set()
        self.refused -= trouble
        return bool(trouble)

    # -- the journal -------------------------------------------------------------------------------------------

    def note_puts(self, puts: Mapping[str, Known]) -> None:
        """Add the puts of entries of one directory to its journal. Never raises an `OSError`."""
        for key in puts:
            self.refused.discard(f"{key[:2]}/{key}")  # it will be ours
        self._note(next(iter(puts)), lambda folder: usage.note_puts(folder, puts, self.modes))

    def note_use(self, key: str) -> None:
        """Add a use to the journal of an entry's directory. Never raises an `OSError`."""
        self._note(key, lambda folder: usage.note_use(folder, key, self.modes))

    def compact(self, index: int, seen: Survey) -> None:
        """Make a directory's journal the sum of what is known; for who has the lock. Never raises an `OSError`."""
        try:
            usage.replace(f"{self.root}/{shards.SHARDS[index]}", seen.summary(), self.modes)
        except PermissionError:  # another's: what nobody of us may shorten, we do not lengthen either
            self.refused.add(f"{shards.SHARDS[index]}/{usage.NAME}")
        except OSError:
            return

    def _note(self, key: str, append: Callable[[str], int]) -> None:
        if f"{key[:2]}/{usage.NAME}" not in self.refused:
            with contextlib.suppress(OSError):
                self._noted(shards.shard_of(key), append(f"{self.root}/{key[:2]}"))

    def _noted(self, index: int, journal: int) -> None:
        if not usage.is_crowded(journal, 0):
            return
        row = self.totals.row(index)
        if row is not None and not usage.is_crowded(journal, row.entries):
            return
        with shards.lock(self.root, index) as held:
            if held:
                seen = self.count(index)
                if seen.is_crowded():
                    self.compact(index, seen)


def _is_due(row: Row) -> bool:
    return row.changes + 1 >= max(_COUNT_AFTER, row.entries // _COUNT_AFTER)
