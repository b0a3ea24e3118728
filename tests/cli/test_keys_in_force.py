"""`rewarm keys ls` and `show`: what is in force, wherever it came from."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from test_sharing_commands import rewarm

from conftest import clean_environment, execute
from rewarm.trust import SigningKey
from shared_remotes import Machine, a_key


@pytest.fixture
def one(tmp_path: Path) -> Machine:
    return Machine.named("one", tmp_path)


def secret_file(path: Path, key: SigningKey) -> Path:
    path.write_text(f"{key.to_text()}\n")
    path.chmod(0o600)
    return path


def rows(machine: Machine, **env: str) -> dict[str, dict[str, Any]]:
    found = json.loads(rewarm("keys", "ls", "--json", **machine.env(**env)).out)
    assert found["folder"] == str(machine.home / "config" / "rewarm" / "keys")
    return {row["id"]: row for row in found["keys"]}


def test_a_key_of_the_environment_signs_in_place_of_the_folder_s(one: Machine) -> None:
    rewarm("keys", "new", "--comment", "in the folder", **one.env())
    (in_folder,) = rows(one, REWARM_SIGNING_KEY="").values()
    assert (in_folder["signs"], in_folder["where"].endswith("/signing.key")) == (True, True)
    (in_force,) = rows(one).values()
    assert (in_force["id"], in_force["signs"], in_force["where"]) == (one.key.id, True, "REWARM_SIGNING_KEY")
    text = rewarm("keys", "ls", **one.env())
    assert one.key.to_text() not in text.out + text.err
    assert rewarm("keys", "show", **one.env()).out.strip() == one.key.public.to_text()


def test_a_file_and_a_command(one: Machine, tmp_path: Path) -> None:
    path = secret_file(tmp_path / "ci.key", one.key)
    (row,) = rows(one, REWARM_SIGNING_KEY=str(path)).values()
    assert (row["signs"], row["where"]) == (True, str(path))
    command = f"cat {shlex.quote(str(path))}"
    (row,) = rows(one, REWARM_SIGNING_KEY="", REWARM_SIGNING_COMMAND=command).values()
    assert (row["signs"], row["where"]) == (True, "REWARM_SIGNING_COMMAND")


def test_who_is_trusted_and_who_is_revoked_and_where_that_is_said(one: Machine, tmp_path: Path) -> None:
    folder, others = tmp_path / "team", [a_key(name) for name in ("file", "team", "text", "gone", "mine")]
    folder.mkdir(mode=0o755)
    (tmp_path / "file.pub").write_text(others[0].public.to_text())
    (folder / "team.pub").write_text(others[1].public.to_text())
    (folder / "revoked").write_text(others[3].id)
    trusted = ",".join([str(tmp_path / "file.pub"), str(folder), others[2].public.to_text()])
    rewarm("keys", "trust", others[4].public.to_text(), **one.env())
    rewarm("keys", "revoke", others[2].id, **one.env())
    found = rows(one, REWARM_TRUSTED_KEYS=trusted)
    assert {name for name, row in found.items() if row["trusted"]} == {
        one.key.id, others[0].id, others[1].id, others[4].id
    }  # fmt: skip
    assert [found[key.id]["signs"] for key in (one.key, *others)] == [True, *[False] * 5]
    assert str(tmp_path / "file.pub") in found[others[0].id]["where"]
    assert found[others[2].id]["where"] == "REWARM_TRUSTED_KEYS, trusted key 1"
    assert found[others[2].id]["revoked_in"] == str(one.home / "config" / "rewarm" / "keys" / "revoked")
    assert (found[others[3].id]["revoked"], found[others[3].id]["revoked_in"]) == (True, str(folder / "revoked"))
    text = rewarm("keys", "ls", **one.env(REWARM_TRUSTED_KEYS=trusted)).out
    assert "your own, signs" in text
    assert text.count("revoked") >= 2


def test_a_revoked_key_does_not_sign(one: Machine) -> None:
    rewarm("keys", "revoke", one.key.id, **one.env())
    (row,) = rows(one).values()
    assert (row["own"], row["signs"], row["revoked"]) == (True, False, True)
    assert "nothing is signed here: the key is revoked" in rewarm("keys", "ls", **one.env()).out


def test_keys_that_cannot_be_used_are_one_line_without_them(one: Machine, tmp_path: Path) -> None:
    hidden = one.key.to_text().partition(":")[2]
    for variable in ("REWARM_SIGNING_KEY", "REWARM_TRUSTED_KEYS"):
        for text in (f'"{one.key.to_text()}"', hidden, hidden[:-4], "~nobody-of-this-name/x", str(tmp_path / "none")):
            run = execute_ls(one, **{variable: text})
            assert hidden[:20] not in run
    run = execute_ls(one, REWARM_SIGNING_KEY="", REWARM_SIGNING_COMMAND=f"cat '{hidden}")
    assert (hidden[:20] in run, "an open quote" in run) == (False, True)


def execute_ls(machine: Machine, **env: str) -> str:
    command = [sys.executable, "-m", "rewarm", "keys", "ls"]
    run = execute(command, env=clean_environment(**machine.env(**env)), cwd=Path("/"))
    assert run.code in (1, 2)
    assert (run.out, len(run.err.splitlines())) == ("", 1), run.err
    return run.err


def test_a_new_key_prints_what_a_script_wants_and_nothing_else(one: Machine, tmp_path: Path) -> None:
    made = rewarm("keys", "new", "--out", str(tmp_path / "ci.key"), **one.env())
    public = SigningKey.from_text((tmp_path / "ci.key").read_text(), "ci.key").public
    assert made.out == f"{public.to_text()}\n"
    assert made.err == f"{tmp_path / 'ci.key'}: key {public.id}, readable by you alone\n"
    own = rewarm("keys", "new", **one.env())
    assert own.out == rewarm("keys", "show", **one.env(REWARM_SIGNING_KEY="")).out
    secret = rewarm("keys", "new", "--hmac", "--out", str(tmp_path / "team.key"), **one.env())
    assert (secret.out, len(secret.err.splitlines())) == ("", 2)
