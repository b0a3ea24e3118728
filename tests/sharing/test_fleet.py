"""Which remote keeps the leases of a fleet, which programs are worth one, and when one ends."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from sharing_world import OURS, STRANGER, THEIRS, Held, entry_of, key_of, ring, store_at, until, uploads_of

from rewarm.remote.blobs import RefusedError
from rewarm.remote.folder import FolderBlobs
from rewarm.sharing import Namespaces, Remotes, RemoteTier, known_places
from rewarm.sharing.fleet import Fleet
from rewarm.trust import Keyring, Posture
from shared_remotes import MAIN

LARGE, SMALL = 1 << 20, 300


def tier_over(
    blobs: object,
    *,
    writes: bool = True,
    keeps: bool | None = True,
    keyring: Keyring | None = None,
    posture: Posture = Posture.REQUIRE,
    namespaces: Namespaces = MAIN,
) -> RemoteTier:
    return RemoteTier(
        blobs,  # type: ignore[arg-type]
        namespaces=namespaces,
        keyring=keyring or ring(),
        posture=posture,
        writes=writes,
        tell=lambda _: None,
        keeps_only_new=keeps,
    )


def folder(root: Path) -> FolderBlobs:
    root.mkdir(exist_ok=True)
    return FolderBlobs(root)


def leases(root: Path) -> list[str]:
    return [str(path) for path in root.rglob("*") if "leases" in str(path.relative_to(root)) and path.is_file()]


def never(_: RemoteTier) -> bool:
    return False


def outcome(fleet: Fleet, size: int = LARGE, number: int = 1) -> str:
    with fleet.lead(key_of(number), size, never) as lead:
        return lead.outcome


class Overwriting(Held):
    """A server that takes the condition and overwrites, as `rclone serve s3` does."""


class Keeping(Held):
    """A server that keeps to the condition; perhaps without the right to delete."""

    may_delete = True

    def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
        if only_new and name in self.blobs:
            return False
        return super().put(name, data)

    def delete(self, name: str) -> None:
        if not self.may_delete:
            raise RefusedError("403")
        super().delete(name)


@pytest.mark.parametrize(("writes", "keeps", "leads"), [(True, True, True), (True, False, False), (False, True, False)])
def test_who_leads_where(tmp_path: Path, writes: bool, keeps: bool, leads: bool) -> None:
    fleet = Fleet([tier_over(folder(tmp_path / "remote"), writes=writes, keeps=keeps)], None)
    assert outcome(fleet) == ("leads" if leads else "alone")
    fleet.close()
    assert leases(tmp_path / "remote") == []


@pytest.mark.parametrize(
    ("keyring", "posture", "asks"),
    [
        (Keyring(), Posture.REQUIRE, False),
        (Keyring(), Posture.VERIFY, True),
        (Keyring(OURS, revoked=[OURS.id]), Posture.REQUIRE, False),
        (Keyring(OURS, revoked=[OURS.id]), Posture.STORE, False),
        (Keyring(OURS), Posture.REQUIRE, True),
    ],
)
def test_who_can_publish_nothing_asks_for_no_lease(
    tmp_path: Path, keyring: Keyring, posture: Posture, asks: bool
) -> None:
    tier = tier_over(folder(tmp_path / "remote"), keyring=keyring, posture=posture)
    with Fleet([tier], tmp_path).lead(key_of(1), LARGE, never) as lead:
        assert lead.outcome == ("leads" if asks else "alone"), lead.why
        assert len(leases(tmp_path / "remote")) == asks


@pytest.mark.parametrize("why", ["a stranger's key", "a revoked key", "not signed", "not read here", ""])
def test_nobody_waits_for_an_entry_that_he_would_not_use(tmp_path: Path, why: str) -> None:
    """The other leads all the same; one whose entry would be used is waited for."""
    remote = folder(tmp_path / "remote")
    posture = Posture.VERIFY if why == "not signed" else Posture.REQUIRE
    leads = Keyring() if why == "not signed" else Keyring(STRANGER if why == "a stranger's key" else OURS)
    waits = Keyring(THEIRS, [OURS.public], [OURS.id] if why == "a revoked key" else [])
    reads = Namespaces("main", ("other",)) if why == "not read here" else MAIN
    one = Fleet([tier_over(remote, keyring=leads, posture=posture)], None)
    other = Fleet([tier_over(remote, keyring=waits, namespaces=reads)], None)
    begun, ended = threading.Event(), threading.Event()

    def lead() -> None:
        with one.lead(key_of(1), LARGE, never) as lead:
            assert lead.outcome == "leads"
            begun.set()
            ended.wait(1.0)

    thread = threading.Thread(target=lead)
    thread.start()
    assert begun.wait(10)
    with other.lead(key_of(1), LARGE, never) as found:
        assert (found.outcome, found.seconds < 0.5) == (("alone", True) if why else ("waited", False)), found
    ended.set()
    thread.join()


def test_the_first_remote_that_keeps_leases_has_them(tmp_path: Path) -> None:
    near, far = folder(tmp_path / "near"), folder(tmp_path / "far")
    fleet = Fleet([tier_over(near, keeps=False), tier_over(far)], None)
    with fleet.lead(key_of(1), LARGE, never) as lead:
        assert lead.outcome == "leads"
        assert (len(leases(tmp_path / "near")), len(leases(tmp_path / "far"))) == (0, 1)
    fleet.close()


def test_a_program_is_worth_a_lease_where_a_request_is_quick_beside_it(tmp_path: Path) -> None:
    blobs = Held()
    blobs.seconds = 0.02
    tier = tier_over(blobs)
    assert tier.get(key_of(1)) is None
    assert 0.02 <= tier.round_trip < 1.0
    blobs.got.clear()
    fleet = Fleet([tier], None)
    assert outcome(fleet, SMALL) == "alone"
    assert (blobs.got, blobs.put_names) == ([], [])
    assert outcome(fleet, LARGE) == "leads"
    tier.round_trip = 0.0005  # a Redis next door
    assert outcome(fleet, SMALL, number=2) == "leads"


@pytest.mark.parametrize(
    ("kind", "may_delete", "leads"), [(Overwriting, True, False), (Keeping, True, True), (Keeping, False, False)]
)
def test_what_is_found_out_decides_and_is_remembered(
    tmp_path: Path, kind: type[Held], may_delete: bool, leads: bool
) -> None:
    blobs = kind("s3://bucket/prefix")
    if isinstance(blobs, Keeping):
        blobs.may_delete = may_delete
    tier = tier_over(blobs, keeps=None)
    fleet = Fleet([tier], tmp_path)
    tier.round_trip = 10.0
    assert outcome(fleet) == "alone", "nothing is known yet, and finding it out would take longer than compiling"
    assert blobs.put_names == []
    tier.round_trip = 0.0
    assert outcome(fleet) == ("leads" if leads else "alone")
    fleet.close()
    blobs.put_names.clear()
    again = Fleet([tier], tmp_path)
    again.find_out()
    assert blobs.put_names == [], "it is known for a day"
    assert outcome(again, number=2) == ("leads" if leads else "alone")


def test_what_was_found_out_long_ago_or_is_damaged_is_found_out_anew(tmp_path: Path) -> None:
    tier = tier_over(Keeping("s3://bucket/prefix"), keeps=None)
    known = known_places.find_out(tmp_path, tier)
    assert known == known_places.read(tmp_path, tier) == (True, True)
    (path,) = (tmp_path / known_places.FOLDER).iterdir()
    told = json.loads(path.read_text())
    for damage in (
        {"time": time.time() - 90_000},
        {"time": time.time() + 90_000},
        {"version": 2},
        {"place": "s3://another"},
    ):
        path.write_text(json.dumps({**told, **damage}))
        assert known_places.read(tmp_path, tier) is None
    for text in ("", "[]", "{", "\x00" * 100, '{"version": 1}', "[" * 100_000):
        path.write_text(text)
        assert known_places.read(tmp_path, tier) is None


def test_a_remote_that_does_not_answer_is_not_remembered(tmp_path: Path) -> None:
    blobs = Keeping("s3://bucket/prefix")
    blobs.errors = [RefusedError("403")] * 5
    fleet = Fleet([tier_over(blobs, keeps=None)], tmp_path)
    fleet.find_out()
    assert not (tmp_path / known_places.FOLDER).exists()
    assert outcome(fleet) == "alone"


def test_a_lease_lasts_until_the_entry_has_arrived(tmp_path: Path) -> None:
    """Who looks when the lease ends finds the entry."""
    blobs = Keeping("redis://held")
    store = store_at(tmp_path / "here")
    tier = tier_over(blobs)
    remotes = Remotes([tier], uploads_of(store, tier), store)
    key = key_of(1)
    name = f"main/leases/{key}"
    with remotes.lead(key, LARGE) as lead:
        assert lead.outcome == "leads"
        store.put(key, entry_of(1))
        blobs.open.clear()  # the upload hangs
        remotes.publish(key, entry_of(1), stored=True)
    time.sleep(0.3)
    assert name in blobs.blobs
    assert f"main/{key[:2]}/{key}" not in blobs.blobs
    seen: list[bool] = []

    def look() -> None:
        until(lambda: name not in blobs.blobs)
        seen.append(f"main/{key[:2]}/{key}" in blobs.blobs)

    thread = threading.Thread(target=look)
    thread.start()
    blobs.open.set()
    thread.join(20)
    assert seen == [True]


def test_a_lease_ends_with_its_block_where_nothing_is_sent(tmp_path: Path) -> None:
    blobs = Keeping("redis://held")
    store = store_at(tmp_path / "here")
    tier = tier_over(blobs)
    remotes = Remotes([tier], uploads_of(store, tier), store)
    with remotes.lead(key_of(1), LARGE) as lead:
        assert lead.outcome == "leads"
    remotes.leave()
    assert blobs.blobs == {}


def test_who_waited_has_the_entry_here(tmp_path: Path) -> None:
    """And sends it to the remotes that are nearer than the one in which it came."""
    hosts, near = [], Held("memory://near")
    for name in ("one", "other"):
        store = store_at(tmp_path / name)
        tiers = [tier_over(near, keeps=False)] if name == "other" else []
        tiers.append(tier_over(folder(tmp_path / "remote")))
        hosts.append((store, Remotes(tiers, uploads_of(store, *tiers), store)))
    (store, one), (others, other) = hosts
    key, entry, begun = key_of(1), entry_of(1), threading.Event()

    def compile_it() -> None:
        with one.lead(key, LARGE) as lead:
            assert lead.outcome == "leads"
            begun.set()
            time.sleep(0.6)
            store.put(key, entry)
            one.publish(key, entry, stored=True)

    thread = threading.Thread(target=compile_it)
    thread.start()
    assert begun.wait(10)
    with other.lead(key, LARGE) as lead:
        assert (lead.outcome, lead.seconds > 0.3) == ("waited", True)
        assert others.get(key) == entry
    thread.join()
    traffic = other.traffic()[-1]
    assert (traffic.hits, traffic.misses) == (1, 0)
    assert other.uploads.drain(10) == 0
    name = f"main/{key[:2]}/{key}"
    assert near.blobs == {name: (tmp_path / "remote" / name).read_bytes()}
