"""Shows what a warm start is: the same training program twice, in fresh processes, with one rewarm cache.

    python examples/demo.py [ARGUMENT OF transformer.py ...]

The program is examples/transformer.py, which knows nothing of rewarm: the environment variable REWARM_DIR
switches it on. The cache starts empty, in a temporary directory. Exits with status 1 if the warm run compiled
anything, or if the two runs did not compute the same, bit by bit.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent
NEEDED = ("jax", "flax", "optax", "rewarm")


class DemoError(RuntimeError):
    """The demo did not show what it is there to show; the message is one line for people."""


@dataclass(frozen=True)
class Run:
    """One run of the program: how long it took, what it printed, and what rewarm counted in it."""

    seconds: float
    lines: list[str]
    stats: dict[str, Any]

    @property
    def compiled(self) -> int:
        """How many programs were compiled, by rewarm or by JAX alone."""
        return int(self.stats["misses"]) + int(sum(self.stats["left_to_jax"].values()))


def environment(cache: Path) -> dict[str, str]:
    """Returns the caller's environment with rewarm on, and without settings of another cache."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(
            ("REWARM", "JAX_COMPILATION_CACHE", "JAX_ENABLE_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE")
        )
    }
    return {**kept, "REWARM_DIR": str(cache)}


def run(name: str, cache: Path, arguments: Sequence[str]) -> Run:
    """Runs the program in a fresh process and passes on what it prints as it comes."""
    print(f"--- {name}: REWARM_DIR={cache} python examples/transformer.py {' '.join(arguments)}".rstrip())
    with tempfile.TemporaryDirectory(prefix="rewarm-demo-record-") as folder:
        record = Path(folder) / "record.json"
        command = [sys.executable, "recorder.py", str(record), "transformer.py", *arguments]
        start = time.perf_counter()
        with subprocess.Popen(
            command, cwd=EXAMPLES, env=environment(cache), stdout=subprocess.PIPE, text=True
        ) as process:
            lines = []
            for line in process.stdout or ():
                print(line, end="", flush=True)
                lines.append(line)
        seconds = time.perf_counter() - start
        if process.returncode != 0:
            raise DemoError(f"the {name} run exited with status {process.returncode}")
        stats = json.loads(record.read_text(encoding="utf-8"))["rewarm"]
    if stats is None:
        raise DemoError("rewarm was not at work in the program; is it installed for this Python?")
    return Run(seconds, lines, stats)


def table(cold: Run, warm: Run) -> str:
    """Returns the two runs side by side."""
    lines = [
        f"{'':20} {'cold':>10} {'warm':>10}",
        f"{'wall seconds':20} {cold.seconds:10.2f} {warm.seconds:10.2f}",
    ]
    for name in ("seconds_compiling", "seconds_saved", "requests", "hits", "misses"):
        digits = ".2f" if name.startswith("seconds") else "d"
        cells = "".join(f" {run.stats[name]:10{digits}}" for run in (cold, warm))
        lines.append(f"{name.replace('_', ' '):20}{cells}")
    return "\n".join(lines)


def check(cold: Run, warm: Run) -> None:
    """Raises DemoError unless the cold run compiled, the warm run did not, and both computed the same."""
    if not cold.compiled:
        raise DemoError("the cold run compiled nothing, although its cache was empty")
    if cold.lines != warm.lines:
        raise DemoError("the two runs printed different losses or parameter digests")
    if warm.compiled:
        raise DemoError(f"the warm run compiled {warm.compiled} of its programs")


def demo(arguments: Sequence[str]) -> None:
    """Runs cold, runs warm, and shows both."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise DemoError(f"not installed: {', '.join(missing)} (see examples/requirements.txt)")
    with tempfile.TemporaryDirectory(prefix="rewarm-demo-") as folder:
        cold = run("cold", Path(folder), arguments)
        warm = run("warm", Path(folder), arguments)
    print(f"\n{table(cold, warm)}\n")
    check(cold, warm)
    print("ok: the warm run compiled nothing, and its losses and parameters are the same, bit by bit")


def main() -> int:
    """Runs the demo and returns the exit status."""
    try:
        demo(sys.argv[1:])
    except DemoError as error:
        print(f"demo: FAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
