"""What a call costs after the first: `rewarm.jit` beside `jax.jit`, for arguments of 2, 21 and 301 leaves.

    python benchmarks/dispatch.py [--repeats N] [--json FILE]

Three fresh processes run the same functions, so that in the third no trace is needed; that one is measured, and the
first too, where `rewarm.jit` has traced. In each, calls of both kinds are timed in turns of some milliseconds, in an
order that changes each time; "us" is the median of a turn's time over its calls. Results are not waited for.

Exits with 1 when a call of `rewarm.jit` costs more than 1.1 times one of `jax.jit`, by the median of the ratios.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _processes import Spread, clean_environment, describe_machine, paired_ratios, scratch_directory

BOUND = 1.1
LEAVES = (2, 21, 301)


def child(repeats: int) -> None:
    """Measure in this process."""
    import jax
    import jax.numpy as jnp

    import rewarm

    told: dict[str, Any] = {}
    for count in LEAVES:
        tree = {"leaf": [jnp.ones(4) for _ in range(count)]}

        def step(tree: Any) -> Any:
            return jax.tree_util.tree_map(lambda leaf: leaf + 1, tree)

        functions = {"jax.jit": jax.jit(step), "rewarm.jit": rewarm.jit(step)}
        for function in functions.values():
            jax.block_until_ready(function(tree))
        times: dict[str, list[float]] = {name: [] for name in functions}
        calls = max(20, 4000 // count)
        for number in range(repeats):
            for name in sorted(functions, reverse=bool(number % 2)):
                times[name].append(1e6 * _turn(functions[name], tree, calls))
        told[str(count)] = times
    print(json.dumps({"times": told, "jitted": dict(rewarm.stats().jitted)}))


def _turn(function: Any, tree: Any, calls: int) -> float:
    """Seconds for each call."""
    began = time.perf_counter()
    for _ in range(calls):
        result = function(tree)
    took = time.perf_counter() - began
    del result
    return took / calls


def main() -> int:
    """Measure, report, and say whether the bound holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.repeats)
        return 0
    starts = []
    with scratch_directory() as scratch:
        for _ in range(3):
            command = [sys.executable, __file__, "--child", "--repeats", str(arguments.repeats)]
            settings = {"REWARM_DIR": str(scratch / "cache"), "JAX_PLATFORMS": "cpu"}
            done = subprocess.run(
                command, env=clean_environment(settings), check=True, capture_output=True, text=True, timeout=600
            )
            starts.append(json.loads(done.stdout.splitlines()[-1]))
    machine, holds = describe_machine(), True
    print(f"{machine['cpu']}, {machine['cpus']} CPUs, Python {machine['python']}\n")
    print("| leaves | start | jax.jit, us | rewarm.jit, us | ratio |\n| ---: | --- | ---: | ---: | ---: |")
    for count in map(str, LEAVES):
        for label, start in (("traced", starts[0]), ("not traced", starts[2])):
            plain, ours = start["times"][count]["jax.jit"], start["times"][count]["rewarm.jit"]
            ratio = Spread.of(paired_ratios(ours, plain))
            holds = holds and ratio.median <= BOUND
            print(
                f"| {count} | {label} | {Spread.of(plain).median:.1f} | {Spread.of(ours).median:.1f} "
                f"| {ratio.median:.3f} ({ratio.low:.3f}-{ratio.high:.3f}) |"
            )
    skipped = starts[2]["jitted"].get("skipped", 0)
    print(f"\n{skipped} of {len(LEAVES)} functions were not traced in the third start")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "starts": starts}, indent=1) + "\n")
    return 0 if holds and skipped == len(LEAVES) else 1


if __name__ == "__main__":
    sys.exit(main())
