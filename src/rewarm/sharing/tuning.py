"""Which entries of a store hold tuning results, and for which place: hints here and in remotes.

Hints in remotes also name entries with records of the tuner, whose places and notes here `tuned.py` has.

Not promised: that a hint is right. It names entries, which are checked like all others when they are fetched; one that
names nothing costs a request, and of one that is lost the next process to look at the remote leaves another.

    <root>/autotune/<place>/batches/<64 hex>         here: an empty file for each entry
    <namespace>/tuning/<place>/<64 hex>              in a remote that can be listed: a blob for each entry
    <namespace>/tuning/<place>/index                 in one that cannot: {"version": 1, "keys": [64 hex, ...]}

Races, and their worst outcome:

* two hosts write the index at once: the later write wins, and lacks the other's key. So each looks again after it has
  written, and writes once more if its own is missing, three times at most. If both wrote each other's away each time,
  or the remote serves old content for long, a key is missing until a process of the host that made the entry starts
  again and finds that. Blobs that are listed have no such race.
* a hint follows its entry (`uploads.py`): a process that is killed in between leaves an entry that nobody finds, until
  a process of the host that made it starts again and sees that the remote does not know it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rewarm import small_files
from rewarm.envelope import Header, open_entry
from rewarm.remote.blobs import NoSuchPlaceError, RefusedError, RemoteError, TooLargeError
from rewarm.sharing import tuned
from rewarm.sharing.tier import RemoteTier
from rewarm.store.contract import is_key

logger = logging.getLogger("rewarm")

# The kind of these entries, and the row of their components that says the place.
KIND = "tuning"
PLACE = "place"

FOLDER, BATCHES = "autotune", "batches"
REMOTE_FOLDER, INDEX = "tuning", "index"
VERSION = 1

# Hints of one place that are looked at, here or in a remote.
MOST = 10_000

# Of one entry in bytes, as it lies in a remote: 10,000 results take some 3 MB. And of all that one start fetches.
LARGEST = 32 << 20
LARGEST_OF_ALL = 256 << 20

_INDEX_BYTES = 1 << 20
_TRIES = 3
_PAUSE = 0.2
_THREADS = 8
_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}-[0-9a-f]{16}")


def is_place(name: str) -> bool:
    """Whether this can be the name of a place."""
    return _PLACE.fullmatch(name) is not None


def place_of(header: Header) -> str | None:
    """The place that an entry holds results, or a record of the tuner, for; `None` where it is no such entry."""
    digests = tuned.digests_of(header)
    if digests is not None:
        return tuned.place_by(digests)
    if header.kind != KIND:
        return None
    for row in header.components:
        value = row.get("value")
        if row.get("name") == PLACE and isinstance(value, dict) and isinstance(value.get("name"), str):
            is_own = is_place(value["name"]) and not tuned.is_place(value["name"])
            return str(value["name"]) if is_own else None
    return None


# ---------------------------------------------------------------------------------------------------------------
# Here


def note_here(root: Path, place: str, key: str) -> None:
    """An entry of the local store holds results for this place. Never raises."""
    folder = root / FOLDER / place / BATCHES
    with contextlib.suppress(OSError):
        for one in (root / FOLDER, folder.parent, folder):
            small_files.make_folder(one)
        small_files.append(folder / key, b"")


def note_if_tuning(root: Path, header: Header) -> None:
    """As `note_here`, for an entry that came with others, if it is one with results or a record. Never raises."""
    place = place_of(header)
    if header.kind == tuned.KIND:
        tuned.note_here(root, header)
    elif place is not None:
        note_here(root, place, header.key)


def forget_here(root: Path, place: str, key: str) -> None:
    """The entry is not there any more. Never raises."""
    with contextlib.suppress(OSError):
        (root / FOLDER / place / BATCHES / key).unlink()


def known_here(root: Path, place: str) -> list[str]:
    """Keys of entries with results for this place, as far as hints say."""
    with contextlib.suppress(OSError), os.scandir(root / FOLDER / place / BATCHES) as items:
        return sorted(one.name for one in items if is_key(one.name))[:MOST]
    return []


# ---------------------------------------------------------------------------------------------------------------
# In remotes


def hint_name(place: str, key: str) -> str:
    """The name of a hint within a namespace."""
    return f"{REMOTE_FOLDER}/{place}/{key}"


def is_hint(name: str) -> bool:
    """Whether a name within a namespace is one of these hints."""
    return _hinted(name) is not None


def is_index(name: str) -> bool:
    """Whether a name within a namespace is an index of these hints."""
    folder, _, last = name.rpartition("/")
    return last == INDEX and is_hint(f"{folder}/{'0' * 64}")


def _hinted(name: str) -> tuple[str, str] | None:
    parts = name.split("/")
    if len(parts) == 3 and parts[0] == REMOTE_FOLDER and is_place(parts[1]) and is_key(parts[2]):
        return parts[1], parts[2]
    return None


def put_hint(tier: RemoteTier, name: str) -> None:
    """Leave a hint in a remote: a blob, and where that cannot be listed a line of the index, too.

    Raises:
      RemoteError: it is not there.
    """
    found = _hinted(name)
    if found is None:
        raise ValueError(f"not a hint: {name!r:.120}")
    place, key = found
    tier.put_hint(name, b"{}")
    if _listed(tier, tier.namespaces.write, place) is None:
        _add_to_index(tier, place, key)


def known_there(tier: RemoteTier, namespace: str, place: str) -> list[str]:
    """Keys of entries with results for this place, as a remote's hints say.

    Raises:
      RemoteError: there is no answer.
    """
    listed = _listed(tier, namespace, place)
    return (listed if listed is not None else _index(tier, namespace, place))[:MOST]


def _listed(tier: RemoteTier, namespace: str, place: str) -> list[str] | None:
    """By listing; `None` where the remote cannot, or does not let us."""
    prefix = f"{namespace}/{REMOTE_FOLDER}/{place}"
    try:
        names = [blob.name.removeprefix(f"{prefix}/") for blob in tier.blobs.scan(prefix)]
    except NoSuchPlaceError:
        raise
    except RefusedError:
        return None
    return sorted(name for name in names if is_key(name))


def _index(tier: RemoteTier, namespace: str, place: str) -> list[str]:
    try:
        data = tier.blobs.get(f"{namespace}/{REMOTE_FOLDER}/{place}/{INDEX}", limit=_INDEX_BYTES)
    except TooLargeError:  # it is none, and is to be replaced
        return []
    if data is None:
        return []
    try:
        told = json.loads(data)
        found = told["keys"] if told["version"] == VERSION else []
        return [key for key in found if isinstance(key, str) and is_key(key)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


def _add_to_index(tier: RemoteTier, place: str, key: str) -> None:
    for tried in range(_TRIES):
        there = _index(tier, tier.namespaces.write, place)
        if key in there:
            return
        if tried:
            time.sleep(_PAUSE * tried)
        # The newest last; beyond the bound the oldest go.
        kept = [*there, key][-MOST:]
        data = json.dumps({"version": VERSION, "keys": kept}, separators=(",", ":")).encode("ascii")
        tier.put_hint(f"{REMOTE_FOLDER}/{place}/{INDEX}", data)


class Fetching:
    """Entries with results for one place, fetched from all remotes in threads. Begins at once; never raises.

    Args:
      tiers: the remotes.
      place: the place's name.
      have: keys of the entries that are here.
      take: is given what came, checked and trusted, once, in a thread of this; may raise.
      owe: is given a remote that is written to, and the keys of entries that are here and it does not know.
      pass_on: is given an entry as it came from a remote, its namespace there, and that remote's number.

    Attributes:
      found: how many entries came.
    """

    def __init__(
        self,
        tiers: Sequence[RemoteTier],
        place: str,
        have: Iterable[str],
        take: Callable[[dict[str, bytes]], None],
        owe: Callable[[RemoteTier, list[str]], object],
        pass_on: Callable[[str, bytes, str, int], object] = lambda *_: None,
    ) -> None:
        self._tiers = tiers
        self._place = place
        self._have = frozenset(have)
        self._take = take
        self._owe = owe
        self._pass_on = pass_on
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._room = LARGEST_OF_ALL
        self.found = 0
        if not _start(self._run, "rewarm-tuning"):
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Whether all that there is has come, waited for so many seconds at most."""
        return self._done.wait(seconds)

    def _run(self) -> None:
        try:
            came = self._fetch(self._look())
            self.found = len(came)
            if came:
                self._take(came)
        except Exception:
            logger.debug("rewarm: tuning results cannot be fetched", exc_info=True)
        finally:
            self._done.set()

    def _look(self) -> dict[str, int]:
        """What is missing here, and the number of the remote that has it."""
        missing: dict[str, int] = {}
        for number, tier in enumerate(self._tiers):
            for namespace in tier.namespaces.read:
                with contextlib.suppress(RemoteError):
                    there = known_there(tier, namespace, self._place)
                    for key in there:
                        if key not in self._have:
                            missing.setdefault(key, number)
                    if (
                        tier.takes_results
                        and namespace == tier.namespaces.write
                        and (due := sorted(self._have - set(there)))
                    ):
                        self._owe(tier, due)
        return missing

    def _fetch(self, missing: dict[str, int]) -> dict[str, bytes]:
        waiting, came = deque(missing.items()), dict[str, bytes]()

        def work() -> None:
            while waiting and self._room > 0:
                with contextlib.suppress(Exception):  # the queue is empty, or one remote is strict: the others go on
                    key, number = waiting.popleft()
                    found = self._tiers[number].fetch(key, limit=LARGEST)
                    if found is not None:
                        with self._lock:
                            self._room -= len(found.entry)
                            came[key] = found.entry
                        if place_of(open_entry(found.entry, key).header) == self._place:
                            self._pass_on(key, found.blob, found.namespace, number)

        threads = [threading.Thread(target=work, name="rewarm-tuning", daemon=True) for _ in range(_THREADS - 1)]
        for thread in threads[: len(missing) - 1]:
            thread.start()
        work()
        for thread in threads[: max(0, len(missing) - 1)]:
            thread.join()
        return came


def _start(work: Callable[[], None], name: str) -> bool:
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except (RuntimeError, MemoryError):  # at the end of a program none can be started (Python 3.12)
        return False
    return True
