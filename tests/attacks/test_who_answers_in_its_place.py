"""Somebody between client and server, or the server itself: whatever is answered, by whoever runs it.

Over HTTP, S3 and Redis, without TLS. Nothing here shows what TLS shows. One thing ends a program, and is said so: an
error of an absurd length, for which the client `obstore` asks for memory that there is not.
"""

from __future__ import annotations

import contextlib
import gzip
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from attackers import Handler, Serving, always, caught, endless, head, request, serving

from conftest import Program, clean_environment
from rewarm.remote import redis_meter
from rewarm.remote.address import parse
from rewarm.remote.blobs import Blobs, RefusedError, RemoteError, TooLargeError, UnreachableError
from rewarm.remote.guard import Guarded
from rewarm.remote.opening import open_blobs
from shared_remotes import Machine, http_cache

PLAIN = """
    import jax, numpy as np
    print(float(np.asarray(jax.jit(lambda x: x @ x + 1)(np.ones((8, 8), np.float32))).sum()))
"""

GIGABYTES = 5 << 30
DEADLINE = 1.0


def spelled(kind: str, port: int, **more: str) -> str:
    """A server as a remote, with credentials."""
    url, options = {
        "http": (f"http://user:hunter2@127.0.0.1:{port}/cache", {}),
        "s3": (
            "s3://bucket/cache",
            {
                "endpoint": f"http://127.0.0.1:{port}", "access_key_id": "id", "secret_access_key": "hunter2",
                "region": "here", "session_token": "session",
            },
        ),
        "redis": (f"redis://127.0.0.1:{port}/0", {}),
    }[kind]  # fmt: skip
    said = {"deadline": f"{DEADLINE:g}", **options, **more}
    return f"{url}?{'&'.join(f'{name}={value}' for name, value in said.items())}"


def opened(kind: str, server: Serving) -> Blobs:
    return Guarded(open_blobs(parse(spelled(kind, server.port))), deadline=DEADLINE)


def grown() -> int:
    """Megabytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@pytest.fixture(autouse=True)
def no_credentials_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


# -- what he sees and changes --------------------------------------------------------------------------------------


def test_what_he_changes_on_the_way_is_refused(program: Program, tmp_path: Path) -> None:
    """A bit of the code, on its way to a program that runs."""
    one = Machine.named("one", tmp_path)
    other = Machine.named("other", tmp_path, one)
    with http_cache() as http:
        program(PLAIN, **one.env(http.url))
        [key] = http.entries()

        def flip(connection: socket.socket) -> None:
            while True:
                path = request(connection).split()[1].decode()
                blob = bytearray(http.blobs.get(path, b"x"))
                blob[-60 % len(blob)] ^= 1
                connection.sendall(head(200 if key in path else 404, f"Content-Length: {len(blob)}") + blob)

        with serving(flip) as between:
            run = program(PLAIN, **other.env(f"http://127.0.0.1:{between.port}/cache?write=no"))
    assert (run.out, run.stats["hits"], run.stats["misses"]) == ("576.0\n", 0, 1)
    assert run.stats["remotes"][0]["refused"] == {"the entry is damaged, or another's": 1}


def test_a_secret_key_never_goes_over_the_line(program: Program, tmp_path: Path) -> None:
    """He sees entries, and the credentials of plain HTTP; what signs, and a secret that S3 signs with, stay."""
    one = Machine.named("one", tmp_path)
    seen: list[bytes] = []
    lock = threading.Lock()

    def listen(connection: socket.socket) -> None:
        while data := connection.recv(1 << 20):
            with lock:
                seen.append(data)
            if b"PUT " in data or b"GET " in data:
                connection.sendall(head(404 if b"GET " in data else 200, "Content-Length: 0"))

    with serving(listen) as between:
        remotes = [spelled(kind, between.port) for kind in ("http", "s3")]
        program(PLAIN, REWARM_UPLOAD_SECONDS="3", **one.env(*remotes))
    data = b"".join(seen)
    assert b"RWSG" in data
    assert one.key.to_text().partition(":")[2].encode() not in data
    assert b"dXNlcjpodW50ZXIy" in data, "user:hunter2, which is what plain HTTP sends"
    assert b"hunter2" not in data


# -- redirects -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_redirect_takes_no_credentials_along(kind: str, status: int) -> None:
    """A look-up follows it, without what proves who asks; nothing is put elsewhere."""
    heard: list[bytes] = []

    def other(connection: socket.socket) -> None:
        while True:
            heard.append(request(connection))
            connection.sendall(head(200, "Content-Length: 2") + b"ok")

    with serving(other) as elsewhere, ExitStack() as stack:
        for host in ("127.0.0.1", "localhost"):
            target = f"Location: http://{host}:{elsewhere.port}/x"
            server = stack.enter_context(serving(always(head(status, target, "Content-Length: 0"))))
            with contextlib.suppress(RemoteError):
                assert opened(kind, server).get("a/b", limit=99) == b"ok"
            put = partial(opened(kind, server).put, "a/b", b"entry")
            # 303 is "look there", and counts as put; the server could have said so anyway.
            assert status == 303 or isinstance(caught(put), RefusedError)
    assert heard
    for one in heard:  # a session token of S3 is in them, which is of no use without its secret
        assert one.startswith(b"GET ")
        assert b"authorization" not in one.lower()
        assert b"hunter2" not in one
        assert b"dXNlcjpodW50ZXIy" not in one


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_redirects_in_a_circle_end(kind: str) -> None:
    with serving(always(head(302, "Location: /cache/a", "Content-Length: 0"))) as server:
        assert isinstance(caught(lambda: opened(kind, server).get("a", limit=9)), RemoteError)
        assert server.connections <= 4


# -- lengths and encodings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_client_unpacks_nothing_by_itself(kind: str, encoding: str) -> None:
    """`Content-Encoding` with a bomb: its bytes come as they are, and are no entry."""
    packed = gzip.compress(bytes(1 << 28), 1)
    before = grown()
    with serving(always(head(200, f"Content-Encoding: {encoding}", f"Content-Length: {len(packed)}") + packed)) as one:
        assert opened(kind, one).get("a", limit=1 << 30) == packed
    assert grown() - before < 100


ANSWERS: dict[str, tuple[Handler, type[RemoteError]]] = {
    "more than anybody wants": (always(head(200, f"Content-Length: {GIGABYTES}")), TooLargeError),
    "more than it says": (always(head(200, "Content-Length: 1") + b"RWSG" * 999), RemoteError),
    "less than it says": (always(head(200, "Content-Length: 99") + b"RWSG"), UnreachableError),
    "two lengths": (always(head(200, "Content-Length: 1", "Content-Length: 4") + b"RWSG"), RemoteError),
    "a length below nothing": (always(head(200, "Content-Length: -1") + b"RWSG"), RemoteError),
    "a length that is none": (always(head(200, "Content-Length: 0x10") + b"RWSG"), RemoteError),
    "no length": (always(head(200) + b"RWSG"), RefusedError),
    "pieces for ever": (
        endless(head(200, "Transfer-Encoding: chunked"), b"10000\r\n" + b"x" * 65536 + b"\r\n"),
        RefusedError,
    ),
    "a body for ever": (endless(head(200)), RefusedError),
    "headers for ever": (endless(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"y" * 1000 + b"\r\n"), UnreachableError),
    "a header for ever": (endless(b"HTTP/1.1 200 OK\r\nX-A: "), UnreachableError),
    "a status for ever": (endless(b"HTTP/1.1 200 "), UnreachableError),
    "go on for ever": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), UnreachableError),
    "no HTTP": (always(b"SSH-2.0-OpenSSH_9.2\r\n"), UnreachableError),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("kind", ["http", "s3"])
def test_no_length_is_believed(kind: str, answer: str) -> None:
    """Of what is wrong with an answer's length, nothing is an entry, is waited for, or fills the memory."""
    handler, error = ANSWERS[answer]
    before, begin = grown(), time.monotonic()
    with serving(handler) as server:
        if answer == "more than it says":  # the rest is no part of the answer
            assert opened(kind, server).get("a", limit=1 << 30) in (b"R", None)
        else:
            assert isinstance(caught(lambda: opened(kind, server).get("a", limit=1 << 30)), error)
    assert time.monotonic() - begin < 2 * DEADLINE + 2.5
    assert grown() - before < 100


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_an_error_that_goes_on_for_ever_ends_with_the_deadline(kind: str) -> None:
    """The client reads the text of an error whole: as much as arrives within the deadline, twice at most."""
    piece = b"1000\r\n" + b"x" * 4096 + b"\r\n"

    def slowly(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(head(404, "Transfer-Encoding: chunked"))
        while True:
            connection.sendall(piece)
            time.sleep(0.001)

    begin = time.monotonic()
    with serving(slowly) as server:
        assert isinstance(caught(lambda: opened(kind, server).get("a", limit=99)), UnreachableError)
        assert time.monotonic() - begin < DEADLINE + 2.0
        ended_by(lambda: not server.open, begin + 3 * DEADLINE + 2.0)


def ended_by(true: Callable[[], object], end: float) -> None:
    while not true():
        assert time.monotonic() < end, "the client goes on"
        time.sleep(0.05)


def test_an_error_of_an_absurd_length_ends_the_program(tmp_path: Path) -> None:
    """What the page admits. When this fails, `obstore` no longer reserves what a server says, and the row can go."""
    one = Machine.named("one", tmp_path)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PLAIN))
    with serving(endless(head(404, f"Content-Length: {10**16}"))) as server:
        done = subprocess.run(
            [sys.executable, str(script)], env=clean_environment(**one.env(spelled("http", server.port))),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == -signal.SIGABRT
    assert "memory allocation" in done.stderr


# -- Redis ---------------------------------------------------------------------------------------------------------


def replies(data: bytes) -> Handler:
    def handle(connection: socket.socket) -> None:
        while connection.recv(1 << 16):
            connection.sendall(data)

    return handle


REPLIES: dict[str, Handler] = {
    "a line for ever": endless(b"+"),
    "an error for ever": endless(b"-ERR "),
    "a value for ever": endless(b"$99999999999\r\n", b"x" * 4096),
    "a list for ever": endless(b"*99999999999\r\n", b"$1\r\nx\r\n" * 1000),
    "lists in lists": endless(b"", b"*1\r\n" * 1000),
    "numbers": replies(b":5\r\n:7\r\n"),
    "lengths below nothing": replies(b"$-5\r\n:-7\r\n"),
    "a value that is longer than it says": replies(b"$3\r\nabcdefgh\r\n:3\r\n"),
    "more than was asked for": replies(b"$200000\r\n" + b"y" * 200_000 + b"\r\n:200000\r\n"),
    "another version's": replies(b"%1\r\n+a\r\n+b\r\n>2\r\n+invalidate\r\n*1\r\n+x\r\n"),
    "no Redis": replies(head(200, "Content-Length: 0")),
}


@pytest.mark.parametrize("reply", REPLIES)
def test_no_answer_of_a_redis_server_is_believed_or_read_for_ever(reply: str) -> None:
    """The client lets go of the connection soon after the deadline, whatever the server goes on to send."""
    pytest.importorskip("redis")
    begin = time.monotonic()
    with serving(REPLIES[reply]) as server:
        blobs = opened("redis", server)
        with contextlib.suppress(RemoteError):
            assert blobs.get("a", limit=100) is None
        assert time.monotonic() - begin < DEADLINE + 2.0
        if "ever" in reply:
            ended_by(lambda: not server.open, begin + 3 * DEADLINE + 2.0)
        blobs.close()


def test_of_a_redis_server_no_more_is_read_than_any_answer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast it comes: long before the deadline."""
    monkeypatch.setattr(redis_meter, "LARGEST", 4 << 20)
    begin = time.monotonic()
    with serving(endless(b"$99999999999\r\n")) as server:
        blobs = Guarded(open_blobs(parse(f"redis://127.0.0.1:{server.port}/0?deadline=20")), deadline=20)
        assert isinstance(caught(lambda: blobs.get("a", limit=99)), UnreachableError)
    assert time.monotonic() - begin < 10.0


def test_a_value_of_a_redis_server_that_drips_ends_with_the_deadline() -> None:
    """Each byte comes in time, and the whole never does."""

    def drip(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"$9999\r\n")
        while True:
            connection.sendall(b"x")
            time.sleep(0.2)

    begin = time.monotonic()
    with serving(drip) as server:
        assert isinstance(caught(lambda: opened("redis", server).get("a", limit=99)), UnreachableError)
        ended_by(lambda: not server.open, begin + 3 * DEADLINE + 2.0)


# -- a whole program -----------------------------------------------------------------------------------------------


@pytest.fixture
def every_server() -> Iterator[dict[str, Serving]]:
    """One for each answer above."""
    with ExitStack() as stack:
        handlers = {f"http {name}": handler for name, (handler, _) in ANSWERS.items()}
        handlers |= {f"redis {name}": handler for name, handler in REPLIES.items()}
        handlers["http packed"] = always(head(200, "Content-Encoding: gzip", "Content-Length: 30") + b"x" * 30)
        handlers["http a circle"] = always(head(302, "Location: /", "Content-Length: 0"))
        yield {name: stack.enter_context(serving(handler)) for name, handler in handlers.items()}


def test_a_program_is_served_by_all_of_them_and_has_its_result(
    program: Program, tmp_path: Path, every_server: dict[str, Serving]
) -> None:
    one = Machine.named("one", tmp_path)
    remotes = [spelled(name.split()[0], server.port, deadline="0.3") for name, server in every_server.items()]
    begin = time.monotonic()
    run = program(PLAIN, REWARM_UPLOAD_SECONDS="1", **one.env(*remotes))
    assert (run.code, run.out, run.stats["hits"], run.stats["misses"]) == (0, "576.0\n", 0, 1)
    assert time.monotonic() - begin < 60.0
    assert [remote["hits"] for remote in run.stats["remotes"]] == [0] * len(remotes)
    assert not [line for line in run.warnings() if "Traceback" in line or "hunter2" in line], run.err
