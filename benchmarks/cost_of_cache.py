"""What each cache itself costs a whole start: the seconds that a program spends inside it, counted in the process.

    python benchmarks/cost_of_cache.py [--rounds N] [--programs NAME,NAME] [--json FILE]

Whole wall times (`warm_start.py`) vary by ten per cent from run to run on a shared machine, and almost all of that is
the compiler's and the program's own time. Here only the time inside the cache is compared, which varies far less:

* native: key, reading and unpacking, and writing with serialising, by timers around JAX's functions;
* rewarm: the same steps as its own events have them, and turning on (importing it and its `initialize`).

Making an executable of the bytes is the same call for both, much longer than all of this, and left out.

Each run is a fresh process, the two in turn. The last column is what the difference comes to on the whole start:
1 + (rewarm's seconds - native's) / native's wall seconds, from medians. Exits with 1 when it is over 1.02.
"""

from __future__ import annotations

import argparse
import atexit
import json
import runpy
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _processes import clean_environment, scratch_directory

BOUND = 1.02
PROGRAMS = Path(__file__).resolve().parent / "programs"
NATIVE = ("get_cache_key", "decompress_executable", "extract_executable_and_time", "put_executable_and_time")


def inside(contestant: str, record: str, program: str) -> None:
    """What the child does: run the program as `__main__` and write down the seconds spent in the cache."""
    spent: dict[str, float] = {}
    if contestant == "native":
        from jax._src import compilation_cache
        from jax._src.lru_cache import LRUCache

        time_calls(LRUCache, "get", spent)
        for name in NATIVE:
            time_calls(compilation_cache, name, spent)
    else:
        spent["turn on"] = turn_on()
    atexit.register(write_down, Path(record), contestant, spent)
    sys.argv = [program]
    sys.path[0] = str(PROGRAMS)
    runpy.run_path(program, run_name="__main__")


def time_calls(owner: Any, name: str, spent: dict[str, float]) -> None:
    """Put a timer around a function of a module."""
    function = getattr(owner, name)

    def timed(*arguments: Any, **named: Any) -> Any:
        since = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - since

    setattr(owner, name, timed)


def turn_on() -> float:
    """Import rewarm and turn it on, as JAX's plugin discovery does once JAX is there; returns the seconds it took."""
    import jax  # noqa: F401

    since = time.perf_counter()
    from rewarm.jax_adapter import plugin

    plugin.initialize()
    return time.perf_counter() - since


def write_down(record: Path, contestant: str, spent: dict[str, float]) -> None:
    """The child's last act."""
    if contestant == "rewarm":
        import rewarm

        numbers = rewarm.stats()
        spent["steps"] = numbers.seconds_overhead
    record.write_text(json.dumps(sum(spent.values())))


def run(contestant: str, program: str, cache: Path) -> tuple[float, float]:
    """One fresh process: its wall seconds, and the seconds spent in the cache."""
    settings = {"REWARM_DIR": str(cache)}
    if contestant == "native":
        settings = {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    record = cache.parent / "record.json"
    command = [sys.executable, __file__, "--inside", contestant, str(record), str(PROGRAMS / f"{program}.py")]
    since = time.perf_counter()
    subprocess.run(command, env=clean_environment(settings), check=True, stdout=subprocess.DEVNULL, timeout=900)
    return time.perf_counter() - since, float(json.loads(record.read_text()))


def measure(program: str, rounds: int, scratch: Path) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Temperature, contestant, and the runs."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {
        temperature: {"native": [], "rewarm": []} for temperature in ("cold", "warm")
    }
    for number in range(rounds):
        for contestant in ("native", "rewarm") if number % 2 else ("rewarm", "native"):
            cache = scratch / contestant
            shutil.rmtree(cache, ignore_errors=True)
            for temperature in ("cold", "warm"):
                found[temperature][contestant].append(run(contestant, program, cache))
    return found


def main() -> int:
    """Measure, print, and say whether the bound holds."""
    known = sorted(path.stem for path in PROGRAMS.glob("[!_]*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", default=",".join(known), help="default: %(default)s")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(*arguments.inside)
        return 0
    told, worst = {}, 0.0
    print(f"{'program':<17} {'':<5} {'start, s':>9} {'native, s':>10} {'rewarm, s':>10} {'on the whole':>13}")
    for program in arguments.programs.split(","):
        with scratch_directory() as scratch:
            found = measure(program, arguments.rounds, scratch)
        told[program] = found
        for temperature, runs in found.items():
            wall = statistics.median(seconds for seconds, _ in runs["native"])
            native, ours = (statistics.median(spent for _, spent in runs[who]) for who in ("native", "rewarm"))
            ratio = 1 + (ours - native) / wall
            worst = max(worst, ratio)
            print(
                f"{program:<17} {temperature:<5} {wall:>9.2f} {native:>10.3f} {ours:>10.3f} {ratio:>13.3f}", flush=True
            )
    print(f"at most {BOUND}: {'holds' if worst <= BOUND else 'DOES NOT HOLD'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=1))
    return 0 if worst <= BOUND else 1


if __name__ == "__main__":
    raise SystemExit(main())
