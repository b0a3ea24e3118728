"""What only a GPU can show, a test for each row of `scripts/gpu_check.sh`, and that without one it says so plainly."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gpu_rows import (
    NO_GPU,
    Check,
    Ran,
    attached,
    changed_fusion,
    checked,
    empty_disk,
    fresh_start,
    key_match,
    write_path,
)

from conftest import clean_environment

ROOT = Path(__file__).parents[2]
HAS_GPU = Path("/dev/nvidiactl").exists()
needs_gpu = pytest.mark.skipif(
    not HAS_GPU, reason="there is no GPU here (no /dev/nvidiactl); scripts/gpu_check.sh is for one"
)
without_gpu = pytest.mark.skipif(HAS_GPU, reason="there is a GPU here")

GROUPS = (attached, write_path, key_match, fresh_start, changed_fusion, empty_disk)


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool | None]:
    found = checked(tmp_path_factory.mktemp("gpu"), "cuda", 230.0, print)
    return {row.name: row.holds for row in found}


@needs_gpu
@pytest.mark.parametrize(
    "name",
    [
        "XLA writes results into the managed place",
        "results are kept as entries of the store",
        "executables say that their tuning is complete",
        "XLA's folder for the device is the one that rewarm works out",
        "a described device looks up the same results",
        "a fresh start takes every executable from the cache",
        "a fresh start tunes nothing",
        "after a change only what changed is tuned",
        "an empty disk gets the results from the remote",
        "and XLA tunes nothing there",
        "rewarm.tune times a Pallas kernel, and a second process has its winner",
    ],
)
def test_row(rows: dict[str, bool | None], name: str) -> None:
    if rows[name] is None:
        pytest.skip("this JAX does not tell")
    assert rows[name]


def script(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(ROOT / "scripts" / "gpu_check.sh"), *words],
        env=clean_environment(**env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@without_gpu
def test_without_a_gpu_the_script_says_so_and_ends_with_its_own_code() -> None:
    done = script()
    assert (done.returncode, done.stdout) == (NO_GPU, "")
    assert done.stderr.startswith("There is no GPU here that JAX can use, so nothing was checked: ")
    assert len(done.stderr.splitlines()) == 1


@without_gpu
def test_a_python_whose_jax_finds_no_gpu_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "gpu" / "gpu_rows.py")],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (NO_GPU, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.campaign
@without_gpu
def test_a_rehearsal_on_cpu_holds_what_needs_no_gpu_and_no_more() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "gpu" / "gpu_rows.py"), "--platform", "cpu", "--json"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    holds = {row["name"]: row["holds"] for row in json.loads(done.stdout)}
    assert holds["a fresh start takes every executable from the cache"] is True
    assert holds["XLA writes results into the managed place"] is False
    assert holds["after a change only what changed is tuned"] is False
    assert holds["an empty disk gets the results from the remote"] is False
    assert not any("could not be run" in row["said"] for row in json.loads(done.stdout))


def test_the_rows_tell_a_file_that_was_written_anew(tmp_path: Path) -> None:
    """Of a real cache directory: what `after a change only what changed is tuned` compares."""
    check = Check(tmp_path, "cpu", time.monotonic() + 200)
    sample = ROOT / "tests" / "autotune" / "samples" / "jax_0_12_0_1" / "mlp_128x128" / "new_dir"
    source = f'cp -r {sample}/. "$(echo $XLA_FLAGS | cut -d= -f2)"'
    words = ["autotune", "run", "--dir", str(tmp_path / "first"), "--target", "h200", "--build", "x", "--"]
    check.rewarm(*words, "sh", "-c", source)
    before = check.results("first")
    assert len(before) == 2
    assert check.results("first") == before
    one = next((tmp_path / "first" / "autotune").rglob("*.pb"))
    shutil.copy(one, one.with_name(".new"))
    one.with_name(".new").rename(one)
    after = check.results("first")
    assert set(after) == set(before)
    assert sum(after[name] != before[name] for name in before) == 1
    assert one.stat().st_ino in {inode for inode, _ in after.values()}


def test_the_rows_read_what_xla_says_of_its_look_ups() -> None:
    """The line is XLA's own, as the compiler of JAX 0.12.0.1 writes it."""
    counts = "hits=3, misses=1 (strict_hits=3, in_memory_hits=0, miss_reasons: not_found=1)"
    line = f"I0000 config_assigner_pass.cc:99] cache stats: {counts}"
    stderr = f'{line}\n{line}\n{{"bytes_read": 0, "hits": 1, "misses": 0}}\n'
    ran = Ran(subprocess.CompletedProcess([], 0, "gpu 1.0", stderr))
    assert (ran.looked_up, ran.is_counted, ran.stats["hits"]) == ((6, 2), True, 1)
