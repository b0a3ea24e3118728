"""How long it takes, and how much memory, to compile a train step for machines that are not there.

    python benchmarks/prewarm.py [--only h200] [--out benchmarks/prewarm.md]

Compiles `prewarm_plan.py` for each target in a directory of its own, by `rewarm prewarm` in fresh processes, and then
asks with `--check` from another folder whether the entry is there. Writes a table as Markdown. The compilers are those
that `tools/cuda-compiler` and `tools/tpu-compiler` have made for this Python and JAX; a target whose compiler is not
there is named and left out. Nothing is run on a device, and no tuning results are at hand, so for GPUs each program is
compiled three times (docs/prewarm.md, "Tuning"): "seconds" is all of that, "of them for the entry" one compile.

Not promised: that these times are another machine's. XLA compiles with as many threads as it finds, and the share of
this machine that others took meanwhile is in the table: times with much of it are upper bounds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLAN = Path(__file__).with_name("prewarm_plan.py")

RUNS = (
    *(("h200", "1x1x1"), ("h200", "1x1x8"), ("h200", "4x8x1"), ("a100", "1x1x8"), ("b200", "1x1x8")),
    *(("v5e", "2x4"), ("v6e", "2x2"), ("v5e", "16x16"), ("x86-64-v3", "1x2x4")),
)


@dataclass(frozen=True)
class Row:
    """One line of the table; times in seconds, sizes in bytes."""

    target: str
    topology: str
    devices: int
    seconds: float
    compile_seconds: float
    check_seconds: float
    memory: int
    entry: int
    fusions: str
    foreign: float

    def cells(self) -> list[str]:
        """As the table has them."""
        return [
            *(self.target, self.topology, str(self.devices), f"{self.seconds:.1f}", f"{self.compile_seconds:.1f}"),
            *(f"{self.check_seconds:.1f}", f"{self.memory / 2**20:.0f}", f"{self.entry / 2**10:.0f}", self.fusions),
            f"{100 * self.foreign:.0f} %",
        ]


HEAD = (
    *("target", "topology", "devices", "seconds", "of them for the entry", "`--check`, seconds"),
    *("memory, MiB", "entry, KiB", "fusions", "taken by others"),
)


def compiler(target: str) -> dict[str, str] | str:
    """The environment in which a target's compiler is found, or why there is none."""
    from rewarm import targets

    kind = {"cuda": "cuda", "tpu": "tpu"}.get(targets.named(target).platform)
    if kind is None:
        return {}
    jax = importlib.metadata.version("jax")
    folder = ROOT / ".venv" / kind / f"{jax}-py{sys.version_info[0]}.{sys.version_info[1]}"
    if not (folder / "ready").exists():
        return f"its compiler is not here: tools/{kind}-compiler {sys.executable}"
    if kind == "tpu":
        return {"PYTHONPATH": str(folder)}
    return {"PYTHONPATH": str(folder), "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={folder / 'nvidia' / 'cu13'}"}


def prewarmed(environment: dict[str, str], target: str, topology: str, cache: Path, *more: str) -> dict[str, Any]:
    """What `rewarm prewarm` says."""
    words = ["-W", "ignore", "-m", "rewarm", "prewarm", f"{PLAN}:plan", "--target", target, "--topology", topology]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "REWARM", "XLA_"))}
    folder = cache.parent / f"run {len(list(cache.parent.iterdir()))}"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, *words, "--dir", str(cache), "--json", *more],
        env={**clean, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not done.stdout.startswith("{"):
        raise RuntimeError(f"{target} {topology}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def measured(target: str, topology: str, environment: dict[str, str]) -> Row:
    """Compile, and look from elsewhere."""
    from rewarm import targets

    with tempfile.TemporaryDirectory(prefix="rewarm-benchmark-") as folder:
        cache = Path(folder) / "cache"
        since, before = time.perf_counter(), _busy()
        made = prewarmed(environment, target, topology, cache)
        took, busy = time.perf_counter() - since, _busy() - before
        looked = prewarmed(environment, target, topology, cache, "--check")
    [one], [again] = made["programs"], looked["programs"]
    if (one["outcome"], again["outcome"], one["key"]) != ("stored", "present", again["key"]):
        raise RuntimeError(f"{target} {topology}: {one} and then {again}")
    tuning = one["tuning"] or {}
    own = _of_children() - measured.before
    measured.before += own
    return Row(
        target,
        topology,
        targets.named(target).topology(topology).devices,
        one["seconds"],
        one["compile_seconds"],
        looked["seconds"],
        one["memory"],
        one["bytes"],
        "" if tuning.get("fusions") is None else str(tuning["fusions"]),
        max(0.0, busy - own) / (took * (os.cpu_count() or 1)),
    )


measured.before = 0.0  # type: ignore[attr-defined]


def _busy() -> float:
    """Seconds that all processors have worked since the start of the machine."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return float(sum(ticks[:3]) + sum(ticks[5:8])) / os.sysconf("SC_CLK_TCK")


def _of_children() -> float:
    """Seconds that processes which this one has waited for, and theirs, have worked."""
    times = os.times()
    return times.children_user + times.children_system


def report(rows: list[Row], left_out: list[str]) -> Iterator[str]:
    """The page."""
    jax, jaxlib = (importlib.metadata.version(name) for name in ("jax", "jaxlib"))
    yield "# Pre-warming: times and memory"
    yield ""
    yield (
        "One train step of a transformer (`prewarm_plan.py`: 2 layers of width 1024, Adam, batch and matrices divided) "
        "compiled for machines that are not there. Made by `python benchmarks/prewarm.py`, which says what is measured."
    )
    yield ""
    yield (
        f"JAX {jax}, jaxlib {jaxlib}, Python {platform.python_version()}, {os.cpu_count()} processors "
        f"({platform.machine()}), no GPU or TPU, one program at a time, one run."
    )
    yield ""
    yield f"| {' | '.join(HEAD)} |"
    yield f"| {' | '.join('---' if number < 2 else '---:' for number in range(len(HEAD)))} |"
    yield from (f"| {' | '.join(row.cells())} |" for row in rows)
    if left_out:
        yield ""
        yield from (f"Left out: {line}." for line in left_out)
    yield ""
    yield "Memory is the most that the worker's process had. \"Taken by others\": of all processors' time meanwhile."


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", metavar="TARGET", action="append", help="only this target; may be repeated")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page here too")
    asked = parser.parse_args()
    rows: list[Row] = []
    left_out: list[str] = []
    for target, topology in RUNS:
        if asked.only and target not in asked.only:
            continue
        environment = compiler(target)
        if isinstance(environment, str):
            left_out.append(f"{target} {topology}: {environment}")
            continue
        rows.append(measured(target, topology, environment))
        print(" ".join(rows[-1].cells()), file=sys.stderr, flush=True)
    page = "\n".join(report(rows, left_out)) + "\n"
    print(page, end="")
    if asked.out is not None:
        asked.out.write_text(page)


if __name__ == "__main__":
    main()
