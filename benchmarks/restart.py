"""Restarts of real programs: JAX's own warm cache, rewarm's, and rewarm with executables loaded ahead.

    python benchmarks/restart.py [--rounds N] [--programs NAME,NAME] [--layers 12,24] [--json FILE]

Each run is a whole fresh process, timed from its start to its exit, in an order that changes each round. All
directories are filled by untimed runs: two, since an entry is not loaded ahead before it has run on the host once, and
three with `rewarm.jit`, which skips a trace only after another process has proved it.

* native: JAX's own cache.
* rewarm: rewarm, turned on by the environment, with `REWARM_LOAD_AHEAD=0`.
* ahead: the same with load-ahead, which begins when JAX starts its backend.
* ahead-early: `rewarm.enable(load_ahead="early")` as the program's first line, so that it begins before the imports.
* jit: as ahead-early, and `jax.jit` is `rewarm.jit` for everything that is imported after that.
* limit: what no start can do without (`programs/_limit.py`): import JAX, load in parallel, run each executable once.
* limit-imports: the same, and what the program itself imports, which rewarm cannot make faster.

The programs are those of `warm_start.py`, and the transformer with 12 and 24 layers and two steps
(`programs/_transformer_layers.py`).

Exits with 1 when results differ or when a run of a cache compiled anything.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _processes import (
    BenchmarkError,
    Run,
    Spread,
    describe_machine,
    package_versions,
    paired_ratios,
    rotated,
    run_program,
    scratch_directory,
)

PROGRAMS = Path(__file__).resolve().parent / "programs"
NATIVE, REWARM, AHEAD, EARLY, JIT, LIMIT, IMPORTS = CONTESTANTS = (
    "native",
    "rewarm",
    "ahead",
    "ahead-early",
    "jit",
    "limit",
    "limit-imports",
)
IMPORTED = {
    "transformer_step": ("pydoc_data.topics", "flax.linen", "optax", "flax.training.train_state"),
    "numpyro_nuts": ("numpyro", "numpyro.infer"),
    "mjx_step": ("mujoco", "mujoco.mjx"),
}
PACKAGES = ("jax", "jaxlib", "rewarm", "numpy", "flax", "optax", "numpyro", "mujoco-mjx")


@dataclass(frozen=True)
class Program:
    """A program, its arguments, and what it imports beside JAX."""

    name: str
    script: Path
    arguments: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()


@dataclass
class Row:
    """The runs of one contestant, in the order of the rounds."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    foreign_cpu_seconds: list[float] = field(default_factory=list)
    used: int = 0
    skipped: int = 0


class Restarts:
    """One program with every contestant."""

    def __init__(self, program: Program, scratch: Path) -> None:
        self.program = program
        self.rows = {name: Row() for name in CONTESTANTS}
        self._scratch = scratch / program.name
        self._scratch.mkdir()
        self._early = self._scratch / f"early_{program.script.name}"
        self._early.write_text(_launcher(program, ""))
        self._jit = self._scratch / f"jit_{program.script.name}"
        self._jit.write_text(_launcher(program, "import jax; jax.jit = rewarm.jit\n"))
        self._result = ""

    def measure(self, rounds: int) -> None:
        """Fill the directories, and run all rounds."""
        for name in CONTESTANTS:
            for _ in range({JIT: 3, LIMIT: 0, IMPORTS: 0}.get(name, 2)):
                self._run(name)
        for number in range(rounds):
            for name in rotated(CONTESTANTS, number):
                run = self._run(name)
                self._check(name, run)
                row = self.rows[name]
                row.seconds.append(run.seconds)
                row.cpu_seconds.append(run.cpu_seconds)
                row.foreign_cpu_seconds.append(run.foreign_cpu_seconds)
                print(f"  {self.program.name} {number + 1}/{rounds} {name}: {run.seconds:.2f} s", file=sys.stderr)

    def _run(self, name: str) -> Run:
        directory = self._scratch / name
        directory.mkdir(exist_ok=True)
        settings = {"REWARM_DIR": str(directory), "REWARM_LOAD_AHEAD": "0" if name == REWARM else "1"}
        if name == NATIVE:
            settings = {
                "JAX_COMPILATION_CACHE_DIR": str(directory),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        if name in (LIMIT, IMPORTS):
            modules = self.program.imports if name == IMPORTS else ()
            return run_program(PROGRAMS / "_limit.py", {}, (str(self._scratch / EARLY), *modules))
        script = {EARLY: self._early, JIT: self._jit}.get(name, self.program.script)
        run = run_program(script, settings, self.program.arguments)
        self._result = self._result or run.result
        if run.result != self._result:
            raise BenchmarkError(f"{self.program.name}: another result with {name}")
        return run

    def _check(self, name: str, run: Run) -> None:
        stats = run.record["rewarm"]
        if name in (LIMIT, IMPORTS):
            missed = 0
        elif name == NATIVE:
            missed = run.record["compile_calls"] - run.record["events"].get("cache_hits", 0)
        else:
            missed = stats["misses"] + sum(stats["left_to_jax"].values())
            self.rows[name].used = stats["loads_ahead"].get("used", 0)
            self.rows[name].skipped = stats["jitted"].get("skipped", 0)
        if missed:
            raise BenchmarkError(f"{self.program.name}: {name} compiled {missed} programs")

    def report(self) -> str:
        """The table, for people."""
        lines = [
            f"\n{self.program.name}",
            "| contestant | wall s | 95 % of medians | cpu s | loaded ahead | not traced | over native | over limit "
            "| over limit-imports |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for name, row in self.rows.items():
            wall, cpu = Spread.of(row.seconds), Spread.of(row.cpu_seconds)
            ratio, limit, imports = (self.ratio(name, other) for other in (NATIVE, LIMIT, IMPORTS))
            lines.append(
                f"| {name} | {wall.median:.2f} | {wall.low:.2f}-{wall.high:.2f} | {cpu.median:.2f} "
                f"| {row.used} | {row.skipped} | {ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f}) "
                f"| {limit.median:.2f} | {imports.median:.2f} |"
            )
        seconds = sum(sum(row.seconds) for row in self.rows.values())
        foreign = sum(sum(row.foreign_cpu_seconds) for row in self.rows.values()) / seconds
        return "\n".join([*lines, f"other work kept {foreign:.2f} CPUs busy meanwhile"])

    def ratio(self, name: str, other: str) -> Spread:
        """Wall time over another contestant's, round by round."""
        return Spread.of(paired_ratios(self.rows[name].seconds, self.rows[other].seconds))

    def as_dict(self) -> dict[str, Any]:
        """Every figure, for machines."""
        return {name: vars(row) for name, row in self.rows.items()}


def _launcher(program: Program, first: str) -> str:
    """A script that turns rewarm on before anything else, and runs the program."""
    return (
        f"import rewarm, runpy, sys\nrewarm.enable(load_ahead='early')\n{first}"
        f"sys.path.insert(0, {str(PROGRAMS)!r})\n"
        f"runpy.run_path({str(program.script)!r}, run_name='__main__')\n"
    )


def programs(names: Sequence[str], layers: Sequence[int]) -> list[Program]:
    """The programs of these names, and the transformer with so many layers."""
    real = [Program(name, PROGRAMS / f"{name}.py", (), IMPORTED.get(name, ())) for name in names]
    deep, imports = PROGRAMS / "_transformer_layers.py", IMPORTED["transformer_step"]
    return [*real, *(Program(f"transformer_{count}_layers", deep, (str(count),), imports) for count in layers)]


def main() -> int:
    """Measure, report, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", default="transformer_step,numpyro_nuts,mjx_step")
    parser.add_argument("--layers", default="12,24")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    names = [name for name in arguments.programs.split(",") if name]
    layers = [int(count) for count in arguments.layers.split(",") if count]
    machine = describe_machine()
    print(f"{machine['cpu']}, {machine['cpus']} CPUs, Python {machine['python']}")
    print(", ".join(f"{name} {version}" for name, version in package_versions(PACKAGES).items()))
    figures = {}
    try:
        with scratch_directory() as scratch:
            for program in programs(names, layers):
                restarts = Restarts(program, scratch)
                restarts.measure(arguments.rounds)
                print(restarts.report(), flush=True)
                figures[program.name] = restarts.as_dict()
    except BenchmarkError as error:
        print(f"FAIL: {error}")
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "programs": figures}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
