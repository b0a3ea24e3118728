"""`rewarm.jit` beside `jax.jit`, kind of call by kind of call, over three starts: what a user sees is the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jitted_kinds
import pytest

from conftest import clean_environment, execute

pytestmark = pytest.mark.contract

_PROGRAM = Path(__file__).with_name("jitted_kinds.py")

# Calls inside of transformations are JAX's own; callbacks are there only after a trace; an error is no program.
_NEVER = {"transformed": 0, "raises": 0, "wrong_argument": 0}
_TRACED = {"pure_callback": 1, "debug_print": 1}

Starts = list[dict[str, Any]]


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Starts:
    folder = tmp_path_factory.mktemp("jitted")
    runs = []
    for _ in range(3):
        environment = clean_environment(REWARM_DIR=str(folder / "cache"))
        done = execute([sys.executable, str(_PROGRAM)], env=environment, cwd=folder)
        assert done.code == 0, done.err[-4000:]
        runs.append(done.json)
    return runs


@pytest.mark.parametrize("kind", jitted_kinds.KINDS)
def test_it_gives_what_jax_gives(starts: Starts, kind: str) -> None:
    for start in starts:
        assert start[kind]["seen"] == start[kind]["of_jax"]


@pytest.mark.parametrize("kind", jitted_kinds.KINDS)
def test_the_third_start_traces_nothing_that_two_have_traced_alike(starts: Starts, kind: str) -> None:
    outcomes = [_own(start[kind]["outcome"]) for start in starts]
    if kind in _NEVER:
        assert outcomes == [{}, {}, {}]
    elif kind in _TRACED:
        assert outcomes == [{"traced": _TRACED[kind]}] * 3
    else:
        count = outcomes[0]["recorded"]
        assert outcomes == [{"recorded": count}, {"proved": count}, {"skipped": count}]


def test_no_proof_fails(starts: Starts) -> None:
    assert not any("proof different" in one["outcome"] for start in starts for one in start.values())


def _own(outcome: dict[str, int]) -> dict[str, int]:
    """Without the proofs, which come when they come."""
    return {name: count for name, count in outcome.items() if not name.startswith("proof")}
