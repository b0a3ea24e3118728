"""Explanations and runs through a real JAX: events, log lines, files, and what users declare."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Program, Run, clean_environment, entries, execute
from rewarm.ledger.runs import read_run, run_ids, runs

pytestmark = pytest.mark.contract

# One small program; `number` is what a test changes.
_STEP = """\
import sys, jax, jax.numpy as jnp, numpy as np, rewarm, json
number = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
def step(x):
    return jnp.tanh(x @ x) * number
jax.jit(step)(np.ones((4, 4), np.float32))
"""
_TELL = "print(json.dumps([event.as_dict() for event in rewarm.events()]))\n"


def told(run: Run) -> dict[str, Any]:
    """The only event of a run."""
    (event,) = run.json
    assert isinstance(event, dict)
    return event


# ---------------------------------------------------------------------------------------------------------------
# Events


def test_events_carry_explanations(program: Program, cache: Path) -> None:
    first, second, third = (
        told(program(_STEP + _TELL, number, REWARM_DIR=str(cache))) for number in ("2.0", "3.0", "3.0")
    )
    assert [finding["kind"] for finding in first["explanation"]["findings"]] == ["new"]
    said = second["explanation"]
    assert (said["nearest"], said["differs"]) == (first["key"], ["program"])
    (change,) = said["changes"]
    assert "2.000000e+00" in change["before"]
    assert "3.000000e+00" in change["after"]
    assert change["item"].endswith("program_2.py:4"), "the line of the number, not that of the call"
    assert [finding["kind"] for finding in said["findings"]] == ["constants"]
    assert (third["outcome"], third["explanation"]) == ("hit", None)
    assert third["seconds"]["explain"] == 0.0


def test_an_explanation_is_in_the_run_as_it_was_in_the_process(program: Program, cache: Path) -> None:
    for number in ("2.0", "3.0"):
        event = told(program(_STEP + _TELL, number, REWARM_DIR=str(cache)))
    run = read_run(runs(cache)[0].path)
    assert list(run.events) == [event]
    assert run.info.argv[1:] == ("3.0",)
    assert run.info.about["versions"]["rewarm"]
    assert run.info.about["settings"]["directory"] == str(cache)
    assert run.info.stats is not None
    assert (run.info.stats["requests"], run.info.stats["misses"]) == (1, 1)


@pytest.mark.parametrize("thresholds", [{}, {"REWARM_MIN_COMPILE_SECONDS": "60"}])
def test_a_changed_option_is_named(program: Program, cache: Path, thresholds: dict[str, str]) -> None:
    program(_STEP, REWARM_DIR=str(cache), **thresholds)
    flags = "--xla_cpu_enable_fast_math=true"
    event = told(program(_STEP + _TELL, REWARM_DIR=str(cache), XLA_FLAGS=flags, **thresholds))
    assert event["explanation"]["differs"] == ["options"]
    assert "xla_cpu_enable_fast_math" in event["explanation"]["summary"]


# ---------------------------------------------------------------------------------------------------------------
# Log lines

_LOUD = "import logging; logging.basicConfig(format='%(levelname)s %(name)s %(message)s')\n"
_TWO = _STEP + "jax.jit(lambda x: x - number)(np.ones(3, np.float32))\n"


def miss_lines(run: Run) -> list[str]:
    lines = [line for line in run.err.splitlines() if "PERSISTENT COMPILATION CACHE MISS" in line]
    assert all(line.startswith("WARNING jax._src.compiler ") for line in lines)
    return lines


def ours(run: Run) -> list[str]:
    """What was logged, without what JAX says of traces when it is asked to explain."""
    words = ("WARNING jax._src.interpreters", "WARNING jax._src.pjit")
    lines = run.warnings()
    if any(line.startswith(words) for line in lines):
        return [line for line in lines if line.startswith("WARNING ") and not line.startswith(words)]
    return lines


@pytest.mark.parametrize("switch", ["REWARM_EXPLAIN", "JAX_EXPLAIN_CACHE_MISSES"])
def test_one_line_for_each_miss_and_none_for_a_hit(program: Program, cache: Path, switch: str) -> None:
    on = {"REWARM_DIR": str(cache), switch: "1"}
    for number, words in (("2.0", "a program never seen before"), ("3.0", "the same operations with other constants")):
        run = program(_LOUD + _TWO, number, **on)
        lines = miss_lines(run)
        assert [line.partition("MISS for ")[2].split()[0] for line in lines] == ["'jit_step'", "'jit__lambda'"]
        assert all(words in line for line in lines)
        writing = [line for line in ours(run) if "Writing jit_" in line]
        assert len(ours(run)) == len(lines) + len(writing) == 4
    assert ours(program(_LOUD + _TWO, "3.0", **on)) == []


def test_a_salt_of_several_lines_is_told_on_one_line(program: Program, cache: Path) -> None:
    on = {"REWARM_DIR": str(cache), "REWARM_EXPLAIN": "1"}
    program(_LOUD + _STEP, **on)
    run = program(_LOUD + _STEP, REWARM_SALT="one\ntwo", **on)
    assert all(line.startswith("WARNING ") for line in run.warnings())


def test_without_being_asked_nothing_is_said(program: Program, cache: Path) -> None:
    for _ in range(2):
        assert program(_LOUD + _TWO, REWARM_DIR=str(cache)).warnings() == []


# ---------------------------------------------------------------------------------------------------------------
# Runs on disk

_WAIT = _STEP + "print('ready', flush=True); sys.stdin.readline()\n"
_MORE = "jax.jit(lambda x: x - number)(np.ones(3, np.float32)); print('done', flush=True); sys.stdin.readline()\n"


def start(tmp_path: Path, cache: Path, source: str, *argv: str) -> subprocess.Popen[str]:
    """A program that has printed its first line and waits."""
    path = tmp_path / "waiting.py"
    path.write_text(source)
    child = subprocess.Popen(
        [sys.executable, str(path), *argv],
        env=clean_environment(REWARM_DIR=str(cache)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def answer(child: subprocess.Popen[str]) -> str:
    """Let it go on to the next line that it prints."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return child.stdout.readline()


def explain(cache: Path, *arguments: str) -> Any:
    done = execute(
        [sys.executable, "-m", "rewarm", "explain", "--json", "--dir", str(cache), *arguments],
        env=clean_environment(),
        cwd=cache.parent,
    )
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_a_run_is_read_while_it_lasts_and_after_it_was_killed(tmp_path: Path, cache: Path) -> None:
    child = start(tmp_path, cache, _WAIT + _MORE)
    try:
        found = explain(cache)
        assert (found["run"]["state"], found["run"]["pid"]) == ("running", child.pid)
        assert [event["program"] for event in found["misses"]] == ["jit_step"]
        assert answer(child) == "done\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    found = explain(cache)
    assert found["run"]["state"] == "unfinished"
    assert [event["program"] for event in found["misses"]] == ["jit_step", "jit__lambda"]
    assert read_run(runs(cache)[0].path).damaged == 0


def test_a_run_that_ends_says_so(tmp_path: Path, cache: Path) -> None:
    child = start(tmp_path, cache, _WAIT)
    child.communicate("\n")
    assert child.returncode == 0
    found = explain(cache)
    assert (found["run"]["state"], found["run"]["events"], found["run"]["lost"]) == ("ended", 1, 0)


def test_two_processes_have_two_runs(tmp_path: Path, cache: Path) -> None:
    children = [start(tmp_path, cache, _WAIT + _MORE, number) for number in ("2.0", "3.0")]
    for child in children:
        assert answer(child) == "done\n"
        child.communicate("\n")
        assert child.returncode == 0
    found = {info.pid: read_run(info.path) for info in runs(cache)}
    assert set(found) == {child.pid for child in children}
    for run in found.values():
        assert [event["program"] for event in run.events] == ["jit_step", "jit__lambda"]
        assert (run.damaged, run.info.state) == (0, "ended")


def test_a_forked_child_has_a_run_of_its_own(program: Program, cache: Path) -> None:
    """Forked before JAX has started a client, as a program that forks workers must."""
    source = """
        import os, sys, warnings, jax, numpy as np, rewarm
        warnings.simplefilter("ignore")
        rewarm.enable(sys.argv[1])
        child = os.fork()
        name = "parent" if child else "child"
        def work(x): return x + len(name)
        work.__name__ = work.__qualname__ = name
        jax.jit(work)(np.ones(3, np.float32))
        assert [event.program for event in rewarm.events()] == [f"jit_{name}"]
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    program(source, str(cache))
    assert len(run_ids(cache)) == 2
    found = {read_run(info.path).events[0]["program"]: read_run(info.path) for info in runs(cache)}
    assert set(found) == {"jit_parent", "jit_child"}
    assert all((len(run.events), run.info.state) == (1, "ended") for run in found.values())
    assert found["jit_parent"].info.pid != found["jit_child"].info.pid


def test_threads_write_one_run(program: Program, cache: Path) -> None:
    source = """
        import sys, threading, jax, numpy as np, rewarm
        def work(number):
            for step in range(3):
                jax.jit(lambda x: x * (number * 10 + step + 2))(np.ones(3, np.float32))
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert len(rewarm.events()) == 12
        assert all(event.explanation for event in rewarm.events())
    """
    program(source, REWARM_DIR=str(cache))
    (info,) = runs(cache)
    run = read_run(info.path)
    assert (len(run.events), run.damaged, info.lost) == (12, 0, 0)
    assert len({event["key"] for event in run.events}) == 12


def test_a_program_that_compiles_nothing_leaves_no_run(program: Program, cache: Path) -> None:
    program("import jax, rewarm; rewarm.stats()", REWARM_DIR=str(cache))
    assert run_ids(cache) == []
    off = {"REWARM_DIR": str(cache), "JAX_ENABLE_COMPILATION_CACHE": "0"}
    program("import jax; jax.jit(lambda x: x + 1)(1.0)", **off)
    assert run_ids(cache) == []


def test_a_second_directory_gets_a_run_of_its_own(program: Program, cache: Path) -> None:
    source = """
        import sys, jax, numpy as np, rewarm
        for place, number in (("a", 2), ("b", 3), ("a", 4)):
            rewarm.enable(f"{sys.argv[1]}/{place}")
            jax.jit(lambda x: x * number)(np.ones(3, np.float32))
    """
    program(source, str(cache))
    assert [len(read_run(runs(cache / place)[0].path).events) for place in ("a", "b")] == [2, 1]
    assert [len(run_ids(cache / place)) for place in ("a", "b")] == [1, 1]


# ---------------------------------------------------------------------------------------------------------------
# Disks


def _namespace() -> list[str]:
    """The command that runs another where it may mount."""
    for unshare in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        if (
            shutil.which("unshare")
            and subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0
        ):
            return unshare
    pytest.skip("no right to mount, not even in a namespace of its own")


@pytest.mark.parametrize("warm", [False, True])
def test_a_read_only_directory_gets_no_run_and_the_program_runs(
    program: Program, tmp_path: Path, cache: Path, warm: bool
) -> None:
    program(_STEP, REWARM_DIR=str(cache))
    before = sorted(path for path in cache.rglob("*"))
    path = tmp_path / "shut.py"
    path.write_text(_LOUD + _STEP + _TELL)
    mount = f"mount --bind {cache} {cache} && mount -o remount,ro,bind {cache}"
    command = [*_namespace(), "sh", "-c", f'{mount} && exec "$0" "$@"', sys.executable, str(path)]
    run = execute([*command, "2.0" if warm else "5.0"], env=clean_environment(REWARM_DIR=str(cache)), cwd=tmp_path)
    if "mount:" in run.err:
        pytest.skip("no right to mount read-only")
    assert run.code == 0, run.err
    assert "is read-only: entries are read, and new ones are not stored" in run.warnings()[0]
    assert all("ead-only" in line for line in run.warnings())
    assert sorted(path for path in cache.rglob("*")) == before
    event = told(run)
    assert event["outcome"] == ("hit" if warm else "miss")
    if not warm:
        assert [finding["kind"] for finding in event["explanation"]["findings"]] == ["constants"]


def test_a_full_disk_stops_nothing(program: Program, cache: Path) -> None:
    """A bound on the size of files: nothing can be stored, and of runs and catalogue only what fits."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))\n"
    for _ in range(2):
        run = program(limited + _LOUD + _STEP + _TELL, REWARM_DIR=str(cache))
        assert len(run.warnings()) == 1
        assert "cannot write the store" in run.warnings()[0]
        assert told(run)["explanation"]
    assert list(cache.rglob("*.tmp")) == []
    healed = program(_STEP + _TELL, REWARM_DIR=str(cache))
    assert told(healed)["stored"]
    assert len(read_run(runs(cache)[0].path).events) == 1


@pytest.mark.timeout(60)
def test_what_lies_in_the_place_of_the_catalogue_stops_nothing(program: Program, cache: Path) -> None:
    (cache / "explain").mkdir(parents=True)
    for place in range(256):
        os.mkfifo(cache / "explain" / f"{place:02x}.jsonl")
    for number in ("2.0", "3.0"):
        run = program(_LOUD + _STEP + _TELL, number, REWARM_DIR=str(cache))
        assert run.warnings() == []
        assert [finding["kind"] for finding in told(run)["explanation"]["findings"]] == ["new"]


# ---------------------------------------------------------------------------------------------------------------
# Files and variables that users declare

_THREE = """
import sys, jax, numpy as np, rewarm, json
for number in (2, 3, 4):
    jax.jit(lambda x: x * number)(np.ones(3, np.float32))
print(json.dumps([[event.outcome, event.stored, event.not_stored, event.explanation and event.explanation.differs]
                  for event in rewarm.events()]))
"""


def test_a_declared_file_counts_by_content(program: Program, tmp_path: Path, cache: Path) -> None:
    declared, other = tmp_path / "table.txt", tmp_path / "other.txt"
    declared.write_text("one")
    other.write_text("one")
    on = {"REWARM_DIR": str(cache)}
    assert {tuple(row[:2]) for row in program(_THREE, REWARM_EXTRA_FILES=str(declared), **on).json} == {("miss", True)}
    assert {row[0] for row in program(_THREE, REWARM_EXTRA_FILES=str(other), **on).json} == {"hit"}
    other.write_text("two")
    changed = program(_THREE, REWARM_EXTRA_FILES=str(other), **on).json
    assert [(row[0], row[3]) for row in changed] == [("miss", ["salt"])] * 3


def test_declared_files_are_looked_at_anew_for_each_program(program: Program, tmp_path: Path, cache: Path) -> None:
    source = """
        import sys, jax, numpy as np, rewarm
        from pathlib import Path
        f, x, place = jax.jit(lambda x: x * 2), np.ones(3, np.float32), Path(sys.argv[2])
        (place / "folder").mkdir()
        (place / "file").write_text("one")
        rewarm.enable(sys.argv[1], extra_files=[place / "file", place / "folder", str(place / "absent")])
        keys = [rewarm.key_of(f, x)]
        for change in ("file", "folder/new", "absent"):
            (place / change).write_text("two")
            keys.append(rewarm.key_of(f, x))
        assert len(set(keys)) == 4
        (place / "file").write_text("one"); (place / "folder/new").unlink(); (place / "absent").unlink()
        assert rewarm.key_of(f, x) == keys[0]
        rewarm.enable(sys.argv[1])
        assert rewarm.key_of(f, x) not in keys
    """
    program(source, str(cache), str(tmp_path))


def test_a_declared_variable_counts_by_value_and_is_not_kept(program: Program, cache: Path) -> None:
    on = {"REWARM_DIR": str(cache), "REWARM_EXTRA_VARIABLES": "MODEL_TOKEN,MODEL_UNSET"}
    outcomes = [
        [row[0] for row in program(_THREE, **on, **given).json]
        for given in (
            {"MODEL_TOKEN": "hunter2"},
            {"MODEL_TOKEN": "hunter2", "OTHER": "x"},
            {"MODEL_TOKEN": "hunter3"},
            {"MODEL_TOKEN": "hunter2", "MODEL_UNSET": ""},
        )
    ]
    assert outcomes == [["miss"] * 3, ["hit"] * 3, ["miss"] * 3, ["miss"] * 3]
    assert not [path for path in cache.rglob("*") if path.is_file() and b"hunter" in path.read_bytes()]


def _pipe(place: Path) -> str:
    os.mkfifo(place)
    return str(place)


def _among_others(place: Path) -> str:
    place.mkdir()
    os.mkfifo(place / "pipe")
    return str(place)


def _unreadable(place: Path) -> str:
    return "/proc/self/mem"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", [_pipe, _among_others, _unreadable])
def test_a_declared_file_that_cannot_be_read_is_one_clear_line(
    program: Program, tmp_path: Path, cache: Path, make: Any
) -> None:
    """Programs run, nothing is stored, nothing waits, and the line says which file it was."""
    place = make(tmp_path / "declared")
    run = program(_THREE, REWARM_DIR=str(cache), REWARM_EXTRA_FILES=place)
    assert [row[:2] for row in run.json] == [["miss", False]] * 3
    assert entries(cache) == []
    assert len(run.warnings()) == 1, run.warnings()
    assert place in run.warnings()[0]
    assert all(place in row[2] for row in run.json), "the reason names it too"
    strict = program(_THREE, ok=False, REWARM_DIR=str(cache), REWARM_EXTRA_FILES=place, REWARM_STRICT="1")
    assert strict.code == 1
    assert place in strict.err
