"""Somebody whose key was trusted and is revoked, and keys that are given in a wrong way.

Not shown: that a running program hears of a revocation. It does not; keys are read when it starts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attackers import client, remote

from conftest import MANY, Program, Run, clean_environment, entries, execute, first
from rewarm.trust import Algorithm, SigningKey, TrustedKey
from shared_remotes import Machine, a_key

PLAIN = """
    import jax, numpy as np
    print(float(np.asarray(jax.jit(lambda x: x @ x + 1)(np.ones((8, 8), np.float32))).sum()))
"""


@pytest.fixture(params=first(1, ["folder", "moto"]))
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with remote(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    with remote("folder", tmp_path) as found:
        yield found


def rewarm(machine: Machine, *arguments: str, code: int | None = 0, **env: str) -> Run:
    command = [sys.executable, "-m", "rewarm", *arguments]
    run = execute(command, env=clean_environment(**machine.env(**env)), cwd=machine.home.parent)
    assert code is None or run.code == code, run.err + run.out
    assert "Traceback" not in run.err
    return run


def keys_of(machine: Machine) -> Path:
    """The user's own folder of keys."""
    folder: Path = machine.home / "config" / "rewarm" / "keys"
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    return folder


def test_from_the_next_start_on_what_a_revoked_key_signed_is_refused(
    program: Program, tmp_path: Path, address: str
) -> None:
    """By `rewarm keys revoke`; what was fetched before is used until `rewarm clear`."""
    left = Machine.named("left", tmp_path)
    before, after = Machine.named("before", tmp_path, left), Machine.named("after", tmp_path, left)
    program(PLAIN, **left.env(address))
    assert program(PLAIN, **before.env(address)).stats["hits"] == 1
    for machine in (before, after):
        rewarm(machine, "keys", "revoke", left.key.id)
    run = program(PLAIN, **after.env(address))
    assert (run.out, run.stats["hits"], run.stats["misses"]) == ("576.0\n", 0, 1)
    assert run.stats["remotes"][0]["refused"] == {"signed by a revoked key": 1}
    assert [left.key.id in line for line in run.warnings()] == [True]
    assert program(PLAIN, **before.env()).stats["hits"] == 1, "it lies here like one's own"
    rewarm(before, "clear")
    assert entries(before.cache) == []
    assert program(PLAIN, **before.env(address + ("&" if "?" in address else "?") + "write=no")).stats["misses"] == 1


def without_packs(address: str) -> None:
    blobs = client(address)
    for blob in [blob for blob in blobs.scan("main") if "/packs/" in blob.name or "/plans/" in blob.name]:
        blobs.delete(blob.name)


def test_what_a_revoked_key_signed_is_refused_also_where_somebody_passed_it_on(
    program: Program, tmp_path: Path
) -> None:
    """In packs and in nearer remotes an entry has the signature of who made it, and never that of who passed it on."""
    left = Machine.named("left", tmp_path)
    between = Machine.named("between", tmp_path, left)
    last = Machine.named("last", tmp_path, left, between)
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
    with remote("folder", tmp_path / "near") as near, remote("folder", tmp_path / "far") as far:
        program(MANY, "10", **left.env(far))
        without_packs(far)
        passed = program(MANY, "10", **between.env(near, far))
        assert (passed.stats["hits"], passed.stats["misses"]) == (10, 0)
        assert len([blob for blob in client(far).scan("main") if "/packs/" in blob.name]) == 1
        assert passed.stats["remotes"][0]["written"] == 10
        rewarm(last, "keys", "revoke", left.key.id)
        for address in (near, far):
            run = program(MANY, "10", **last.env(address + "?write=no"))
            assert (run.stats["hits"], run.stats["misses"]) == (0, 10)
            assert set(run.stats["remotes"][0]["refused"]) == {"signed by a revoked key"}
            rewarm(last, "clear")


def test_what_a_revoked_key_signed_comes_back_in_nobody_s_bundle(program: Program, tmp_path: Path, folder: str) -> None:
    """Who has it from a remote does not sign it in a bundle, but where he says that he wants to."""
    left = Machine.named("left", tmp_path)
    between = Machine.named("between", tmp_path, left)
    last = Machine.named("last", tmp_path, between)
    program(PLAIN, **left.env(folder))
    assert program(PLAIN, **between.env(folder)).stats["hits"] == 1
    rewarm(last, "keys", "revoke", left.key.id)
    for words, number in (([], 0), (["--all"], 1)):
        path = str(tmp_path / f"{number}.zip")
        assert f"{number} entr" in rewarm(between, "bundle", "save", path, *words).out
        assert f"{number} of {number} entr" in rewarm(last, "bundle", "load", path).out
        assert len(entries(last.cache)) == number


def test_what_was_read_in_another_namespace_is_not_passed_on(program: Program, tmp_path: Path, folder: str) -> None:
    """Somebody reads what pull requests write, too; main never gets it from him."""
    request = Machine.named("request", tmp_path)
    between = Machine.named("between", tmp_path, request)
    reader = Machine.named("reader", tmp_path, between, request)
    program(MANY, "10", **request.env(folder, REWARM_NAMESPACE="pr-7"))
    both = program(MANY, "10", **between.env(folder, REWARM_READ_NAMESPACES="main,pr-7"))
    assert both.stats["hits"] == 10
    run = program(MANY, "10", **reader.env(folder + "?write=no"))
    assert (run.stats["hits"], run.stats["misses"]) == (0, 10)


@pytest.mark.parametrize("way", first(2, ["text", "folder", "file", "own folder"]))
@pytest.mark.parametrize("where", ["own folder", "another folder"])
def test_no_way_of_trusting_brings_a_revoked_key_back(
    program: Program, tmp_path: Path, folder: str, way: str, where: str
) -> None:
    """Another file that names the key, wherever it lies, and in whatever order."""
    left = Machine.named("left", tmp_path)
    program(PLAIN, **left.env(folder))
    user = Machine.named("user", tmp_path)
    text = left.key.public.to_text() + "\n"
    trusted = tmp_path / "team"
    trusted.mkdir(mode=0o700)
    (trusted / "ci.pub").write_text(a_key("ci").public.to_text() + "\n")
    revoked = (keys_of(user) if where == "own folder" else trusted) / "revoked"
    revoked.write_text(f"{left.key.id}  gone since spring\n")
    said = [str(trusted)]
    if way == "text":
        said.append(text.strip())
    elif way == "own folder":
        (keys_of(user) / "trusted").mkdir(mode=0o700)
        (keys_of(user) / "trusted" / "again.pub").write_text(text)
    else:
        place = tmp_path / "again"
        place.mkdir(mode=0o700)
        (place / "a.pub").write_text(text)
        said.append(str(place if way == "folder" else place / "a.pub"))
    for order in (said, said[::-1]):
        user = Machine(user.home, tuple(order), user.key)
        run = program(PLAIN, **user.env(folder + "?write=no"))
        assert run.stats["remotes"][0]["refused"] == {"signed by a revoked key": 1}, run.err
        for path in entries(user.cache):
            path.unlink()


def test_where_it_cannot_be_told_which_keys_are_revoked_nothing_is_trusted(
    program: Program, tmp_path: Path, folder: str
) -> None:
    left = Machine.named("left", tmp_path)
    user = Machine.named("user", tmp_path, left)
    program(PLAIN, **left.env(folder))
    (keys_of(user) / "revoked").mkdir()
    run = program(PLAIN, **user.env(folder))
    assert (run.out, run.stats["hits"], run.stats["remotes"]) == ("576.0\n", 0, [])
    assert ["the program goes on without remotes" in line for line in run.warnings()] == [True]


def test_a_revoked_key_signs_nothing(program: Program, tmp_path: Path, folder: str) -> None:
    user = Machine.named("user", tmp_path)
    (keys_of(user) / "revoked").write_text(f"{user.key.id}\n")
    run = program(PLAIN, **user.env(folder))
    assert (run.out, run.stats["remotes"][0]["written"]) == ("576.0\n", 0)
    assert sum("revoked" in line for line in run.warnings()) == 1, run.err
    assert [blob.name for blob in client(folder).scan("main") if "/plans/" not in blob.name] == []


# -- keys that are given in a wrong way ----------------------------------------------------------------------------

ED, MAC = a_key("pasted"), SigningKey(Algorithm.HMAC, b"0123456789abcdef" * 2)
SECRETS = tuple(key.to_text().partition(":")[2][:20] for key in (ED, MAC))

PASTED: dict[str, tuple[str, Callable[[], str]]] = {
    "the secret half to trust": ("REWARM_TRUSTED_KEYS", ED.to_text),
    "the public half to sign": ("REWARM_SIGNING_KEY", ED.public.to_text),
    "without its end": ("REWARM_SIGNING_KEY", lambda: ED.to_text()[:-9]),
    "without its start": ("REWARM_SIGNING_KEY", lambda: ED.to_text()[5:]),
    "in quotes": ("REWARM_SIGNING_KEY", lambda: f'"{ED.to_text()}"'),
    "twice": ("REWARM_SIGNING_KEY", lambda: ED.to_text() + ED.to_text()),
    "two lines": ("REWARM_SIGNING_KEY", lambda: f"{ED.to_text()}\n{MAC.to_text()}"),
    "another kind": ("REWARM_SIGNING_KEY", lambda: ED.to_text().replace("ed25519", "ed448")),
    "capital letters": ("REWARM_SIGNING_KEY", lambda: ED.to_text().upper()),
    "a shared secret, cut": ("REWARM_TRUSTED_KEYS", lambda: MAC.to_text()[:-3]),
    "a shared secret, alone": ("REWARM_TRUSTED_KEYS", lambda: MAC.to_text().partition(":")[2]),
    "an id": ("REWARM_TRUSTED_KEYS", lambda: ED.id),
    "of small order": ("REWARM_TRUSTED_KEYS", lambda: "rewarm-ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
}


@pytest.mark.parametrize("name", PASTED)
def test_a_key_that_is_pasted_wrongly_is_an_error_that_does_not_show_it(tmp_path: Path, folder: str, name: str) -> None:
    """Not a key that happens to be trusted, and not one that is passed over: nothing is asked of the remote."""
    machine = Machine.named("one", tmp_path)
    machine.store()
    variable, text = PASTED[name]
    run = rewarm(machine, "sync", "pull", "--remote", folder, code=None, **{variable: text()})
    assert run.code in (1, 2), run.out
    assert not [secret for secret in SECRETS if secret.lower() in (run.out + run.err).lower()], run.err
    assert len(run.err.strip().splitlines()) <= 4, run.err


def test_a_comment_or_space_around_a_key_changes_nothing() -> None:
    assert TrustedKey.from_text(f"  {ED.public.to_text()} ci of the team \n").id == ED.id
