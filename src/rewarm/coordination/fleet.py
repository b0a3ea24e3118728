"""Across hosts one process compiles a key; the others wait for its result.

Not promised: that only one compiles, that the remote is there, or that it keeps what it says it keeps. Where anything
fails, the process compiles for itself, at once. A lease is not signed. It is compared with what it was, and what it
says decides for how long others wait, and nothing else: whoever may write to the remote can keep them waiting, for
their patience at most, or have them compile beside a leader.

    <namespace>/leases/<key>    "rewarm lease 2 " owner " " seat " " signer " " beat " " seconds LF
    owner := process_space "-" pid "-" 8 hex
    signer := 32 hex | "-"

The owner is of one lease alone. The seat is the cache directory of its leader, and the signer the key by which its
entries will be signed. The beat counts; the seconds say when to expect the next one, to whoever looks. A leader puts
its lease where there is none (`only_new`) and again at each beat, and deletes it at the end. One that waits asks for
it, each 0.25 s at first and each 2 s later. No clock is compared with another host's: a leader is silent when its lease
has not changed for `silence` seconds by the clock of the one who waits.

For some leaders nobody waits at all:

* one whose entries would not be accepted here, or never be looked for;
* one of the same seat, where the one who asks leads the key by the directory's own lease (`host.py`): the directory has
  one leader, so that one was killed, or stopped for as long as its host waits for it;
* one whose process is gone, as far as a process here can see that.

The last two leave a lease that is taken over at once.

How long others are delayed by any other leader that does not finish, beyond its last beat: by `silence` and one pause
of 2 s, as long as the remote answers at once; the time that it takes to answer adds to each. Then one of those that
wait puts its own lease over the silent one, and the others wait for that. A process that was found silent is not waited
for again, whatever else it left; and who has waited for three silent ones waits for nobody any more: it leads where
there is no lease, and compiles without one elsewhere.

Races, and their worst outcome, which is that a program is compiled twice:

* several find a leader silent at the same moment: each puts its lease and looks 0.25 s later whose it is; the last one
  leads. A put that takes longer than that makes two leaders.
* a leader that was stopped goes on, while another leads: their beats write over each other. Who ends looks whose lease
  it is before deleting it; should it be the other's a moment later, those that wait find none, and look for the entry.
* one looks in the store before an entry comes, and asks for the lease after its leader ended: it leads. Looking again
  would cost every compilation a round trip.
* the answer to a put is lost: the lease is withdrawn in the background. Where that fails too, or a beat that was given
  up arrives after the end, it has no leader, and the next one who asks waits for `silence`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, NamedTuple

from rewarm.coordination.lead import FLEET, Lead, Turn
from rewarm.coordination.pulse import Pulse
from rewarm.host import host_id, is_gone, process_space
from rewarm.remote.blobs import Blobs, RemoteError

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.25, 2.0, 1.5
_SETTLE = 0.25
_BYTES = 512
_KEPT = 120.0

# After how many silent leaders a process waits for nobody any more.
_SILENT_ONES = 3

_START = "rewarm lease 2 "
_LEASE = re.compile(rb"rewarm lease 2 ([0-9a-f]{16})-([0-9]{1,10})-[0-9a-f]{8} ([0-9a-f]{16}|-) ([0-9a-f]{32}|-) .*\n")
_NOBODY = "-"
_SILENT = "the host that had it in hand is silent"


def seat_of(root: Path) -> str:
    """What names a cache directory in a lease, on this host; "" where that cannot be told."""
    try:
        status = root.stat()
    except OSError:
        return ""
    about = f"{host_id()} {status.st_dev} {status.st_ino}"
    return hashlib.sha256(about.encode("ascii")).hexdigest()[:16]


class _Leader(NamedTuple):
    """Who has a key in hand, as a lease says.

    Attributes:
      space: the processes among which its number means it.
      process: its number.
      seat: its cache directory; "" where it has none.
      signer: the key by which its entry will be signed; "" where it will not be.
    """

    space: str
    process: int
    seat: str
    signer: str

    @classmethod
    def of(cls, data: bytes) -> _Leader | None:
        found = _LEASE.fullmatch(data)
        if found is None:  # another version's, or anybody's
            return None
        space, process, seat, signer = (part.decode("ascii") for part in found.groups())
        return cls(space, int(process), "" if seat == _NOBODY else seat, "" if signer == _NOBODY else signer)

    def is_gone(self) -> bool:
        return bool(process_space()) and self.space == process_space() and is_gone(self.process)


class FleetLeases:
    """The leases of one namespace of one remote. Safe for any number of threads, one at a time for each key.

    Args:
      blobs: the remote, with the time limits that it was made with.
      namespace: under which entries are written.
      enforces: whether the remote keeps to `only_new` (`probe.py`). Where it does not, nobody leads: a lease that two
        hold costs without helping.
      beat: seconds between two beats.
      silence: seconds without a change after which a leader counts as dead; several beats, and no less than the
        remote may take to answer.
      patience: seconds after which one who waits compiles, whatever else.
      seat: the cache directory (`seat_of`).
      signer: the id of the key by which the entries are signed, or "".
      accepts: whether an entry would be used that is signed by the key of this id, or ("") by none; a leader whose
        entry would not is not waited for.
    """

    def __init__(
        self,
        blobs: Blobs,
        namespace: str,
        *,
        enforces: bool,
        seat: str = "",
        signer: str = "",
        accepts: Callable[[str], bool] = lambda _: True,
        beat: float = 2.0,
        silence: float = 10.0,
        patience: float = 3600.0,
    ) -> None:
        self.blobs = blobs
        self.namespace = namespace
        self.enforces = enforces
        self.every = beat
        self.silence = silence
        self.patience = patience
        self.seat = seat
        self.signer = signer
        self.accepts = accepts
        self.pulse = Pulse(beat)
        self.leading: dict[str, _Lease] = {}
        self.silent: set[bytes] = set()

    def lead(self, key: str, found: Callable[[], bool]) -> AbstractContextManager[Lead]:
        """Lead `key` inside the block, or wait for whoever does.

        Asked after a miss, by who leads the key on its host. `found` says whether the remote has the entry; it is
        asked at each look while waiting, and may raise `RemoteError`.
        """
        return _FleetTurn(self, key, found)

    def keep(self, key: str) -> Callable[[], None]:
        """Inside the block of a leader: let the lease outlive the block, for 120 s at most, until what is returned is
        called, from any thread.

        For an entry that is uploaded in the background: others look for it when the lease ends. For one who does not
        lead there is nothing to keep.
        """
        lease = self.leading.get(key)
        return lease.keep() if lease is not None else _nothing

    def close(self, seconds: float = 2.0) -> bool:
        """Wait until the leases that ended are deleted, for so many seconds at most; whether they are.

        What a process leaves behind that does not wait costs the next one who asks for the key `silence` seconds.
        """
        return self.pulse.settle(seconds)


def _nothing() -> None:
    """Nothing was kept, so there is nothing to end."""


class _Lease:
    """Our lease of one key. Beats and the end are the pulse's alone, one after another.

    A process that was forked from its owner has no part in it.
    """

    def __init__(self, leases: FleetLeases, key: str) -> None:
        self.name = f"{leases.namespace}/leases/{key}"
        self._key = key
        self._leases = leases
        self._blobs = leases.blobs
        self._process = os.getpid()
        self._owner = f"{_START}{process_space() or host_id()}-{self._process}-{os.urandom(4).hex()} "
        self._beats = 0
        self._may_be_put = self._ended = False
        self._keep_until = 0.0

    def claim(self) -> bool:
        """Put it where there is none; whether there was none."""
        self._may_be_put = True
        self._may_be_put = self._blobs.put(self.name, self._content(), only_new=True)
        return self._may_be_put

    def take_over(self) -> None:
        """Put it over a silent one."""
        self._may_be_put = True
        self._blobs.put(self.name, self._content())

    def seen(self) -> bytes | None:
        """What lies under its name."""
        return self._blobs.get(self.name, limit=_BYTES)

    def is_ours(self, data: bytes) -> bool:
        """Whether what was seen is ours."""
        return data.startswith(self._owner.encode("ascii"))

    def begin(self) -> None:
        """Beat from now on."""
        self._may_be_put = True
        self._leases.pulse.add(self._beat)
        self._leases.leading[self._key] = self

    def keep(self) -> Callable[[], None]:
        """Beat until what is returned is called, whatever `end` says, for a time."""
        self._keep_until = time.monotonic() + _KEPT
        return self._end_now

    def end(self) -> None:
        """Withdraw it in the background, unless it is kept. Any number of times."""
        if self._leases.leading.get(self._key) is self:
            del self._leases.leading[self._key]
        if not self._keep_until:
            self._end_now()

    def _end_now(self) -> None:
        if self._ended or self._process != os.getpid():
            return
        self._leases.pulse.remove(self._beat)
        if self._may_be_put and not self._leases.pulse.soon(self._withdraw):
            self._withdraw()
        self._ended = True

    def _beat(self) -> None:
        if self._keep_until and time.monotonic() > self._keep_until:
            self._end_now()
        elif not self._ended:
            self._blobs.put(self.name, self._content())

    def _withdraw(self) -> None:
        with contextlib.suppress(RemoteError):  # others find it silent
            data = self.seen()
            if data is not None and self.is_ours(data):
                self._blobs.delete(self.name)

    def _content(self) -> bytes:
        self._beats += 1
        about = f"{self._leases.seat or _NOBODY} {self._leases.signer or _NOBODY}"
        return f"{self._owner}{about} {self._beats} {self._leases.every:g}\n".encode("ascii")


def _process_of(data: bytes) -> bytes:
    """What of a lease names the process that put it; of something else a part of it."""
    found = _LEASE.fullmatch(data)
    return data[: found.end(2)] if found is not None else data[:64]


class _Watch:
    """What one who waits has seen of a lease.

    Attributes:
      seen: its content at the last look.
      leader: whose it is, as far as it says.
      since: when that was first seen, on the monotonic clock.
      put_over: what we put our own over.
      why: why we lead, if we do.
    """

    def __init__(self) -> None:
        self.seen = b""
        self.leader: _Leader | None = None
        self.since = time.monotonic()
        self.put_over: bytes | None = None
        self.why = "no other host had it in hand"

    def look(self, data: bytes) -> None:
        """This lies there now."""
        if data != self.seen:
            self.seen, self.leader, self.since = data, _Leader.of(data), time.monotonic()

    @property
    def was_put_over(self) -> bool:
        """Whether what is seen is what we put our own over."""
        return self.seen == self.put_over


class _FleetTurn(Turn):
    kind: ClassVar[str] = FLEET

    def __init__(self, leases: FleetLeases, key: str, found: Callable[[], bool]) -> None:
        super().__init__(key, leases.patience)
        self._leases = leases
        self._found = found

    def _ask(self) -> Lead:
        if not self._leases.enforces:
            return self._lead("alone", "the remote cannot keep leases")
        lease = _Lease(self._leases, self.key)
        self._held.add(lease.end)
        try:
            if lease.claim():
                return self._take(lease, "no other host had it in hand")
            if not self._may_wait():
                return self._lead("alone", "another host has it in hand, and this thread may not wait")
            return self._wait(lease)
        except RemoteError as error:
            return self._lead("alone", f"no lease is to be had: {error.reason}")
        except Exception as error:  # noqa: BLE001 - no failure of a remote stops a program
            return self._lead("alone", f"no lease is to be had: {type(error).__name__}")

    def _wait(self, lease: _Lease) -> Lead:
        watch, pause = _Watch(), _FIRST_PAUSE
        while not self._found():
            data = lease.seen()
            if data is None:
                return self._lead("waited", "another host had it in hand")
            if lease.is_ours(data):
                return self._take(lease, watch.why)
            watch.look(data)
            left = self._left(watch)
            if (why := self._why_alone(watch, left)) is not None:
                return self._lead("alone", why)
            if left <= 0:
                left = self._put_over(lease, watch)
            time.sleep(min(pause * random.uniform(0.8, 1.0), left))
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)
        return self._lead("waited", "another host compiled it")

    def _left(self, watch: _Watch) -> float:
        """For how many seconds the leader that is seen is still waited for, if nothing of it is heard."""
        if watch.leader is not None and self._is_over(watch.leader):
            return 0.0
        if _process_of(watch.seen) in self._leases.silent and not watch.was_put_over:
            return 0.0
        return self._leases.silence - (time.monotonic() - watch.since)

    def _why_alone(self, watch: _Watch, left: float) -> str | None:
        """Why nobody is waited for, though a lease is there; `None`: somebody is, or the lease is to be taken over."""
        if watch.leader is not None and not self._leases.accepts(watch.leader.signer):
            return "who has it in hand makes no entry that would be used here"
        if self._is_late():
            return f"another host has it in hand for more than {self._patience:.0f} s"
        if left > 0:
            too_many = len(self._leases.silent) >= _SILENT_ONES
            return "another host has it in hand, and too many of them were silent" if too_many else None
        return "the remote does not keep a lease that is put" if watch.was_put_over else None

    def _put_over(self, lease: _Lease, watch: _Watch) -> float:
        """Take over the lease that is seen; returns how many seconds later to look whose it is."""
        leader = watch.leader
        over = leader is not None and self._is_over(leader)
        if not over:
            self._leases.silent.add(_process_of(watch.seen))
        lease.take_over()
        watch.put_over = watch.seen
        watch.why = "the process that had it in hand is gone, or stopped" if over else _SILENT
        # Others may see the same, but for the one leader of a directory.
        return 0.0 if leader is not None and self._is_seated(leader) else _SETTLE

    def _is_over(self, leader: _Leader) -> bool:
        """Whether it is certain that a leader does not go on, or that this directory has another leader since: us."""
        return self._is_seated(leader) or leader.is_gone()

    def _is_seated(self, leader: _Leader) -> bool:
        """Whether its place is ours: who leads by the lease of the directory is the only one who does."""
        return bool(self._leases.seat) and leader.seat == self._leases.seat and self._leads_the_directory()

    def _take(self, lease: _Lease, why: str) -> Lead:
        lease.begin()
        return self._lead("leads", why)
