"""What `rewarm doctor` says of remotes and keys: each fault that is put there for it, and nothing secret."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import servers
from examined import Examined, bare_python, doctor

from conftest import clean_environment, execute
from rewarm.doctor.remotes import _clock, _in_the_open, _room, _Seen
from rewarm.remote.address import parse
from rewarm.remote.folder import FolderBlobs
from rewarm.remote.probe import Findings
from rewarm.sharing import Namespaces, RemoteTier
from rewarm.telling import say_nothing
from rewarm.trust import Keyring, Posture
from shared_remotes import Machine, blob_of, http_cache

SECRET = "hunter2"


def look(machine: Machine, *remotes: str, quick: bool = True, **env: str) -> Examined:
    found = doctor(quick=quick, **machine.env(*remotes, **env))
    assert SECRET not in found.run.out + found.run.err
    assert machine.key.to_text() not in found.run.out + found.run.err
    return found


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def one(tmp_path: Path) -> Machine:
    return Machine.named("one", tmp_path)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


# -- one that is well, and none ------------------------------------------------------------------------------------


def test_without_a_remote_nothing_is_said(one: Machine) -> None:
    names = {check["name"] for check in look(one, REWARM_SIGNING_KEY="nonsense").checks}
    assert not names & {"remote", "one compile", "signing key", "trusted keys", "keys", "trust", "namespaces"}


def test_a_folder_that_is_well(one: Machine, tmp_path: Path, shared: Path) -> None:
    other = Machine.named("other", tmp_path, one)
    found = look(other, shared.as_uri())
    assert found.the("remote")[1].startswith(f"{shared.as_uri()} is read and written; looked at in ")
    assert found.the("one compile")[0] == "ok"
    assert found.the("signing key")[1].startswith(f"what goes to remotes is signed with the key {other.key.id} (")
    assert found.the("trusted keys") == ("ok", "1 key of others is trusted, and your own (rewarm keys ls)")
    assert found.problems() == []
    assert files(shared) == [], "what was put there to look was removed"
    alone = look(one, shared.as_uri()).the("trusted keys")
    assert alone == ("ok", "your own key alone is trusted: what others put into remotes is refused")


def test_a_remote_that_is_only_read_is_not_written_to(one: Machine) -> None:
    with http_cache() as http:
        found = look(one, f"{http.url}?write=no", REWARM_SIGNING_KEY="", REWARM_TRUSTED_KEYS=one.key.public.to_text())
        assert found.the("remote")[0] == "ok"
        assert "is only read" in found.the("remote")[1]
        assert (found.of("signing key"), found.of("one compile")) == ([], [])
        assert found.problems() == []
        assert http.count("PUT") == 0


def test_the_trial_of_a_program_stays_away_from_remotes(one: Machine, shared: Path) -> None:
    found = look(one, shared.as_uri(), quick=False, REWARM_DIR=str(one.cache))
    assert found.the("end to end")[0] == "ok"
    assert files(shared) == []


# -- what does not work --------------------------------------------------------------------------------------------


def test_a_remote_that_never_answers_costs_its_deadline(one: Machine, shared: Path) -> None:
    began = time.monotonic()
    look(one, shared.as_uri())
    usual = time.monotonic() - began
    with _silent() as port:
        silent = [f"http://u:{SECRET}@127.0.0.1:{port}/{number}?deadline=1" for number in range(4)]
        began = time.monotonic()
        found = look(one, *silent, shared.as_uri())
        took = time.monotonic() - began
    assert took < usual + 4 + usual / 2, "all of them at once"
    assert [check["verdict"] for check in found.of("remote")] == ["problem"] * 4 + ["ok"]
    assert "does not answer: no answer" in found.of("remote")[0]["found"]
    assert found.the("one compile")[0] == "ok"


@contextmanager
def _silent() -> Iterator[int]:
    """A port at which somebody listens and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


def test_an_address_that_is_none(one: Machine, shared: Path) -> None:
    remotes = [f"s4://{SECRET}@bucket", f"s3://bucket?secret_acces_key={SECRET}"]
    for remote in remotes:
        check, fine = look(one, remote, shared.as_uri()).of("remote")
        assert (check["verdict"], fine["verdict"]) == ("problem", "ok")
        assert check["found"].endswith("programs go on without any remote")


def test_a_folder_and_a_bucket_that_are_not_there(one: Machine, shared: Path, tmp_path: Path) -> None:
    assert "the folder is not there" in look(one, f"{shared.as_uri()}/nowhere").the("remote")[1]
    (shared / "file").write_text("x")
    assert look(one, f"{shared.as_uri()}/file").the("remote")[0] == "problem"
    assert look(one, f"{shared.as_uri()}/file").of("one compile") == []
    try:
        with servers.moto(tmp_path) as server:
            well = look(one, server.address("prefix"))
            assert well.the("remote")[0] == "ok"
            assert well.the("one compile")[0] == "ok"
            verdict, words = look(one, server.address().replace(server.url, "s3://no-such-bucket")).the("remote")
            assert (verdict, "there is no such bucket" in words) == ("problem", True)
    except servers.MissingServerError as missing:
        servers.do_without("moto", missing)


def test_what_a_server_refuses(one: Machine) -> None:
    with http_cache() as http:
        http.password = f"user:{SECRET}"
        verdict, words = look(one, http.url).the("remote")
        assert (verdict, "cannot be read: no valid credentials" in words) == ("problem", True)
        assert look(one, http.url.replace("//", f"//user:{SECRET}@")).the("remote")[0] == "ok"
        http.password = ""
        http.put_status = 403
        verdict, words = look(one, http.url).the("remote")
        assert (verdict, "is read, and cannot be written to" in words) == ("note", True)


def test_a_server_that_asks_for_fewer_requests(one: Machine) -> None:
    with http_cache() as http:
        http.get_status = 429
        check = look(one, http.url).of("remote")[0]
        assert (check["verdict"], "asks for fewer requests: too many requests" in check["found"]) == ("problem", True)
        assert "rights" not in check["advice"]
        assert "try again later" in check["advice"]
        http.get_status, http.put_status = 0, 429
        check = look(one, http.url).of("remote")[0]
        assert (check["verdict"], "it is read; too many requests" in check["found"]) == ("note", True)
        assert "rights" not in check["advice"]


def test_a_server_of_which_it_is_not_known_whether_it_is_written_to(one: Machine) -> None:
    with http_cache() as http:
        http.put_status = 500
        check = look(one, http.url).of("remote")[0]
    assert (check["verdict"], "whether it can be written to is not known: not now" in check["found"]) == ("note", True)
    assert "rights" not in check["advice"]


def test_a_cache_that_overwrites_keeps_no_leases(one: Machine, shared: Path) -> None:
    with http_cache() as http:
        found = look(one, http.url)
        verdict, words = found.the("one compile")
        assert (verdict, "a conditional put overwrites" in words) == ("note", True)
        assert found.the("remote")[0] == "ok", "that a plain cache cannot list is no fault"
        assert "sync pull, do not work there" in found.the("remote")[1]
        assert f"{shared.as_uri()} keeps leases" in look(one, http.url, shared.as_uri()).the("one compile")[1]


def test_a_library_that_another_python_lacks(one: Machine, tmp_path: Path, shared: Path) -> None:
    python = bare_python(tmp_path / "bare", packages=False)
    env = one.env("s3://bucket/x", shared.as_uri(), REWARM_TRUSTED_KEYS=one.key.public.to_text())
    missing, fine = doctor("--python", str(python), **env).of("remote")
    assert f"needs obstore, which is not installed in {python}" in missing["found"]
    assert "pip install" in missing["advice"]
    assert fine["verdict"] == "ok"


# -- keys ----------------------------------------------------------------------------------------------------------


def test_nobody_signs_and_nobody_is_trusted(one: Machine, shared: Path) -> None:
    found = look(one, shared.as_uri(), REWARM_SIGNING_KEY="")
    assert found.the("signing key")[0] == found.the("trusted keys")[0] == "problem"
    assert "nothing is sent to" in found.the("signing key")[1]
    lax = look(one, f"{shared.as_uri()}?trust=store", REWARM_SIGNING_KEY="")
    assert lax.the("signing key")[0] == "note"
    assert lax.of("trusted keys") == []
    assert lax.the("trust") == ("note", f"whoever may write to {shared.as_uri()} can run code here (trust=store)")


def test_keys_that_cannot_be_used(one: Machine, tmp_path: Path, shared: Path) -> None:
    (tmp_path / "open.key").write_text(one.key.to_text())
    (tmp_path / "open.key").chmod(0o644)
    verdict, words = look(one, shared.as_uri(), REWARM_SIGNING_KEY=str(tmp_path / "open.key")).the("keys")
    assert (verdict, "mode 0644" in words) == ("problem", True)
    for cut in (f'"{one.key.to_text()}"', one.key.to_text().partition(":")[2]):
        found = look(one, shared.as_uri(), REWARM_SIGNING_KEY=cut)
        assert "expected a key, which starts with rewarm-" in found.the("keys")[1]
        assert cut.strip('"')[-20:] not in found.run.out + found.run.err
    found = look(one, shared.as_uri(), REWARM_SIGNING_KEY="", REWARM_SIGNING_COMMAND=f"/bin/false {SECRET}")
    assert "the command /bin/false" in found.the("signing key")[1]


def test_a_revoked_key_of_one_s_own(one: Machine, shared: Path) -> None:
    folder = one.home / "config" / "rewarm" / "keys"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "revoked").write_text(f"{one.key.id}\n")
    (folder / "revoked").chmod(0o600)
    found = look(one, shared.as_uri())
    assert (found.the("signing key")[0], "a revoked one" in found.the("signing key")[1]) == ("problem", True)


def test_a_namespace_that_is_written_and_not_read(one: Machine, shared: Path) -> None:
    verdict, words = look(one, shared.as_uri(), REWARM_NAMESPACE="ci", REWARM_READ_NAMESPACES="main,a").the(
        "namespaces"
    )
    assert (verdict, words) == ("note", "entries go to the namespace ci of a remote, and are read from: main, a")
    assert look(one, shared.as_uri(), REWARM_NAMESPACE="ci").of("namespaces") == []
    read_only = look(one, f"{shared.as_uri()}?write=no", REWARM_NAMESPACE="ci", REWARM_READ_NAMESPACES="main")
    assert read_only.of("namespaces") == []


# -- Redis, clocks, encryption -------------------------------------------------------------------------------------


@contextmanager
def _redis(tmp_path: Path, *options: str) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None or importlib.util.find_spec("redis") is None:
        pytest.skip("no redis-server, or no client")
    port = servers.free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while time.monotonic() < until and not servers._pongs(port):
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        servers.stop(process)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "has no maxmemory"),
        (("--maxmemory", "10mb"), "has maxmemory-policy noeviction: once it is full it takes no more"),
        (("--maxmemory", "10mb", "--maxmemory-policy", "volatile-lru"), "has maxmemory-policy volatile-lru"),
        (("--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru"), ""),
        (("--rename-command", "CONFIG", ""), ""),
    ],
)
def test_a_redis_that_keeps_growing_or_fills_up(
    one: Machine, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    with _redis(tmp_path, *options) as url:
        found = look(one, url)
    assert found.the("remote")[0] == found.the("one compile")[0] == "ok"
    assert [words in check["found"] for check in found.of("redis")] == ([True] if words else [])


def _seen(url: str, tmp_path: Path, **more: Any) -> _Seen:
    tier = RemoteTier(
        FolderBlobs(tmp_path), namespaces=Namespaces("main", ("main",)), keyring=Keyring(), posture=Posture.REQUIRE,
        writes=True, tell=say_nothing,
    )  # fmt: skip
    return _Seen(parse(url), tier, **{"found": Findings(), "eviction": None, **more})


@pytest.mark.parametrize(
    ("url", "open_"),
    [
        ("http://cache.example/x", True),
        ("redis://cache:6379", True),
        ("valkey://10.0.0.1", True),
        ("s3://b?endpoint=http://minio:9000", True),
        ("https://cache.example/x", False),
        ("rediss://cache", False),
        ("s3://b", False),
        ("gs://b?endpoint=http://127.0.0.1:9", False),
        ("http://localhost:80/x", False),
        ("redis://[::1]:6379", False),
        ("file:///x", False),
    ],
)
def test_what_others_on_the_way_can_read(url: str, open_: bool, tmp_path: Path) -> None:
    assert [check.verdict for check in _in_the_open(_seen(url, tmp_path))] == (["note"] if open_ else [])


def test_clocks_that_are_far_apart(tmp_path: Path) -> None:
    (check,) = _clock(_seen("s3://b", tmp_path, found=Findings(clock_offset=-400.0)))
    assert (check.verdict, "400 s behind this host's" in check.found) == ("note", True)
    for offset in (None, 0.0, 20.0):
        assert list(_clock(_seen("s3://b", tmp_path, found=Findings(clock_offset=offset)))) == []


def test_blobs_that_expire_make_room_for_themselves(tmp_path: Path) -> None:
    assert list(_room(_seen("redis://h?ttl=3600", tmp_path, eviction=(1000, "volatile-ttl")))) == []
    assert len(list(_room(_seen("redis://h", tmp_path, eviction=(1000, "volatile-ttl"))))) == 1


# -- the last run, and others ----------------------------------------------------------------------------------------


def test_what_the_last_run_had_of_its_remotes(one: Machine, tmp_path: Path, shared: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import jax, numpy as np\njax.jit(lambda x: x @ x + 1)(np.ones((4, 4), np.float32))\n"
    )
    stranger = Machine.named("stranger", tmp_path)

    def run(machine: Machine, *remotes: str) -> None:
        env = clean_environment(**machine.env(*remotes))
        done = execute([sys.executable, str(tmp_path / "p.py")], env=env, cwd=tmp_path)
        assert done.code == 0, done.err

    run(stranger, shared.as_uri())
    (key,) = stranger.keys().values()
    assert blob_of(shared, key).exists()
    run(one, shared.as_uri(), "http://127.0.0.1:9/x?deadline=1")
    found = look(one, shared.as_uri())
    assert f"of {shared.as_uri()} were refused in the last run: signed by an unknown key" in found.the("refused")[1]
    assert any("requests to http://127.0.0.1:9/x failed in the last run" in row["found"] for row in found.of("remote"))


def test_what_was_too_large_for_a_server_is_named_as_long_as_a_run_tells(one: Machine, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import jax, numpy as np\njax.jit(lambda x: x @ x + 1)(np.ones((4, 4), np.float32))\n"
    )
    with http_cache() as http:
        http.put_status = 413
        for when in ("in the last run", "in the run of "):  # the second run has a hit, and sends nothing
            env = clean_environment(**one.env(http.url))
            assert execute([sys.executable, str(tmp_path / "p.py")], env=env, cwd=tmp_path).code == 0
            check = look(one, http.url).of("too large")[0]
            assert check["found"].startswith(f"1 entry was too large for {http.url} {when}")
            assert (check["verdict"], "rewarm sync push" in check["advice"]) == ("note", True)
        assert look(one, http.url.replace("cache", "other")).of("too large") == []
