"""Jobs of `jax.distributed` on loopback: several fresh processes that compute together."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import clean_environment

# What each rank begins with. JAX ends a job so many seconds after a rank was heard last (HEARTBEAT).
SETUP = """
import os, sys, json, time, threading
import numpy as np
import jax
rank, ranks, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
heartbeat = int(os.environ.get("HEARTBEAT", "10"))
address = f"127.0.0.1:{port}"
jax.distributed.initialize(address, num_processes=ranks, process_id=rank, heartbeat_timeout_seconds=heartbeat)
import rewarm
from jax._src import distributed
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

client = distributed.global_state.client
devices = sorted(jax.devices(), key=lambda device: device.process_index)

def say(**words):
    print(json.dumps(words), flush=True)

def meet(name):
    client.wait_at_barrier(name, 60_000)

def sharding(processes, *axes):
    return NamedSharding(Mesh(np.array([devices[one] for one in processes]), ("d",)), P(*axes))

def numbers(processes):
    whole = np.arange(8, dtype=np.float32)
    return jax.make_array_from_callback((8,), sharding(processes, "d"), lambda index: whole[index])

def over(processes, name, number):
    # A program of these processes that adds up over all of them.
    def f(x):
        return (x * x + number).sum()
    f.__name__ = name
    return jax.jit(f, out_shardings=sharding(processes))

def local(name, number):
    def f(x):
        return x * number
    f.__name__ = name
    return jax.jit(f)

def outcomes():
    return {event.program: (event.outcome, event.stored, event.reason) for event in rewarm.events()}
"""


@dataclass(frozen=True)
class Ended:
    """One rank that has ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> dict[str, Any]:
        """What it said, all together."""
        lines = [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]
        return {name: value for line in lines for name, value in line.items()}


class Job:
    """The ranks of a job that runs."""

    def __init__(self, ranks: list[subprocess.Popen[str]]) -> None:
        self.ranks = ranks

    def hears(self, rank: int) -> dict[str, Any]:
        """The next thing that a rank says."""
        out = self.ranks[rank].stdout
        assert out is not None
        for line in out:
            if line.startswith("{"):
                said: dict[str, Any] = json.loads(line)
                return said
        raise AssertionError(f"rank {rank} ended: {self.ranks[rank].communicate()[1][-3000:]}")

    def end(self, seconds: float = 100) -> list[Ended]:
        """Wait for all of them."""
        until = time.monotonic() + seconds
        ended = []
        for rank in self.ranks:
            out, err = rank.communicate(timeout=max(1.0, until - time.monotonic()))
            ended.append(Ended(rank.returncode, out, err))
        return ended


Environment = Callable[[int], dict[str, str]]


def in_one(directory: Path, **more: str) -> Environment:
    """Each rank has the same cache directory."""
    return lambda _: {"REWARM_DIR": str(directory), **more}


def in_its_own(directory: Path, **more: str) -> Environment:
    """Each rank has a cache directory of its own."""
    return lambda rank: {"REWARM_DIR": str(directory / f"of_rank_{rank}"), **more}


@contextmanager
def job(folder: Path, source: str, ranks: int, environment: Environment) -> Iterator[Job]:
    """A job that runs `source` in each rank, after `SETUP`; at the end of the block none of them is left."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"job_{time.monotonic_ns()}.py"
    script.write_text(SETUP + textwrap.dedent(source))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    started: list[subprocess.Popen[str]] = []
    try:
        for rank in range(ranks):
            command = [sys.executable, str(script), str(rank), str(ranks), port, str(folder)]
            env = clean_environment(**environment(rank))
            pipe = subprocess.PIPE
            started.append(subprocess.Popen(command, env=env, cwd=folder, stdout=pipe, stderr=pipe, text=True))
        yield Job(started)
    finally:
        for process in started:
            process.kill()
        for process in started:
            with contextlib.suppress(Exception):
                process.communicate(timeout=10)


def run(folder: Path, source: str, ranks: int, environment: Environment) -> list[dict[str, Any]]:
    """What each rank of a job said, which all ended well."""
    with job(folder, source, ranks, environment) as running:
        ended = running.end()
    assert [one.code for one in ended] == [0] * ranks, [one.err[-3000:] for one in ended]
    return [one.said for one in ended]


def each(said: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """What the ranks said under one name."""
    return [one[name] for one in said]
