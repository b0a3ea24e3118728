"""Many entries at once, which another place has too: as put one by one, but that none is synced."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewarm.errors import StoreError
from rewarm.policy import Bounds
from rewarm.store import Copy, LocalStore
from rewarm.store.conformance import key_of

relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "cache")


def in_shard(number: int, shard: str = "ab") -> str:
    return shard + key_of(number)[2:]


def copies_of(keys: Iterable[str], size: int = 100) -> dict[str, Copy]:
    return {key: Copy(key.encode()[:32].ljust(size, b"."), 2.5) for key in keys}


def put(store: LocalStore, copies: dict[str, Copy]) -> None:
    store.put_copies(copies)
    assert {key: store.get(key, use=False) for key in copies} == {key: one.data for key, one in copies.items()}


def truth(store: LocalStore) -> tuple[int, int]:
    infos = list(store.scan())
    return sum(info.size for info in infos), len(infos)


def temporaries(store: LocalStore) -> list[Path]:
    return list(store.root.rglob("*.tmp"))


def test_they_are_there_and_in_the_books(store: LocalStore) -> None:
    keys = [*(in_shard(number) for number in range(20)), *(key_of(number) for number in range(20))]
    put(store, copies_of(keys))
    assert store.total() == truth(store) == (4000, 40)
    assert {one.key: one.seconds for one in store.usages().values()} == dict.fromkeys(keys, 2.5)
    put(store, copies_of(keys[:10], 50))
    assert store.total() == truth(store) == (3500, 40)
    assert temporaries(store) == []
    store.put_copies({})


@relaxed
@given(batches=st.lists(st.dictionaries(st.integers(0, 30), st.integers(32, 200), max_size=12), max_size=5))
def test_the_books_are_right_after_any_batches(
    tmp_path_factory: pytest.TempPathFactory, batches: list[dict[int, int]]
) -> None:
    store = LocalStore(tmp_path_factory.mktemp("copies") / "cache")
    for batch in batches:
        put(store, {in_shard(number, "ab" if number % 3 else "cd"): Copy(b"x" * size, 1.0)
                    for number, size in batch.items()})  # fmt: skip
    assert store.total() == truth(store)


def test_none_is_synced(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.prepare()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    put(store, copies_of(in_shard(number) for number in range(5)))
    assert synced == []


def test_they_keep_to_the_bound(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache", bounds=Bounds(max_size=20_000))
    for number in range(100):
        store.put(key_of(number), b"x" * 190, seconds=1.0)
    for start in range(200, 300, 10):
        store.put_copies(copies_of((key_of(number) for number in range(start, start + 10)), 190))
        assert truth(store)[0] <= 20_000
    assert store.total() == truth(store)


def test_what_can_never_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache", bounds=Bounds(max_size=1_000))
    with pytest.raises(StoreError, match="more than the store may hold"):
        store.put_copies({key_of(0): Copy(b"x", 1.0), key_of(1): Copy(b"x" * 1_001, 1.0)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("strikes_at", [0, 1, 4])
def test_an_interrupted_one_leaves_nothing_half_written(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, strikes_at: int
) -> None:
    keys = [in_shard(number) for number in range(5)]
    real, left = os.replace, [strikes_at]

    def replace(before: str, after: str) -> None:
        if not left[0] and after.rpartition("/")[2] in keys:
            raise KeyboardInterrupt
        left[0] -= 1
        real(before, after)

    store.prepare()
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        store.put_copies(copies_of(keys))
    monkeypatch.undo()
    assert temporaries(store) == []
    assert truth(store)[1] == strikes_at
    put(store, copies_of(keys))
    assert store.total()[1] >= 5 - strikes_at, "those that had their names before count from the next look on"


def test_a_directory_that_is_removed_meanwhile(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entries are not stored, the others are, and nobody hears of it."""
    lost, kept = [in_shard(number) for number in range(3)], [in_shard(number, "cd") for number in range(3)]
    real = os.replace

    def replace(before: str, after: str) -> None:
        if "/ab/" in str(after):
            raise FileNotFoundError(2, "No such file or directory", before)
        real(before, after)

    monkeypatch.setattr(os, "replace", replace)
    store.put_copies(copies_of([*lost, *kept]))
    assert {info.key for info in store.scan()} == set(kept)


def test_a_read_only_store_takes_none(store: LocalStore) -> None:
    store.prepare()
    store.read_only = True
    with pytest.raises(StoreError, match="read-only"):
        store.put_copies(copies_of([key_of(1)]))
