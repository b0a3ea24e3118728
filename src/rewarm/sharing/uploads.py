"""Entries on their way to remotes: a bounded queue, worked off in the background, that survives the process.

Not promised: that an entry arrives. A remote that is away for longer than the process lives gets it from a later start,
as long as the entry is still in the local store; what is thrown out of a full queue does not arrive before. No program
waits for a remote, but for a moment at its end (`drain`).

The bytes are read from the local store when their turn comes, so the queue holds keys alone. Only of what is not kept
locally it holds bytes, up to 256 MiB. What a later start is to send is marked on disk (`markers.py`).

A queue has one thread from `resume` on: at the end of a program none can be started (Python 3.12), and what is queued
then is still to be sent. Nor can every client be imported then for the first time, so where something is owed `resume`
imports it, at the price of a fifth of a second in such a start. What comes too late all the same stays marked.

Races, and their worst outcome:

* two processes of one directory send the same entry: it is put twice, and both are equally good.
* an entry that was evicted before its turn: it does not go.
* a fork: the child has an empty queue and no thread; what was queued is the parent's.

A process that does not write, since it is not the first one of its job, leaves markers all the same: where the first
one has the same directory, it sends what they name, at its end (`take_up`) or at a later start.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from rewarm.errors import BadEntryError
from rewarm.remote.blobs import (
    RefusedError,
    RemoteError,
    TakenError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
)
from rewarm.sharing import tuning
from rewarm.sharing.forks import renew_in_child
from rewarm.sharing.maker import Maker
from rewarm.sharing.markers import Markers, sweep
from rewarm.sharing.tier import CannotSignError, RemoteTier
from rewarm.store.contract import is_key

# How many entries wait for one remote at most; of more the oldest are left out.
_QUEUED = 10_000
_HELD_BYTES = 256 << 20

# After a failure a remote is left alone for this long, in seconds, doubled each time up to the second.
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0

# Before the key of an entry that goes on as it came; no name within a namespace begins so.
_AS_IT_CAME = "="

# Once the program ends, a remote that asked for patience so often, and took nothing, is left to a later start.
_THROTTLES_AT_END = 4

# How often `drain` says that it still waits, in seconds.
_BEAT = 0.5


class Uploads:
    """The queues of one process, one for each remote that is written to. No method raises, and only `drain` waits.

    Args:
      root: the cache directory, or `None` where nothing can be written to it.
      tiers: the remotes; those that are not written to have no queue, but for tuning results, where they take those.
      read: the bytes of an entry of the local store, or `None`.
      tell: says one line to the user.
      threads: how many entries go to one remote at the same time.
      made: whether an entry of the local store was made here. Others are not signed, so they do not go: what lies under
        a key when its turn comes need not be what lay there when it was queued.
      maker: who makes entries here, whose markers these are; by default the user, without a key.
    """

    def __init__(
        self,
        root: Path | None,
        tiers: Sequence[RemoteTier],
        read: Callable[[str], bytes | None],
        tell: Callable[[str], None],
        *,
        threads: int = 4,
        made: Callable[[bytes], bool] = lambda _: True,
        maker: Maker | None = None,
    ) -> None:
        self._root = root

        def read_if_made(key: str) -> bytes | None:
            data = read(key)
            return data if data is not None and made(data) else None

        taking = [tier for tier in tiers if tier.writes or tier.takes_results]
        self._all = [Queue(root, tier, read_if_made, tell, threads, maker) for tier in taking]
        self._queues = [queue for queue in self._all if queue.tier.writes]
        self._left_to_others = [queue.markers for queue in self._all if not queue.tier.writes]

    def announce(self, key: str) -> None:
        """An entry is about to be stored: should this process be killed meanwhile, a later start sends it."""
        for queue in self._queues:
            queue.markers.add(key)
        for markers in self._left_to_others:
            markers.add(key)

    def add(self, key: str, entry: bytes | None, tiers: Collection[RemoteTier] | None = None) -> None:
        """An entry is to go to these remotes, or to all; `None` for its bytes: they are in the local store."""
        for queue in self._queues:
            if tiers is None or queue.tier in tiers:
                queue.add(key, entry)

    def pass_on(self, key: str, blob: bytes, tiers: Collection[RemoteTier]) -> None:
        """An entry that somebody else made is to go to these remotes, as it is; it may get lost."""
        for queue in self._queues:
            if queue.tier in tiers:
                queue.add_hint(f"{_AS_IT_CAME}{key}", blob)

    def pass_on_results(self, place: str, key: str, blob: bytes, tiers: Collection[RemoteTier]) -> None:
        """As `pass_on`, for an entry with tuning results, and once it is there the hint by which others find it."""
        for queue in self._all:
            if queue.tier in tiers and queue.tier.takes_results:
                queue.add_hint(f"{_AS_IT_CAME}{key}", blob, then=tuning.hint_name(place, key))

    def add_hint(self, name: str, data: bytes, tiers: Collection[RemoteTier] | None = None) -> None:
        """Something that is no entry is to go to these remotes, or to all, under a name within their namespace; it may
        get lost."""
        for queue in self._queues:
            if tiers is None or queue.tier in tiers:
                queue.add_hint(name, data)

    def add_results(self, place: str, key: str, tiers: Collection[RemoteTier] | None = None) -> None:
        """An entry of the local store with tuning results is to go to these remotes, or to all, and, once it is there,
        the hint by which others find it; none for one that is larger than anybody fetches."""
        for queue in self._all:
            if queue.tier.takes_results and (tiers is None or queue.tier in tiers):
                queue.add(key, None, hint=tuning.hint_name(place, key))

    def when_settled(self, key: str, tier: RemoteTier, act: Callable[[], None]) -> None:
        """Call `act`, in whatever thread, when the entry arrived in this remote, or is given up by this process; at
        once where it is not on its way."""
        for queue in self._queues:
            if queue.tier is tier:
                queue.when_settled(key, act)
                return
        act()

    def resume(self, *, load: bool = False) -> None:
        """Take up what earlier processes could not send. `load`: there will be something to send at the end."""
        for queue in self._queues:
            queue.resume(load=load)
        if self._root is not None and self._queues:
            sweep(self._root)

    def take_up(self) -> None:
        """Take up what other processes of the same maker left since, or are just sending themselves."""
        for queue in self._queues:
            queue.take_up()

    def drain(self, seconds: float, waits: Callable[[int], None] | None = None) -> int:
        """Wait until all are sent, for so many seconds, and for a remote that does not answer only until it is known.

        Returns how many are left. `waits` hears how many there are, twice a second.
        """
        until = time.monotonic() + seconds
        for queue in self._all:
            queue.hurry()
        while (rest := until - time.monotonic()) > 0:
            hopeful = next((one for one in self._all if one.is_hopeful(until)), None)
            if hopeful is None:
                break
            if waits is not None:
                waits(self.waiting())
            hopeful.wait(min(rest, _BEAT))
        return self.waiting()

    def waiting(self) -> int:
        """How many entries have not arrived yet, counted for each remote."""
        return sum(queue.waiting() for queue in self._all)


class Queue:
    """What is to go to one remote. No method raises.

    Attributes:
      tier: the remote.
      markers: what of it a later start is to send.
    """

    def __init__(
        self,
        root: Path | None,
        tier: RemoteTier,
        read: Callable[[str], bytes | None],
        tell: Callable[[str], None],
        threads: int,
        maker: Maker | None = None,
    ) -> None:
        self.tier = tier
        self.markers = Markers(root, f"{tier.identity} {tier.namespaces.write}", maker=maker)
        self._read = read
        self._tell = tell
        self._most_threads = threads
        self._renew()
        renew_in_child(self, Queue._renew)

    def _renew(self) -> None:
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, bytes | None] = OrderedDict()
        self._held = 0
        self._under_way: set[str] = set()
        self._watchers: dict[str, Callable[[], None]] = {}
        self._hints: dict[str, str] = {}
        self._threads = 0
        self._idle = 0
        self._not_before = 0.0
        self._pause = _PAUSE
        self._throttled = False
        self._throttles = 0  # in a row, since the program ends
        self._hurries = False
        self._hopeless = False
        self._off = False
        self._too_large_told = self._taken_told = False

    def add(self, key: str, entry: bytes | None, *, hint: str = "") -> None:
        """An entry is to go there, see `Uploads.add`, and after it the hint of this name."""
        self.markers.add(key)
        with self._changed:
            if not self._off:
                self._push(key, entry)
                if hint:
                    self._hints[key] = hint
                self._start()

    def add_hint(self, name: str, data: bytes, *, then: str = "") -> None:
        """See `Uploads.add_hint`; after it the hint of another name."""
        with self._changed:
            if not self._off:
                self._push(name, data)
                if then:
                    self._hints[name] = then
                self._start()

    def when_settled(self, key: str, act: Callable[[], None]) -> None:
        """See `Uploads.when_settled`."""
        with self._changed:
            if key in self._waiting or key in self._under_way:
                self._watchers[key] = act
                return
        act()

    def resume(self, *, load: bool = False) -> None:
        """Take up what is marked. Where that is anything, or will be (`load`), the client is imported now, before the
        program goes on, since a short program would be at its end before it is."""
        left = self.markers.left()
        self.tier.have_ready(load=load or bool(left))
        self._take_up(left)

    def take_up(self) -> None:
        """See `Uploads.take_up`."""
        self._take_up(self.markers.left())

    def _take_up(self, left: Iterable[str]) -> None:
        with self._changed:
            for key in left if not self._off else ():
                if key not in self._waiting and key not in self._under_way:
                    self._push(key, None)
            self._start()

    def waiting(self) -> int:
        """How many entries have not arrived yet."""
        with self._changed:
            return sum(is_key(name) for name in (*self._waiting, *self._under_way))

    def wait(self, seconds: float) -> None:
        """Wait until something is settled."""
        with self._changed:
            if self._waiting or self._under_way:
                self._changed.wait(seconds)

    def hurry(self) -> None:
        """The process ends: ask a remote again at once, unless it asked for patience itself, and only once."""
        with self._changed:
            self._hurries = True
            if not self._throttled:
                self._not_before = 0.0
            self._start()
            self._changed.notify_all()

    def is_hopeful(self, until: float) -> bool:
        """Whether something may yet arrive by then, on the monotonic clock."""
        with self._changed:
            soon = self._not_before < until and self._threads > 0 and not self._hopeless
            return bool(self._under_way) or (bool(self._waiting) and soon)

    # -- under the lock ----------------------------------------------------------------------------------------

    def _push(self, key: str, entry: bytes | None) -> None:
        self._drop(key)
        self._waiting[key] = entry
        self._held += len(entry or b"")
        while self._waiting and (len(self._waiting) > _QUEUED or self._held > _HELD_BYTES):
            oldest = next(iter(self._waiting))
            self._drop(oldest)
            self._hints.pop(oldest, None)

    def _drop(self, key: str) -> None:
        self._held -= len(self._waiting.pop(key, None) or b"")

    def _start(self) -> None:
        """See to it that there are threads: one, or as many as what waits is worth. Where none can be started, those
        that are there must do."""
        wanted = max(1, min(self._most_threads, len(self._waiting)))
        if self._idle:
            self._changed.notify_all()
        for _ in range(wanted - self._threads):
            try:
                threading.Thread(target=self._work, name="rewarm-upload", daemon=True).start()
            except (RuntimeError, MemoryError):
                return
            self._threads += 1

    def _next(self) -> tuple[str, bytes | None] | None:
        """The next entry, once the remote is to be asked again; `None`: this thread is not needed any more."""
        with self._changed:
            while True:
                pause = self._not_before - time.monotonic()
                if self._waiting and pause <= 0:
                    key, entry = self._waiting.popitem(last=False)
                    self._held -= len(entry or b"")
                    self._under_way.add(key)
                    return key, entry
                if not self._waiting and self._threads > 1:
                    self._threads -= 1
                    return None
                self._idle += 1
                self._changed.wait(pause if self._waiting else None)
                self._idle -= 1

    # -- in the threads of the queue ---------------------------------------------------------------------------

    def _work(self) -> None:
        while (one := self._next()) is not None:
            key, entry = one
            try:
                error = self._send(key, entry)
            except Exception as odd:  # noqa: BLE001 - a thread that ends here would leave the queue to itself
                error = RemoteError(type(odd).__name__)
            self._settle(key, entry, error)
            del one, entry  # an idle thread holds no bytes

    def _send(self, key: str, entry: bytes | None) -> RemoteError | None:
        """Send it; the error says that it did not arrive. What is not there any more, or is damaged, does not go."""
        data = entry if entry is not None else self._read(key)
        if data is None:
            self.markers.missed(key)
            self._hinted(key)
            return None
        try:
            self._put(key, data)
        except TooLargeError as error:  # it never will be
            self.markers.remove(key)
            self._hinted(key)
            self._tell_too_large(key, data, error)
        except TakenError as error:
            self.markers.remove(key)
            self._hinted(key)
            self._tell_taken(key, error)
        except RemoteError as error:
            return error
        except BadEntryError:  # damaged since: the next that asks for it puts it aside and makes it anew
            self.markers.remove(key)
            self._hinted(key)
        else:
            self.markers.remove(key)
            hint = self._hinted(key)
            if hint and len(data) <= tuning.LARGEST:
                self.add_hint(hint, b"")
        return None

    def _hinted(self, key: str) -> str:
        """The hint that was to follow an entry, which is settled now."""
        with self._changed:
            return self._hints.pop(key, "")

    def _tell_too_large(self, key: str, data: bytes, error: TooLargeError) -> None:
        name = key.removeprefix(_AS_IT_CAME)
        if is_key(name) and not self._too_large_told:
            self._too_large_told = True
            self._tell(
                f"{self.tier.place}: entry {name[:12]} of {len(data)} bytes is {error.reason} and does not go there; "
                "more of this kind are only counted. Raise its limit, then rewarm sync push"
            )

    def _tell_taken(self, key: str, error: TakenError) -> None:
        name = key.removeprefix(_AS_IT_CAME)
        if is_key(name) and not self._taken_told:
            self._taken_told = True
            self._tell(
                f"{self.tier.place}: entry {name[:12]} does not go there: {error.reason}; more of this kind are only "
                "counted. Trust the key of whoever put it there, or use a namespace of your own"
            )

    def _put(self, name: str, data: bytes) -> None:
        if is_key(name):
            self.tier.put(name, data)
        elif name.startswith(_AS_IT_CAME):
            self.tier.put_as_it_came(name.removeprefix(_AS_IT_CAME), data)
        elif tuning.is_hint(name):
            tuning.put_hint(self.tier, name)
        else:
            self.tier.put_hint(name, data)

    def _settle(self, key: str, entry: bytes | None, error: RemoteError | None) -> None:
        with self._changed:
            self._under_way.discard(key)
            if error is None:
                self._pause, self._throttled, self._throttles = _PAUSE, False, 0
            elif isinstance(error, RefusedError):
                self._turn_off(error)
            elif isinstance(error, UnreachableError | ThrottledError):
                if key not in self._waiting:
                    self._push(key, entry)
                self._wait_longer(error)
            # Else it is this entry's trouble: the others go on, and a later start tries it again.
            gone = [one for one in self._watchers if one not in self._waiting and one not in self._under_way]
            told = [self._watchers.pop(one) for one in gone]
            self._changed.notify_all()
        for act in told:
            act()

    def _wait_longer(self, error: UnreachableError | ThrottledError) -> None:
        self._throttled = isinstance(error, ThrottledError)
        asked = error.retry_after if isinstance(error, ThrottledError) else None
        pause = min(asked if asked is not None else self._pause, _LONGEST_PAUSE)
        self._not_before = max(self._not_before, time.monotonic() + pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._throttles += self._hurries and self._throttled
        in_vain = not self._throttled or self._throttles >= _THROTTLES_AT_END
        self._hopeless = self._hopeless or (self._hurries and in_vain)

    def _turn_off(self, error: RefusedError) -> None:
        """Nothing can be written there by this process; what is marked stays for one that can."""
        if not self._off and isinstance(error, CannotSignError):  # the guard says the rest
            self._tell(f"{self.tier.place} is not written to: {error.reason}")
        self._off = True
        self._waiting.clear()
        self._held = 0
