"""Many processes that want one program at the same moment: how often it is compiled, and how long they wait.

    python benchmarks/fleet.py [--parts host,both,fleet,jax,distributed] [--json FILE]

* host: 32 processes and one cache directory, with rewarm's `CompileCache`, `LocalStore` and `HostLeases` and without
  JAX, so that two cores can hold them: compiling is a sleep of 3 s. Cold; cold, and the process that compiles is killed
  (SIGKILL) after 1 s; the same with SIGSTOP.
* both: the same 32 processes, one directory and one remote, a folder: whoever compiles leads here and in the fleet.
* fleet: the same 32 processes with a directory and a name of a host each, as on hosts of their own, and one remote.
* jax: 8 processes with JAX on CPU and a program that compiles for seconds, in the same three ways.
* distributed: jobs of 2 and of 4 processes by `jax.distributed` on CPU. Three programs: one over all devices, one of
  each process alone that is the same everywhere, and one that rank 1 alone has. Two starts with one directory for all
  ranks: in the first each program is compiled once, in the second none. Then with a directory for each rank, as on
  hosts of their own, and one remote (a folder): two starts in the same directories, and a third with new, empty ones,
  so that everything comes from the remote. Only rank 0 writes there, so rank 1 compiles its own program once more.
  Last one directory for all ranks and a remote, and then new machines that have the remote alone: what any rank
  compiled comes from there.

All processes are started first, each gets as far as it can without the program, and then all want it at once. "begun"
is how many began to compile. "delay" is how long after the signal the next one began: what the others lost beside
compiling, which no cache can spare them. "last" is when the last of the others had the program, from the start on.

Exits with 1 when more than one process began cold, or more than two in the other ways; when one of the others did not
end well; when a delay is over its bound (killed: 1 s; stopped: 6.5 s, of which 5 s are the silence after which a leader
counts as stopped, and 1 s the time between two beats; `coordination/host.py`; across hosts 13 s both, of which 10 s are
the silence and 2 s the pause between two looks; `coordination/fleet.py`); or when a rank compiled in a later start
what it need not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _processes import BenchmarkError, clean_environment, describe_machine, package_versions, scratch_directory

HOST_PROCESSES, JAX_PROCESSES = 32, 8
COMPILE_SECONDS = 3.0
SIGNAL_AFTER = 1.0
HEARD = 300.0
WAYS: dict[str, signal.Signals | None] = {"cold": None, "killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
JOB_PROGRAMS = 3
BEGUN = {"cold": 1, "killed": 2, "stopped": 2}
DELAY = {"cold": 0.0, "killed": 1.0, "stopped": 6.5}
FLEET_DELAY = {"cold": 0.0, "killed": 13.0, "stopped": 13.0}

# -- what the children do ----------------------------------------------------------------------------------------------

# Waits for the start, asks for one program, and says when it begins to compile and how it ended.
HOST_CHILD = """
import os, sys, time
from pathlib import Path
from rewarm.cache import CompileCache, Evidence, Request
from rewarm.coordination import HostLeases, SingleFlight
from rewarm.identity import KeyComponents, component
from rewarm.ledger import Ledger
from rewarm.policy import Thresholds
from rewarm.small_files import PRIVATE
from rewarm.store import LocalStore

class Nobody:
    def missed(self, program, key, reason, explanation): pass
    def finished(self, event): pass

def compile_it():
    print("begins", time.monotonic(), flush=True)
    time.sleep(float(sys.argv[2]))
    return b"executable"

root, remotes = Path(sys.argv[1]), None
on_its_own = len(sys.argv) > 4
if on_its_own:  # a host, to all that asks
    import platform
    platform.node = lambda: f"host-{os.getpid()}"
store = LocalStore(root / str(os.getpid()) if on_its_own else root)
store.prepare()
ledger = Ledger()
if len(sys.argv) > 3:
    from rewarm.remote.folder import FolderBlobs
    from rewarm.remote.guard import Guarded
    from rewarm.sharing import Namespaces, Remotes, RemoteTier, Uploads
    from rewarm.trust import Keyring, Posture
    tier = RemoteTier(Guarded(FolderBlobs(Path(sys.argv[3])), deadline=5.0, tell=print),
                      namespaces=Namespaces("main", ("main",)), keyring=Keyring(None, []), posture=Posture.STORE,
                      writes=True, tell=print, keeps_only_new=True)
    remotes = Remotes([tier], Uploads(store.root, [tier], store.get, print), store)
cache = CompileCache(store, thresholds=Thresholds(0.0, 0), ledger=ledger, flights=SingleFlight(), observer=Nobody(),
                     leases=HostLeases(store.root / "leases", PRIVATE), remotes=remotes)
names = ("program", "callbacks", "options", "inputs", "toolchain", "target", "salt")
components = KeyComponents.of({name: component(name, "slow") for name in names})
request = Request(program="slow", components=components, unkeyable=None,
                  key_seconds=0.0, compile=compile_it, serialise=lambda one: one, load=lambda raw: raw,
                  same=lambda one, other: one == other, producer={}, target="nothing",
                  evidence=Evidence(canonical=b"program " * 100_000, signature=str, source=bytes))
print("ready", flush=True)
sys.stdin.readline()
assert cache.resolve(request) == b"executable"
print("ends", time.monotonic(), ledger.stats().hits, flush=True)
if remotes is not None:
    remotes.uploads.drain(30.0)
    remotes.leave()
"""

# Lowers one slow program, and waits for the start before compiling it.
JAX_CHILD = """
import sys, time
import jax, jax.numpy as jnp, numpy as np
import rewarm

def slow(x):
    for i in range(120):
        x = jnp.tanh(x @ x) * (1 + i)
    return jax.grad(lambda y: (y @ y).sum())(x).sum()

x = np.ones((16, 16), np.float32)
lowered = jax.jit(slow).lower(x)

def heard(event, **_):
    if event == "/jax/compilation_cache/cache_misses":  # announced before it is compiled
        print("begins", time.monotonic(), flush=True)

jax.monitoring.register_event_listener(heard)
print("ready", flush=True)
sys.stdin.readline()
lowered.compile()(x)
print("ends", time.monotonic(), rewarm.stats().hits, flush=True)
"""

JOB = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
port, count, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=count, process_id=rank)
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), PartitionSpec("d"))
everywhere = jax.make_array_from_callback((count, 16, 16), sharding, lambda index: np.ones((1, 16, 16), np.float32))
here = np.ones((1, 16, 16), np.float32)

def program(step):
    def f(x):
        for i in range(20):
            x = step(x @ x) * (1 + i)
        return x.sum()
    return jax.jit(jax.value_and_grad(f))

spmd, alone = (float(program(step)(x)[0]) for step, x in ((jnp.sin, everywhere), (jnp.cos, here)))
if rank == 1:
    jax.block_until_ready(program(jnp.tanh)(here))
print("RESULT", spmd, alone, flush=True)
"""


# -- one crowd ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crowd:
    """What became of processes that wanted one program at once. Seconds count from the start.

    Attributes:
      begun: when each compilation began.
      ended: when each process that got to its end had the program.
      hits: how many of these took it from the cache.
      signalled: when the one that compiled was killed or stopped; `None` where it was not.
      failed: what the others said that did not end well.
    """

    begun: list[float]
    ended: list[float]
    hits: int
    signalled: float | None
    failed: list[str]

    @property
    def delay(self) -> float:
        """Seconds from the signal to the next one's beginning; 0 without a signal."""
        if self.signalled is None:
            return 0.0
        after = [at for at in self.begun if at >= self.signalled]
        return min(after) - self.signalled if after else float("inf")


class Child:
    """A process of a crowd; its standard output is a file, so that one that is stopped holds nobody."""

    def __init__(self, command: Sequence[str], folder: Path, settings: dict[str, str]) -> None:
        self._output = folder / f"{time.monotonic_ns()}.out"
        with self._output.open("wb") as out:
            self.popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, env=clean_environment(settings)
            )

    def text(self) -> str:
        """What it said so far."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def said(self, word: str) -> list[list[str]]:
        """The rest of each whole line that begins with this word."""
        lines = self.text().splitlines(keepends=True)
        return [line.split()[1:] for line in lines if line.endswith("\n") and line.split()[:1] == [word]]

    def go(self) -> None:
        """Let it want the program."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(b"\n")
        self.popen.stdin.flush()


@contextlib.contextmanager
def started(command: Sequence[str], count: int, folder: Path, settings: dict[str, str]) -> Iterator[list[Child]]:
    """So many processes, all ready; ended with the block, whatever happens."""
    folder.mkdir()
    children = [Child(command, folder, settings) for _ in range(count)]
    try:
        for child in children:
            wait_until(lambda child=child: bool(child.said("ready")), child)
        yield children
    finally:
        for child in children:
            child.popen.kill()
            child.popen.wait()


def wait_until(happens: Any, child: Child | None = None) -> None:
    """Look every 5 ms.

    Raises:
      BenchmarkError: it does not happen, or the child that it waits for has ended.
    """
    end = time.monotonic() + HEARD
    while not happens():
        if time.monotonic() > end or (child is not None and child.popen.poll() is not None and not happens()):
            raise BenchmarkError(f"a process did not get there: {child.text() if child else ''}")
        time.sleep(0.005)


def gather(command: Sequence[str], count: int, folder: Path, settings: dict[str, str], way: str) -> Crowd:
    """Start a crowd, let it go, do to its first compiler what is to be done, and wait for the others."""
    with started(command, count, folder, settings) as children:
        since = time.monotonic()
        for child in children:
            child.go()
        number, struck, signalled = WAYS[way], None, None
        if number is not None:
            wait_until(lambda: any(child.said("begins") for child in children))
            struck = next(child for child in children if child.said("begins"))
            time.sleep(SIGNAL_AFTER)
            if struck.said("ends"):
                raise BenchmarkError(f"the program compiled in less than {SIGNAL_AFTER} s")
            struck.popen.send_signal(number)
            signalled = time.monotonic() - since
        others = [child for child in children if child is not struck]
        for child in others:
            child.popen.wait(HEARD)
        ends = [line for child in others for line in child.said("ends")]
        return Crowd(
            begun=sorted(float(line[0]) - since for child in children for line in child.said("begins")),
            ended=sorted(float(line[0]) - since for line in ends),
            hits=sum(int(line[1]) for line in ends),
            signalled=signalled,
            failed=[child.text() for child in others if child.popen.returncode != 0 or not child.said("ends")],
        )


def measure_crowd(part: str, count: int, scratch: Path) -> list[str]:
    """One crowd in each way; prints a row for each and returns what is broken."""
    broken = []
    bounds = FLEET_DELAY if part == "fleet" else DELAY
    print(f"\n| {part}, {count} processes | begun | hits | delay s | at most | last s | |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for way in WAYS:
        place = scratch / f"{part}-{way}"
        place.mkdir()
        if part in ("host", "both", "fleet"):
            command = [sys.executable, "-c", HOST_CHILD, str(place / "cache"), str(COMPILE_SECONDS)]
            (place / "cache").mkdir()
        if part in ("both", "fleet"):
            (place / "remote").mkdir()
            command += [str(place / "remote"), *(["hosts"] if part == "fleet" else [])]
        if part == "jax":
            command = [*nice(), sys.executable, "-c", JAX_CHILD]
        crowd = gather(command, count, place / "children", {"REWARM_DIR": str(place / "cache")}, way)
        wrong = wrong_with(crowd, way, count, bounds[way])
        last = max(crowd.ended, default=float("inf"))
        verdict = "DOES NOT HOLD" if wrong else "holds"
        row = [way, len(crowd.begun), crowd.hits, f"{crowd.delay:.2f}", f"{bounds[way]:.1f}", f"{last:.1f}", verdict]
        print("|", " | ".join(map(str, row)), "|", flush=True)
        RECORD[f"{part} {way}"] = vars(crowd) | {"delay": crowd.delay}
        broken += [f"{part}, {way}: {line}" for line in wrong]
    return broken


def wrong_with(crowd: Crowd, way: str, count: int, bound: float) -> list[str]:
    """Which bounds are broken."""
    others = count - (WAYS[way] is not None)
    wrong = [f"did not end well: {text}" for text in crowd.failed]
    if len(crowd.begun) > BEGUN[way]:
        wrong.append(f"{len(crowd.begun)} began to compile, {BEGUN[way]} should")
    if crowd.hits != others - 1:
        wrong.append(f"{crowd.hits} of {others} took it from the cache")
    if crowd.delay > bound:
        wrong.append(f"the others were delayed by {crowd.delay:.2f} s")
    return wrong


def nice() -> list[str]:
    """Before a command: as every process of the crowd is as nice, nothing of it is measured."""
    return ["nice", "-n", "5"] if os.name == "posix" else []


# -- jobs of several processes -----------------------------------------------------------------------------------------


def run_job(count: int, settings: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """One job; returns rewarm's numbers of each rank.

    Raises:
      BenchmarkError: a rank failed, or they do not agree.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [*nice(), sys.executable, "-c", JOB, str(port), str(count), str(rank)],
            env=clean_environment({"REWARM_STATS": "json", "JAX_PLATFORMS": "cpu", **said}),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank, said in enumerate(settings)
    ]  # fmt: skip
    try:
        told = [rank.communicate(timeout=HEARD) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    results = {line for out, _ in told for line in out.splitlines() if line.startswith("RESULT ")}
    if any(rank.returncode for rank in ranks) or len(results) != 1:
        raise BenchmarkError(f"the job failed: {told}")
    return [json.loads(next(line for line in err.splitlines() if line.startswith("{"))) for _, err in told]


@dataclass
class Job:
    """Starts of one job, with the settings of each rank, and how often each may compile at most, all ranks together."""

    name: str
    starts: list[list[dict[str, str]]]
    may: list[int]


def jobs(count: int, scratch: Path) -> list[Job]:
    """With one directory; with a directory for each rank and a remote, then on new machines; with one directory and a
    remote, then on new machines."""
    config = {"XDG_CONFIG_HOME": str(scratch / "config")}
    remote = scratch / f"remote-{count}"
    remote.mkdir()
    shared = [{"REWARM_DIR": str(scratch / f"shared-{count}"), **config}] * count

    def own(machines: str) -> list[dict[str, str]]:
        return [
            {"REWARM_DIR": str(scratch / f"{machines}-{count}-{rank}"), "REWARM_REMOTE": remote.as_uri(), **config}
            for rank in range(count)
        ]

    sent = scratch / f"sent-{count}"
    sent.mkdir()
    both = [
        {"REWARM_DIR": str(scratch / f"both-{count}"), "REWARM_REMOTE": sent.as_uri(), **config} for _ in range(count)
    ]
    fresh = [{**one, "REWARM_DIR": str(scratch / f"fresh-{count}-{rank}")} for rank, one in enumerate(both)]
    return [
        Job("one directory", [shared, shared], [JOB_PROGRAMS, 0]),
        Job("a directory each, one remote", [own("old"), own("old"), own("new")], [2 * count + 1, 0, 1]),
        Job("one directory, one remote", [both, both, fresh], [JOB_PROGRAMS, 0, 0]),
    ]


def measure_jobs(count: int, scratch: Path) -> list[str]:
    """Every start of every job; prints a row for each and returns what is broken."""
    broken = []
    print(f"\n| jax.distributed, {count} processes | start | hits of each rank | compiled by each rank | at most | |")
    print("| --- | ---: | --- | --- | ---: | --- |")
    for job in jobs(count, scratch):
        for number, (settings, may) in enumerate(zip(job.starts, job.may, strict=True), 1):
            told = run_job(count, settings)
            hits, misses = [one["hits"] for one in told], [one["misses"] for one in told]
            left = [one["left_to_jax"] for one in told if one["left_to_jax"]]
            wrong = sum(misses) > may
            verdict = "DOES NOT HOLD" if wrong or left else "holds"
            said = f"{', '.join(map(str, hits))} | {', '.join(map(str, misses))}"
            print(f"| {job.name} | {number} | {said} | {may} | {verdict} |", flush=True)
            RECORD[f"distributed {count} {job.name} {number}"] = told
            if wrong or left:
                broken.append(f"{job.name}, {count} processes, start {number}: compiled {misses}, left to JAX {left}")
    return broken


# -- all ---------------------------------------------------------------------------------------------------------------

RECORD: dict[str, Any] = {}


def main() -> int:
    """Measure, print, and say what is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="host,both,fleet,jax,distributed")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    RECORD["machine"], RECORD["versions"] = describe_machine(), package_versions(("jax", "jaxlib", "rewarm"))
    print(f"{RECORD['machine']}\n{RECORD['versions']}\nload before: {os.getloadavg()[0]:.1f}", flush=True)
    broken: list[str] = []
    with scratch_directory() as scratch:
        if "host" in parts:
            broken += measure_crowd("host", HOST_PROCESSES, scratch)
        if "both" in parts:
            broken += measure_crowd("both", HOST_PROCESSES, scratch)
        if "fleet" in parts:
            broken += measure_crowd("fleet", HOST_PROCESSES, scratch)
        if "jax" in parts:
            broken += measure_crowd("jax", JAX_PROCESSES, scratch)
        if "distributed" in parts:
            settings = clean_environment({"XDG_CONFIG_HOME": str(scratch / "config")})
            command = [sys.executable, "-m", "rewarm", "keys", "new"]
            subprocess.run(command, env=settings, check=True, stdout=subprocess.DEVNULL, timeout=60)
            for count in (2, 4):
                broken += measure_jobs(count, scratch)
    for line in broken:
        print(f"BROKEN {line}")
    if arguments.json:
        arguments.json.write_text(json.dumps(RECORD, indent=1))
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
