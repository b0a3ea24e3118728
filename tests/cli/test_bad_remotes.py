"""The commands that touch remotes, given what cannot be: one line that says what, exit code not 0, nothing secret."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import servers
from test_sharing_commands import fill, keys

from conftest import Run, clean_environment, execute
from rewarm.store.conformance import key_of
from shared_remotes import Machine, http_cache

SECRET = "hunter2"
COMMANDS = (["sync", "push"], ["sync", "pull"], ["sync", "both"], ["ls"], ["gc", "--max-age", "1d"])


@pytest.fixture
def one(tmp_path: Path) -> Machine:
    machine = Machine.named("one", tmp_path)
    fill(machine, 0, 1, 2)
    return machine


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def refused(machine: Machine, *arguments: str, code: int = 1, prefix: tuple[str, ...] = (), **env: str) -> str:
    """Call the command, which must say in one line of its own why it does nothing."""
    command = [*prefix, sys.executable, "-m", "rewarm", *arguments]
    run = execute(command, env=clean_environment(**machine.env(**env)), cwd=Path("/"))
    assert run.code == code, run.out + run.err
    assert SECRET not in run.out + run.err
    return one_line(run)


def one_line(run: Run) -> str:
    lines = [line for line in run.err.splitlines() if line and not line.startswith(("Usage: ", "Try '"))]
    assert (run.out, len(lines)) == ("", 1), run.out + run.err
    assert lines[0].startswith("Error: ")
    return lines[0]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"s4://{SECRET}@bucket/x", "--remote: a remote starts with one of s3, gs"),
        ("s3://", "--remote: s3:// is followed by a bucket, found nothing"),
        ("/shared/dir", "a shared folder is file:///shared/dir"),
        (f"s3://bucket/x?secret_acces_key={SECRET}", "did you mean 'secret_access_key'?"),
        ("file:///x?trust=maybe", "one of require, verify, store, found 'maybe'"),
        ("redis://127.0.0.1/0?ttl=soon", "takes for 'ttl' a whole number from 1, found 'soon'"),
        ("s3://one,s3://two", "--remote: expected one remote, found 2"),
        ("redis://h:99999", "found port 99999 (ports go from 1 to 65535)"),
    ],
)
def test_addresses_that_are_none(one: Machine, url: str, words: str) -> None:
    for command in (COMMANDS[0], COMMANDS[3]):
        assert words in refused(one, *command, "--remote", url, code=2)


def test_a_remote_of_the_environment_is_named_by_its_variable(one: Machine) -> None:
    assert "remote (REWARM_REMOTE): " in refused(one, "sync", "push", code=2, REWARM_REMOTE="s4://x")
    for command in COMMANDS[:3]:
        assert "say --remote URL, or set REWARM_REMOTE" in refused(one, *command)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_hosts_that_are_dead(one: Machine, command: list[str]) -> None:
    for url in (
        f"http://u:{SECRET}@127.0.0.1:9/x?deadline=1",
        f"s3://AK:{SECRET}@bucket/x?endpoint=http://127.0.0.1:9&deadline=1",
        f"redis://:{SECRET}@127.0.0.1:9/0?deadline=1",
    ):
        if url.startswith("redis") and importlib.util.find_spec("redis") is None:
            continue
        assert "look at the address, the network, and the server" in refused(one, *command, "--remote", url)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_folders_that_are_not_there(one: Machine, shared: Path, command: list[str]) -> None:
    (shared / "file").write_text("x")
    for name in ("nowhere", "file"):
        line = refused(one, *command, "--remote", f"{shared.as_uri()}/{name}")
        assert f"{shared.as_uri()}/{name}: the folder is not there" in line
        assert "make it, or correct the address" in line


def test_buckets_that_are_not_there(one: Machine, tmp_path: Path) -> None:
    try:
        with servers.moto(tmp_path) as server:
            address = server.address().replace(server.url, "s3://no-such-bucket")
            for command in COMMANDS:
                line = refused(one, *command, "--remote", address)
                assert "s3://no-such-bucket: there is no such bucket; make it, or correct the address" in line
    except servers.MissingServerError as missing:
        servers.do_without("moto", missing)


def test_credentials_that_are_wrong(one: Machine) -> None:
    with http_cache() as http:
        http.password = "user:right"
        address = http.url.replace("//", f"//user:{SECRET}@")
        run = execute(
            [sys.executable, "-m", "rewarm", "sync", "push", "--remote", address],
            env=clean_environment(**one.env()), cwd=Path("/"),
        )  # fmt: skip
        assert (run.code, SECRET in run.out + run.err) == (1, False)
        assert "3 push: no valid credentials (status 401)" in run.out
        assert http.blobs == {}


def test_a_remote_that_is_only_read_is_not_pushed_to(one: Machine, shared: Path) -> None:
    address = f"{shared.as_uri()}?write=no"
    for way in ("push", "both"):
        assert "its address says write=no, so nothing is sent" in refused(one, "sync", way, "--remote", address)
    assert list(shared.iterdir()) == []
    assert "so nothing is removed" in refused(one, "gc", "--max-age", "1d", "--remote", address)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-age", "-1d"], "--max-age: expected seconds"),
        (["--max-age", "nonsense"], "--max-age: expected seconds"),
        (["--max-age", "1e99d"], "--max-age: expected seconds"),
        (["--max-size", "nan"], "--max-size: expected bytes"),
        (["--max-size", "10XB"], "--max-size: expected bytes"),
        (["--max-age", "none", "--max-size", "none"], "say --max-age, --max-size, or both"),
        ([], "say --max-age, --max-size, or both"),
        (["--max-age", "1d", "--namespace", "../x"], "--namespace: expected"),
        (["--max-age", "1d", "--namespace", ","], "--namespace: expected a name"),
        (["--max-age", "1d", "--max-entries", "3"], "--max-entries is for a directory"),
    ],
)
def test_bounds_that_mean_nothing(one: Machine, shared: Path, arguments: list[str], words: str) -> None:
    assert words in refused(one, "gc", "--remote", shared.as_uri(), *arguments, code=2)


def test_a_cache_that_cannot_list(one: Machine) -> None:
    with http_cache() as http:
        for command in COMMANDS[3:]:
            assert "list" in refused(one, *command, "--remote", http.url)


# -- bundles -------------------------------------------------------------------------------------------------------


def bundle_in(folder: Path, machine: Machine) -> Path:
    path = folder / "made.zip"
    command = [sys.executable, "-m", "rewarm", "bundle", "save", str(path)]
    assert execute(command, env=clean_environment(**machine.env()), cwd=folder).code == 0
    return path


@pytest.mark.parametrize("what", ["cut", "text", "empty", "zip", "fifo", "folder"])
def test_files_that_are_no_bundle(one: Machine, tmp_path: Path, what: str) -> None:
    sound = bundle_in(tmp_path, one)
    path = tmp_path / "x.zip"
    if what in ("fifo", "folder"):
        os.mkfifo(path) if what == "fifo" else path.mkdir()
    elif what == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a", "b")
    else:
        path.write_bytes({"cut": sound.read_bytes()[:-30], "text": b"hello", "empty": b""}[what])
    code, words = (2, "is a directory") if what == "folder" else (1, f"{path} is no bundle of rewarm: ")
    for verb in (["load"], ["show"], ["save", "--update"]):
        line = refused(one, "bundle", verb[0], str(path), *verb[1:], code=code)
        assert words in line
    assert what != "cut" or path.read_bytes() == sound.read_bytes()[:-30], "what was there stays"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["made.zip", "one", "x.zip"]


def test_places_where_no_bundle_can_be_written(one: Machine, tmp_path: Path) -> None:
    sound = bundle_in(tmp_path, one)
    before = sound.read_bytes()
    assert "is there already" in refused(one, "bundle", "save", str(sound))
    assert "No such file or directory" in refused(one, "bundle", "save", str(tmp_path / "no" / "x.zip"))
    assert "Not a directory" in refused(one, "bundle", "save", str(sound / "x.zip"))
    assert sound.read_bytes() == before


def test_a_choice_of_nothing_writes_nothing(one: Machine, tmp_path: Path) -> None:
    for choice in (["--key", "zz"], ["--program", "nobody"], ["--key", key_of(0)[:9], "--program", "jit_1"]):
        line = refused(one, "bundle", "save", str(tmp_path / "x.zip"), *choice)
        assert "no entry in" in line
    assert not (tmp_path / "x.zip").exists()


def mounted(mount: str) -> tuple[str, ...]:
    """A prefix that runs a command after mounting something, in a namespace of its own; skips where not allowed."""
    for unshare in (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")):
        trial = [*unshare, "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
        if shutil.which("unshare") and subprocess.run(trial, capture_output=True, check=False).returncode == 0:
            return (*unshare, "sh", "-c", f'{mount} && exec "$0" "$@"')
    pytest.skip("no right to mount, not even in a namespace of its own")


def test_disks_that_are_full(one: Machine, tmp_path: Path) -> None:
    fill_up = "dd if=/dev/zero of={0}/filler bs=1k >{0}/said 2>&1"
    small = tmp_path / "small"
    small.mkdir()
    prefix = mounted(f"mount -t tmpfs -o size=64k tmpfs {small} && {{ {fill_up.format(small)}; true; }}")
    line = refused(one, "bundle", "save", str(small / "x.zip"), prefix=prefix)
    assert f"cannot write {small}/x.zip: No space left on device" in line
    sound = bundle_in(tmp_path, one)
    line = refused(one, "bundle", "load", str(sound), "--trust", "store", "--dir", str(small / "cache"), prefix=prefix)
    assert "No space left on device" in line
    assert len(keys(one)) == 3
