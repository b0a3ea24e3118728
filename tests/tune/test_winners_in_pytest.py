"""The pytest plugin's options with winners of the tuner, in runs of pytest of their own, with real JAX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import clean_environment
from rewarm.tunables.text_file import load
from xla_like import PLUGIN

KERNELS = """
import jax.numpy as jnp, rewarm

@rewarm.tunable(space={"block": [1, 2, 4]}, default={"block": 1})
def scaled(x, *, block):
    return x * block

@rewarm.tunable(space={"size": [8, 64]}, default={"size": 8})
def total(x, *, size):
    return jnp.tanh(x.reshape(-1, size)).sum()
"""

# Pins block=4 for f32[8], as though it had been found.
PINS = """
import sys, time
import jax.numpy as jnp, rewarm, kernels
from pathlib import Path
from rewarm.jax_adapter import activation
from rewarm.jax_adapter.tuner import kernels as places
from rewarm.tunables.records import Comparison, Record
from rewarm.tunables.text_file import dump

rewarm.enable(sys.argv[1])
asked = kernels.scaled.asked((jnp.ones(8),), {})
place = places.place_of(activation.session(), places.device_of(asked.arguments.leaves))
case = kernels.scaled.case(asked, place)
sure = Comparison(2.0, 1.9, 2.1, "faster", 0.95, 40)
found = Record(case, {"block": 1}, {"block": 4}, comparison=sure, when=time.time())
dump(Path(sys.argv[2]), [found])
"""

TESTS = """
import jax, jax.numpy as jnp, kernels, rewarm

def test_pinned():
    assert float(jax.jit(kernels.scaled)(jnp.ones(8))[0]) == {block}.0
"""


def run(folder: Path, *options: str, code: int = 0, **env: str) -> str:
    """Run the tests of a folder; what was printed."""
    command = [sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:cacheprovider", "-q", *options]
    environment = clean_environment(PYTHONPATH=str(folder), XDG_CACHE_HOME=str(folder / "xdg"), **env)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lock file that pins a winner which is not the default."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "pins.py").write_text(PINS)
    command = [sys.executable, "pins.py", str(folder / "cache"), str(folder / "winners.lock")]
    subprocess.run(command, cwd=folder, env=clean_environment(), timeout=240, check=True)
    return folder / "winners.lock"


def a_suite(folder: Path, tests: str) -> Path:
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_kernels.py").write_text(tests)
    return folder


def test_a_lock_files_winners_are_in_force(tmp_path: Path, lock: Path) -> None:
    a_suite(tmp_path, TESTS.format(block=4))
    out = run(tmp_path, "--rewarm-autotune-load", str(lock), "--rewarm-no-tuning")
    assert f"1 winner loaded from {lock}" in out
    # Without it the default is used, and rewarm stays off.
    run(a_suite(tmp_path, TESTS.format(block=1)))


def test_what_is_not_tuned_is_an_error_where_that_was_asked_for(tmp_path: Path, lock: Path) -> None:
    tests = TESTS.format(block=4) + "\ndef test_other():\n    kernels.scaled(jnp.ones(16))\n"
    out = run(a_suite(tmp_path, tests), "--rewarm-autotune-load", str(lock), "--rewarm-no-tuning", code=1)
    assert "UntunedError: kernels:scaled is not tuned for f32[16]" in out
    assert "1 failed, 1 passed" in out
    assert "UntunedError" in run(tmp_path, "--rewarm-no-tuning", code=1)


def test_what_tests_tune_is_dumped_with_what_was_loaded(tmp_path: Path, lock: Path) -> None:
    tests = TESTS.format(block=4) + (
        "\ndef test_tunes():\n    found = rewarm.tune(kernels.total, None, jnp.ones(4096), budget=8.0)\n"
        "    assert not found.not_kept\n"
    )
    a_suite(tmp_path, tests)
    out = run(tmp_path, f"--rewarm-autotune-load={lock}", "--rewarm-tuned-dump=out/new.lock")
    assert "out/new.lock has 2 winners, 1 of them tuned here" in out
    assert {one.case.kernel for one in load(tmp_path / "out" / "new.lock")} == {"kernels:scaled", "kernels:total"}
    # And what was dumped serves the next run, which adds nothing.
    both = ("--rewarm-autotune-load=out/new.lock", "--rewarm-tuned-dump=out/new.lock")
    out = run(tmp_path, *both, "--rewarm-no-tuning", "-k", "pinned")
    assert "2 winners loaded from" in out
    assert "out/new.lock has 2 winners, 0 of them tuned here" in out


def test_nothing_is_written_where_nothing_was_tuned(tmp_path: Path) -> None:
    out = run(a_suite(tmp_path, TESTS.format(block=1)), "--rewarm-tuned-dump=new.lock")
    assert "no test tuned a function" in out
    assert not (tmp_path / "new.lock").exists()


def test_workers_share_what_was_loaded(tmp_path: Path, lock: Path) -> None:
    pytest.importorskip("xdist")
    a_suite(tmp_path, TESTS.format(block=4))
    out = run(tmp_path, f"--rewarm-autotune-load={lock}", "--rewarm-no-tuning", "-n", "2")
    assert out.count("1 winner loaded from") == 1


def test_a_directory_of_the_environment_is_used_and_stays(tmp_path: Path, lock: Path) -> None:
    a_suite(tmp_path, TESTS.format(block=4))
    run(tmp_path, f"--rewarm-autotune-load={lock}", REWARM_DIR=str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "CACHEDIR.TAG").exists()
    assert not (tmp_path / "mine" / "tuned").exists()  # what was loaded is in force, and nobody's own


@pytest.mark.parametrize(
    ("content", "env", "words"),
    [
        ("rewarm-autotune-lock 1\n\nsection tuned 9\n", {}, "expected 'section tuned 1'"),
        (None, {"REWARM_AUTOTUNE_LOCK": "/other.lock"}, "unset it, or load that file"),
    ],
)
def test_a_file_that_cannot_be_used_is_wrong_usage(
    tmp_path: Path, lock: Path, content: str | None, env: dict[str, str], words: str
) -> None:
    path = tmp_path / "bad.lock"
    path.write_text(lock.read_text() if content is None else content)
    out = run(a_suite(tmp_path, TESTS.format(block=4)), f"--rewarm-autotune-load={path}", code=4, **env)
    assert words in out
    assert "Traceback" not in out


def test_without_the_options_nothing_is_imported(tmp_path: Path) -> None:
    tests = "import sys\n\ndef test_it():\n    assert 'rewarm.tunables' not in sys.modules\n"
    run(a_suite(tmp_path, tests))
