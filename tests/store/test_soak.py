"""Eight processes that do everything at once to a store at its bound, watched from outside by looking at the files."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from store_children import start
from store_making import truth

from rewarm.policy import Bounds
from rewarm.store import LocalStore

# Seconds of the campaign; the suite runs the same for the second number.
# Ten minutes, unless told otherwise: what runs at every landing is shorter.
LONG = float(os.environ.get("REWARM_TEST_SOAK_SECONDS", "600"))
SHORT = 20.0

PROCESSES = 8
LARGEST = 30_000 + 33
BOUND = 3_000_000
ENTRIES = 300

_WORK = """
import hashlib, random
from rewarm.policy import Bounds
root, seed, until = Path(sys.argv[1]), int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
bounds = Bounds(max_size=int(sys.argv[4]), max_entries=int(sys.argv[5]), max_age=3600.0)
store, choice = LocalStore(root, bounds=bounds), random.Random(seed)

def value(number):
    body = bytes([number % 256]) + choice.randbytes(choice.choice((10, 3000, 30_000)))
    return body + hashlib.sha256(body).digest()

def check(number, data):
    whole = data[:1] == bytes([number % 256]) and hashlib.sha256(data[:-32]).digest() == data[-32:]
    assert whole, f"a torn value of {len(data)} bytes under {number}"

done = {"put": 0, "hit": 0, "delete": 0, "collect": 0}
print("ready", flush=True)
while time.monotonic() < until:
    number = min(int(choice.paretovariate(0.7)), 3000)
    chance = choice.random()
    if chance < 0.5:
        data = store.get(key_of(number))
        if data is not None:
            check(number, data)
            done["hit"] += 1
            try:
                os.utime(store.path(key_of(number)), (time.time() - 1000, time.time() - 1000))
            except FileNotFoundError:
                pass
    elif chance < 0.97:
        store.put(key_of(number), value(number), seconds=choice.lognormvariate(0, 1.5))
        done["put"] += 1
    elif chance < 0.98:
        store.delete(key_of(number))
        done["delete"] += 1
    elif chance < 0.99:
        data = store.get(key_of(number))
        store.quarantine(key_of(number), "tested", data) if data is not None else None
    elif chance < 0.995:
        store = LocalStore(root, bounds=bounds)
    elif chance < 0.9955:
        for one in store.collect(bounds):
            pass
        done["collect"] += 1
print(json.dumps(done))
"""


def watch(store: LocalStore, workers: list[subprocess.Popen[str]], seconds: float) -> tuple[int, int, int]:
    """The most bytes and entries that were there at one moment, and how many looks there were.

    A look takes a while, and an entry that comes late in it may stand for one that went early in it. What two looks
    show, one after the other, was there at the moment between them.
    """
    most_bytes = most_entries = looks = 0
    until = time.monotonic() + seconds
    before: dict[str, int] = {}
    while time.monotonic() < until and all(worker.poll() is None for worker in workers):
        now = {info.key: info.size for info in store.scan()}
        both = [size for key, size in now.items() if before.get(key) == size]
        most_bytes, most_entries, looks = max(most_bytes, sum(both)), max(most_entries, len(both)), looks + 1
        before = now
    return most_bytes, most_entries, looks


def soak(root: Path, seconds: float) -> None:
    arguments = (seconds, BOUND, ENTRIES)
    workers = [start(_WORK, root, seed, *arguments) for seed in range(PROCESSES)]
    store = LocalStore(root, bounds=Bounds(max_size=BOUND, max_entries=ENTRIES, max_age=3600.0))
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n", worker.stderr.read() if worker.stderr else ""
        most_bytes, most_entries, looks = watch(store, workers, seconds)
        printed = [worker.communicate(timeout=120) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert [worker.returncode for worker in workers] == [0] * PROCESSES, [err for _, err in printed if err]
    print(f"most bytes {most_bytes}, entries {most_entries}, looks {looks}:", *(out for out, _ in printed))
    assert looks > seconds, "too few looks to have seen anything"
    assert most_bytes <= BOUND + PROCESSES * LARGEST
    assert most_entries <= ENTRIES + PROCESSES
    assert most_bytes > 0.5 * BOUND, "the bound was never reached, so nothing was tested"
    list(store.collect(store.bounds))
    assert store.total() == truth(store)
    assert not store.bounds.exceeded(*truth(store))


@pytest.mark.timeout(240)
def test_soak(tmp_path: Path) -> None:
    soak(tmp_path / "cache", SHORT)


@pytest.mark.campaign
@pytest.mark.timeout(LONG + 300)
def test_long_soak(tmp_path: Path) -> None:
    soak(tmp_path / "cache", LONG)
