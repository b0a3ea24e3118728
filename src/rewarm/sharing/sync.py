"""Bringing a local store and a remote together: what one has and the other has not is sent over.

Not promised: a snapshot. Entries that come or go meanwhile may or may not be sent. What comes from a remote is checked
and trusted as at any other time, or refused.

A remote that does not answer, or asks for fewer requests, is asked again (`_Patience`), until it answered nothing for
as long as the caller says, and from the start for a few seconds only: that is more like a wrong address.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError, StoreError
from rewarm.remote.blobs import (
    PASSED_OVER,
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
)
from rewarm.sharing import tuning
from rewarm.sharing.made import Made
from rewarm.sharing.tier import RemoteTier
from rewarm.store import LocalStore
from rewarm.telling import say_nothing
from rewarm.trust import RefusedEntryError

T = TypeVar("T")

_THREADS = 8

# Seconds for which a remote that answers nothing is asked again; the second: one that never answered.
PATIENCE = 60.0
_FIRST_PATIENCE = 4.0

# Between two attempts, in seconds, doubled each time up to the second. The guard of the remote lets no request go for
# a time as well: where that is so, it is asked again after the third.
_PAUSE, _LONGEST_PAUSE = 1.0, 8.0
_GLANCE = 0.25

# How often it is said that this goes on, in seconds.
_BEAT = 10.0

# Why an entry was passed over: a signature of ours would say that we made it.
NOT_MADE = "not made here"

# What is said of such entries, after their number.
NOT_MADE_LINE = "passed over, since not known to be made here; rewarm sync push --all sends them, with your signature"

# Why an entry that was fetched is not here.
LEFT = "not kept: the directory may not hold more (max_size, max_entries, max_age)"

# The kinds of entries that say what does not compile (`prewarm/shared_failures.py`), and what was compiled ahead
# (`prewarm/ahead_notes.py`). Nobody keeps them here.
FAILURE = "failure"
AHEAD_NOTE = "ahead"


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
    store: LocalStore,
    tier: RemoteTier,
    keys: Iterable[str],
    *,
    made: Made | None,
    verify: bool = False,
    patience: float = PATIENCE,
    tell: Callable[[str], None] = say_nothing,
    there_already: Callable[[int], object] = lambda _: None,
    begins: Callable[[int], object] = lambda _: None,
) -> Iterator[Sent]:
    """Send these entries, but for those that the remote has in the namespace that is written to.

    A remote that cannot list is sent all of them.

    Args:
      made: what this user made here; other entries are passed over. `None`: they are sent, and so signed, too.
      verify: fetch what the remote has, and send anew what would be refused (another key, damage).
      patience: seconds for which a remote that answers nothing is asked again, in the middle of it.
      tell: hears one line when that begins, and every ten seconds.
      there_already: hears how many are not sent since the remote has one of their key, which nobody has looked at.
      begins: hears how many are to be sent, or looked at, before the first is.

    Raises:
      RemoteError: it is not there, or there is no answer.
    """
    patient = _Patience(tier.place, patience, tell)
    there = patient.ask(lambda: _listed(tier, (tier.namespaces.write,)))
    named = list(keys)
    wanted = [key for key in named if there is None or verify or key not in there]
    there_already(len(named) - len(wanted))
    begins(len(wanted))

    def send(key: str) -> Sent | None:
        with _reasons() as problem:
            if there is not None and key in there and patient.ask(lambda: _is_good(tier, key)):
                return None
            problem.append(patient.ask(lambda: _push(store, tier, key, made)))
        return Sent(key, "push", problem[0])

    return _all(wanted, send, patient)


def _is_good(tier: RemoteTier, key: str) -> bool:
    try:
        return tier.header(tier.namespaces.write, key) is not None
    except (RefusedEntryError, BadEntryError, TooLargeError):
        return False


def look(tier: RemoteTier, *, patience: float = PATIENCE, tell: Callable[[str], None] = say_nothing) -> None:
    """See that a remote can be listed, before anything is made for what comes from there.

    Raises:
      RemoteError: it cannot.
    """
    patient = _Patience(tier.place, patience, tell)
    patient.ask(lambda: [next(iter(tier.scan(namespace)), None) for namespace in tier.namespaces.read])


def pull(
    store: LocalStore,
    tier: RemoteTier,
    *,
    patience: float = PATIENCE,
    tell: Callable[[str], None] = say_nothing,
    begins: Callable[[int], object] = lambda _: None,
) -> Iterator[Sent]:
    """Fetch what the namespaces that are read have, and the store has not; the rest is as for `push`.

    Where the store has bounds, an entry that came may go again as others come; `not_kept` says which did.

    Raises:
      RemoteError: the remote cannot be listed.
    """
    patient = _Patience(tier.place, patience, tell)
    have = {info.key for info in store.scan()}
    there = patient.ask(lambda: {info.key for namespace in tier.namespaces.read for info in tier.scan(namespace)})

    def fetch(key: str) -> Sent | None:
        with _reasons() as problem:
            entry = patient.ask(lambda: tier.asked_for(key))
            if entry is not None and open_entry(entry, key).header.kind in (FAILURE, AHEAD_NOTE):
                return None
            problem.append(_pull(store, entry, key))
        return Sent(key, "pull", problem[0])

    wanted = sorted(there - have)
    begins(len(wanted))
    return _within_bounds(store, _all(wanted, fetch, patient))


def _within_bounds(store: LocalStore, sent: Iterator[Sent]) -> Iterator[Sent]:
    """A put makes room for itself alone, so the bound may be passed by what several threads put at once."""
    yield from sent
    bounds, (size, entries) = store.bounds, store.total()
    if size > (bounds.max_size or math.inf) or entries > (bounds.max_entries or math.inf):
        with contextlib.suppress(StoreError):
            for _ in store.collect(bounds):
                pass


def not_kept(store: LocalStore, sent: Iterable[Sent]) -> list[Sent]:
    """What became of these entries by now: one that came and has gone again, since others came that are worth more, did
    not arrive."""
    return [
        one._replace(problem=LEFT) if one.direction == "pull" and one.problem is None and gone(store, one.key) else one
        for one in sent
    ]


def gone(store: LocalStore, key: str) -> bool:
    """Whether what was put into a store is not there any more."""
    return not store.path(key).exists()


def _listed(tier: RemoteTier, namespaces: Iterable[str]) -> set[str] | None:
    try:
        return {info.key for namespace in namespaces for info in tier.scan(namespace)}
    except NoSuchPlaceError:
        raise
    except RefusedError:
        return None


def _all(keys: list[str], send: Callable[[str], Sent | None], patient: _Patience) -> Iterator[Sent]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="rewarm-sync") as pool, patient:
        patient.left = len(keys)
        for sent in pool.map(send, keys):
            patient.left -= 1
            if sent is not None:
                yield sent


class _Patience:
    """Asks a remote again that did not answer, for all threads of one direction.

    They wait together: the first that gets no answer says for how long. Leaving its context ends all waiting.
    """

    def __init__(self, place: str, seconds: float, tell: Callable[[str], None]) -> None:
        self._place = place
        self._seconds = seconds
        self._tell = tell
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._heard = time.monotonic()
        self._ever_heard = False
        self._not_before = 0.0
        self._pause = _PAUSE
        self._told = -math.inf
        self._trouble: UnreachableError | ThrottledError | None = None
        self.left = 0

    def __enter__(self) -> None:
        self._heard = time.monotonic()  # what was done here since then is not its silence

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def ask(self, work: Callable[[], T]) -> T:
        """What it returns.

        Raises:
          RemoteError: nothing was answered for too long; or one that another attempt would not change, at once.
        """
        while True:
            try:
                result = work()
            except (UnreachableError, ThrottledError) as error:
                self._trouble = error if self._trouble is None or not _is_echo(error) else self._trouble
                if not self._wait(error, self._trouble.reason):
                    raise self._trouble from None
            except Exception:
                self._answered()
                raise
            else:
                self._answered()
                return result

    def _answered(self) -> None:
        with self._lock:
            self._heard, self._ever_heard, self._pause = time.monotonic(), True, _PAUSE

    def _wait(self, error: UnreachableError | ThrottledError, reason: str) -> bool:
        """Wait for the next attempt; whether there is to be one."""
        now = time.monotonic()
        with self._lock:
            if self._not_before <= now:
                self._not_before = now + self._next_pause(error)
            until = self._heard + (self._seconds if self._ever_heard else min(self._seconds, _FIRST_PATIENCE))
            again = min(self._not_before, until)
            tells = now < until and self._ever_heard and now - self._told >= _BEAT
            if tells:
                self._told = now
        if tells:
            self._tell(
                f"{self._place}: {reason}; {self.left} to go, asked again until it answers nothing for "
                f"{self._seconds:g} s"
            )
        return now < until and not self._over.wait(again - now)

    def _next_pause(self, error: UnreachableError | ThrottledError) -> float:
        if isinstance(error, ThrottledError) and error.retry_after is not None:
            return max(_GLANCE, error.retry_after)
        if _is_echo(error):
            return _GLANCE
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        return pause


def _is_echo(error: RemoteError) -> bool:
    """Whether a request was not made, since others had no answer."""
    return error.reason.startswith(PASSED_OVER)


@contextlib.contextmanager
def _reasons() -> Iterator[list[str | None]]:
    """A list that holds, at the end, why an entry did not arrive, or `None`."""
    problem: list[str | None] = []
    try:
        yield problem
    except (RemoteError, BadEntryError) as error:
        problem.append(error.reason)
    except RefusedEntryError as error:
        problem.append(f"refused: {error.reason}")
    except StoreError as error:
        problem.append(error.strerror or str(error))


def _push(store: LocalStore, tier: RemoteTier, key: str, made: Made | None) -> str | None:
    entry = store.get(key, use=False)
    if entry is None:
        return "it is gone"
    if made is not None and not made.has(entry):
        return NOT_MADE
    tier.put(key, entry)
    place = tuning.place_of(open_entry(entry, key).header)
    if place is not None:
        tuning.put_hint(tier, tuning.hint_name(place, key))
    return None


def _pull(store: LocalStore, entry: bytes | None, key: str) -> str | None:
    if entry is None:
        return "it is gone"
    header = open_entry(entry, key).header
    store.put(key, entry, seconds=header.compile_seconds)
    tuning.note_if_tuning(store.root, header)
    return None
