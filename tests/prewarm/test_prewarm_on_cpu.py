"""The loop, closed: what was pre-warmed is found by the real program, attached, and by a real job of two processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from prewarm_command import DESCRIBES_CPUS, PLANS, attached, prewarm

from conftest import clean_environment, entries, execute

sys.path.append(str(PLANS.parents[1] / "adapter"))
import jobs

pytestmark = pytest.mark.contract

described = pytest.mark.skipif(not DESCRIBES_CPUS, reason="CPUs cannot be described before JAX 0.11")

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


@described
def test_what_is_kept_in_the_hosts_memory(cache: Path) -> None:
    """Described devices say which memories they have; else JAX would leave them out of the program without a word."""
    filled = prewarm(cache, "offloading", "--topology", "4")
    assert set(filled.outcomes.values()) == {"stored"}, filled.run.err[-3000:]
    keys = {one["program"]: one["key"] for one in filled.told["programs"]}
    assert len(set(keys.values())) == len(keys), "none is taken for the plain one"
    said = attached(cache, 4, "offloading")
    assert [outcome for _, outcome in said["events"]] == ["hit"] * len(keys)
    assert said["values"] == attached(None, 4, "offloading")["values"]


def captured(path: Path, *, devices: int) -> Path:
    """What this host says with so many devices, written where it may be used elsewhere."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    words = [sys.executable, "-m", "rewarm", "target", "capture", str(path)]
    done = execute(words, env=clean_environment(XLA_FLAGS=flags), cwd=path.parent)
    assert done.code == 0, done.err
    return path


@described
def test_what_was_filled_for_a_captured_host_is_found_there(cache: Path, tmp_path: Path) -> None:
    target = str(captured(tmp_path / "their-host.json", devices=2))
    filled = prewarm(cache, "plan", "--topology", "2", "--topology", "1", target=target, NPROC="1")
    assert filled.run.code == 0, filled.run.err[-3000:]
    assert filled.told["targets"] == {}, "the same versions, and nothing that no data sheet tells"
    for devices in (1, 2):
        assert attached(cache, devices)["events"] == [["jit_step", "hit"], ["jit_step", "hit"]]


@described
def test_more_processors_than_xla_makes_threads(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    words = [sys.executable, "-m", "rewarm", "target", "capture", str(path)]
    done = execute(words, env=clean_environment(NPROC="512"), cwd=tmp_path)
    assert (done.code, ", 256 threads, " in done.out) == (0, True), done.out + done.err
    filled = prewarm(cache, "alone", target=str(path))
    assert filled.outcomes == {"scaled": "stored"}, filled.run.err
    assert prewarm(cache, "alone", "--check", target="host:20000").outcomes == {"scaled": "present"}
    env = clean_environment(REWARM_DIR=str(cache), NPROC="512")
    ran = execute([sys.executable, str(PLANS), "alone"], env=env, cwd=tmp_path)
    assert ran.json["events"] == [["jit_scaled", "hit"]], ran.err


@described
def test_a_job_of_two_processes(cache: Path, tmp_path: Path) -> None:
    target = str(captured(tmp_path / "their-host.json", devices=2))
    filled = prewarm(cache, "plan", "--topology", "2x2", target=target)
    assert filled.outcomes == {"train step": "stored", "fast": "stored"}, filled.run.err[-3000:]
    assert prewarm(cache, "plan", "--topology", "2x2", "--check").run.code == 0, "and so say the names of this host"
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
