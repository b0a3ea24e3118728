"""Guards of functions that JAX traces: recorded in one process, checked in others."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Program

pytest.importorskip("jax")

PROGRAM = """
import functools, json, os, sys, time
import jax, jax.numpy as jnp
from rewarm.guards import Guards, NotGuardableError, Recorder, Rules, check, guards_of, root_digest
from rewarm.jax_adapter.jax_values import companions, reducers

what, file, change = sys.argv[1:4]
SCALE = 2.0
MODE = 1.0

@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w) * SCALE

@jax.custom_vjp
def f(x):
    return jnp.sin(x)

f.defvjp(lambda x: (f(x), x), lambda kept, g: (g * jnp.cos(kept),))

@functools.lru_cache
def width(n):
    return n * 2

def body(carry, x):
    return carry * MODE + x, carry

class Model:
    def __init__(self):
        self.table = jnp.arange(4.0)
    def loss(self, w, x):
        for _ in range(3):
            x = layer(w, x) + self.table
        carry, _ = jax.lax.scan(body, x[0], x)
        return f(carry).sum() / width(3)
    def report(self):
        return time.time()

model = Model()

def step(w, x):
    value, grad = jax.value_and_grad(model.loss)(w, x)
    return w - 0.1 * grad, value

@jax.jit
def from_environment(x):
    return x * float(os.environ.get("SOME", 1))

def kept(w, x):
    return from_environment(w)

rules = Rules(reducers(), companions)
arguments = jnp.ones((4, 4)), jnp.ones((2, 4))

def record(function):
    with Recorder() as recorder:
        jax.jit(function).trace(*arguments).lower()
    return guards_of(function, recorder.seen, rules)

if what == "record":
    # Traced before: what JAX keeps hides code from the recording.
    jax.jit(model.loss).trace(*arguments)
    from_environment(arguments[0])
    before = root_digest(step, rules)
    guards = record(step)
    assert root_digest(step, rules) == before
    assert check(step, guards, rules) == []
    json.dump(guards.plain(), open(file, "w"))
    try:
        record(kept)
        refused = ""
    except NotGuardableError as error:
        refused = str(error)
    print(json.dumps({"digest": guards.digest, "refused": refused}))
else:
    guards = Guards.of_plain(json.load(open(file)))
    exec(change)
    start = time.perf_counter()
    changes = check(step, guards, rules)
    took = time.perf_counter() - start
    print(json.dumps({"changes": [change.what for change in changes], "took": took}))
"""

CHANGES = {
    "SCALE = 3.0": "the value of SCALE",
    "MODE = 3.0": "the value of MODE",
    "model.table = jnp.arange(4.0) + 1": "the value of model",
    "f.defvjp(lambda x: (f(x), x), lambda kept, g: (g,))": "<lambda>",
    "layer = jax.jit(lambda w, x: x @ w)": "<lambda>",
    "width = lambda n: n": "the value of width",
    "import jax._src.lax.lax as lax; lax.add = lax.mul": "jax._src.lax.lax.add",
}


@pytest.mark.contract
def test_a_train_step(program: Program, tmp_path: Path) -> None:
    file = str(tmp_path / "guards.json")
    recorded = program(PROGRAM, "record", file, "", PYTHONHASHSEED="1").json
    again = program(PROGRAM, "record", str(tmp_path / "other.json"), "", PYTHONHASHSEED="2").json
    assert recorded["digest"] == again["digest"]
    # It ran before the recording, and JAX kept what came of it.
    assert "results are kept" in recorded["refused"]
    moved = PROGRAM.replace("class Model:", "\n# said\nclass Model:")
    same = program(moved, "check", file, "", PYTHONHASHSEED="3").json
    assert same["changes"] == []
    # A twentieth of a second is usual; a busy machine must not fail this.
    assert same["took"] < 1.0


@pytest.mark.contract
def test_changes_to_a_train_step(program: Program, tmp_path: Path) -> None:
    file = str(tmp_path / "guards.json")
    program(PROGRAM, "record", file, "")
    for change, words in CHANGES.items():
        told = program(PROGRAM, "check", file, change).json["changes"]
        assert any(words in one for one in told), (change, told)
