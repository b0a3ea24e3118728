"""A bound on what a Redis server may send for one command, in bytes and in time.

Not promised: that the bytes are any good. The client reads whatever length an answer claims, and its timeout is for
each piece of it: a server that goes on sending would be read until there is no memory left, in a thread that nobody
waits for any more. Here such an answer is a broken connection.

The client (`redis-py`) has no setting for it, so the socket is wrapped at the one place where the client makes it.
"""

from __future__ import annotations

import time
from typing import Any

# More than the largest answer that is asked for (`redis_blobs.py`), in bytes.
LARGEST = 513 << 20


def metered(connection_class: Any, seconds: float) -> Any:
    """`connection_class` of `redis`, whose answers take `seconds` at most, and have `LARGEST` bytes at most."""

    class Metered(connection_class):  # type: ignore[misc]
        def _connect(self) -> Any:
            return _Meter(super()._connect(), seconds)

    return Metered


class _Meter:
    """A socket that counts what comes since something was sent last.

    What comes later on a connection that lies idle was not asked for, and breaks it, too.
    """

    def __init__(self, socket: Any, seconds: float) -> None:
        self._socket = socket
        self._seconds = seconds
        self._begin()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def sendall(self, *arguments: Any) -> None:
        self._socket.sendall(*arguments)
        self._begin()

    def recv(self, *arguments: Any) -> bytes:
        data: bytes = self._socket.recv(*arguments)
        self._count(len(data))
        return data

    def recv_into(self, *arguments: Any) -> int:
        size: int = self._socket.recv_into(*arguments)
        self._count(size)
        return size

    def _begin(self) -> None:
        self._room = LARGEST
        self._end = time.monotonic() + self._seconds

    def _count(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise OSError("the server sends more than any answer has")
        if size and time.monotonic() > self._end:
            raise TimeoutError("the server goes on sending after the deadline")
