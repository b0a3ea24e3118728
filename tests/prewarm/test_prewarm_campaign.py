"""A transformer's train step for machines that are not here, by the real compilers: GPUs, slices of TPUs, CPUs.

None is executed: no such device is there. What is held: the program compiles, its entry is stored and sound, `--check`
is clean from elsewhere, and the key is the same in fresh processes, from another folder, with the plan in another file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prewarm_command import DESCRIBES_CPUS

import cuda_compilers
import tpu_compilers
from conftest import clean_environment
from rewarm.envelope import Entry, open_entry
from rewarm.store import LocalStore

pytestmark = [pytest.mark.campaign, pytest.mark.long, pytest.mark.timeout(1800)]

PLAN = cuda_compilers.ROOT / "benchmarks" / "prewarm_plan.py"

# Of a serialised executable, what names the runtime that it is for.
MARKS = {"gpu": b"ELF", "tpu": b"tpu", "cpu": b"x86_64"}


def prewarmed(
    plan: Path, cache: Path, target: str, topology: str, environment: dict[str, str], *more: str
) -> dict[str, Any]:
    folder = plan.parent if plan != PLAN else cache.parent
    words = ["-W", "ignore", "-m", "rewarm", "prewarm", f"{plan}:plan", "--target", target, "--topology", topology]
    done = subprocess.run(
        [sys.executable, *words, "--dir", str(cache), "--json", *more],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1500,  # libtpu takes minutes where others have the processors
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads(done.stdout)
    [program] = told["programs"]
    return dict(program)


def the_entry(cache: Path) -> Entry:
    store = LocalStore(cache)
    opened = [open_entry(data, info.key) for info in store.scan() if (data := store.get(info.key)) is not None]
    [found] = [one for one in opened if one.header.kind == "executable"]
    return found


def held(cache: Path, tmp_path: Path, target: str, topology: str, environment: dict[str, str]) -> Entry:
    made = prewarmed(PLAN, cache, target, topology, environment)
    assert made["outcome"] == "stored"
    entry = the_entry(cache)
    assert entry.header.key == made["key"]
    other = tmp_path / "another place" / "of the plan"
    other.mkdir(parents=True)
    shutil.copy(PLAN, other / "moved.py")
    checked = prewarmed(other / "moved.py", cache, target, topology, environment, "--check")
    assert (checked["outcome"], checked["key"]) == ("present", made["key"])
    return entry


def valid(entry: Entry, platform: str, kind: str, devices: int) -> None:
    assert entry.header.target.startswith(f"{platform} {kind}".strip()), entry.header.target
    assert entry.header.target.endswith(f"x{devices}")
    executable = entry.section("executable")
    assert len(executable) > 10_000
    assert MARKS[platform] in executable.lower() if platform == "tpu" else MARKS[platform] in executable
    assert entry.header.producer["ahead"]


@pytest.mark.parametrize(
    ("target", "topology"),
    [("h200", "1x1x1"), ("h200", "1x1x8"), ("h200", "4x8x1"), ("a100", "1x1x8"), ("b200", "1x1x8")],
)
def test_gpus(cache: Path, tmp_path: Path, target: str, topology: str) -> None:
    compiler = cuda_compilers.wanted()
    entry = held(cache, tmp_path, target, topology, compiler.environment())
    nodes, processes, devices = map(int, topology.split("x"))
    valid(entry, "gpu", "NVIDIA", nodes * processes * devices)
    assert entry.header.tuning is not None
    assert entry.header.tuning["state"] == "incomplete", "nothing was there to be timed"


@pytest.mark.parametrize(
    ("target", "topology", "devices"),
    [("v5e", "2x4", 8), ("v6e", "2x2", 4), ("v5e", "16x16", 256), ("v5e", "2*2x2", 8)],
)
def test_slices_of_tpus(cache: Path, tmp_path: Path, target: str, topology: str, devices: int) -> None:
    compiler = tpu_compilers.wanted()
    valid(held(cache, tmp_path, target, topology, compiler.environment()), "tpu", "", devices)


@pytest.mark.skipif(not DESCRIBES_CPUS, reason="JAX 0.9 and 0.10 describe no CPU but this host's own")
def test_a_job_of_cpus(cache: Path, tmp_path: Path) -> None:
    valid(held(cache, tmp_path, "x86-64-v3", "1x2x4", clean_environment()), "cpu", "", 8)
