"""One remote as a place of entries: how they are named there, who signed them, and what is not accepted.

Not promised: an answer. A remote that cannot give one is a miss here, and what came from it and is not an entry that
may be trusted is refused before a byte of it is unpacked.

    <namespace>/<2 hex>/<64 hex>    an entry, in the form of `trust/frame.py`

A process writes to one namespace and reads from that and from others. The namespace is part of what is signed, so an
entry cannot be carried from one to another.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rewarm.envelope import Header, open_entry
from rewarm.remote.blobs import (
    BlobInfo,
    Blobs,
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
)
from rewarm.remote.guard import Guarded
from rewarm.sharing.forks import renew_in_child
from rewarm.store.contract import EntryInfo, is_key
from rewarm.trust import (
    STRANGER,
    Keyring,
    Posture,
    RefusedEntryError,
    Trusted,
    UnusableKeyError,
    signed,
    trusted,
    unsigned_entry,
)

# Of one blob, in bytes: an executable of a gigabyte is none that XLA makes.
LARGEST = 1 << 30

OVERSIZED = f"larger than {LARGEST >> 30} GiB"

_COUNTED = "more of this kind are only counted"

NO_KEY = "there is no key to sign with (make one with rewarm keys new), and what is not signed is accepted by nobody"


class CannotSignError(RefusedError):
    """This process has no key that it could sign with, and what is not signed would be accepted by nobody."""


class Namespaces(NamedTuple):
    """Where entries lie in a remote.

    Attributes:
      write: the one that is written to.
      read: those that are read, in this order; `write` among them or not.
    """

    write: str
    read: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """What a process had of one remote.

    Attributes:
      place: which remote.
      state: whether it is asked: "ok", "dead", "throttled", "read-only" or "off".
      hits: entries that came from it and were accepted.
      misses: look-ups that found nothing.
      refused: entries that were not accepted, by reason.
      failures: requests without an answer, by reason.
      written: entries that were put there.
      bytes_read: of accepted entries.
      bytes_written: of entries that were put there.
    """

    place: str
    hits: int = 0
    misses: int = 0
    refused: Mapping[str, int] = dataclasses.field(default_factory=dict)
    failures: Mapping[str, int] = dataclasses.field(default_factory=dict)
    written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    state: str = "ok"


class Came(NamedTuple):
    """An entry that came from a remote.

    Attributes:
      entry: checked and trusted.
      blob: as it lies there: with the signature of who made it.
      namespace: where it lay.
    """

    entry: bytes
    blob: bytes
    namespace: str


class RemoteTier:
    """Entries in one remote. Safe for any number of threads.

    Args:
      blobs: the remote, with its deadlines.
      namespaces: where to write and to read.
      keyring: who is trusted, and with what is signed.
      posture: what is asked of an entry.
      writes: whether anything is put there.
      tell: says one line to the user; hears of each reason to refuse once.
      fails: an operation that fails raises, since the user wants to know of each.
      keeps_only_new: whether remotes of this kind leave a blob that is there when a put says so; `None`: some do.
      takes_results: whether tuning results are put there, as those of each process of a job are, where executables are
        one process's; by default what `writes` says.
      identity: tells it from others of the same `place`, such as one bucket's name at two endpoints; by default its
        place.

    Attributes:
      blobs, namespaces, posture, writes, fails, keeps_only_new, takes_results, identity: see above.
      round_trip: what the quickest look-up took that found nothing, in seconds; 0 before the first. The others waited
        for their turn, too.
    """

    def __init__(
        self,
        blobs: Blobs,
        *,
        namespaces: Namespaces,
        keyring: Keyring,
        posture: Posture,
        writes: bool,
        tell: Callable[[str], None],
        fails: bool = False,
        keeps_only_new: bool | None = False,
        takes_results: bool | None = None,
        identity: str = "",
    ) -> None:
        self.blobs = blobs
        self.namespaces = namespaces
        self.posture = posture
        self.writes = writes
        self.fails = fails
        self.keeps_only_new = keeps_only_new
        self.takes_results = writes if takes_results is None else takes_results
        self.identity = identity or blobs.place
        self.round_trip = 0.0
        self._keyring = keyring
        self._tell = tell
        self._told: set[tuple[str, str]] = set()
        self._renew()
        renew_in_child(self, RemoteTier._renew)
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def _renew(self) -> None:
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """Which remote, without credentials."""
        return self.blobs.place

    def traffic(self) -> Traffic:
        """What came and went so far."""
        state = self.blobs.traffic().state if isinstance(self.blobs, Guarded) else "ok"
        with self._lock:
            refused, failures = dict(self._refused), dict(self._failures)
            return Traffic(self.place, state=state, refused=refused, failures=failures, **self._counts)

    def have_ready(self, *, load: bool) -> None:
        """See to what is needed to write at the end of the program (`Guarded.have_ready`). Never raises."""
        if isinstance(self.blobs, Guarded):
            self.blobs.have_ready(load=load)

    def get(self, key: str, *, limit: int = LARGEST, again: bool = False) -> bytes | None:
        """The bytes of a checked entry that may be trusted; see `fetch`.

        Raises:
          RemoteError: there is no answer, and this remote `fails`.
        """
        came = self.fetch(key, limit=limit, again=again)
        return came.entry if came is not None else None

    def fetch(self, key: str, *, limit: int = LARGEST, again: bool = False) -> Came | None:
        """A checked entry that may be trusted, or `None`, whatever the reason.

        Of more than `limit` bytes nothing is fetched. A look that is one of many, by who waits for the entry, says
        `again`, and counts only if it finds something.

        Raises:
          RemoteError: there is no answer, and this remote `fails`.
        """
        for namespace in self.namespaces.read:
            since = time.perf_counter()
            try:
                blob = self.blobs.get(name_of(namespace, key), limit=limit)
            except RemoteError as error:
                self._count_failure(error, tell=True)
                if isinstance(error, TooLargeError) and limit == LARGEST:
                    self._tell_once(
                        ("failure", error.reason), f"{self.place}: entry {key[:12]} is refused: {OVERSIZED}; {_COUNTED}"
                    )
                if self.fails:
                    raise
                if isinstance(error, UnreachableError | ThrottledError | RefusedError):
                    return None
                continue  # it is this blob's trouble
            if blob is not None and (entry := self._accepted(blob, key, namespace)) is not None:
                self._count(hits=1, bytes_read=len(entry))
                return Came(entry, blob, namespace)
            if blob is None:
                took = time.perf_counter() - since
                self.round_trip = min(self.round_trip or took, took)
        self._count(misses=int(not again))
        return None

    def accept(self, blob: bytes, key: str, namespace: str) -> Trusted | None:
        """The entry in a blob that came from here in a pack, once it is checked and may be trusted; else `None`."""
        try:
            entry = trusted(blob, key, namespace, self._keyring, self.posture)
        except RefusedEntryError as error:
            self._refuse(key, error)
            return None
        self._count(hits=1, bytes_read=len(entry.data))
        return entry

    def as_put(self, key: str, entry: bytes) -> bytes:
        """The blob in which an entry would be put.

        Raises:
          CannotSignError, UnusableKeyError: it cannot be signed, and nobody would accept it.
          BadEntryError: it is not a sound entry of this key.
        """
        return self._signed(entry, key)

    def publishes_as(self) -> str | None:
        """The id of the key by which what is put is signed; "": it is not signed, and need not be. `None`: nothing can
        be put that others would accept. A command for the key may be run for this. Never raises."""
        try:
            signer = self._keyring.signing_key()
            if signer is not None:
                return signer.id
        except UnusableKeyError:
            return None
        return "" if self.posture.takes_unsigned else None

    def would_accept(self, signer: str) -> bool:
        """Whether an entry in the namespace that is written to would be used here, which the key of this id, or ("")
        nobody, signs. Never raises."""
        if self.namespaces.write not in self.namespaces.read or self._keyring.is_revoked(signer):
            return False
        if not signer:
            return self.posture.takes_unsigned
        try:
            return self.posture.takes_strangers or self._keyring.find(signer) is not None
        except UnusableKeyError:
            return False

    def put(self, key: str, entry: bytes) -> None:
        """Put an entry, signed if there is a key to sign with.

        Raises:
          RemoteError: it is not there; a `RefusedError` too where this process has no key, and nobody would accept what
            is not signed.
          BadEntryError: it is not a sound entry of this key.
        """
        try:
            blob = self._signed(entry, key)
        except UnusableKeyError as error:
            raise CannotSignError(f"it cannot be signed: {error}") from error
        try:
            self.blobs.put(name_of(self.namespaces.write, key), blob, only_new=False)
        except RemoteError as error:
            self._count_failure(error, tell=False)  # the guard does, when writing is refused
            raise
        self._count(written=1, bytes_written=len(blob))

    def put_as_it_came(self, key: str, blob: bytes) -> None:
        """Put an entry of somebody else's, in the form in which it lay in this namespace of another remote.

        Raises:
          RemoteError: it is not there.
        """
        try:
            self.blobs.put(name_of(self.namespaces.write, key), blob, only_new=False)
        except RemoteError as error:
            self._count_failure(error, tell=False)
            raise
        self._count(written=1, bytes_written=len(blob))

    def put_hint(self, name: str, data: bytes) -> None:
        """Put something that is no entry, and is not signed, under a name within the namespace that is written to.

        Raises:
          RemoteError: it is not there.
        """
        self.blobs.put(f"{self.namespaces.write}/{name}", data, only_new=False)

    def asked_for(self, key: str) -> bytes | None:
        """As `get`, for who wants to know why there is none: `None` says that it is not there.

        Raises:
          RefusedEntryError: there is one, and it would not be accepted.
          RemoteError: there is no answer, or this blob cannot be had (`TooLargeError`).
        """
        refused: RefusedEntryError | TooLargeError | None = None
        for namespace in self.namespaces.read:
            try:
                blob = self.blobs.get(name_of(namespace, key), limit=LARGEST)
                if blob is not None:
                    entry = unsigned_entry(blob, key, namespace, self._keyring, self.posture)
                    self._count(hits=1, bytes_read=len(entry))
                    return entry
            except RefusedEntryError as error:
                self._refuse(key, error)
                refused = refused or error
            except TooLargeError:
                refused = refused or TooLargeError(f"refused: {OVERSIZED}")
            except RemoteError as error:
                self._count_failure(error, tell=False)
                raise
        if refused is not None:
            raise refused
        return None

    def header(self, namespace: str, key: str) -> Header | None:
        """What an entry says of itself, once it was checked and may be trusted; `None` where there is none.

        Raises:
          RefusedEntryError: it would not be accepted, with the reason.
          TooLargeError: it has more bytes than any entry.
          RemoteError: there is no answer.
        """
        blob = self.blobs.get(name_of(namespace, key), limit=LARGEST)
        if blob is None:
            return None
        return open_entry(unsigned_entry(blob, key, namespace, self._keyring, self.posture), key).header

    def scan(self, namespace: str) -> Iterator[EntryInfo]:
        """The entries of a namespace; `used` is when each was put there.

        Raises:
          RemoteError: this kind of remote cannot list, or did not answer.
        """
        return (info for blob in self.blobs.scan(namespace) if (info := _entry_info(blob, namespace)) is not None)

    # -- inside ------------------------------------------------------------------------------------------------

    def _signed(self, entry: bytes, key: str) -> bytes:
        signer = self._keyring.signing_key()
        if signer is not None:
            return signed(entry, key, self.namespaces.write, signer)
        if not self.posture.takes_unsigned:
            raise CannotSignError(NO_KEY)
        return entry

    def _accepted(self, blob: bytes, key: str, namespace: str) -> bytes | None:
        try:
            return unsigned_entry(blob, key, namespace, self._keyring, self.posture)
        except RefusedEntryError as error:
            self._refuse(key, error)
            return None

    def _refuse(self, key: str, error: RefusedEntryError) -> None:
        with self._lock:
            self._refused[error.reason] += 1
        line = f"{self.place}: entry {key[:12]} is refused: {error}; {_COUNTED}"
        if error.reason == STRANGER:
            line += ". Trust that key if you know whose it is (rewarm keys trust)"
            if self.writes and self.publishes_as() is not None:
                line += ", or use a namespace of your own: else what is compiled here is sent to take its place"
        # Who signed is anybody's word until a key says so: it must not make a line of each entry.
        known = error.signer if error.signer is not None and self._keyring.knows(error.signer) else ""
        self._tell_once((error.reason, known), line)

    def _tell_once(self, kind: tuple[str, str], line: str) -> None:
        with self._lock:
            if kind in self._told:
                return
            self._told.add(kind)
        self._tell(line)

    def _count(self, **numbers: int) -> None:
        with self._lock:
            self._counts.update(numbers)

    def _count_failure(self, error: RemoteError, *, tell: bool) -> None:
        with self._lock:
            self._failures[error.reason] += 1
        if tell and isinstance(error, RefusedError) and not isinstance(error, NoSuchPlaceError):
            self._tell_once(("failure", error.reason), f"{self.place}: {error.reason}")


def name_of(namespace: str, key: str) -> str:
    """The name of an entry's blob."""
    return f"{namespace}/{key[:2]}/{key}"


def key_of(name: str, namespace: str) -> str | None:
    """The key of the entry that has this name there; `None` for the name of something else."""
    shard, _, key = name.removeprefix(f"{namespace}/").partition("/")
    return key if is_key(key) and shard == key[:2] else None


def _entry_info(blob: BlobInfo, namespace: str) -> EntryInfo | None:
    key = key_of(blob.name, namespace)
    return EntryInfo(key, blob.size, blob.modified) if key is not None else None
