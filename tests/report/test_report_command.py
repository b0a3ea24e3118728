"""The command `rewarm report`, from outside: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import report_world as world

from conftest import Run, clean_environment, execute

STARTED = 1_796_000_000.0


def report(cwd: Path, *arguments: str, **env: str) -> Run:
    return execute([sys.executable, "-m", "rewarm", "report", *arguments], env=clean_environment(**env), cwd=cwd)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with two starts."""
    found = world.directory(tmp_path / "cache")
    world.write_run(found, [world.miss("jit_f", STARTED), world.miss("jit_g", STARTED + 1)], started=STARTED)
    later = [world.hit("jit_f", STARTED + 90), world.miss("jit_h", STARTED + 91)]
    world.write_run(found, later, started=STARTED + 90, number=1)
    return found


def test_a_page_is_written_and_the_headline_said(root: Path, tmp_path: Path) -> None:
    done = report(tmp_path, "--dir", str(root))
    assert done.code == 0, done.err
    assert "2 requests, 1 hits (50.0 %), 1 misses" in done.out
    written = list(tmp_path.glob("rewarm-*.html"))
    assert [path.name for path in written] == ["rewarm-20261130T005450Z-1001-00000001.html"]
    assert written[0].read_text().startswith("<!DOCTYPE html>")
    assert str(written[0].name) in done.out


def test_the_formats_and_where_they_go(root: Path, tmp_path: Path) -> None:
    done = report(tmp_path, "--format", "json", "-o", "-", "--last", "2", REWARM_DIR=str(root))
    told = json.loads(done.out)
    assert told["schema"] == "rewarm-report 1"
    assert len(told["starts"]) == 2
    assert told["totals"]["requests"] == 4
    assert json.loads(report(tmp_path, "--format", "trace", "-o", "-", "--dir", str(root)).out)["traceEvents"]
    assert json.loads(report(tmp_path, "--json", "--dir", str(root)).out)["totals"]["requests"] == 2
    assert report(tmp_path, "--store", "-o", "store.html", "--dir", str(root)).code == 0
    assert (tmp_path / "store.html").exists()
    done = report(tmp_path, "--run", "20261130T005450", "--against", "20261130T005320", "--format", "json", "-o", "-",
                  "--dir", str(root))  # fmt: skip
    changes = {row["program"]: row["change"] for row in json.loads(done.out)["comparison"]["programs"]}
    assert changes == {"jit_f": "now hit", "jit_g": "gone", "jit_h": "new"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--run", "1999"), 1, "no run in"),
        (("--run", "2026"), 1, "starts the ids of 2 runs"),
        (("--against", "1999"), 1, "no run in"),
        (("--run", "2026", "--last", "2"), 2, "--run and --last say two things"),
        (("--store", "--against", "2026"), 2, "--against compares one start with another"),
        (("--store", "--format", "trace"), 2, "--format trace is of starts"),
        (("--open", "-o", "-"), 2, "--open shows a page"),
        (("--last", "0"), 2, "0 is not in the range"),
        (("-o", "/proc/none/r.html"), 1, "cannot write the report to /proc/none/r.html"),
    ],
)
def test_what_it_refuses(root: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = report(tmp_path, "--dir", str(root), *arguments)
    assert done.code == code
    assert words in done.err
    assert "Traceback" not in done.err
    assert not list(tmp_path.glob("*.html"))
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_directory_without_a_run_says_what_leaves_one(tmp_path: Path) -> None:
    done = report(tmp_path, "--dir", str(world.directory(tmp_path / "cache")))
    assert done.code == 1
    assert "a program leaves one when it compiles while rewarm is on" in done.err
