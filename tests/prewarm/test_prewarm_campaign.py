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
import serialised
from prewarm_command import DESCRIBES_CPUS

import cuda_compilers
import tpu_compilers
from conftest import clean_environment
from rewarm.envelope import Entry, open_entry
from rewarm.identity import machine_of_executable
from rewarm.store import LocalStore

pytestmark = [pytest.mark.campaign, pytest.mark.long, pytest.mark.timeout(1800)]

PLAN = cuda_compilers.ROOT / "benchmarks" / "prewarm_plan.py"

# What each GPU's kernels have to be for.
PROCESSORS = {"h200": 90, "a100": 80, "b200": 100}


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


def valid(entry: Entry, platform: str, kind: str, devices: int) -> list[serialised.Object]:
    """The ELF files in the entry's executable, which is whole and of that platform."""
    assert entry.header.target.startswith(f"{platform} {kind}".strip()), entry.header.target
    assert entry.header.target.endswith(f"x{devices}")
    executable = entry.section("executable")
    assert len(executable) > 10_000
    assert entry.header.producer["ahead"]
    return serialised.objects(executable)


@pytest.mark.parametrize(
    ("target", "topology"),
    [("h200", "1x1x1"), ("h200", "1x1x8"), ("h200", "4x8x1"), ("a100", "1x1x8"), ("b200", "1x1x8")],
)
def test_gpus(cache: Path, tmp_path: Path, target: str, topology: str) -> None:
    compiler = cuda_compilers.wanted()
    entry = held(cache, tmp_path, target, topology, compiler.environment())
    nodes, processes, devices = map(int, topology.split("x"))
    cubins = valid(entry, "gpu", "NVIDIA", nodes * processes * devices)
    assert {(one.machine, one.processor) for one in cubins} == {(serialised.CUDA, PROCESSORS[target])}
    assert all(any(name.startswith(".text.") for name in one.sections) for one in cubins)
    assert entry.header.tuning is not None
    assert entry.header.tuning["state"] == "incomplete", "nothing was there to be timed"


@pytest.mark.parametrize(
    ("target", "topology", "devices"),
    [("v5e", "2x4", 8), ("v6e", "2x2", 4), ("v5e", "16x16", 256), ("v5e", "2*2x2", 8)],
)
def test_slices_of_tpus(cache: Path, tmp_path: Path, target: str, topology: str, devices: int) -> None:
    compiler = tpu_compilers.wanted()
    entry = held(cache, tmp_path, target, topology, compiler.environment())
    assert valid(entry, "tpu", "", devices) == [], "no processor's code but the TPU's own"
    whole = serialised.body(entry.section("executable"))
    assert b"xla.TpuExecutableProto" in next(serialised.records(whole))
    for cut in (len(whole) // 2, len(whole) - 1):
        with pytest.raises(ValueError, match="cut"):
            list(serialised.records(whole[:cut]))


@pytest.mark.skipif(not DESCRIBES_CPUS, reason="JAX 0.9 and 0.10 describe no CPU but this host's own")
def test_a_job_of_cpus(cache: Path, tmp_path: Path) -> None:
    entry = held(cache, tmp_path, "x86-64-v3", "1x2x4", clean_environment())
    objects = valid(entry, "cpu", "", 8)
    assert {one.machine for one in objects} == {serialised.X86}
    machine = machine_of_executable(entry.section("executable"))
    assert machine is not None
    assert "avx512f" not in machine.features
    assert "avx2" in machine.features
