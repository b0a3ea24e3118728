"""A line that breaks in every way that the fault proxy knows, under whole JAX programs.

Shown: result and exit code are those of a program without a remote, the delay is within the deadlines, and no byte
that changed on its way is used. What each fault is to a single request is in `tests/remote/test_faults.py`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fault_proxy as faults
import pytest
from attackers import client, name_of, remote

from conftest import Run, clean_environment, first
from rewarm.envelope import Header, seal
from rewarm.remote.blobs import RemoteError
from rewarm.remote.guard import Guarded
from rewarm.sharing import RemoteTier
from rewarm.trust import Keyring, Posture, signed
from shared_remotes import MAIN, Machine, a_key, http_cache

PROGRAMS = 6
DEADLINE = 1.0

SOURCE = """
    import time
    begin = time.monotonic()
    import jax, numpy as np
    def program(number):
        def f(x):
            return x * 2 + number
        f.__name__ = f"f{number}"
        return jax.jit(f)
    found = []
    for number in range(6):
        found.append(float(np.asarray(program(number)(np.ones(2, np.float32)))[0]))
        time.sleep(0.1)
    print(found, flush=True)
    raise SystemExit(3)
"""
RESULT = [2.0 + number for number in range(PROGRAMS)]

FAULTS = {
    "latency": faults.latency(0.2),
    "500": faults.status(500),
    "503": faults.status(503),
    "429": faults.status(429, "1"),
    "429 for an hour": faults.status(429, "3600"),
    "503 for a second": faults.status(503, "1"),
    "404": faults.status(404),
    "403": faults.status(403),
    "reset": faults.RESET,
    "reset in a body": faults.RESET_IN_BODY,
    "hang": faults.HANG,
    "hang in a head": faults.HANG_IN_HEAD,
    "hang in a body": faults.HANG_IN_BODY,
    "truncated": faults.TRUNCATE,
    "flipped": faults.FLIP,
    "drip": faults.drip(0.05),
}
TYPICAL = ("503", "429", "reset", "hang", "truncated", "flipped")


class Line:
    """Two machines, of which the second has the proxy between itself and the cache that the first filled."""

    def __init__(self, folder: Path, cache: Any, proxy: Any) -> None:
        self.proxy = proxy
        self.script = folder / "script.py"
        self.script.write_text(textwrap.dedent(SOURCE))
        self.one = Machine.named("one", folder)
        self.other = Machine.named("other", folder, self.one)
        self.filled, _ = self.run(self.one, cache.url)
        self.address = f"http://127.0.0.1:{proxy.port}/cache?deadline={DEADLINE:g}"

    def run(self, machine: Machine, address: str) -> tuple[Run, float]:
        """A program, and how long it took, in seconds."""
        env = clean_environment(REWARM_STATS="json", REWARM_UPLOAD_SECONDS="2", **machine.env(address))
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(self.script)], env=env, capture_output=True, text=True, timeout=100, check=False
        )
        return Run(done.returncode, done.stdout, done.stderr), time.monotonic() - begin


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with http_cache() as cache, faults.FaultProxy(cache.port, http=True) as proxy:
        yield Line(tmp_path, cache, proxy)


def check(run: Run) -> dict[str, Any]:
    """What it had of the remote; its result and exit code are as ever."""
    assert (run.code, json.loads(run.out)) == (3, RESULT), run.err
    assert "Traceback" not in run.err
    remote = run.stats["remotes"][0]
    assert isinstance(remote, dict)
    assert run.stats["hits"] + run.stats["misses"] == PROGRAMS
    assert run.stats["quarantined"] == 0, "what is damaged never gets here"
    return remote


@pytest.fixture(scope="module")
def alone() -> dict[str, float]:
    """How long a program without a remote takes, once it was measured."""
    return {}


@pytest.mark.parametrize("fault", first(6, sorted(FAULTS, key=lambda fault: fault not in TYPICAL)))
def test_a_fault_from_the_start_changes_no_result(line: Line, alone: dict[str, float], fault: str) -> None:
    if not alone:
        run, alone["seconds"] = line.run(Machine.named("alone", line.one.home.parent), "")
        assert (run.code, json.loads(run.out)) == (line.filled.code, RESULT)
    usual = alone["seconds"]
    line.proxy.fault = FAULTS[fault]
    run, took = line.run(line.other, line.address)
    remote = check(run)
    # One deadline for looking, one for a look that comes too late for the pause, what the end may wait, and what this
    # host is slower at by then.
    assert took < usual + 2 * DEADLINE + 2.0 + 6.0, (took, usual)
    assert remote["hits"] == (PROGRAMS if fault == "latency" else 0)
    if fault == "flipped":
        assert sum(remote["refused"].values()) == PROGRAMS


def test_a_server_that_dies_and_returns_while_programs_run(line: Line) -> None:
    over = threading.Event()

    def trouble() -> None:
        while not over.wait(0.15):
            line.proxy.die()
            over.wait(0.15)
            line.proxy.come_back()

    thread = threading.Thread(target=trouble)
    thread.start()
    try:
        runs = [
            line.run(Machine.named(f"m{number}", line.one.home.parent, line.one), line.address) for number in (1, 2, 3)
        ]
    finally:
        over.set()
        thread.join(10)
    for run, took in runs:
        check(run)
        assert took < 30.0


def test_faults_in_turn_while_programs_run(line: Line) -> None:
    """Each for a moment: whatever came whole is used, and nothing else is."""
    over = threading.Event()

    def trouble() -> None:
        while not over.is_set():
            for fault in [*FAULTS.values(), faults.NONE]:
                line.proxy.fault = fault
                if over.wait(0.07):
                    return

    thread = threading.Thread(target=trouble)
    thread.start()
    try:
        runs = [
            line.run(Machine.named(f"m{number}", line.one.home.parent, line.one), line.address) for number in (1, 2, 3)
        ]
    finally:
        over.set()
        thread.join(10)
    for run, took in runs:
        check(run)
        assert took < 30.0


@pytest.mark.parametrize("kind", ["rclone_webdav", "rclone_s3"])
def test_half_an_entry_is_never_taken_for_one(tmp_path: Path, kind: str) -> None:
    """Servers whose readers see half of what is being written: what comes is one of two sound entries, or nothing."""
    key, signer = "ab" * 32, a_key("one")
    header = Header(
        kind="executable", key=key, components=(), program="jit_f", compile_seconds=1.0, created=1.7e9,
        producer={"jax": "0.12"}, target="cpu x1",
    )  # fmt: skip
    written = [
        seal(header, {"executable": bytes([number]) * size}, codec="raw")
        for number, size in ((1, 3 << 20), (2, 2 << 20))
    ]
    over = threading.Event()
    with remote(kind, tmp_path) as address:

        def write() -> None:
            blobs = client(address)
            while not over.is_set():
                for entry in written:
                    with contextlib.suppress(RemoteError):
                        blobs.put(name_of(key), signed(entry, key, "main", signer))

        tier = RemoteTier(
            Guarded(client(address)), namespaces=MAIN, keyring=Keyring(None, [signer.public]),
            posture=Posture.REQUIRE, writes=False, tell=lambda _: None,
        )  # fmt: skip
        thread = threading.Thread(target=write)
        thread.start()
        try:
            end, seen = time.monotonic() + 6.0, []
            while time.monotonic() < end and len(seen) < 300:
                seen.append(tier.get(key))
        finally:
            over.set()
            thread.join(20)
        time.sleep(1.0)
        quiet = tier.get(key)
    assert set(seen) - {None} <= set(written)
    assert quiet in (*written, None)
    assert len(seen) > 20
    assert {None} != set(seen) or sum(tier.traffic().refused.values()) + sum(tier.traffic().failures.values()) > 0
