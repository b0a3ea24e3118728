"""What a probe finds out about real servers, and what it leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from servers import Server, free_port

from rewarm.remote.address import parse
from rewarm.remote.blobs import BlobInfo, Blobs
from rewarm.remote.opening import open_blobs
from rewarm.remote.probe import Findings, probe

pytest_plugins = ["remote_fixtures"]
pytestmark = pytest.mark.usefixtures("clean_clients")

Ask = Callable[[str], Server]

ALL = Findings(
    reachable=True,
    place_exists=True,
    may_read=True,
    may_write=True,
    may_list=True,
    may_delete=True,
    only_new=True,
)

# What each server enforces. This table is the documentation's, too.
FOUND = {
    "moto": ALL,
    "rclone-s3": replace(ALL, only_new=False),
    "radosgw": ALL,
    "azurite": ALL,
    "gcs": ALL,
    "nginx": replace(ALL, only_new=False, may_list=False, reason="this server cannot list"),
    "rclone-webdav": replace(ALL, only_new=False),
    "redis": ALL,
    "valkey": ALL,
    "folder": ALL,
    "fuse": ALL,
}


def opened(text: str) -> Blobs:
    return open_blobs(parse(text))


def left_by(blobs: Blobs) -> list[str]:
    """What probes left behind."""
    names = [f"probes/{number:x}" for number in range(16)]
    return [name for name in names if blobs.get(name, limit=99) is not None]


def without_numbers(findings: Findings) -> Findings:
    assert 0 < findings.seconds < 5
    return replace(findings, seconds=0.0, clock_offset=None)


@pytest.mark.parametrize("name", FOUND)
def test_what_each_server_enforces(name: str, server: Ask) -> None:
    blobs = opened(server(name).address("probed"))
    for _ in range(2):
        findings = probe(blobs)
        assert without_numbers(findings) == FOUND[name]
        if findings.may_list and name not in ("redis", "valkey"):
            assert findings.clock_offset is not None
            assert -2.0 < findings.clock_offset < 2.0
        assert left_by(blobs) == []


@pytest.mark.parametrize("name", ["moto", "rclone-s3", "nginx"])
def test_without_writing(name: str, server: Ask) -> None:
    findings = probe(opened(server(name).address("p")), write=False)
    assert (findings.reachable, findings.may_read) == (True, True)
    assert (findings.may_write, findings.only_new, findings.may_delete) == (None, None, None)
    assert findings.may_list is FOUND[name].may_list
    assert findings.place_exists is (None if name == "nginx" else True)


@pytest.mark.parametrize("name", ["moto", "rclone-s3", "azurite", "gcs"])
def test_a_missing_bucket(name: str, server: Ask) -> None:
    findings = probe(opened(server(name).address("p").replace("://cache/", "://no-such-bucket/")))
    assert (findings.reachable, findings.place_exists) == (True, False)
    assert (findings.may_read, findings.may_write) == (False, None)
    assert findings.reason == "there is no such bucket"


def test_a_missing_folder(server: Ask) -> None:
    findings = probe(opened(f"{server('rclone-webdav').url}/nobody/made/this"))
    assert (findings.reachable, findings.place_exists, findings.may_write) == (True, False, False)


def test_a_wrong_secret(server: Ask) -> None:
    findings = probe(opened(server("rclone-s3").address("p", secret_access_key="wrong")))
    assert (findings.reachable, findings.place_exists) == (True, None)
    assert (findings.may_read, findings.may_write, findings.may_list) == (False, False, False)
    assert findings.reason == "the secret key is wrong"


def test_where_nobody_may_write(server: Ask) -> None:
    findings = probe(opened(f"http://127.0.0.1:{server('nginx').port}/readonly"))
    assert (findings.reachable, findings.may_read, findings.may_write) == (True, True, False)
    assert findings.reason == "no right to do this (status 403)"


def test_where_nobody_may_delete_blobs_stay_that_are_bounded(server: Ask) -> None:
    held = server("nginx")
    for _ in range(40):
        findings = probe(opened(f"http://127.0.0.1:{held.port}/nodelete"))
        assert (findings.may_write, findings.may_delete) == (True, False)
    assert held.data is not None
    left = [path.name for path in (held.data / "nodelete").rglob("*") if path.is_file()]
    assert 1 <= len(left) <= 16
    assert set(left) <= set("0123456789abcdef")


def test_a_server_that_answers_anything(server: Ask) -> None:
    findings = probe(opened(f"http://127.0.0.1:{server('nginx').port}/any"))
    assert (findings.reachable, findings.may_read) == (True, False)
    assert findings.reason == "what was put is not what is got"


@pytest.mark.parametrize(
    ("status", "reachable", "reason"),
    [
        (429, True, "too many requests (status 429)"),
        (500, False, "not now (status 500)"),
        (401, True, "no valid credentials (status 401)"),
    ],
)
def test_a_server_in_trouble(status: int, reachable: bool, reason: str, server: Ask) -> None:
    findings = probe(opened(f"http://127.0.0.1:{server('nginx').port}/status/{status}"))
    assert (findings.reachable, findings.reason) == (reachable, reason)
    assert findings.may_write is (False if status == 401 else None)


def test_nobody_listens() -> None:
    before = time.monotonic()
    findings = probe(opened(f"http://127.0.0.1:{free_port()}"))
    assert without_numbers(findings) == Findings(reachable=False, reason="no connection")
    assert time.monotonic() - before < 2.0


def test_a_missing_shared_folder(tmp_path: Path) -> None:
    findings = probe(opened(f"file://{tmp_path}/missing"))
    assert (findings.place_exists, findings.may_write) == (False, None)
    assert not (tmp_path / "missing").exists()


def test_several_at_once(server: Ask) -> None:
    place = server("moto").address("at-once")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: probe(opened(place), deadline=30.0), range(16)))
    for findings in found:
        assert (findings.may_write, findings.may_list, findings.may_delete) == (True, True, True)
    assert sum(findings.only_new is True for findings in found) >= 15, "two removals in a row hit one at most"
    assert left_by(opened(place)) == []


class Slow:
    """Another remote, each of whose verbs takes longer."""

    def __init__(self, blobs: Blobs, seconds: float) -> None:
        self.blobs, self.seconds, self.asked = blobs, seconds, 0
        self.place = blobs.place

    def _wait(self) -> Blobs:
        self.asked += 1
        time.sleep(self.seconds)
        return self.blobs

    def get(self, name: str, *, limit: int) -> bytes | None:
        return self._wait().get(name, limit=limit)

    def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
        return self._wait().put(name, data, only_new=only_new)

    def delete(self, name: str) -> None:
        self._wait().delete(name)

    def scan(self, prefix: str) -> Iterator[BlobInfo]:
        return self._wait().scan(prefix)

    def close(self) -> None:
        self.blobs.close()


def test_the_number_of_requests(server: Ask) -> None:
    for name, most in (("moto", 6), ("rclone-s3", 8)):
        slow = Slow(opened(server(name).address("counted")), 0.0)
        probe(slow)
        assert slow.asked == most


def test_when_time_is_up_it_stops_and_removes_its_blob(server: Ask) -> None:
    slow = Slow(opened(server("moto").address("slow")), 0.3)
    findings = probe(slow, deadline=0.5)
    assert (findings.may_write, findings.only_new, findings.may_list) == (True, None, None)
    assert findings.may_delete is True
    assert findings.reason == "no time left"
    assert findings.seconds < 0.5 + 0.3 + 0.5
    assert left_by(slow.blobs) == []
