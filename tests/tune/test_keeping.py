"""Records in the store and its remotes: found by case alone, by other processes and hosts, and never an exception."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tune_world import WHEN, a_case, a_record, a_trial

from conftest import clean_environment, entries
from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError
from rewarm.policy import Bounds
from rewarm.sharing import Remotes, Uploads, sync, tuned
from rewarm.sharing.bundle import load, save
from rewarm.sharing.made import Made
from rewarm.store import LocalStore
from rewarm.trust import Keyring, Posture
from rewarm.tunables.keeping import Keeping, opened, sealed
from rewarm.tunables.records import Case
from shared_remotes import a_key, folder_tier


def a_store(root: Path) -> LocalStore:
    store = LocalStore(root)
    store.prepare()
    return store


def keeping_at(root: Path, told: list[str] | None = None, *, made: bool = True) -> Keeping:
    """What a process has whose directory this is."""
    store = a_store(root)
    tell = (lambda _: None) if told is None else told.append
    return Keeping(store, made=Made(root) if made else None, producer={"rewarm": "1"}, tell=tell)


def test_a_record_is_found_by_another_process_by_its_case_alone(tmp_path: Path) -> None:
    assert keeping_at(tmp_path).put(a_record())
    look = (
        "import sys; sys.path.insert(0, sys.argv[2]);"
        "from tune_world import a_case, a_record; from pathlib import Path;"
        "from rewarm.store import LocalStore; from rewarm.tunables.keeping import Keeping;"
        "found = Keeping(LocalStore(Path(sys.argv[1]))).find(a_case()); assert found == a_record(), found;"
        "assert 'jax' not in sys.modules"
    )
    run = [sys.executable, "-c", look, str(tmp_path), str(Path(__file__).parent)]
    subprocess.run(run, check=True, env=clean_environment(), timeout=120)


@pytest.mark.parametrize("changed", ["content", "target", "toolchain", "libraries"])
def test_another_content_device_or_compiler_is_never_served(tmp_path: Path, changed: str) -> None:
    keeping = keeping_at(tmp_path)
    keeping.put(a_record())
    assert keeping.find(a_case(**{changed: "new"})) is None
    assert keeping.find(a_case("f32[1024,513]")) is None
    assert keeping.find(a_case(kernel="kernels:other")) is None
    assert [one.case for one in keeping.of_kernel("kernels:attention")] == [a_case()]
    assert keeping.of_kernel("kernels:other") == []


def test_one_look_up_reads_one_folder_and_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = keeping_at(tmp_path)
    for number in range(50):
        keeping.put(a_record(a_case(f"f32[{number}]")))
    scanned, read = [], []
    scandir, get = __import__("os").scandir, LocalStore.get
    monkeypatch.setattr("os.scandir", lambda path: scanned.append(path) or scandir(path))
    monkeypatch.setattr(LocalStore, "get", lambda self, key, **more: read.append(key) or get(self, key, **more))
    assert keeping.find(a_case("f32[7]")) is not None
    assert len(scanned) == len(read) == 1


def test_what_was_made_here_is_one_entry_and_keeps_every_trial(tmp_path: Path) -> None:
    keeping = keeping_at(tmp_path)
    keeping.put(a_record(), seconds=10.0)
    keeping.put(a_record(winner={"block": 128}, trials=(a_trial(128),), when=WHEN + 1), seconds=5.0)
    [path] = entries(tmp_path)
    record, header = opened(path.read_bytes(), path.name)
    assert record.winner == {"block": 128}
    assert {one.config["block"] for one in record.trials} == {32, 64, 128}
    assert header.compile_seconds == 15.0
    assert keeping.find(a_case()) == record
    assert len(tuned.known_here(tmp_path, *_place_and_case(a_case()))) == 1


def test_what_others_made_stays_theirs_and_is_merged_on_reading(tmp_path: Path) -> None:
    theirs = keeping_at(tmp_path, made=False)
    theirs.put(a_record())
    ours = keeping_at(tmp_path)
    ours.put(a_record(winner={"block": 128}, trials=(a_trial(128),), when=WHEN + 1))
    assert len(list(entries(tmp_path))) == 2
    found = ours.find(a_case())
    assert found is not None
    assert found.winner == {"block": 128}
    assert len(found.trials) == 3


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    write = (
        "import sys; sys.path.insert(0, sys.argv[2]);"
        "from test_keeping import keeping_at; from tune_world import a_record, a_trial, WHEN; from pathlib import Path;"
        "keeping = keeping_at(Path(sys.argv[1])); number = int(sys.argv[3]);"
        "[keeping.put(a_record(trials=(a_trial(number * 100 + n),), when=WHEN + n)) for n in range(10)]"
    )
    here = Path(__file__).parent
    env = {**clean_environment(), "PYTHONPATH": f"{here.parent}:{here.parent / 'remote'}"}
    started = [
        subprocess.Popen([sys.executable, "-c", write, str(tmp_path), str(here), str(number)], env=env)
        for number in range(1, 4)
    ]
    assert [one.wait(120) for one in started] == [0, 0, 0]
    found = keeping_at(tmp_path).find(a_case())
    assert found is not None
    assert {one.config["block"] for one in found.trials} == {n * 100 + m for n in range(1, 4) for m in range(10)}


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other", "gone"])
def test_a_broken_record_is_a_miss_that_is_named_once(tmp_path: Path, damage: str) -> None:
    told: list[str] = []
    keeping = keeping_at(tmp_path, told)
    keeping.put(a_record())
    [path] = entries(tmp_path)
    data = path.read_bytes()
    other = sealed(a_record(a_case("f32[1]")), producer={})[1]
    broken = {"flip": data[:-40] + bytes([data[-40] ^ 1]) + data[-39:], "cut": data[:99], "empty": b"", "other": other}
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(broken[damage])
    assert keeping.find(a_case()) is None
    assert keeping.find(a_case()) is None
    assert keeping.all() == []
    assert len(told) == (0 if damage == "gone" else 1), told
    assert all("a record of the tuner cannot be used" in line and path.name[:12] in line for line in told)
    assert keeping.put(a_record())
    assert keeping.find(a_case()) == a_record()


def test_an_entry_that_says_another_case_than_its_key_is_refused() -> None:
    record = a_record()
    key, data = sealed(record, producer={})
    header = open_entry(data, key).header
    from rewarm.envelope import seal
    from rewarm.identity.components import derive_key

    other = a_case("f32[9]").rows
    rows = [row.as_dict() for row in other] + [dict(header.components[-1])]
    forged_key = derive_key((row["name"], row["digest"]) for row in rows)
    forged = seal(header._replace(components=tuple(rows), key=forged_key, sections=()), {"record": record.data})
    with pytest.raises(BadEntryError, match="another case"):
        opened(forged, forged_key)
    with pytest.raises(BadEntryError, match="another key"):
        opened(data, forged_key)


def test_where_nothing_can_be_written_records_live_in_this_process(tmp_path: Path) -> None:
    keeping = Keeping(None)
    assert not keeping.put(a_record())
    assert keeping.find(a_case()) == a_record()
    assert keeping.all() == [a_record()]
    tmp_path.chmod(0o500)
    told: list[str] = []
    refused = Keeping(LocalStore(tmp_path / "no"), made=Made(tmp_path / "no"), tell=told.append)
    is_kept = refused.put(a_record())
    assert refused.find(a_case()) == a_record()
    assert is_kept or "for this process alone" in told[0]  # root may write everywhere


def test_what_is_evicted_is_a_miss_and_its_note_goes(tmp_path: Path) -> None:
    keeping = keeping_at(tmp_path)
    keeping.put(a_record())
    store = a_store(tmp_path)
    for path in entries(tmp_path):
        store.delete(path.name)
    assert keeping.find(a_case()) is None
    assert not list((tmp_path / "tuned").iterdir())


def test_what_takes_the_place_of_a_verdict_keeps_its_timings(tmp_path: Path) -> None:
    """A quiet verdict that is of no use any more must not stand before a noisy one that is."""
    keeping = keeping_at(tmp_path)
    keeping.put(a_record())
    noisy = a_record(winner={"block": 32}, flags=("noisy (others): much",), when=WHEN + 5, trials=(a_trial(256),))
    keeping.put(noisy)
    assert keeping.find(a_case()).winner == a_record().winner
    keeping.put(noisy, instead=True)
    found = keeping.find(a_case())
    assert found.winner == {"block": 32}
    assert {one.config["block"] for one in found.trials} > {256}
    # One that has decided nothing takes the place of nothing.
    keeping.put(replace(a_record(), winner=None, comparison=None, when=WHEN + 9), instead=True)
    assert keeping.find(a_case()).winner == {"block": 32}


def test_drop_removes_one_case(tmp_path: Path) -> None:
    keeping = keeping_at(tmp_path)
    for arguments in ("f32[1]", "f32[2]"):
        keeping.put(a_record(a_case(arguments)))
    assert keeping.drop(a_case("f32[1]")) == 1
    assert [one.case.arguments for one in keeping.all()] == ["f32[2]"]


# -- remotes -----------------------------------------------------------------------------------------------------

OURS, THEIRS = a_key("ours"), a_key("theirs")


def host(
    root: Path,
    remote: Path,
    key: Any = OURS,
    trusted: Any = (),
    told: list[str] | None = None,
    posture: Posture = Posture.REQUIRE,
) -> tuple[Keeping, Uploads]:
    """A host with a directory of its own, and a folder as its remote."""
    store = a_store(root)
    lines = told if told is not None else []
    tier = folder_tier(remote, Keyring(key, [one.public for one in trusted]), posture, lines)
    made = Made(root)
    uploads = Uploads(root, [tier], lambda name: store.get(name, use=False), lines.append, made=made.has)
    remotes = Remotes([tier], uploads, store, made=made)
    return Keeping(store, remotes, made=made, producer={}, tell=lines.append), uploads


def test_another_host_finds_a_signed_record_by_its_kernel(tmp_path: Path) -> None:
    first, uploads = host(tmp_path / "a", tmp_path / "remote")
    first.put(a_record())
    first.put(a_record(a_case("f32[7]")))
    assert uploads.drain(20.0) == 0
    second, _ = host(tmp_path / "b", tmp_path / "remote", THEIRS, [OURS])
    assert second.find(a_case()) == a_record()
    assert [one.case.arguments for one in second.of_kernel("kernels:attention")] == ["f32[1024,512]", "f32[7]"]
    assert second.find(a_case(target="other")) is None
    # It is here now, and needs no remote.
    assert keeping_at(tmp_path / "b").find(a_case()) == a_record()


def test_a_record_of_a_stranger_is_not_believed(tmp_path: Path) -> None:
    first, uploads = host(tmp_path / "a", tmp_path / "remote", THEIRS)
    first.put(a_record())
    assert uploads.drain(20.0) == 0
    second, _ = host(tmp_path / "b", tmp_path / "remote", OURS)
    assert second.find(a_case()) is None
    assert list(entries(tmp_path / "b")) == []


def test_a_record_that_nobody_has_signed_is_not_believed(tmp_path: Path) -> None:
    first, uploads = host(tmp_path / "a", tmp_path / "remote", None, posture=Posture.STORE)
    first.put(a_record())
    assert uploads.drain(20.0) == 0
    third, _ = host(tmp_path / "c", tmp_path / "remote", None, posture=Posture.STORE)
    assert third.find(a_case()) == a_record()
    second, _ = host(tmp_path / "b", tmp_path / "remote", THEIRS, [OURS])
    assert second.find(a_case()) is None
    assert list(entries(tmp_path / "b")) == []


def test_a_damaged_blob_is_a_miss(tmp_path: Path) -> None:
    first, uploads = host(tmp_path / "a", tmp_path / "remote")
    first.put(a_record())
    assert uploads.drain(20.0) == 0
    for blob in (tmp_path / "remote").rglob("*"):
        if blob.is_file() and blob.stat().st_size > 100:
            blob.write_bytes(blob.read_bytes()[:-50])
    second, _ = host(tmp_path / "b", tmp_path / "remote", THEIRS, [OURS])
    assert second.find(a_case()) is None


def test_bundles_carry_records_and_whoever_loads_one_finds_them(tmp_path: Path) -> None:
    keeping_at(tmp_path / "a").put(a_record())
    keyring = Keyring(OURS, [])
    store = a_store(tmp_path / "a")
    bundle = tmp_path / "all.bundle"
    save(bundle, store, [info.key for info in store.scan()], keyring, made=None)
    there = a_store(tmp_path / "b")
    list(load(bundle, there, keyring, Posture.REQUIRE))
    assert keeping_at(tmp_path / "b").find(a_case()) == a_record()


def _place_and_case(case: Case) -> tuple[str, str]:
    digests = {row.name: row.digest for row in case.rows}
    return tuned.place_by(digests), tuned.case_key(digests)


def test_the_key_of_a_case_is_that_of_its_rows() -> None:
    assert _place_and_case(a_case())[1] == a_case().key
    assert tuned.is_place(_place_and_case(a_case())[0])


def test_sync_carries_records_and_leaves_hints_that_others_find(tmp_path: Path) -> None:
    first = keeping_at(tmp_path / "a")
    first.put(a_record())
    tier = folder_tier(tmp_path / "remote", Keyring(OURS, [THEIRS.public]))
    [key] = [info.key for info in a_store(tmp_path / "a").scan()]
    assert sync._push(a_store(tmp_path / "a"), tier, key, Made(tmp_path / "a")) is None
    second, _ = host(tmp_path / "b", tmp_path / "remote", THEIRS, [OURS])
    assert second.find(a_case()) == a_record()
    fetched = folder_tier(tmp_path / "remote", Keyring(THEIRS, [OURS.public])).fetch(key)
    assert fetched is not None
    assert sync._pull(a_store(tmp_path / "c"), fetched.entry, key) is None
    assert keeping_at(tmp_path / "c").find(a_case()) == a_record()


def test_what_others_made_goes_on_to_nearer_remotes_and_is_not_signed_here(tmp_path: Path) -> None:
    first, uploads = host(tmp_path / "a", tmp_path / "remote")
    first.put(a_record())
    assert uploads.drain(20.0) == 0
    second, uploads = host(tmp_path / "b", tmp_path / "remote", THEIRS, [OURS])
    assert second.find(a_case()) is not None
    assert second.put(a_record(winner={"block": 128}, trials=(a_trial(128),), when=WHEN + 1))
    assert uploads.drain(20.0) == 0
    # Two entries stay two: the one that came keeps its maker, and what is made here has none of its trials.
    kept = [opened(path.read_bytes(), path.name)[0] for path in entries(tmp_path / "b")]
    assert sorted(len(one.trials) for one in kept) == [1, 2]
    third, _ = host(tmp_path / "c", tmp_path / "remote", a_key("third"), [THEIRS])
    found = third.find(a_case())
    assert found is not None
    assert (found.winner, len(found.trials)) == ({"block": 128}, 1)


def test_gc_forgets_notes_of_what_is_gone(tmp_path: Path) -> None:
    keeping_at(tmp_path).put(a_record())
    keeping_at(tmp_path).put(a_record(a_case("f32[1]")))
    gone = entries(tmp_path)[0]
    gone.unlink()
    command = [sys.executable, "-m", "rewarm", "gc", "--dir", str(tmp_path)]
    subprocess.run(command, check=True, env=clean_environment(), timeout=120, capture_output=True)
    left = [key for _, _, key in tuned.entries_of(tmp_path, tuned.places_here(tmp_path))]
    assert left == [path.name for path in entries(tmp_path)]
    assert len(left) == 1


def test_no_flipped_byte_is_more_than_a_broken_entry() -> None:
    key, data = sealed(a_record(), producer={}, created=WHEN)
    for at in range(len(data)):
        with pytest.raises(BadEntryError):
            opened(data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :], key)


def test_a_store_that_takes_nothing_is_said_and_the_record_serves_this_process(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "full", bounds=Bounds(max_size=0, max_age=None, max_entries=None))
    store.prepare()
    told: list[str] = []
    keeping = Keeping(store, made=Made(tmp_path / "full"), tell=told.append)
    assert not keeping.put(a_record())
    assert keeping.find(a_case()) == a_record()
    assert [line.partition(":")[0] for line in told] == ["a record of the tuner is kept for this process alone"]
