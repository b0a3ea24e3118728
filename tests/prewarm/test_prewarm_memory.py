"""How much memory counts as free, and that no worker is started without it."""

from __future__ import annotations

import math
import os
import threading
import time
from pathlib import Path

import pytest
from prewarm_command import PLANS

from rewarm.prewarm import Job, fill, memory
from rewarm.prewarm.failures import Failures, may_pass
from rewarm.prewarm.work import Outcome, Wanted


def test_a_control_group_bounds_what_is_free(tmp_path: Path) -> None:
    limit, used, stat = (tmp_path / name for name in ("max", "current", "stat"))
    assert memory._group(limit, used, stat) == math.inf
    limit.write_text("max\n")
    used.write_text("5000\n")
    assert memory._group(limit, used, stat) == math.inf
    limit.write_text("8000\n")
    assert memory._group(limit, used, stat) == 3000
    stat.write_text("anon 1\ninactive_file 2000\n")
    assert memory._group(limit, used, stat) == 5000
    assert 0 < memory.available() < math.inf
    assert memory.resident(os.getpid()) > 1 << 20


@pytest.mark.parametrize(("free", "at_most"), [(0.0, 1), (64 << 30, 2)])
def test_no_more_workers_than_memory_allows(
    free: float, at_most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers are real; what the machine says is not."""
    monkeypatch.setattr(memory, "available", lambda: free)
    environment = {"REWARM_DIR": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
    jobs = [Job(f"{PLANS}:alone", "host", "cpu", "1", environment) for _ in range(2)]
    most, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.is_set():
            most[0] = max(most[0], _workers())
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        results = fill(jobs, Wanted(), tmp_path / "cache", workers=2)
    finally:
        ended.set()
        thread.join()
    assert [one.outcome.is_good for one in results] == [True, True]
    assert most[0] == at_most


def _workers() -> int:
    """This process's children that are workers."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:  # the thread ended meanwhile
            continue
        for child in children:
            try:
                count += b"rewarm.prewarm.child" in Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:  # it ended meanwhile
                continue
    return count


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        ("JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate", True),
        ("MemoryError: ", True),
        ("the worker's process ended (signal SIGABRT): terminate called after std::bad_alloc", True),
        ("JaxRuntimeError: INVALID_ARGUMENT: No such compile option: 'xla_none'", False),
        ("the worker's process ended (signal SIGSEGV): it said nothing", False),
    ],
)
def test_what_may_pass_is_not_remembered(error: str, passes: bool, tmp_path: Path) -> None:
    failures, key = Failures(tmp_path), "0" * 64
    assert may_pass(error) is passes
    assert failures.remember(key, "step", error, 60) is not passes
    assert (failures.known(key) is None) is passes
    failures.forget(key)
    assert failures.known(key) is None


def test_a_folder_that_cannot_be_written_to_remembers_nothing(tmp_path: Path) -> None:
    (tmp_path / "prewarm").write_text("in the way")
    failures = Failures(tmp_path)
    assert failures.remember("0" * 64, "step", "wrong", 60) is False
    assert failures.known("0" * 64) is None
    assert Outcome("stored").is_good
