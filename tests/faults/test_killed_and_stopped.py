"""Eight writers at a bound of which some, or all, are killed or stopped at random points.

`test_failing_calls.py` has each single point of one process; here many meet, as the machine's load has it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import HERE

from conftest import clean_environment, entries
from rewarm.envelope import open_entry
from rewarm.policy import Bounds
from rewarm.store import LocalStore
from rewarm.store.conformance import key_of

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs the signals of POSIX")

WRITERS = 8
BOUND = 60


@contextlib.contextmanager
def writers(root: Path, seed: int, latencies: Path | None = None) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Eight processes at work; they are gone when the block ends."""
    running: list[subprocess.Popen[bytes]] = []
    outs: list[Path] = []
    environment = clean_environment(PYTHONPATH=str(HERE))
    with contextlib.ExitStack() as files:
        try:
            for number in range(WRITERS):
                out = root.parent / f"out-{seed}-{number}" if latencies is None else latencies / str(number)
                command = [sys.executable, str(HERE / "many_writers.py"), str(root), str(100 * seed + number)]
                command += [str(BOUND), *(["--latencies"] if latencies else [])]
                printed = files.enter_context(out.open("wb"))
                running.append(subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, env=environment))
                outs.append(out)
            for out in outs:
                _wait_until_ready(out)
            yield running
        finally:
            for writer in running:
                writer.kill()
                writer.wait()


def _wait_until_ready(out: Path) -> None:
    until = time.monotonic() + 30
    while not out.read_bytes().startswith(b"ready"):
        assert time.monotonic() < until, out.read_bytes()
        time.sleep(0.005)


def truth(store: LocalStore) -> tuple[int, int]:
    infos = list(store.scan())
    return sum(info.size for info in infos), len(infos)


def assert_sound(root: Path) -> None:
    """Every entry opens; the books are exact after a clean-up, and old temporaries are gone; all works."""
    for path in entries(root):
        open_entry(path.read_bytes(), path.name)
    store = LocalStore(root, bounds=Bounds(max_entries=BOUND))
    assert abs(store.total()[1] - truth(store)[1]) <= WRITERS, "each was at one entry at most"
    for temporary in root.rglob(".*.tmp"):
        os.utime(temporary, (1e9, 1e9))
    list(store.collect(store.bounds))
    assert list(root.rglob(".*.tmp")) == []
    assert store.total() == LocalStore(root).total() == truth(store)
    since = time.perf_counter()
    store.put(key_of(9999), b"after all of that", seconds=1.0)
    assert store.get(key_of(9999)) == b"after all of that"
    assert time.perf_counter() - since < 2.0
    store.delete(key_of(9999))


# ---------------------------------------------------------------------------------------------------------------
# kill -9


def kill_at_work(root: Path, rounds: range) -> int:
    """Rounds of eight writers that are all killed; returns how many temporaries were left in all."""
    left = 0
    for seed in rounds:
        choice = random.Random(seed)
        with writers(root, seed) as running:
            for writer in running:
                time.sleep(choice.uniform(0.0, 0.05))
                writer.send_signal(signal.SIGKILL)
            codes = [writer.wait(30) for writer in running]
        assert codes == [-signal.SIGKILL] * WRITERS, [path.read_bytes() for path in root.parent.glob("out-*")]
        assert len(entries(root)) <= BOUND + WRITERS
        left += len(list(root.rglob(".*.tmp")))
        assert_sound(root)
    return left


def test_eight_writers_are_killed_at_work(cache: Path) -> None:
    kill_at_work(cache, range(3))


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_eight_writers_are_killed_at_work_thirty_times(cache: Path) -> None:
    assert kill_at_work(cache, range(100, 130)) > 0, "no writer was caught at work, so nothing was tested"


# ---------------------------------------------------------------------------------------------------------------
# Stopped peers


def _seconds(folder: Path) -> dict[int, list[float]]:
    """The latencies that each writer has printed so far."""
    return {int(path.name): [float(line) for line in path.read_text().split("\n")[1:-1]] for path in folder.iterdir()}


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def stop_one_at_work(cache: Path, folder: Path, rounds: int) -> None:
    """One of eight is stopped at a random point for a while, again and again; the others do not notice."""
    folder.mkdir()
    choice, alone, beside = random.Random(rounds), [], []
    with writers(cache, 7, folder) as running:
        time.sleep(1.0)
        for number in range(rounds):
            victim = number % WRITERS
            quiet = _seconds(folder)
            time.sleep(0.4)
            before = _seconds(folder)
            alone += [one for each in before for one in before[each][len(quiet[each]) :]]
            time.sleep(choice.uniform(0.0, 0.05))
            running[victim].send_signal(signal.SIGSTOP)
            start = _seconds(folder)
            time.sleep(0.4)
            end = _seconds(folder)
            assert len(entries(cache)) <= BOUND + WRITERS, "the bound holds for the rest"
            beside += [one for each in end if each != victim for one in end[each][len(start[each]) :]]
            running[victim].send_signal(signal.SIGCONT)
        assert all(writer.poll() is None for writer in running)
    assert len(beside) > 20 * rounds
    # Loosely, since other processes run beside this test: a wait for the stopped one would last as long as its stop.
    assert _p99(beside) < 5 * _p99(alone) + 0.1, (_p99(beside), _p99(alone))
    assert_sound(cache)


def test_one_of_eight_writers_is_stopped_at_work(cache: Path, tmp_path: Path) -> None:
    stop_one_at_work(cache, tmp_path / "seconds", 3)


@pytest.mark.campaign
def test_each_of_eight_writers_is_stopped_at_work(cache: Path, tmp_path: Path) -> None:
    stop_one_at_work(cache, tmp_path / "seconds", 24)
