"""A plan made of what a run was: the programs have the run's keys, and other devices the same divisions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from prewarm_command import DESCRIBES_CPUS, Filled

from conftest import clean_environment, execute

pytestmark = pytest.mark.contract

PROGRAMS = Path(__file__).with_name("recorded_programs.py")


def ran(cache: Path, which: str, devices: int) -> dict[str, str]:
    """Run the programs as a user would; their keys by name."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    env = clean_environment(REWARM="1", REWARM_DIR=str(cache), XLA_FLAGS=flags)
    done = execute([sys.executable, str(PROGRAMS), which], env=env, cwd=cache.parent)
    assert done.code == 0, done.err[-3000:]
    return {program: key for program, _, key in json.loads(done.out)}


def prewarmed(cache: Path, plan: str, topology: str, *options: str) -> Filled:
    words = ["-m", "rewarm", "prewarm", f"{PROGRAMS}:{plan}", "--target", "host", "--topology", topology, "--json"]
    done = execute([sys.executable, *words, "--dir", str(cache), *options], env=clean_environment(), cwd=cache.parent)
    assert done.out.startswith("{"), done.err[-3000:]
    return Filled(done, json.loads(done.out))


def keys(filled: Filled) -> list[Any]:
    return [one["key"] for one in filled.told["programs"]]


def test_a_divided_program_has_the_runs_key_and_is_divided_anew_elsewhere(cache: Path) -> None:
    key = ran(cache, "run", 4)["jit_divided"]
    same = prewarmed(cache, "plan", "4", "--check")
    assert (same.outcomes, keys(same)) == ({"divided": "present"}, [key])
    if not DESCRIBES_CPUS:
        return
    other = prewarmed(cache, "plan", "8")
    assert other.outcomes == {"divided": "stored"}, other.run.err
    assert keys(other) == [ran(cache.parent / "elsewhere", "run", 8)["jit_divided"]], "its real run has that key"
    # What pre-warming did is no run, whatever it was for: the record is still that of four devices.
    without = prewarmed(cache, "plan_without_mesh", "4")
    assert "the run had a mesh of data=2, model=2: give on=" in str(without.told["programs"][0]["why"])


def test_what_no_program_says_is_taken_from_the_arguments_that_are_given(cache: Path) -> None:
    ran_keys = ran(cache, "alone", 1)
    found = prewarmed(cache, "plan_alone", "1", "--check")
    assert found.outcomes == {"moments": "present", "alone": "present"}, found.run.err
    assert keys(found) == [ran_keys["jit_with_moments"], ran_keys["jit_alone"]]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("plan_without_mesh", "give on=, a mesh"),
        ("plan_of_other_axes", "was divided over model; the mesh that was given has rows"),
        ("plan_of_too_few", "the run had \"params['layers'][0]['w']\""),
        ("plan_never_run", "no run in {cache} has a program called <lambda>; it has jit_divided"),
    ],
)
def test_a_record_that_does_not_say_enough(cache: Path, plan: str, words: str) -> None:
    ran(cache, "run", 4)
    found = prewarmed(cache, plan, "4", "--check")
    assert found.run.code == 1
    why = str(found.told["programs"][0]["why"])
    assert words.format(cache=cache) in why
    assert f"{PROGRAMS}:" in why, "the line of the plan"


def test_what_cannot_be_made_of_names_alone(cache: Path) -> None:
    ran(cache, "alone", 1)
    why = str(prewarmed(cache, "plan_from_names", "1", "--check").told["programs"][0]["why"])
    assert "state.first lies in an object of a class of its own" in why
    entry = next(path for path in cache.glob("??/*") if b"with_moments" in path.read_bytes())
    entry.unlink()
    gone = str(prewarmed(cache, "plan_from_names", "1", "--check").told["programs"][0]["why"])
    assert "no entry of them that says its arguments is there any more" in gone
