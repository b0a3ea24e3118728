"""Somebody who shares a cache directory with others, each of whom has a key of his own.

Not shown: that he does no harm. Who may write to the directory may run code as its others do; a group's directory is
for those who trust each other. But whose word a signature is stays true: nobody signs what another one made.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from attackers import client, remote

from conftest import MANY, Program, Run, clean_environment, entries, execute
from shared_remotes import Machine


def signers(address: str) -> list[str]:
    """The key that each entry of a remote names, by its first digits."""
    blobs = client(address)
    names = [blob.name for blob in blobs.scan("main") if blob.name.count("/") == 2 and "/plans/" not in blob.name]
    found = [blobs.get(name, limit=1 << 30) for name in names if len(name.rpartition("/")[2]) == 64]
    return sorted(data[6:22].hex()[:8] for data in found if data)


def of_one(directory: Path, machine: Machine, *remotes: str, **more: str) -> dict[str, str]:
    """The environment of somebody's program in the directory of all."""
    return machine.env(*remotes, REWARM_DIR=str(directory), REWARM_SHARED="1", **more)


def test_nobody_signs_what_another_key_made(program: Program, tmp_path: Path) -> None:
    """Containers that all run as one user: A compiles while the remote is away, and B starts something else."""
    shared = tmp_path / "cache"
    shared.mkdir()
    shared.chmod(0o2770)
    a = Machine.named("a", tmp_path)
    b = Machine.named("b", tmp_path)
    c = Machine.named("c", tmp_path, a, b)
    with remote("folder", tmp_path) as address:
        away = tmp_path / "remote-folder"
        shutil.move(away, tmp_path / "away")
        program(MANY, "4", **of_one(shared, a, address))
        shutil.move(tmp_path / "away", away)
        assert program("import jax; jax.jit(lambda x: x - 7)(1.0)", **of_one(shared, b, address)).stats["hits"] == 0
        assert signers(address) == [b.key.id[:8]]
        env = of_one(shared, b, address)
        pushed = execute([sys.executable, "-m", "rewarm", "sync", "push"], env=clean_environment(**env), cwd=tmp_path)
        assert "4 passed over, since not known to be made here" in pushed.out, pushed.out + pushed.err
        assert signers(address) == [b.key.id[:8]]
        # What A owes he sends himself, and who trusts both and revoked A has a hit of neither.
        program("import jax", **of_one(shared, a, address))
        run = program("import jax; jax.jit(lambda x: x - 8)(1.0)", **of_one(shared, a, address))
        assert run.stats["remotes"][0]["written"] == 5
        assert signers(address).count(a.key.id[:8]) == 5
        revoked = c.home / "config" / "rewarm" / "keys" / "revoked"
        revoked.parent.mkdir(parents=True, mode=0o700)
        revoked.write_text(f"{a.key.id}\n")
        run = program(MANY, "4", **c.env(address + "?write=no"))
        assert (run.stats["hits"], run.stats["misses"]) == (0, 4)


AS = ("setpriv", "--clear-groups", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach."""
    if os.name == "nt" or os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can be several users, by setpriv")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def as_user(uid: int, folder: Path, source: str, **env: str) -> Run:
    """Run a program as another user of one group, who can read what the tests need."""
    path = folder / f"of_{uid}.py"
    path.write_text(textwrap.dedent(source))
    command = [*AS, f"--reuid={uid}", "--regid=31009", sys.executable, str(path)]
    return execute(command, env=clean_environment(REWARM_STATS="json", REWARM="1", **env), cwd=folder)


SMALL = """
    import jax, numpy as np
    for i in range({count}):
        jax.jit(lambda x, i=i: x * {factor} + i)(np.ones(3, np.float32))
"""


def test_nobody_signs_what_another_user_made(place: Path) -> None:
    """Two users of one group, in a directory of mode 2770."""
    shared = place / "cache"
    shared.mkdir()
    os.chown(shared, 0, 31009)
    shared.chmod(0o2770)
    with remote("folder", place) as address:
        (place / "remote-folder").chmod(0o777)
        a, b = Machine.named("a", place), Machine.named("b", place)
        for uid, machine in ((31001, a), (31002, b)):
            machine.home.mkdir()
            os.chown(machine.home, uid, 31009)
        as_user(31001, place, SMALL.format(count=4, factor=2), **of_one(shared, a, "file:///not/mounted"))
        as_user(31001, place, SMALL.format(count=4, factor=2), **of_one(shared, a))
        run = as_user(31002, place, SMALL.format(count=1, factor=3), **of_one(shared, b, address))
        assert run.stats["remotes"][0]["written"] == 1, run.err
        assert signers(address) == [b.key.id[:8]]
        assert len(entries(shared)) == 5
