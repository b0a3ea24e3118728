"""Writers of real entries at a bound, in processes of their own: `many_writers.py ROOT SEED BOUND [--latencies]`.

Each puts and gets until it is killed. With `--latencies` it prints the seconds of each put and get, a line each.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from rewarm.envelope import Header, open_entry, seal
from rewarm.policy import Bounds
from rewarm.store import LocalStore
from rewarm.store.conformance import key_of

KEYS = 300


def entry(number: int, choice: random.Random) -> bytes:
    """An entry of 1 to 40 KB."""
    header = Header("executable", key_of(number), (), "jit_f", choice.random() * 10, 0.0, {}, "cpu")
    return seal(header, {"executable": choice.randbytes(choice.randrange(1000, 40_000))}, codec="raw")


def main() -> None:
    """Write until killed."""
    root, seed, bound = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    store, choice = LocalStore(root, bounds=Bounds(max_entries=bound)), random.Random(seed)
    print("ready", flush=True)
    while True:
        number = choice.randrange(KEYS)
        data = entry(number, choice)
        since = time.perf_counter()
        store.put(key_of(number), data, seconds=choice.random())
        asked = key_of(choice.randrange(KEYS))
        found = store.get(asked)
        took = time.perf_counter() - since
        if found is not None:
            open_entry(found, asked)
        if "--latencies" in sys.argv:
            print(took, flush=True)


if __name__ == "__main__":
    main()
