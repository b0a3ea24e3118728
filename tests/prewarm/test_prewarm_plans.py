"""Plans are ordinary code: their contexts, their state, what their module says to XLA, and how they end."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest
from prewarm_command import DESCRIBES_CPUS, Filled, attached, prewarm

from conftest import clean_environment, execute
from rewarm.prewarm.failures import Failures
from rewarm.prewarm.report import words_of
from rewarm.prewarm.work import Job, Outcome, Result

RECIPES = Path(__file__).parents[2] / "docs" / "prewarm.md"
RECIPE = re.compile(r"^ +(rewarm prewarm .* --for-jax .*)$", re.MULTILINE)

HEAD = """
import os, sys, time
{before}
import jax, jax.numpy as jnp, numpy as np, rewarm

X = jax.ShapeDtypeStruct((8, 8), np.float32)

@jax.jit
def f(x):
    return jnp.isnan(x @ x).sum(), jnp.exp(x).sum()

"""


def filled(folder: Path, text: str, *options: str, before: str = "", **environment: str) -> Filled:
    """What comes of a plan with this text, called `plan`."""
    (folder / "own_plan.py").write_text(HEAD.format(before=before) + text)
    words = [sys.executable, "-m", "rewarm", "prewarm", "own_plan:plan", "--target", "host"]
    env = clean_environment(**environment)
    done = execute([*words, "--dir", str(folder / "cache"), "--json", *options], env=env, cwd=folder)
    assert done.out.startswith("{"), done.err[-3000:]
    assert "Traceback" not in done.err
    return Filled(done, json.loads(done.out))


def run(folder: Path, text: str) -> list[list[str]]:
    """What a program that imports the plan's module does, and what came of each compile."""
    (folder / "own_run.py").write_text(
        "import json, numpy as np, rewarm\nfrom own_plan import *\nimport own_plan\n"
        f"{text}\nprint(json.dumps([[one.program, one.outcome] for one in rewarm.events()]))\n"
    )
    env = clean_environment(REWARM_DIR=str(folder / "cache"))
    done = execute([sys.executable, "own_run.py"], env=env, cwd=folder)
    assert done.code == 0, done.err[-3000:]
    told: list[list[str]] = json.loads(done.out)
    return told


STANDING = """
from jax import experimental
x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else experimental.enable_x64
BY = 0

def scaled(x):
    return x * BY

def plan():
    global BY
    with jax.default_matmul_precision("highest"):
        yield rewarm.Program(f, X, name="highest")
    with x64(True):
        yield rewarm.Program(f, jax.ShapeDtypeStruct((8, 8), np.float64), name="double")
    for BY in (2, 3):
        yield rewarm.Program(jax.jit(lambda x: scaled(x)), X, name=f"by {BY}")
"""

RUNNING = """
with jax.default_matmul_precision("highest"):
    f(np.ones((8, 8), np.float32))
with x64(True):
    f(np.ones((8, 8)))
for own_plan.BY in (2, 3):
    jax.jit(lambda x: scaled(x))(np.ones((8, 8), np.float32))
"""


def test_a_plan_stands_at_the_yield_of_a_program_while_that_is_compiled(tmp_path: Path) -> None:
    made = filled(tmp_path, STANDING, "-j", "2")
    assert made.outcomes == dict.fromkeys(("highest", "double", "by 2", "by 3"), "stored")
    assert len({one["key"] for one in made.told["programs"]}) == 4
    assert [outcome for _, outcome in run(tmp_path, RUNNING)] == ["hit"] * 4


FLAGS = 'os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_enable_fast_math=true"'


def test_what_the_module_says_to_xla_counts_and_what_the_function_says_is_said_to_be_late(tmp_path: Path) -> None:
    made = filled(tmp_path, "def plan(devices):\n    yield rewarm.Program(f, X)\n", before=FLAGS)
    assert [(one["outcome"], one["notes"]) for one in made.told["programs"]] == [("stored", [])]
    assert run(tmp_path, "f(np.ones((8, 8), np.float32))") == [["jit_f", "hit"]]
    late = filled(tmp_path, f"def plan(devices):\n    {FLAGS}\n    yield rewarm.Program(f, X)\n")
    [program] = late.told["programs"]
    assert program["key"] != made.told["programs"][0]["key"]
    assert ["too late" in note for note in program["notes"]] == [True]


@pytest.mark.parametrize(
    ("end", "words"), [("sys.exit('no data here')", "sys.exit('no data here')"), ("os._exit(0)", "(exit code 0)")]
)
def test_what_was_yielded_before_the_plan_ended_the_process_is_kept(tmp_path: Path, end: str, words: str) -> None:
    done = filled(tmp_path, f"def plan():\n    yield rewarm.Program(f, X)\n    {end}\n")
    assert (done.run.code, done.outcomes) == (1, {"f": "stored", "own_plan:plan": "failed"})
    why = str(done.told["programs"][-1]["why"])
    line = (HEAD.format(before="").count("\n") + 2) + (words == "sys.exit('no data here')")
    assert words in why
    assert f"[{tmp_path / 'own_plan.py'}:{line}]" in why


# One that comes back from the plan's code, and one that Python does not know of, and that holds what it has.
FORKING = """
import ctypes

def plan():
    os.fork()
    yield rewarm.Program(f, X)
    if (pid := ctypes.CDLL(None).fork()) == 0:
        time.sleep(60)
        os._exit(0)
    open("forked", "a").write(f"{pid}\\n")
    os.abort()
"""


def test_what_a_plan_forks_neither_answers_nor_is_waited_for(tmp_path: Path) -> None:
    since = time.monotonic()
    try:
        done = filled(tmp_path, FORKING)
    finally:
        with contextlib.suppress(FileNotFoundError):
            for pid in (tmp_path / "forked").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
    assert time.monotonic() - since < 50
    assert (done.run.code, done.outcomes) == (1, {"f": "stored", "own_plan:plan": "failed"})
    assert len(done.told["programs"]) == 2
    assert "SIGABRT" in str(done.told["programs"][-1]["why"])


def test_why_there_is_no_program(tmp_path: Path) -> None:
    done = filled(tmp_path, "def plan():\n    yield rewarm.Program(f, X)\n", "--check", "--only", "g")
    assert (done.run.code, done.outcomes) == (1, {"g": "failed"})
    assert done.why("g").endswith("there are f")
    empty = filled(tmp_path, "def plan():\n    return iter(())\n", "--check")
    assert (empty.run.code, empty.outcomes) == (1, {"own_plan:plan": "failed"})
    assert "yields no program" in str(empty.told["programs"][0]["why"])


def test_a_plan_that_yields_others_each_time_is_said_to(tmp_path: Path) -> None:
    text = "CALLS = []\ndef plan():\n    CALLS.append(1)\n    yield rewarm.Program(f, X, name=f'call {len(CALLS)}')\n"
    done = filled(tmp_path, text, "--check")
    assert "expected the same programs each time" in done.why("call 1")


# -- failures ------------------------------------------------------------------------------------------------------


def test_what_is_missing_in_this_process_is_not_remembered(tmp_path: Path) -> None:
    call = "jax.ffi.ffi_call('nobody_has_this', X)"
    done = filled(tmp_path, f"def plan():\n    yield rewarm.Program(jax.jit(lambda x: {call}(x)), X, name='calls')\n")
    assert done.outcomes == {"calls": "failed"}
    assert "nobody_has_this" in done.why("calls")
    assert not (tmp_path / "cache" / "prewarm").exists()


def test_nor_believed_where_it_was(tmp_path: Path) -> None:
    failures, key = Failures(tmp_path), "ab" * 32
    assert failures.remember(key, "p", "JaxRuntimeError: INVALID_ARGUMENT: No such compile option: 'x'", 60)
    [path] = (tmp_path / "prewarm").iterdir()
    assert failures.known(key) is not None
    missing = "JaxRuntimeError: UNIMPLEMENTED: No FFI handler registered for x on a host"
    path.write_text(json.dumps({**json.loads(path.read_text()), "error": missing}))
    assert failures.known(key) is None
    assert not failures.remember(key, "p", "No registered implementation for untyped custom call to x for Host", 60)


# -- the report ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not DESCRIBES_CPUS, reason="JAX 0.9 and 0.10 describe no CPU with another number of threads")
def test_a_run_that_is_served_is_one_on_the_target(cache: Path) -> None:
    attached(cache, 1, "alone")
    made = prewarm(cache, "alone", target="host:64")
    assert [line.partition(":")[0] for line in made.told["programs"][0]["differs"]] == ["threads"]
    env = clean_environment(REWARM_DIR=str(cache), NPROC="64")
    from prewarm_command import PLANS

    served = execute([sys.executable, str(PLANS), "alone"], env=env, cwd=PLANS.parent)
    assert served.json["events"] == [["jit_scaled", "hit"]], served.err
    assert prewarm(cache, "alone", "--check", target="host:64").told["programs"][0]["differs"] == []


def test_a_bundle_that_cannot_be_written_is_found_before_the_work(cache: Path, tmp_path: Path) -> None:
    done = prewarm(cache, "alone", "--bundle", str(tmp_path / "none" / "warm.rewarm")).run
    assert (done.code, done.out) == (1, "")
    assert "cannot write" in done.err
    assert not cache.exists()


def test_the_report_is_printed_whatever_happens_at_the_end(tmp_path: Path) -> None:
    text = "def plan():\n    open('warm.rewarm', 'a')\n    yield rewarm.Program(f, X)\n"
    done = filled(tmp_path, text, "--bundle", "warm.rewarm")
    assert (done.run.code, done.outcomes) == (1, {"f": "stored"})
    assert "is there already" in done.told["wrong"]


def test_names_do_not_steer_the_terminal() -> None:
    job = Job("plan.py:plan", "host", "cpu", "1x1x1", {})
    said = words_of(Result(job, "\udce4x\x1b[31m\n", Outcome.FAILED, why="one\n\x1b[32mtwo"))
    assert said.split("\n") == ["failed     \\udce4x\\x1b[31m\\n, host 1x1x1: one", "\\x1b[32mtwo"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--lock", "nowhere.lock"], "cannot read"),
        (["--remember-failures", "nan"], "found nan"),
        (["--remember-failures", "inf"], "remember-failures"),
        (["--topology", "512"], "at most 256 devices in a process"),
        (["--topology", "1000x64"], "16384 in the job"),
    ],
)
def test_wrong_usage_is_found_before_the_work(cache: Path, options: list[str], words: str) -> None:
    done = prewarm(cache, "alone", *options).run
    assert done.code == 2
    assert words in " ".join(done.err.replace("│", " ").split())
    assert not cache.exists()


def test_the_recipe_of_a_new_jax_with_spaces_in_its_topology(tmp_path: Path) -> None:
    jax = importlib.metadata.version("jax")
    [line] = RECIPE.findall(RECIPES.read_text())
    words = shlex.split(line.replace("0.12.0.1", jax).replace("0-12-0-1", jax.replace(".", "-")))
    (tmp_path / "remote").mkdir()
    ours = {"mypkg.train:plan": "own_plan:plan", "h200.json": "host", "4x8x1": "1 x 1 x 1"}
    (tmp_path / "own_plan.py").write_text(HEAD.format(before="") + "def plan():\n    yield rewarm.Program(f, X)\n")
    env = clean_environment(REWARM_REMOTE=f"file://{tmp_path / 'remote'}?trust=store", REWARM_DIR=str(tmp_path / "c"))
    own = [ours.get(word, word) for word in words[1:]]
    done = execute([sys.executable, "-m", "rewarm", *own], env=env, cwd=tmp_path)
    assert done.code == 0, done.err[-3000:]
    assert "1 entries sent" in done.out
