"""`rewarm keys` as a person calls it."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from signed_entries import KEY, SPACE, entry_of, refusal

from conftest import Run, clean_environment, execute
from rewarm.trust import Algorithm, KeySources, SigningKey, errors, load, signed


class User:
    """Somebody with a home of his own."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.home = home
        self.folder = home / "config" / "rewarm" / "keys"
        self.env = clean_environment(HOME=str(home), XDG_CONFIG_HOME=str(home / "config"))

    def keys(self, *arguments: str, code: int = 0, stdin: str | None = None) -> Run:
        command = [sys.executable, "-m", "rewarm", "keys", *arguments]
        run = execute(command, env=self.env, cwd=self.home, stdin=stdin)
        assert run.code == code, run.err
        assert "Traceback" not in run.err
        return run

    def at_once(self, *calls: list[str]) -> list[int]:
        command = [sys.executable, "-m", "rewarm", "keys"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        several = [subprocess.Popen([*command, *call], env=self.env, **quiet) for call in calls]
        try:
            return [one.wait(60) for one in several]
        finally:
            for one in several:
                one.kill()
                one.wait()

    def told(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.keys("ls", "--json").out)["keys"]
        return rows

    def refuses(self, blob: bytes) -> str | None:
        return refusal(blob, load(KeySources(folder=self.folder)))

    def signs(self) -> bytes:
        own = load(KeySources(folder=self.folder)).signing_key()
        assert own is not None
        return signed(entry_of(), KEY, SPACE, own)


@pytest.fixture
def alice(tmp_path: Path) -> User:
    return User(tmp_path / "alice")


@pytest.fixture
def bob(tmp_path: Path) -> User:
    return User(tmp_path / "bob")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_from_nothing_to_revoked(alice: User, bob: User) -> None:
    assert "no key is in" in alice.keys("ls").out
    made = alice.keys("new", "--comment", "alice at work")
    assert mode(alice.folder / "signing.key") == 0o600
    assert mode(alice.folder) == mode(alice.folder.parent) == 0o700
    secret = (alice.folder / "signing.key").read_text().split(":")[1].split()[0]
    assert secret not in made.out + made.err
    shown = alice.keys("show").out
    assert shown in made.out
    assert shown.startswith("rewarm-ed25519:")
    assert shown.endswith(" alice at work\n")

    blob = alice.signs()
    assert alice.refuses(blob) is None
    assert bob.refuses(blob) == errors.STRANGER
    (bob.home / "alice.pub").write_text(shown)
    said = bob.keys("trust", "alice.pub").out
    (row,) = bob.told()
    assert said == f"{row['id']} is trusted\n"
    assert (row["comment"], row["algorithm"], row["trusted"], row["own"]) == ("alice at work", "ed25519", True, False)
    assert bob.refuses(blob) is None

    assert bob.keys("revoke", row["id"][:5]).out == f"{row['id']} is revoked\n"
    assert bob.refuses(blob) == errors.REVOKED
    (row,) = bob.told()
    assert (row["trusted"], row["revoked"]) == (False, True)
    assert bob.keys("revoke", row["id"]).out == f"{row['id']} was revoked already\n"
    assert "is revoked" in bob.keys("trust", "alice.pub", code=1).err
    assert "revoked" in bob.keys("ls").out
    assert secret not in "".join(run.out + run.err for run in (alice.keys("ls"), alice.keys("ls", "--json")))


def test_new_never_overwrites(alice: User) -> None:
    alice.keys("new")
    secret = (alice.folder / "signing.key").read_bytes()
    for _ in range(2):
        assert "is not overwritten; name another file with --out" in alice.keys("new", code=1).err
    assert (alice.folder / "signing.key").read_bytes() == secret
    alice.keys("new", "--out", "other.key")
    other = alice.home / "other.key"
    assert mode(other) == 0o600
    before = other.read_bytes()
    alice.keys("new", "--hmac", "--out", "other.key", code=1)
    assert other.read_bytes() == before
    (alice.home / "link.key").symlink_to(alice.home / "target")
    alice.keys("new", "--out", "link.key", code=1)
    assert not (alice.home / "target").exists()
    assert "cannot write" in alice.keys("new", "--out", "no/such/folder.key", code=1).err


def test_two_who_make_a_key_at_once(alice: User) -> None:
    codes = alice.at_once(["new"], ["new"])
    assert sorted(codes) == [0, 1]
    assert SigningKey.from_text((alice.folder / "signing.key").read_text()).public.to_text() in alice.keys("show").out


def test_a_shared_secret(alice: User, bob: User) -> None:
    made = alice.keys("new", "--hmac", "--comment", "team")
    secret = (alice.folder / "signing.key").read_text()
    assert secret.startswith("rewarm-hmac-secret:")
    assert secret.split(":")[1].split()[0] not in made.out + made.err
    refused = alice.keys("show", code=1)
    assert "has no public half" in refused.err
    assert refused.out == ""
    # Not as an argument; from standard input, or a file that nobody else can read.
    assert "others on this host can read arguments" in bob.keys("trust", secret, code=2).err
    readable = bob.home / "team.key"
    readable.write_text(secret)
    readable.chmod(0o644)
    assert "0600" in bob.keys("trust", "team.key", code=1).err
    bob.keys("trust", "-", "--comment", "ours", stdin=secret)
    (row,) = bob.told()
    assert (row["algorithm"], row["comment"]) == ("hmac", "ours")
    (stored,) = (bob.folder / "trusted").iterdir()
    assert mode(stored) == 0o600
    assert bob.refuses(alice.signs()) is None


def test_trusting_text_and_files_of_many(alice: User, bob: User) -> None:
    keys = [SigningKey.generate(comment=f"number {n}").public for n in range(4)]
    alice.keys("trust", keys[0].to_text())
    (alice.home / "three").write_text("# the team\n" + "\n".join(key.to_text() for key in keys[1:]))
    assert alice.keys("trust", "three").out.count("is trusted") == 3
    alice.keys("trust", keys[0].to_text(), "--comment", "renamed")
    rows = {row["id"]: row["comment"] for row in alice.told()}
    assert rows == {keys[0].id: "renamed", **{key.id: key.comment for key in keys[1:]}}
    assert len(list((alice.folder / "trusted").glob("*.pub"))) == 4
    # A file revokes all that are in it.
    assert alice.keys("revoke", "three").out.count("is revoked") == 3
    assert [row["id"] for row in alice.told() if row["trusted"]] == [keys[0].id]


def test_a_secret_is_not_taken_for_a_key_to_trust(alice: User, bob: User) -> None:
    alice.keys("new")
    for what in (str(alice.folder / "signing.key"), (alice.folder / "signing.key").read_text().strip()):
        run = bob.keys("trust", what, code=1)
        assert "found the secret half of an Ed25519 key" in run.err
        assert (alice.folder / "signing.key").read_text().split(":")[1].strip() not in run.err
    assert bob.told() == []


def test_what_cannot_be_trusted_or_revoked(alice: User) -> None:
    assert "found nothing" in alice.keys("trust", "nowhere.pub", code=1).err
    assert "no key came on standard input" in alice.keys("trust", "-", code=1, stdin="\n").err
    assert "expected rewarm-ed25519" in alice.keys("trust", "-", code=1, stdin="garbage\n").err
    assert "no key here has an id that starts with 'abc'" in alice.keys("revoke", "abc", code=1).err
    assert "no key here has an id" in alice.keys("revoke", "", code=1).err
    identity = "rewarm-ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    assert "anybody can sign" in alice.keys("trust", identity, code=1).err
    assert "you have no signing key" in alice.keys("show", code=1).err
    assert not alice.folder.exists() or not list(alice.folder.rglob("*.pub"))


def test_the_start_of_an_id_must_fit_one(alice: User) -> None:
    found: dict[str, SigningKey] = {}
    while True:
        key = SigningKey.generate()
        if key.id[0] in found:
            break
        found[key.id[0]] = key
    two = [found[key.id[0]], key]
    for one in two:
        alice.keys("trust", one.public.to_text())
    assert "2 keys have an id that starts with" in alice.keys("revoke", key.id[0], code=1).err
    assert all(row["trusted"] for row in alice.told())
    alice.keys("revoke", key.id)
    assert [row["id"] for row in alice.told() if row["revoked"]] == [key.id]


def test_revoking_a_key_that_is_not_here(alice: User) -> None:
    key = SigningKey.generate(Algorithm.HMAC)
    alice.keys("revoke", key.id.upper())
    (row,) = alice.told()
    assert (row["id"], row["algorithm"], row["revoked"]) == (key.id, None, True)


def test_revoking_one_s_own(alice: User) -> None:
    alice.keys("new")
    blob = alice.signs()
    name = alice.told()[0]["id"]
    assert "it was your own" in alice.keys("revoke", name[:8]).out
    assert alice.refuses(blob) == errors.REVOKED
    assert "revoked (your own)" in alice.keys("ls").out


def test_a_list_that_an_editor_left_without_its_last_line_end(alice: User) -> None:
    first, second = (SigningKey.generate().id for _ in range(2))
    alice.keys("revoke", first)
    path = alice.folder / "revoked"
    path.write_text(path.read_text().rstrip("\n"))
    alice.keys("revoke", second)
    assert path.read_text().split() == [first, second]


def test_many_who_revoke_at_once(alice: User) -> None:
    names = [SigningKey.generate().id for _ in range(6)]
    alice.keys("revoke", names[0])
    assert alice.at_once(*(["revoke", name] for name in names[1:])) == [0] * 5
    assert {row["id"] for row in alice.told() if row["revoked"]} == set(names)


def test_a_folder_that_others_may_write_to(alice: User) -> None:
    alice.keys("new")
    alice.folder.chmod(0o777)
    for arguments in (("ls",), ("show",), ("revoke", "a" * 32), ("trust", "x"), ("new",)):
        assert "decide whose code runs here" in alice.keys(*arguments, code=1).err


def test_without_cryptography(alice: User, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked" / "cryptography"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('blocked')")
    alice.env["PYTHONPATH"] = str(blocked.parent)
    run = alice.keys("new", code=1)
    assert 'pip install "rewarm[remote]"' in run.err
    assert run.err.count("\n") == 1
    assert not (alice.folder / "signing.key").exists()
    alice.keys("new", "--hmac")
    assert len(alice.told()) == 1


def test_files_and_lines_as_editors_and_shells_write_them(alice: User) -> None:
    line = SigningKey.generate().public.to_text()
    written = (b"\xef\xbb\xbf" + line.encode(), f"{line}\r\n".encode(), f"  # mine\n{line}".encode())
    for number, data in enumerate(written):
        path = alice.home / f"{number}.pub"
        path.write_bytes(data)
        assert "is trusted" in alice.keys("trust", str(path)).out
    assert "is trusted" in alice.keys("trust", "-", stdin=f"\n   # from the team\n  {line}\n").out
    for encoding in ("utf-16", "utf-16-le"):
        path.write_bytes(f"{line}\n".encode(encoding))
        error = alice.keys("trust", str(path), code=1).err
        assert "expected text in UTF-8, found text in UTF-16" in error
        assert "save it as UTF-8" in error


def test_the_start_of_an_id_of_the_environment_is_enough_to_revoke_it(alice: User) -> None:
    key = SigningKey.generate()
    alice.env["REWARM_TRUSTED_KEYS"] = key.public.to_text()
    assert [row["id"] for row in alice.told()] == [key.id]
    assert alice.keys("revoke", key.id[:6]).out == f"{key.id} is revoked\n"
    (row,) = alice.told()
    assert (row["trusted"], row["revoked"]) == (False, True)
