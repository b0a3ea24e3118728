"""What a remote really does for whoever is asking: a few round trips at the start, instead of surprises later.

Not promised: that it stays so. What could not be found out (no answer, no time left, nothing written because nothing
is to be) is `None`. Whether `only_new` is enforced is asked of the remote itself, since several accept the condition
and overwrite all the same.

One blob is put twice and removed. Its name is one of sixteen, so that a remote which refuses to delete keeps sixteen
blobs for good, not one for each start.

Race: a fleet starts, and processes probe at once with one name. Another's removal between the two puts of one of them
looks like a remote that does not enforce anything, so such a finding is looked for twice; where removals hit both
looks, this process goes without leases. (2 of 100 did of 16 threads that did nothing but probe by one name.) Another's
put between them changes nothing: a put that is refused because there is a blob shows that the remote enforces.
"""

from __future__ import annotations

import itertools
import secrets
import time
from dataclasses import dataclass, field, replace

from rewarm.remote.blobs import (
    Blobs,
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
)

# Of a scan, how many blobs are looked at: others may have left some here.
_LOOK_AT = 200
_LIMIT = 4096
_ROUNDS = 2
_NAMES = 16


@dataclass(frozen=True)
class Findings:
    """What a probe found; `None`: it could not tell.

    Attributes:
      reachable: whether anybody answered.
      place_exists: whether the bucket or folder is there; a server of HTTP only knows when it is written to.
      may_read, may_write, may_list, may_delete: whether these were done. A place where writing is refused is one to
        read from, not a broken one.
      only_new: whether a put with `only_new` leaves what is there.
      clock_offset: how far the remote's clock is ahead, in seconds, to about one; known where it can list.
      throttled: it asked for fewer requests, so that what is `None` was not asked to the end.
      seconds: what the probe took.
      reason: the first thing that went wrong, in a few words; empty where nothing did.
    """

    reachable: bool | None = None
    place_exists: bool | None = None
    may_read: bool | None = None
    may_write: bool | None = None
    may_list: bool | None = None
    may_delete: bool | None = None
    only_new: bool | None = None
    clock_offset: float | None = None
    throttled: bool = False
    seconds: float = 0.0
    reason: str = ""


def probe(
    blobs: Blobs, *, write: bool = True, listing: bool = True, deadline: float = 5.0, under: str = "probes"
) -> Findings:
    """Look at a remote, in eight requests at most; never raises for what a remote does.

    Args:
      blobs: the remote.
      write: whether a blob may be written; without, only reading and listing are found out.
      listing: whether to list: some servers, and rights, know nothing of it.
      deadline: seconds after which no further request is made; the last one may take its own timeout on top.
      under: the prefix of the blob's name, for remotes where not all names may be written.
    """
    looking = _Probe(blobs, f"{under}/{secrets.randbelow(_NAMES):x}", time.monotonic() + deadline)
    began = time.monotonic()
    looking.look(write=write, listing=listing)
    return replace(looking.found, seconds=time.monotonic() - began)


class _StopError(Exception):
    """No further request is of use, or there is no time for one."""


@dataclass
class _Probe:
    blobs: Blobs
    name: str
    end: float
    found: Findings = field(default_factory=Findings)
    data: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    written: float | None = None

    def look(self, *, write: bool, listing: bool) -> None:
        try:
            self._read()
            if write:
                self._write()
            if listing:
                self._list()
        except _StopError:
            pass
        finally:
            self._remove()

    def _note(self, **findings: bool | float | str | None) -> None:
        self.found = replace(self.found, **findings)  # type: ignore[arg-type]

    def _in_time(self) -> None:
        if time.monotonic() > self.end:
            self._note(reason=self.found.reason or "no time left")
            raise _StopError

    def _failed(self, error: RemoteError) -> None:
        """Write down what an error says whatever was asked; goes on only after a refusal."""
        self._note(reason=self.found.reason or error.reason)
        if isinstance(error, NoSuchPlaceError):
            self._note(reachable=True, place_exists=False)
        elif isinstance(error, (RefusedError, ThrottledError)):
            self._note(reachable=True, throttled=isinstance(error, ThrottledError))
        elif isinstance(error, UnreachableError) and self.found.reachable is None:
            self._note(reachable=False)
        if isinstance(error, NoSuchPlaceError) or not isinstance(error, RefusedError):
            raise _StopError

    def _read(self) -> None:
        try:
            self.blobs.get(self.name, limit=_LIMIT)
        except TooLargeError:
            self._note(reachable=True, may_read=True)  # whatever that is: the next look is at what was put
        except RemoteError as error:
            self._note(may_read=False if isinstance(error, RefusedError) else None)
            self._failed(error)
        else:
            self._note(reachable=True, may_read=True)
            if not self.blobs.place.startswith("http"):
                self._note(place_exists=True)

    def _write(self) -> None:
        """Two puts, of which the second must be refused, and a look at what is there now."""
        try:
            for _ in range(_ROUNDS):
                first = self._put()
                self._note(may_write=True, place_exists=True)
                enforced = not first or not self._put()
                self._note(only_new=enforced)
                if enforced:
                    break
            self._read_back()
        except RemoteError as error:
            if self.found.may_write is None and isinstance(error, RefusedError):
                self._note(may_write=False)
            self._failed(error)

    def _put(self) -> bool:
        self._in_time()
        began = time.time()
        written = self.blobs.put(self.name, self.data, only_new=True)
        if written:
            self.written = began
        return written

    def _read_back(self) -> None:
        self._in_time()
        got = self.blobs.get(self.name, limit=_LIMIT)
        if got is None or len(got) != len(self.data):  # another process may have put its own
            self._note(may_read=False, reason=self.found.reason or "what was put is not what is got")
        elif self.found.may_read is False:
            # As S3 has it for those who may not list. A miss is then a refusal, and no more than that.
            self._note(may_read=True, reason="a missing blob is refused (no right to list)")

    def _list(self) -> None:
        self._in_time()
        try:
            blobs = itertools.islice(self.blobs.scan(self.name.rpartition("/")[0]), _LOOK_AT)
            modified = next((info.modified for info in blobs if info.name == self.name), None)
        except RemoteError as error:
            self._note(may_list=False if isinstance(error, RefusedError) else None)
            self._failed(error)
        else:
            self._note(may_list=True)
            if modified is not None and self.written is not None:
                self._note(clock_offset=modified - self.written)

    def _remove(self) -> None:
        if not self.found.may_write:
            return
        try:
            self.blobs.delete(self.name)
            self._note(may_delete=True)
        except RefusedError:
            self._note(may_delete=False)
        except RemoteError:
            pass
