"""What a proof costs a program that runs meanwhile: the times of its steps while it is proved, and after.

    python benchmarks/proof_cost.py [--rounds N] [--json FILE]

A transformer's train step (`programs/_proved_steps.py`), once so small that a step takes some 2 ms and once so large
that it takes some 80 ms, by `rewarm.jit`, in fresh processes: after two untimed starts the traces are skipped, and each
start is proved in the background while it makes steps. "During" are the steps from the moment the proof begins to its
end, "after" as many (at least 100) that follow. Medians over all steps of all rounds, in milliseconds.

The state of proofs is put back between rounds, so that each round has one. Exits with 1 where a start had none, or a
proof did not come to the same program.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from _processes import BenchmarkError, clean_environment, describe_machine, run_program, scratch_directory

PROGRAM = Path(__file__).resolve().parent / "programs" / "_proved_steps.py"
SIZES = {"small": ("128", "5"), "large": ("512", "12")}


def quantile(values: list[float], share: float) -> float:
    """The value below which this share lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(scratch: Path, size: str, rounds: int) -> dict[str, Any]:
    """The steps of one size, during proofs and after them, in seconds."""
    directory, kept = scratch / size, scratch / f"{size}-filled"
    settings = {"REWARM_DIR": str(directory), "JAX_PLATFORMS": "cpu"}
    for _ in range(2):
        run_program(PROGRAM, {**settings, "STEPS": "3"}, SIZES[size])
    shutil.copytree(directory, kept)
    told: dict[str, Any] = {"during": [], "after": [], "proof": []}
    for number in range(rounds):
        shutil.rmtree(directory)
        shutil.copytree(kept, directory)
        run = run_program(PROGRAM, settings, SIZES[size])
        line = next(line for line in run.output.splitlines() if line.startswith("STEPS "))
        steps = json.loads(line.removeprefix("STEPS "))
        if steps["proofs"] != {"proof equal": 1} or not steps["skipped"]:
            raise BenchmarkError(f"{size}: {steps['proofs']}, {steps['skipped']} traces skipped")
        told["during"] += steps["during"]
        told["after"] += steps["after"]
        told["proof"].append(steps["proof"])
        print(f"  {size} {number + 1}/{rounds}: a proof of {steps['proof']:.1f} s", file=sys.stderr)
    return told


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    clean_environment({})
    machine, found = describe_machine(), {}
    try:
        with scratch_directory() as scratch:
            for size in SIZES:
                found[size] = measure(scratch, size, arguments.rounds)
    except BenchmarkError as error:
        print(f"FAIL: {error}")
        return 1
    print(f"{machine['cpu']}, {machine['cpus']} CPUs, Python {machine['python']}\n")
    print("| step | | median ms | p95 | p99 | longest | steps |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for size, told in found.items():
        for when in ("after", "during"):
            values = [1e3 * one for one in told[when]]
            cells = " | ".join(f"{quantile(values, share):.1f}" for share in (0.5, 0.95, 0.99, 1.0))
            print(f"| {size} | {when} | {cells} | {len(values)} |")
        print(f"| {size} | the proof | {1e3 * quantile(told['proof'], 0.5):.0f} | | | | |")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "sizes": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
