"""The loop, closed: what was pre-warmed is found by the real program, attached, and by a real job of two processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from prewarm_command import DESCRIBES_CPUS, PLANS, attached, prewarm

from conftest import entries

sys.path.append(str(PLANS.parents[1] / "adapter"))
import jobs

pytestmark = pytest.mark.contract

VALUES = ("value", "moved", "fast")

# What a rank runs: the programs of the plan, on all devices of the job.
RANK = f"""
sys.path.insert(0, {str(PLANS.parent)!r})
import prewarm_plans
say(**prewarm_plans.run(devices))
"""


def test_this_hosts_cpu(cache: Path) -> None:
    filled = prewarm(cache, "plan", "--topology", "1", "--topology", "2", "--topology", "8", "--jobs", "2")
    assert filled.run.code == 0, filled.run.err[-3000:]
    assert [(one["program"], one["topology"], one["outcome"]) for one in filled.told["programs"]] == [
        (name, topology, "stored") for topology in ("1", "2", "8") for name in ("train step", "fast")
    ]
    said = {devices: attached(cache, devices) for devices in (1, 2, 8)}
    assert [one["events"] for one in said.values()] == [[["jit_step", "hit"], ["jit_step", "hit"]]] * 3
    cold = attached(None, 8)
    assert [said[8][name] for name in VALUES] == [cold[name] for name in VALUES]
    assert len(entries(cache)) == 6


def test_arguments_that_nobody_put_on_a_device(cache: Path) -> None:
    assert prewarm(cache, "alone").outcomes == {"scaled": "stored"}
    assert attached(cache, 1, "alone") == {"value": [1, 3, 5, 7, 9], "events": [["jit_scaled", "hit"]]}


@pytest.mark.skipif(not DESCRIBES_CPUS, reason="CPUs cannot be described before JAX 0.11")
def test_a_job_of_two_processes(cache: Path, tmp_path: Path) -> None:
    filled = prewarm(cache, "plan", "--topology", "2x2")
    assert filled.outcomes == {"train step": "stored", "fast": "stored"}, filled.run.err[-3000:]
    two = "--xla_force_host_platform_device_count=2"
    ranks = jobs.run(tmp_path / "job", RANK, 2, jobs.in_one(cache, XLA_FLAGS=two))
    assert jobs.each(ranks, "events") == [[["jit_step", "hit"], ["jit_step", "hit"]]] * 2
    cold = jobs.run(tmp_path / "cold", RANK, 2, lambda _: {"XLA_FLAGS": two})
    for name in VALUES:
        assert jobs.each(ranks, name) == jobs.each(cold, name)


@pytest.mark.skipif(DESCRIBES_CPUS, reason="CPUs can be described since JAX 0.11")
def test_a_job_of_two_processes_on_an_older_jax(cache: Path) -> None:
    filled = prewarm(cache, "plan", "--topology", "2x2")
    assert filled.run.code == 1
    [one] = filled.told["programs"]
    assert one["outcome"] == "failed"
    assert "cannot describe CPUs (0.11 and later can)" in one["why"]
    assert entries(cache) == []
