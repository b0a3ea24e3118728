"""`rewarm explain` and `rewarm clear` over what real programs left."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conftest import Run, clean_environment, entries, execute
from rewarm.ledger.runs import run_ids, runs

# A small program, one too large for its lines to be compared while it runs, and a function that is jitted anew.
_TRAIN = """\
import sys, jax, jax.numpy as jnp, numpy as np
number = float(sys.argv[1])
x = np.ones((4, 4), np.float32)
def step(x):
    return jnp.sin(x) * number
def large(x):
    for at in range(150):
        x = jnp.tanh(x * (at + 1.5) + 0.37 * at)
    return x - number
jax.jit(step)(x)
jax.jit(large)(x)
if "again" in sys.argv:
    for _ in range(2):
        jax.jit(lambda x: x + 77)(x)
"""
_STEP_LINE, _LARGE_LINE = 5, 9


class History(NamedTuple):
    """A cache directory with two runs, and the file that both ran."""

    cache: Path
    script: Path


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("history")
    made = History(folder / "cache", folder / "train.py")
    made.script.write_text(_TRAIN)
    train(made, "2.0")
    train(made, "3.0", "again")
    return made


@pytest.fixture
def copy(history: History, tmp_path: Path) -> History:
    """A copy that a test may change."""
    shutil.copytree(history.cache, tmp_path / "copy")
    return History(tmp_path / "copy", history.script)


def train(history: History, *arguments: str) -> None:
    command = [sys.executable, str(history.script), *arguments]
    done = execute(command, env=clean_environment(REWARM_DIR=str(history.cache)), cwd=history.script.parent)
    assert done.code == 0, done.err


def rewarm(*arguments: str, **env: str) -> Run:
    return execute([sys.executable, "-m", "rewarm", *arguments], env=clean_environment(**env), cwd=Path.cwd())


def explain(history: History, *arguments: str) -> Run:
    return rewarm("explain", "--dir", str(history.cache), *arguments)


def told(history: History, *arguments: str) -> Any:
    run = explain(history, "--json", *arguments)
    assert run.code == 0, run.err
    return json.loads(run.out)


def programs(found: Any) -> list[str]:
    return [event["program"] for event in found["misses"]]


# ---------------------------------------------------------------------------------------------------------------
# What is told


def test_the_last_run(history: History) -> None:
    run = explain(history)
    assert (run.code, run.err) == (0, "")
    lines = [line.strip() for line in run.out.splitlines()]
    newest = runs(history.cache)[0]
    assert lines[0].startswith(f"run {newest.id}, ")
    assert lines[0].endswith(f"ended: {history.script} 3.0 again")
    assert lines[1] == "4 requests, 1 hits, 3 misses"
    assert lines[2].startswith("traced again, 1 times: jit__lambda.")
    step = lines.index(next(line for line in lines if line.startswith("jit_step ")))
    assert lines[step].endswith(", stored")
    assert lines[step + 1].startswith("like a jit_step that was compiled before, key ")
    assert lines[step + 2 : step + 7] == [
        "program differs",
        f"{history.script}:{_STEP_LINE}",
        "- %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>",
        "+ %cst = stablehlo.constant dense<3.000000e+00> : tensor<f32>",
        "=> the same operations with other constants",
    ]


def test_a_large_program_is_compared_afterwards(history: History) -> None:
    """The event has no lines; the entries have."""
    (large,) = told(history, "--program", "large")["misses"]
    from rewarm.ledger.runs import read_run

    (event,) = [one for one in read_run(runs(history.cache)[0].path).events if one["program"] == "jit_large"]
    assert event["explanation"]["changes"] == []
    (change,) = large["explanation"]["changes"]
    assert change["item"] == f"{history.script}:{_LARGE_LINE}"
    assert "2.000000e+00" in change["before"]
    assert "3.000000e+00" in change["after"]
    assert [finding["kind"] for finding in large["explanation"]["findings"]] == ["constants"]


def test_the_shape_of_the_json(history: History) -> None:
    found = told(history)
    assert set(found) == {"run", "misses"}
    assert programs(found) == ["jit_step", "jit_large", "jit__lambda"]
    wanted = {
        "id",
        "path",
        "started",
        "pid",
        "host",
        "argv",
        "python",
        "directory",
        "parent",
        "about",
        "state",
        "ended",
    }
    assert wanted <= set(found["run"])
    assert found["run"]["state"] == "ended"
    for event in found["misses"]:
        assert event["outcome"] == "miss"
        assert {"program", "key", "reason", "stored", "not_stored", "seconds", "time"} <= set(event)
        assert set(event["explanation"]) == {"summary", "nearest", "differs", "changes", "findings"}


def test_a_run_by_the_start_of_its_id(history: History) -> None:
    newest, first = (info.id for info in runs(history.cache))
    assert told(history, "--run", first)["run"]["id"] == first
    assert told(history, "--run", newest)["run"]["id"] == newest
    assert programs(told(history, "--run", first)) == ["jit_step", "jit_large"]
    several = explain(history, "--run", first[:4])
    assert several.code != 0
    assert several.out == ""
    assert len(several.err.splitlines()) == 1
    assert first in several.err
    assert newest in several.err


def test_a_program_by_a_part_of_its_name(history: History) -> None:
    assert programs(told(history, "--program", "step")) == ["jit_step"]
    assert programs(told(history, "--program", "jit_")) == ["jit_step", "jit_large", "jit__lambda"]


def test_a_key_by_its_start(history: History) -> None:
    newest, first = (info.id for info in runs(history.cache))
    old, new = (told(history, "--run", run)["misses"][0]["key"] for run in (first, newest))
    found = told(history, old[:12].upper())
    assert (found["run"]["id"], [event["key"] for event in found["misses"]]) == (first, [old])
    assert told(history, new)["run"]["id"] == newest
    assert told(history, old, "--run", first[:-1])["misses"][0]["key"] == old
    assert explain(history, old, "--run", newest).code == 1


def test_a_run_that_hit_everything_has_no_misses(copy: History) -> None:
    train(copy, "3.0")
    run = explain(copy)
    assert run.code == 0
    assert run.out.splitlines()[1:] == ["2 requests, 2 hits, 0 misses", "no misses"]
    assert told(copy)["misses"] == []


# ---------------------------------------------------------------------------------------------------------------
# What is not there


def _one_line(run: Run, *words: str) -> None:
    assert (run.code, run.out) == (1, "")
    assert len(run.err.splitlines()) == 1, run.err
    assert run.err.startswith("Error: ")
    assert all(word in run.err for word in words), run.err


def test_what_is_not_found_is_one_clear_line(history: History) -> None:
    _one_line(explain(history, "ffff0000ffff"), "ffff0000ffff", "rewarm diff")
    _one_line(explain(history, "--run", "2001"), "2001", runs(history.cache)[0].id)


def test_a_program_that_the_run_does_not_have_is_one_clear_line(history: History) -> None:
    _one_line(explain(history, "--program", "nowhere"), "nowhere")


def test_a_directory_without_runs_is_one_clear_line(copy: History) -> None:
    shutil.rmtree(copy.cache / "runs")
    _one_line(explain(copy), "no run is recorded")
    _one_line(explain(copy, "--run", "2029"), "2029")
    _one_line(explain(copy, "abcdef"), "abcdef")


def test_a_directory_that_is_missing_or_foreign_is_one_clear_line(tmp_path: Path) -> None:
    _one_line(rewarm("explain", "--dir", str(tmp_path / "nowhere")), "does not exist")
    _one_line(rewarm("explain", "--dir", str(tmp_path)), "is no cache directory")


# ---------------------------------------------------------------------------------------------------------------
# What is damaged or gone


def test_without_the_entries_what_was_said_stands(copy: History) -> None:
    for path in entries(copy.cache):
        path.unlink()
    found = told(copy, "--program", "large")["misses"][0]["explanation"]
    assert found["changes"] == []
    assert [finding["kind"] for finding in found["findings"]] == ["constants"]
    assert explain(copy).code == 0


def test_damage_to_entries_catalogue_and_runs_is_no_traceback(copy: History) -> None:
    for path in entries(copy.cache):
        path.write_bytes(path.read_bytes()[:100])
    shutil.rmtree(copy.cache / "explain")
    newest = runs(copy.cache)[0]
    text = newest.path.read_bytes()
    for content in (text[:-40], text + b"junk\n", text.replace(b'"summary"', b'"gone"'), text.replace(b"null", b"[3]")):
        newest.path.write_bytes(content)
        for arguments in ((), ("--json",)):
            run = explain(copy, *arguments)
            assert run.code in (0, 1)
            assert "Traceback" not in run.err, run.err


def test_events_without_an_explanation_show_their_reason(copy: History) -> None:
    newest = runs(copy.cache)[0]
    lines = newest.path.read_text().splitlines()
    event = json.loads(lines[1])
    event["event"] |= {"explanation": None, "reason": "not in the store"}
    newest.path.write_text("\n".join([lines[0], json.dumps(event)]) + "\n")
    run = explain(copy)
    assert run.code == 0
    assert "  not in the store" in run.out.splitlines()


def test_names_that_no_terminal_has_do_not_break_the_listing(copy: History) -> None:
    """Names of files need not be UTF-8, and a terminal need not have all letters."""
    newest = runs(copy.cache)[0]
    newest.path.write_text(newest.path.read_text().replace("train.py", "tr\\udce9in.py"))
    some = [path.name for path in entries(copy.cache)[:2]]
    for encoding in ("utf-8", "ascii"):
        for arguments in (["explain"], ["explain", "--json"], ["diff", *some]):
            run = rewarm(*arguments, "--dir", str(copy.cache), PYTHONIOENCODING=encoding)
            assert run.code == 0, run.err


# ---------------------------------------------------------------------------------------------------------------
# Clearing


FOREIGN = (
    "notes.txt",
    "runs/notes.txt",
    "runs/2024-01-01.jsonl",
    "runs/2024-my-notes.jsonl",
    "explain/notes.txt",
    "explain/mine.jsonl",
    "explain/values/notes.txt",
    "explain/values/mine.json",
)


def test_clear_removes_runs_and_catalogue_and_nothing_foreign(copy: History) -> None:
    for name in FOREIGN:
        (copy.cache / name).write_text("mine")
    (copy.cache / "runs" / "old").mkdir()
    assert run_ids(copy.cache)
    assert list((copy.cache / "explain" / "values").glob("?" * 64 + ".json"))
    run = rewarm("clear", "--dir", str(copy.cache))
    assert run.code == 0, run.err
    left = {path.relative_to(copy.cache).as_posix() for path in copy.cache.rglob("*") if path.is_file()}
    assert set(FOREIGN) <= left
    assert {name for name in left if name.startswith(("runs/", "explain/"))} == {
        name for name in FOREIGN if "/" in name
    }
    assert (copy.cache / "runs" / "old").is_dir()
    assert entries(copy.cache) == []


def test_clear_leaves_no_folder_of_its_own(copy: History) -> None:
    (copy.cache / "explain" / ".ab.jsonl.1.0a0a0a0a.tmp").write_text("half")
    (copy.cache / "explain" / "values" / f".{'a' * 64}.json.1.0a0a0a0a.tmp").write_text("half")
    assert rewarm("clear", "--dir", str(copy.cache)).code == 0
    left = {path.name for path in copy.cache.iterdir()}
    assert not left & {"runs", "explain", "quarantine"}
    assert "CACHEDIR.TAG" in left


def test_after_clearing_a_program_is_new_again(copy: History) -> None:
    assert rewarm("clear", "--dir", str(copy.cache)).code == 0
    _one_line(explain(copy), "no run is recorded")
    train(copy, "3.0")
    found = told(copy)
    assert [event["explanation"]["findings"][0]["kind"] for event in found["misses"]] == ["new", "new"]


def test_clear_does_not_follow_links(copy: History, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    name = run_ids(copy.cache)[0] + ".jsonl"
    (elsewhere / name).write_text("mine")
    (copy.cache / "runs" / "20200101T000000Z-1-00000000.jsonl").symlink_to(elsewhere / name)
    assert rewarm("clear", "--dir", str(copy.cache)).code == 0
    assert (elsewhere / name).read_text() == "mine"
