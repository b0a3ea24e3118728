"""What lies in a cache directory is written down once: nothing of rewarm's is unknown to `du` and `clear`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import servers

from conftest import Run, clean_environment, execute
from rewarm.cli import layout
from rewarm.store import LocalStore
from shared_remotes import Machine

PROGRAM = """
import jax, numpy as np, rewarm
for n in (4, 5, 6):
    jax.block_until_ready(rewarm.jit(lambda x: x @ x + n)(np.ones((n, n), np.float32)))
"""


def rewarm(*arguments: str, **env: str) -> Run:
    run = execute([sys.executable, "-m", "rewarm", *arguments], env=clean_environment(**env), cwd=Path("/"))
    assert run.code == 0, run.err
    return run


def below(root: Path) -> tuple[list[str], list[str]]:
    """Files and folders."""
    found = [(path.is_dir(), path.relative_to(root).as_posix()) for path in root.rglob("*")]
    return [name for folder, name in found if not folder], [name for folder, name in found if folder]


@pytest.fixture
def used(tmp_path: Path) -> Machine:
    """A machine that used what there is: a remote that answers, one that does not, explanations, samples, trials."""
    machine = Machine.named("one", tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "p.py").write_text(PROGRAM)
    env = machine.env((tmp_path / "shared").as_uri(), "http://127.0.0.1:9/x?deadline=1", REWARM_VERIFY_SAMPLE="1")
    for _ in range(2):
        done = execute(
            [sys.executable, str(tmp_path / "p.py")], env=clean_environment(**env, REWARM_EXPLAIN="1"), cwd=tmp_path
        )
        assert done.code == 0, done.err
    store = LocalStore(machine.cache)
    info = next(iter(store.scan()))
    store.quarantine(info.key, "for a test", store.get(info.key))
    return machine


def test_a_program_leaves_nothing_that_is_unknown(used: Machine) -> None:
    files, folders = below(used.cache)
    unknown = [name for name in files if layout.kind_of(name) == layout.OTHER]
    assert unknown == [], "add it to layout._PARTS"
    assert [name for name in folders if not layout.is_ours(name)] == []
    told = json.loads(rewarm("du", "--by", "kind", "--json", "--dir", str(used.cache)).out)["by_kind"]
    kinds = {row["name"]: row["files"] for row in told}
    assert set(kinds) >= {"entries", "quarantine", "runs", "explain", "trials", "plans", "loads", "uploads", "books"}
    assert sum(kinds.values()) == len(files)
    assert (kinds["entries"], kinds["uploads"]) == (2, 3)


def test_what_is_found_out_of_a_bucket_is_known(tmp_path: Path) -> None:
    machine = Machine.named("one", tmp_path)
    wait = """
import pathlib, sys, time
until = time.monotonic() + 20
while time.monotonic() < until and not list(pathlib.Path(sys.argv[1]).glob("remotes/*.json")):
    time.sleep(0.05)
"""
    (tmp_path / "p.py").write_text(PROGRAM + wait)
    try:
        with servers.moto(tmp_path) as server:
            env = clean_environment(**machine.env(server.address("prefix")))
            done = execute([sys.executable, str(tmp_path / "p.py"), str(machine.cache)], env=env, cwd=tmp_path)
    except servers.MissingServerError as missing:
        servers.do_without("moto", missing)
    assert done.code == 0, done.err
    files, _ = below(machine.cache)
    assert [layout.kind_of(name) for name in files if name.startswith("remotes/")] == ["remotes"]
    assert [name for name in files if layout.kind_of(name) == layout.OTHER] == []
    rewarm("clear", "--dir", str(machine.cache))
    assert below(machine.cache)[1] == []


def test_clear_leaves_what_is_said_and_what_is_not_ours(used: Machine) -> None:
    strange = ["notes.txt", "plans/notes.txt", "uploads/0123456789abcdef/x", "remotes.txt", "leases/a.lock", "ab/x"]
    for name in strange:
        (used.cache / name).parent.mkdir(parents=True, exist_ok=True)
        (used.cache / name).write_text("mine")
    assert {layout.kind_of(name) for name in strange} == {layout.OTHER}
    rewarm("clear", "--dir", str(used.cache))
    files, folders = below(used.cache)
    stays = {"CACHEDIR.TAG", "savings.json", ".savings.lock", "libraries.json", "machines.json"}
    assert set(files) - stays == set(strange)
    assert set(folders) == {os.path.dirname(name) for name in strange} - {""} | {"uploads"}  # noqa: PTH120
    rewarm("clear", "--all", "--dir", str(used.cache))
    files, _ = below(used.cache)
    assert set(files) == {"CACHEDIR.TAG", *strange}


def test_clear_takes_empty_folders_along(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache")
    store.prepare()
    for name in ("uploads/0123456789abcdef", "trials/0123456789abcdef", "remotes", "leases", "mine", "uploads2"):
        (store.root / name).mkdir(parents=True)
    rewarm("clear", "--dir", str(store.root))
    files, folders = below(store.root)
    assert (files, set(folders)) == (["CACHEDIR.TAG"], {"mine", "uploads2"})


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"ab/ab{'0' * 62}", "entries"),
        (f"ab/cd{'0' * 62}", layout.OTHER),
        (f"ab/ab{'0' * 61}", layout.OTHER),
        ("ab/.usage", "books"),
        ("sizes", "books"),
        ("runs/20261130T070930Z-31195-21083a5c.jsonl", "runs"),
        ("runs/notes.jsonl", layout.OTHER),
        (f"leases/{'a' * 64}.heir.lock", "leases"),
        ("trials/condemned.jsonl", "trials"),
        ("elsewhere/0123456789abcdef/123-0123abcd.mark", "trials"),
        ("remotes/0123456789abcdef.json", "remotes"),
        (f"ab/.ab{'0' * 62}.12.0123abcd.tmp", "temporary"),
        ("plans/.x.json.1.tmp", "temporary"),
        ("mine/.x.tmp", layout.OTHER),
        ("quarantine/x y", "quarantine"),
        ("quarantine/x/y", layout.OTHER),
    ],
)
def test_kinds_by_path(path: str, kind: str) -> None:
    assert layout.kind_of(path) == kind
