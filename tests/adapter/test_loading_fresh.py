"""Loading ahead on a machine that has not run the program: entries say how they are loaded, and are on trial."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import poison
import pytest
from test_other_machine import other_word, present
from test_other_machine import reseal as reseal_executable

from conftest import Run, clean_environment, entries
from rewarm.envelope import open_entry, seal
from rewarm.restart import Way
from shared_remotes import Machine, blob_of

# There is time for all that is done ahead between the making of the client and the first compile.
TRAIN = """
    import os, sys, time, jax, numpy as np, jax.numpy as jnp
    jax.devices()
    if "FIRST" in os.environ:  # what comes from a remote is checked from the first compile on
        jax.jit(lambda x: x - 1)(np.ones(3, np.float32))
    time.sleep(float(os.environ.get("PAUSE", "0.8")))
    x = jax.device_put(np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4), jax.devices()[-1])
    steps = (lambda x: x + 1), (lambda x: jnp.sort(x)), (lambda x: jnp.tanh(x) @ x), (lambda x: x @ x.T * 2)
    for number, f in enumerate(steps):
        f.__name__ = f"step_{number}"
        x = jax.jit(f)(x)
    print(np.asarray(x).tobytes().hex())
"""
COUNT = 4


def start(place: Path, env: dict[str, str], *, code: int = 0) -> Run:
    """One start of the program, which is known by its name."""
    path = place / "train.py"
    path.write_text(textwrap.dedent(TRAIN))
    done = subprocess.run(
        [sys.executable, str(path)],
        env=clean_environment(**{"REWARM_STATS": "json", "REWARM_MIN_COMPILE_SECONDS": "0", **env}),
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr[-4000:]
    return Run(done.returncode, done.stdout, done.stderr)


def told(run: Run) -> tuple[int, int, int, int]:
    """Hits, and what was read and loaded ahead and used."""
    ahead = run.stats["loads_ahead"]
    return run.stats["hits"], ahead["read"], ahead["loaded"], ahead["used"]


def forget_runs(cache: Path) -> None:
    """As a directory that was copied to another machine: nothing is known of runs."""
    for name in ("trials", "loads"):
        shutil.rmtree(cache / name, ignore_errors=True)


def change(path: Path, sections: Callable[[dict[str, bytes]], dict[str, bytes]]) -> None:
    """Seal an entry again with other sections."""
    entry = open_entry(path.read_bytes(), path.name)
    found = {section.name: entry.section(section.name) for section in entry.header.sections}
    path.write_bytes(seal(entry.header, sections(found)))


def programs(cache: Path) -> dict[str, Path]:
    """The entries by the names of their programs."""
    return {open_entry(path.read_bytes(), path.name).header.program: path for path in entries(cache)}


@pytest.mark.contract
def test_a_fresh_machine_loads_ahead_what_comes_by_the_plan(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    url = (tmp_path / "shared").as_uri()
    one = Machine.named("one", tmp_path)
    other = Machine.named("other", tmp_path, one)
    cold = start(tmp_path, one.env(url, FIRST="1"))
    assert (cold.stats["stored"], told(cold)) == (COUNT + 1, (0, 0, 0, 0))

    def assert_is_ahead(run: Run) -> None:
        assert (run.out, run.stats["hits"], run.warnings()) == (cold.out, COUNT + 1, [])
        ahead = run.stats["loads_ahead"]
        assert COUNT <= ahead["used"] <= ahead["loaded"] <= ahead["read"] <= COUNT + 1, "the first may be too early"

    assert_is_ahead(start(tmp_path, other.env(url, FIRST="1", PAUSE="2")))
    assert not list((other.cache / "trials").glob("*.mark"))
    assert_is_ahead(start(tmp_path, other.env(url, FIRST="1")))
    # What lies here already and the plan names, on a host that has not run it; by the plan of the remote, and of here.
    for remote in ((url,), ()):
        forget_runs(other.cache)
        assert_is_ahead(start(tmp_path, other.env(*remote, FIRST="1")))
    forget_runs(other.cache)
    off = start(tmp_path, other.env(url, FIRST="1", REWARM_LOAD_AHEAD="0"))
    assert (off.out, off.stats["hits"], off.stats["loads_ahead"]) == (cold.out, COUNT + 1, {})


def test_what_an_entry_says_of_loading_it_decides_nothing(tmp_path: Path) -> None:
    """On another device, with other options, by nothing that is known, not at all; for another compiler or CPU."""
    cache = tmp_path / "cache"
    env = {"REWARM_DIR": str(cache), "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    cold = start(tmp_path, env)
    for number, (program, path) in enumerate(sorted(programs(cache).items())):
        assert program == f"jit_step_{number}"
        said = Way.said(open_entry(path.read_bytes(), path.name).section("way"))
        assert said is not None
        assert (said.platform, said.devices) == ("cpu", (1,))
        ways = [
            said._replace(devices=(0,)).in_entry(),
            said._replace(devices=(9,)).in_entry(),
            b"what is no way",
            said.in_entry(),
        ]
        change(path, lambda sections, way=ways[number]: {**sections, "way": way})  # type: ignore[misc]
    (last,) = [path for program, path in programs(cache).items() if program == "jit_step_3"]
    word = present(last)
    reseal_executable(last, lambda raw: raw.replace(f"+{word},".encode(), f"+{other_word(word)},".encode()))
    for path in (cache / "loads").iterdir():  # as another host leaves it: of that the keys alone are believed
        data = json.dumps({**json.loads(path.read_text().partition("\n")[2]), "about": "another"})
        path.write_text(f"{hashlib.sha256(data.encode()).hexdigest()}\n{data}")
    shutil.rmtree(cache / "trials", ignore_errors=True)
    run = start(tmp_path, env)
    assert (run.out, told(run)) == (cold.out, (COUNT - 1, COUNT, 1, 0))
    (line,) = run.warnings()
    assert "OtherMachineError" in line
    warm = start(tmp_path, env)
    assert (warm.out, told(warm), warm.warnings()) == (cold.out, (COUNT, COUNT, COUNT, COUNT), [])


@pytest.mark.contract
@pytest.mark.skipif(sys.platform != "linux", reason="the object files that are changed are ELF")
def test_an_entry_that_ends_the_process_by_being_loaded_ahead_does_so_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    env = {"REWARM_DIR": str(cache)}
    cold = start(tmp_path, env)
    poison.reseal(programs(cache)["jit_step_1"], poison.dies_while_loading)
    died = start(tmp_path, env, code=-signal.SIGABRT)
    assert died.out == "", "it had not come to its first compile"
    healed = start(tmp_path, env)
    lines = [line for line in healed.warnings() if "is not usable" in line]
    assert ["jit_step_1" in line and "loading it ended process" in line for line in lines].count(True) == 1
    assert healed.out == cold.out
    # Those that other threads loaded at that moment may be innocent: they are made anew, once.
    assert 1 <= len(lines) <= 4
    assert (healed.stats["misses"], healed.stats["stored"]) == (len(lines), len(lines))
    warm = start(tmp_path, env)
    assert (warm.out, warm.stats["hits"], warm.warnings()) == (cold.out, COUNT, [])


@pytest.mark.contract
@pytest.mark.skipif(sys.platform != "linux", reason="the object files that are changed are ELF")
@pytest.mark.parametrize("ahead", ["1", "0"])
def test_a_remote_that_has_an_entry_which_ended_a_process_does_not_do_so_again(tmp_path: Path, ahead: str) -> None:
    (tmp_path / "shared").mkdir()
    url = (tmp_path / "shared").as_uri() + "?trust=store"
    one, other = Machine.named("one", tmp_path), Machine.named("other", tmp_path)
    cold = start(tmp_path, one.env(url, REWARM_SIGNING_KEY="", PAUSE="0"))
    path = programs(one.cache)["jit_step_1"]
    poison.reseal(path, poison.dies_while_loading)
    for pack in (tmp_path / "shared" / "main" / "packs").glob("*"):
        pack.unlink()
    blob_of(tmp_path / "shared", path.name).write_bytes(path.read_bytes())
    env = other.env(url + "&write=no", REWARM_LOAD_AHEAD=ahead, PAUSE="1")
    start(tmp_path, env, code=-signal.SIGABRT)
    healed = start(tmp_path, env)
    assert healed.out == cold.out
    assert "jit_step_1" in "".join(healed.warnings())
    assert healed.stats["misses"] >= 1
    again = start(tmp_path, env)
    assert (again.out, again.stats["hits"], again.warnings()) == (cold.out, COUNT, [])
