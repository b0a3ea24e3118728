"""Stores, keys and entries for the tests of sharing."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rewarm.envelope import Header, seal
from rewarm.remote.blobs import BlobInfo
from rewarm.sharing import RemoteTier, Uploads
from rewarm.store import LocalStore
from rewarm.trust import Keyring
from shared_remotes import a_key

OURS, THEIRS, STRANGER = a_key("ours"), a_key("theirs"), a_key("stranger")


def ring() -> Keyring:
    """Of somebody who signs with `OURS` and trusts `THEIRS`."""
    return Keyring(OURS, [THEIRS.public])


def key_of(number: int) -> str:
    """The key of an entry."""
    return hashlib.sha256(f"sharing {number}".encode()).hexdigest()


def entry_of(number: int, content: bytes = b"code", program: str = "jit_step") -> bytes:
    """A sound entry."""
    header = Header(
        kind="executable",
        key=key_of(number),
        components=({"name": "format", "digest": hashlib.sha256(b"1").hexdigest(), "value": 1},),
        program=program,
        compile_seconds=1.5,
        created=1.7e9,
        producer={"jax": "0.12"},
        target="cpu x1",
    )
    return seal(header, {"executable": content}, codec="raw")


def store_at(root: Path) -> LocalStore:
    """A local store."""
    store = LocalStore(root)
    store.prepare()
    return store


def uploads_of(store: LocalStore | None, *tiers: RemoteTier, told: list[str] | None = None) -> Uploads:
    """Queues for these remotes."""
    tell = (lambda _: None) if told is None else told.append
    return Uploads(None if store is None else store.root, tiers, lambda key: store and store.get(key), tell)


class Held:
    """Blobs in memory that can be held back, or fail: what a test wants to see under way."""

    reopens_after_fork = True

    def __init__(self, place: str = "memory://held") -> None:
        self.place = place
        self.blobs: dict[str, bytes] = {}
        self.put_names: list[str] = []
        self.got: list[str] = []
        self.errors: list[Exception] = []
        self.open = threading.Event()
        self.open.set()
        self.seconds = 0.0
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()

    def get(self, name: str, *, limit: int) -> bytes | None:
        del limit
        with self._lock:
            self.got.append(name)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.open.wait(20)
        time.sleep(self.seconds)
        with self._lock:
            self.at_once -= 1
        return self.blobs.get(name)

    def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
        del only_new
        self.put_names.append(name)
        self.open.wait(20)
        if self.errors:
            raise self.errors.pop(0)
        self.blobs[name] = data
        return True

    def delete(self, name: str) -> None:
        self.blobs.pop(name, None)

    def scan(self, prefix: str) -> Iterator[BlobInfo]:
        for name, data in list(self.blobs.items()):
            if name.startswith(f"{prefix}/"):
                yield BlobInfo(name, len(data), time.time())

    def close(self) -> None:
        pass


def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for something to come true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.01)
