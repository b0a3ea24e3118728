"""Calls of the tuner: inputs, donated arguments, budgets, Optuna, a space that changed; and whose winner is taken."""

from __future__ import annotations

from pathlib import Path

from conftest import Program, entries
from rewarm.sharing.tuned import KIND
from rewarm.store.files import header_of
from shared_remotes import Machine

# The order of magnitudes is certain on any machine: the default does its work a hundred times.
KERNEL = """
import json, sys
import numpy as np
import jax, jax.numpy as jnp
import rewarm
from rewarm.jax_adapter import activation
from rewarm.jax_adapter.tuner import kernels, lookups

def f(x, *, turns):
    return jax.lax.fori_loop(0, turns, lambda _, c: jnp.sort(c), x)

few = rewarm.tunable(f, space={"turns": [100, 1, 2]})

def of(tuned):
    return [tuned.winner["turns"], tuned.measured, "unfinished" in tuned.record.flags]
"""

SESSIONS = (
    KERNEL
    + """
# Differs from the default where values are negative alone.
def positive(x, *, turns):
    return f(x, turns=100) if turns == 100 else f(jnp.abs(x), turns=1)

many = rewarm.tunable(f, space={"turns": lambda x: [100, *range(1, 90)]}, name="many")

def g(x, y):
    return jnp.sort(x * y), y + 1

donating = jax.jit(g, donate_argnums=0)

if __name__ == "__main__":
    x = jnp.asarray(np.random.default_rng(0).standard_normal(512), jnp.float32)
    told = {}
    told["none"] = of(rewarm.tune(few, None, x, budget=0.001))
    told["more"] = of(rewarm.tune(few, None, x, budget=30))
    told["known"] = of(rewarm.tune(few, None, x, budget=0.001))
    tuned = rewarm.tune(many, None, x, budget=30, trials=3)
    told["trials"] = [of(tuned), tuned.record.environment["ended by"], len(tuned.record.trials)]
    told["fewer"] = rewarm.tune(many, None, x, budget=30, trials=2).measured
    tuned = rewarm.tune(many, None, x, budget=30, trials=6, optimiser="optuna")
    told["optuna"] = [of(tuned), len(tuned.record.trials)]
    told["inputs"] = {}
    for name, inputs in {"made": None, "mixed": [(x,), (-x,)], "positive": [(jnp.abs(x),), (jnp.abs(x) * 2,)]}.items():
        # Each a case of its own: of several sessions of one case a quiet one decides, and this machine may be busy.
        tuned = rewarm.tune(positive, {"turns": [100, 1]}, x, budget=30, inputs=inputs, name=name)
        told["inputs"][name] = [tuned.winner["turns"], tuned.record.inputs]
    told["donated"] = []
    for isolate in (True, False):
        tuned = rewarm.tune_options(donating, x, x, space={"xla_backend_optimization_level": [2]}, budget=8, again=True,
                                    isolate=isolate)
        outcomes = sorted({trial.outcome for trial in tuned.record.trials})
        told["donated"].append([outcomes, "not isolated" in tuned.record.flags, x.is_deleted()])
    print(json.dumps(told))
"""
)


def test_budgets_inputs_donated_arguments_and_optuna(program: Program, cache: Path) -> None:
    told = program(SESSIONS, REWARM_DIR=str(cache)).json
    # What a budget had no time for is not decided, and a larger one goes on.
    assert told["none"] == [100, True, True]
    assert told["more"][1:] == [True, False]
    assert told["more"][0] in (1, 2)
    assert told["known"] == [told["more"][0], False, False]
    assert told["trials"][0][0] < 100
    assert told["trials"][1] == "trials"
    assert told["trials"][2] <= 4
    assert not told["fewer"]
    assert told["optuna"][0][1]
    assert told["optuna"][1] > told["trials"][2]
    # The caller's inputs decide which results must be the same.
    assert told["inputs"]["made"] == [100, "the caller's, and shuffled"]
    assert told["inputs"]["mixed"] == [100, "2 sets of the caller's"]
    assert told["inputs"]["positive"] == [1, "2 sets of the caller's"]
    # What the function takes over is a copy, in a child and here.
    assert told["donated"] == [[["timed"], False, False], [["timed"], True, False]]


CHANGED = (
    KERNEL
    + """
if __name__ == "__main__":
    from dataclasses import replace
    x = jnp.ones(512)
    first = rewarm.tune(few, None, x, budget=30)
    session = activation.session()
    quiet = replace(first.record, flags=(), when=first.record.when + 1000)
    assert lookups.keep(session, quiet, 1.0)
    told = [of(first), of(rewarm.tune(few, None, x, budget=30))]
    for space in ({"turns": [100, 3]}, {"turns": [3, 100]}):
        other = rewarm.tunable(f, space=space)
        tuned = rewarm.tune(other, None, x, budget=30)
        kept = session.records().find(tuned.record.case)
        told.append([of(tuned), kept.winner["turns"], kept.default["turns"], of(rewarm.tune(other, None, x))[1]])
    large = rewarm.tunable(f, space={"turns": [3, 100, *range(4, 90)]})
    told.append(rewarm.tune(large, None, x, budget=30, trials=2).measured)
    print(json.dumps(told))
"""
)


def test_a_verdict_for_another_space_or_default_does_not_stand_in_the_way(program: Program, cache: Path) -> None:
    first, known, space, default, large = program(CHANGED, REWARM_DIR=str(cache)).json
    assert first[0] in (1, 2)
    assert known == [first[0], False, False]
    assert space == [[3, True, False], 3, 100, False]
    assert default == [[3, True, False], 3, 3, False]
    assert large


SHARED = (
    KERNEL
    + """
if __name__ == "__main__":
    x = jnp.ones(512)
    if "tune" in sys.argv:
        assert rewarm.tune(few, None, x, budget=30).winner["turns"] < 100
    few(x)
    print(json.dumps(dict(rewarm.stats().tuned)))
"""
)


def test_another_machine_takes_a_winner_whose_signature_it_trusts_and_no_other(
    program: Program, tmp_path: Path
) -> None:
    (tmp_path / "remote").mkdir()
    remote = (tmp_path / "remote").as_uri()
    maker = Machine.named("maker", tmp_path)
    friend = Machine.named("friend", tmp_path, maker)
    stranger = Machine.named("stranger", tmp_path)
    assert program(SHARED, "tune", **maker.env(remote)).json == {"winner": 1}
    assert program(SHARED, **friend.env(remote)).json == {"winner": 1}
    assert program(SHARED, **stranger.env(remote)).json == {"default": 1}
    kinds = [header.kind for path in entries(stranger.cache) if (header := header_of(path)) is not None]
    assert KIND not in kinds
