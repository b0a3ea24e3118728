"""Shows tuning checks in continuous integration: a lock file of winners under version control, and pytest's options.

    python examples/demo_tuning_checks.py

In a copy of examples/tuning_checks/: tunes the kernel and writes tuning.lock (what a developer does, once, on a machine
of that kind); runs the tests with that file and nothing else (what CI does at each push), in an empty cache; and runs
them again after the kernel was changed, where they must fail, since what was tuned was another kernel. Exits with
status 1 if one of the three is not so.

A lock file is for one kind of device, one compiler and one version of the libraries: CI's machines must be alike.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "tuning_checks"


class DemoError(RuntimeError):
    """The demo did not show what it is there to show; the message is one line for people."""


def pytest(folder: Path, cache: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in the folder, in a fresh process with a cache of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REWARM", "JAX_", "PYTEST_"))}
    own = {"REWARM_DIR": str(folder / cache), "PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu"}
    print(f"--- REWARM_DIR={cache} pytest {' '.join(arguments)}", flush=True)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(words, cwd=folder, env={**kept, **own}, capture_output=True, text=True, check=False)
    print(done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr, flush=True)
    return done


def demo(folder: Path) -> None:
    """Tunes, checks, changes the kernel, and checks again."""
    shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
    check = ("--rewarm-autotune-load=tuning.lock", "--rewarm-no-tuning", "test_kernels.py")
    if pytest(folder, "developer", "--rewarm-tuned-dump=tuning.lock", "tune_kernels.py").returncode:
        raise DemoError("the kernel was not tuned")
    if pytest(folder, "ci", *check).returncode:
        raise DemoError("the check failed although the kernel is tuned")
    kernel = folder / "kernels.py"
    kernel.write_text(kernel.read_text("utf-8").replace("jnp.tanh(part).sum()", "jnp.tanh(part * 1.0).sum()"), "utf-8")
    changed = pytest(folder, "ci", *check)
    if changed.returncode == 0 or "UntunedError" not in changed.stdout:
        raise DemoError("the check passed although the kernel was changed and not tuned again")
    print("ok: CI used what was tuned, and found the kernel that was not")


def main() -> int:
    """Runs the demo and returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="rewarm-demo-") as folder:
        try:
            demo(Path(folder))
        except DemoError as error:
            print(f"demo_tuning_checks: FAILED: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
