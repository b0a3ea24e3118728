"""Which libraries' programs start without a trace, over starts with random hash seeds, and what the first call costs.

    python benchmarks/libraries.py [--starts N] [--programs NAME,NAME] [--json FILE]

Each program of `programs/_of_libraries.py` is started N times (12 by default), each in a fresh process with a hash seed
of its own: the first start records, the second proves, and the others may skip. "skipped" counts those that did,
"traced to prove" those that came to the recorded program by a trace: the second, and later ones that were due, since
these programs end before a proof beside them does. "first call" is the time of the first start's, and the median of
those that skipped. A library that is not installed is left out, and named.

Exits with 1 where results differ, where a later start records anew, or a proof fails.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _processes import BenchmarkError, Spread, describe_machine, package_versions, run_program, scratch_directory

PROGRAM = Path(__file__).resolve().parent / "programs" / "_of_libraries.py"
NEEDS = {
    **{"flax_linen": ("flax", "optax"), "flax_nnx": ("flax", "optax"), "equinox": ("equinox", "optax")},
    **{"haiku": ("haiku", "optax"), "optax": ("optax",), "numpyro": ("numpyro",), "diffrax": ("diffrax",)},
    **{"diffrax_throwing": ("diffrax",), "blackjax": ("blackjax",)},
}
# With a callback, which exists only after a trace.
NEVER = ("diffrax_throwing",)
PACKAGES = ("jax", "flax", "optax", "equinox", "dm-haiku", "numpyro", "diffrax", "blackjax")


def starts(name: str, directory: Path, count: int) -> list[dict[str, Any]]:
    """What each start told."""
    told, result = [], ""
    for _ in range(count):
        seed = str(secrets.randbelow(2**32))
        run = run_program(
            PROGRAM, {"REWARM_DIR": str(directory), "PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"}, (name,)
        )
        result = result or run.result
        if run.result != result:
            raise BenchmarkError(f"{name}: another result in start {len(told) + 1}")
        line = next(line for line in run.output.splitlines() if line.startswith("TOLD "))
        told.append(json.loads(line.removeprefix("TOLD ")))
    return told


def row(name: str, told: list[dict[str, Any]]) -> tuple[str, bool]:
    """A line of the table, and whether all is as it should be."""
    outcomes = [one["jitted"] for one in told]
    skipped = [one for one in told if one["jitted"].get("skipped")]
    proved = [one for one in told[1:] if one["jitted"].get("proved")]
    failed = any(one.get("proof different") for one in outcomes)
    if name in NEVER:
        good, words = not skipped, told[0]["why"][0] if told[0]["why"] else "traced"
    else:
        good = len(skipped) + len(proved) == len(told) - 1 and len(skipped) > len(proved) and not failed
        words = "" if good else "; ".join(line for one in told for line in one["why"])[:300]
    before = 1e3 * told[0]["seconds"]
    after = f"{1e3 * Spread.of([one['seconds'] for one in skipped]).median:.0f}" if skipped else ""
    return f"| {name} | {len(skipped)} of {len(told)} | {len(proved)} | {before:.0f} | {after} | {words} |", good


def main() -> int:
    """Run, report, and say whether all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=12)
    parser.add_argument("--programs", default=",".join(NEEDS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine, good, found = describe_machine(), True, {}
    print(f"{machine['cpu']}, {machine['cpus']} CPUs, Python {machine['python']}")
    print(", ".join(f"{name} {version}" for name, version in package_versions(PACKAGES).items()), "\n")
    print("| program | skipped | traced to prove | first call, ms: recorded | skipped | |")
    print("| --- | --- | ---: | ---: | ---: | --- |")
    try:
        with scratch_directory() as scratch:
            for name in arguments.programs.split(","):
                missing = [need for need in NEEDS[name] if find_spec(need) is None]
                if missing:
                    print(f"| {name} | | | | | not installed: {', '.join(missing)} |")
                    continue
                found[name] = starts(name, scratch / name, arguments.starts)
                line, is_good = row(name, found[name])
                print(line, flush=True)
                good = good and is_good
    except BenchmarkError as error:
        print(f"FAIL: {error}")
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "programs": found}, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
