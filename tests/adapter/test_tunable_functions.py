"""`rewarm.tunable` and `rewarm.tune` in fresh processes: what is kept, who finds it, and what becomes of a change."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from conftest import Program, Run, clean_environment

# The sum is worked out once for each chunk, of which a larger size makes fewer: no load hides a factor of 64.
KERNEL = """
import jax, jax.numpy as jnp

def summed(x, *, chunk):
    begin = jnp.zeros(chunk, jnp.float16).sum().astype(jnp.float32)
    return jax.lax.fori_loop(0, 4096 // chunk, lambda _, total: jnp.sum(jnp.tanh(x + 0 * total)), begin)
"""
SPACE = """
import rewarm
chunked = rewarm.tunable(summed, space={"chunk": lambda x: [c for c in CHUNKS if x.shape[0] >= c]},
                         default={"chunk": 64}, nearest=NEAREST)
"""
PROGRAM = """
import json, sys
import numpy as np
import jax, jax.numpy as jnp
import rewarm
sys.path.insert(0, sys.argv[1])
from kernel import chunked

def array(size):
    return jnp.asarray(np.random.default_rng(0).standard_normal(size), jnp.float32)

if __name__ == "__main__":
    what, size = sys.argv[2], int(sys.argv[3])
    x = array(size)
    if what == "tune":
        tuned = rewarm.tune(chunked, None, x, budget=20)
        times = {json.dumps(dict(trial.config)): trial.when for trial in tuned.record.trials}
        print(json.dumps({"winner": tuned.winner, "measured": tuned.measured, "not_kept": tuned.not_kept,
                          "ratio": tuned.ratio, "times": times, "verdict": tuned.record.comparison.verdict}))
    else:
        result = jax.jit(chunked)(x)
        text = jax.jit(chunked).lower(x).as_text()
        taken = [c for c in (64, 128, 4096) if f"tensor<{c}xf16>" in text]
        print(json.dumps({"sum": float(result), "tuned": dict(rewarm.stats().tuned), "taken": taken}))
"""


def written(folder: Path, chunks: tuple[int, ...] = (64, 4096), nearest: bool = False, kernel: str = KERNEL) -> str:
    """A folder with the module that has the function."""
    space = SPACE.replace("CHUNKS", repr(chunks)).replace("NEAREST", repr(nearest))
    (folder / "kernel.py").write_text(kernel + space)
    return str(folder)


def ran(program: Program, folder: str, cache: Path, what: str, size: int = 1 << 16, **env: str) -> tuple[Any, Run]:
    done = program(PROGRAM, folder, what, str(size), REWARM_DIR=str(cache), **env)
    return done.json, done


@pytest.mark.contract
def test_a_second_process_tunes_nothing_and_applies_the_winner(program: Program, cache: Path, tmp_path: Path) -> None:
    folder = written(tmp_path)
    before, said = ran(program, folder, cache, "use")
    assert before["taken"] == [64]
    assert before["tuned"]["default"] >= 1
    lines = [line for line in said.warnings() if "is not tuned" in line]
    assert len(lines) == 1, said.err
    assert "kernel:summed is not tuned for f32[65536] here" in lines[0]

    first, _ = ran(program, folder, cache, "tune")
    assert first["measured"]
    assert first["not_kept"] == ""
    assert first["winner"] == {"chunk": 4096}
    assert first["verdict"] == "faster"
    assert first["ratio"] > 2

    second, _ = ran(program, folder, cache, "tune")
    assert second == {**first, "measured": False}

    after, said = ran(program, folder, cache, "use")
    assert after["taken"] == [4096]
    assert set(after["tuned"]) == {"winner"}
    assert after["sum"] == pytest.approx(before["sum"], rel=1e-4)
    assert said.warnings() == []


def test_a_candidate_that_was_added_is_timed_alone(program: Program, cache: Path, tmp_path: Path) -> None:
    first, _ = ran(program, written(tmp_path), cache, "tune")
    second, _ = ran(program, written(tmp_path, (64, 128, 4096)), cache, "tune")
    assert second["measured"]
    assert second["winner"] == {"chunk": 4096}
    fresh = {config for config, when in second["times"].items() if when != first["times"].get(config)}
    # The default is in every round, and the winner is timed again beside what is new.
    assert json.dumps({"chunk": 128}) in fresh


def test_obsolescence_is_named(program: Program, cache: Path, tmp_path: Path) -> None:
    folder = written(tmp_path)
    ran(program, folder, cache, "tune")
    written(tmp_path, kernel=KERNEL.replace("jnp.tanh", "jnp.sin"))
    used, said = ran(program, folder, cache, "use")
    assert used["taken"] == [64]
    assert any("the kernel changed" in line for line in said.warnings()), said.err


def test_near_shapes_are_used_where_that_is_allowed(program: Program, cache: Path, tmp_path: Path) -> None:
    folder = written(tmp_path)
    ran(program, folder, cache, "tune")
    assert ran(program, folder, cache, "use", 1 << 17)[0]["taken"] == [64]
    written(tmp_path, nearest=True)
    used, said = ran(program, folder, cache, "use", 1 << 17)
    assert used["taken"] == [4096]
    assert any("won for f32[65536]" in line for line in said.warnings()), said.err


def test_untuned_calls_are_errors_where_that_is_asked_for(program: Program, cache: Path, tmp_path: Path) -> None:
    folder = written(tmp_path)
    for directory in ({"REWARM_DIR": str(cache)}, {}):
        done = program(PROGRAM, folder, "use", "65536", ok=False, REWARM_UNTUNED="error", **directory)
        assert done.code != 0
        assert "UntunedError: kernel:summed is not tuned for f32[65536] here" in done.err
    ran(program, folder, cache, "tune")
    assert ran(program, folder, cache, "use", REWARM_UNTUNED="error")[0]["taken"] == [4096]


def test_what_was_measured_before_ctrl_c_is_kept(program: Program, cache: Path, tmp_path: Path) -> None:
    folder = written(tmp_path, (64, 128, 256, 512, 1024, 2048, 4096))
    path = tmp_path / "interrupted.py"
    path.write_text(textwrap.dedent(PROGRAM).replace("budget=20", "budget=200, effect=0.0, progress=True"))
    command = [sys.executable, str(path), folder, "tune", str(1 << 18)]
    environment = clean_environment(REWARM_DIR=str(cache))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if ", best " in line:
                break
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err
    look = """
        import json, sys
        from pathlib import Path
        from rewarm.store import LocalStore
        from rewarm.tunables.keeping import Keeping
        found = Keeping(LocalStore(Path(sys.argv[1]))).all()
        print(json.dumps([[record.winner, len(record.trials), list(record.flags)] for record in found]))
    """
    ((winner, trials, flags),) = program(look, str(cache)).json
    assert winner is None
    assert trials >= 1
    assert "interrupted" in flags


INSIDE = """
import json, sys, warnings
import numpy as np
import jax, jax.numpy as jnp
import rewarm
from jax.sharding import Mesh, PartitionSpec as P

seen = []

@rewarm.tunable(space={"twice": [True, False], "block": [1, 2, 4]}, default={"twice": True, "block": 2},
                constraints=lambda block, x: x.shape[0] % block == 0)
def f(x, *, twice, block):
    seen.append((x.shape, twice, block))
    return (x * 2 if twice else x + x).reshape(block, -1).sum()

x = jnp.arange(8.0)
told = {}
told["plain"] = float(f(x))
told["jit"] = float(jax.jit(f)(x))
told["vmap"] = [float(one) for one in jax.vmap(f)(jnp.stack([x, x]))]
told["grad"] = [float(one) for one in jax.grad(f)(x)]
mesh = Mesh(np.array(jax.devices()), ("d",))
mapped = jax.shard_map(lambda x: f(x)[None], mesh=mesh, in_specs=P("d"), out_specs=P("d"))
told["shard_map"] = float(jax.jit(mapped)(x)[0])
told["shapes"] = sorted({shape for shape, _, _ in seen})
told["given"] = float(f(x, block=4))
told["last"] = seen[-1][1:]
errors = {}
for name, call in {"value": lambda: f(x, block=3), "constraint": lambda: f(jnp.arange(6.0), block=4),
                   "space": lambda: rewarm.tunable(lambda x, *, a: x, space={"b": [1]}),
                   "default": lambda: rewarm.tunable(lambda x, *, a: x, space={"a": [1]}, default={"a": 2})(x),
                   "given": lambda: rewarm.tune(f, None, x, block=2),
                   "no space": lambda: rewarm.tune(lambda x: x, None, x)}.items():
    try:
        call()
    except rewarm.SpaceError as error:
        errors[name] = str(error)
told["errors"] = errors
print(json.dumps(told))
"""


@pytest.mark.contract
def test_the_choice_is_made_inside_of_transformations_by_the_shapes_that_the_function_sees(
    program: Program, cache: Path
) -> None:
    said = program(INSIDE, REWARM_DIR=str(cache)).json
    assert said["plain"] == said["jit"] == said["shard_map"] == 56.0
    assert said["vmap"] == [56.0, 56.0]
    assert said["grad"] == [2.0] * 8
    assert said["shapes"] == [[8]]
    assert said["last"] == [True, 4]
    errors = said["errors"]
    assert "block=3 is not in the space; block is one of 1, 2, 4" in errors["value"]
    assert "breaks the constraint" in errors["constraint"]
    assert "has no keyword 'b'; it has" in errors["space"]
    assert "a is one of 1" in errors["default"]
    assert "'block' is a parameter of the space" in errors["given"]
    assert "needs a space" in errors["no space"]


CLOSURE = """
import json
import jax.numpy as jnp
import rewarm

def made(scale):
    def f(x, *, twice):
        return x * scale if twice else x + x * (scale - 1)
    return f

tuned = rewarm.tune(made(2.0), {"twice": [True, False]}, jnp.arange(8.0), budget=5)
print(json.dumps([list(tuned.record.flags), tuned.record.environment["why here"], len(tuned.record.trials)]))
"""


def test_a_closure_is_measured_in_its_own_process_and_the_record_says_so(program: Program, cache: Path) -> None:
    flags, why, trials = program(CLOSURE, REWARM_DIR=str(cache)).json
    assert "not isolated" in flags
    assert "closure" in why
    assert trials >= 1


JITTED = """
import json, sys
import numpy as np
import jax, jax.numpy as jnp
import rewarm
sys.path.insert(0, sys.argv[1])
from kernel import chunked

@rewarm.jit
def f(x):
    return chunked(x) * 2

x = jnp.asarray(np.random.default_rng(0).standard_normal(1 << 16), jnp.float32)
print(json.dumps([float(f(x)), dict(rewarm.stats().jitted)]))
"""


@pytest.mark.contract
def test_a_start_without_a_trace_is_traced_again_for_a_new_winner(
    program: Program, cache: Path, tmp_path: Path
) -> None:
    folder = written(tmp_path)

    def start(**env: str) -> tuple[float, dict[str, int], str]:
        done = program(JITTED, folder, REWARM_DIR=str(cache), **env)
        return (*done.json, done.err)

    ways = [start()[1] for _ in range(3)]
    assert [next(iter(way)) for way in ways] == ["recorded", "proved", "skipped"]
    ran(program, folder, cache, "tune")
    _, way, err = start(REWARM_EXPLAIN="1")
    assert way == {"recorded": 1}, err
    assert 'the tuned choice of kernel:summed: untuned -> {"chunk":4096}' in err
    assert [next(iter(start()[1])) for _ in range(2)] == ["proved", "skipped"]
