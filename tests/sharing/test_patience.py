"""Sending and fetching all that is missing, while the remote has some short trouble or a long one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_proxy import NONE, RESET, Fault, FaultProxy, status
from sharing_world import THEIRS, Held, entry_of, key_of, ring, store_at

from rewarm.remote.address import parse
from rewarm.remote.blobs import RefusedError, ThrottledError, UnreachableError
from rewarm.remote.guard import Guarded
from rewarm.remote.objects import ObjectBlobs
from rewarm.sharing import RemoteTier, sync
from rewarm.sharing.made import Made
from rewarm.sharing.sync import Sent
from rewarm.sharing.tier import OVERSIZED
from rewarm.store import LocalStore
from rewarm.trust import Posture, signed
from shared_remotes import MAIN, HttpCache, blob_of, folder_tier, http_cache

NUMBERS = range(20)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    found = store_at(tmp_path / "here")
    for number in NUMBERS:
        Made(found.root).add(entry_of(number))
        found.put(key_of(number), entry_of(number))
    return found


@pytest.fixture
def cache() -> Iterator[HttpCache]:
    with http_cache() as found:
        found.put_delay = 0.05
        yield found


def tier_of(port: int) -> RemoteTier:
    blobs = Guarded(ObjectBlobs(parse(f"http://127.0.0.1:{port}/cache")))
    return RemoteTier(blobs, namespaces=MAIN, keyring=ring(), posture=Posture.REQUIRE, writes=True, tell=lambda _: None)


def watched(found: Iterator[Sent], proxy: FaultProxy, fault: Fault, seconds: float) -> list[Sent]:
    """All that became of it; after the fourth entry the fault begins, for so many seconds."""
    sent: list[Sent] = []
    for one in found:
        sent.append(one)
        if len(sent) == 4:
            proxy.fault = fault
            threading.Timer(seconds, lambda: setattr(proxy, "fault", NONE)).start()
    return sent


@pytest.mark.parametrize("fault", [status(429, "1"), status(503), RESET], ids=str)
def test_a_short_trouble_delays_and_loses_nothing(store: LocalStore, cache: HttpCache, fault: Fault) -> None:
    told: list[str] = []
    with FaultProxy(cache.port, http=True) as proxy:
        found = sync.push(store, tier_of(proxy.port), map(key_of, NUMBERS), made=Made(store.root), tell=told.append)
        sent = watched(found, proxy, fault, 0.8)
    assert [one.problem for one in sent] == [None] * 20
    assert sorted(cache.entries()) == sorted(map(key_of, NUMBERS))
    assert len(told) == 1
    assert "to go, asked again until it answers nothing for 60 s" in told[0]


def test_who_answers_nothing_for_too_long_is_given_up(store: LocalStore, cache: HttpCache) -> None:
    since = time.monotonic()
    with FaultProxy(cache.port, http=True) as proxy:
        sent = watched(
            sync.push(store, tier_of(proxy.port), map(key_of, NUMBERS), made=Made(store.root), patience=1.0),
            proxy,
            RESET,
            9.0,
        )
    assert time.monotonic() - since < 8
    problems = {one.problem for one in sent if one.problem is not None}
    assert problems
    assert len(sent) == 20
    assert not any("passed over" in problem for problem in problems), "the trouble itself is named"


def test_a_short_trouble_while_they_are_fetched(store: LocalStore, tmp_path: Path) -> None:
    held = Held()
    for number in NUMBERS:
        name = f"main/{key_of(number)[:2]}/{key_of(number)}"
        held.blobs[name] = signed(entry_of(number), key_of(number), "main", THEIRS)
    trouble = [ThrottledError("too much", 0.2), UnreachableError("broken off"), UnreachableError("broken off")]
    get = held.get

    def failing(name: str, *, limit: int) -> bytes | None:
        if len(held.got) > 5 and trouble:
            raise trouble.pop()
        return get(name, limit=limit)

    held.get = failing  # type: ignore[method-assign]
    tier = RemoteTier(
        Guarded(held), namespaces=MAIN, keyring=ring(), posture=Posture.REQUIRE, writes=True, tell=lambda _: None
    )
    there = store_at(tmp_path / "there")
    assert [one.problem for one in sync.pull(there, tier)] == [None] * 20
    assert trouble == []
    assert {info.key for info in there.scan()} == set(map(key_of, NUMBERS))


def test_what_no_patience_helps_is_said_at_once(store: LocalStore) -> None:
    held = Held()
    held.errors = [RefusedError("no right")] * 20
    tier = RemoteTier(
        Guarded(held), namespaces=MAIN, keyring=ring(), posture=Posture.REQUIRE, writes=True, tell=lambda _: None
    )
    since = time.monotonic()
    assert [one.problem for one in sync.push(store, tier, map(key_of, NUMBERS), made=Made(store.root))] == [
        "no right"
    ] * 20
    assert time.monotonic() - since < 1


def test_a_blob_of_gigabytes_is_named_refused_and_replaced(store: LocalStore, tmp_path: Path) -> None:
    root, told = tmp_path / "shared", list[str]()
    tier = folder_tier(root, ring(), told=told)
    list(sync.push(store, tier, map(key_of, NUMBERS), made=Made(store.root)))
    huge = blob_of(root, key_of(3))
    with huge.open("r+b") as file:
        file.truncate(2 << 30)
    there = store_at(tmp_path / "there")
    problems = {one.key: one.problem for one in sync.pull(there, tier)}
    assert problems == {key_of(number): f"refused: {OVERSIZED}" if number == 3 else None for number in NUMBERS}
    assert tier.fetch(key_of(3)) is None
    assert [key_of(3)[:12] in line and OVERSIZED in line for line in told] == [True]
    sent = list(sync.push(store, tier, map(key_of, NUMBERS), made=Made(store.root), verify=True))
    assert sent == [Sent(key_of(3), "push", None)]
    assert huge.stat().st_size < 1 << 20
