"""How much memory counts as free, and that no worker is started without it."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from prewarm_command import PLANS

from conftest import clean_environment, execute, first
from rewarm.prewarm import Job, fill, memory
from rewarm.prewarm.failures import Failures, is_verdict
from rewarm.prewarm.work import Outcome, Wanted

_SIGNALS = [str(int(one)) for one in (signal.SIGXCPU, signal.SIGQUIT, signal.SIGUSR1, signal.SIGSEGV, signal.SIGBUS)]


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
    "error",
    [
        "JaxRuntimeError: INVALID_ARGUMENT: No such compile option: 'xla_none'",
        "JaxRuntimeError: UNIMPLEMENTED: Unsupported reduce window",
        "MosaicError: INTERNAL: Mosaic failed to compile TPU kernel: bad layout",
    ],
)
def test_the_compilers_verdict_is_remembered(error: str, tmp_path: Path) -> None:
    failures, key = Failures(tmp_path), "0" * 64
    assert is_verdict(error)
    assert failures.remember(key, "step", error, 60)
    assert failures.known(key) is not None
    failures.forget(key)
    assert failures.known(key) is None


@pytest.mark.parametrize(
    "error",
    [
        "JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
        "JaxRuntimeError: INVALID_ARGUMENT: cannot allocate memory for the buffer",
        "JaxRuntimeError: UNIMPLEMENTED: pthread_create failed: Resource temporarily unavailable",
        "JaxRuntimeError: INTERNAL: ptxas exited with non-zero error code 9, output: ",
        "JaxRuntimeError: INTERNAL: ptxas exited with non-zero error code 255, output: ptxas fatal",
        "JaxRuntimeError: INTERNAL: Mosaic failed to compile TPU kernel: out of memory in vmem",
        "JaxRuntimeError: ABORTED: a peer is gone",
        "JaxRuntimeError: NOT_FOUND: ptxas",
        "MemoryError: ",
        "TypeError: compile(): incompatible function arguments",
        "StoreError: no space left on device",
        "the worker's process ended (signal SIGABRT): terminate called after std::bad_alloc",
        "the worker's process ended (signal SIGSEGV): it said nothing",
        "the worker's process ended (signal SIGXCPU): INVALID_ARGUMENT",
        "the worker's process ended (exit code 127): JaxRuntimeError: INVALID_ARGUMENT: x",
        "",
    ],
)
def test_nothing_else_is_remembered_or_believed(error: str, tmp_path: Path) -> None:
    failures, key = Failures(tmp_path), "0" * 64
    assert not is_verdict(error)
    assert failures.remember(key, "step", error, 60) is False
    assert not (tmp_path / "prewarm").exists()
    assert failures.remember(key, "step", "JaxRuntimeError: INVALID_ARGUMENT: x", 60)
    [path] = (tmp_path / "prewarm").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "error": error}))
    assert failures.known(key) is None


ENDS = """
import os, signal, sys, time
import jax, numpy as np, rewarm
from rewarm.jax_adapter import seam

original = seam.compile_now
def ends(call):
    if os.environ["END_WITH"] == "ptxas":
        raise jax.errors.JaxRuntimeError("INTERNAL: ptxas exited with non-zero error code 9, output: ")
    if os.environ["END_WITH"] == "verdict":
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: the program is wrong")
    sys.stderr.write("F0000 pool.cc:7] pthread_create failed: Resource temporarily unavailable\\n")
    sys.stderr.write("*** SIGABRT received ***\\nPC: @ 0x7f0000000000 raise\\n    @ 0x7f0000000001 abort\\n" * 3)
    sys.stderr.flush()
    os.kill(os.getpid(), int(os.environ["END_WITH"]))
    time.sleep(60)  # the kernel may give the signal to another thread, a moment later
seam.compile_now = ends

def plan():
    yield rewarm.Program(jax.jit(lambda x: x + 1), jax.ShapeDtypeStruct((4,), np.float32), name="ends")
"""


@pytest.mark.parametrize("how", [str(int(signal.SIGABRT)), *first(0, ["ptxas", "verdict", *_SIGNALS])])
def test_a_worker_that_ends_while_it_compiles(how: str, cache: Path, tmp_path: Path) -> None:
    """The key is known by then, so that it could be remembered. The compiler's end is real, its reason is made up."""
    (tmp_path / "ending.py").write_text(ENDS)
    words = [sys.executable, "-m", "rewarm", "prewarm", "ending.py:plan", "--target", "host", "--dir", str(cache)]
    done = execute([*words, "--json"], env=clean_environment(END_WITH=how), cwd=tmp_path)
    [program] = json.loads(done.out)["programs"]
    assert (program["outcome"], len(program["key"] or "")) == ("failed", 64)
    assert (cache / "prewarm").exists() is (how == "verdict")
    if how.isdecimal():
        assert signal.Signals(int(how)).name in program["why"]
        assert "pthread_create failed" in program["why"], "the reason, and not where the processor was"
        assert "fewer --jobs may help" in program["why"]


def test_a_folder_that_cannot_be_written_to_remembers_nothing(tmp_path: Path) -> None:
    (tmp_path / "prewarm").write_text("in the way")
    failures = Failures(tmp_path)
    assert failures.remember("0" * 64, "step", "wrong", 60) is False
    assert failures.known("0" * 64) is None
    assert Outcome("stored").is_good
