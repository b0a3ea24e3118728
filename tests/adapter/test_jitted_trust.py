"""How far a record of `rewarm.jit` is believed: what must not be skipped, and what happens when a proof fails."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import Program, Run

# `WAIT` lets a proof come out before the second call.
PROGRAM = """
    import json, logging, os, sys, threading, time
    import rewarm
    {before}
    import jax, jax.numpy as jnp
    X = jnp.ones(3)
    TRACES = []

    {function}

    f = rewarm.jit(step{options})
    told = [float(f(X)[0])]
    waits = time.monotonic() + float(os.environ.get("WAIT", "0"))
    while time.monotonic() < waits and not any("proof" in one for one in rewarm.stats().jitted):
        time.sleep(0.05)
    error = ""
    try:
        told.append(float(f(X)[0]))
    except rewarm.TraceMismatchError as raised:
        error = str(raised)
    told.append(float(f(X)[0]))
    {after}
    print(json.dumps({{"told": told, "error": error, "jitted": dict(rewarm.stats().jitted)}}))
"""

# What is read here is behind functions of Python's own library, where no guard sees it.
HIDDEN = """
    def step(x):
        return x * (2 if logging.getLogger("m").isEnabledFor(logging.DEBUG) else 3)
"""
BY_LEVEL = 'logging.getLogger("m").setLevel(int(os.environ.get("LEVEL", "20")))'
PLAIN = """
    def step(x):
        return x * 3
"""


def source(function: str = PLAIN, before: str = "", options: str = "", after: str = "") -> str:
    """The program, with a function and lines of its own."""
    return PROGRAM.format(function=function.strip("\n").strip(), before=before, options=options, after=after)


class Starts:
    """Starts of one program file, whatever is in it."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._cache = folder / "cache"

    def run(self, text: str, **environment: str) -> dict[str, Any]:
        """What one start told."""
        done = self.start(text, **environment)
        told = done.json
        assert isinstance(told, dict)
        return {**told, "lines": done.warnings()}

    def start(self, text: str, **environment: str) -> Run:
        """One start."""
        # A plain file, always of the same name: the name of the function's module is `__main__` in any case.
        return self._program(text, **{"REWARM_DIR": str(self._cache), "REWARM_STATS": "", **environment})

    def records(self) -> list[Path]:
        """The files of the records."""
        return sorted(self._cache.glob("traces/*/*.trace"))

    def proved(self, text: str, **environment: str) -> None:
        """Two starts, after which a third skips the trace."""
        assert self.run(text, **environment)["jitted"] == {"recorded": 1}
        assert self.run(text, **environment)["jitted"] == {"proved": 1}


@pytest.fixture
def starts(program: Program, tmp_path: Path) -> Starts:
    return Starts(program, tmp_path)


def test_a_third_start_skips_and_is_proved(starts: Starts) -> None:
    starts.proved(source())
    third = starts.run(source(), WAIT="30")
    assert third["told"] == [3.0, 3.0, 3.0]
    assert third["jitted"] == {"skipped": 1, "proof equal": 1}
    assert third["lines"] == []


def test_a_proof_that_fails_is_raised_once_and_the_right_program_runs(starts: Starts) -> None:
    text = source(HIDDEN, before=BY_LEVEL)
    starts.proved(text)
    third = starts.run(text, LEVEL="10", WAIT="30")
    assert third["told"] == [3.0, 2.0]  # the first is wrong, the second call raised
    assert "depends_on=" in third["error"]
    assert third["jitted"]["proof different"] == 1
    fourth = starts.run(text, LEVEL="10")
    assert fourth["told"] == [2.0, 2.0, 2.0]
    assert fourth["jitted"] == {"traced": 1}
    assert any("an earlier proof failed" in line for line in fourth["lines"])
    # Until its code changes.
    assert starts.run(text.replace("else 3", "else 5"))["jitted"] == {"recorded": 1}


def test_on_mismatch_warn(starts: Starts) -> None:
    text = source(
        HIDDEN,
        before=BY_LEVEL,
        options=', on_mismatch="warn"',
    )
    starts.proved(text)
    third = starts.run(text, LEVEL="10", WAIT="30")
    assert third["told"] == [3.0, 2.0, 2.0]
    assert third["error"] == ""
    assert any("results since the start may be wrong" in line for line in third["lines"])


def test_what_is_declared_counts(starts: Starts) -> None:
    text = source(
        HIDDEN,
        before=BY_LEVEL,
        options=', depends_on=[logging.getLogger("m").level]',
    )
    starts.proved(text)
    third = starts.run(text, LEVEL="10")
    assert third["told"] == [2.0, 2.0, 2.0]
    assert third["jitted"] == {"recorded": 1}


def test_wrong_words_for_on_mismatch(program: Program) -> None:
    done = program("import rewarm; rewarm.jit(lambda x: x, on_mismatch='ignore')", ok=False)
    assert "on_mismatch: expected 'raise' or 'warn', found 'ignore'" in done.err


def test_another_salt_or_option_is_recorded_anew_and_nothing_is_struck(starts: Starts) -> None:
    starts.proved(source())
    assert starts.run(source(), REWARM_SALT="other")["jitted"] == {"recorded": 1}
    assert starts.run(source(), REWARM_SALT="other")["jitted"] == {"proved": 1}
    assert starts.run(source(), REWARM_SALT="other")["jitted"]["skipped"] == 1
    assert starts.run(source(), XLA_FLAGS="--xla_cpu_enable_fast_math=true")["jitted"] == {"recorded": 1}
    assert not any("struck" in path.read_text() and json.loads(path.read_text())["struck"] for path in _states(starts))


def _states(starts: Starts) -> list[Path]:
    return [path.with_suffix(".json") for path in starts.records() if path.with_suffix(".json").exists()]


def test_without_its_executable_a_record_is_traced_once_more(starts: Starts) -> None:
    starts.proved(source())
    for path in starts.records()[0].parents[2].glob("[0-9a-f][0-9a-f]"):
        shutil.rmtree(path)
    assert starts.run(source())["jitted"] == {"proved": 1}
    assert starts.run(source())["jitted"]["skipped"] == 1


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "folder", "other"])
def test_a_damaged_record_is_none(starts: Starts, damage: str) -> None:
    starts.proved(source())
    (record,) = starts.records()
    data = bytearray(record.read_bytes())
    record.unlink()
    if damage == "folder":
        record.mkdir()
    elif damage == "other":
        record.with_name("0" * 64 + ".trace").write_bytes(data)
    else:
        data[len(data) // 2] ^= 1
        record.write_bytes({"cut": data[:100], "flipped": data, "empty": b""}[damage])
    after = starts.run(source())
    assert after["told"] == [3.0, 3.0, 3.0]
    assert "skipped" not in after["jitted"]


def test_with_rewarm_off_it_is_jax(starts: Starts) -> None:
    off = starts.run(source(), REWARM="0", REWARM_DIR="")
    assert off["told"] == [3.0, 3.0, 3.0]
    assert off["jitted"] == {}
    assert starts.records() == []


def test_off_and_on_again_within_a_program(starts: Starts) -> None:
    text = source(
        before="rewarm.disable()",
        after="rewarm.enable(os.environ['DIRECTORY']); g = rewarm.jit(step); told.append(float(g(X)[0]))",
    )
    folder = {"DIRECTORY": str(starts._cache)}
    outcomes = [starts.run(text, REWARM_DIR="", **folder)["jitted"] for _ in range(3)]
    assert outcomes[:2] == [{"recorded": 1}, {"proved": 1}]
    assert outcomes[2]["skipped"] == 1


def test_a_value_that_changes_before_the_caches_are_cleared(starts: Starts) -> None:
    function = """
    RATE = 3.0
    def step(x):
        return x * RATE
    """
    text = source(
        function, after="RATE = 5.0; told.append(float(f(X)[0])); f.clear_cache(); told.append(float(f(X)[0]))"
    )
    for _ in range(3):
        started = starts.run(text)
        assert started["told"] == [3.0, 3.0, 3.0, 3.0, 5.0]
    assert started["jitted"]["skipped"] >= 1


def test_a_context_variable_is_the_caller_s(starts: Starts) -> None:
    function = """
    import contextvars
    RATE = contextvars.ContextVar("rate", default=1.0)
    RATE.set(3.0)
    def step(x):
        return x * RATE.get()
    """
    text = source(function)
    starts.proved(text)
    assert starts.run(text, WAIT="30")["jitted"] == {"skipped": 1, "proof equal": 1}


def test_a_trace_is_explained_where_that_is_asked_for(starts: Starts) -> None:
    starts.proved(source())
    changed = starts.run(source().replace("x * 3", "x * 4"), REWARM_EXPLAIN="1")
    assert any("__main__.step was traced: " in line and "function step" in line for line in changed["lines"])


def test_threads_that_call_at_once(starts: Starts) -> None:
    after = """
    results = []
    threads = [threading.Thread(target=lambda: results.append(float(rewarm.jit(step)(X)[0]))) for _ in range(8)]
    [one.start() for one in threads]; [one.join() for one in threads]
    assert results == [3.0] * 8, results
    """
    text = source(after=re.sub(r"\n\s*", "\n    ", after))
    for _ in range(3):
        told = starts.run(text)
        assert told["told"] == [3.0, 3.0, 3.0]
    assert told["jitted"]["skipped"] >= 1


def test_a_forked_child_goes_on(starts: Starts) -> None:
    after = """
    pid = os.fork()
    if pid == 0:
        ok = float(f(X)[0]) == 3.0
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
    """
    text = source(after=re.sub(r"\n    ", "\n    ", after), before="import warnings; warnings.simplefilter('ignore')")
    for _ in range(3):
        assert starts.run(text)["told"] == [3.0, 3.0, 3.0]


def test_a_directory_that_cannot_be_written_to(starts: Starts, tmp_path: Path) -> None:
    text = source(before="os.environ.get('READ_ONLY') and os.chmod(os.environ['REWARM_DIR'], 0o500)")
    starts.proved(text)
    told = starts.run(text, REWARM_MAX_SIZE="0")
    assert told["told"] == [3.0, 3.0, 3.0]
    assert "skipped" not in told["jitted"]


def test_a_function_that_changes_what_it_captures(starts: Starts) -> None:
    function = """
    def step(x):
        TRACES.append(1)
        return x * 3
    """
    told = [starts.run(source(function)) for _ in range(3)]
    assert [one["jitted"] for one in told] == [{"traced": 1}] * 3
    assert any("it changes what it captures while it is traced" in line for line in told[0]["lines"])


def test_void_proofs_do_not_go_on_for_ever(starts: Starts) -> None:
    function = """
    LOCAL = threading.local()
    LOCAL.scale = 3
    def step(x):
        return x * LOCAL.scale
    """
    text = source(function)
    starts.proved(text)
    assert starts.run(text, WAIT="30")["jitted"] == {"skipped": 1, "proof void": 1}
    (state,) = _states(starts)
    told = json.loads(state.read_text())
    assert told["starts"] == 1
    state.write_text(json.dumps({**told, "starts": 5}))
    assert starts.run(text)["jitted"] == {"proved": 1}
    assert starts.run(text)["jitted"]["skipped"] == 1


def test_programs_that_end_before_their_proof_trace_now_and_then(starts: Starts) -> None:
    starts.proved(source())
    outcomes = [starts.run(source(), WAIT="0")["jitted"] for _ in range(7)]
    assert [one.get("skipped", 0) for one in outcomes] == [1, 1, 1, 1, 1, 0, 1]
    assert outcomes[5] == {"proved": 1}


def test_a_class_says_itself_what_counts(starts: Starts) -> None:
    function = """
    import random
    class Model:
        def __init__(self, scale):
            self.scale, self.noise = scale, random.Random()
        def __rewarm_digest__(self):
            return {"scale": self.scale}
        def __call__(self, x):
            return x * self.scale
    model = Model(float(os.environ.get("SCALE", "3")))
    def step(x):
        return model(x)
    """
    text = source(function)
    starts.proved(text)
    assert starts.run(text)["jitted"]["skipped"] == 1
    other = starts.run(text, SCALE="4")
    assert other["told"] == [4.0, 4.0, 4.0]
    assert other["jitted"] == {"recorded": 1}
