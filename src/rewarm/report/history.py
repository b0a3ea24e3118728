"""What went from a directory: evicted, put into quarantine, or condemned since it ended a process.

Not promised: all of it. Each of the three keeps its newest alone; see `store/evicted.py`, `store/quarantine.py` and
`trials/condemned.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rewarm.report.model import Gone
from rewarm.store import LocalStore, evicted
from rewarm.store.contract import is_key
from rewarm.store.inventory import Item
from rewarm.trials import condemned
from rewarm.trials.place import places_of

_WHY = {
    evicted.AGE: "not used for longer than max_age",
    evicted.SIZE: "the store was at max_size, and this was worth least",
    evicted.ENTRIES: "the store was at max_entries, and this was worth least",
}


def of(store: LocalStore, items: Sequence[Item], names: Mapping[str, str]) -> tuple[Gone, ...]:
    """The latest first.

    Args:
      store: the directory.
      items: its entries, by which programs are called.
      names: of programs, by key, that are known from elsewhere.
    """
    known = {**names, **{item.info.key: item.header.program for item in items if item.header is not None}}
    found = [*_evicted(store.root, known), *_quarantined(store, known), *_condemned(store.root)]
    return tuple(sorted(found, key=lambda one: -(one.time or 0.0)))


def _evicted(root: Path, names: Mapping[str, str]) -> Iterator[Gone]:
    for one in evicted.read(root):
        yield Gone("evicted", one.time, one.key, names.get(one.key, ""), one.size, _WHY[one.why])


def _quarantined(store: LocalStore, names: Mapping[str, str]) -> Iterator[Gone]:
    for path in store.quarantined():
        key, _, rest = path.name.partition(".")
        moment, _, why = rest.partition(".")
        named = is_key(key) and moment.isdecimal()
        try:
            size = path.lstat().st_size
        except OSError:  # removed since
            size = 0
        when = int(moment) / 1e9 if named else None
        words = why.replace("-", " ") if named else path.name
        yield Gone("quarantined", when, key if named else "", names.get(key, ""), size, words)


def _condemned(root: Path) -> Iterator[Gone]:
    for line in (line for folder in places_of(root) for line in condemned.load(folder)):
        yield Gone("condemned", line.time, line.key, line.program, 0, f"{line.reason}, on {line.host}")
