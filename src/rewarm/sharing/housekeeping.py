"""Looking over a remote, and removing from it what is old or too much.

Not promised: a snapshot, or that what goes was not wanted. A remote knows when an entry was put there and not when it
was last fetched, so the oldest go first; who wants one again compiles it, and puts it there anew. Several who do this
at once remove the same entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rewarm.envelope import Header
from rewarm.remote.blobs import BlobInfo, TakenError, TooLargeError
from rewarm.sharing import packs, plans, tuning
from rewarm.sharing.tier import OVERSIZED, RemoteTier, key_of
from rewarm.trust import RefusedEntryError

# What lies beside the entries and has bytes that count: packs, which hold small entries once more, and plans.
COUNTED = (packs.FOLDER, plans.FOLDER)

# What else lies there: leases of hosts that died, what a probe could not remove, and which entries have tuning results
# for whom. It has next to no bytes and goes by its age alone; who has such an entry puts its hint there anew.
HINTS = (*COUNTED, "leases", "probes")


class Bounds(NamedTuple):
    """What one namespace of a remote may keep; `None` is no bound.

    Attributes:
      max_age: seconds since a blob was put there.
      max_size: bytes of all entries, packs and plans.
    """

    max_age: float | None = None
    max_size: int | None = None


class Gone(NamedTuple):
    """Something that goes, or went.

    Attributes:
      namespace: where it lay.
      name: the key of an entry, or for what is none (`HINTS`) its folder, "/" and its name there.
      size: bytes.
      put: when it was put there, in seconds since the epoch, by the remote's clock.
      reason: "age" or "size".
    """

    namespace: str
    name: str
    size: int
    put: float
    reason: str


class Shown(NamedTuple):
    """One entry of a list.

    Attributes:
      namespace: where it lies.
      key: 64 hexadecimal digits.
      size: bytes.
      put: when it was put there, in seconds since the epoch, by the remote's clock.
      header: what it says of itself, once it was fetched, checked and found to be one that may be trusted.
      problem: why it would not be accepted here.
    """

    namespace: str
    key: str
    size: int
    put: float
    header: Header | None = None
    problem: str | None = None


def list_entries(tier: RemoteTier) -> list[Shown]:
    """The entries of the namespaces that are read.

    Raises:
      RemoteError: this kind of remote cannot list, or did not answer.
    """
    return [
        Shown(namespace, info.key, info.size, info.used)
        for namespace in tier.namespaces.read
        for info in tier.scan(namespace)
    ]


def with_header(tier: RemoteTier, shown: Shown) -> Shown:
    """The same entry, fetched.

    Raises:
      RemoteError: there is no answer.
    """
    try:
        header = tier.header(shown.namespace, shown.key)
    except RefusedEntryError as error:
        return shown._replace(problem=str(error))
    except TooLargeError:
        return shown._replace(problem=OVERSIZED)
    return shown._replace(header=header, problem=None if header is not None else "gone")


def collect(
    tier: RemoteTier, bounds: Bounds, now: float, *, dry_run: bool, stays: Callable[[Gone], object] = lambda _: None
) -> Iterator[Gone]:
    """Remove what is beyond the bounds from each namespace that is read, the oldest first; yields what went. `stays`
    hears of what another user alone may remove.

    Raises:
      RemoteError: this kind of remote cannot list or remove, or did not answer.
    """
    for namespace in tier.namespaces.read:
        blobs = list(tier.blobs.scan(namespace))
        for gone in chosen(namespace, blobs, bounds, now):
            try:
                if not dry_run:
                    tier.blobs.delete(_name_of(gone))
            except TakenError:
                stays(gone)
                continue
            yield gone


def remove_leftovers(tier: RemoteTier) -> int:
    """Remove what writers that died a day ago left unfinished in the namespaces that are read; returns how many files
    went. A folder has such; other kinds of remote have none.

    Raises:
      RemoteError: the remote did not answer.
    """
    remove: Callable[[str], int] | None = getattr(tier.blobs, "remove_leftovers", None)
    return 0 if remove is None else sum(remove(namespace) for namespace in tier.namespaces.read)


def chosen(namespace: str, blobs: Iterable[BlobInfo], bounds: Bounds, now: float) -> list[Gone]:
    """What of a namespace is beyond the bounds, the oldest first. What is neither entry nor hint is never touched."""
    counted: list[Gone] = []
    too_old: list[Gone] = []
    for blob in sorted(blobs, key=lambda blob: blob.modified):
        key = key_of(blob.name, namespace)
        name = key or _hint_of(blob.name, namespace)
        if name is None:
            continue
        old = bounds.max_age is not None and now - blob.modified > bounds.max_age
        if old:
            too_old.append(Gone(namespace, name, blob.size, blob.modified, "age"))
        elif key is not None or name.partition("/")[0] in COUNTED:
            counted.append(Gone(namespace, name, blob.size, blob.modified, "size"))
    return too_old + _too_much(counted, bounds.max_size)


def _too_much(counted: list[Gone], max_size: int | None) -> list[Gone]:
    """The first of these that have to go so that the rest has at most so many bytes."""
    over = sum(one.size for one in counted) - max_size if max_size is not None else 0
    gone: list[Gone] = []
    for one in counted:
        if over <= 0:
            break
        gone.append(one)
        over -= one.size
    return gone


def _hint_of(name: str, namespace: str) -> str | None:
    within = name.removeprefix(f"{namespace}/")
    if tuning.is_hint(within) or tuning.is_index(within):
        return within
    folder, _, last = within.partition("/")
    return within if folder in HINTS and last and "/" not in last else None


def _name_of(gone: Gone) -> str:
    within = gone.name if "/" in gone.name else f"{gone.name[:2]}/{gone.name}"
    return f"{gone.namespace}/{within}"
