"""Bringing a local store and a remote together: what one has and the other has not is sent over.

Not promised: a snapshot. Entries that come or go meanwhile may or may not be sent. What comes from a remote is checked
and trusted as at any other time, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError, StoreError
from rewarm.remote.blobs import NoSuchPlaceError, RefusedError, RemoteError
from rewarm.sharing import tuning
from rewarm.sharing.made import Made, made_in
from rewarm.sharing.tier import RemoteTier
from rewarm.store import LocalStore
from rewarm.trust import RefusedEntryError

_THREADS = 8

# Why an entry was passed over: a signature of ours would say that we made it.
NOT_MADE = "not made here"


class Sent(NamedTuple):
    """What became of one entry.

    Attributes:
      key: 64 hexadecimal digits.
      direction: "push" or "pull".
      problem: why it did not arrive, or `None`.
    """

    key: str
    direction: str
    problem: str | None


def push(
    store: LocalStore, tier: RemoteTier, keys: Iterable[str], *, others: bool = False, verify: bool = False
) -> Iterator[Sent]:
    """Send these entries, but for those that the remote has in the namespace that is written to.

    A remote that cannot list is sent all of them.

    Args:
      others: send, and so sign, what was not made here, too; without it such entries are passed over.
      verify: fetch what the remote has, and send anew what would be refused (another key, damage).

    Raises:
      RemoteError: it is not there, or there is no answer.
    """
    there = _listed(tier, (tier.namespaces.write,))
    wanted = [key for key in keys if there is None or key not in there or (verify and not _is_good(tier, key))]
    made = made_in(store.root, store.shared)
    return _all(wanted, lambda key: Sent(key, "push", _push(store, tier, key, None if others else made)))


def _is_good(tier: RemoteTier, key: str) -> bool:
    try:
        return tier.header(tier.namespaces.write, key) is not None
    except (RefusedEntryError, BadEntryError):
        return False


def pull(store: LocalStore, tier: RemoteTier) -> Iterator[Sent]:
    """Fetch what the namespaces that are read have, and the store has not.

    Raises:
      RemoteError: the remote cannot be listed.
    """
    have = {info.key for info in store.scan()}
    there = {info.key for namespace in tier.namespaces.read for info in tier.scan(namespace)}
    return _all(sorted(there - have), lambda key: Sent(key, "pull", _pull(store, tier, key)))


def _listed(tier: RemoteTier, namespaces: Iterable[str]) -> set[str] | None:
    try:
        return {info.key for namespace in namespaces for info in tier.scan(namespace)}
    except NoSuchPlaceError:
        raise
    except RefusedError:
        return None


def _all(keys: list[str], send: Callable[[str], Sent]) -> Iterator[Sent]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="rewarm-sync") as pool:
        yield from pool.map(send, keys)


def _push(store: LocalStore, tier: RemoteTier, key: str, made: Made | None) -> str | None:
    try:
        entry = store.get(key, use=False)
        if entry is None:
            return "it is gone"
        if made is not None and not made.has(entry):
            return NOT_MADE
        tier.put(key, entry)
        place = tuning.place_of(open_entry(entry, key).header)
        if place is not None:
            tuning.put_hint(tier, tuning.hint_name(place, key))
    except (RemoteError, BadEntryError) as error:
        return error.reason
    except StoreError as error:
        return error.strerror or str(error)
    return None


def _pull(store: LocalStore, tier: RemoteTier, key: str) -> str | None:
    entry = tier.get(key)
    if entry is None:
        return "it is gone, was refused, or there was no answer"
    try:
        header = open_entry(entry, key).header
        store.put(key, entry, seconds=header.compile_seconds)
        tuning.note_if_tuning(store.root, header)
    except StoreError as error:
        return error.strerror or str(error)
    return None
