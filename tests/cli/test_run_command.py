"""`rewarm run` leaves the program what `python` would give it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Run, clean_environment, execute

SCRIPT = """
import os, sys, pickle
class Mine: pass
print(__name__, sys.argv, sys.path[0], __file__, __spec__, sys.flags.optimize)
print(pickle.loads(pickle.dumps(Mine())).__class__.__module__)
print(sys.stdin.read())
print("to stderr", file=sys.stderr)
print(os.environ["REWARM"], os.environ.get("REWARM_DIR"), os.environ.get("REWARM_STATS"))
sys.exit(7)
"""


def both(tmp_path: Path, *arguments: str, stdin: str = "") -> tuple[Run, Run]:
    """The same program under `rewarm run` and under `python`."""
    env = clean_environment(REWARM="1")
    return tuple(  # type: ignore[return-value]
        execute([sys.executable, *prefix, *arguments], env=env, cwd=tmp_path, stdin=stdin)
        for prefix in (["-m", "rewarm", "run"], [])
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_script(tmp_path: Path, script: Path) -> None:
    ours, plain = both(tmp_path, "train.py", "--dir", "x", "--json", "-m", "-h", "a b", stdin="typed\n")
    assert ours == plain
    assert ours.code == 7
    assert "typed" in ours.out
    assert script.exists()


def test_module(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text("import sys; print(__name__, __package__, __spec__.name, sys.argv)")
    ours, plain = both(tmp_path, "-m", "package.train", "--steps", "3")
    assert ours == plain
    assert "package.train" in ours.out


def test_code_and_interpreter_options(tmp_path: Path) -> None:
    ours, plain = both(tmp_path, "-O", "-c", "import sys; print(sys.argv, sys.flags.optimize)", "x")
    assert ours == plain
    assert ours.out == "['-c', 'x'] 1\n"


def test_a_missing_script_is_python_own_error(tmp_path: Path) -> None:
    ours, plain = both(tmp_path, "nowhere.py")
    assert ours == plain
    assert ours.code == 2


def test_uncaught_exceptions_and_signals(tmp_path: Path) -> None:
    ours, plain = both(tmp_path, "-c", "1/0")
    assert ours == plain
    assert (ours.code, "ZeroDivisionError" in ours.err) == (1, True)
    ours, plain = both(tmp_path, "-c", "import os; os.kill(os.getpid(), 15)")
    assert ours == plain
    assert ours.code == -signal.SIGTERM


def test_the_program_takes_the_process_place(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rewarm", "run", "-c", "import os; print(os.getpid())"],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        cwd=tmp_path,
    )
    out, _ = process.communicate(timeout=60)
    assert int(out) == process.pid


def test_options_of_rewarm_come_first(tmp_path: Path, script: Path) -> None:
    command = [sys.executable, "-m", "rewarm", "run", "--dir", "here", "--stats", script.name]
    run = execute(command, env=clean_environment(), cwd=tmp_path, stdin="")
    assert f"1 {tmp_path / 'here'} 1" in run.out


def test_a_program_on_standard_input(tmp_path: Path) -> None:
    ours, plain = both(tmp_path, stdin="import sys; print(sys.argv, __name__)")
    assert ours == plain
    assert ours.out == "[''] __main__\n"


def test_a_load_check_is_handed_on_and_a_wrong_one_is_one_clear_line(tmp_path: Path) -> None:
    told = "import os; print(os.environ['REWARM_LOAD_CHECK'])"

    def ran(option: str) -> Run:
        command = [sys.executable, "-m", "rewarm", "run", option, "-c", told]
        return execute(command, env=clean_environment(), cwd=tmp_path)

    assert ran("--load-check=subprocess").out.strip() == "subprocess"
    assert ran("--load-check=none").out.strip() == "none"
    wrong = ran("--load-check=thread")
    assert wrong.code == 2
    assert "--load-check: expected subprocess, or none, found 'thread'" in wrong.err
