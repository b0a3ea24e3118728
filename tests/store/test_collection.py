"""Cleaning a whole store at once: what goes and why, and that a dry run changes nothing."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from store_making import adopt, by_priority, keys_of, sealed, tell_worth, truth

from rewarm.policy import Bounds, Usage, priority
from rewarm.store import LocalStore, quarantine
from rewarm.store.conformance import key_of

DAY = 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """300 entries of several sizes and worths, without a table."""
    choice = random.Random(0)
    keys = [key_of(number) for number in range(300)]
    sizes = {key: choice.randrange(1, 1000) for key in keys}
    adopt(tmp_path / "cache", keys, sizes.__getitem__)
    tell_worth(tmp_path / "cache", {key: choice.lognormvariate(0, 2) for key in keys})
    return LocalStore(tmp_path / "cache")


def date_back(store: LocalStore, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(store.path(key), (then, then))


def tree(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in [root, *root.rglob("*")]}


@pytest.mark.parametrize("bounds", [Bounds(max_size=50_000), Bounds(max_entries=77), Bounds(50_000, 77, None)])
def test_what_goes_is_exactly_the_policys(store: LocalStore, bounds: Bounds) -> None:
    order = by_priority(store.usages().values())
    planned = list(store.collect(bounds, dry_run=True))
    removed = list(store.collect(bounds))
    assert [one.key for one in removed] == order[: len(removed)]
    assert planned == removed
    size, entries = truth(store)
    assert not bounds.exceeded(size, entries)
    assert bounds.exceeded(size + removed[-1].size, entries + 1), "and not one more"
    assert store.total() == (size, entries)
    assert keys_of(store) == set(order[len(removed) :])


def test_each_says_why(store: LocalStore) -> None:
    old = [key_of(number) for number in range(10)]
    for key in old:
        date_back(store, key, 2 * DAY)
    size, entries = truth(store)
    removed = list(store.collect(Bounds(size // 2, entries // 4, DAY)))
    reasons = [one.reason for one in removed]
    assert {one.key for one in removed if one.reason == "age"} == set(old)
    assert reasons == sorted(reasons, key=["age", "size", "entries"].index)
    assert {"age", "size", "entries"} == set(reasons)
    for one in removed:
        assert one.size > 0
        assert one.seconds > 0
        assert abs(time.time() - one.used) < 3 * DAY


def test_a_dry_run_changes_nothing(store: LocalStore) -> None:
    leftover = store.root / key_of(0)[:2] / f".{key_of(0)}.1.0a0a0a0a.tmp"
    leftover.write_bytes(b"x")
    os.utime(leftover, (1e9, 1e9))
    before = tree(store.root)
    assert len(list(store.collect(Bounds(max_entries=0), dry_run=True))) == 300
    assert tree(store.root) == before


def test_it_counts_sums_up_and_sweeps(store: LocalStore) -> None:
    folder = store.root / key_of(0)[:2]
    (folder / f".{key_of(0)}.1.0a0a0a0a.tmp").write_bytes(b"x")
    os.utime(folder / f".{key_of(0)}.1.0a0a0a0a.tmp", (1e9, 1e9))
    fresh = folder / f".{key_of(0)}.1.0b0b0b0b.tmp"
    fresh.write_bytes(b"x")
    for _ in range(30):
        date_back(store, key_of(0), 3600.0)
        store._renewed.clear()
        store.get(key_of(0))
    before = (folder / ".usage").stat().st_size
    assert list(store.collect(Bounds())) == []
    assert list(folder.glob(".*.tmp")) == [fresh]
    assert (folder / ".usage").stat().st_size < before
    assert store.usages()[key_of(0)].uses == 31
    assert all(store._accounts.totals.read().counted)
    assert store.total() == truth(store)


def test_what_was_used_meanwhile_stays(store: LocalStore) -> None:
    for number in range(300):
        date_back(store, key_of(number), 2 * DAY)
    removing = store.collect(Bounds(max_age=DAY))
    first = next(removing)
    used = [key_of(number) for number in range(300) if key_of(number) != first.key][:5]
    for key in used:
        assert store.get(key) is not None
    assert len(list(removing)) == 300 - 1 - 5
    assert keys_of(store) == set(used)


def test_what_is_removed_by_another_meanwhile_is_not_told(store: LocalStore) -> None:
    order = by_priority(store.usages().values())
    removing = store.collect(Bounds(max_entries=0))
    assert next(removing).key == order[0]
    LocalStore(store.root).delete(order[1])
    assert order[1] not in {one.key for one in removing}
    assert truth(store) == store.total() == (0, 0)


def test_who_stops_halfway_leaves_the_books_right(store: LocalStore) -> None:
    removing = store.collect(Bounds(max_entries=100))
    for _ in range(10):
        next(removing)
    removing.close()
    assert truth(store)[1] == 290
    assert store.total() == truth(store)


def test_usages_read_what_no_journal_has(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache")
    store.put(key_of(0), sealed(key_of(0), 4.5))
    store.put(key_of(1), sealed(key_of(1), 4.5), seconds=9.0)
    store.put(key_of(2), b"no entry at all")
    size = store.path(key_of(0)).stat().st_size
    usages = store.usages()
    used = store.path(key_of(0)).stat().st_mtime
    assert usages[key_of(0)] == Usage(key_of(0), size, 4.5, 1, priority(used, 4.5, 1, size))
    assert usages[key_of(1)].seconds == 9.0
    assert usages[key_of(2)].seconds == pytest.approx(0.001)


def test_an_empty_or_missing_store_has_nothing_to_collect(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache")
    assert list(store.collect(Bounds(max_entries=0))) == []
    assert store.usages() == {}
    assert store.total() == (0, 0)
    assert not store.root.exists()


def test_quarantine_is_bounded_by_bytes(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "_KEEPS_BYTES", 1000)
    for number in range(400, 410):
        store.put(key_of(number), b"x" * 300)
        store.quarantine(key_of(number), "bad", b"x" * 300)
    assert {path.name[:64] for path in store.quarantined()} == {key_of(number) for number in range(407, 410)}
    store.put(key_of(500), b"x" * 5000)
    store.quarantine(key_of(500), "bad", b"x" * 5000)
    assert [path.name[:64] for path in store.quarantined()] == [key_of(500)], "the newest stays whatever its size"


def test_dropping_what_is_quarantined(store: LocalStore) -> None:
    for number in range(400, 403):
        store.put(key_of(number), b"x")
        store.quarantine(key_of(number), "bad", b"x")
    first, *rest = store.quarantined()
    assert store.drop_quarantined([first, store.path(key_of(0)), store.root / "quarantine" / ".."]) == 1
    assert store.quarantined() == rest
    assert store.get(key_of(0)) is not None


def test_clearing_leaves_nothing_but_the_tag(store: LocalStore) -> None:
    assert store.prepare() is None
    store.put(key_of(400), b"x")
    for info in list(store.scan()):
        store.delete(info.key)
    assert store.total() == truth(store) == (0, 0)
    store.remove_leftovers()
    assert [path.name for path in store.root.rglob("*")] == ["CACHEDIR.TAG"]
