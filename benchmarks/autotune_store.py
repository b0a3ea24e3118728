"""What it costs to load, validate, merge and write 10,000 tuning entries, in each of XLA's formats.

Each run is a fresh process: it reads a set of entries, checks all of them against a build and a device, reads a second
set of which half are the same fusions with other results, merges the two, and writes the result in the same format.
Medians of the rounds; formats in turn at every round, in an order that changes.

Entries are Triton configurations on distinct matrix products, as a tuner writes them; the legacy ones have an HLO text
of some 300 bytes and a run time. Files lie in the page cache. Writing a folder syncs each file, so it measures the
disk.

    python benchmarks/autotune_store.py [--entries 10000] [--rounds 3] [--formats legacy-dir ...] [--json FILE]

Wall seconds with processor seconds in brackets: where other programs run as well, the latter tell more. Peak memory is
the process's (VmHWM, so Linux alone), and how much of it came after the imports. Exits with 1 when loading, validating
or merging takes more than `BOUND` processor seconds for 10,000 entries.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rewarm.autotune import targets
from rewarm.autotune.formats import (
    Family,
    Format,
    TuningEntry,
    Versions,
    build_of,
    read,
    validate,
    write,
)
from rewarm.autotune.formats.keys import codegen_version, codegen_versions
from rewarm.autotune.formats.protobuf import message_class
from rewarm.autotune.merging import merge
from rewarm.autotune.outputs import OUTPUTS

BOUND = 10.0
JAX = "0.12.0.1"
STEPS = ("load", "validate", "merge", "write")
_SUFFIXES = {Format.LEGACY_TEXT: ".textproto", Format.NEW_TEXT: ".txtpb"}
_BODY = """{
  tmp_0 = bf16[{rows},1024]{1,0} parameter(0)
  tmp_1 = bf16[1024,1024]{1,0} parameter(1)
  ROOT tmp_2 = bf16[{rows},1024]{1,0} dot(bf16[{rows},1024]{1,0} tmp_0, bf16[1024,1024]{1,0} tmp_1), \
lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


def result(choice: int) -> Any:
    """A sound Triton result, one of many."""
    made = message_class("xla.AutotuneResult")()
    for name, value in zip(("block_m", "block_n", "block_k"), (choice, choice // 4, choice // 16), strict=True):
        setattr(made.triton, name, 16 << (value % 4))
    made.triton.split_k, made.triton.num_stages, made.triton.num_warps, made.triton.num_ctas = 1, 3, 4, 1
    return made


def entry(family: Family, number: int, choice: int) -> TuningEntry:
    """The result for one of many fusions."""
    device, build = targets.device("h200"), build_of(JAX)
    assert build is not None
    made = result(choice)
    if family is Family.LEGACY:
        made.run_time.nanos = 10_000 + choice
        fusion, versions = _BODY.replace("{rows}", str(number + 1)), Versions(entry=build.entry_version)
        return TuningEntry(
            family, device.legacy, fusion, "TRITON", made.SerializeToString(deterministic=True), versions
        )
    config = message_class("xla.autotuner.BackendConfig")(triton=made.triton)
    told = codegen_versions(build, device)
    versions = Versions(codegen=codegen_version(told), backend=told["TRITON"])
    fusion = hashlib.sha256(str(number).encode()).hexdigest()[:32]
    data = config.SerializeToString(deterministic=True)
    return TuningEntry(family, device.fingerprint, fusion, "TRITON", data, versions)


def place_of(folder: Path, form: Format, name: str) -> Path:
    """Where a set of a format lies."""
    suffix = "" if form.is_directory else _SUFFIXES.get(form, ".pb")
    return folder / f"{form.value}-{name}{suffix}"


def prepare(folder: Path, forms: list[Format], count: int) -> None:
    """Two sets in each format; half of the second are fusions of the first."""
    for family in {form.family for form in forms}:
        first = [entry(family, number, number) for number in range(count)]
        second = [entry(family, number + count // 2, number + 1) for number in range(count)]
        for form in forms:
            if form.family is family:
                write(first, place_of(folder, form, "a"), form)
                write(second, place_of(folder, form, "b"), form)


def peak_of_memory() -> int:
    """The most memory that this process had, in bytes; unlike ru_maxrss nothing of the one that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def run_one(folder: Path, form: Format) -> dict[str, float]:
    """The steps, in this process: seconds of each, and the peak of memory in bytes."""
    base = peak_of_memory()
    device, build = targets.device("h200"), build_of(JAX)
    clock = Clock()
    first = read(place_of(folder, form, "a"))
    clock.lap("load")
    findings = validate(first, build=build, device=device)
    clock.lap("validate")
    assert not first.findings
    assert not findings, findings[0]
    second = read(place_of(folder, form, "b"))
    clock.lap("")
    merged = merge(first.entries, second.entries)
    clock.lap("merge")
    assert len(merged.entries) == len(first.entries) * 3 // 2
    write(merged.entries, place_of(folder, form, "c"), form)
    clock.lap("write")
    peak = peak_of_memory()
    return {**clock.laps, "peak": peak, "added": peak - base}


class Clock:
    """Seconds between laps, of the wall's clock and of the processor."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def lap(self, name: str) -> None:
        """Note what passed since the last lap, unless it has no name."""
        wall, processor = time.perf_counter(), time.process_time()
        if name:
            self.laps |= {name: wall - self._wall, f"{name} processor": processor - self._processor}
        self._wall, self._processor = time.perf_counter(), time.process_time()


def measure(folder: Path, forms: list[Format], rounds: int) -> dict[str, list[dict[str, float]]]:
    """A fresh process for each format and round."""
    choice, found = random.Random(0), dict[str, list[dict[str, float]]]()
    for _ in range(rounds):
        for form in choice.sample(forms, len(forms)):
            command = [sys.executable, __file__, "--one", form.value, "--folder", str(folder)]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found.setdefault(form.value, []).append(json.loads(told))
    return found


def main() -> int:
    """Measure, print, and say whether the bound holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", nargs="+", type=Format, default=list(OUTPUTS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=Format, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run_one(arguments.folder, arguments.one)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name), arguments.formats, arguments.entries)
        runs = measure(Path(name), arguments.formats, arguments.rounds)
    medians = {
        form: {key: statistics.median(run[key] for run in found) for key in found[0]} for form, found in runs.items()
    }
    print(f"\n{arguments.entries:,} entries, medians of {arguments.rounds}\n")
    print("| format | load s | validate s | merge s | write s | peak MiB | added MiB |\n| --- |" + " ---: |" * 6)
    for form, row in medians.items():
        numbers = [f"{row[step]:.2f} ({row[f'{step} processor']:.2f})" for step in STEPS] + [
            f"{row[what] / 2**20:.0f}" for what in ("peak", "added")
        ]
        print(f"| {form} | {' | '.join(numbers)} |")
    if arguments.json:
        arguments.json.write_text(json.dumps({"entries": arguments.entries, "runs": runs}, indent=2))
    slow = [form for form, row in medians.items() if max(row[f"{step} processor"] for step in STEPS[:3]) > BOUND]
    return 1 if slow and arguments.entries <= 10_000 else 0


if __name__ == "__main__":
    sys.exit(main())
