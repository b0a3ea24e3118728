"""Tuning results as entries of the store: sealed, opened, found by hints, and checked before they are used."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tuning_many import fusion_of, legacy_one, new_one
from tuning_samples import legacy_entry, new_entry, target, triton_result

from conftest import clean_environment, execute
from rewarm.autotune import batches, pruning
from rewarm.autotune.batches import Batch
from rewarm.autotune.build_ids import build_id
from rewarm.autotune.formats import Family, Format, TuningEntry, write
from rewarm.autotune.formats.protobuf import message_class
from rewarm.autotune.locating import place_of
from rewarm.autotune.merging import better
from rewarm.autotune.places import Place
from rewarm.envelope import Header, open_entry, seal
from rewarm.errors import BadEntryError
from rewarm.identity.components import component, derive_key
from rewarm.remote.address import parse
from rewarm.remote.guard import Guarded
from rewarm.remote.opening import open_blobs
from rewarm.sharing import Namespaces, Remotes, RemoteTier, Uploads, bundle, sync, tuning
from rewarm.sharing.housekeeping import Bounds, collect
from rewarm.sharing.made import Made
from rewarm.store import LocalStore
from rewarm.trust import Keyring, Posture
from shared_remotes import HttpCache, a_key, blob_of, folder_tier, http_cache

BUILD = build_id("jax-0.12.0.1", "ab" * 32)
H200 = target("h200")
MINE = Keyring(a_key("mine"), [])
PRODUCER = {"rewarm": "0"}


class Host:
    """One host: a cache directory with a store and a place."""

    def __init__(self, home: Path) -> None:
        self.store = LocalStore(home / "cache")
        self.store.prepare()
        self.place = place_of(self.store.root, BUILD, H200.text, Family.NEW)
        self.place.prepare()

    def keep(self, *entries: TuningEntry) -> str:
        """Have these results found here, and kept in an entry; returns its key."""
        keys: list[str] = []

        def keep(found: tuple[TuningEntry, ...]) -> None:
            key, data = batches.sealed(self.place, found, producer=PRODUCER)
            batches.keep(self.store, self.place, key, data, made=Made(self.store.root).add)
            keys.append(key)

        self.place.add(entries)
        self.place.collect(keep)
        [key] = keys
        return key

    def results(self) -> set[TuningEntry]:
        return set(self.place.entries().entries)

    def remotes(self, *tiers: RemoteTier) -> Remotes:
        uploads = Uploads(self.store.root, tiers, lambda key: self.store.get(key, use=False), lambda _: None)
        return Remotes(tiers, uploads, self.store)

    def send(self, key: str, *tiers: RemoteTier) -> None:
        remotes = self.remotes(*tiers)
        remotes.publish_results(self.place.name, key)
        assert remotes.uploads.drain(20) == 0

    def fetch(self, *tiers: RemoteTier) -> int:
        """Fetch what remotes have, as a program does before it compiles; returns how many results are new."""

        def take(came: dict[str, bytes]) -> None:
            for key, data in came.items():
                assert batches.opened(data, key).place == self.place.name
                batches.keep(self.store, self.place, key, data)

        fetching = self.remotes(*tiers).fetch_results(self.place.name, self.place.batches(), take)
        assert fetching.wait(20)
        return batches.absorb(self.store, self.place, set())


@pytest.fixture
def here(tmp_path: Path) -> Host:
    return Host(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Host:
    return Host(tmp_path / "there")


# ---------------------------------------------------------------------------------------------------------------
# One entry


def test_what_was_sealed_opens(here: Host) -> None:
    entries = [new_entry(), legacy_entry(), legacy_one(1, 0, micros=120), new_one(2, 1)]
    key, data = batches.sealed(here.place, entries, producer=PRODUCER, program="jit_step", seconds=2.5)
    batch = batches.opened(data, key)
    assert isinstance(batch, Batch)
    assert set(batch.entries) == set(entries)
    assert (batch.place, batch.header.program, batch.header.compile_seconds) == (here.place.name, "jit_step", 2.5)
    assert (batch.about["build"], batch.about["device"]) == (BUILD, H200.text)
    run_times = {entry.run_time for entry in batch.entries if entry.run_time is not None}
    assert run_times == {0.00012}


def test_the_same_results_are_one_entry_whoever_found_them_and_in_whatever_order(here: Host, there: Host) -> None:
    entries = [new_one(number, 0) for number in range(5)]
    first, _ = batches.sealed(here.place, entries, producer=PRODUCER, seconds=1.0)
    second, _ = batches.sealed(there.place, reversed(entries), producer={"rewarm": "1"}, program="other")
    third, _ = batches.sealed(here.place, entries[:4], producer=PRODUCER)
    elsewhere = place_of(here.store.root, build_id("jax-0.11.2"), H200.text, Family.NEW)
    fourth, _ = batches.sealed(elsewhere, entries, producer=PRODUCER)
    assert first == second
    assert len({first, third, fourth}) == 3


def test_a_key_is_that_of_its_components(here: Host) -> None:
    key, data = batches.sealed(here.place, [new_entry()], producer=PRODUCER)
    rows = open_entry(data, key).header.components
    assert derive_key((str(row["name"]), str(row["digest"])) for row in rows) == key


def _header(place: Place, **changes: object) -> Header:
    key, data = batches.sealed(place, [new_entry()], producer=PRODUCER)
    return open_entry(data, key).header._replace(sections=(), **changes)  # type: ignore[arg-type]


def _sealed_as(place: Place, content: bytes) -> tuple[str, bytes]:
    """A content that is what the key says, whatever it is."""
    about = next(row["value"] for row in _header(place).components if row["name"] == "place")
    rows = (component("place", about), component("content", hashlib.sha256(content).hexdigest()))
    key = derive_key((row.name, row.digest) for row in rows)
    header = _header(place, key=key, components=tuple(row.as_dict() for row in rows))
    return key, seal(header, {"tuning": content})


def test_an_executable_is_no_results(here: Host) -> None:
    header = _header(here.place, kind="executable")
    with pytest.raises(BadEntryError, match="no entry with tuning results"):
        batches.opened(seal(header, {"executable": b"code"}), header.key)


def test_results_that_are_not_those_of_the_key_are_refused(here: Host) -> None:
    header = _header(here.place)
    with pytest.raises(BadEntryError, match="not those of its key"):
        batches.opened(seal(header, {"tuning": b'{"files":[],"version":1}'}), header.key)
    moved = tuple({**row, "digest": "0" * 64} if row["name"] == "place" else row for row in header.components)
    with pytest.raises(BadEntryError, match="not those of its key"):
        batches.opened(seal(header._replace(components=moved), {"tuning": b"{}"}), header.key)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        b"[]",
        b"{}",
        b'{"version":1}',
        b'{"version":1,"files":3}',
        b'{"version":1,"files":[["a"]]}',
        b'{"version":1,"files":[[1,"",""]]}',
        b'{"version":1,"files":[["x/y.pb","not base64!",""]]}',
        b'{"version":1,"files":' + b"[" * 100_000,
    ],
)
def test_results_in_another_form_are_a_bad_entry(content: bytes, here: Host) -> None:
    key, data = _sealed_as(here.place, content)
    with pytest.raises(BadEntryError):
        batches.opened(data, key)


@pytest.mark.parametrize("path", ["../x.pb", "/etc/x.textproto", "a4baa03864db7cfb/../../x.pb", ".x.textproto", "x"])
def test_a_path_leads_nowhere_else(path: str, here: Host) -> None:
    """Who signed an entry may still have written anything into it."""
    key, data = batches.sealed(here.place, [new_entry()], producer=PRODUCER)
    told = json.loads(open_entry(data, key).section("tuning"))
    told["files"][0][0] = path
    key, data = _sealed_as(here.place, json.dumps(told).encode())
    assert batches.opened(data, key).entries == ()


def test_an_unsound_result_of_another_host_is_left_out(here: Host) -> None:
    config = message_class("xla.autotuner.BackendConfig")(triton=triton_result(num_warps=3).triton)
    bad = new_entry(config, fusion="3" * 32)
    key, data = batches.sealed(here.place, [bad, new_entry()], producer=PRODUCER)
    batches.keep(here.store, here.place, key, data)
    assert batches.absorb(here.store, here.place, set()) == 1
    assert here.results() == {new_entry()}


# ---------------------------------------------------------------------------------------------------------------
# Here


def test_results_of_the_store_go_into_an_empty_place(here: Host) -> None:
    here.keep(new_entry(), new_one(1, 0))
    here.keep(new_one(2, 0))
    for path in here.place.directory.rglob("*.pb"):
        path.unlink()
    assert batches.absorb(here.store, here.place, set()) == 3
    assert here.place.collect() == ()  # they are in the store
    known: set[str] = set()
    assert batches.absorb(here.store, here.place, known) == 0
    assert len(known) == 2


def test_a_hint_that_names_nothing_is_forgotten(here: Host) -> None:
    key = here.keep(new_entry())
    here.store.delete(key)
    assert batches.absorb(here.store, here.place, set()) == 0
    assert here.place.batches() == []


def test_a_damaged_entry_is_put_aside(here: Host) -> None:
    key = here.keep(new_entry())
    path = here.store.path(key)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert batches.absorb(here.store, here.place, set()) == 0


# ---------------------------------------------------------------------------------------------------------------
# Remotes


def http_tier(http: HttpCache, keyring: Keyring = MINE) -> RemoteTier:
    blobs = Guarded(open_blobs(parse(http.url)), tell=lambda _: None)
    names = Namespaces("main", ("main",))
    return RemoteTier(
        blobs, namespaces=names, keyring=keyring, posture=Posture.REQUIRE, writes=True, tell=lambda _: None
    )


@pytest.fixture(params=["folder that is listed", "HTTP cache that cannot be"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], RemoteTier]]:
    """Makes tiers over one remote."""
    if request.param.startswith("folder"):
        yield lambda: folder_tier(tmp_path / "remote", MINE)
    else:
        with http_cache() as http:
            yield lambda: http_tier(http)


def test_a_second_host_with_an_empty_disk_has_what_the_first_found(
    here: Host, there: Host, remote: Callable[[], RemoteTier]
) -> None:
    found = [[new_entry(), new_one(1, 0)], [new_one(2, 0)], [new_one(3, 1)]]
    for entries in found:
        here.send(here.keep(*entries), remote())
    assert there.fetch(remote()) == 4
    assert there.results() == here.results() == {entry for entries in found for entry in entries}
    assert there.fetch(remote()) == 0
    assert there.place.collect() == ()  # nothing of it is sent back


def test_hosts_that_publish_at_once_lose_nothing(tmp_path: Path, there: Host, remote: Callable[[], RemoteTier]) -> None:
    hosts = [Host(tmp_path / f"host{number}") for number in range(4)]
    keys = [host.keep(*(new_one(10 * at + one, 0) for one in range(5))) for at, host in enumerate(hosts)]
    threads = [threading.Thread(target=host.send, args=(key, remote())) for host, key in zip(hosts, keys, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    there.fetch(remote())
    missing = {fusion_of(10 * at + one) for at in range(4) for one in range(5)} - {
        entry.fusion for entry in there.results()
    }
    # Of an index that cannot be written under a condition a key can be missing; its host finds that at its next start.
    for host in hosts:
        host.fetch(remote())
        assert host.remotes(remote()).uploads.drain(20) == 0
    for at in range(4):
        if fusion_of(10 * at) in missing:
            hosts[at].send(keys[at], remote())
    there.fetch(remote())
    assert len(there.results()) == 20


def test_what_a_remote_does_not_know_is_sent_again_at_the_next_start(here: Host, there: Host, tmp_path: Path) -> None:
    key = here.keep(new_entry())
    tier = folder_tier(tmp_path / "remote", MINE)
    remotes = here.remotes(tier)
    assert remotes.fetch_results(here.place.name, here.place.batches(), lambda _: None).wait(20)
    assert remotes.uploads.drain(20) == 0
    assert blob_of(tmp_path / "remote", key).exists()
    assert there.fetch(folder_tier(tmp_path / "remote", MINE)) == 1


def test_a_rank_that_writes_no_executables_keeps_its_results_there(here: Host, there: Host, tmp_path: Path) -> None:
    tier = folder_tier(tmp_path / "remote", MINE, writes=False)
    tier.takes_results = True
    key = here.keep(new_entry())
    remotes = here.remotes(tier)
    remotes.publish_results(here.place.name, key)
    remotes.publish("0" * 64, b"an executable", stored=False)
    assert remotes.uploads.drain(20) == 0
    assert there.fetch(folder_tier(tmp_path / "remote", MINE)) == 1
    assert not blob_of(tmp_path / "remote", "0" * 64).exists()


def test_a_strangers_results_and_unsigned_ones_are_never_parsed(
    here: Host, there: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = folder_tier(tmp_path / "remote", Keyring(a_key("stranger"), []))
    here.send(here.keep(new_entry()), stranger)
    key = here.keep(new_one(1, 0))
    plain = here.store.get(key)
    assert plain is not None
    blob_of(tmp_path / "remote", key).parent.mkdir(exist_ok=True)
    blob_of(tmp_path / "remote", key).write_bytes(plain)
    tuning.put_hint(stranger, tuning.hint_name(here.place.name, key))
    parsed: list[bytes] = []
    monkeypatch.setattr(batches, "opened", lambda data, _: parsed.append(data))
    told = folder_tier(tmp_path / "remote", MINE)
    assert there.fetch(told) == 0
    assert parsed == []
    assert sum(told.traffic().refused.values()) == 2
    assert there.results() == set()


def test_hints_that_anybody_wrote_do_no_harm(here: Host, there: Host, tmp_path: Path) -> None:
    with http_cache() as http:
        here.send(here.keep(new_entry()), http_tier(http))
        index = f"/cache/main/tuning/{here.place.name}/index"
        whole = json.loads(http.blobs[index])
        for bad in (b"", b"junk", b"[]", b"{}", b'{"version": 1, "keys": "x"}', b'{"version": 9, "keys": []}'):
            http.blobs[index] = bad
            assert Host(tmp_path / f"other{len(bad)}").fetch(http_tier(http)) == 0
        whole["keys"] = ["../../x", 3, "f" * 64, *whole["keys"]]
        http.blobs[index] = json.dumps(whole).encode()
        assert there.fetch(http_tier(http)) == 1
        http.blobs[index] = bytes(2 << 20)
        tuning.put_hint(http_tier(http), tuning.hint_name(here.place.name, "e" * 64))
        assert json.loads(http.blobs[index])["keys"] == ["e" * 64], "one that is huge is replaced"


def test_a_remote_that_is_away_is_no_hindrance(here: Host) -> None:
    with http_cache() as http:
        url = http.url
    blobs = Guarded(open_blobs(parse(f"{url}?deadline=1")), tell=lambda _: None)
    names = Namespaces("main", ("main",))
    tier = RemoteTier(blobs, namespaces=names, keyring=MINE, posture=Posture.REQUIRE, writes=True, tell=lambda _: None)
    assert here.fetch(tier) == 0


def test_old_hints_go_with_old_entries(here: Host, tmp_path: Path) -> None:
    tier = folder_tier(tmp_path / "remote", MINE)
    key = here.keep(new_entry())
    here.send(key, tier)
    for path in (tmp_path / "remote").rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    gone = {one.name for one in collect(tier, Bounds(max_age=60.0), 1e9, dry_run=False)}
    assert gone == {key, tuning.hint_name(here.place.name, key)}


def test_a_hint_follows_its_entry_and_none_an_entry_that_is_too_large(here: Host, tmp_path: Path) -> None:
    with http_cache() as cache:
        tier = http_tier(cache)
        first, second = here.keep(new_entry()), here.keep(new_one(1, 0))
        cache.put_status = 413
        here.send(first, tier)
        assert cache.asked
        assert not [path for command, path in cache.asked if command == "PUT" and "/tuning/" in path]
        cache.put_status, cache.asked = 0, []
        here.send(second, tier)
        put = [path.rpartition("/")[2] for command, path in cache.asked if command == "PUT"]
        assert put[:2] == [second, second]  # the entry, and the hint of its name
        assert cache.entries().count(first) == 0


# ---------------------------------------------------------------------------------------------------------------
# What was pruned


def prune(place: Place, **more: Any) -> int:
    found = pruning.plan(place.entries(), **more)
    return pruning.apply(found, may_be_empty=True)


def test_what_is_unsound_or_the_lesser_does_not_come_back_from_the_store(here: Host) -> None:
    """The store's entry has both, and the merge rule and the checks decide as they did."""
    one, other = new_one(0, 0), new_one(0, 1)
    best = better(one, other)
    lesser = other if best == one else one
    for entry in (lesser, best):
        here.keep(entry)
    assert here.results() == {best}
    # Somebody puts the lesser one back, and an unsound one beside it.
    [file] = here.place.directory.rglob("*.pb")
    write([lesser], here.place.directory, Format.NEW_DIRECTORY)
    bad = file.with_name("9" * 32 + ".pb")
    bad.write_bytes(file.read_bytes())
    assert prune(here.place) == 1
    assert not bad.exists()
    batches.absorb(here.store, here.place, set())
    assert here.results() == {best}


def test_what_serves_a_build_comes_back_when_it_runs_again(here: Host) -> None:
    """`prune` empties the place of a build that is not to be served. Its results stay in the store, whole, and fill the
    place again for a program of that build, without becoming another entry."""
    key = here.keep(new_entry(), new_one(1, 0))
    assert prune(here.place, whole="of another build") == 2
    assert here.place.prepare().entries == 0
    again = Host(here.store.root.parent)
    assert again.place.collect() == ()
    assert batches.absorb(again.store, again.place, set()) == 2
    assert again.results() == {new_entry(), new_one(1, 0)}
    assert again.place.batches() == [key]
    assert again.place.collect() == ()


# ---------------------------------------------------------------------------------------------------------------
# By sync and in bundles


def test_sync_takes_results_and_their_hints_along(here: Host, there: Host, tmp_path: Path) -> None:
    key = here.keep(new_entry())
    tier = folder_tier(tmp_path / "remote", MINE)
    assert [one.problem for one in sync.push(here.store, tier, [key], made=Made(here.store.root))] == [None]
    assert there.fetch(folder_tier(tmp_path / "remote", MINE)) == 1
    third = Host(tmp_path / "third")
    assert [one.problem for one in sync.pull(third.store, tier)] == [None]
    assert batches.absorb(third.store, third.place, set()) == 1


def test_a_bundle_takes_results_along(here: Host, there: Host, tmp_path: Path) -> None:
    key = here.keep(new_entry(), new_one(1, 0))
    bundle.save(tmp_path / "b.zip", here.store, [key], MINE, made=None)
    assert [one.outcome for one in bundle.load(tmp_path / "b.zip", there.store, MINE, Posture.REQUIRE)] == ["stored"]
    words = [sys.executable, "-m", "rewarm", "autotune", "ls", "--dir", str(there.store.root)]
    said = execute(words, env=clean_environment(), cwd=tmp_path).out
    assert "1 entry of the cache directory with results for it; the next compile" in said, "they are in no place yet"
    assert batches.absorb(there.store, there.place, set()) == 2


def test_results_that_come_from_afar_go_on_to_a_nearer_remote(here: Host, there: Host, tmp_path: Path) -> None:
    """With the signature that they have, and the hint by which others find them."""
    theirs = folder_tier(tmp_path / "far", Keyring(a_key("theirs"), []))
    trusting = Keyring(a_key("mine"), [a_key("theirs").public])
    near, far = (folder_tier(tmp_path / name, trusting) for name in ("near", "far"))
    key = here.keep(new_entry())
    here.send(key, theirs)
    remotes = there.remotes(near, far)
    came: dict[str, bytes] = {}
    assert remotes.fetch_results(there.place.name, [], came.update).wait(20)
    assert list(came) == [key]
    assert remotes.uploads.drain(20) == 0
    assert blob_of(tmp_path / "near", key).read_bytes() == blob_of(tmp_path / "far", key).read_bytes()
    assert tuning.known_there(near, "main", there.place.name) == [key]
