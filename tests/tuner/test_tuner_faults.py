"""Planted faults: candidates that end their process, hang, take all memory, are wrong, or are fast for a while alone;
and machines that are busy. None wins, none ends the session, all are named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Program

# Variants of one function. The default sleeps, so that a good candidate is faster beyond any noise; what is planted is
# faster still. Their Python cannot be followed (it calls the system), so nothing of this is kept.
FAULTY = """
import os, signal, sys, time, json
import numpy as np
import jax, jax.numpy as jnp
import rewarm

calls = [0]

def sleeping(seconds):
    def wait(value):
        time.sleep(seconds)
        return value
    return wait

def through(wait, x):
    return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * 2

def slow(x):
    return through(sleeping(0.02), x)

def good(x):
    return through(sleeping(0.005), x)

def ends_with_signal(x):
    def die(value):
        os.kill(os.getpid(), signal.SIGSEGV)
        return value
    return through(die, x)

def ends_with_code(x):
    def leave(value):
        os._exit(7)
    return through(leave, x)

def hangs(x):
    def hang(value):
        while True:
            time.sleep(1)
    return through(hang, x)

def hangs_in_xla(x):
    return jax.lax.while_loop(lambda c: c[0] >= 0, lambda c: ((c[0] + 1) & 1023, jnp.sin(c[1])), (0, x))[1]

def takes_memory(x):
    return x * 2 + jnp.cumsum(jnp.arange(500_000_000, dtype=jnp.float32) * x[0])[::1000].min() * 0

def takes_memory_in_python(x):
    def take(value):
        held = []
        while True:
            held.append(np.ones(1 << 24))
        return value
    return through(take, x)

def wrong(x):
    return x * 2.001

def wrong_on_some(x):
    return x * 2 + (x[0] < x[1]) * 0.1

def raises(x):
    raise RuntimeError("this candidate cannot be traced")

def fast_when_cold(x):
    def wait(value):
        calls[0] += 1
        time.sleep(0.001 if calls[0] < 12 else 0.05)
        return value
    return through(wait, x)

VARIANTS = [slow, good, ends_with_signal, ends_with_code, hangs, hangs_in_xla, takes_memory, takes_memory_in_python,
            wrong, wrong_on_some, raises, fast_when_cold]

def f(x, *, variant):
    return variant(x)

chosen = rewarm.tunable(f, space={"variant": VARIANTS}, default={"variant": slow})
"""

SESSION = """
if __name__ == "__main__":
    x = jnp.asarray(np.random.default_rng(0).standard_normal(8) + 3, jnp.float32)
    tuned = rewarm.tune(chosen, None, x, budget=120, memory=700 << 20, patience=12)
    outcomes = {trial.config["variant"]: (str(trial.outcome), trial.reason) for trial in tuned.record.trials}
    print(json.dumps({"winner": tuned.winner["variant"], "outcomes": outcomes, "flags": tuned.record.flags,
                      "shown": tuned.show(), "verdict": tuned.record.comparison.verdict}))
"""


def test_no_planted_fault_wins_or_ends_the_session(program: Program) -> None:
    said = program(FAULTY + SESSION).json
    outcomes = said["outcomes"]
    assert said["winner"] == "good"
    assert said["verdict"] == "faster"
    assert "not isolated" not in said["flags"]
    assert outcomes["ends_with_signal"][0] == "crashed"
    assert "SIGSEGV in its first call" in outcomes["ends_with_signal"][1]
    assert outcomes["ends_with_code"][0] == "crashed"
    assert "exit code 7" in outcomes["ends_with_code"][1]
    for name in ("hangs", "hangs_in_xla"):
        assert outcomes[name][0] == "hung"
        assert "does not come back from its first call" in outcomes[name][1]
    for name in ("takes_memory", "takes_memory_in_python"):
        assert outcomes[name][0] == "no memory", outcomes[name]
    assert outcomes["wrong"][0] == "wrong"
    assert "differs by" in outcomes["wrong"][1]
    assert outcomes["wrong_on_some"][0] == "wrong"
    assert outcomes["raises"] == ["infeasible", "RuntimeError: this candidate cannot be traced"]
    # Each is named where people look.
    assert all(name in said["shown"] for name in outcomes)


COLD = """
VARIANTS[:] = [slow, fast_when_cold]

if __name__ == "__main__":
    x = jnp.ones(8, jnp.float32) * 3
    tuned = rewarm.tune(chosen, None, x, budget=30, isolate=sys.argv[1] == "child")
    print(json.dumps([tuned.winner["variant"], tuned.record.flags, tuned.not_kept]))
"""


@pytest.mark.parametrize("where", ["child", pytest.param("here", marks=pytest.mark.campaign)])
def test_what_is_fast_for_the_first_calls_alone_does_not_win(program: Program, where: str) -> None:
    winner, flags, not_kept = program(FAULTY + COLD, where).json
    assert winner == "slow"
    assert ("not isolated" in flags) == (where == "here")
    assert not_kept


@pytest.fixture
def busy() -> Iterator[None]:
    """Other processes compute on every processor."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        yield
    finally:
        for one in burning:
            one.kill()
            one.wait()


SAME = """
import json, sys
import numpy as np
import jax, jax.numpy as jnp
import rewarm

# Two programs with the same work: nothing is to be won.
def f(x, *, order):
    return (x * 2 + 1 if order == "this" else 1 + 2 * x).sum() if order != "split" else jnp.sum(x * 2 + 1)

chosen = rewarm.tunable(f, space={"order": ["this", "other", "split"]})

if __name__ == "__main__":
    x = jnp.asarray(np.random.default_rng(0).standard_normal(100_000), jnp.float32)
    try:
        tuned = rewarm.tune(chosen, None, x, budget=12, effect=0.05, strict=sys.argv[1] == "strict")
    except rewarm.RewarmError as error:
        print(json.dumps([type(error).__name__, str(error)]))
    else:
        print(json.dumps([tuned.winner["order"], list(tuned.record.flags), tuned.record.environment]))
"""


def test_on_a_busy_machine_the_default_stays_and_the_session_is_flagged(
    program: Program, cache: Path, busy: None
) -> None:
    winner, flags, environment = program(SAME, "flag", REWARM_DIR=str(cache)).json
    assert winner == "this"
    assert any(flag.startswith("noisy") for flag in flags)
    assert environment["others"] > 0.2
    assert environment["load"] is not None
    assert environment["clock"] < 1e-4


def test_a_noisy_session_is_refused_where_that_is_asked_for(program: Program, cache: Path, busy: None) -> None:
    name, words = program(SAME, "strict", REWARM_DIR=str(cache)).json
    assert name == "NoisyError"
    assert "No winner is kept" in words
