"""The local store keeps the contract that every store keeps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rewarm.policy import Bounds
from rewarm.store import LocalStore, Store
from rewarm.store.conformance import BAD_KEYS, StoreConformance, key_of


class TestLocalStore(StoreConformance):
    def make_store(self, place: Path) -> Store:
        return LocalStore(place / "cache")

    def leave_strays(self, place: Path) -> None:
        root = place / "cache"
        shard = root / key_of(0)[:2]
        good = key_of(7)
        (root / "notes.txt").write_bytes(b"a file that is not ours")
        (root / good).write_bytes(b"an entry's name in the wrong place")
        (root / "zz").mkdir()
        (root / "zz" / good).write_bytes(b"a directory that is no shard")
        other = "00" if shard.name != "00" else "01"
        (root / other).write_bytes(b"a file where a shard would be")
        (shard / ".x.1.2.tmp").write_bytes(b"half a wr")
        (shard / good).write_bytes(b"an entry in another's shard")
        (shard / (shard.name + "a" * 61)).write_bytes(b"a name that is too short")
        (shard / (shard.name + "A" * 62)).write_bytes(b"an upper-case name")
        (shard / (shard.name + "b" * 62)).mkdir()
        (shard / (shard.name + "c" * 62)).symlink_to(shard / key_of(0))
        os.mkfifo(shard / (shard.name + "d" * 62))
        (root / os.fsdecode(b"\xff\xfe")).write_bytes(b"a name that is not text")


class TestBoundedStore(TestLocalStore):
    """A store at whose bounds nothing of the suite comes."""

    def make_store(self, place: Path) -> Store:
        return LocalStore(place / "cache", bounds=Bounds(max_size=1 << 30, max_entries=10_000, max_age=86_400.0))


class TestSharedStore(TestLocalStore):
    def make_store(self, place: Path) -> Store:
        return LocalStore(place / "cache", shared=True)


class TestStoreWithoutBooks(TestLocalStore):
    """A store whose table and journals cannot be read or written: something else lies there."""

    def make_store(self, place: Path) -> Store:
        root = place / "cache"
        (root / "sizes").mkdir(parents=True, exist_ok=True)
        for number in range(256):
            (root / f"{number:02x}" / ".usage").mkdir(parents=True, exist_ok=True)
        return LocalStore(root, bounds=Bounds(max_size=1 << 30, max_age=86_400.0))

    def leave_strays(self, place: Path) -> None:
        """As without; the directories are there already."""


class Forgetful(LocalStore):
    """A store that breaks one promise at a time, to see that the suite notices."""

    def put(self, key: str, data: bytes, *, seconds: float = 0.0) -> None:
        super().put(key, data[:100], seconds=seconds)


class Careless(LocalStore):
    def quarantine(self, key: str, reason: str, seen: bytes | None) -> None:  # noqa: ARG002 - that is the fault
        self.delete(key)


class Trusting(LocalStore):
    def path(self, key: str) -> Path:
        return self.root / key[:2] / key


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (Forgetful, StoreConformance.test_what_was_put_is_got),
        (Forgetful, StoreConformance.test_many_threads_see_whole_values_or_none),
        (Careless, StoreConformance.test_quarantine_leaves_what_was_written_since),
        (Trusting, StoreConformance.test_bad_keys_are_refused_and_touch_nothing),
    ],
)
def test_the_suite_notices_a_broken_store(broken: type[LocalStore], test: object, tmp_path: Path) -> None:
    class Suite(StoreConformance):
        def make_store(self, place: Path) -> Store:
            return broken(place / "cache")

    with pytest.raises((AssertionError, OSError)):
        test(Suite(), tmp_path)  # type: ignore[operator]


def test_every_bad_key_is_bad_in_a_way_of_its_own() -> None:
    assert len(set(BAD_KEYS)) == len(BAD_KEYS)
