"""Changes between two starts beside the function: what JAX kept, what the results are made of, who else runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import clean_environment, execute, first

_HEAD = """
import copy, json, os, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
import rewarm
X = np.ones(3, np.float32)
"""
_TAIL = """
end = time.monotonic() + float(os.environ.get("WAIT", "0"))
while time.monotonic() < end and not any(name.startswith("proof") for name in rewarm.stats().jitted):
    time.sleep(0.05)
print(json.dumps([told(), dict(rewarm.stats().jitted)]))
"""


class Starts:
    """Starts of one program file, and what plain `jax.jit` makes of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, text: str, **environment: str) -> tuple[Any, dict[str, int], str]:
        """What `told` returned, what became of the calls, and what was said."""
        path = self._folder / "main.py"
        whole = _HEAD + text.strip("\n") + _TAIL
        if not path.exists() or path.read_text() != whole:  # its date tells that a program is the same
            path.write_text(whole)
        cache = str(self._folder / "cache")
        env = clean_environment(REWARM_DIR=cache, REWARM_STATS="", **environment)
        done = execute([sys.executable, str(path)], env=env, cwd=self._folder)
        assert done.code == 0, done.err[-3000:]
        told, jitted = json.loads(done.out.splitlines()[-1])
        return told, jitted, done.err

    def known(self, text: str, **environment: str) -> None:
        """Two starts, after which a third may skip."""
        assert set(self.run(text, **environment)[1]) == {"recorded"}
        assert set(self.run(text, **environment)[1]) == {"proved"}

    def truth(self, text: str, **environment: str) -> Any:
        """What the program tells with rewarm off."""
        return self.run(text, REWARM="0", **environment)[0]


def _without_proofs(jitted: dict[str, int]) -> dict[str, int]:
    """What became of the calls; on a busy machine a proof may come out between them."""
    return {way: count for way, count in jitted.items() if not way.startswith("proof")}


@pytest.fixture
def starts(tmp_path: Path) -> Starts:
    return Starts(tmp_path)


# What JAX has traced before is not traced again, so nobody would see what it read.
_KEPT = {
    "eval_shape": "jax.eval_shape(step, X); F = rewarm.jit(step)",
    "lower": "F = rewarm.jit(step); F.lower(X)",
    "grad": "F = rewarm.jit(step); jax.grad(lambda x: F(x).sum())(X)",
    "an outer function": "F = rewarm.jit(step); jax.jit(lambda x: step(x) + 1)(X)",
    "a shared body": """
def body(carry, x): return carry * read(), x
def one(x): return jax.lax.scan(body, x, jnp.ones(2))[0]
def two(x): return jax.lax.scan(body, x, jnp.ones(2))[0] + 1
rewarm.jit(one)(X); F = rewarm.jit(two)
""",
    "a shared layer": """
layer = jax.checkpoint(step)
def one(x): return layer(x)
def two(x): return layer(x) + 1
rewarm.jit(one)(X); F = rewarm.jit(two)
""",
}


@pytest.mark.parametrize("kept", first(3, list(_KEPT)))
def test_what_was_read_in_an_earlier_trace_counts(starts: Starts, tmp_path: Path, kept: str) -> None:
    text = f"""
def read(): return float(open({str(tmp_path / "data")!r}).read())
def step(x): return x * read()
{_KEPT[kept].strip()}
def told(): return float(F(X)[0])
"""
    (tmp_path / "data").write_text("2.0")
    starts.known(text)
    _, jitted, _ = starts.run(text)
    assert set(jitted) == {"skipped"}
    (tmp_path / "data").write_text("3.0")
    told, jitted, _ = starts.run(text)
    assert told == starts.truth(text)
    assert "skipped" not in jitted


def test_a_trace_that_jax_has_kept_from_before_a_change_is_not_recorded(starts: Starts) -> None:
    text = """
def step(x): return x * RATE
found = []
for RATE in (2.0, 3.0):
    found.append(float(rewarm.jit(step)(X)[0]))
def told(): return found
"""
    told, jitted, err = starts.run(text)
    assert (told, jitted) == (starts.truth(text), {"recorded": 1, "traced": 1})
    assert "JAX has a trace of it" in err


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_results_hold_the_objects_that_they_held(starts: Starts, name: str) -> None:
    """A function with the name of a method that the traced one calls, which nobody uses, shifts nothing."""
    text = """
from jax.tree_util import register_pytree_node_class
@register_pytree_node_class
class Box:
    def __init__(self, x, fn): self.x, self.fn = x, fn
    def tree_flatten(self): return (self.x,), self.fn
    @classmethod
    def tree_unflatten(cls, fn, children): return cls(*children, fn)
def first(x): return x
def second(x): return x * 2
EXTRA
def step(box): return Box(box.fn(box.x) + box.x.sum() + box.x.mean(), box.fn), first
F = rewarm.jit(lambda box: step(box)[0])
BOX = F(Box(X, second))
def told(): return BOX.fn.__name__, float(BOX.x[0])
"""
    before, after = text.replace("EXTRA", ""), text.replace("EXTRA", f"def {name}(x): return x")
    starts.known(before)
    told, jitted, _ = starts.run(after)
    assert told == starts.truth(after) == ["second", 6.0]
    assert set(jitted) == {"skipped"}


_HIDDEN = "logging.getLogger('hidden').isEnabledFor(10)"
_RESULTS = {
    "tree": f"lambda x: {{'on': x}} if {_HIDDEN} else {{'off': x}}",
    "weak type": f"lambda x: (x, 2.0 if {_HIDDEN} else np.float32(2.0))",
}


@pytest.mark.parametrize("results", _RESULTS)
def test_a_proof_looks_at_tree_and_types_of_the_results(starts: Starts, results: str) -> None:
    text = f"""
import logging; logging.getLogger("hidden").setLevel(int(os.environ["LEVEL"]))
F = rewarm.jit({_RESULTS[results]}, on_mismatch="warn")
def show(): return str(jax.tree.structure(F(X))), [one.weak_type for one in jax.tree.leaves(F(X))]
first = show()
def told(): return show()
"""
    starts.known(text, LEVEL="10")
    told, jitted, _ = starts.run(text, LEVEL="20", WAIT="60")
    assert jitted["proof different"] == 1
    assert told == starts.truth(text, LEVEL="20")
    assert starts.run(text, LEVEL="20")[1] == {"traced": 1}


def test_a_strike_is_not_taken_back(starts: Starts, tmp_path: Path) -> None:
    """Neither by another process whose own proof came out, nor by a record that is made anew of the same guards."""
    text = f"""
import logging; logging.getLogger("hidden").setLevel(int(os.environ["LEVEL"]))
F = rewarm.jit(lambda x: x * 2 if {_HIDDEN} else x * 3, on_mismatch="warn")
def told(): return float(F(X)[0])
told()
"""
    starts.known(text, LEVEL="10")
    assert starts.run(text, LEVEL="20", WAIT="60")[1]["proof different"] == 1
    (state,) = (path for path in tmp_path.glob("cache/traces/*/*.json") if path.name != "last.json")
    state.write_text(json.dumps({"proved": 9, "last": 1e9, "starts": 0, "struck": ""}))
    assert starts.run(text, LEVEL="20")[:2] == (3.0, {"traced": 1})
    for _ in range(2):
        assert "skipped" not in starts.run(text, LEVEL="10", REWARM_SALT="other")[1]
    assert starts.run(text, LEVEL="20", REWARM_SALT="other")[0] == 3.0


def test_a_function_that_uses_what_all_threads_share_is_not_proved_beside_the_program(starts: Starts) -> None:
    text = """
STACK = []
def scaled(x):
    STACK.append(2.0)
    try:
        return x * STACK[-1] * len(STACK)
    finally:
        STACK.pop()
F = rewarm.jit(lambda x: scaled(x))
seen = [float(F(X)[0])]
wrong, end = 0, time.monotonic() + float(os.environ.get("BUSY", "0"))
while time.monotonic() < end:
    wrong += float(scaled(X)[0]) != 2.0
    time.sleep(0.001)
def told(): return seen, wrong
"""
    starts.known(text)
    told, jitted, _ = starts.run(text, BUSY="4")
    assert (told, jitted) == ([[2.0], 0], {"skipped": 1})


def test_where_a_proof_runs_can_be_said(starts: Starts) -> None:
    text = """
F = rewarm.jit(lambda x: x * 2, proof="at the start")
seen = float(F(X)[0])
def told(): return seen
"""
    starts.known(text)
    assert starts.run(text, WAIT="4")[1] == {"skipped": 1}
    with pytest.raises(AssertionError, match="proof: expected 'beside' or 'at the start', found 'never'"):
        starts.run(text.replace("at the start", "never"))


def test_threads_that_wait_for_each_other_while_they_trace(starts: Starts) -> None:
    """One holds a lock of the user's and calls; the other waits for that lock inside of its trace."""
    text = """
lock, inside = threading.Lock(), threading.Event()
def step(x):
    if x.shape == (3,):
        inside.set()
        with lock:
            return x * 2
    return x * 2
F = rewarm.jit(step)
def other():
    with lock:
        started.set()
        inside.wait(60)
        found.append(float(F(np.ones(4, np.float32))[0]))
found, started = [], threading.Event()
thread = threading.Thread(target=other)
thread.start()
started.wait(60)
found.append(float(F(X)[0]))
thread.join(60)
def told(): return found
"""
    assert starts.run(text)[0] == [2.0, 2.0]


def test_a_function_that_raises_is_called_once_and_raises_its_own(starts: Starts) -> None:
    text = """
CALLS = []
def step(x):
    CALLS.append(1)
    raise KeyError("mine")
F = rewarm.jit(step)
try:
    F(X)
except KeyError as error:
    import traceback
    ours = [one for one in traceback.extract_tb(error.__traceback__) if os.sep + "rewarm" + os.sep in one.filename]
    seen = len(CALLS), str(error), len(ours)
def told(): return seen
"""
    for _ in range(2):
        assert starts.run(text)[0] == [1, "'mine'", 1]


def test_a_copy_works(starts: Starts) -> None:
    text = """
G = copy.deepcopy({"f": rewarm.jit(lambda x: x * 2)})["f"]
def told(): return float(G(X)[0])
"""
    assert starts.run(text)[0] == 2.0


def test_many_functions_of_one_factory(starts: Starts) -> None:
    text = """
def make(k): return lambda x: x * k
FOUND = [float(rewarm.jit(make(number))(X)[0]) for number in range(8)]
def told(): return FOUND
"""
    for outcome in ("recorded", "proved", "skipped"):
        told, jitted, _ = starts.run(text)
        assert (told, jitted) == ([float(number) for number in range(8)], {outcome: 8})


@pytest.mark.parametrize(
    "damage",
    [
        '{"proved": Infinity, "last": 0, "starts": 0}',
        '{"proved": 1, "last": 0, "starts": 1e400}',
        '{"proved": -1}',
        "[]",
    ],
)
def test_a_damaged_state_ends_no_program(starts: Starts, tmp_path: Path, damage: str) -> None:
    text = "F = rewarm.jit(lambda x: x * 2)\ndef told(): return float(F(X)[0])\n"
    starts.known(text)
    for path in tmp_path.glob("cache/traces/*/*.json"):
        path.write_text(damage)
    told, jitted, _ = starts.run(text)
    assert (told, set(jitted) & {"proved", "recorded"} != set()) == (2.0, True)


def test_a_process_does_not_prove_what_it_has_recorded(starts: Starts) -> None:
    """What guards do not see is the same in both of its traces; the next process has it otherwise."""
    text = """
import logging
logging.getLogger("a").setLevel(int(os.environ["LEVEL"]))
def make():
    def step(x): return x * logging.getLogger("a").level
    return rewarm.jit(step)
RESULTS = [float(make()(X)[0]), float(make()(X)[0])]
def told(): return RESULTS
"""
    told, jitted, _ = starts.run(text, LEVEL="10")
    assert (told, jitted) == ([10.0, 10.0], {"recorded": 1, "traced": 1})
    told, jitted, _ = starts.run(text, LEVEL="20")
    assert told == [20.0, 20.0]
    assert "skipped" not in jitted


def test_a_failed_proof_is_told_to_all_functions_that_its_record_serves(starts: Starts) -> None:
    text = """
import logging
logging.getLogger("a").setLevel(int(os.environ["LEVEL"]))
def make():
    def step(x): return x * logging.getLogger("a").level
    return rewarm.jit(step)
FUNCTIONS = [make() for _ in range(3)]
[f(X) for f in FUNCTIONS]
def told():
    found = []
    for f in FUNCTIONS:
        try: f(X)
        except rewarm.TraceMismatchError: found.append(float(f(X)[0]))
    return found
"""
    for _ in range(2):
        starts.run(text, LEVEL="10")
    told, jitted, _ = starts.run(text, LEVEL="20", WAIT="60")
    assert jitted == {"skipped": 3, "proof different": 1}
    assert told == [20.0, 20.0, 20.0]


def test_functions_of_one_content_wait_for_one_proof_and_can_be_forgotten(starts: Starts) -> None:
    text = """
import gc, weakref
KNOWN = []
for _ in range(40):
    def step(x): return x + 1
    KNOWN.append(weakref.ref(step))
    rewarm.jit(step)(X)
del step
gc.collect()
def told(): return sum(known() is not None for known in KNOWN)
"""
    for _ in range(2):
        starts.run(text)
    told, jitted, _ = starts.run(text)
    assert _without_proofs(jitted) == {"skipped": 40}  # one start, however many functions it makes
    assert told <= 1  # the one whose proof waits


def test_an_option_counts_though_a_word_of_its_name_is_like_one_that_does_not(starts: Starts) -> None:
    """Logistic functions and topologies are no logs."""
    text = """
from rewarm.jax_adapter import seam
NAMES = [name for name, _ in seam.options_of_a_trace()]
KNOWN = [name for name in jax.config.values if "logistic" in name or "topology" in name]
def told(): return [KNOWN, [name for name in KNOWN if name in NAMES], "jax_log_compiles" in NAMES]
"""
    known, counted, logs = starts.run(text)[0]
    assert known == counted != []
    assert not logs


def test_a_method_of_several_objects_is_recorded_for_each_of_them_at_once(starts: Starts) -> None:
    """Objects of one class are one kind of static argument, and JAX traces for each."""
    text = """
from functools import partial
class Layer:
    def __init__(self, k): self.k = k
    @partial(rewarm.jit, static_argnums=0)
    def step(self, x): return x * self.k
RESULTS = [float(Layer(k).step(X)[0]) for k in (2.0, 3.0, 4.0)]
def told(): return RESULTS
"""
    for way in ("recorded", "proved", "skipped"):
        told, jitted, _ = starts.run(text)
        assert (told, _without_proofs(jitted)) == ([2.0, 3.0, 4.0], {way: 3})


def test_recording_works_out_no_digests_of_jaxs_own_code(starts: Starts) -> None:
    """Thousands of JAX's functions run for one trace: a digest of each took longer than the trace itself."""
    told, jitted, _ = starts.run("""
from rewarm.fingerprint import code
read, original = [], code._Reading.__init__

def noted(self, one, *others, **named):
    read.append(one.co_filename)
    original(self, one, *others, **named)

code._Reading.__init__ = noted
jitted = rewarm.jit(lambda x: jnp.linalg.norm(jnp.sort(jnp.tanh(x))))

def told():
    jitted(X)
    return [sum("jax" in Path(name).parts for name in read), len(read)]

from pathlib import Path
""")
    assert jitted == {"recorded": 1}
    of_jax, all_of_them = told
    assert of_jax < 50  # those that the function names; some 900 ran
    assert all_of_them > of_jax


@pytest.mark.campaign
def test_sampling_by_numpyro_starts_without_a_trace(starts: Starts) -> None:
    """What numpyro keeps of a run is found by addresses of memory, which are others in each process."""
    pytest.importorskip("numpyro")
    text = """
jax.jit = rewarm.jit
import numpyro, numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

def model(scale):
    numpyro.sample("a", dist.Normal(0.0, scale))

def told():
    sampler = MCMC(NUTS(model), num_warmup=10, num_samples=10, num_chains=1, progress_bar=False)
    sampler.run(jax.random.key(0), np.float32(SCALE))
    return float(sampler.get_samples()["a"].sum())

SCALE = 2.0
"""
    for way in ("recorded", "proved", "skipped"):
        assert way in starts.run(text)[1]
    told, jitted, _ = starts.run(text.replace("Normal(0.0", "Normal(1.0"))
    assert "recorded" in jitted
    assert told == starts.truth(text.replace("Normal(0.0", "Normal(1.0"))


def test_a_refusal_stands_until_a_file_of_the_program_changes(starts: Starts, tmp_path: Path) -> None:
    """What cannot be recorded is not recorded again at each start; each start says why, all the same."""
    text = """
import helper
from rewarm.jax_adapter.trace_free import tracing
made, original = [], tracing.trace
tracing.trace = lambda *args: made.append(1) or original(*args)
jitted = rewarm.jit(lambda x: x + np.float32(time.time() > 0))
def told(): return [float(jitted(X)[0]), len(made)]
"""
    helper = tmp_path / "helper.py"
    helper.write_text("")
    for recordings in (1, 0, 0):
        told, jitted, said = starts.run(text)
        assert (told, jitted) == ([2.0, recordings], {"traced": 1})
        assert "is traced at each start" in said
        assert "time.time" in said
    helper.write_text("# another line\n")
    assert starts.run(text)[0] == [2.0, 1]
    assert starts.run(text.replace("time.time() > 0", "1"))[1] == {"recorded": 1}


def test_a_refusal_is_of_one_function_though_others_have_its_name(starts: Starts) -> None:
    text = """
def told():
    refused = rewarm.jit(lambda x: x + np.float32(time.time() > 0))
    other = rewarm.jit(lambda x: x + 2)
    return [float(refused(X)[0]), float(other(X)[0])]
"""
    for way in ("recorded", "proved", "skipped"):
        told, jitted, _ = starts.run(text)
        assert (told, _without_proofs(jitted)) == ([2.0, 3.0], {"traced": 1, way: 1})
