"""Blobs in a real Redis and a real Valkey, on loopback."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from servers import MissingServerError, Server, free_port, stop
from servers import redis as a_redis

from rewarm.errors import SettingError
from rewarm.remote.address import parse
from rewarm.remote.blobs import (
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
)
from rewarm.remote.redis_blobs import RedisBlobs

pytest_plugins = ["remote_fixtures"]
pytestmark = pytest.mark.usefixtures("clean_clients")

redis = pytest.importorskip("redis")

NAME = "main/ab/" + "ab" * 32


@pytest.fixture(params=["redis", "valkey"])
def running(request: pytest.FixtureRequest, server: Callable[[str], Server]) -> Server:
    return server(request.param)


@pytest.fixture
def blobs(running: Server, tmp_path: Path) -> Iterator[RedisBlobs]:
    made = RedisBlobs(running.url, deadline=2.0, options={"prefix": f"tests{time.time_ns()}"})
    yield made
    made.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[int]:
    """The port of a server that this test may put into any state."""
    try:
        with a_redis(tmp_path) as started:
            yield started.port
    except MissingServerError as missing:
        pytest.skip(str(missing))


def raw(port: int, **more: Any) -> Any:
    return redis.Redis(port=port, **more)


def opened(port: int, path: str = "", **options: str) -> RedisBlobs:
    return RedisBlobs(f"redis://127.0.0.1:{port}{path}", deadline=1.0, options=options)


def test_what_is_put_is_there(blobs: RedisBlobs) -> None:
    assert blobs.get(NAME, limit=10) is None
    for content in (b"", b"x", bytes(range(256)) * 1000):
        assert blobs.put(NAME, content)
        assert blobs.get(NAME, limit=len(content)) == content
        assert blobs.get(NAME, limit=len(content) + 1) == content
    blobs.delete(NAME)
    blobs.delete(NAME)
    assert blobs.get(NAME, limit=10) is None


@pytest.mark.parametrize("size", [1, 7, 8, 9, 65527, 65528, 65529, 65536, 65537, 300_000])
def test_more_than_the_reader_wants_is_refused(blobs: RedisBlobs, size: int) -> None:
    content = bytes([size % 251]) * size
    blobs.put("x", content)
    assert blobs.get("x", limit=size) == content
    assert blobs.get("x", limit=10 * size) == content
    for limit in {0, size // 2, size - 1}:
        with pytest.raises(TooLargeError):
            blobs.get("x", limit=limit)


def test_of_a_huge_blob_only_the_start_is_sent(running: Server, blobs: RedisBlobs) -> None:
    client = raw(running.port)
    blobs.put("x", b"1" * 30_000_000)
    before = client.info("stats")["total_net_output_bytes"]
    with pytest.raises(TooLargeError):
        blobs.get("x", limit=1_000_000)
    assert client.info("stats")["total_net_output_bytes"] - before < 200_000


def test_the_server_enforces_only_new(blobs: RedisBlobs) -> None:
    with ThreadPoolExecutor(16) as pool:
        for turn in range(10):
            won = list(pool.map(lambda who, turn=turn: blobs.put(f"t/{turn}", b"%d" % who, only_new=True), range(16)))
            assert won.count(True) == 1
            assert blobs.get(f"t/{turn}", limit=9) == b"%d" % won.index(True)
    assert blobs.put("t/1", b"other")
    assert blobs.get("t/1", limit=9) == b"other"


def test_a_scan_finds_each_blob_once(running: Server) -> None:
    client = raw(running.port)
    prefix = "odd*[?]\\^" + str(time.time_ns())
    blobs = RedisBlobs(running.url, deadline=2.0, options={"prefix": prefix})
    before = float(client.time()[0])
    for number in range(2500):
        client.set(f"{prefix}:n/{number}", b"\0" * 8 + b"x" * (number % 7))
    blobs.put("n/new", b"12345")
    client.set(f"{prefix}:n/foreign", b"short")
    client.set(f"{prefix}:n/bad name", b"12345678")
    client.lpush(f"{prefix}:n/list", "x")
    client.set(f"{prefix}:nn/other", b"12345678")
    client.set(f"{prefix}X:n/other", b"12345678")
    found = list(blobs.scan("n"))
    assert sorted(info.name for info in found) == sorted([*(f"n/{number}" for number in range(2500)), "n/new"])
    new = next(info for info in found if info.name == "n/new")
    assert new.size == 5
    assert before - 1 <= new.modified <= client.time()[0] + 1.5
    assert list(blobs.scan("nothing")) == []
    client.flushall()


def test_what_is_not_ours_is_no_blob(running: Server, blobs: RedisBlobs) -> None:
    client = raw(running.port)
    prefix = blobs.place.rsplit("/", 1)[1]
    client.set(f"{prefix}:x", b"short")
    assert blobs.get("x", limit=99) is None
    client.delete(f"{prefix}:x")
    client.lpush(f"{prefix}:x", "1")
    with pytest.raises(RemoteError, match="something else"):
        blobs.get("x", limit=99)
    assert blobs.put("x", b"ours")
    assert blobs.get("x", limit=99) == b"ours"


def test_blobs_go_after_their_time(running: Server) -> None:
    blobs = RedisBlobs(running.url, deadline=2.0, options={"ttl": "1", "prefix": "brief"})
    blobs.put("x", b"1")
    assert blobs.get("x", limit=1) == b"1"
    time.sleep(1.3)
    assert blobs.get("x", limit=1) is None
    assert blobs.put("x", b"1", only_new=True)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://h", "redis://h:6379/0/rewarm"),
        ("redis://h:1/3", "redis://h:1/3/rewarm"),
        ("redis://h/3/team/a", "redis://h:6379/3/team/a"),
        ("valkey://h/team", "redis://h:6379/0/team"),
        ("rediss://u:secret@h/0", "rediss://h:6379/0/rewarm"),
        ("redis://h/1?db=4&prefix=p&password=secret", "redis://h:6379/4/p"),
    ],
)
def test_where_it_is(url: str, place: str) -> None:
    blobs = RedisBlobs.of(parse(url))
    assert blobs.place == place
    assert "secret" not in repr(blobs)


@pytest.mark.parametrize("options", [{"db": "x"}, {"db": "-1"}, {"ttl": "0"}, {"ttl": "soon"}])
def test_options_that_cannot_be(options: dict[str, str]) -> None:
    with pytest.raises(SettingError, match="whole number"):
        opened(1, **options)


def test_prefixes_and_databases_are_apart(own: int) -> None:
    first, second, third = opened(own, "/0/a"), opened(own, "/0/b"), opened(own, "/1/a")
    first.put("x", b"1")
    assert second.get("x", limit=1) is None
    assert third.get("x", limit=1) is None
    assert raw(own).get("a:x")[8:] == b"1"


def test_a_server_that_is_full_is_read_only(own: int) -> None:
    blobs = opened(own)
    blobs.put("x", b"1")
    raw(own).config_set("maxmemory", "1")
    with pytest.raises(RefusedError, match="out of memory"):
        blobs.put("y", b"2")
    assert blobs.get("x", limit=1) == b"1"


def test_replicas(own: int) -> None:
    blobs = opened(own)
    blobs.put("x", b"1")
    raw(own).execute_command("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(RefusedError, match="read-only replica"):
        blobs.put("x", b"2")
    assert blobs.get("x", limit=1) == b"1"
    raw(own).config_set("replica-serve-stale-data", "no")
    with pytest.raises(UnreachableError, match="lost its master"):
        blobs.get("x", limit=1)


def test_passwords_and_permissions(own: int) -> None:
    admin = raw(own)
    admin.execute_command("ACL SETUSER reader on >pw ~rewarm:* +get +getrange +strlen")
    reader = opened(own, username="reader", password="pw")
    assert reader.get("x", limit=1) is None
    with pytest.raises(RefusedError, match="no permission") as caught:
        reader.put("x", b"1")
    assert "pw" not in str(caught.value)
    with pytest.raises(RefusedError, match="no permission"):
        list(reader.scan("x"))
    with pytest.raises(RefusedError, match="no permission"):
        opened(own, prefix="other", username="reader", password="pw").get("x", limit=1)
    admin.config_set("requirepass", "secret")
    with pytest.raises(RefusedError, match="wants a password"):
        opened(own).get("x", limit=1)
    with pytest.raises(RefusedError, match="does not accept"):
        opened(own, password="wrong").get("x", limit=1)
    assert opened(own, password="secret").put("x", b"1")


def test_a_user_who_may_not_ask_for_the_time_still_writes(own: int) -> None:
    raw(own).execute_command("ACL SETUSER writer on >pw ~rewarm:* +set +getrange +strlen")
    writer = opened(own, username="writer", password="pw")
    assert writer.put("x", b"1")
    assert writer.get("x", limit=1) == b"1"


def test_a_database_that_is_not_there_is_no_place(own: int) -> None:
    with pytest.raises(NoSuchPlaceError):
        opened(own, "/99").get("x", limit=1)


def test_too_many_clients_is_a_call_to_slow_down(own: int) -> None:
    holder = raw(own)
    holder.config_set("maxclients", "1")
    with pytest.raises(ThrottledError):
        opened(own).get("x", limit=1)
    holder.close()


def test_a_server_that_loads_is_asked_again_later(tmp_path: Path) -> None:
    port = free_port()
    with served(port, "--port", str(port), "--dir", str(tmp_path), "--enable-debug-command", "local"):
        client = raw(port)
        client.execute_command("DEBUG", "POPULATE", "20000")
        client.config_set("key-load-delay", "50")  # microseconds for each key
        client.config_set("loading-process-events-interval-bytes", "1024")
        blobs = opened(port)
        seen = set()
        with ThreadPoolExecutor(1) as pool:
            reload = pool.submit(lambda: raw(port).execute_command("DEBUG", "RELOAD"))
            while not reload.done():
                try:
                    blobs.get("x", limit=1)
                except RemoteError as error:
                    seen.add((type(error), error.reason))
        assert seen == {(UnreachableError, "the server is loading its data")}
        assert blobs.get("x", limit=1) is None


def test_nobody_there() -> None:
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="refused"):
        opened(free_port()).get("x", limit=1)
    assert time.monotonic() - began < 2.0
    with pytest.raises(UnreachableError):
        RedisBlobs("redis://nowhere.invalid", deadline=1.0).get("x", limit=1)


def test_something_else_is_there(server: Callable[[str], Server]) -> None:
    """HTTP in place of Redis, and Redis in place of TLS."""
    with pytest.raises(RemoteError):
        opened(server("moto").port).get("x", limit=1)
    with pytest.raises(UnreachableError):
        RedisBlobs(f"rediss://127.0.0.1:{server('redis').port}", deadline=0.5).get("x", limit=1)


@contextmanager
def served(port: int, *arguments: str, **connection: Any) -> Iterator[None]:
    """A server with arguments of this test's own, that is ready."""
    command = ["redis-server", "--bind", "127.0.0.1", "--save", "", *arguments]
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("no redis-server (apt-get install redis-server)")
    try:
        end = time.monotonic() + 10
        while True:
            try:
                raw(port, **connection).ping()
                break
            except redis.ConnectionError:
                assert time.monotonic() < end
                assert process.poll() is None
                time.sleep(0.02)
        yield
    finally:
        stop(process)


def test_after_a_restart_of_the_server_it_goes_on(tmp_path: Path) -> None:
    port = free_port()
    blobs = opened(port)
    for turn in range(3):
        with served(port, "--port", str(port), "--dir", str(tmp_path)), ThreadPoolExecutor(8) as pool:
            # All connections of the pool are dead, one for each thread of the turn before.
            assert all(pool.map(lambda who, turn=turn: blobs.put(f"{turn}/{who}", b"1"), range(32)))
        with pytest.raises(UnreachableError):
            blobs.get("x", limit=1)


def test_tls(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    port, key, certificate = free_port(), f"{tmp_path}/key.pem", f"{tmp_path}/certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
    make += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run(make, check=True, capture_output=True)
    arguments = ["--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no", "--dir", str(tmp_path)]
    arguments += ["--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate]
    with served(port, *arguments, ssl=True, ssl_cert_reqs="none"):
        url = f"rediss://127.0.0.1:{port}"
        blobs = RedisBlobs(url, deadline=2.0, options={"ssl_ca_certs": certificate})
        assert blobs.put("x", b"1")
        assert blobs.get("x", limit=1) == b"1"
        with pytest.raises(UnreachableError, match="certificate"):
            RedisBlobs(url, deadline=2.0).get("x", limit=1)
