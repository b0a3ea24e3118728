"""The store contract as tests, for whoever writes a store: subclass, name the store, collect.

    import pytest
    pytest.register_assert_rewrite("rewarm.store.conformance")  # before the import, for readable failures
    from rewarm.store.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        def make_store(self, place: Path) -> Store:
            return MyStore(place / "store")

Not promised: proof. What a store does when its disk is full, its process is killed or its network is gone is not
tested here, since only its author knows how to bring that about.

Nothing of pytest is imported: each test is a method that takes an empty directory (pytest's `tmp_path`) and asserts.
"""

from __future__ import annotations

import hashlib
import math
import random
import threading
from collections.abc import Callable
from pathlib import Path

from rewarm.errors import BadEntryError, StoreError
from rewarm.hammering import is_whole, run, whole
from rewarm.store.contract import Store

_MEGABYTE = 1 << 20

# Each stands for one way of leaving the store's place or of meaning two entries by one name.
BAD_KEYS: tuple[str, ...] = (
    "",
    "..",
    "a" * 63,
    "a" * 65,
    "A" * 64,
    "g" * 64,
    "a" * 64 + "\n",
    "a" * 63 + "\0",
    "a" * 31 + "/" + "a" * 32,
    "a" * 31 + "\\" + "a" * 32,
    "../" + "a" * 61,
    "/" + "a" * 63,
    "\uff10" * 64,
)


def key_of(number: int) -> str:
    """A good key, another one for each number."""
    return hashlib.sha256(str(number).encode("ascii")).hexdigest()


class StoreConformance:
    """What every store does. Subclass it, override `make_store`, and let pytest collect the subclass."""

    #: How many threads hammer the store at once, and how often each acts.
    threads = 8
    rounds = 40

    def make_store(self, place: Path) -> Store:
        """A store that lies in `place`. Called again with the same place, another one over the same entries."""
        raise NotImplementedError("override make_store")

    def leave_strays(self, place: Path) -> None:
        """Leave things in the store's place that are no entries, where a store has a place others may write to."""

    # -- get and put -------------------------------------------------------------------------------------------

    def test_get_of_an_unknown_key_is_none(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert store.get(key_of(0)) is None
        store.put(key_of(1), b"another")
        assert store.get(key_of(0)) is None

    def test_a_look_gets_what_a_use_gets(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert store.get(key_of(0), use=False) is None
        store.put(key_of(0), b"an entry")
        assert store.get(key_of(0), use=False) == store.get(key_of(0), use=True) == b"an entry"

    def test_what_was_put_is_got(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        values = [b"", b"\0", bytes(range(256)), b"\r\n" * 9, random.Random(0).randbytes(_MEGABYTE)]
        for number, value in enumerate(values):
            store.put(key_of(number), value)
        for number, value in enumerate(values):
            got = store.get(key_of(number))
            assert type(got) is bytes
            assert got == value

    def test_the_last_writer_wins(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for value in (b"first", b"the second is longer", b"3rd", b""):
            store.put(key_of(0), value)
            assert store.get(key_of(0)) == value

    def test_seconds_are_a_hint_and_change_nothing_else(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for number, seconds in enumerate((0.0, 1e-9, 12.5, 1e9, -1.0, math.inf, math.nan)):
            store.put(key_of(number), b"%d" % number, seconds=seconds)
            assert store.get(key_of(number)) == b"%d" % number, f"seconds={seconds}"

    def test_two_stores_over_one_place_see_each_other(self, tmp_path: Path) -> None:
        one, other = self.make_store(tmp_path), self.make_store(tmp_path)
        assert other.get(key_of(0)) is None
        one.put(key_of(0), b"by one")
        assert other.get(key_of(0)) == b"by one"
        other.put(key_of(0), b"by the other")
        assert one.get(key_of(0)) == b"by the other"
        assert _listed(one) == _listed(other) == {key_of(0): len(b"by the other")}
        one.delete(key_of(0))
        assert other.get(key_of(0)) is None

    def test_the_tier_is_a_word(self, tmp_path: Path) -> None:
        tier = self.make_store(tmp_path).tier
        assert tier
        assert len(tier.split()) == 1

    # -- delete ------------------------------------------------------------------------------------------------

    def test_what_was_deleted_is_gone_and_nothing_else(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.put(key_of(0), b"gone")
        store.put(key_of(1), b"stays")
        store.delete(key_of(0))
        assert store.get(key_of(0)) is None
        assert store.get(key_of(1)) == b"stays"
        store.put(key_of(0), b"again")
        assert store.get(key_of(0)) == b"again"

    def test_deleting_what_is_not_there_is_no_error(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.delete(key_of(0))
        store.put(key_of(0), b"x")
        store.delete(key_of(0))
        store.delete(key_of(0))
        assert store.get(key_of(0)) is None

    # -- scan --------------------------------------------------------------------------------------------------

    def test_scan_of_an_empty_store_is_empty(self, tmp_path: Path) -> None:
        assert list(self.make_store(tmp_path).scan()) == []

    def test_scan_agrees_with_what_was_put(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        expected = {key_of(number): number * 7 for number in range(40)}
        for key, size in expected.items():
            store.put(key, b"x" * size)
        assert _listed(store) == expected
        store.put(key_of(3), b"rewritten, and longer")
        store.delete(key_of(4))
        expected[key_of(3)] = len(b"rewritten, and longer")
        del expected[key_of(4)]
        assert _listed(store) == expected

    def test_scan_dates_entries(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.put(key_of(0), b"x")
        (info,) = store.scan()
        year = 365 * 86400.0
        assert 40 * year < info.used < 400 * year, "seconds since the epoch"

    def test_strays_are_passed_over(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.put(key_of(0), b"an entry")
        self.leave_strays(tmp_path)
        assert _listed(store) == {key_of(0): len(b"an entry")}
        store.put(key_of(1), b"another")
        assert _listed(store) == {key_of(0): len(b"an entry"), key_of(1): len(b"another")}
        assert store.get(key_of(0)) == b"an entry"

    # -- keys --------------------------------------------------------------------------------------------------

    def test_bad_keys_are_refused_and_touch_nothing(self, tmp_path: Path) -> None:
        place = tmp_path / "place"
        place.mkdir()
        store = self.make_store(place)
        store.put(key_of(0), b"x")
        (tmp_path / ("a" * 61)).write_bytes(b"outside")
        before = _tree(tmp_path)
        for key in BAD_KEYS:
            assert _raises_value_error(store.get, key), f"get({key!r})"
            assert _raises_value_error(lambda key: store.put(key, b"bad"), key), f"put({key!r})"
            assert _raises_value_error(store.delete, key), f"delete({key!r})"
            _raises_value_error(lambda key: store.quarantine(key, "bad", b"x"), key)
            assert _tree(tmp_path) == before, f"{key!r} changed something"
        assert _listed(store) == {key_of(0): 1}

    # -- quarantine --------------------------------------------------------------------------------------------

    def test_quarantine_takes_what_was_seen_out_of_the_way(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.put(key_of(0), b"bad")
        store.put(key_of(1), b"good")
        store.quarantine(key_of(0), "it is bad", b"bad")
        assert store.get(key_of(0)) is None
        assert _listed(store) == {key_of(1): len(b"good")}
        store.put(key_of(0), b"new")
        assert store.get(key_of(0)) == b"new"

    def test_quarantine_leaves_what_was_written_since(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.put(key_of(0), b"bad")
        self.make_store(tmp_path).put(key_of(0), b"good")
        for seen in (b"bad", b"", b"goo", b"good and more", None):
            store.quarantine(key_of(0), "it was bad", seen)
            assert store.get(key_of(0)) == b"good", f"seen={seen!r}"

    def test_quarantine_of_a_missing_entry_does_nothing(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for seen in (b"bad", b"", None):
            store.quarantine(key_of(0), "it is bad", seen)
        store.put(key_of(1), b"x")
        store.quarantine(key_of(0), "it is bad", b"x")
        assert _listed(store) == {key_of(1): 1}

    def test_quarantine_takes_any_reason(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for reason in ("", "../../etc/passwd", "a/b\0c\nd", "\N{SNOWMAN}" * 300, "\udcff", ".."):
            store.put(key_of(0), b"bad")
            store.quarantine(key_of(0), reason, b"bad")
            assert store.get(key_of(0)) is None, f"reason={reason!r}"

    # -- many at once ------------------------------------------------------------------------------------------

    def test_many_threads_see_whole_values_or_none(self, tmp_path: Path) -> None:
        stores = [self.make_store(tmp_path) for _ in range(2)]
        faults: list[str] = []
        workers = [
            threading.Thread(target=self._hammer, args=(stores[seed % 2], seed, faults)) for seed in range(self.threads)
        ]
        run(workers)
        assert faults == []

    def _hammer(self, store: Store, seed: int, faults: list[str]) -> None:
        choice = random.Random(seed)
        try:
            for _ in range(self.rounds):
                self._act(store, choice, faults)
        except Exception as error:  # noqa: BLE001 - a thread's exception would be lost
            faults.append(f"{type(error).__name__}: {error}")

    def _act(self, store: Store, choice: random.Random, faults: list[str]) -> None:
        number = choice.randrange(4)
        verb = choice.choice(("get", "get", "get", "put", "put", "delete", "scan", "quarantine"))
        if verb == "put":
            store.put(key_of(number), whole(number, choice))
        elif verb == "delete":
            store.delete(key_of(number))
        elif verb == "scan":
            faults.extend(f"scan: {info}" for info in store.scan() if info.key not in _HAMMERED)
        else:
            value = store.get(key_of(number))
            if value is not None and not is_whole(number, value):
                faults.append(f"get: {len(value)} bytes that nobody put there")
            if verb == "quarantine":
                store.quarantine(key_of(number), "tested", value)


_HAMMERED = frozenset(key_of(number) for number in range(4))


def _listed(store: Store) -> dict[str, int]:
    found = [(info.key, info.size) for info in store.scan()]
    assert len(found) == len(dict(found)), "an entry shows once"
    return dict(found)


def _tree(place: Path) -> dict[str, bytes | None]:
    """Everything under `place`: content of files, `None` for the rest."""
    paths = (path for path in place.rglob("*"))
    return {str(path.relative_to(place)): path.read_bytes() if path.is_file() else None for path in paths}


def _raises_value_error(act: Callable[[str], object], key: str) -> bool:
    try:
        act(key)
    except (StoreError, BadEntryError):
        return False  # BadEntryError is a ValueError too, and says something else
    except ValueError:
        return True
    return False
