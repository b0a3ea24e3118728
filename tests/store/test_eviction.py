"""Bounds and eviction: what goes, in which order, and that the bound holds whatever happened to the books."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from store_children import run_mounting
from store_making import adopt, by_priority, key_in, keys_of, sealed, tell_worth, truth

from rewarm.errors import StoreError
from rewarm.policy import Bounds, Usage, priority, victims
from rewarm.store import LocalStore, eviction
from rewarm.store.conformance import key_of

DAY = 86_400.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def date_back(store: LocalStore, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(store.path(key), (then, then))


# ---------------------------------------------------------------------------------------------------------------
# The bound


@pytest.mark.parametrize("bounds", [Bounds(max_size=1000), Bounds(max_entries=10), Bounds(1000, 10, DAY)])
def test_a_bound_is_never_exceeded_by_one_writer(root: Path, bounds: Bounds) -> None:
    store = LocalStore(root, bounds=bounds)
    for number in range(60):
        store.put(key_of(number), b"x" * 100, seconds=1.0)
        size, entries = truth(store)
        assert not bounds.exceeded(size, entries)
        assert store.get(key_of(number)) == b"x" * 100, "what was just put is there"
        assert store.total() == (size, entries)
    assert truth(store)[1] >= 9, "no more goes than has to, down to the low-water mark"


def test_an_unbounded_store_keeps_everything_and_the_books(root: Path) -> None:
    store = LocalStore(root)
    for number in range(100):
        store.put(key_of(number), b"x" * number)
    assert store.total() == truth(store) == (sum(range(100)), 100)


def test_a_replaced_entry_counts_once(root: Path) -> None:
    store = LocalStore(root, bounds=Bounds(max_size=1000, max_entries=2))
    store.put(key_of(0), b"x" * 400)
    store.put(key_of(1), b"x" * 400)
    for size in (600, 10, 600, 600):
        store.put(key_of(0), b"x" * size)
        assert store.total() == truth(store) == (size + 400, 2)


def test_making_room_for_a_replacement_spares_what_is_replaced(root: Path) -> None:
    store = LocalStore(root, bounds=Bounds(max_size=1000))
    store.put(key_of(0), b"x" * 400, seconds=0.01)
    store.put(key_of(1), b"x" * 400, seconds=100.0)
    store.put(key_of(0), b"x" * 700, seconds=0.01)
    assert keys_of(store) == {key_of(0)}
    assert store.total() == (700, 1)


@pytest.mark.parametrize("bounds", [Bounds(max_size=99), Bounds(max_size=0), Bounds(max_entries=0)])
def test_what_can_never_fit_is_refused_and_evicts_nothing(root: Path, bounds: Bounds) -> None:
    store = LocalStore(root)
    store.put(key_of(0), b"x" * 50)
    store.bounds = bounds
    with pytest.raises(StoreError, match="more than the store may hold"):
        store.put(key_of(1), b"x" * 100)
    assert keys_of(store) == {key_of(0)}


def test_deleting_and_quarantining_make_room(root: Path) -> None:
    store = LocalStore(root, bounds=Bounds(max_entries=3))
    for number in range(3):
        store.put(key_of(number), b"x", seconds=1.0)
    store.delete(key_of(0))
    store.quarantine(key_of(1), "bad", b"x")
    assert store.total() == truth(store) == (1, 1)
    store.put(key_of(3), b"x", seconds=1.0)
    store.put(key_of(4), b"x", seconds=1.0)
    assert keys_of(store) == {key_of(2), key_of(3), key_of(4)}


def test_lowering_the_bound_takes_a_little_at_each_put(root: Path) -> None:
    keys = [key_of(number) for number in range(4000)]
    adopt(root, keys, 10)
    tell_worth(root, {key: 1.0 + number for number, key in enumerate(keys)})
    store = LocalStore(root, bounds=Bounds(max_size=40_000))
    list(store.collect(store.bounds))
    assert store.total() == (40_000, 4000)
    store.bounds, number, longest = Bounds(max_size=400), 0, 0.0
    while truth(store)[0] > 400:
        assert number < 200, "it never comes within its bound"
        since = time.perf_counter()
        store.put(key_of(-number - 1), b"x" * 10, seconds=1e9)
        longest, number = max(longest, time.perf_counter() - since), number + 1
    assert longest < 5 * eviction._BUDGET, "loosely, since other processes run beside this test"


# ---------------------------------------------------------------------------------------------------------------
# The order


def test_the_order_in_one_directory_is_the_policys(root: Path) -> None:
    choice = random.Random(1)
    keys = [key_in("aa", number) for number in range(40)]
    sizes = {key: choice.randrange(50, 500) for key in keys}
    seconds = {key: choice.lognormvariate(0, 2) for key in keys}
    store = LocalStore(root, bounds=Bounds(max_entries=40))
    for key in keys:
        store.put(key, b"x" * sizes[key], seconds=seconds[key])
    expected = by_priority(
        Usage(key, sizes[key], seconds[key], 1, priority(0.0, seconds[key], 1, sizes[key])) for key in keys
    )
    for number in range(20):
        store.put(key_in("aa", 1000 + number), b"x", seconds=1e6)
        assert not keys_of(store) & set(expected[: number + 1])
        assert set(expected[number + 1 :]) <= keys_of(store)


def test_the_order_over_few_entries_in_many_directories_is_the_policys(root: Path) -> None:
    choice = random.Random(2)
    seconds = {key_of(number): choice.lognormvariate(0, 2) for number in range(300)}
    store = LocalStore(root, bounds=Bounds(max_size=300 * 20))
    for key, one in seconds.items():
        store.put(key, b"x" * 20, seconds=one)
    order = sorted(seconds, key=seconds.__getitem__)
    for number in range(100):
        store.put(key_of(1000 + number), b"x" * 20, seconds=1e6)
        gone = set(seconds) - keys_of(store)
        assert gone == set(order[: len(gone)])
    assert len(gone) >= 100


@pytest.mark.campaign
def test_the_order_over_many_entries_is_close_to_the_policys(root: Path) -> None:
    choice = random.Random(3)
    seconds = {key_of(number): choice.lognormvariate(0, 2) for number in range(20_000)}
    adopt(root, seconds, 20)
    tell_worth(root, seconds)
    store = LocalStore(root, bounds=Bounds(max_entries=20_000))
    for number in range(1500):
        store.put(key_of(-1 - number), b"x" * 20, seconds=1e6)
    gone = set(seconds) - keys_of(store)
    order = sorted(seconds, key=seconds.__getitem__)
    assert len(gone) >= 1500
    ranks = {key: rank for rank, key in enumerate(order)}
    assert max(ranks[key] for key in gone) < len(gone) + 0.03 * len(order), "nothing dear went"
    assert len(gone & set(order[: len(gone)])) > 0.8 * len(gone), "and mostly the cheapest did"


def test_use_keeps_an_entry(root: Path) -> None:
    store = LocalStore(root, bounds=Bounds(max_entries=3))
    for number in range(3):
        store.put(key_of(number), b"x", seconds=1.0)
    date_back(store, key_of(0), 3600.0)
    assert store.get(key_of(0)) == b"x"
    store.put(key_of(3), b"x", seconds=1.5)
    store.put(key_of(4), b"x", seconds=1.5)
    assert keys_of(store) == {key_of(0), key_of(3), key_of(4)}


def test_what_is_no_longer_used_goes_in_the_end_however_dear(root: Path) -> None:
    """Worth halves with every half day: after 5 of them, something 32 times as dear is worth what is new."""
    store = LocalStore(root, bounds=Bounds(max_entries=4))
    for halves, stays in ((4.0, True), (6.0, False)):
        store.put(key_of(0), b"x", seconds=32.0)
        date_back(store, key_of(0), halves * 43_200.0)
        assert list(store.collect(Bounds())) == []  # the books are to hear of it
        for number in range(1, 9):
            store.put(key_of(number), b"x", seconds=1.0)
        assert (key_of(0) in keys_of(store)) is stays


def test_an_adopted_store_is_evicted_by_what_its_entries_say(root: Path) -> None:
    choice = random.Random(4)
    seconds = {key_of(number): choice.lognormvariate(0, 2) for number in range(60)}
    root.mkdir()
    for key, one in seconds.items():
        (root / key[:2]).mkdir(exist_ok=True)
        (root / key[:2] / key).write_bytes(sealed(key, one))
    size = max(info.size for info in LocalStore(root).scan())
    store = LocalStore(root, bounds=Bounds(max_entries=60))
    for number in range(20):
        store.put(key_of(1000 + number), b"x" * size, seconds=1e9)
    gone = set(seconds) - keys_of(store)
    mean = sum(seconds[key] for key in gone) / len(gone)
    assert len(gone) >= 20
    assert mean < sorted(seconds.values())[20], "they went by worth and not by chance"


def test_an_adopted_directory_is_learned_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [key_in("aa", number) for number in range(30)]
    root.mkdir()
    (root / "aa").mkdir()
    for key in keys:
        (root / "aa" / key).write_bytes(sealed(key, 5.0))
    opened: list[str] = []
    from rewarm.store import survey

    real = survey.header_of
    monkeypatch.setattr(survey, "header_of", lambda path: (opened.append(path.name), real(path))[1])
    store = LocalStore(root, bounds=Bounds(max_entries=30))
    for number in range(5):
        store.put(key_in("aa", 1000 + number), b"x", seconds=1e9)
    assert sorted(opened) == sorted(keys)
    assert store.usages()[next(iter(keys_of(store) & set(keys)))].seconds == 5.0


def test_entries_without_a_header_are_taken_for_cheap(root: Path) -> None:
    keys = [key_in("aa", number) for number in range(20)]
    adopt(root, keys[:10], 10)
    for key in keys[10:]:
        (root / "aa" / key).write_bytes(sealed(key, 5.0))
    store = LocalStore(root, bounds=Bounds(max_entries=20))
    for number in range(8):
        store.put(key_in("aa", 1000 + number), b"x", seconds=1e9)
    assert set(keys[10:]) <= keys_of(store)


# ---------------------------------------------------------------------------------------------------------------
# Adoption


def test_a_store_that_was_never_bounded_comes_within_its_bound(root: Path) -> None:
    keys = [key_of(number) for number in range(6000)]
    adopt(root, keys, 100)
    store = LocalStore(root, bounds=Bounds(max_size=300_000))
    number = 0
    while truth(store)[0] > 300_000:
        assert number < 200, "it never comes within its bound"
        store.put(key_of(-number - 1), b"x" * 100, seconds=1.0)
        number += 1
    assert store.total() == truth(store)


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_store_of_100000_entries_that_was_never_bounded(root: Path) -> None:
    adopt(root, (key_of(number) for number in range(100_000)), 100)
    store = LocalStore(root, bounds=Bounds(max_size=9_000_000))
    longest, number = 0.0, 0
    while number % 25 or truth(store)[0] > 9_000_000:
        since = time.perf_counter()
        store.put(key_of(-number - 1), b"x" * 100, seconds=1.0)
        longest, number = max(longest, time.perf_counter() - since), number + 1
        assert number < 500
    assert longest < 1.0, "a tenth of a second for others' entries, on a machine that others use too"
    assert store.total() == truth(store)


def test_lost_books_are_made_anew(root: Path) -> None:
    store = LocalStore(root, bounds=Bounds(max_entries=50))
    for number in range(50):
        store.put(key_of(number), b"x" * number, seconds=1.0)
    for path in (root / "sizes", *root.glob("*/.usage")):
        path.unlink()
    store.put(key_of(50), b"x", seconds=1.0)
    assert truth(store)[1] <= 50
    assert store.total() == truth(store)


# ---------------------------------------------------------------------------------------------------------------
# Age and clocks


def test_what_was_not_used_for_too_long_goes_at_the_next_puts(root: Path) -> None:
    store = LocalStore(root, bounds=Bounds(max_age=DAY))
    for number in range(50):
        store.put(key_of(number), b"x")
        date_back(store, key_of(number), 2 * DAY if number % 2 else DAY / 2)
    (root / "sizes").unlink()
    for number in range(100, 110):
        store.put(key_of(number), b"x")
    assert keys_of(store) == {key_of(number) for number in [*range(0, 50, 2), *range(100, 110)]}
    assert store.total() == truth(store)


def test_what_becomes_too_old_goes_though_nothing_else_happens_in_its_directory(root: Path) -> None:
    store = LocalStore(root, bounds=Bounds(max_age=1.0))
    for number in range(20):
        store.put(key_in("aa", number), b"x")
    time.sleep(1.3)
    store.put(key_in("bb", 0), b"x")
    assert keys_of(store) == {key_in("bb", 0)}


def test_a_hit_keeps_an_entry_young(root: Path) -> None:
    store = LocalStore(root, bounds=Bounds(max_age=DAY))
    store.put(key_of(0), b"x")
    date_back(store, key_of(0), DAY / 2)
    store.get(key_of(0))
    store.put(key_of(1), b"x")
    assert key_of(0) in keys_of(store)
    assert time.time() - store.path(key_of(0)).stat().st_mtime < 60


def test_an_entry_from_the_future_is_young_and_is_renewed(root: Path) -> None:
    store = LocalStore(root, bounds=Bounds(max_age=DAY))
    for number in range(2):
        store.put(key_of(number), b"x")
        date_back(store, key_of(number), -10 * 365 * DAY)
    (root / "sizes").unlink()
    store.put(key_of(2), b"x")
    assert keys_of(store) == {key_of(0), key_of(1), key_of(2)}
    store.get(key_of(0))
    assert abs(time.time() - store.path(key_of(0)).stat().st_mtime) < 60
    assert store.usages()[key_of(0)].uses == 2


def test_a_wrong_clock_of_this_host_empties_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root, bounds=Bounds(max_age=DAY))
    store.put(key_of(0), b"x")
    leftover = root / key_of(0)[:2] / f".{key_of(0)}.1.0a0a0a0a.tmp"
    leftover.write_bytes(b"somebody is writing this")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 100 * DAY)
    (root / "sizes").unlink()
    for number in range(1, 20):
        store.put(key_of(number), b"x")
    list(store.collect(store.bounds))
    assert len(keys_of(store)) == 20
    assert leftover.exists()


# ---------------------------------------------------------------------------------------------------------------
# Full disks

_FILL_UP = """
from rewarm.policy import Bounds
store = LocalStore(Path(sys.argv[1]) / "cache", bounds=Bounds(max_size=1 << 30))
for number in range(40):
    store.put(key_of(number), bytes(20_000), seconds=1000.0 + number)
print(all(store.get(key_of(number)) is not None for number in range(30, 40)), store.get(key_of(0)))
print(list(store.root.rglob("*.tmp")))
print(store.total() == (sum(info.size for info in store.scan()), len(list(store.scan()))))
"""


def test_on_a_full_disk_the_least_worth_gives_way(tmp_path: Path) -> None:
    printed = run_mounting('mount -t tmpfs -o size=512k tmpfs "$3"', _FILL_UP, tmp_path)
    assert printed == ["True None", "[]", "True"]


# ---------------------------------------------------------------------------------------------------------------
# Any sequence

KEYS = tuple(key_in(shard, number) for shard in ("aa", "bb", "cc") for number in range(6))
keys = st.sampled_from(KEYS)


class BoundedStore(RuleBasedStateMachine):
    """Two bounded stores over one directory: the bound holds, and the books are right as long as nobody cheats."""

    def __init__(self) -> None:
        super().__init__()
        # A machine that stands still for a moment must not look like a bound that is not kept.
        self.budget, eviction._BUDGET = eviction._BUDGET, 60.0
        self.root = Path(tempfile.mkdtemp(prefix="rewarm-bounded-")) / "cache"
        self.model: dict[str, bytes] = {}
        self.exact = True

    @initialize(max_size=st.integers(300, 1500), max_entries=st.integers(2, 12))
    def open(self, max_size: int, max_entries: int) -> None:
        self.bounds = Bounds(max_size, max_entries, DAY)
        self.stores = [LocalStore(self.root, bounds=self.bounds) for _ in range(2)]

    def teardown(self) -> None:
        eviction._BUDGET = self.budget
        shutil.rmtree(self.root.parent)

    @rule(which=st.integers(0, 1), key=keys, size=st.integers(0, 300), seconds=st.floats(0.0, 1e4))
    def put(self, which: int, key: str, size: int, seconds: float) -> None:
        self.stores[which].put(key, key[:1].encode() * size, seconds=seconds)
        self.model[key] = key[:1].encode() * size
        assert self.stores[which].get(key) == self.model[key]
        if self.exact:
            size, entries = truth(self.stores[which])
            assert not self.bounds.exceeded(size, entries)

    @rule(which=st.integers(0, 1), key=keys, old=st.booleans())
    def get(self, which: int, key: str, old: bool) -> None:
        if old and self.stores[which].path(key).exists():
            date_back(self.stores[which], key, 3600.0)
        assert self.stores[which].get(key) in (None, self.model.get(key))

    @rule(which=st.integers(0, 1), key=keys)
    def delete(self, which: int, key: str) -> None:
        self.stores[which].delete(key)
        assert self.stores[which].get(key) is None

    @rule(which=st.integers(0, 1), key=keys)
    def put_aside(self, which: int, key: str) -> None:
        self.stores[which].quarantine(key, "bad", self.model.get(key))

    @rule()
    def lose_the_table(self) -> None:
        (self.root / "sizes").unlink(missing_ok=True)

    @rule(at=st.integers(0, 10_279), byte=st.integers(0, 255))
    def damage_the_table(self, at: int, byte: int) -> None:
        if (self.root / "sizes").exists():
            with (self.root / "sizes").open("r+b") as file:
                file.seek(at)
                file.write(bytes([byte]))

    @rule(noise=st.binary(max_size=100), shard=st.sampled_from(["aa", "bb", "cc"]))
    def damage_a_journal(self, noise: bytes, shard: str) -> None:
        if (self.root / shard).is_dir():
            with (self.root / shard / ".usage").open("ab") as file:
                file.write(noise)

    @rule(key=keys)
    def another_changes_it_past_the_books(self, key: str) -> None:
        if (self.root / key[:2]).is_dir():
            (self.root / key[:2] / key).write_bytes(b"")
            self.model[key], self.exact = b"", False

    @rule(which=st.integers(0, 1))
    def collect(self, which: int) -> None:
        removed = list(self.stores[which].collect(self.bounds))
        assert not {one.key for one in removed} & keys_of(self.stores[which])
        assert not self.bounds.exceeded(*truth(self.stores[which]))
        self.exact = True

    @invariant()
    def the_books_are_right(self) -> None:
        if self.exact:
            for store in self.stores:
                assert store.total() == truth(store)


BoundedStore.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestBoundedStore = BoundedStore.TestCase


@pytest.mark.campaign
def test_long_random_campaign() -> None:
    run_state_machine_as_test(
        BoundedStore,
        settings=settings(
            max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[*HealthCheck]
        ),
    )


def test_victims_of_the_policy_are_what_this_file_expects() -> None:
    usages = [Usage(key_of(n), 10, float(n), 1, priority(0.0, float(n), 1, 10)) for n in range(1, 5)]
    assert [one.key for one in victims(usages, 0, 2)] == by_priority(usages)[:2]
