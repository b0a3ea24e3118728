"""Several remotes in order, what is fetched ahead, and one table of what is under way."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from sharing_world import STRANGER, THEIRS, Held, entry_of, key_of, ring, store_at, until, uploads_of

from rewarm.errors import StoreError
from rewarm.policy import Bounds
from rewarm.remote.blobs import RefusedError, RemoteError, TooLargeError, UnreachableError
from rewarm.sharing import Namespaces, Remotes, RemoteTier, plans, remotes
from rewarm.sharing.plans import Plan
from rewarm.sharing.tier import name_of
from rewarm.store import Copy, LocalStore
from rewarm.trust import Keyring, Posture, signed
from shared_remotes import MAIN, blob_of, folder_tier


def tier_over(
    blobs: Held, posture: Posture = Posture.REQUIRE, *, told: list[str] | None = None, fails: bool = False,
    namespaces: Namespaces = MAIN, keyring: Keyring | None = None,
) -> RemoteTier:  # fmt: skip
    return RemoteTier(
        blobs, namespaces=namespaces, keyring=keyring or ring(), posture=posture, writes=True,
        tell=(lambda _: None) if told is None else told.append, fails=fails,
    )  # fmt: skip


def remotes_of(store: LocalStore | None, *tiers: RemoteTier) -> Remotes:
    return Remotes(tiers, uploads_of(store, *tiers), store)


def theirs(number: int, namespace: str = "main") -> bytes:
    """An entry as somebody who is trusted puts it."""
    return signed(entry_of(number), key_of(number), namespace, THEIRS)


def put(blobs: Held, number: int, data: bytes | None = None, namespace: str = "main") -> None:
    blobs.blobs[name_of(namespace, key_of(number))] = theirs(number, namespace) if data is None else data


# -- in order ------------------------------------------------------------------------------------------------------


def test_the_first_answer_wins_and_those_before_it_are_sent_it(tmp_path: Path) -> None:
    near, middle, far = Held("memory://near"), Held("memory://middle"), Held("memory://far")
    store = store_at(tmp_path / "cache")
    all_three = remotes_of(store, tier_over(near), tier_over(middle), tier_over(far))
    put(far, 1)
    found = all_three.fetch(key_of(1))
    assert found is not None
    assert (found.data, found.tier, found.kept) == (entry_of(1), "memory://far", False)
    assert all_three.uploads.drain(5) == 0
    assert name_of("main", key_of(1)) in near.blobs
    assert name_of("main", key_of(1)) in middle.blobs
    assert far.put_names == []
    found = all_three.fetch(key_of(1))
    assert found is not None
    assert found.tier == "memory://near"
    assert [len(blobs.got) for blobs in (near, middle, far)] == [2, 1, 1]


def test_what_is_sent_to_the_nearer_needs_no_local_store(tmp_path: Path) -> None:
    """The entry is not in the local store at that moment, and may never be."""
    near, far = Held("memory://near"), Held("memory://far")
    both = remotes_of(store_at(tmp_path / "cache"), tier_over(near), tier_over(far))
    near.open.clear()
    put(far, 1)
    near.got.clear()
    thread = threading.Thread(target=both.fetch, args=(key_of(1),))
    thread.start()
    near.open.set()
    thread.join(10)
    both.uploads.drain(5)
    assert name_of("main", key_of(1)) in near.blobs


def test_a_refused_one_is_passed_over_for_the_next_remote(tmp_path: Path) -> None:
    near, far, told = Held("memory://near"), Held("memory://far"), list[str]()
    both = remotes_of(store_at(tmp_path / "cache"), tier_over(near, told=told), tier_over(far))
    put(near, 1, signed(entry_of(1), key_of(1), "main", STRANGER))
    put(far, 1)
    found = both.fetch(key_of(1))
    assert found is not None
    assert found.tier == "memory://far"
    assert both.traffic()[0].refused == {"signed by an unknown key": 1}
    assert len(told) == 1
    both.uploads.drain(5)
    found = both.fetch(key_of(1))
    assert found is not None
    assert found.tier == "memory://near", "the bad one was replaced"


@pytest.mark.parametrize(
    ("near", "far", "sent"),
    [
        (Posture.REQUIRE, Posture.REQUIRE, True),
        (Posture.REQUIRE, Posture.STORE, False),
        (Posture.REQUIRE, Posture.VERIFY, False),
        (Posture.VERIFY, Posture.STORE, False),
        (Posture.STORE, Posture.STORE, True),
        (Posture.STORE, Posture.REQUIRE, True),
    ],
)
def test_our_signature_is_not_lent_to_what_nobody_else_would_accept(
    tmp_path: Path, near: Posture, far: Posture, sent: bool
) -> None:
    """An unsigned entry of a remote that we alone trust must not come out of another one with our name on it."""
    first, second = Held("memory://near"), Held("memory://far")
    both = remotes_of(store_at(tmp_path / "cache"), tier_over(first, near), tier_over(second, far))
    put(second, 1)
    assert both.fetch(key_of(1)) is not None
    both.uploads.drain(5)
    assert (name_of("main", key_of(1)) in first.blobs) is sent


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [(UnreachableError("x"), False), (RefusedError("x"), False), (TooLargeError("x"), True), (RemoteError("x"), True)],
)
def test_a_remote_that_does_not_answer_is_asked_for_no_other_namespace(error: RemoteError, goes_on: bool) -> None:
    class Fails(Held):
        def get(self, name: str, *, limit: int) -> bytes | None:
            data = super().get(name, limit=limit)
            if name.startswith("ci/"):
                raise error
            return data

    blobs = Fails()
    put(blobs, 1)
    tier = tier_over(blobs, namespaces=Namespaces("ci", ("ci", "main")))
    assert (tier.get(key_of(1)) is not None) is goes_on
    assert tier.traffic().failures == {"x": 1}


def test_namespaces_are_read_in_order_and_an_entry_is_not_carried_over() -> None:
    blobs = Held()
    tier = tier_over(blobs, namespaces=Namespaces("ci", ("ci", "main")))
    put(blobs, 1, theirs(1, "main"), "ci")
    assert tier.get(key_of(1)) is None
    assert tier.traffic().refused == {"the signature does not match": 1}
    put(blobs, 1)
    assert tier.get(key_of(1)) == entry_of(1)
    tier.put(key_of(2), entry_of(2))
    assert list(blobs.blobs)[-1] == name_of("ci", key_of(2))


def test_one_line_for_each_reason_and_signer() -> None:
    blobs, told = Held(), list[str]()
    tier = tier_over(blobs, told=told)
    for number in range(5):
        put(blobs, number, signed(entry_of(number), key_of(number), "main", STRANGER))
    for number in range(5, 10):
        put(blobs, number, entry_of(number))
    assert [tier.get(key_of(number)) for number in range(10)] == [None] * 10
    assert tier.traffic().refused == {"signed by an unknown key": 5, "not signed": 5}
    assert len(told) == 2
    assert STRANGER.id in told[0]


def test_who_wants_to_know_of_failures_does() -> None:
    class Dead(Held):
        def get(self, name: str, *, limit: int) -> bytes | None:
            raise UnreachableError(f"dead {name[:4]} {limit}")

        def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
            raise UnreachableError(f"dead {name[:4]} {len(data)} {only_new}")

    silent, loud = remotes_of(None, tier_over(Dead())), remotes_of(None, tier_over(Dead(), fails=True))
    assert silent.fetch(key_of(1)) is None
    silent.publish(key_of(1), entry_of(1), stored=False)
    with pytest.raises(UnreachableError):
        loud.fetch(key_of(1))
    with pytest.raises(UnreachableError):
        loud.publish(key_of(1), entry_of(1), stored=False)


# -- ahead ---------------------------------------------------------------------------------------------------------


def test_entries_are_fetched_ahead_in_parallel_and_found_here(tmp_path: Path) -> None:
    store, blobs = store_at(tmp_path / "cache"), Held()
    sharing = remotes_of(store, tier_over(blobs))
    blobs.seconds = 0.01
    for number in range(100):
        put(blobs, number)
    sharing.fetch_ahead(key_of(number) for number in range(100))
    until(lambda: len(list(store.scan())) == 100)
    assert 2 <= blobs.most_at_once <= 10
    assert len(blobs.got) == 100
    assert all(store.get(key_of(number)) == entry_of(number) for number in range(100))


def test_who_asks_for_what_is_under_way_waits_and_fetches_nothing(tmp_path: Path) -> None:
    store, blobs = store_at(tmp_path / "cache"), Held()
    sharing = remotes_of(store, tier_over(blobs))
    put(blobs, 1)
    blobs.open.clear()
    sharing.fetch_ahead([key_of(1)])
    until(lambda: blobs.got)
    found = []
    thread = threading.Thread(target=lambda: found.append(sharing.fetch(key_of(1))))
    thread.start()
    time.sleep(0.1)
    assert thread.is_alive()
    blobs.open.set()
    thread.join(10)
    assert found[0] is not None
    assert (found[0].data, found[0].tier, found[0].kept) == (entry_of(1), "memory://held", True)
    assert len(blobs.got) == 1


def test_who_asks_for_what_is_not_begun_fetches_it_past_the_plan(tmp_path: Path) -> None:
    store, blobs = store_at(tmp_path / "cache"), Held()
    sharing = remotes_of(store, tier_over(blobs))
    for number in range(30):
        put(blobs, number)
    blobs.open.clear()
    sharing.fetch_ahead(key_of(number) for number in range(30))
    until(lambda: len(blobs.got) == 10)
    found = []
    thread = threading.Thread(target=lambda: found.append(sharing.fetch(key_of(29))))
    thread.start()
    until(lambda: len(blobs.got) == 11)
    assert blobs.got[-1] == name_of("main", key_of(29))
    blobs.open.set()
    thread.join(10)
    until(lambda: len(list(store.scan())) == 29)
    assert found[0] is not None
    assert blobs.got.count(name_of("main", key_of(29))) == 1
    assert (found[0].kept, found[0].data) == (False, entry_of(29))


def test_what_is_refused_or_not_there_is_asked_for_again_by_who_wants_it(tmp_path: Path) -> None:
    store, blobs = store_at(tmp_path / "cache"), Held()
    sharing = remotes_of(store, tier_over(blobs))
    put(blobs, 1, entry_of(1))
    sharing.fetch_ahead([key_of(1), key_of(2)])
    until(lambda: len(blobs.got) == 2)
    assert sharing.fetch(key_of(1)) is None
    assert sharing.fetch(key_of(2)) is None
    assert list(store.scan()) == []


def test_a_plan_fetches_no_more_than_its_room(tmp_path: Path) -> None:
    store, blobs = store_at(tmp_path / "cache"), Held()
    store.bounds = Bounds(max_size=40_000, max_age=None, max_entries=None)
    sharing = remotes_of(store, tier_over(blobs))
    for number in range(200):
        put(blobs, number, signed(entry_of(number, bytes(1_000)), key_of(number), "main", THEIRS))
    sharing.fetch_ahead(key_of(number) for number in range(200))
    until(lambda: len(blobs.got) > 5)
    time.sleep(0.3)
    assert len(blobs.got) < 40
    assert store.total()[0] <= 20_000
    assert sharing.fetch(key_of(199)) is not None, "who wants one gets it"


def test_large_entries_are_left_to_who_wants_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotes, "_AHEAD_LARGEST", 100)
    store = store_at(tmp_path / "cache")
    tier = folder_tier(tmp_path / "remote", ring())
    place = blob_of(tmp_path / "remote", key_of(1))
    place.parent.mkdir(parents=True)
    place.write_bytes(theirs(1))
    sharing = remotes_of(store, tier)
    sharing.fetch_ahead([key_of(1)])
    until(lambda: tier.traffic().failures)
    assert list(store.scan()) == []
    assert sharing.fetch(key_of(1)) is not None


def test_a_store_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, blobs = store_at(tmp_path / "cache"), Held()
    put(blobs, 1)
    sharing = remotes_of(None, tier_over(blobs))
    sharing.fetch_ahead([key_of(1)])
    assert blobs.got == []
    full = remotes_of(store, tier_over(blobs))

    def put_nothing(copies: Mapping[str, Copy]) -> None:
        raise StoreError(28, "No space left on device", str(list(copies)))

    monkeypatch.setattr(store, "put_copies", put_nothing)
    full.fetch_ahead([key_of(1)])
    until(lambda: len(blobs.got) == 1)
    found = full.fetch(key_of(1))
    assert found is not None
    assert found.data == entry_of(1)


# -- plans ---------------------------------------------------------------------------------------------------------

PROGRAM = ("train.py", "--steps", "hunter2")
PLACE = plans.place_of("file:///shared", "main")
OTHER_PLACE = plans.place_of("file:///shared", "pr-7")
NO_PACKS: dict[str, dict[str, str]] = {PLACE: {}}


def test_a_plan_is_kept_and_found_and_holds_no_argument(tmp_path: Path) -> None:
    exact, rough = plans.ids_of(PROGRAM)
    assert plans.ids_of(("train.py",)) == (rough,)
    assert plans.ids_of(()) == plans.ids_of(("",)) == ()
    keys = [key_of(number) for number in range(5)]
    data = plans.write(tmp_path, exact, PROGRAM, Plan(tuple(keys), at=NO_PACKS))[PLACE]
    assert b"hunter2" not in data
    assert plans.read(tmp_path, exact).keys == tuple(keys)
    assert plans.read(tmp_path, rough).keys == ()
    assert plans.write(tmp_path, exact, PROGRAM, Plan(tuple(keys[::-1]), at=NO_PACKS)) == {}
    assert plans.write(tmp_path, exact, PROGRAM, Plan(tuple(keys[:2]), at=NO_PACKS)) == {}, "a run that ended early"
    assert set(plans.write(tmp_path, exact, PROGRAM, Plan((key_of(9),), at=NO_PACKS))) == {PLACE}
    blobs = Held()
    blobs.blobs[f"main/plans/{exact}"] = data
    assert plans.fetch(blobs, "main", exact).keys == tuple(keys)
    assert plans.fetch(blobs, "ci", exact).keys == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[" * 500_000,
        b'{"version":1}',
        b'{"version":2,"keys":["' + b"a" * 64 + b'"]}',
        b'{"version":1,"keys":"' + b"a" * 640 + b'"}',
        b'{"version":1,"keys":{"a":1}}',
        b'{"version":1,"keys":["../../../etc/passwd",7,null,["' + b"a" * 64 + b'"]]}',
        b"7" * 1_000_000,
        b'{"version":1,"keys":["' + b"a" * 64 + b'"],"packs":7,"packed":[0]}',
        b'{"version":1,"keys":[["' + b"a" * 64 + b'"]],"packs":["' + b"b" * 32 + b'"],"packed":[0]}',
        b'{"version":1,"keys":[],"at":7}',
    ],
    ids=range(12),
)
def test_what_is_no_plan(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "x.json").write_bytes(data)
    assert plans.read(tmp_path, "x").keys == ()


def test_a_plan_that_nothing_changes_is_sent_again_after_a_week(tmp_path: Path) -> None:
    packed = {key_of(1): "a" * 32}
    plan = Plan(tuple(key_of(number) for number in range(5)), packed, {PLACE: packed})
    sent = plans.write(tmp_path, "x", PROGRAM, plan)
    assert set(sent) == {PLACE}
    path = tmp_path / "plans" / "x.json"
    for days, again in ((6, {}), (8, sent), (0, {}), (-8, sent)):
        then = time.time() - days * 86_400
        os.utime(path, (then, then))
        assert plans.write(tmp_path, "x", PROGRAM, plan) == again
        assert (abs(path.stat().st_mtime - time.time()) < 60) == (days in (8, 0, -8))
    assert plans.read(tmp_path, "x") == plan


@pytest.mark.parametrize("names", ['"../x"', "7", "null", '"' + "B" * 32 + '"', '["' + "b" * 32 + '"]'])
@pytest.mark.parametrize("number", ["0", "1", "-1", "true", '"0"', "0.0", "1e9"])
def test_what_names_no_pack(tmp_path: Path, names: str, number: str) -> None:
    (tmp_path / "plans").mkdir()
    key = key_of(1)
    told = f'{{"version":1,"keys":["{key}"],"packs":[{names}],"packed":[{number}]}}'
    (tmp_path / "plans" / "x.json").write_text(told)
    assert plans.read(tmp_path, "x") == Plan((key,))


def test_new_packs_change_a_plan_and_a_shorter_run_does_not(tmp_path: Path) -> None:
    keys = tuple(key_of(number) for number in range(5))
    one, other = {keys[0]: "a" * 32}, {keys[1]: "b" * 32}
    plans.write(tmp_path, "x", PROGRAM, Plan(keys, one, {PLACE: one}))
    assert set(plans.write(tmp_path, "x", PROGRAM, Plan(keys[:2], other, {PLACE: other}))) == {PLACE}
    assert plans.read(tmp_path, "x") == Plan(keys, {**one, **other}, {PLACE: {**one, **other}})
    assert plans.write(tmp_path, "x", PROGRAM, Plan(keys[:1], at=NO_PACKS)) == {}


def test_a_plan_names_to_each_remote_the_packs_of_that_one(tmp_path: Path) -> None:
    keys = tuple(key_of(number) for number in range(5))
    near, far = dict.fromkeys(keys[:2], "a" * 32), dict.fromkeys(keys, "b" * 32)
    sent = plans.write(tmp_path, "x", PROGRAM, Plan(keys, far, {PLACE: near, OTHER_PLACE: far}))
    blobs = Held()
    blobs.blobs |= {"near/plans/x": sent[PLACE], "far/plans/x": sent[OTHER_PLACE]}
    assert [dict(plans.fetch(blobs, name, "x").packed) for name in ("near", "far")] == [near, far]
    assert plans.fetch(blobs, "far", "x").at == {}, "which is for the directory alone"
    more = {PLACE: dict.fromkeys(keys, "c" * 32), OTHER_PLACE: far}
    assert set(plans.write(tmp_path, "x", PROGRAM, Plan(keys[:1], far, more))) == {PLACE}
    assert plans.read(tmp_path, "x").at == more
    assert plans.write(tmp_path, "x", PROGRAM, Plan(keys, far, {"0" * 16: {}})) == {}, "it is sent nothing that it has"


def test_plans_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"{number:064x}" for number in range(7_000)]
    packed = {key: f"{number // 400:032x}" for number, key in enumerate(many)}
    at = {f"{number:016x}": packed for number in range(20)}
    assert len(plans.write(tmp_path, "x", PROGRAM, Plan(tuple(many), packed, at))) == 20
    assert plans.read(tmp_path, "x").keys == tuple(many[: plans.KEYS])
    monkeypatch.setattr(plans, "_PLANS", 10)
    for number in range(30):
        plans.write(tmp_path, f"{number:032x}", PROGRAM, Plan((key_of(number),)))
    assert len(list((tmp_path / "plans").iterdir())) <= 10
    assert plans.read(tmp_path, f"{29:032x}").keys == (key_of(29),)
