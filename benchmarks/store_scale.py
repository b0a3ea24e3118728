"""What a put and a get of a bounded store cost as the store grows, beside JAX's own bounded cache.

Entries of 20 KB. Both are at their bound all the time, so every put makes room for itself: rewarm's `LocalStore` by
worth, JAX's `LRUCache` (with `max_size`, as `jax_compilation_cache_max_size` sets it) by last use. One run, the
contestants in turn at every round; where one put of JAX's takes seconds, it takes part in few rounds, as the table
says. rewarm syncs every entry to disk, JAX's cache does not.

Beside that: the same puts while another process has the lock of a directory, and is stopped (SIGSTOP) with it; once
with any keys, once with keys of just that directory.

    python benchmarks/store_scale.py [--rounds N] [--entries 100 10000 100000] [--json FILE]

Needs 5 GB of disk at 100,000 entries, and `etils[epath]` and `filelock` for JAX's contestant. Exits with 1 when

* a put at the largest size is more than 2 times one at the smallest, by median or by mean,
* a get at the largest size is more than 1.5 times one at the smallest, by median,
* a put beside a stopped peer is more than 1.5 times one without, by median.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from jax._src.lru_cache import LRUCache

from rewarm.policy import Bounds
from rewarm.small_files import PRIVATE
from rewarm.store import LocalStore, usage
from rewarm.store.usage import Known

ENTRY = 20_000
PUT_BOUND, GET_BOUND, PEER_BOUND = 2.0, 1.5, 1.5

# In how many rounds JAX's cache takes part: at most so many, by the number of entries.
JAX_ROUNDS = {100: 300, 1_000: 100, 10_000: 20, 100_000: 2}

# With how many entries the puts beside a peer are measured.
PEER_ENTRIES = 10_000

HOLDER = """
import fcntl, os, sys, time
held = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(held, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(3600)
"""

SITUATIONS = ["no peer", "lock held", "peer stopped"]

Act = Callable[[], object]


def key_of(number: int) -> str:
    """A key, another one for each number."""
    return hashlib.sha256(str(number).encode()).hexdigest()


def seconds_of(choice: random.Random) -> float:
    """What a hit spares: mostly little, sometimes much."""
    return choice.lognormvariate(0.0, 1.5)


class Ours:
    """A bounded `LocalStore` that is full."""

    name = "rewarm"

    def __init__(self, folder: Path, entries: int) -> None:
        self.entries = entries
        self._choice = random.Random(entries)
        self._next = entries
        self._value = os.urandom(ENTRY)
        self.store = LocalStore(folder, bounds=Bounds(max_size=entries * ENTRY))
        self._fill(folder)

    def _fill(self, folder: Path) -> None:
        known: dict[str, dict[str, Known]] = {}
        for number in range(self.entries):
            key = key_of(number)
            (folder / key[:2]).mkdir(parents=True, exist_ok=True)
            (folder / key[:2] / key).write_bytes(self._value)
            known.setdefault(key[:2], {})[key] = Known(seconds_of(self._choice), 1)
        for shard, sums in known.items():
            usage.replace(str(folder / shard), sums, PRIVATE)
        self.store.prepare()
        list(self.store.collect(self.store.bounds))

    def put(self, shard: str | None = None) -> None:
        """Put one more entry, into one directory if that is said."""
        key = key_of(self._next)
        key = key if shard is None else shard + key[2:]
        self._next += 1
        self.store.put(key, self._value, seconds=seconds_of(self._choice))

    def get(self) -> object:
        """Get one of the latest entries; those were put by the same hand in both contestants."""
        return self.store.get(key_of(self._choice.randrange(max(self._next - 50, 0), self._next)))


class Bare:
    """Writing a file, syncing it and giving it its name: what any store that syncs has to pay."""

    name = "write, sync, rename"
    entries = 0

    def __init__(self, folder: Path) -> None:
        self._place = folder / "entry"
        self._value = os.urandom(ENTRY)
        folder.mkdir()
        self.put()

    def put(self) -> None:
        """Write the file once more."""
        temporary = self._place.with_name("temporary")
        with temporary.open("wb", buffering=0) as file:
            file.write(self._value)
            os.fsync(file.fileno())
        temporary.replace(self._place)

    def get(self) -> object:
        """Read it."""
        return self._place.read_bytes()


class Jax:
    """JAX's `LRUCache` with a `max_size` that it has reached."""

    name = "JAX LRUCache"

    def __init__(self, folder: Path, entries: int) -> None:
        self.entries = entries
        self._choice = random.Random(entries)
        self._next = entries
        self._value = os.urandom(ENTRY)
        folder.mkdir()
        for number in range(entries):
            (folder / f"{key_of(number)}-cache").write_bytes(self._value)
            (folder / f"{key_of(number)}-atime").write_bytes(time.time_ns().to_bytes(8, "little"))
        self._cache = LRUCache(str(folder), max_size=entries * ENTRY)

    def put(self) -> None:
        """Put one more entry."""
        self._cache.put(key_of(self._next), self._value)
        self._next += 1

    def get(self) -> object:
        """Get one of the latest entries."""
        return self._cache.get(key_of(self._choice.randrange(max(self._next - 50, 0), self._next)))


Contestant = Ours | Bare | Jax


def timed(act: Act) -> float:
    """Seconds that `act` takes."""
    since = time.perf_counter()
    act()
    return time.perf_counter() - since


def measure(contestants: list[Contestant], rounds: int) -> dict[tuple[str, int, str], list[float]]:
    """Seconds by contestant, size and verb: all in turn at every round, in an order that changes every round."""
    times: dict[tuple[str, int, str], list[float]] = {}
    choice = random.Random(0)
    for number in range(-rounds // 10, rounds):
        for one in choice.sample(contestants, len(contestants)):
            if isinstance(one, Jax) and number >= 0 and not _takes_part(one.entries, number, rounds):
                continue
            if isinstance(one, Jax) and number < 0 and one.entries > 1_000:
                continue  # warm enough, and seconds each
            for verb, act in (("put", one.put), ("get", one.get)):
                took = timed(act)
                if number >= 0:
                    times.setdefault((one.name, one.entries, verb), []).append(took)
    return times


def _takes_part(entries: int, number: int, rounds: int) -> bool:
    wanted = min(next((few for size, few in JAX_ROUNDS.items() if entries <= size), 2), rounds)
    return number % max(rounds // wanted, 1) == 0 and number < wanted * max(rounds // wanted, 1)


@contextlib.contextmanager
def peer(store: LocalStore, shard: str, *, stopped: bool) -> Iterator[None]:
    """A process that has a directory's lock, and is stopped with it or only sleeps."""
    command = [sys.executable, "-c", HOLDER, str(store.root / shard)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        if stopped:
            holder.send_signal(signal.SIGSTOP)
        yield
    finally:
        holder.kill()
        holder.communicate()


def measure_peers(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of puts to three stores in turn: without a peer, beside one with a lock, beside one stopped with it."""
    times: dict[str, list[float]] = {}
    shard, choice = "77", random.Random(1)
    stores = {name: Ours(folder / name.replace(" ", "-"), PEER_ENTRIES) for name in SITUATIONS}
    with peer(stores["lock held"].store, shard, stopped=False), peer(stores["peer stopped"].store, shard, stopped=True):
        for _ in range(rounds):
            for name in choice.sample(SITUATIONS, len(SITUATIONS)):
                ours = stores[name]
                times.setdefault(f"{name}, any key", []).append(timed(ours.put))
                if len(times[f"{name}, any key"]) % 4 == 0:
                    row = times.setdefault(f"{name}, keys of its directory", [])
                    row.append(timed(functools.partial(ours.put, shard)))
    return times


def milliseconds(seconds: float) -> str:
    """A number for a table."""
    return f"{seconds * 1e3:.3f}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"


def summary(times: list[float]) -> dict[str, float]:
    """What the table shows of one series, in seconds."""
    ordered = sorted(times)
    return {
        "median": statistics.median(ordered),
        "mean": statistics.fmean(ordered),
        "p99": ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)],
        "count": len(ordered),
    }


def print_table(rows: dict[str, dict[str, float]], first: str) -> None:
    """Print a Markdown table, in milliseconds."""
    print(f"\n| {first} | median ms | mean ms | p99 ms | n |\n| --- | ---: | ---: | ---: | ---: |")
    for name, row in rows.items():
        numbers = " | ".join(milliseconds(row[column]) for column in ("median", "mean", "p99"))
        print(f"| {name} | {numbers} | {row['count']:.0f} |")


def checks(rows: dict[str, dict[str, float]], peers: dict[str, dict[str, float]], sizes: list[int]) -> dict[str, Any]:
    """The bounds: what was measured, what it may be."""
    small, large = (f"rewarm, {size:,} entries" for size in (sizes[0], sizes[-1]))
    ratios = {
        f"put, {what} at {sizes[-1]:,} over {sizes[0]:,}": (
            rows[f"put: {large}"][what] / rows[f"put: {small}"][what],
            PUT_BOUND,
        )
        for what in ("median", "mean")
    }
    got = rows[f"get: {large}"]["median"] / rows[f"get: {small}"]["median"]
    ratios[f"get, median at {sizes[-1]:,} over {sizes[0]:,}"] = (got, GET_BOUND)
    for where in ("any key", "keys of its directory"):
        for situation in ("lock held", "peer stopped"):
            ratio = peers[f"{situation}, {where}"]["median"] / peers[f"no peer, {where}"]["median"]
            ratios[f"put, median, {situation}, {where}, over no peer"] = (ratio, PEER_BOUND)
    return {name: {"ratio": ratio, "bound": bound} for name, (ratio, bound) in ratios.items()}


def main() -> int:
    """Measure, print, and say whether the bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--entries", type=int, nargs="+", default=[100, 10_000, 100_000])
    parser.add_argument("--jax-entries", type=int, nargs="*", default=list(JAX_ROUNDS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = sorted(arguments.entries)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contestants: list[Contestant] = [Bare(folder / "bare")]
        contestants += [Ours(folder / f"rewarm-{size}", size) for size in sizes]
        contestants += [Jax(folder / f"jax-{size}", size) for size in arguments.jax_entries]
        times = measure(contestants, arguments.rounds)
        peers = {name: summary(row) for name, row in measure_peers(folder, arguments.rounds).items()}
    rows = {
        f"{verb}: {name}, {size:,} entries": summary(row)
        for (name, size, verb), row in sorted(times.items(), key=lambda item: (item[0][2], item[0][0], item[0][1]))
    }
    print(
        f"jax {jax.__version__}, python {sys.version.split()[0]}, entries of {ENTRY:,} bytes, every store at its bound"
    )
    print_table(rows, "verb and store")
    print_table(peers, f"put, {PEER_ENTRIES:,} entries")
    checked = checks(rows, peers, sizes)
    print("\n| bound | measured | at most | |\n| --- | ---: | ---: | --- |")
    for name, row in checked.items():
        verdict = "holds" if row["ratio"] <= row["bound"] else "DOES NOT HOLD"
        print(f"| {name} | {row['ratio']:.2f} | {row['bound']:.2f} | {verdict} |")
    if arguments.json:
        told = {
            "jax": jax.__version__,
            "python": sys.version.split()[0],
            "rows": rows,
            "peers": peers,
            "checks": checked,
        }
        arguments.json.write_text(json.dumps(told, indent=2))
    return 0 if all(row["ratio"] <= row["bound"] for row in checked.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
