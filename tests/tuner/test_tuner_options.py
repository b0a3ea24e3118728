"""`rewarm.tune_options`: its options are real, what wins is applied at later starts, and can be undone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import cuda_compilers
import tpu_compilers
from conftest import Program, clean_environment, entries, execute
from rewarm.jax_adapter.tuner.option_spaces import PLATFORMS, options_of

# With an option that makes the compiler do far less, the default is far slower: a winner is certain.
PROGRAM = """
import json, sys
import numpy as np
import jax, jax.numpy as jnp
import rewarm

def f(x):
    def step(c, _):
        return jnp.tanh(c) * 1.01 + c[::-1] * 0.5, None
    return jax.lax.scan(step, x, None, length=50)[0].sum()

g = jax.jit(f, compiler_options={"xla_backend_optimization_level": 0} if "slow" in sys.argv else None)

if __name__ == "__main__":
    x = jnp.asarray(np.random.default_rng(0).standard_normal(4096), jnp.float32)
    told = {}
    if "tune" in sys.argv:
        tuned = rewarm.tune_options(g, x, space={"xla_backend_optimization_level": [0, 3]}, budget=25, seed=1,
                                    tolerance=1e-3)
        told |= {"winner": tuned.winner, "default": tuned.record.default, "measured": tuned.measured,
                 "flags": tuned.record.flags, "trials": len(tuned.record.trials)}
    if "pin" in sys.argv:   # as if it had won: what is applied does not hang on this machine's speed
        from dataclasses import replace
        from rewarm.jax_adapter import activation
        from rewarm.jax_adapter.tuner import lookups
        from rewarm.tunables.records import Comparison
        winner = {"xla_backend_optimization_level": int(sys.argv[-1])}
        record = replace(tuned.record, winner=winner, when=tuned.record.when + 1, flags=(),
                         comparison=Comparison(2.0, 1.9, 2.1, "faster", 0.95, 32))
        assert lookups.keep(activation.session(), record, 1.0)
    if "disable" in sys.argv:
        rewarm.disable()
    told["sum"] = float(g(x))
    told["events"] = [[e.outcome, e.options] for e in rewarm.events() if e.program == "jit_f"]
    told["tuned"] = dict(rewarm.stats().tuned)
    print(json.dumps(told))
"""
APPLIED = "xla_backend_optimization_level=1"


@pytest.mark.contract
def test_a_winner_is_applied_at_later_starts_and_can_be_undone(program: Program, cache: Path) -> None:
    on = {"REWARM_DIR": str(cache)}
    plain = program(PROGRAM, **on).json
    assert plain["events"] == [["miss", ""]]
    first = program(PROGRAM, "tune", "pin", "1", **on).json
    assert first["measured"]
    assert first["default"] == {"xla_backend_optimization_level": None}
    assert "not isolated" not in first["flags"]
    assert first["events"][-1] == ["miss", APPLIED]
    later = program(PROGRAM, **on).json
    assert later["events"] == [["hit", APPLIED]]
    assert later["tuned"] == {"options": 1}
    assert later["sum"] == pytest.approx(plain["sum"], rel=1e-4)
    without = program(PROGRAM, REWARM_TUNED_OPTIONS="0", **on).json
    assert without["events"] == [["hit", ""]]
    assert without["tuned"] == {}
    assert program(PROGRAM, "disable", **on).json["events"] == []
    # What a program says itself wins, and makes another program of it.
    assert program(PROGRAM, "slow", **on).json["events"] == [["miss", ""]]


def test_what_is_kept_is_not_measured_again(program: Program, cache: Path) -> None:
    first = program(PROGRAM, "tune", REWARM_DIR=str(cache)).json
    second = program(PROGRAM, "tune", REWARM_DIR=str(cache)).json
    assert first["measured"]
    assert first["trials"] >= 2
    assert not second["measured"]
    assert second["winner"] == first["winner"]


def test_an_option_that_the_compiler_does_not_bear_is_left_away(program: Program, cache: Path) -> None:
    """As after an update of XLA that nobody noticed: the program runs, and one line says so."""
    broken = PROGRAM.replace(
        'winner = {"xla_backend_optimization_level": int(sys.argv[-1])}', 'winner = {"xla_no_such_option": True}'
    )
    program(broken, "tune", "pin", "1", REWARM_DIR=str(cache))
    done = program(PROGRAM, REWARM_DIR=str(cache))
    assert done.json["events"][-1] == ["hit", ""] or done.json["events"][-1] == ["miss", ""]
    assert any("does not compile with the options that were tuned for it" in line for line in done.warnings()), done.err


ACCEPTED = """
import json, sys
import jax, jax.numpy as jnp
import rewarm
from rewarm.errors import RewarmError

asked = json.loads(sys.argv[1])
jitted = jax.jit(lambda x: (jnp.tanh(x @ x)).sum())
x = jnp.ones((64, 64))
lowered = jitted.lower(x)

def key(options):
    return rewarm.key_of(jax.jit(lambda x: (jnp.tanh(x @ x)).sum(), compiler_options=options), x)

told = {}
plain = key(None)
for name, values in asked:
    for value in values:
        try:
            lowered.compile(compiler_options={name: value})
            told[f"{name}={value}"] = "in the key" if key({name: value}) != plain else "not in the key"
        except Exception as error:
            told[f"{name}={value}"] = str(error)
print(json.dumps(told))
"""


@pytest.mark.contract
def test_each_option_for_cpu_is_taken_by_the_compiler_and_counts_in_the_key(program: Program) -> None:
    asked = [[one.name, list(one.values)] for one in options_of("cpu", numerics=True)]
    told = program(ACCEPTED, json.dumps([*asked, ["xla_no_such_option", [1]]])).json
    wrong = told.pop("xla_no_such_option=1")
    assert "No such compile option" in wrong
    assert set(told.values()) == {"in the key"}, told


DESCRIBED = """
import json, sys
import jax, jax.numpy as jnp
from jax.sharding import SingleDeviceSharding
from rewarm import targets
from rewarm.jax_adapter import described
from rewarm.jax_adapter.tuner.ahead import compile_described

target = targets.named(sys.argv[1])
device = described.devices(target, target.topology(sys.argv[2]))[0]
x = jax.ShapeDtypeStruct((128, 128), jnp.float32, sharding=SingleDeviceSharding(device))
lowered = jax.jit(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=4)[0].sum()).lower(x)
told = {}
for name, values in json.loads(sys.argv[3]):
    for value in values:
        try:
            compile_described(lowered, {name: value})
            told[f"{name}={value}"] = "taken"
        except Exception as error:
            told[f"{name}={value}"] = str(error)
print(json.dumps(told))
"""


def _told(environment: dict[str, str], folder: Path, platform: str, *where: str) -> dict[str, Any]:
    asked = [[one.name, list(one.values)] for one in PLATFORMS[platform]] + [["xla_no_such_option", [1]]]
    path = folder / "described.py"
    path.write_text(DESCRIBED)
    command = [sys.executable, "-W", "ignore", str(path), *where, json.dumps(asked)]
    done = execute(command, env=environment, cwd=folder)
    assert done.code == 0, done.err[-3000:]
    told: dict[str, Any] = done.json
    return told


@pytest.mark.contract
def test_each_option_for_gpus_is_taken_by_the_compiler(tmp_path: Path) -> None:
    told = _told(cuda_compilers.wanted().environment(), tmp_path, "gpu", "h100", "1x1x1")
    assert "No such compile option" in told.pop("xla_no_such_option=1")
    assert set(told.values()) == {"taken"}, told


@pytest.mark.contract
def test_each_option_for_tpus_is_taken_by_the_compiler(tmp_path: Path) -> None:
    told = _told(tpu_compilers.wanted().environment(), tmp_path, "tpu", "v5e", "2x2")
    assert "No such compile option" in told.pop("xla_no_such_option=1")
    assert set(told.values()) == {"taken"}, told


def test_each_option_has_a_reason_and_a_source() -> None:
    for options in PLATFORMS.values():
        for one in options:
            assert len(one.reason) > 20
            assert one.source
            assert None not in one.values
            assert not any(word in one.name for word in ("experimental", "unsupported", "autotune"))
        assert len({one.name for one in options}) == len(options)


def test_options_leave_no_entries_where_nothing_was_tuned(program: Program, cache: Path) -> None:
    program(PROGRAM, REWARM_DIR=str(cache))
    assert not (cache / "tuned").exists()
    assert entries(cache)
    assert clean_environment()["JAX_PLATFORMS"] == "cpu"
