"""Every remote against the contract, by real servers: from a test, from threads, from spawned processes."""

from __future__ import annotations

import dataclasses
import multiprocessing
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from servers import Server

from rewarm.remote.address import parse
from rewarm.remote.blobs import Blobs
from rewarm.remote.conformance import BlobsConformance
from rewarm.remote.opening import open_blobs

pytest_plugins = ["remote_fixtures"]
pytestmark = pytest.mark.usefixtures("clean_clients")

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Kind:
    """How one server uses the contract's freedoms.

    Attributes:
      only_new: whether it is enforced.
      lists: whether it can list.
      one_winner: whether of several at the same moment one alone succeeds.
      whole: whether readers see whole blobs while others write.
      threads: how many at once it can bear.
    """

    only_new: bool
    one_winner: bool = True
    lists: bool = True
    whole: bool = True
    threads: int = 16


KINDS = {
    "moto": Kind(only_new=True, one_winner=False),
    "rclone-s3": Kind(only_new=False, whole=False),
    "radosgw": Kind(only_new=True),
    "azurite": Kind(only_new=True),
    "gcs": Kind(only_new=True, one_winner=False),
    "nginx": Kind(only_new=False, lists=False),
    "rclone-webdav": Kind(only_new=False, whole=False),
    "redis": Kind(only_new=True),
    "valkey": Kind(only_new=True),
    "folder": Kind(only_new=True),
    "fuse": Kind(only_new=True, whole=False, threads=1),  # an I/O error stays with a blob that several replace at once
}


class Conformance(BlobsConformance):
    """The class as it is shipped, over an address that may be a server's."""

    many = 1100
    large = 20 * MEGABYTE

    def make_blobs(self, place: str) -> Blobs:
        return open_blobs(parse(self.spell(place)))

    def hold(self, server: Server, kind: Kind) -> None:
        self.spell: Callable[[str], str] = server.address
        self.enforces_only_new, self.lists, self.whole = kind.only_new, kind.lists, kind.whole
        self.threads, self.one_winner = kind.threads, kind.one_winner


class TestConformance(Conformance):
    @pytest.fixture(autouse=True, params=KINDS)
    def _held(self, request: pytest.FixtureRequest, server: Callable[[str], Server]) -> None:
        self.hold(server(request.param), KINDS[request.param])


def run_all(server: Server, kind: Kind) -> list[str]:
    """Every test of the class; which of them failed, and how."""
    tests = [name for name in dir(Conformance) if name.startswith("test_")]
    assert len(tests) > 15
    failures = []
    for name in tests:
        held = Conformance()
        held.hold(server, kind)
        held.many, held.large = 50, MEGABYTE
        try:
            getattr(held, name)()
        except BaseException:
            failures.append(f"{name}: {traceback.format_exc()}")
    return failures


def _in_child(server: Server, kind: Kind, results: Any) -> None:
    results.put(run_all(server, kind))


SOME = ("moto", "nginx", "rclone-s3")


@pytest.mark.parametrize("name", SOME)
def test_in_a_spawned_process_beside_its_parent(name: str, server: Callable[[str], Server]) -> None:
    held = server(name)
    open_blobs(parse(held.address("warm"))).get("a", limit=1)  # the parent's client is at work already
    plain = dataclasses.replace(held, process=None)  # which cannot be handed over
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    child = context.Process(target=_in_child, args=(plain, KINDS[name], results))
    child.start()
    try:
        assert results.get(timeout=120) == []
        child.join(30)
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("name", SOME)
def test_in_threads_beside_each_other(name: str, server: Callable[[str], Server]) -> None:
    held = server(name)
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(run_all(held, KINDS[name]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[], []]
