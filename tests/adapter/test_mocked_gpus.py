"""`jax_mock_gpu_topology`: a process alone fills the cache for a topology of which it has one process's devices.

Not shown here: a GPU client that mocks, since that takes a GPU. In its place stand described devices that are taken for
attached ones, compiled for by XLA's real compiler: what rewarm does of a mock (it serves the program, asks nobody,
tunes alone, marks the entry) and that the key is the one of the topology that is mocked.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import clean_environment, execute
from cuda_compilers import Compiler, wanted
from rewarm.envelope import open_entry
from rewarm.store import LocalStore

pytestmark = pytest.mark.contract

PROGRAM = Path(__file__).with_name("mocked_program.py")


def ran(compiler: Compiler, cache: Path, *more: str) -> dict[str, Any]:
    words = [sys.executable, "-W", "ignore", str(PROGRAM), str(cache), *more]
    done = execute(words, env=compiler.environment(), cwd=cache.parent)
    assert done.code == 0, done.err[-3000:]
    found: dict[str, Any] = done.json
    return found


def test_a_mocked_run_fills_what_the_real_topology_asks_for(cache: Path, tmp_path: Path) -> None:
    compiler = wanted()
    mocked = ran(compiler, cache, "mock")
    [(key, outcome, stored)] = mocked["events"]
    assert (outcome, stored, mocked["left"]) == ("miss", True, {})
    assert mocked["asked"] == [["xla_gpu_shard_autotuning", False]], "nobody is there to share the work with"
    data = LocalStore(cache).get(key)
    assert data is not None
    assert open_entry(data, key).header.producer["mocked"] == "2x2x1"

    plan = f"{PROGRAM}:plan"
    words = [*("-W", "ignore", "-m", "rewarm", "prewarm", plan, "--target", "h200", "--topology", "2x2x1", "--json")]
    looked = execute([sys.executable, *words, "--dir", str(cache), "--check"], env=compiler.environment(), cwd=tmp_path)
    assert [(one["outcome"], one["key"]) for one in json.loads(looked.out)["programs"]] == [("present", key)]


def test_without_the_option_or_in_a_job_it_is_left_to_jax(cache: Path) -> None:
    compiler = wanted()
    plain = ran(compiler, cache)
    assert (plain["events"], list(plain["left"])) == (
        [],
        ["a program that several processes compile together, without jax.distributed"],
    )
    in_job = ran(compiler, cache, "mock", "job")
    assert (in_job["events"], list(in_job["left"])) == (
        [],
        ["jax_mock_gpu_topology in a job of jax.distributed, which JAX's own rules exclude"],
    )


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [("jax_mock_gpu_topology", "4 x 8 x 1", "4x8x1"), ("mock_num_gpu_processes", 16, "16 processes")],
)
def test_what_jax_is_told_to_mock(tmp_path: Path, option: str, value: Any, found: str) -> None:
    look = (
        "import jax; from rewarm.jax_adapter import seam; before = seam.mocked_gpus();"
        f"jax.config.update({option!r}, {value!r}); print([before, seam.mocked_gpus()])"
    )
    done = execute([sys.executable, "-c", look], env=clean_environment(), cwd=tmp_path)
    assert done.out.strip() == repr(["", found]), done.err
