"""Whose signature an entry has: that of who made it, wherever it goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sharing_world import OURS, THEIRS, Held, entry_of, key_of, ring, store_at, until

from rewarm.sharing import Remotes, RemoteTier, Uploads, maker, packs, plans
from rewarm.sharing.early import Early, Source
from rewarm.sharing.made import Made
from rewarm.sharing.maker import Maker, this_user
from rewarm.sharing.markers import FOLDER as MARKERS
from rewarm.sharing.markers import Markers
from rewarm.sharing.plans import Plan
from rewarm.sharing.tier import Namespaces, name_of
from rewarm.store import LocalStore
from rewarm.trust import Posture, signed
from shared_remotes import MAIN

NAME = name_of("main", key_of(1))


def tier_of(blobs: Held, posture: Posture = Posture.REQUIRE, identity: str = "", *, writes: bool = True) -> RemoteTier:
    return RemoteTier(
        blobs, namespaces=MAIN, keyring=ring(), posture=posture, writes=writes, tell=lambda _: None, identity=identity
    )


def remotes_of(store: LocalStore, *tiers: RemoteTier, early: Early | None = None) -> Remotes:
    made = Made(store.root)
    uploads = Uploads(store.root, tiers, lambda key: store.get(key, use=False), lambda _: None, made=made.has)
    return Remotes(tiers, uploads, store, early, made)


def test_what_is_made_here_is_known_to_later_processes_by_its_content(tmp_path: Path) -> None:
    entry, another = entry_of(1), entry_of(1, content=b"another")
    Made(tmp_path).add(entry)
    assert [Made(tmp_path).has(one) for one in (entry, another, b"", b"short")] == [True, False, False, False]
    assert not Made(None).has(entry)


def test_a_nearer_remote_gets_it_with_the_signature_it_had(tmp_path: Path) -> None:
    near, far = Held("memory://near"), Held("memory://far")
    far.blobs[NAME] = signed(entry_of(1), key_of(1), "main", THEIRS)
    remotes = remotes_of(store_at(tmp_path), tier_of(near), tier_of(far))
    assert remotes.fetch(key_of(1)) is not None
    assert remotes.uploads.drain(10) == 0
    assert near.blobs == far.blobs


@pytest.mark.parametrize("ahead", [False, True])
def test_a_nearer_remote_gets_what_came_in_a_pack_with_the_signature_it_had(tmp_path: Path, ahead: bool) -> None:
    near, far, store = Held("memory://near"), Held("memory://far"), store_at(tmp_path)
    blobs = {key_of(number): signed(entry_of(number), key_of(number), "main", THEIRS) for number in range(10)}
    exact = plans.ids_of(("train.py",))[0]
    plan = Plan(tuple(blobs), dict.fromkeys(blobs, exact))
    far.blobs = {f"main/packs/{exact}": packs.pack(blobs), f"main/plans/{exact}": plans._bytes(("train.py",), plan)}
    early = Early(tmp_path, [Source(number, one, "main") for number, one in enumerate((near, far))], ("train.py",))
    early.begin()
    assert early.finished(10)
    remotes = remotes_of(store, tier_of(near), tier_of(far), early=early if ahead else None)
    if not ahead:  # the program asks before anything is unpacked
        remotes._early = early
        assert all(remotes.fetch(key) is not None for key in blobs)
    until(lambda: len(near.blobs) == len(blobs))
    assert near.blobs == {name_of("main", key): blob for key, blob in blobs.items()}


def test_a_nearer_remote_gets_nothing_of_another_namespace(tmp_path: Path) -> None:
    near, far = Held("memory://near"), Held("memory://far")
    far.blobs[name_of("pr-7", key_of(1))] = signed(entry_of(1), key_of(1), "pr-7", THEIRS)
    both = Namespaces("main", ("main", "pr-7"))
    tiers = [
        RemoteTier(one, namespaces=both, keyring=ring(), posture=Posture.REQUIRE, writes=True, tell=lambda _: None)
        for one in (near, far)
    ]
    remotes = remotes_of(store_at(tmp_path), *tiers)
    assert remotes.fetch(key_of(1)) is not None
    assert remotes.uploads.drain(10) == 0
    assert near.blobs == {}


def test_one_name_at_two_endpoints_is_two_remotes(tmp_path: Path) -> None:
    """What came from the lax one is nothing for the strict one, and each has its own list of what it is owed."""
    lax, strict = Held("s3://cache"), Held("s3://cache")
    tiers = tier_of(strict, identity="s3://cache endpoint=a"), tier_of(lax, Posture.STORE, "s3://cache endpoint=b")
    store = store_at(tmp_path)
    remotes = remotes_of(store, *tiers)
    for number in range(10):
        lax.blobs[name_of("main", key_of(number))] = entry_of(number)
        assert remotes.fetch(key_of(number)) is not None
        store.put(key_of(number), entry_of(number))
    assert list(remotes.new_packs([key_of(number) for number in range(10)], (), 10, head=True)) == []
    assert remotes.uploads.drain(10) == 0
    assert strict.blobs == {}
    remotes.uploads.announce(key_of(1))
    assert len(list((tmp_path / MARKERS).iterdir())) == 2


def test_what_is_owed_is_sent_only_while_it_is_what_was_made_here(tmp_path: Path) -> None:
    """A marker names a key. What lies under it by the next start may have come from somebody else."""
    store, held = store_at(tmp_path), Held()
    remotes_of(store, tier_of(held)).announce(key_of(1))
    Made(tmp_path).add(entry_of(1))
    store.put(key_of(1), entry_of(1, content=b"a stranger's"))
    later = remotes_of(store, tier_of(held)).uploads
    later.resume()
    assert later.drain(5) == 0
    assert held.blobs == {}
    store.put(key_of(1), entry_of(1))
    later = remotes_of(store, tier_of(held)).uploads
    later.resume()
    until(lambda: held.blobs)
    assert held.blobs == {NAME: signed(entry_of(1), key_of(1), "main", OURS)}


def test_what_somebody_says_in_anothers_name_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of B's name that A made: B signs nothing for it, and sends nothing."""
    Made(tmp_path).add(entry_of(1))
    Markers(tmp_path, "remote").add(key_of(1))
    assert Made(tmp_path).has(entry_of(1))
    real = os.geteuid()
    monkeypatch.setattr(maker.os, "geteuid", lambda: real + 1)
    made, markers = Made(tmp_path, lambda: Maker(str(real))), Markers(tmp_path, "remote", maker=Maker(str(real)))
    assert not made.has(entry_of(1))
    assert markers.left() == []
    assert not Made(tmp_path).has(entry_of(1))


def test_a_key_is_another_maker_and_no_key_is_the_user(tmp_path: Path) -> None:
    one, other, bare = this_user("0" * 16), this_user("1" * 16), this_user()
    for number, who in enumerate((one, other, bare)):
        Made(tmp_path, lambda who=who: who).add(entry_of(number))
        Markers(tmp_path, "remote", maker=who).add(f"{number}" * 64)

    def known(who: Maker) -> list[bool]:
        return [Made(tmp_path, lambda: who).has(entry_of(number)) for number in range(3)]

    assert known(one) == [True, False, True]
    assert known(other) == [False, True, True]
    assert known(bare) == [True, True, True], "without a key nothing is signed"
    markers = Markers(tmp_path, "remote", maker=one)
    assert sorted(markers.left()) == ["0" * 64, "2" * 64]
    for key in markers.left():
        markers.remove(key)
    assert Markers(tmp_path, "remote", maker=one).left() == []
    assert Markers(tmp_path, "remote", maker=other).left() == ["1" * 64]
