"""The commands that share: sync, bundle, and gc and ls of a remote."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import servers

from conftest import Run, clean_environment, execute
from rewarm.envelope import Header, seal
from rewarm.sharing.made import Made
from rewarm.store import LocalStore
from rewarm.store.conformance import key_of
from rewarm.trust import signed
from shared_remotes import Machine, a_key, blob_of, http_cache

DAY = 86_400.0


def rewarm(*arguments: str, code: int = 0, **env: str) -> Run:
    """Call the command."""
    run = execute([sys.executable, "-m", "rewarm", *arguments], env=clean_environment(**env), cwd=Path.cwd())
    assert run.code == code, run.err + run.out
    assert "Traceback" not in run.err
    return run


def told(*arguments: str, code: int = 0, **env: str) -> Any:
    """Call it for its JSON."""
    return json.loads(rewarm(*arguments, "--json", code=code, **env).out)


def entry_of(number: int, size: int = 100) -> bytes:
    header = Header(
        kind="executable", key=key_of(number), components=(), program=f"jit_{number}", compile_seconds=1.5,
        created=time.time(), producer={"jax": "0.12"}, target="cpu x1",
    )  # fmt: skip
    return seal(header, {"executable": os.urandom(size)}, codec="raw")


def fill(machine: Machine, *numbers: int) -> None:
    store = machine.store()
    for number in numbers:
        entry = entry_of(number)
        Made(store.root).add(entry)
        store.put(key_of(number), entry)


def keys(machine: Machine) -> set[str]:
    return {info.key for info in LocalStore(machine.cache).scan()}


@pytest.fixture
def one(tmp_path: Path) -> Machine:
    """A machine with three entries."""
    machine = Machine.named("one", tmp_path)
    fill(machine, 0, 1, 2)
    return machine


@pytest.fixture
def other(tmp_path: Path, one: Machine) -> Machine:
    """One that trusts it, with one entry."""
    machine = Machine.named("other", tmp_path, one)
    fill(machine, 7)
    return machine


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "shared").mkdir()
    return (tmp_path / "shared").as_uri()


# -- sync ----------------------------------------------------------------------------------------------------------


def test_push_and_pull(one: Machine, other: Machine, url: str, tmp_path: Path) -> None:
    pushed = told("sync", "push", **one.env(url))
    assert {row["key"] for row in pushed["sent"]} == {key_of(number) for number in range(3)}
    assert told("sync", "push", **one.env(url))["sent"] == []
    blob_of(tmp_path / "shared", key_of(0)).write_bytes(entry_of(0))
    assert "pushed 1, pulled 2, 1 did not arrive" in rewarm("sync", "both", code=1, **other.env(url)).out
    assert keys(other) == {key_of(number) for number in (1, 2, 7)}
    assert "pulled 0, 1 did not arrive" in rewarm("sync", "pull", code=1, **one.env(url)).out, "other is a stranger"
    assert keys(one) == {key_of(number) for number in range(3)}


@pytest.mark.parametrize("direction", ["pull", "both"])
@pytest.mark.parametrize("there", ["missing", "deep", "empty"])
def test_a_fresh_machine_is_filled(one: Machine, url: str, tmp_path: Path, direction: str, there: str) -> None:
    rewarm("sync", "push", **one.env(url))
    fresh = Machine.named("fresh", tmp_path, one)
    place = fresh.home / "a" / "b" if there == "deep" else fresh.cache
    if there == "empty":
        place.mkdir(parents=True)
    said = {"REWARM_DIR": str(place)} if there == "missing" else {}
    options = [] if there == "missing" else ["--dir", str(place)]
    run = rewarm("sync", "push", *options, code=1, **fresh.env(url, **said))
    assert "cache directory" in run.err, "nothing is there to be sent"
    done = told("sync", direction, *options, **fresh.env(url, **said))
    assert (len(done["sent"]), done["failed"]) == (3, 0)
    assert {info.key for info in LocalStore(place).scan()} == {key_of(number) for number in range(3)}
    assert (place / "CACHEDIR.TAG").exists()
    assert "3 entries, 0 bad" in rewarm("verify", "--dir", str(place)).out


def test_an_address_that_is_none_makes_no_directory(one: Machine, tmp_path: Path) -> None:
    rewarm("sync", "pull", "--remote", "s4://x", "--dir", str(tmp_path / "new"), code=2, **one.env())
    assert not (tmp_path / "new").exists()
    rewarm(
        "sync", "pull", "--remote", f"file://{tmp_path / 'none'}", "--dir", str(tmp_path / "new"), code=1, **one.env()
    )
    assert not (tmp_path / "new").exists()


def test_push_of_a_program_and_in_a_namespace(one: Machine, other: Machine, url: str) -> None:
    sent = told("sync", "push", "--program", "t_1", "--namespace", "ci", **one.env(url))
    assert [row["key"] for row in sent["sent"]] == [key_of(1)]
    assert told("sync", "pull", **other.env(url))["sent"] == []
    assert told("sync", "pull", "--read-namespaces", "ci", **other.env(url))["failed"] == 0
    assert keys(other) == {key_of(1), key_of(7)}


def test_sync_without_a_remote_a_key_or_an_answer(one: Machine, url: str) -> None:
    assert "no remote is named" in rewarm("sync", "push", code=1, **one.env()).err
    run = rewarm("sync", "push", code=1, **one.env(url, REWARM_SIGNING_KEY=""))
    assert "3 push: there is no key to sign with (make one with rewarm keys new)" in run.out
    run = rewarm("sync", "pull", "--remote", "http://127.0.0.1:9/x?deadline=1", code=1, **one.env())
    assert len(run.err.splitlines()) <= 2
    run = rewarm("sync", "pull", "--remote", "gibberish://hunter2@x", code=2, **one.env())
    assert "hunter2" not in run.err


@pytest.mark.skipif(importlib.util.find_spec("moto") is None, reason="no moto")
def test_sync_over_s3(one: Machine, other: Machine, tmp_path: Path) -> None:
    try:
        with servers.moto(tmp_path) as server:
            address = server.address("prefix")
            assert told("sync", "push", **one.env(address))["failed"] == 0
            assert told("sync", "push", **one.env(address))["sent"] == []
            assert told("sync", "pull", **other.env(address))["failed"] == 0
            assert len(told("ls", "--remote", address, "--headers", **other.env())) == 3
            assert len(told("gc", "--remote", address, "--max-size", "0", **other.env())["removed"]) == 3
            assert told("ls", "--remote", address, **other.env()) == []
    except servers.MissingServerError as missing:
        servers.do_without("moto", missing)
    assert keys(other) == {key_of(number) for number in (0, 1, 2, 7)}


def test_who_may_not_load_a_bundle_is_told_what_to_do(one: Machine, other: Machine, tmp_path: Path) -> None:
    path = str(tmp_path / "some.zip")
    rewarm("bundle", "save", path, **one.env())
    stranger = Machine.named("stranger", tmp_path)
    assert "and run: rewarm keys trust 'LINE'" in rewarm("bundle", "load", path, code=1, **stranger.env()).out
    rewarm("bundle", "save", f"{path}.2", **one.env(REWARM_SIGNING_KEY=""))
    text = rewarm("bundle", "load", f"{path}.2", code=1, **other.env()).out
    assert "Nobody has signed these" in text
    assert "--trust verify" in text


def test_a_push_says_what_it_did_not_look_at(one: Machine, url: str) -> None:
    rewarm("sync", "push", **one.env(url))
    assert "3 have one of their key there, which was not looked at" in rewarm("sync", "push", **one.env(url)).out
    assert told("sync", "push", **one.env(url))["there_already"] == 3
    assert "not looked at" not in rewarm("sync", "push", "--verify", **one.env(url)).out


# -- ls and gc -----------------------------------------------------------------------------------------------------


def test_ls_of_a_remote(one: Machine, other: Machine, url: str, tmp_path: Path) -> None:
    rewarm("sync", "push", **one.env(url))
    root = tmp_path / "shared"
    for number in range(3):
        then = time.time() - number * DAY
        os.utime(blob_of(root, key_of(number)), (then, then))
    rows = told("ls", "--remote", url, **other.env())
    assert [row["key"] for row in rows] == [key_of(number) for number in range(3)]
    assert [row["bytes"] for row in rows] == [blob_of(root, key_of(number)).stat().st_size for number in range(3)]
    assert {row["program"] for row in rows} == {None}
    blob_of(root, key_of(1)).write_bytes(signed(entry_of(1), key_of(1), "main", a_key("stranger")))
    rows = told("ls", "--remote", url, "--headers", "--sort", "age", **other.env())
    assert [row["program"] for row in rows] == ["jit_2", "jit_0", None]
    assert "signed by an unknown key" in rows[-1]["problem"]
    text = rewarm("ls", "--remote", url, "--headers", "--limit", "2", **other.env()).out.splitlines()
    assert len(text) == 4
    assert "jit_0" in text[2]
    assert text[3].startswith(f"{url}: 3 entries, ")
    assert told("ls", "--remote", url, "--namespace", "ci", **other.env()) == []
    rewarm("ls", "--remote", url, "--sort", "worth", code=2, **other.env())
    rewarm("ls", "--remote", url, "--program", "x", code=2, **other.env())


def test_gc_of_a_remote_by_age_and_size_in_each_namespace(one: Machine, url: str, tmp_path: Path) -> None:
    root = tmp_path / "shared"
    for namespace in ("main", "ci"):
        rewarm("sync", "push", "--namespace", namespace, **one.env(url))
        for number in range(3):
            then = time.time() - (number + 1) * DAY
            os.utime(blob_of(root, key_of(number), namespace), (then, then))
    (root / "main" / "plans").mkdir()
    (root / "main" / "leases").mkdir()
    for name in ("plans/old", "leases/a", "README"):
        (root / "main" / name).write_text("x")
        os.utime(root / "main" / name, (0, 0))
    dry = told("gc", "--remote", url, "--max-age", "60h", "--dry-run", **one.env())
    removed = sorted((row["name"], row["reason"]) for row in dry["removed"])
    assert removed == sorted([("plans/old", "age"), ("leases/a", "age"), (key_of(2), "age")])
    assert blob_of(root, key_of(2)).exists()
    done = told("gc", "--remote", url, "--max-age", "60h", **one.env())
    assert done["removed"] == dry["removed"]
    assert not blob_of(root, key_of(2)).exists()
    assert sorted(path.name for path in (root / "main").rglob("*") if path.is_file()) == sorted(
        ["README", key_of(0), key_of(1)]
    )
    assert blob_of(root, key_of(2), "ci").exists(), "the other namespace was not named"
    room = sum(blob_of(root, key_of(number), "ci").stat().st_size for number in (0, 1))
    text = rewarm("gc", "--remote", url, "--max-size", str(room), "--namespace", "main,ci", **one.env()).out
    assert "removed 1 blob, " in text
    assert not blob_of(root, key_of(2), "ci").exists()
    assert "size" in text


def test_gc_of_a_folder_removes_what_killed_writers_left_there(one: Machine, url: str, tmp_path: Path) -> None:
    rewarm("sync", "push", **one.env(url))
    main, other = tmp_path / "shared" / "main", tmp_path / "shared" / "ci"
    (main / "leases").mkdir()
    other.mkdir()
    old, young, others = main / "leases" / ".a.1.2.tmp", main / ".b.1.2.tmp", other / ".c.1.2.tmp"
    for path, age in ((old, 2), (young, 0.5), (others, 2)):
        path.write_text("x")
        then = time.time() - age * DAY
        os.utime(path, (then, then))
    assert told("gc", "--remote", url, "--max-age", "60d", "--dry-run", **one.env())["leftovers_removed"] == 0
    assert old.exists()
    text = rewarm("gc", "--remote", url, "--max-age", "60d", **one.env()).out
    assert "removed 0 blobs" in text
    assert "and 1 file that a killed writer left unfinished" in text
    assert (old.exists(), young.exists(), others.exists()) == (False, True, True)


def test_packs_and_plans_count_in_the_size_of_a_remote(one: Machine, url: str, tmp_path: Path) -> None:
    rewarm("sync", "push", **one.env(url))
    root = tmp_path / "shared"
    for number in range(3):
        os.utime(blob_of(root, key_of(number)), (number + 1, number + 1))
    for name, size, put in (
        ("packs/a", 200_000, 1.5),
        ("plans/b", 50_000, 2.5),
        ("leases/c", 9, 0),
        ("probes/d", 9, 0),
    ):
        path = root / "main" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(size))
        os.utime(path, (put, put))
    for room, gone in (
        ("300kB", []),
        ("60kB", [key_of(0), "packs/a"]),
        ("2kB", [key_of(1), "plans/b"]),
        ("0", [key_of(2)]),
    ):
        dry = told("gc", "--remote", url, "--max-size", room, "--dry-run", **one.env())
        done = told("gc", "--remote", url, "--max-size", room, **one.env())
        assert [(row["name"], row["reason"]) for row in done["removed"]] == [(name, "size") for name in gone], room
        assert (dry["removed"], dry["bytes"]) == (done["removed"], done["bytes"])
    assert sorted(path.name for path in (root / "main").rglob("*") if path.is_file()) == ["c", "d"]


def test_gc_of_a_remote_refuses_what_it_cannot_mean(one: Machine, url: str) -> None:
    rewarm("sync", "push", **one.env(url))
    for wrong in (["--max-entries", "3", "--max-age", "1d"], [], ["--max-age", "gibberish"], ["--max-size", "-5"]):
        rewarm("gc", "--remote", url, *wrong, code=2, **one.env(REWARM_MAX_SIZE="1"))
    assert "write=no" in rewarm("gc", "--remote", url + "?write=no", "--max-size", "0", code=1, **one.env()).err
    assert told("gc", "--remote", url + "?write=no", "--max-size", "0", "--dry-run", **one.env())["bytes"] > 0
    assert len(told("ls", "--remote", url, **one.env())) == 3


def test_a_remote_that_cannot_list_says_so_in_one_line(one: Machine) -> None:
    with http_cache() as http:
        for command in (["ls"], ["gc", "--max-age", "1d"], ["sync", "pull"]):
            run = rewarm(*command, "--remote", http.url, code=1, **one.env())
            assert len(run.err.splitlines()) == 1, run.err
            assert "list" in run.err
        assert told("sync", "push", "--remote", http.url, **one.env())["failed"] == 0
        assert len(http.entries()) == 3


def test_an_index_of_tuning_results_goes_by_its_age_like_the_hints(one: Machine, url: str, tmp_path: Path) -> None:
    place = f"25.9.1-gpu-{'0' * 16}"
    names = [f"tuning/{place}/index", f"tuning/{place}/{'a' * 64}", f"tuning/{place}/note", "tuning/index"]
    for name in names:
        path = tmp_path / "shared" / "main" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        os.utime(path, (1, 1))
    done = told("gc", "--remote", url, "--max-age", "60h", **one.env())
    assert sorted(row["name"] for row in done["removed"]) == sorted(names[:2])


def test_no_age_at_all_is_an_age(one: Machine, url: str) -> None:
    rewarm("sync", "push", **one.env(url))
    assert len(told("gc", "--remote", url, "--max-age", "0s", **one.env())["removed"]) == 3
    rewarm("gc", "--max-age", "0", code=2, **one.env())  # which may be meant for no bound
    assert told("gc", "--max-age", "0d", "--dry-run", **one.env())["entries"] == 3
    assert told("gc", "--max-age", "0s", **one.env())["entries"] == 3
    assert keys(one) == set()
    rewarm("gc", "--max-age", "0parsec", code=2, **one.env())


def test_a_blob_of_gigabytes_is_one_line_of_a_list(one: Machine, url: str, tmp_path: Path) -> None:
    rewarm("sync", "push", **one.env(url))
    with blob_of(tmp_path / "shared", key_of(1)).open("r+b") as file:
        file.truncate(2 << 30)
    rows = told("ls", "--remote", url, "--headers", **one.env())
    assert {row["program"]: row["problem"] for row in rows} == {
        "jit_0": None,
        None: "larger than 1 GiB",
        "jit_2": None,
    }
    assert told("sync", "push", "--verify", **one.env(url))["sent"] == [
        {"key": key_of(1), "direction": "push", "problem": None}
    ]
    assert {row["problem"] for row in told("ls", "--remote", url, "--headers", **one.env())} == {None}


# -- the bounds of the directory -----------------------------------------------------------------------------------


def bundled(one: Machine, url: str, tmp_path: Path) -> dict[str, list[str]]:
    """Twenty more entries, of 100 KiB each, in a remote and in a bundle; the commands that bring them here."""
    store, file = one.store(), str(tmp_path / "made.zip")
    for number in range(10, 30):
        entry = entry_of(number, size=100 << 10)
        Made(store.root).add(entry)
        store.put(key_of(number), entry)
    rewarm("sync", "push", **one.env(url))
    rewarm("bundle", "save", file, **one.env())
    return {"pull": ["sync", "pull"], "load": ["bundle", "load", file]}


def not_kept(command: str, done: Any) -> list[str]:
    """Why entries are not in the directory."""
    if command == "pull":
        return [row["problem"] for row in done["sent"] if row["problem"] is not None]
    return [row["outcome"] for row in done["entries"] if row["outcome"] != "stored"]


@pytest.mark.parametrize("command", ["pull", "load"])
def test_what_comes_keeps_to_the_bounds_as_a_program_does(one: Machine, url: str, tmp_path: Path, command: str) -> None:
    words = bundled(one, url, tmp_path)[command]
    other = Machine.named("bounded", tmp_path, one)
    done = told(*words, code=1, **other.env(url, REWARM_MAX_SIZE="1MB"))
    held = [info.size for info in LocalStore(other.cache).scan()]
    assert 500_000 < sum(held) <= 1_000_000
    why = not_kept(command, done)
    assert len(why) == 23 - len(held)
    assert {"max_size" in one for one in why} == {True}
    text = rewarm(*words, code=1, **other.env(url, REWARM_MAX_SIZE="1MB")).out
    assert "not kept: the directory may not hold more (max_size, max_entries, max_age)" in text
    few = Machine.named("few", tmp_path, one)
    assert len(not_kept(command, told(*words, code=1, **few.env(url, REWARM_MAX_ENTRIES="5")))) == 18
    assert len(keys(few)) == 5
    small = Machine.named("small", tmp_path, one)
    why = not_kept(command, told(*words, code=1, **small.env(url, REWARM_MAX_SIZE="50kB")))
    assert (len(why), len(keys(small))) == (20, 3)
    assert {"more than the store may hold" in one for one in why} == {True}
    assert not_kept(command, told(*words, **Machine.named("roomy", tmp_path, one).env(url))) == []


@pytest.mark.parametrize("command", ["pull", "load", "both"])
def test_a_directory_that_may_hold_nothing_is_one_line(one: Machine, url: str, tmp_path: Path, command: str) -> None:
    words = {**bundled(one, url, tmp_path), "both": ["sync", "both"]}[command]
    other = Machine.named("none", tmp_path, one)
    done = rewarm(*words, code=1, **other.env(url, REWARM_MAX_SIZE="0"))
    assert (done.out, len(done.err.splitlines())) == ("", 1)
    assert "max_size is 0 (REWARM_MAX_SIZE), so nothing is stored" in done.err
    assert not other.cache.exists()


# -- bundle --------------------------------------------------------------------------------------------------------


def test_a_bundle_there_and_back(one: Machine, other: Machine, tmp_path: Path) -> None:
    path = str(tmp_path / "made.zip")
    chosen = ["--program", "jit_", "--key", key_of(0)[:10], "--key", key_of(1)]
    assert "2 entries added" in rewarm("bundle", "save", path, *chosen, **one.env()).out
    assert "is there already" in rewarm("bundle", "save", path, code=1, **one.env()).err
    assert len(told("bundle", "save", path, "--update", **one.env())["added"]) == 1
    shown = told("bundle", "show", path)
    assert {row["program"] for row in shown} == {"jit_0", "jit_1", "jit_2"}
    assert "3 entries" in rewarm("bundle", "show", path).out
    stranger = Machine.named("stranger", tmp_path)
    loaded = rewarm("bundle", "load", path, code=1, **stranger.env())
    assert "3 refused: signed by an unknown key" in loaded.out
    assert keys(stranger) == set()
    assert "3 of 3 entries stored" in rewarm("bundle", "load", path, **other.env()).out
    assert "0 of 3 entries stored" in rewarm("bundle", "load", path, **other.env()).out
    assert keys(other) == {key_of(number) for number in (0, 1, 2, 7)}
    assert "3 of 3" in rewarm("bundle", "load", path, "--trust", "store", **stranger.env()).out


def test_an_unsigned_bundle_says_so(one: Machine, other: Machine, tmp_path: Path) -> None:
    path = str(tmp_path / "made.zip")
    assert "not signed" in rewarm("bundle", "save", path, **one.env(REWARM_SIGNING_KEY="")).out
    assert "3 refused: not signed" in rewarm("bundle", "load", path, code=1, **other.env()).out
    assert "3 of 3" in rewarm("bundle", "load", path, "--trust", "verify", **other.env()).out


def test_what_is_added_to_a_bundle_is_signed_and_nothing_else_is_said_to_be(
    one: Machine, other: Machine, tmp_path: Path
) -> None:
    path = str(tmp_path / "made.zip")
    rewarm("bundle", "save", path, "--key", key_of(0), "--key", key_of(1), **one.env(REWARM_SIGNING_KEY=""))
    text = rewarm("bundle", "save", path, "--update", "--key", key_of(0), **one.env()).out
    assert re.search(r"^\S+: 1 entry that would be refused here replaced, \S+ K?i?B, signed$", text, re.MULTILINE)
    assert "1 of 1 others would be refused here, and stay" in text
    assert text.count("signed\n") == 2, "the last word on the other is: not signed"
    assert "1 entry added, " in rewarm("bundle", "save", path, "--update", "--key", key_of(2), **one.env()).out
    done = told("bundle", "save", path, "--update", **one.env())
    assert ([row["key"] for row in done["replaced"]], done["added"], done["kept"]) == ([key_of(1)], [], 2)
    assert done["signer"] == one.key.id
    nothing = rewarm("bundle", "save", path, "--update", **one.env()).out
    assert nothing == f"{path}: 0 entries added, 0 B\n"
    assert "3 of 3 entries stored" in rewarm("bundle", "load", path, **other.env()).out


def test_a_bundle_that_is_ended_leaves_nothing_half_written(one: Machine, tmp_path: Path) -> None:
    fill(one, *range(10, 40))
    folder = tmp_path / "bundles"
    folder.mkdir()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        lock = os.open(folder, os.O_RDONLY)
        fifo = folder / "made.zip"
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = subprocess.Popen(
                [sys.executable, "-c", SLOW, str(fifo)],
                env=clean_environment(**one.env()), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            stack.callback(process.kill)
            assert process.stderr is not None
            assert "waiting for another" in process.stderr.readline()
            fcntl.flock(lock, fcntl.LOCK_UN)
            end = time.monotonic() + 20
            while not list(folder.iterdir()):
                assert time.monotonic() < end, process.poll()
                time.sleep(0.01)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        assert process.returncode in (128 + number, 1), (out, err)
        assert "Traceback" not in err
        assert list(folder.iterdir()) == []


# The command, on a machine that reads two entries in a second.
SLOW = """
import sys, time
from rewarm.cli import main
from rewarm.store import LocalStore

get = LocalStore.get
LocalStore.get = lambda *rest, **more: (time.sleep(0.5), get(*rest, **more))[1]
sys.argv = ["rewarm", "bundle", "save", sys.argv[1]]
main()
"""


def test_what_others_made_is_passed_over_and_said(one: Machine, other: Machine, tmp_path: Path) -> None:
    path, second = str(tmp_path / "made.zip"), str(tmp_path / "second.zip")
    rewarm("bundle", "save", path, **one.env())
    rewarm("bundle", "load", path, **other.env())
    text = rewarm("bundle", "save", second, **other.env()).out
    assert "1 entry added, " in text
    assert "3 entries passed over, since not known to be made here; --all takes them, with your signature" in text
    done = told("bundle", "save", second, "--update", "--all", **other.env())
    assert (len(done["added"]), done["passed_over"], done["kept"]) == (3, [], 1)


def test_what_is_no_bundle_is_one_line(one: Machine, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"PK")
    for command in (["load"], ["show"], ["save", "--update"]):
        run = rewarm(
            "bundle", command[0], str(path), *command[1:], code=1, **(one.env() if command != ["show"] else {})
        )
        assert len(run.err.splitlines()) == 1
        assert "is no bundle of rewarm" in run.err
    rewarm("bundle", "save", str(tmp_path / "no" / "such" / "folder.zip"), code=1, **one.env())
