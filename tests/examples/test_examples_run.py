"""Every example runs, from a fresh process, and shows what its first lines say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Run, clean_environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Not to be started: imported, or started by one that is.
PARTS = {"recorder.py", "kernels.py", "test_kernels.py", "tune_kernels.py"}


def start(*words: str, folder: Path, **env: str) -> Run:
    """Run an example as its first lines say."""
    home = {"XDG_CACHE_HOME": str(folder / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=EXAMPLES.parent,
        env=clean_environment(**home, **env),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return Run(done.returncode, done.stdout, done.stderr)


def sources() -> list[Path]:
    return sorted(path for path in EXAMPLES.rglob("*.py") if "__pycache__" not in path.parts)


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.name)
def test_each_says_what_it_shows_and_how_to_run_it(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert said is not None
    if path.name not in PARTS - {"recorder.py"}:
        assert re.search(rf"^ +.*python (examples/)?{re.escape(path.name)}", said, re.MULTILINE), said
    if path.name != "recorder.py":
        assert re.match(r"Shows|Trains|Runs", said)


def test_each_is_run_here() -> None:
    here = Path(__file__).read_text("utf-8")
    assert {path.name for path in sources() if f"examples/{path.name}" not in here} <= PARTS


@pytest.mark.campaign
def test_training_loop_cold_and_warm(tmp_path: Path) -> None:
    pytest.importorskip("optax")
    pytest.importorskip("flax")
    words = ("--layers", "1", "--width", "32", "--steps", "3")
    assert "held-out loss" in start("examples/transformer.py", *words, folder=tmp_path).out
    done = start("examples/demo.py", *words, folder=tmp_path)
    assert "ok: the warm run compiled nothing" in done.out


def test_numpyro_model_cold_and_warm(tmp_path: Path) -> None:
    pytest.importorskip("numpyro")
    env = {"REWARM_DIR": str(tmp_path / "cache"), "REWARM_STATS": "json"}
    cold, warm = (start("examples/numpyro_model.py", folder=tmp_path, **env) for _ in range(2))
    assert cold.stats["misses"] > 10
    assert warm.stats["misses"] == 0
    assert warm.stats["hits"] == warm.stats["requests"] == cold.stats["requests"]
    assert warm.out == cold.out
    assert warm.out.startswith("mean ")


def test_job_of_several_processes(tmp_path: Path) -> None:
    done = start("examples/several_processes.py", folder=tmp_path)
    assert len(re.findall(r"^(?:cold|warm) +rank [01]:", done.out, re.MULTILINE)) == 4
    assert done.out.splitlines()[-1].startswith("ok: the warm job compiled nothing")


@pytest.mark.campaign
def test_plan_is_pre_warmed(tmp_path: Path) -> None:
    done = start("examples/demo_prewarm.py", folder=tmp_path)
    assert done.out.splitlines()[-1].startswith("ok: nothing was compiled")


@pytest.mark.campaign
def test_tuning_checks_in_continuous_integration(tmp_path: Path) -> None:
    done = start("examples/demo_tuning_checks.py", folder=tmp_path)
    assert done.out.splitlines()[-1] == "ok: CI used what was tuned, and found the kernel that was not"


def test_server_starts_fast(tmp_path: Path) -> None:
    done = start("examples/server.py", folder=tmp_path)
    rows = re.findall(r"^ +(\d) +([\d.]+) s +(\d+) +(\d+) +(yes|no)$", done.out, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [int(row[3]) > 0 for row in rows] == [True, False, False, False]
    assert rows[-1][4] == "no"
    assert done.out.splitlines()[-1].startswith("ok: warm starts compiled nothing")
