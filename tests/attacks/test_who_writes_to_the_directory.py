"""Somebody who may write to the local directory: he can run code as its user, which is why such a one is refused.

Shown is what the page admits, too: the digest holds whatever he puts there, and what lies there is signed like one's
own. What accidents do there, and things that are no files, is in `tests/adapter/test_damage.py`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from attackers import client, name_of, remote

from conftest import Program, Run, clean_environment, entries, execute
from rewarm.envelope import open_entry, seal
from rewarm.sharing import bundle
from rewarm.trust import Keyring, Posture, unsigned_entry
from shared_remotes import Machine

PLAIN = """
    import jax, numpy as np
    print(float(np.asarray(jax.jit(lambda x: x @ x + 1)(np.ones((8, 8), np.float32))).sum()))
"""
EVIL = b"evil code " * 100


def replaced(path: Path) -> None:
    """He puts other code under a key, with a digest that is right."""
    entry = open_entry(path.read_bytes(), path.name)
    path.write_bytes(seal(entry.header, {"executable": EVIL}))


def rewarm(machine: Machine, *arguments: str, remotes: tuple[str, ...] = (), code: int = 0) -> Run:
    command = [sys.executable, "-m", "rewarm", *arguments]
    run = execute(command, env=clean_environment(**machine.env(*remotes)), cwd=machine.home.parent)
    assert run.code == code, run.err + run.out
    return run


@pytest.mark.skipif(os.name == "nt", reason="needs rights of files")
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_directory_that_others_may_write_to_is_not_used_unless_that_is_said(
    program: Program, tmp_path: Path, mode: int
) -> None:
    """Nothing is read from it, and nothing is written; with `shared` it is trusted."""
    one = Machine.named("one", tmp_path)
    program(PLAIN, **one.env())
    [path] = entries(one.cache)
    replaced(path)
    one.cache.chmod(mode)
    run = program(PLAIN, **one.env())
    assert (run.out, len(run.warnings())) == ("576.0\n", 1)
    assert "an entry is code" in run.warnings()[0]
    assert "cannot be loaded" not in run.err
    assert "evil" in str(open_entry(path.read_bytes(), path.name).section("executable"))
    shared = program(PLAIN, REWARM_SHARED="1", **one.env())
    assert "cannot be loaded" in shared.err, "his code got as far as the loader"


def test_the_digest_does_not_keep_him_out(program: Program, tmp_path: Path) -> None:
    """What he wrote is sound, so it goes to the loader. Signatures are not kept, and could not help: he is the user."""
    one = Machine.named("one", tmp_path)
    with remote("folder", tmp_path) as address:
        program(PLAIN, **one.env(address))
        [path] = entries(one.cache)
        replaced(path)
        run = program(PLAIN, **one.env())
    assert (run.out, run.stats["quarantined"]) == ("576.0\n", 1)
    assert "cannot be loaded" in run.err


def test_what_lies_in_the_directory_is_signed_like_one_s_own(program: Program, tmp_path: Path) -> None:
    """With `--all`, `sync push` and `bundle save` sign what is there, whoever made it; else what was made there."""
    one = Machine.named("one", tmp_path)
    with remote("folder", tmp_path) as address:
        program(PLAIN, **one.env())
        [path] = entries(one.cache)
        replaced(path)
        rewarm(one, "sync", "push", remotes=(address,))
        assert client(address).get(name_of(path.name), limit=1 << 20) is None
        rewarm(one, "sync", "push", "--all", remotes=(address,))
        blob = client(address).get(name_of(path.name), limit=1 << 20)
    assert blob is not None
    entry = unsigned_entry(blob, path.name, "main", Keyring(None, [one.key.public]), Posture.REQUIRE)
    assert open_entry(entry, path.name).section("executable") == EVIL
    for words, number in (([], 0), (["--all"], 1)):
        made = str(tmp_path / f"{number}.zip")
        rewarm(one, "bundle", "save", made, *words)
        assert len(bundle.members(Path(made))) == number


def test_what_came_from_a_trusted_store_is_not_signed_by_itself(program: Program, tmp_path: Path) -> None:
    """Only by the commands above: what a program has from a remote where less is asked goes to no stricter one."""
    one, other = Machine.named("one", tmp_path), Machine.named("other", tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with remote("folder", tmp_path / "a") as loose, remote("folder", tmp_path / "b") as strict:
        program(PLAIN, **one.env(loose + "?trust=store", REWARM_SIGNING_KEY=""))
        for hits in ([0, 1], [0, 0]):
            run = program(PLAIN, **other.env(strict, loose + "?trust=store"))
            assert (run.stats["hits"], [had["hits"] for had in run.stats["remotes"]]) == (1, hits)
        assert [blob.name for blob in client(strict).scan("main") if "/plans/" not in blob.name] == []
