"""What a start asks for before its first program: the plan and the packs, from real servers, counted by request."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharing_world import OURS, STRANGER, THEIRS, Held, entry_of, key_of, ring, store_at, until, uploads_of

from rewarm.remote.address import parse
from rewarm.remote.guard import Guarded
from rewarm.remote.opening import open_blobs
from rewarm.sharing import Namespaces, Remotes, RemoteTier, packs, plans
from rewarm.sharing.early import Early, Source
from rewarm.sharing.housekeeping import Bounds, chosen
from rewarm.sharing.plans import Plan
from rewarm.sharing.tier import name_of
from rewarm.store import LocalStore
from rewarm.trust import Keyring, Posture, SigningKey, signed
from shared_remotes import MAIN, HttpCache, http_cache

PROGRAM = ("train.py", "--steps", "7")
EXACT, ROUGH = plans.ids_of(PROGRAM)


@pytest.fixture
def http() -> Iterator[HttpCache]:
    with http_cache() as cache:
        yield cache


class Start:
    """A start of `PROGRAM` on a machine of its own."""

    def __init__(self, root: Path, url: str, *, posture: Posture = Posture.REQUIRE, writes: bool = True) -> None:
        address = parse(url)
        self.told: list[str] = []
        self.guard = Guarded(open_blobs(address), deadline=address.deadline, tell=self.told.append)
        self.tier = RemoteTier(
            self.guard, namespaces=MAIN, keyring=ring(), posture=posture, writes=writes, tell=self.told.append
        )
        self.store = store_at(root)
        self.early = Early(root, [Source(0, self.guard, "main")], PROGRAM)
        self._remotes: Remotes | None = None

    @property
    def remotes(self) -> Remotes:
        if self._remotes is None:
            self._remotes = Remotes([self.tier], uploads_of(self.store, self.tier), self.store, self.early)
        return self._remotes

    def had(self, number: int) -> bool:
        """Whether an entry is here, or comes, and is what it should be; as the cache asks."""
        data = self.store.get(key_of(number))
        if data is None:
            found = self.remotes.fetch(key_of(number))
            data = found.data if found is not None else None
        assert data in (None, entry_of(number))
        return data is not None


def share(
    http: HttpCache, numbers: Sequence[int], *, signer: SigningKey = THEIRS, per_pack: int = 30, head: bool = True
) -> Plan:
    """Entries, packs and a plan in a remote, as another machine leaves them."""

    def put(name: str, data: bytes) -> None:
        http.blobs[f"/cache/main/{name}"] = data

    packed: dict[str, str] = {}
    for start in range(0, len(numbers), per_pack):
        blobs = {key_of(one): signed(entry_of(one), key_of(one), "main", signer) for one in numbers[start:][:per_pack]}
        for key, blob in blobs.items():
            put(f"{key[:2]}/{key}", blob)
        pack = packs.pack(blobs)
        name = EXACT if head and start == 0 else packs.name_of(pack)
        put(f"{packs.FOLDER}/{name}", pack)
        packed |= dict.fromkeys(blobs, name)
    plan = Plan(tuple(map(key_of, numbers)), packed)
    send_plan(http, plan)
    return plan


def send_plan(http: HttpCache, plan: Plan) -> None:
    for plan_id in (EXACT, ROUGH):
        http.blobs[f"/cache/main/{plans.FOLDER}/{plan_id}"] = plans._bytes(PROGRAM, plan)


def entries_asked_for(http: HttpCache) -> int:
    return sum(len(path.rpartition("/")[2]) == 64 for _, path in http.asked)


# -- packs ---------------------------------------------------------------------------------------------------------


def test_a_pack_holds_what_was_put_in() -> None:
    blobs = {key_of(number): bytes([number]) * (number + 1) for number in range(20)}
    assert packs.unpack(packs.pack(blobs)) == blobs
    assert packs.unpack(packs.pack({})) == {}
    assert packs.is_name(packs.name_of(packs.pack(blobs)))


@given(data=st.binary(max_size=200))
def test_what_is_no_pack_is_empty(data: bytes) -> None:
    assert packs.unpack(data) == {}


@given(cut=st.integers(0, 700), flips=st.lists(st.tuples(st.integers(0, 699), st.integers(0, 255)), max_size=4))
def test_a_damaged_pack_never_raises_nor_gives_more_than_it_has(cut: int, flips: list[tuple[int, int]]) -> None:
    data = bytearray(packs.pack({key_of(number): b"x" * 50 for number in range(5)}))
    for place, value in flips:
        data[place % len(data)] = value
    found = packs.unpack(bytes(data[:cut]))
    assert sum(map(len, found.values())) <= cut
    assert all(len(key) == 64 for key in found)


def test_packs_are_bounded() -> None:
    small = [(key_of(number), b"x" * 60_000) for number in range(400)]
    parts = list(packs.divided([(key_of(999), b"x" * (packs.LARGEST_ENTRY + 1)), *small], head=True))
    sizes = [len(packs.pack(part)) for part in parts]
    assert len(parts) == packs.MOST
    assert sizes[0] <= 256 << 10
    assert max(sizes) <= packs.LARGEST
    assert [key for part in parts for key in part] == [key for key, _ in small][: sum(map(len, parts))]
    assert list(packs.divided([], head=True)) == []


def test_housekeeping_takes_packs_for_no_entries_and_removes_old_ones(http: HttpCache) -> None:
    share(http, range(40))
    with_listing = Held()
    with_listing.blobs = {path.removeprefix("/cache/"): data for path, data in http.blobs.items()}
    tier = RemoteTier(
        with_listing, namespaces=MAIN, keyring=ring(), posture=Posture.REQUIRE, writes=True, tell=lambda _: None
    )
    assert len(list(tier.scan("main"))) == 40
    found = list(with_listing.scan("main"))
    gone = chosen("main", found, Bounds(max_age=60.0), time.time() + 120)
    assert {one.name for one in gone if one.name.startswith("packs/")} == {
        path.removeprefix("/cache/main/") for path in http.blobs if "/packs/" in path
    }
    assert not [one for one in chosen("main", found, Bounds(max_age=60.0), time.time()) if "/" in one.name]


# -- a start -------------------------------------------------------------------------------------------------------


def test_a_start_with_packs_is_a_few_requests(tmp_path: Path, http: HttpCache) -> None:
    share(http, range(100))
    start = Start(tmp_path / "cache", http.url)
    start.early.begin()
    until(lambda: bool(start.early.plan.keys))
    assert [start.had(number) for number in range(100)] == [True] * 100
    until(lambda: len(list(start.store.scan())) == 100)
    assert entries_asked_for(http) == 0
    assert len(http.asked) == 2 + 1 + 3, "two plans, the head with them, and three packs"
    assert start.told == []
    assert start.tier.traffic().hits == 100
    http.asked.clear()
    again = Start(tmp_path / "cache", http.url)
    plans.write(tmp_path / "cache", EXACT, PROGRAM, Plan(tuple(map(key_of, range(100)))))
    again.early.begin()
    assert again.early.finished(10)
    assert again.had(1)
    assert http.asked == [], "all of it is here"


def test_what_is_here_already_is_not_fetched_again(tmp_path: Path, http: HttpCache) -> None:
    plan = share(http, range(90))
    start = Start(tmp_path / "cache", http.url)
    for number in range(58):
        start.store.put(key_of(number), entry_of(number))
    plans.write(tmp_path / "cache", EXACT, PROGRAM, plan)
    start.early.begin()
    assert [start.had(number) for number in range(90)] == [True] * 90
    assert start.early.finished(10)
    assert http.count("GET", "/plans/") == 0
    assert http.count("GET", "/packs/") == 1, "the last one; of the second pack two entries are missing"
    assert entries_asked_for(http) == 2


@pytest.mark.parametrize("what", ["gone", "another", "damaged", "cut", "unsigned", "stranger", "other_place"])
def test_whatever_is_wrong_with_a_pack_its_entries_come_one_by_one(tmp_path: Path, http: HttpCache, what: str) -> None:
    share(http, range(12))
    [path] = [path for path in http.blobs if "/packs/" in path]
    own = {key_of(number): signed(entry_of(number), key_of(number), "main", THEIRS) for number in range(12)}
    wrong = {
        "another": packs.pack({key_of(number): own[key_of(number - 50)] for number in range(50, 62)}),
        "damaged": packs.pack({key: blob[:-40] + b"x" * 40 for key, blob in own.items()}),
        "cut": http.blobs[path][: len(http.blobs[path]) // 2],
        "unsigned": packs.pack({key_of(number): entry_of(number) for number in range(12)}),
        "stranger": packs.pack({
            key_of(number): signed(entry_of(number), key_of(number), "main", STRANGER) for number in range(12)
        }),
        "other_place": packs.pack({
            key_of(number): signed(entry_of(number), key_of(number), "ci", THEIRS) for number in range(12)
        }),
    }  # fmt: skip
    if what == "gone":
        del http.blobs[path]
    else:
        http.blobs[path] = wrong[what]
    start = Start(tmp_path / "cache", http.url)
    start.early.begin()
    assert start.early.finished(20)
    assert [start.had(number) for number in range(12)] == [True] * 12
    asked = entries_asked_for(http)
    assert 0 < asked < 12 if what == "cut" else asked == 12
    refused = sum(start.tier.traffic().refused.values())
    assert refused == (12 if what in ("damaged", "unsigned", "stranger", "other_place") else 0)
    assert len(start.told) == (1 if refused else 0)
    assert start.tier.traffic().hits == 12


def test_a_pack_of_entries_that_nobody_trusts_leaves_nothing_here(tmp_path: Path, http: HttpCache) -> None:
    share(http, range(12), signer=STRANGER)
    start = Start(tmp_path / "cache", http.url)
    start.early.begin()
    assert start.early.finished(20)
    assert [start.had(number) for number in range(12)] == [False] * 12
    until(lambda: sum(start.tier.traffic().refused.values()) >= 24)
    assert list(start.store.scan()) == []


def test_a_stale_plan_costs_nothing_but_requests(tmp_path: Path, http: HttpCache) -> None:
    """It names packs and entries that are not there, and not what the program wants."""
    share(http, range(60), per_pack=20)
    for path in list(http.blobs):
        if "/packs/" in path or path.rpartition("/")[2] == key_of(5):
            del http.blobs[path]
    key = key_of(99)
    http.blobs[f"/cache/{name_of('main', key)}"] = signed(entry_of(99), key, "main", THEIRS)
    start = Start(tmp_path / "cache", http.url)
    start.early.begin()
    assert start.had(99)
    assert not start.had(5)
    assert start.had(6)
    assert start.told == []


def test_a_plan_for_other_arguments_serves_and_its_packs_come_with_it(tmp_path: Path, http: HttpCache) -> None:
    share(http, range(40))
    del http.blobs[f"/cache/main/plans/{EXACT}"]
    start = Start(tmp_path / "cache", http.url)
    start.early.begin()
    until(lambda: bool(start.early.plan.keys))
    assert [start.had(number) for number in range(40)] == [True] * 40
    assert entries_asked_for(http) == 0


def test_the_program_waits_for_a_pack_that_is_under_way_and_not_for_others(tmp_path: Path, http: HttpCache) -> None:
    share(http, range(60), per_pack=30)
    http.get_delay = 0.5
    start = Start(tmp_path / "cache", http.url)
    start.early.begin()
    time.sleep(0.6)  # the plan is here, and the second pack is under way
    since = time.monotonic()
    assert start.had(1), "the head came with the plan"
    assert time.monotonic() - since < 0.3
    assert start.had(40)
    assert time.monotonic() - since < 1.5
    assert entries_asked_for(http) == 0
    since = time.monotonic()
    assert not start.had(99)
    assert time.monotonic() - since < 1.0, "one request of its own"


def test_a_plan_that_is_late_holds_nobody_up(tmp_path: Path, http: HttpCache) -> None:
    share(http, range(40))
    blobs = Held()
    blobs.blobs = {path.removeprefix("/cache/"): data for path, data in http.blobs.items()}
    store = store_at(tmp_path / "cache")
    tier = RemoteTier(blobs, namespaces=MAIN, keyring=ring(), posture=Posture.REQUIRE, writes=True, tell=lambda _: None)
    slow = Held("memory://slow")
    slow.open.clear()
    early = Early(tmp_path / "cache", [Source(0, slow, "main")], PROGRAM)
    remotes = Remotes([tier], uploads_of(store, tier), store, early)
    try:
        early.begin()
        since = time.monotonic()
        assert remotes.fetch(key_of(1)) is not None
        assert [remotes.fetch(key_of(number)) is not None for number in range(2, 22)] == [True] * 20
        assert time.monotonic() - since < 2.0, "the plan is waited for once"
    finally:
        slow.open.set()


def test_a_dead_remote_costs_one_deadline(tmp_path: Path) -> None:
    start = Start(tmp_path / "cache", "http://127.0.0.1:9/cache?deadline=1")
    start.early.begin()
    since = time.monotonic()
    assert [start.had(number) for number in range(20)] == [False] * 20
    assert time.monotonic() - since < 2.0


def test_a_remote_that_hangs_costs_one_deadline(tmp_path: Path, http: HttpCache) -> None:
    http.get_delay = 30.0
    start = Start(tmp_path / "cache", f"{http.url}?deadline=1")
    start.early.begin()
    since = time.monotonic()
    assert [start.had(number) for number in range(20)] == [False] * 20
    assert time.monotonic() - since < 3.0


def test_a_dead_remote_does_not_keep_the_plan_of_another_away(tmp_path: Path, http: HttpCache) -> None:
    share(http, range(40))
    near = Start(tmp_path / "cache", http.url)
    hung = Held("memory://hung")
    hung.open.clear()
    early = Early(tmp_path / "cache", [Source(0, near.guard, "main"), Source(1, hung, "main")], PROGRAM)
    try:
        early.begin()
        until(lambda: bool(early.plan.keys), 3.0)
        assert len(early.plan.keys) == 40
    finally:
        hung.open.set()


def test_a_store_that_cannot_be_written_to_is_served_from_what_came(tmp_path: Path, http: HttpCache) -> None:
    share(http, range(20))
    start = Start(tmp_path / "cache", http.url)
    start.early.begin()
    until(lambda: bool(start.early.plan.keys))
    remotes = Remotes([start.tier], uploads_of(None, start.tier), None, start.early)
    found = [remotes.fetch(key_of(number)) for number in range(20)]
    assert [one is not None and not one.kept for one in found] == [True] * 20
    assert entries_asked_for(http) == 0
    assert list(start.store.scan()) == []


FORKING = """
    import os, sys, threading
    sys.path[:0] = sys.argv[1:]
    from sharing_world import Held, key_of
    from rewarm.sharing.early import Early, Source
    from pathlib import Path
    held = Held()
    held.open.clear()
    early = Early(Path("/nowhere"), [Source(0, held, "main")], ("train.py",))
    early.begin()
    while not held.got:
        pass
    child = os.fork()
    if child == 0:
        early.wait(key_of(1))
        os._exit(int(early.take(key_of(1)) is not None or not early.finished(0.0)))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    held.open.set()
    sys.exit(code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_fork_waits_for_nothing() -> None:
    since = time.monotonic()
    here = Path(__file__).parent
    source = textwrap.dedent(FORKING)
    subprocess.run([sys.executable, "-c", source, str(here), str(here.parent)], check=True, timeout=60)
    assert time.monotonic() - since < 15


# -- new packs -----------------------------------------------------------------------------------------------------


def new_packs(start: Start, numbers: Sequence[int], compiled: Sequence[int], planned: int) -> list[list[str]]:
    keys = [key_of(number) for number in numbers]
    made = frozenset(map(key_of, compiled))
    for key in made:
        if (entry := start.store.get(key)) is not None:
            start.remotes._made.add(entry)
    return [inside for inside, _ in start.remotes.new_packs(keys, made, planned, head=True)]


def test_packs_are_made_of_what_was_compiled_here_or_came_from_there(tmp_path: Path, http: HttpCache) -> None:
    start = Start(tmp_path / "cache", http.url)
    for number in range(30):
        start.store.put(key_of(number), entry_of(number))
    assert new_packs(start, range(30), range(20), 30) == [[key_of(number) for number in range(20)]]
    assert new_packs(start, range(30), [], 30) == [], "nobody knows where they came from"
    assert new_packs(start, range(30), range(7), 30) == [], "too few"
    assert new_packs(start, range(30), range(20), 168) == [], "too small a part of the plan"
    assert new_packs(start, [*range(10), 77], [*range(10), 77], 11) == [[key_of(number) for number in range(10)]]
    for number in range(20, 30):
        key = key_of(number)
        http.blobs[f"/cache/{name_of('main', key)}"] = signed(entry_of(number), key, "main", THEIRS)
        assert start.remotes.fetch(key) is not None
    [(inside, pack)] = start.remotes.new_packs([key_of(number) for number in range(30)], (), 30, head=True)
    assert inside == [key_of(number) for number in range(20, 30)]
    assert set(packs.unpack(pack)) == set(inside)
    for trusts, accepted in ((THEIRS, True), (OURS, False)):  # with the signature of who made them
        reader = Keyring(trusted=[trusts.public])
        other = RemoteTier(
            Held(), namespaces=MAIN, keyring=reader, posture=Posture.REQUIRE, writes=False, tell=lambda _: None
        )
        found = [other.accept(blob, key, "main") is not None for key, blob in packs.unpack(pack).items()]
        assert found == [accepted] * 10


def test_what_came_from_a_remote_that_asks_less_is_signed_for_none_that_asks_more(tmp_path: Path) -> None:
    lax, strict = Held("memory://lax"), Held("memory://strict")
    store = store_at(tmp_path / "cache")
    tiers = [
        RemoteTier(blobs, namespaces=MAIN, keyring=ring(), posture=posture, writes=True, tell=lambda _: None)
        for blobs, posture in ((lax, Posture.STORE), (strict, Posture.REQUIRE))
    ]
    remotes = Remotes(tiers, uploads_of(store, *tiers), store)
    for number in range(10):
        lax.blobs[name_of("main", key_of(number))] = entry_of(number)
        assert remotes.fetch(key_of(number)) is not None
        store.put(key_of(number), entry_of(number))
    assert list(remotes.new_packs([key_of(number) for number in range(10)], (), 10, head=True)) == []


def test_large_entries_and_read_only_remotes_have_no_packs(tmp_path: Path, http: HttpCache) -> None:
    start = Start(tmp_path / "cache", http.url)
    for number in range(20):
        start.store.put(key_of(number), entry_of(number, content=os.urandom(70_000 if number < 10 else 10)))
    assert new_packs(start, range(20), range(20), 20) == [[key_of(number) for number in range(10, 20)]]
    reading = Start(tmp_path / "cache", http.url, writes=False)
    assert new_packs(reading, range(20), range(20), 20) == []


def test_several_namespaces(tmp_path: Path, http: HttpCache) -> None:
    """A plan in the second namespace, whose entries are signed for that one."""
    share(http, range(20))
    start = Start(tmp_path / "cache", http.url)
    both = Namespaces("ci", ("ci", "main"))
    tier = RemoteTier(
        start.guard, namespaces=both, keyring=ring(), posture=Posture.REQUIRE, writes=True, tell=start.told.append
    )
    early = Early(tmp_path / "cache", [Source(0, start.guard, name) for name in both.read], PROGRAM)
    remotes = Remotes([tier], uploads_of(start.store, tier), start.store, early)
    early.begin()
    assert early.finished(10)
    assert all(
        start.store.get(key_of(number)) is not None or remotes.fetch(key_of(number)) is not None for number in range(20)
    )
    assert (entries_asked_for(http), start.told) == (0, [])


def test_threads_that_ask_beside_the_unpacking_have_all_of_it(tmp_path: Path, http: HttpCache) -> None:
    share(http, range(200), per_pack=50)
    start = Start(tmp_path / "cache", http.url)
    start.early.begin()
    until(lambda: bool(start.early.plan.keys))
    remotes = start.remotes
    missing: list[int] = []

    def ask(first: int) -> None:
        for number in range(first, 200, 4):
            if start.store.get(key_of(number)) is None and remotes.fetch(key_of(number)) is None:
                missing.append(number)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert missing == []
    assert entries_asked_for(http) == 0
    until(lambda: len(list(start.store.scan())) == 200)
    until(lambda: LocalStore(tmp_path / "cache").total()[1] == 200)  # what a put adds to the books follows it


@pytest.mark.skipif(sys.platform != "linux", reason="a name can be held without a file on Linux alone")
def test_of_the_processes_of_a_host_one_asks(tmp_path: Path, http: HttpCache) -> None:
    share(http, range(60))
    http.get_delay = 0.3
    first, second = Start(tmp_path / "cache", http.url), Start(tmp_path / "cache", http.url)
    first.early.begin()
    second.early.begin()
    assert (first.early.yields, second.early.yields) == (False, True)
    assert second.early.finished(0.1)
    elsewhere = Start(tmp_path / "another", http.url)
    elsewhere.early.begin()
    assert not elsewhere.early.yields
    assert first.early.finished(10)
    assert [first.had(number) for number in range(60)] == [True] * 60
    until(lambda: len(list(first.store.scan())) == 60)
    assert [second.had(number) for number in range(60)] == [True] * 60
    assert elsewhere.early.finished(10)
    assert entries_asked_for(http) == 0
    later = Start(tmp_path / "cache", http.url)
    later.early.begin()
    assert not later.early.yields, "the turn ends with the asking"
    assert later.early.finished(10)
