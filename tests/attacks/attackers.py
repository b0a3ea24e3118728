"""What an attacker has: a client of the remote that checks nothing, a server that answers anything, forged blobs."""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import servers

from rewarm.envelope import Header, open_entry, seal
from rewarm.remote.address import parse
from rewarm.remote.blobs import Blobs
from rewarm.remote.opening import open_blobs
from rewarm.trust import Algorithm, Keyring, Posture, SigningKey, signed, unsigned_entry

FRAME = struct.Struct("<4sBB16sH")


# -- remotes -------------------------------------------------------------------------------------------------------


@contextmanager
def remote(kind: str, folder: Path) -> Iterator[str]:
    """The address of an empty remote: "folder" or "moto" (S3 on loopback)."""
    place = folder / f"remote-{kind}"
    place.mkdir()
    if kind == "folder":
        yield place.as_uri()
        return
    try:
        with getattr(servers, kind)(place) as server:
            yield server.address("jax")
    except servers.MissingServerError as missing:
        servers.do_without(kind, missing)


def client(address: str) -> Blobs:
    """The attacker's own: he puts and gets what he likes."""
    return open_blobs(parse(address))


def name_of(key: str, namespace: str = "main") -> str:
    """Where a remote has an entry."""
    return f"{namespace}/{key[:2]}/{key}"


# -- blobs ---------------------------------------------------------------------------------------------------------


def bare(blob: bytes, key: str, signer: SigningKey, namespace: str = "main") -> bytes:
    """The entry without its signature."""
    return unsigned_entry(blob, key, namespace, Keyring(signer), Posture.REQUIRE)


def bomb(entry: bytes, key: str, size: int = 1 << 28) -> bytes:
    """A sound entry of the same header, whose executable unpacks to so many zeros."""
    header: Header = open_entry(entry, key).header
    return seal(header, {"executable": bytes(size)}, codec="zstd")


def signed_by_the_public_half(entry: bytes, key: str, key_of: SigningKey) -> bytes:
    """Algorithm confusion: an HMAC, with the bytes of an Ed25519 public key as its secret, in that key's name."""
    raw = bytes(key_of.public._material)
    blob = signed(entry, key, "main", SigningKey(Algorithm.HMAC, raw))
    start = FRAME.pack(b"RWSG", 1, 2, bytes.fromhex(key_of.id), 32)
    return start + hmac.digest(raw, blob[FRAME.size + 32 :], "sha256") + entry


# -- servers -------------------------------------------------------------------------------------------------------

Handler = Callable[[socket.socket], None]

DATES = b'ETag: "one"\r\nLast-Modified: Mon, 30 Nov 2026 06:00:00 GMT\r\n'


def head(status: int, *lines: str) -> bytes:
    """The start of an answer."""
    return f"HTTP/1.1 {status} X\r\n".encode() + DATES + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def request(connection: socket.socket) -> bytes:
    """The head of the next request; its body is swallowed."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := connection.recv(1 << 16)):
            raise ConnectionError
        data += part
    begin, _, body = data.partition(b"\r\n\r\n")
    lines = [line.partition(b":") for line in begin.lower().split(b"\r\n")]
    rest = sum(int(value) for name, _, value in lines if name == b"content-length") - len(body)
    while rest > 0:
        rest -= len(connection.recv(min(rest, 1 << 16)) or b"x" * rest)
    return begin


def always(answer: bytes) -> Handler:
    """Answers each request alike."""

    def handle(connection: socket.socket) -> None:
        while True:
            request(connection)
            connection.sendall(answer)

    return handle


def endless(start: bytes, piece: bytes = b"x" * 65536) -> Handler:
    """Begins an answer, and goes on for as long as the client listens."""

    def handle(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(start)
        while True:
            connection.sendall(piece)

    return handle


class Serving:
    """A port of 127.0.0.1, and how many came."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.open: set[socket.socket] = set()
        self.connections = 0

    def serve(self, handler: Handler) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.open.add(connection)
            threading.Thread(target=self._one, args=(connection, handler), daemon=True).start()

    def _one(self, connection: socket.socket, handler: Handler) -> None:
        with contextlib.suppress(OSError), connection:
            handler(connection)
        self.open.discard(connection)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(handler: Handler) -> Iterator[Serving]:
    """A server that does what `handler` does with each connection."""
    server = Serving()
    thread = threading.Thread(target=server.serve, args=(handler,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(10)


def caught(act: Callable[[], Any]) -> Exception | None:
    """What it raises."""
    try:
        act()
    except Exception as error:
        return error
    return None
