"""Looking over a local store: what each entry says of itself, and whether it holds.

Not promised: a snapshot. Entries written or removed meanwhile may or may not show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rewarm.envelope import Header, open_entry
from rewarm.errors import BadEntryError, StoreError
from rewarm.store.contract import EntryInfo
from rewarm.store.files import header_of
from rewarm.store.local import LocalStore


class Item(NamedTuple):
    """One entry of a list: what it says of itself, or what is wrong with it.

    Attributes:
      info: name, size and recency of the file.
      header: what it says; `None` when it cannot be read.
      problem: why not.
    """

    info: EntryInfo
    header: Header | None
    problem: str | None


def survey(store: LocalStore) -> Iterator[Item]:
    """Every entry with its header, NOT verified: a few kilobytes are read of each.

    Raises:
      StoreError: the directory cannot be listed.
    """
    for info in store.scan():
        yield look(store, info)


def look(store: LocalStore, info: EntryInfo) -> Item:
    """One entry with its header, NOT verified."""
    try:
        header = header_of(store.path(info.key))
    except BadEntryError as error:
        return Item(info, None, error.reason)
    except OSError as error:
        return Item(info, None, str(error.strerror))
    return Item(info, header, None if header is not None else "the header is longer than the file")


def verify(store: LocalStore, info: EntryInfo) -> Item:
    """One entry, checked as a request would check it, every section unpacked."""
    try:
        data = store.get(info.key, use=False)
        if data is None:
            return Item(info, None, None)  # removed since the scan
        entry = open_entry(data, info.key)
        for section in entry.header.sections:
            entry.section(section.name)
    except BadEntryError as error:
        return Item(info, None, error.reason)
    except StoreError as error:
        return Item(info, None, str(error.strerror))
    return Item(info, entry.header, None)


def find(store: LocalStore, prefix: str) -> list[EntryInfo]:
    """The entries whose key starts with `prefix`."""
    return [info for info in store.scan() if info.key.startswith(prefix)]
