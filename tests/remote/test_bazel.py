"""Caches for Bazel: a double that refuses what bazel-remote refuses, and rewrites what it rewrites.

The double parses what it is given with Google's own library, by the fields of `remote_execution.proto` that count here.
"""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rewarm.remote import bazel
from rewarm.remote.address import parse
from rewarm.remote.blobs import TOO_LARGE, RefusedError, RemoteError, TooLargeError
from rewarm.remote.guard import Guarded
from rewarm.remote.objects import ObjectBlobs
from rewarm.remote.probe import probe

protobuf = pytest.importorskip("google.protobuf", reason="no protobuf to hold the layout against")

pytest_plugins = ["remote_fixtures"]
pytestmark = pytest.mark.usefixtures("clean_clients")

NAME = "main/3a/" + "3a" * 32
_NAMES = re.compile(r"^/?(.*/)?(ac/|cas/)([a-f0-9]{64})$")


def _action_result() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="results.proto", package="results", syntax="proto3")
    metadata = file.message_type.add(name="ExecutedActionMetadata")
    metadata.field.add(name="worker", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    result = file.message_type.add(name="ActionResult")
    result.field.add(name="exit_code", number=4, type="TYPE_INT32", label="LABEL_OPTIONAL")
    result.field.add(name="stdout_raw", number=5, type="TYPE_BYTES", label="LABEL_OPTIONAL")
    result.field.add(
        name="execution_metadata", number=9, type="TYPE_MESSAGE", label="LABEL_OPTIONAL",
        type_name=".results.ExecutedActionMetadata",
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("results.ActionResult"))


ActionResult = _action_result()


@dataclass
class Cache:
    """One that runs.

    Attributes:
      blobs: what it has, by kind and hash.
      asked: method, path and status of each request.
      validates: results are parsed, as they are unless it is started with --disable_http_ac_validation.
      largest: of one blob, in bytes (--max_blob_size).
    """

    blobs: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    validates: bool = True
    largest: int = 1 << 20
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/instance"

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        found = _NAMES.match(path)
        if found is None:
            return 400, b"resource name must be a SHA256 hash in hex, got '...'\n"
        name = f"{found[2]}{found[3]}"
        if method == "GET":
            return (200, self.blobs[name]) if name in self.blobs else (404, b"Not found\n")
        if method != "PUT":
            return 405, b"Method not supported.\n"
        if len(body) > self.largest:
            return 400, f"Blob size {len(body)} exceeds maximum allowed size {self.largest}\n".encode()
        if found[2] == "ac/" and self.validates:
            try:
                result = ActionResult.FromString(body)
            except Exception:
                return 400, b"Failed to add worker metadata\n"
            if not result.execution_metadata.worker:
                result.execution_metadata.worker = "127.0.0.1:51234"
            body = result.SerializeToString()
        self.blobs[name] = body
        return 200, b""


@contextmanager
def running(**said: Any) -> Iterator[Cache]:
    cache = Cache(**said)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            status, answer = cache.answer(self.command, self.path, body)
            cache.asked.append((self.command, self.path, status))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_DELETE = do_PROPFIND = do_MKCOL = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cache.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield cache
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.fixture(params=[True, False], ids=["validates", "takes all"])
def cache(request: pytest.FixtureRequest) -> Iterator[Cache]:
    with running(validates=request.param) as found:
        yield found


def opened(cache: Cache, query: str = "") -> ObjectBlobs:
    return ObjectBlobs(parse(f"{cache.url}{query}"))


@pytest.mark.parametrize("query", ["", "?layout=bazel"])
def test_what_is_put_is_there(cache: Cache, query: str) -> None:
    blobs = opened(cache, query)
    assert blobs.get(NAME, limit=10) is None
    for data in (b"data", b"", bytes(range(256)) * 100):
        assert blobs.put(NAME, data)
        assert blobs.get(NAME, limit=len(data)) == data
        assert opened(cache, "?layout=bazel").get(NAME, limit=1 << 20) == data
        if data:
            with pytest.raises(TooLargeError):
                blobs.get(NAME, limit=len(data) - 1)
    assert [name for name in cache.blobs if not name.startswith("ac/")] == []
    refused = [one for one in cache.asked if one[2] == 400]
    assert len(refused) == (1 if query == "" else 0), "its layout is found out once"


@pytest.mark.parametrize("verb", ["get", "put", "delete"])
def test_whatever_is_asked_first_finds_it_out(cache: Cache, verb: str) -> None:
    blobs = opened(cache)
    if verb == "get":
        assert blobs.get(NAME, limit=10) is None
    elif verb == "put":
        assert blobs.put(NAME, b"data")
    else:
        with pytest.raises(RefusedError, match="405"):
            blobs.delete(NAME)
    assert blobs.put(NAME, b"other")
    with pytest.raises(RefusedError, match="cannot list"):
        list(blobs.scan("main"))


def test_what_a_probe_finds(cache: Cache) -> None:
    found = probe(Guarded(opened(cache)), under="main/probes")
    assert (found.may_read, found.may_write, found.may_list, found.may_delete) == (True, True, False, False)
    assert found.only_new is False


def test_a_blob_that_is_too_large_is_its_own_trouble(cache: Cache) -> None:
    blobs = Guarded(opened(cache, "?layout=bazel"))
    with pytest.raises(TooLargeError, match=TOO_LARGE):
        blobs.put(NAME, bytes(2 << 20))
    assert blobs.put(NAME, b"small")
    assert blobs.traffic().state == "ok"


def test_who_refuses_names_and_is_no_such_cache_is_told_of_the_option() -> None:
    with running() as cache:
        cache.answer = lambda *_: (400, b"no")  # type: ignore[method-assign]
        blobs = opened(cache)
        for _ in range(2):
            with pytest.raises(RefusedError, match=r"status 400.*say layout=bazel"):
                blobs.get(NAME, limit=10)
        assert len(cache.asked) == 3
        asked = len(cache.asked)
        with pytest.raises(RefusedError, match=r"say layout=bazel"):
            opened(cache, "?layout=plain").put(NAME, b"data")
        assert len(cache.asked) == asked + 1


def test_an_address_says_its_layout() -> None:
    assert parse("https://host/a?layout=BAZEL").options == {"layout": "bazel"}
    with pytest.raises(ValueError, match="'layout' one of bazel, plain, found 'bazle'; did you mean 'bazel'"):
        parse("https://host/a?layout=bazle")
    with pytest.raises(ValueError, match="has no option 'layout'"):
        parse("s3://bucket?layout=bazel")
    assert parse("https://host/a?layout=bazel").identity != parse("https://host/a").identity


@given(st.binary(max_size=300))
@example(b"")
def test_the_layout_is_that_of_the_protocol(data: bytes) -> None:
    message = bazel.wrapped(data)
    result = ActionResult.FromString(message)
    assert (result.stdout_raw, result.execution_metadata.worker) == (data, "rewarm")
    assert bazel.unwrapped(message) == bazel.unwrapped(result.SerializeToString()) == data
    assert len(message) - len(data) <= bazel.MORE
    result.exit_code = 1 << 20
    assert bazel.unwrapped(result.SerializeToString()) == data


@given(st.binary(max_size=60))
@example(b"\x2a\xff\xff\xff\xff\x0f")
@example(b"\x80" * 40)
def test_whatever_lies_there_is_a_blob_or_an_error(data: bytes) -> None:
    try:
        found = bazel.unwrapped(data)
    except RemoteError:
        return
    assert found in data
