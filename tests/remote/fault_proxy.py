"""A proxy on loopback, in threads of the test, whose fault can be switched while clients are connected.

Not promised: HTTP/1.1 in full. It takes requests with a Content-Length, one after another, which is what clients of
object stores send; in front of anything else (Redis) it passes bytes on, and each piece that comes back is "a body".

    with FaultProxy(server_port, http=True) as proxy:
        ... proxy.port ...
        proxy.fault = HANG_IN_BODY
"""

from __future__ import annotations

import contextlib
import http.client
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Attributes:
      kind: see below.
      seconds: of latency, or between two bytes that drip.
      status: with which each request is answered.
      retry_after: what that answer says in its header.
    """

    kind: str
    seconds: float = 0.0
    status: int = 0
    retry_after: str = ""

    def __str__(self) -> str:
        return f"{self.kind}{self.status or ''}"


NONE = Fault("none")
RESET = Fault("reset")
RESET_IN_BODY = Fault("reset-in-body")
HANG = Fault("hang")
HANG_IN_HEAD = Fault("hang-in-head")
HANG_IN_BODY = Fault("hang-in-body")
TRUNCATE = Fault("truncate")
FLIP = Fault("flip")


def latency(seconds: float) -> Fault:
    """Each answer comes so much later."""
    return Fault("latency", seconds=seconds)


def drip(seconds: float) -> Fault:
    """So long between two bytes of a body."""
    return Fault("drip", seconds=seconds)


def status(number: int, retry_after: str = "") -> Fault:
    """Each request over HTTP is answered with this, and the server hears nothing."""
    return Fault("status", status=number, retry_after=retry_after)


class FaultProxy:
    """Listens on `port` in front of the server on `upstream`; both on 127.0.0.1.

    Attributes:
      port: stays the same when it dies and comes back.
      fault: what goes wrong from now on, on open connections as well.
      connections: how many were taken.
      requests: how many requests (of HTTP), or pieces (of anything else), came from clients.
    """

    def __init__(self, upstream: int, *, http: bool) -> None:
        self.upstream = upstream
        self.fault = NONE
        self.connections = 0
        self.requests = 0
        self._http = http
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._deaths = 0
        self.port = 0
        self.come_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def die(self) -> None:
        """Reset all connections, and refuse new ones."""
        with self._lock:
            self._deaths += 1
            listener, self._listener = self._listener, None
            mine = list(self._open)
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for connection in mine:
            self._reset(connection)

    def come_back(self) -> None:
        """Listen again."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = listener.getsockname()[1]
        with self._lock:
            self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    # -- connections -------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            with self._lock:
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.fault is RESET:
                self._reset(connection)
            elif self._http:
                self._serve_http(connection)
            else:
                self._serve_bytes(connection)
        except (OSError, ValueError, http.client.HTTPException):
            pass
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _reset(self, connection: socket.socket) -> None:
        """An RST in place of a FIN."""
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # Linger and close reset; the thread that reads from it hears of it by the shutdown.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
            connection.close()

    def _hold(self, connection: socket.socket, fault: Fault) -> None:
        """Say nothing for as long as this fault lasts, or until the client goes."""
        connection.settimeout(0.02)
        while self.fault is fault and self._listener is not None:
            try:
                if not connection.recv(65536):
                    break
            except TimeoutError:
                continue
        self._reset(connection)

    def _answer(self, connection: socket.socket, head: bytes, body: bytes) -> bool:
        """Pass an answer on as the fault wants it; returns whether the connection goes on."""
        fault = self.fault
        half = body[: len(body) // 2]
        match fault.kind:
            case "reset":
                self._reset(connection)
            case "reset-in-body":
                connection.sendall(head + half)
                time.sleep(0.02)  # so that what was sent is read before it is reset
                self._reset(connection)
            case "hang":
                self._hold(connection, fault)
            case "hang-in-head":
                connection.sendall(head[: len(head) // 2])
                self._hold(connection, fault)
            case "hang-in-body":
                connection.sendall(head + half)
                self._hold(connection, fault)
            case "truncate":
                connection.sendall(head + half)
            case "drip":
                return self._drip(connection, head, body, fault)
            case "flip":
                connection.sendall(head + half + bytes(byte ^ 0x04 for byte in body[len(half) : len(half) + 1]))
                connection.sendall(body[len(half) + 1 :])
                return True
            case _:
                time.sleep(fault.seconds)
                connection.sendall(head + body)
                return True
        return False

    def _drip(self, connection: socket.socket, head: bytes, body: bytes, fault: Fault) -> bool:
        connection.sendall(head)
        for at in range(len(body)):
            if self.fault is not fault or self._listener is None:
                return False
            connection.sendall(body[at : at + 1])
            time.sleep(fault.seconds)
        return True

    # -- HTTP --------------------------------------------------------------------------------------------------

    def _serve_http(self, connection: socket.socket) -> None:
        deaths = self._deaths
        with connection.makefile("rb") as stream:
            while (request := _read_request(stream)) is not None:
                if deaths != self._deaths:
                    return
                self.requests += 1
                fault = self.fault
                if fault.kind == "status":
                    connection.sendall(_own_answer(fault))
                    continue
                if fault.kind in ("hang", "reset"):
                    self._answer(connection, b"", b"")
                    return
                if not self._answer(connection, *_ask(self.upstream, request)):
                    return

    # -- anything else -----------------------------------------------------------------------------------------

    def _serve_bytes(self, connection: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.upstream), timeout=10) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with selectors.DefaultSelector() as selector:
                selector.register(connection, selectors.EVENT_READ)
                selector.register(server, selectors.EVENT_READ)
                while connection.fileno() >= 0:  # `die` may close it, of which the selector does not tell
                    for key, _ in selector.select(0.2):
                        piece = key.fileobj.recv(65536)  # type: ignore[union-attr]
                        if not piece:
                            return
                        if key.fileobj is server:
                            if not self._answer(connection, b"", piece):
                                return
                        else:
                            self.requests += 1
                            server.sendall(piece)


@dataclass(frozen=True)
class _Request:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


def _read_request(stream: Any) -> _Request | None:
    """The next request; `None` where the client has gone."""
    line = stream.readline()
    if not line.strip():
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers = []
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name, value.strip()))
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return _Request(method, target, headers, stream.read(length))


def _ask(port: int, request: _Request) -> tuple[bytes, bytes]:
    """Head and body of the server's answer, with a Content-Length whatever it had."""
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        server.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers:
            server.putheader(name, value)
        server.endheaders(request.body or None)
        answer = server.getresponse()
        body = answer.read()
    finally:
        server.close()
    said = [f"HTTP/1.1 {answer.status} {answer.reason}"]
    dropped = {"transfer-encoding", "connection"} | (set() if request.method == "HEAD" else {"content-length"})
    said += [f"{name}: {value}" for name, value in answer.getheaders() if name.lower() not in dropped]
    if request.method != "HEAD" and answer.status not in (204, 304):
        said.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*said, "", ""]).encode("latin-1"), body


def _own_answer(fault: Fault) -> bytes:
    said = [f"HTTP/1.1 {fault.status} {http.client.responses[fault.status]}", "Content-Length: 0"]
    if fault.retry_after:
        said.append(f"Retry-After: {fault.retry_after}")
    return "\r\n".join([*said, "", ""]).encode("ascii")
