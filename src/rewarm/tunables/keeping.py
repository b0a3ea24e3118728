"""Records as entries of the managed store and its remotes.

Not promised: that a record stays; it is an entry like any other, and goes when the store is full. No method raises:
what cannot be read is a miss that is named once, and what cannot be written is kept in memory for this process.

An entry of kind "tuned" is in the form of `envelope/format.py`. Its components are those of its case (`records.Case`)
and

    content-of-record    SHA-256 of the section "record", which is the record's text (`records.py`)

so writers never replace each other's, and its key is made of its components as all keys are. Readers merge what they
find about a case (`merging.py`). Whoever keeps a record takes into it those about its case that were made here, and
removes them; what others made stays as it is, under their signatures.

Races, and their worst outcome: two that keep records of one case at once do not see each other's; both entries stay,
and the next to keep one takes in both. One that removes an entry which another is just reading: the other has its own
sight of it, and of what it misses the merged one, which was there before.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from rewarm.envelope import Header, open_entry, seal
from rewarm.errors import BadEntryError, StoreError
from rewarm.identity.components import component, derive_key
from rewarm.sharing import tuned
from rewarm.store import LocalStore
from rewarm.telling import say_nothing
from rewarm.tunables import records
from rewarm.tunables.merging import merged, without_winner
from rewarm.tunables.records import Case, Record

SECTION = "record"
CONTENT = "content-of-record"

# How long the first call of a kernel waits for what other hosts know of it, in seconds.
PATIENCE = 5.0


class Fetching(Protocol):
    """What is under way from remotes (`sharing.tuning.Fetching`)."""

    def wait(self, seconds: float) -> bool:
        """Whether all that there is has come."""


class Remotes(Protocol):
    """What is asked of the remotes (`sharing.Remotes`)."""

    def fetch_results(self, place: str, have: Iterable[str], take: Callable[[dict[str, bytes]], None]) -> Fetching:
        """Begin to fetch the entries of a place that are not here."""

    def publish_results(self, place: str, key: str) -> None:
        """An entry of the local store goes to every remote that takes some."""


class Made(Protocol):
    """Which entries were made here (`sharing.made.Made`)."""

    def add(self, entry: bytes) -> None:
        """This one was."""

    def has(self, entry: bytes) -> bool:
        """Whether this one was."""


class Kept(NamedTuple):
    """A record in the local store.

    Attributes:
      key: of its entry.
      record: as its entry says it.
      data: the entry's bytes.
    """

    key: str
    record: Record
    data: bytes


def sealed(
    record: Record, *, producer: Mapping[str, str], seconds: float = 0.0, level: int = 3, created: float | None = None
) -> tuple[str, bytes]:
    """The key and the bytes of an entry with this record.

    Args:
      producer: versions of what made it.
      seconds: what tuning took: what a host spares that has it.
      level: of compression.
      created: seconds since the epoch; by default now.
    """
    data = record.data
    rows = (*record.case.rows, component(CONTENT, hashlib.sha256(data).hexdigest()))
    header = Header(
        kind=tuned.KIND,
        key=derive_key((row.name, row.digest) for row in rows),
        components=tuple(row.as_dict() for row in rows),
        program=f"tuned {record.case.kernel}"[:200],
        compile_seconds=seconds,
        created=time.time() if created is None else created,
        producer=producer,
        target=record.about.get("device", "")[:200],
    )
    return header.key, seal(header, {SECTION: data}, level=level)


def opened(data: bytes, key: str) -> tuple[Record, Header]:
    """The record that an entry holds, once the envelope was checked.

    Raises:
      BadEntryError: it is no sound entry of this key, or none with a record.
    """
    entry = open_entry(data, key)
    header = entry.header
    digests = tuned.digests_of(header)
    if digests is None:
        raise BadEntryError("it is no entry with a record of the tuner")
    rows = [(str(row.get("name")), str(row.get("digest"))) for row in header.components]
    if derive_key(rows) != key:
        raise BadEntryError("its components are not those of its key")
    if any(section.raw_length > records.LARGEST for section in header.sections):
        raise BadEntryError("its record is larger than any session's")
    raw = entry.section(SECTION)
    if component(CONTENT, hashlib.sha256(raw).hexdigest()).digest != dict(rows).get(CONTENT):
        raise BadEntryError("its record is not that of its key")
    record = records.read(raw)
    if {row.name: row.digest for row in record.case.rows} != digests:
        raise BadEntryError("its record is about another case than its key")
    return record, header


class Keeping:
    """The records of one process's store and remotes. Safe for any number of threads; no method raises.

    Args:
      store: the local store; `None`: nothing is read or written there, and records live in this process.
      remotes: `None` where there are none.
      made: which entries were made here.
      producer: versions of what makes entries.
      level: of compression.
      tell: says a line to the user, once.
      pinned: records of a lock file: of a case that has one nothing else is found.
    """

    def __init__(
        self,
        store: LocalStore | None,
        remotes: Remotes | None = None,
        *,
        made: Made | None = None,
        producer: Mapping[str, str] | None = None,
        level: int = 3,
        tell: Callable[[str], None] = say_nothing,
        pinned: Iterable[Record] = (),
    ) -> None:
        self._store, self._remotes, self._made = store, remotes, made
        self._producer, self._level, self._tell = dict(producer or {}), level, tell
        self._pinned = {one.case.key: one for one in pinned}
        self._loose: dict[str, list[Record]] = defaultdict(list)
        self._asked: dict[str, Fetching] = {}
        self._waited: set[str] = set()
        self._broken: set[str] = set()

    def find(self, case: Case, *, patience: float = PATIENCE) -> Record | None:
        """What is known of a case: of all records about it, one; `None`: nothing is.

        Args:
          patience: how long to wait for remotes, in seconds, where nothing is here. They are asked, and waited for,
            once for a kernel; what comes later is found by later calls.
        """
        if case.key in self._pinned:
            return self._pinned[case.key]
        found = self._about(case)
        if not found and self._remotes is not None:
            fetching, place = self.ask_remotes(case), _place(case)
            fetching.wait(0.0 if place in self._waited else patience)
            self._waited.add(place)
            found = self._about(case)
        # One alone was merged when it was written.
        return (found[0] if len(found) == 1 else merged(found)) if found else None

    def ask_remotes(self, case: Case) -> Fetching:
        """Begin to fetch what remotes know of the case's kernel, once; what comes is here afterwards."""
        place = _place(case)
        if self._remotes is None:
            return _NOTHING
        if place not in self._asked:
            have = [] if self._store is None else [key for _, _, key in tuned.entries_of(self._store.root, [place])]
            self._asked[place] = self._remotes.fetch_results(place, have, self._take)
        return self._asked[place]

    def put(self, record: Record, *, seconds: float = 0.0, instead: bool = False) -> bool:
        """Keep a record, with what was made here about its case before; returns whether it is on disk.

        Args:
          seconds: what the session took.
          instead: of what was decided here before, which is of no use any more (its winner has left the space, the
            default is another one, or its budget was too small): its timings stay, its winner does not.
        """
        own = self._own(record.case)
        earlier = [without_winner(one.record, record) if instead else one.record for one in own]
        whole = merged([record, *earlier])
        if self._store is None:
            self._loose[record.case.key].append(record)
            return False
        # What earlier sessions took is in the entries that this one takes the place of.
        spared = seconds + sum(_seconds(one) for one in own)
        key, data = sealed(whole, producer=self._producer, seconds=spared, level=self._level)
        if not self._write(key, data, spared, mine=True):
            self._loose[record.case.key].append(record)
            return False
        if self._remotes is not None:
            self._remotes.publish_results(_place(record.case), key)
        for one in own:
            if one.key != key:
                self._remove(record.case, one.key)
        return True

    def of_kernel(self, kernel: str) -> list[Record]:
        """One record for each case of this kernel that is known here, whatever its content, device and compiler."""
        start = tuned.of_kernel(component("kernel", kernel).digest)
        pinned = [one for one in self._pinned.values() if one.case.kernel == kernel]
        return [
            *pinned,
            *(one for one in self._in(start) if one.case.kernel == kernel and one.case.key not in self._pinned),
        ]

    def all(self) -> list[Record]:
        """One record for each case that is known here, by kernel and arguments."""
        return self._in("")

    def drop(self, case: Case) -> int:
        """Remove what is kept here about a case; returns how many entries went."""
        self._loose.pop(case.key, None)
        gone = list(self._kept(_place(case), case.key))
        for one in gone:
            self._remove(case, one.key)
        return len(gone)

    # -- inside ------------------------------------------------------------------------------------------------

    def _about(self, case: Case) -> list[Record]:
        kept = [one.record for one in self._kept(_place(case), case.key)]
        return [one for one in (*kept, *self._loose.get(case.key, ())) if one.case == case]

    def _in(self, start: str) -> list[Record]:
        by_case: dict[str, list[Record]] = defaultdict(list)
        if self._store is not None:
            root = self._store.root
            for place in tuned.places_here(root, start):
                for case in tuned.cases_here(root, place):
                    by_case[case] += [one.record for one in self._kept(place, case)]
        for case, loose in list(self._loose.items()):
            by_case[case] += [one for one in loose if _place(one.case).startswith(start)]
        found = [merged(one) for one in by_case.values() if one]
        return sorted(found, key=lambda one: (one.case.kernel, one.case.arguments, one.case.key))

    def _own(self, case: Case) -> list[Kept]:
        if self._made is None:
            return []
        return [one for one in self._kept(_place(case), case.key) if self._made.has(one.data)]

    def _kept(self, place: str, case: str) -> Iterator[Kept]:
        """What lies here about a case; notes of what is not there any more go."""
        if self._store is None:
            return
        for key in tuned.known_here(self._store.root, place, case):
            try:
                data = self._store.get(key)
            except (StoreError, BadEntryError) as wrong:  # it is there, and not to be had: its note stays
                self._say(key, getattr(wrong, "reason", None) or str(wrong))
                continue
            if data is None:
                tuned.forget_here(self._store.root, place, case, key)
                continue
            record = self._opened(self._store, key, data)
            if record is not None and record.case.key == case:
                yield Kept(key, record, data)

    def _opened(self, store: LocalStore, key: str, data: bytes) -> Record | None:
        try:
            return opened(data, key)[0]
        except BadEntryError as wrong:
            self._say(key, f"{wrong.reason}; it is in quarantine")
            store.quarantine(key, wrong.reason, data)
            return None

    def _say(self, key: str, reason: str) -> None:
        if key not in self._broken:
            self._broken.add(key)
            self._tell(f"a record of the tuner cannot be used and counts as none, entry {key[:12]}: {reason}")

    def _write(self, key: str, data: bytes, seconds: float, *, mine: bool) -> bool:
        assert self._store is not None
        try:
            if mine and self._made is not None:
                self._made.add(data)  # before it is stored: see `Made.add`
            self._store.put(key, data, seconds=seconds)
        except StoreError as wrong:
            self._tell(f"a record of the tuner is kept for this process alone: {wrong.strerror or wrong}")
            return False
        tuned.note_here(self._store.root, opened(data, key)[1])
        return True

    def _remove(self, case: Case, key: str) -> None:
        assert self._store is not None
        try:
            self._store.delete(key)
        except StoreError:
            return
        tuned.forget_here(self._store.root, _place(case), case.key, key)

    def _take(self, came: dict[str, bytes]) -> None:
        """Entries came from a remote, whose signatures and envelopes were checked; in a thread of `Fetching`."""
        for key, data in came.items():
            try:
                record, header = opened(data, key)
            except BadEntryError as wrong:
                self._say(key, wrong.reason)
                continue
            if self._store is None or not self._write(key, data, header.compile_seconds, mine=False):
                self._loose[record.case.key].append(record)


class _Nothing:
    def wait(self, seconds: float) -> bool:
        del seconds
        return True


_NOTHING = _Nothing()


@functools.lru_cache(1024)
def _place(case: Case) -> str:
    return tuned.place_by({row.name: row.digest for row in case.rows})


def _seconds(kept: Kept) -> float:
    return open_entry(kept.data, kept.key).header.compile_seconds
