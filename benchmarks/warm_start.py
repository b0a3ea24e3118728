"""How long real programs take, cold and warm, with rewarm and with JAX's own cache.

    python benchmarks/warm_start.py [--rounds N] [--warm-runs N] [--programs NAME,NAME] [--json FILE]

Each run is a whole fresh process. In every round each contestant runs: without any cache, cold with each cache
(a new empty directory), warm with each cache (a directory that one untimed run filled), the warm ones several
times, since they are short. The two caches run one right after the other, and the order changes each time.
rewarm against JAX's own cache is the median of the ratios of neighbours. JAX's own cache stores everything here,
whatever its compile time or size.

A shared machine's wall times vary by ten per cent and more from run to run, so the median comes with the interval
in which it is known (95 %). A median over the bound fails only where the whole interval is over it; else the
verdict is that this many rounds do not decide.

"cpu s" is processor time; "calls s" is JAX's own timer around each "compile, or fetch from a cache".

Exits with status 1 if results differ, if a warm run with rewarm compiled anything, or if a ratio fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _processes import (
    BenchmarkError,
    Run,
    Spread,
    describe_machine,
    directory_state,
    package_versions,
    paired_ratios,
    rotated,
    run_program,
    scratch_directory,
)

BOUND = 1.02
QUIET_LOAD = 0.05
PROGRAMS = Path(__file__).resolve().parent / "programs"
PACKAGES = (
    "jax", "jaxlib", "rewarm", "numpy", "zstandard", "flax", "optax", "numpyro", "mujoco", "mujoco-mjx",
)  # fmt: skip


@dataclass(frozen=True)
class Contestant:
    """A cache, or none, and whether its directory is filled before the program starts."""

    cache: str
    warm: bool = False

    @property
    def name(self) -> str:
        """The contestant's name in tables and in JSON."""
        return self.cache if self.cache == "none" else f"{'warm' if self.warm else 'cold'}-{self.cache}"

    def settings(self, directory: Path) -> dict[str, str]:
        """Returns the environment that switches this contestant's cache on, at its best."""
        if self.cache == "native":
            return {
                "JAX_COMPILATION_CACHE_DIR": str(directory),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        return {"REWARM_DIR": str(directory)} if self.cache == "rewarm" else {}


# Those of one group are compared with each other, and therefore run one right after the other.
GROUPS = (
    (Contestant("none"),),
    (Contestant("native"), Contestant("rewarm")),
    (Contestant("native", warm=True), Contestant("rewarm", warm=True)),
)
CONTESTANTS = tuple(contestant for group in GROUPS for contestant in group)


def order_of(number: int, warm_runs: int) -> list[Contestant]:
    """Returns the contestants in the order of one round, the warm pair as often as asked.

    The groups move on by one each round, and a pair changes its inner order each time, so that neither a drift of
    the machine nor what ran just before favours one cache.
    """
    order: list[Contestant] = []
    for group in rotated(GROUPS, number):
        for repeat in range(warm_runs if group[0].warm else 1):
            order += rotated(group, number + repeat)
    return order


@dataclass(frozen=True)
class Counts:
    """How many programs a process asked for, how many it got from the cache, and how many it compiled."""

    requests: int
    hits: int
    compiled: int

    @classmethod
    def of(cls, run: Run, cache: str) -> Counts:
        """Reads the counts that belong to the cache: rewarm's own statistics, or JAX's monitoring events."""
        stats = run.record["rewarm"]
        if (stats is not None) != (cache == "rewarm"):
            raise BenchmarkError(f"{cache}: rewarm was {'not ' if stats is None else ''}at work in this run")
        if stats is not None:
            left_to_jax = sum(stats["left_to_jax"].values())
            return cls(stats["requests"] + left_to_jax, stats["hits"], stats["misses"] + left_to_jax)
        calls, hits = run.record["compile_calls"], run.record["events"].get("cache_hits", 0)
        return cls(calls, hits, calls - hits)


@dataclass
class Measurements:
    """All timed runs of one contestant, in the order of the rounds.

    `compile_call_seconds` is JAX's own timer around each "compile, or fetch from a cache".
    """

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    compile_call_seconds: list[float] = field(default_factory=list)
    foreign_cpu_seconds: list[float] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
    files_changed: int = 0

    def add(self, run: Run, counts: Counts) -> None:
        """Takes in the run of one round."""
        self.seconds.append(run.seconds)
        self.cpu_seconds.append(run.cpu_seconds)
        self.compile_call_seconds.append(run.record["compile_call_seconds"])
        self.foreign_cpu_seconds.append(run.foreign_cpu_seconds)
        self.counts.append(counts)

    @property
    def compiled(self) -> int:
        """How many programs the worst of the runs compiled."""
        return max(counts.compiled for counts in self.counts)


class ProgramBenchmark:
    """Measures one program with every contestant and judges the outcome."""

    def __init__(self, name: str, scratch: Path, settings: Mapping[str, str]) -> None:
        self.name = name
        self.backend: str | None = None
        self.results: dict[str, set[str]] = {contestant.name: set() for contestant in CONTESTANTS}
        self.measured = {contestant.name: Measurements() for contestant in CONTESTANTS}
        self._scratch = scratch / name
        self._settings = settings

    def measure(self, rounds: int, warm_runs: int) -> None:
        """Fills the warm contestants' directories, then runs all rounds."""
        for contestant in CONTESTANTS:
            if contestant.warm:
                self._run(contestant, "fill")
        for number in range(rounds):
            for contestant in order_of(number, warm_runs):
                run = self._run(contestant, f"round {number + 1}/{rounds}")
                self.measured[contestant.name].add(run, Counts.of(run, contestant.cache))

    def _run(self, contestant: Contestant, label: str) -> Run:
        """Runs the program once; a cold contestant's directory is new, and gone again afterwards."""
        directory = self._scratch / contestant.name
        directory.mkdir(parents=True, exist_ok=True)
        before = directory_state(directory)
        run = run_program(PROGRAMS / f"{self.name}.py", {**self._settings, **contestant.settings(directory)})
        if label != "fill" and contestant.warm:
            after = directory_state(directory)
            changed = len(set(before.items()) ^ set(after.items()))
            self.measured[contestant.name].files_changed += changed
        if not contestant.warm:
            shutil.rmtree(directory)
        self.results[contestant.name].add(run.result)
        self.backend = run.record["backend"]
        counts = Counts.of(run, contestant.cache)
        progress = f"{self.name}: {label}: {contestant.name} {run.seconds:.3f} s, {counts.compiled} compiled"
        print(progress, file=sys.stderr, flush=True)
        return run

    def ratios(self, temperature: str) -> Spread:
        """Returns rewarm's wall time over that of JAX's own cache, "cold" or "warm"."""
        ours, native = (self.measured[f"{temperature}-{cache}"] for cache in ("rewarm", "native"))
        return Spread.of(paired_ratios(ours.seconds, native.seconds))

    def cpu_ratio(self, temperature: str) -> float:
        """Returns the median ratio of processor times, on which other work weighs less than on wall times."""
        ours, native = (self.measured[f"{temperature}-{cache}"] for cache in ("rewarm", "native"))
        return Spread.of(paired_ratios(ours.cpu_seconds, native.cpu_seconds)).median

    def foreign_load(self) -> float:
        """Returns how many processors other work kept busy, on average over all the timed runs."""
        foreign = sum(sum(measured.foreign_cpu_seconds) for measured in self.measured.values())
        return foreign / sum(sum(measured.seconds) for measured in self.measured.values())

    def best_ratio(self, temperature: str) -> float:
        """Returns the ratio of the fastest runs: what a busy machine disturbs least."""
        ours, native = (self.measured[f"{temperature}-{cache}"] for cache in ("rewarm", "native"))
        return min(ours.seconds) / min(native.seconds)

    def failures(self) -> list[str]:
        """Says what is wrong, a line each; nothing if all is well."""
        found = []
        if len(set().union(*self.results.values())) != 1:
            found.append(f"{self.name}: results differ: {self._distinct_results()}")
        if compiled := self.measured["warm-rewarm"].compiled:
            found.append(f"{self.name}: a warm run with rewarm compiled {compiled} programs")
        if not all(counts.compiled for counts in self.measured["cold-rewarm"].counts):
            found.append(f"{self.name}: a cold run with rewarm compiled nothing, so it was not cold")
        for temperature in ("cold", "warm"):
            if (ratio := self.ratios(temperature)).low > BOUND:
                found.append(f"{self.name}: {temperature} ratio {ratio.median:.3f} is over the bound {BOUND}")
        return found

    def _distinct_results(self) -> str:
        return "; ".join(
            f"{name} {', '.join(sorted(result[:12] for result in results))}" for name, results in self.results.items()
        )

    def report(self) -> str:
        """Returns the table and the verdicts, for people."""
        columns = ("median", "min", "max", "cpu s", "calls s", "requests", "hits", "compiled")
        lines = [
            f"{self.name} on {self.backend}: whole process, wall seconds",
            f"  {'':12}" + "".join(f" {column:>8}" for column in columns),
        ]
        for name, measured in self.measured.items():
            wall, cpu = Spread.of(measured.seconds), Spread.of(measured.cpu_seconds)
            calls = Spread.of(measured.compile_call_seconds)
            counts = measured.counts[-1]
            lines.append(
                f"  {name:12} {wall.median:8.3f} {wall.min:8.3f} {wall.max:8.3f} {cpu.median:8.3f}"
                f" {calls.median:8.3f} {counts.requests:8d} {counts.hits:8d} {measured.compiled:8d}"
            )
        for temperature in ("cold", "warm"):
            ratio, cpu_ratio = self.ratios(temperature), self.cpu_ratio(temperature)
            lines.append(
                f"  {temperature} rewarm/native {ratio.median:.3f} (95 %: {ratio.low:.3f} to {ratio.high:.3f}),"
                f" bound {BOUND}: {verdict(ratio)}; cpu {cpu_ratio:.3f},"
                f" fastest runs {self.best_ratio(temperature):.3f}"
            )
        lines.extend(f"  {line}" for line in self._notes())
        return "\n".join(lines)

    def _notes(self) -> list[str]:
        """Returns what is to be said beside the figures."""
        same = len(set().union(*self.results.values())) == 1
        notes = [f"results: {'identical in all runs' if same else 'DIFFERENT: ' + self._distinct_results()}"]
        for cache in ("rewarm", "native"):
            measured = self.measured[f"warm-{cache}"]
            notes.append(f"warm {cache}: compiled {measured.compiled} programs, changed {measured.files_changed} files")
        load = self.foreign_load()
        advice = "" if load <= QUIET_LOAD else ": wall times say little, measure on a quiet machine"
        notes.append(f"other work kept {load:.2f} CPUs busy meanwhile{advice}")
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Returns every figure, for machines."""
        return {
            "backend": self.backend,
            "contestants": {name: dataclasses.asdict(measured) for name, measured in self.measured.items()},
            "foreign_load": self.foreign_load(),
            "results": {name: sorted(results) for name, results in self.results.items()},
            "ratios": {
                temperature: {
                    **dataclasses.asdict(self.ratios(temperature)),
                    "cpu": self.cpu_ratio(temperature),
                    "fastest": self.best_ratio(temperature),
                }
                for temperature in ("cold", "warm")
            },
            "failures": self.failures(),
        }


def verdict(ratio: Spread) -> str:
    """Says whether a ratio keeps the bound, as far as it is known."""
    if ratio.median <= BOUND:
        return "pass"
    return "FAIL" if ratio.low > BOUND else "not decided by so many rounds"


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    known = sorted(path.stem for path in PROGRAMS.glob("[!_]*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    parser.add_argument("--warm-runs", type=int, default=4, help="of each warm contestant, in a round: %(default)s")
    parser.add_argument("--programs", default=",".join(known), help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE as well")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="set for all contestants; repeatable"
    )
    arguments = parser.parse_args()
    arguments.programs = arguments.programs.split(",")
    if unknown := set(arguments.programs) - set(known):
        parser.error(f"unknown programs: {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    if arguments.rounds < 1 or arguments.warm_runs < 1:
        parser.error("--rounds and --warm-runs must be at least 1")
    if any("=" not in setting for setting in arguments.env):
        parser.error("--env takes NAME=VALUE")
    return arguments


def measure(names: Sequence[str], rounds: int, warm_runs: int, settings: Mapping[str, str]) -> list[ProgramBenchmark]:
    """Measures the programs one after the other and prints the report of each as it is done."""
    benchmarks = []
    with scratch_directory() as scratch:
        for name in names:
            benchmark = ProgramBenchmark(name, scratch, settings)
            benchmark.measure(rounds, warm_runs)
            print(benchmark.report(), end="\n\n", flush=True)
            benchmarks.append(benchmark)
    return benchmarks


def main() -> int:
    """Measures, reports, and returns the exit status."""
    arguments = parse_arguments()
    about = {
        "machine": describe_machine(),
        "versions": package_versions(PACKAGES),
        "rounds": arguments.rounds,
        "warm_runs": arguments.warm_runs,
        "settings": dict(setting.split("=", 1) for setting in arguments.env),
    }
    machine = about["machine"]
    print(f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}, Python {machine['python']}")
    print(", ".join(f"{name} {version}" for name, version in about["versions"].items()))
    print(f"rounds: {arguments.rounds}, warm runs in each: {arguments.warm_runs}\n", flush=True)
    try:
        benchmarks = measure(arguments.programs, arguments.rounds, arguments.warm_runs, about["settings"])
    except BenchmarkError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 2
    failures = [line for benchmark in benchmarks for line in benchmark.failures()]
    if arguments.json:
        figures = {benchmark.name: benchmark.as_dict() for benchmark in benchmarks}
        document = {**about, "bound": BOUND, "programs": figures, "passed": not failures}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print("\n".join([*failures, "FAIL" if failures else "PASS"]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
