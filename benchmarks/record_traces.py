"""Records what real programs ask of the cache, start by start, for `eviction.py` to replay.

    python benchmarks/record_traces.py [--traces NAME,NAME] [--at-once N] [--out FOLDER]

Not promised: that another recording gives the same seconds: they are wall time, which other work makes longer. Each
start is a fresh process with rewarm on; what it asked for is read from rewarm's own record of the run, and what an
entry is worth from the miss that made it. Nothing is evicted while a trace is recorded, so every entry has one. The
trace `month` is put together: the starts of the others, interleaved as one user's, each in its own order.

Needs what benchmarks/requirements.txt names. Took 25 minutes on two busy cores.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _processes import describe_machine, package_versions, run_program, scratch_directory
from _traces import TRACES, Entry, Start, Trace, load, save, united
from rewarm.ledger.journal import RUNS
from rewarm.ledger.runs import read_run

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "benchmarks" / "programs"
PACKAGES = ("jax", "jaxlib", "rewarm", "numpy", "flax", "optax", "numpyro", "mujoco", "mujoco-mjx")
SEED = 20

Commands = list[str]


def repeated(*counted: tuple[int, str]) -> Commands:
    """Each command as many times in a row as its number says."""
    return [command for count, command in counted for _ in range(count)]


def training() -> Commands:
    """Restarts of a training program while its author tries depths, widths, rates and batches."""

    def train(options: str) -> str:
        return f"transformer.py --steps 4 {options}"

    base, wide = train("--layers 2 --width 64"), train("--layers 2 --width 96")
    deep = train("--layers 4 --width 96")
    return repeated(
        (3, base),
        (2, train("--layers 2 --width 64 --learning-rate 3e-4")),
        (2, train("--layers 3 --width 64 --learning-rate 3e-4")),
        (1, base),
        (3, wide),
        (2, train("--layers 2 --width 96 --learning-rate 3e-4")),
        (2, train("--layers 2 --width 96 --batch 16")),
        (1, base),
        (1, wide),
        (3, deep),
        (2, train("--layers 4 --width 96 --dropout 0.2")),
        (1, train("--layers 4 --width 96 --context 96")),
        (2, deep),
        (1, base),
        (3, train("--layers 4 --width 96 --learning-rate 3e-4")),
        (1, deep),
    )


def inference() -> Commands:
    """A statistician's day with numpyro: several models, compared and refitted, then with more data."""

    def fit(model: str, size: int = 20) -> str:
        return f"numpyro_models.py --model {model} --size {size}"

    first = [fit("regression"), fit("eight_schools"), fit("eight_schools"), fit("mixture"), fit("eight_schools")]
    compared = [fit(model) for model in ("regression", "mixture", "counts", "eight_schools", "volatility")]
    more = repeated((2, fit("counts", 40)), (1, fit("regression", 40)), (2, fit("counts", 40)), (1, fit("process")))
    return [
        *first,
        *compared,
        fit("volatility"),
        fit("process"),
        *compared,
        *more,
        fit("eight_schools"),
        fit("process"),
    ]


def robotics() -> Commands:
    """MuJoCo MJX: mechanisms of different sizes, the largest used now and then."""

    def simulate(mechanism: str, batch: int = 4) -> str:
        return f"mjx_models.py --mechanism {mechanism} --batch {batch}"

    humanoid = "mjx_step.py --humanoids 2 --steps 4"
    return [
        *repeated((2, simulate("pendulum")), (2, simulate("double_pendulum")), (1, humanoid)),
        *repeated((1, simulate("cart_pole")), (2, simulate("arm")), (1, simulate("pendulum")), (1, simulate("arm", 8))),
        *repeated((1, simulate("ball")), (1, humanoid), (1, simulate("arm")), (2, simulate("cart_pole"))),
        *repeated((1, "mjx_step.py --humanoids 4 --steps 4"), (1, simulate("ball")), (1, simulate("arm"))),
        *repeated((1, humanoid), (1, simulate("double_pendulum")), (1, simulate("arm", 8)), (1, simulate("arm"))),
    ]


def integration() -> Commands:
    """A test suite of 150 programs: each push edits one part and tests it with others; each night tests all."""
    sys.path.insert(0, str(PROGRAMS))
    names: list[str] = list(importlib.import_module("suite").FAMILIES)
    draw = random.Random(SEED)
    revisions: dict[str, int] = {}
    commands = ["suite.py"]
    for push in range(24):
        edited = draw.choice(names)
        revisions[edited] = revisions.get(edited, 0) + 1
        tested = sorted({edited, *draw.sample(names, draw.choice((2, 4, 8)))})
        told = ",".join(f"{name}={number}" for name, number in sorted(revisions.items()))
        commands.append(f"suite.py --families {','.join(tested)} --revisions {told}")
        if push % 6 == 5:
            commands.append(f"suite.py --revisions {told}")
    return commands


def sweep() -> Commands:
    """A working set of four programs, used before, between and after sweeps of one-off sizes."""
    daily = [
        "transformer.py --steps 4 --layers 2 --width 64",
        "numpyro_models.py --model counts --size 20",
        "notebook.py --notebook statistics --size 64",
        "mjx_models.py --mechanism double_pendulum --batch 4",
    ]
    draw = random.Random(SEED)
    widths = iter(draw.sample(range(24, 160, 8), 16))
    commands = [*daily, *daily]
    for _ in range(4):
        commands += [
            f"transformer.py --steps 4 --layers {1 + number % 2} --width {next(widths)}" for number in range(4)
        ]
        commands += daily
    return commands


def notebooks() -> Commands:
    """Notebooks of single operations, run again from the top, down to some cell, and on other data."""

    def run(name: str, size: int = 64, cells: int = 100) -> str:
        return f"notebook.py --notebook {name} --size {size} --cells {cells}"

    growing = [run(name, cells=cells) for name in ("signals", "algebra", "statistics") for cells in (2, 4, 100)]
    others = [run("images", cells=3), run("images"), run("dynamics", cells=2), run("dynamics"), run("signals")]
    larger = [run(name, 96) for name in ("signals", "statistics", "images")]
    again = [run(name) for name in ("statistics", "dynamics", "algebra", "images")]
    return [*growing, *others, *again, *larger, *again[:2], *larger[:2], run("signals", 128), *again, run("images", 96)]


PLANS = {plan.__name__: plan for plan in (sweep, integration, training, robotics, inference, notebooks)}
MONTH = "month"


class Recorder:
    """Runs the commands of one trace, one after the other, with one directory."""

    def __init__(self, name: str, directory: Path) -> None:
        self.versions: dict[str, str] = {}
        self._name = name
        self._directory = directory
        self._made: dict[str, Entry] = {}

    def record(self, commands: Sequence[str]) -> tuple[Start, ...]:
        """Runs all of them; returns what each asked for."""
        return tuple(self._start(number, command, len(commands)) for number, command in enumerate(commands, 1))

    def _start(self, number: int, command: str, of: int) -> Start:
        program, *options = command.split()
        folder = ROOT / "examples" if program == "transformer.py" else PROGRAMS
        before = self._runs()
        run = run_program(folder / program, {"REWARM_DIR": str(self._directory)}, options)
        asks: dict[str, Entry] = {}
        for path in sorted(self._runs() - before):
            for event in self._events(path):
                entry = self._entry(event)
                if entry is not None:
                    asks.setdefault(entry.key, entry)
        told = f"{self._name}: {number}/{of} {command[:70]}: {run.seconds:.1f} s, {len(asks)} entries"
        print(told, file=sys.stderr, flush=True)
        return Start(command, tuple(asks.values()))

    def _runs(self) -> set[Path]:
        """The runs so far; looked at after each process, since only the newest are kept."""
        return set((self._directory / RUNS).glob("*.jsonl"))

    def _events(self, path: Path) -> tuple[Mapping[str, Any], ...]:
        run = read_run(path)
        if run.damaged or run.truncated or run.info.state != "ended":
            raise RuntimeError(f"the record of a run is not whole: {path}")
        self.versions |= run.info.about["versions"]
        return run.events

    def _entry(self, event: Mapping[str, Any]) -> Entry | None:
        """The entry that a request meant; `None` for a program that cannot be stored."""
        key = event["key"]
        if event["stored"]:
            entry = Entry(key[:12], event["bytes_written"], round(event["seconds"]["compile"], 4))
            self._made.setdefault(key, entry)
        return self._made.get(key)


def about(what: str, made: str, versions: Mapping[str, str]) -> dict[str, Any]:
    """The header of a trace: what it is, how it was made, on what."""
    machine = describe_machine()
    load = f"load average {os.getloadavg()[2]:.0f} as it ended"
    words = f"{machine['cpus']} shared cores of a virtual machine ({machine['cpu']}), JAX on the CPU; {load}"
    return {"what": what, "made": made, "versions": dict(sorted(versions.items())), "machine": words}


def record(name: str, scratch: Path, out: Path) -> None:
    """Records one trace and saves it."""
    since = time.perf_counter()
    plan = PLANS[name]
    recorder = Recorder(name, scratch / name)
    starts = recorder.record(plan())
    versions = {**package_versions(PACKAGES), **recorder.versions}
    made = "each start is a fresh process, in this order"
    path = save(Trace(name, starts, about((plan.__doc__ or "").strip(), made, versions)), out)
    print(f"{path.name}: {len(starts)} starts in {time.perf_counter() - since:.0f} s", file=sys.stderr, flush=True)


def month(traces: Sequence[Trace]) -> Trace:
    """All traces as one user's: in bursts of up to four starts of one trace, each trace in its own order."""
    draw = random.Random(SEED)
    left = {trace.name: list(trace.starts) for trace in traces}
    starts: list[Start] = []
    while waiting := [name for name, rest in left.items() if rest]:
        chosen = left[draw.choices(waiting, [len(left[name]) for name in waiting])[0]]
        burst = draw.randint(1, 4)
        starts += chosen[:burst]
        del chosen[:burst]
    made = "put together from the starts of the other traces, in bursts of up to four, each trace in its own order"
    header = {**traces[0].about, "what": "One user's month: all the other traces, interleaved.", "made": made}
    return Trace(MONTH, united(starts), header)


def recorded(folder: Path) -> Iterator[Trace]:
    """The traces of `PLANS` that the folder has."""
    for name in sorted(PLANS):
        if (folder / f"{name}.jsonl").exists():
            yield load(folder / f"{name}.jsonl")


def main() -> int:
    """Records the traces that were asked for, and puts the month together anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default=",".join(PLANS), help="default: %(default)s")
    parser.add_argument("--at-once", type=int, default=2, help="how many traces at once (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=TRACES)
    arguments = parser.parse_args()
    names = [name for name in arguments.traces.split(",") if name]
    with scratch_directory() as scratch, ThreadPoolExecutor(arguments.at_once) as pool:
        for done in [pool.submit(record, name, scratch, arguments.out) for name in names]:
            done.result()
    save(month(list(recorded(arguments.out))), arguments.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
