"""Children measure the very function that the process has: another one of its name is found out, and measured here."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Program

# What is faster gives the same arrays, in another tree or with a weak type.
FORMS = """
import json, sys
import jax, jax.numpy as jnp
import rewarm

def long(x):
    return jax.lax.fori_loop(0, 300, lambda _, c: jnp.sort(c), x)

@rewarm.tunable(space={"variant": ["slow", "quick"]})
def tree(x, *, variant):
    return {"a": x, "b": x + 0 * long(x)} if variant == "slow" else (x, x)

@rewarm.tunable(space={"variant": ["slow", "quick"]})
def weak(x, *, variant):
    return jnp.float32(2) + 0 * long(x).sum() if variant == "slow" else 2.0

if __name__ == "__main__":
    told = {}
    for one in (tree, weak):
        tuned = rewarm.tune(one, None, jnp.arange(1024.0), budget=20)
        told[one.__name__] = [tuned.winner["variant"], *((t.outcome, t.reason) for t in tuned.record.trials)]
    print(json.dumps(told))
"""


def test_what_gives_results_of_another_form_does_not_win(program: Program) -> None:
    told = program(FORMS).json
    assert told["tree"][0] == told["weak"][0] == "slow"
    assert "a tree PyTreeDef((*, *)) in place of PyTreeDef({'a': *, 'b': *})" in told["tree"][1][1]
    assert "a weak type in place of a strong one" in told["weak"][1][1]


# A module of which the process has another one than whoever imports it: a global was set since.
MODULE = """
import sys
import jax, jax.numpy as jnp
import rewarm

TURNS = int(sys.argv[-1])

def helper(x):
    return jnp.tanh(x)

@jax.jit
def jitted(x):
    for _ in range(TURNS):
        x = helper(x)
    return x.sum()

@jax.jit
def later(x):
    return jitted(x) * TURNS

@rewarm.tunable(space={"n": [1, 2]})
def chosen(x, *, n):
    return helper(x) * n / n

@rewarm.tunable(space={"n": [1, 2]})
def opaque(x, *, n):
    return helper(x) * n / n * len(sys.argv[-1])
"""
SET = """
import json, sys
sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp
import rewarm
import module

def why(tuned):
    return tuned.record.environment["why here"]

if __name__ == "__main__":
    x = jnp.ones(64)
    options = {"space": {"xla_backend_optimization_level": [2]}, "budget": 30}
    told = {"argv": why(rewarm.tune_options(module.jitted, x, **options))}
    told["opaque"] = why(rewarm.tune(module.opaque, None, x, budget=30))
    module.TURNS += 1
    told["global"] = why(rewarm.tune_options(module.later, x, **options))
    jax.jit(module.chosen)(x)
    module.helper = jnp.sin
    tuned = rewarm.tune(module.chosen, None, x, budget=30)
    told["helper"] = [why(tuned), tuned.record.case.content]
    lowered = jax.jit(lambda x: module.chosen(x)).lower(x)
    told["served"] = [dict(rewarm.stats().tuned), "sine" in lowered.as_text()]
    module.helper = jnp.tanh
    jax.jit(lambda x: module.chosen(x)).lower(x)
    told["back"] = dict(rewarm.stats().tuned)
    tuned = rewarm.tune(module.chosen, None, x, budget=30)
    told["again"] = tuned.record.case.content
    print(json.dumps(told))
"""


def test_a_function_that_is_another_one_in_a_child_is_measured_here(
    program: Program, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    told = program(SET, str(tmp_path), "31", REWARM_DIR=str(cache)).json
    # A child has the arguments of the command line, and so the same module.
    assert told["argv"] == ""
    assert told["opaque"] == ""
    assert told["global"] == "the function is another one when it is read in another process"
    assert "another function when it is read in another process" in told["helper"][0]
    # What the content is, is asked when it counts, so the helper of before and that of now have cases of their own.
    assert told["helper"][1] != told["again"]
    assert told["served"][0].get("winner") == 1
    assert told["served"][1]
    assert told["back"].get("winner") == 1


@pytest.mark.parametrize("how", ["-c", "stdin"])
def test_what_lies_in_the_working_directory_is_found_by_a_child(tmp_path: Path, cache: Path, how: str) -> None:
    import subprocess
    import sys

    from conftest import clean_environment

    (tmp_path / "module.py").write_text(MODULE.replace("int(sys.argv[-1])", "1"))
    text = """
import jax.numpy as jnp, rewarm, module
print(repr(rewarm.tune(module.chosen, None, jnp.ones(8), budget=30).record.environment["why here"]))
"""
    arguments, stdin = (["-c", text], None) if how == "-c" else (["-"], text)
    done = subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        cwd=tmp_path,
        env=clean_environment(REWARM="1", REWARM_DIR=str(cache)),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.strip() == "''", done.stdout + done.stderr
