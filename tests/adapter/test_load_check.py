"""New entries loaded in a child process: one that ends the child is put aside, and the program goes on."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import poison
import pytest

from conftest import Program, entries

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(os.name != "posix", reason="the child's end is told by signals"),
]

MAKES = """
    import jax, numpy as np
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    for n in range(3):
        jax.jit(lambda x: x @ x + n)(x)
"""

# What is registered first is called last, after the check has waited for its child.
CHECKS = """
    import atexit, os, signal, sys, time
    from pathlib import Path
    told = []
    def report():
        print(check.passed, check.failed, time.monotonic() - ends < 25, *told, sep="|")
        child = check._child
        print("left" if child is not None and child._process.poll() is None else "gone")
    atexit.register(report)
    from jax._src import compiler
    from rewarm.envelope import content_of
    from rewarm.jax_adapter.load_check import LoadCheck, NewEntry
    from rewarm.store import LocalStore
    root, device, *keys = sys.argv[1:]
    store = LocalStore(Path(root))
    check = LoadCheck(store, told.append)
    options = compiler.get_compile_options(1, 1).SerializeAsString()
    def submit(key):
        path = store.path(key)
        check.submit(NewEntry(key, "f", path, content_of(path.read_bytes()), options, (int(device),), "cpu"))
    for key in keys:
        submit(key)
    ends = time.monotonic()
"""


@pytest.fixture
def program(program: Program) -> Program:
    """As everywhere, and entries are kept whatever they are worth: on a busy machine loads can outlast compiles."""
    return functools.partial(program, REWARM_MIN_COMPILE_SECONDS="0")


@pytest.fixture
def keys(program: Program, cache: Path) -> list[str]:
    """The keys of three entries."""
    program(MAKES, REWARM_DIR=str(cache))
    found = [path.name for path in entries(cache)]
    assert len(found) == 3
    return found


def test_sound_entries_pass_and_the_program_waits_for_it(program: Program, cache: Path, keys: list[str]) -> None:
    run = program(CHECKS, str(cache), "0", *keys)
    assert run.out == "3|0|True\ngone\n"
    assert run.err == ""
    assert [path.name for path in entries(cache)] == keys


def test_one_that_ends_the_child_is_put_aside_and_the_others_are_tried(
    program: Program, cache: Path, keys: list[str]
) -> None:
    # Which of them comes first is a matter of their hashes.
    bad = next(key for key in keys if poison.changes(cache / key[:2] / key, poison.dies_while_loading))
    poison.reseal(cache / bad[:2] / bad, poison.dies_while_loading)
    run = program(CHECKS, str(cache), "0", *keys)
    reason = "loading it ended a child process with SIGABRT"
    assert run.out == f"2|1|True|entry {bad[:12]} of f is not usable ({reason}): quarantined\ngone\n"
    assert [path.name for path in entries(cache)] == [key for key in keys if key != bad]
    (aside,) = (cache / "quarantine").iterdir()
    assert aside.name.startswith(bad)
    assert run.err == ""


def test_the_child_has_no_cache_of_its_own(program: Program, cache: Path, keys: list[str], tmp_path: Path) -> None:
    other = tmp_path / "other"
    run = program(CHECKS, str(cache), "0", *keys, REWARM_DIR=str(other))
    assert run.out == "3|0|True\ngone\n"
    assert not other.exists()


def test_a_device_that_the_child_has_not_is_one_line_and_no_check(
    program: Program, cache: Path, keys: list[str]
) -> None:
    run = program(CHECKS + "    import jax\n", str(cache), "0", *keys, JAX_PLATFORMS="cpu")
    assert run.out.startswith("3|0|")
    wrong = CHECKS.replace('"cpu"))', '"tpu"))')
    run = program(wrong, str(cache), "0", *keys)
    first = run.out.splitlines()[0]
    assert first.startswith("0|0|True|new entries are not tried in a child process any more: ")
    assert first.count("|") == 3
    assert [path.name for path in entries(cache)] == keys


def test_more_devices_than_one(program: Program, cache: Path, keys: list[str]) -> None:
    assert program(CHECKS, str(cache), "2", *keys).out == "3|0|True\ngone\n"


def test_an_error_is_no_crash(program: Program, cache: Path, keys: list[str]) -> None:
    from rewarm.envelope import open_entry, seal

    path = cache / keys[0][:2] / keys[0]
    entry = open_entry(path.read_bytes(), keys[0])
    path.write_bytes(seal(entry.header, {"executable": b"not an executable" * 50}))
    run = program(CHECKS, str(cache), "0", *keys)
    assert run.out == "2|0|True\ngone\n"
    assert [path.name for path in entries(cache)] == keys


def test_a_child_that_others_kill_condemns_nothing(program: Program, cache: Path, keys: list[str]) -> None:
    kills = (
        CHECKS
        + """
    while check.passed < len(keys):
        time.sleep(0.01)
    os.kill(check._child._process.pid, signal.SIGKILL)
    submit(keys[0])
    submit(keys[1])
    """
    )
    run = program(kills, str(cache), "0", *keys)
    assert run.out == "4|0|True\ngone\n"
    assert [path.name for path in entries(cache)] == keys


def test_a_program_that_is_killed_takes_its_child_along(program: Program, cache: Path, keys: list[str]) -> None:
    killed = (
        CHECKS
        + """
    while check.passed < len(keys):
        time.sleep(0.01)
    print(check._child._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    )
    run = program(killed, str(cache), "0", *keys, ok=False)
    assert run.code == -9
    child = int(run.out)
    import time

    until = time.monotonic() + 20
    while Path(f"/proc/{child}").exists() and time.monotonic() < until:
        if Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{child}").exists()
