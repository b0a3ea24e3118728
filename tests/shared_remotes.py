"""Machines that share: programs with keys and directories of their own, and an HTTP cache on loopback to share by."""

from __future__ import annotations

import base64
import hashlib
import http.server
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from conftest import entries
from rewarm.remote.folder import FolderBlobs
from rewarm.remote.guard import Guarded
from rewarm.sharing import Namespaces, RemoteTier
from rewarm.store import LocalStore
from rewarm.store.files import header_of
from rewarm.trust import Algorithm, Keyring, Posture, SigningKey


def a_key(name: str) -> SigningKey:
    """A key that is the same in every run."""
    return SigningKey(Algorithm.ED25519, hashlib.sha256(name.encode()).digest())


MAIN = Namespaces("main", ("main",))


@dataclass
class Machine:
    """A user on a machine of his own: no directory and no key is another's."""

    home: Path
    trusts: tuple[str, ...] = ()
    key: SigningKey = field(default_factory=lambda: a_key("nobody"))

    @classmethod
    def named(cls, name: str, place: Path, *trusts: Machine) -> Machine:
        """A machine of this name, which trusts others."""
        return cls(place / name, tuple(one.key.public.to_text() for one in trusts), a_key(name))

    @property
    def cache(self) -> Path:
        """The cache directory."""
        return self.home / "cache"

    def env(self, *remotes: str, **more: str) -> dict[str, str]:
        """The environment of its programs."""
        said = {
            "REWARM_DIR": str(self.cache),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_CACHE_HOME": str(self.home / "xdg"),
            "REWARM_SIGNING_KEY": self.key.to_text(),
            "REWARM_TRUSTED_KEYS": ",".join(self.trusts),
            "REWARM_REMOTE": ",".join(remotes),
        }
        return {name: value for name, value in {**said, **more}.items() if value}

    def keys(self) -> dict[str, str]:
        """The key of each program in the cache directory."""
        found = {}
        for path in entries(self.cache):
            header = header_of(path)
            assert header is not None
            found[header.program] = path.name
        return found

    def store(self) -> LocalStore:
        """The local store."""
        store = LocalStore(self.cache)
        store.prepare()
        return store


def folder_tier(
    root: Path, keyring: Keyring, posture: Posture = Posture.REQUIRE, told: list[str] | None = None, *,
    namespaces: Namespaces = MAIN, writes: bool = True,
) -> RemoteTier:  # fmt: skip
    """A folder as a remote."""
    root.mkdir(parents=True, exist_ok=True)
    tell = (lambda _: None) if told is None else told.append
    blobs = Guarded(FolderBlobs(root), tell=tell)
    return RemoteTier(blobs, namespaces=namespaces, keyring=keyring, posture=posture, writes=writes, tell=tell)


def blob_of(root: Path, key: str, namespace: str = "main") -> Path:
    """Where a folder remote has an entry."""
    return root / namespace / key[:2] / key


# -- an HTTP cache -------------------------------------------------------------------------------------------------


class HttpCache:
    """A plain PUT/GET cache that can be slow, throttle, or refuse to be written to.

    Attributes:
      blobs: what it has, by path.
      asked: method and path of each request.
      put_delay, get_delay: seconds before an answer.
      put_status, get_status: answers this instead of doing it; 0 for no.
      retry_after: what a 429 or 503 tells.
      password: what is asked for, in `user:password`; "" for nothing.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.put_delay = self.get_delay = 0.0
        self.put_status = self.get_status = 0
        self.retry_after = ""
        self.password = ""
        self.closing = threading.Event()
        self.port = 0

    @property
    def url(self) -> str:
        """How it is spelled as a remote."""
        return f"http://127.0.0.1:{self.port}/cache"

    def entries(self) -> list[str]:
        """The keys of the entries."""
        names = [path.rpartition("/")[2] for path in sorted(self.blobs)]
        return [name for name in names if re.fullmatch("[0-9a-f]{64}", name)]

    def count(self, method: str, part: str = "") -> int:
        """How many requests there were."""
        return sum(how == method and part in path for how, path in self.asked)


@contextmanager
def http_cache() -> Iterator[HttpCache]:
    """One that runs."""
    cache = HttpCache()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve(cache.get_delay, cache.get_status, b"")

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._serve(cache.put_delay, cache.put_status, data)

        def do_HEAD(self) -> None:
            self._serve(0.0, cache.get_status, b"")

        def do_DELETE(self) -> None:
            cache.asked.append((self.command, self.path))
            cache.blobs.pop(self.path, None)
            self._answer(204, b"")

        def _serve(self, delay: float, status: int, data: bytes) -> None:
            cache.asked.append((self.command, self.path))
            cache.closing.wait(delay)
            expected = base64.b64encode(cache.password.encode()).decode()
            if cache.password and self.headers.get("Authorization") != f"Basic {expected}":
                self._answer(401, b"")
            elif status:
                self._answer(status, b"")
            elif self.command == "PUT":
                cache.blobs[self.path] = data
                self._answer(201, b"")
            else:
                found = cache.blobs.get(self.path)
                self._answer(200 if found is not None else 404, found or b"")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", self.date_time_string(time.time()))
            self.send_header("ETag", '"one"')
            if status in (429, 503) and cache.retry_after:
                self.send_header("Retry-After", cache.retry_after)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that was killed

    server = Server(("127.0.0.1", 0), Handler)
    cache.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield cache
    finally:
        cache.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
