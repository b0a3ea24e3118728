"""What a CPU backend makes code for, where JAX does not say it outright: which instructions, and how many threads.

Not promised: to be quick at the first start of a host. JAX 0.10 cannot serialise its topology, so there the smallest
program is compiled (some 50 ms) and read; the answer is remembered in the cache directory, under everything that it
depends on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rewarm import settings, small_files
from rewarm.identity import Machine, machine_of_executable, machine_of_topology
from rewarm.jax_adapter import seam

MEMO = "machines.json"
_KEPT = 64
_MEMO_BYTES = 1 << 20
_POOL = "tf_XLAEigen"


def cpu_threads(devices: int) -> int | tuple[int, int]:
    """How many threads XLA:CPU divides the work of a program among while it compiles: those of its client's pool.

    The pool is made with the client and keeps its size: what `NPROC` and the affinity said at that moment, or the
    number of the host's devices where that is larger, and at most 256. Its threads can be counted by name. Where the
    count is not what the present moment would give (a process that was pinned since, two clients), both numbers are
    returned; where threads cannot be counted, what the present moment gives.

    Source: xla/pjrt/cpu/cpu_client.cc, and object files of programs compiled under each.
    """
    expected = min(max(settings.cpu_threads(), devices), settings.MOST_CPU_THREADS)
    counted = _counted() - sum(_other_pools)
    return expected if counted in (0, expected) else (counted, expected)


# The threads of pools that are not of JAX's own client.
_other_pools: list[int] = []


def with_own_pool(make: Callable[[], Any]) -> tuple[Any, int]:
    """Make a client beside JAX's own; with how many threads its pool has, 0 where they cannot be counted.

    Race: another thread makes a client meanwhile, and its threads are counted here.
    """
    before = _counted()
    client = make()
    count = _counted() - before
    _other_pools.append(count)
    return client, count


def _counted() -> int:
    return sum(name == _POOL for name in _thread_names())


def _thread_names() -> Iterator[str]:
    for thread in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            yield thread.read_text(errors="replace").strip()


def cpu_machine(backend: Any, topology: bytes | None, fingerprint: int | None, toolchain: str, memo: Path) -> Machine:
    """The machine that a CPU backend compiles for.

    Args:
      backend: the client.
      topology: its serialised topology, where this JAX has it.
      fingerprint: the topology's fingerprint, where this JAX has that alone.
      toolchain: the digest of the component of that name.
      memo: the file that remembers.

    Raises:
      ValueError: it cannot be found out.
    """
    if topology is not None:
        return machine_of_topology(topology)
    question = hashlib.sha256(json.dumps([fingerprint, toolchain, settings.xla_flags()]).encode()).hexdigest()
    known = _load(memo)
    found = known.get(question)
    if found is not None:
        return found
    machine = machine_of_smallest(backend)
    _save(memo, {**dict(list(known.items())[-_KEPT:]), question: machine})
    return machine


def machine_of_smallest(backend: Any) -> Machine:
    """The machine that the smallest program is compiled for.

    Raises:
      ValueError: its executable does not say.
    """
    machine = machine_of_executable(seam.compile_smallest(backend))
    if machine is None:
        raise ValueError("the executables of this JAX do not say which CPU they are for")
    return machine


def _load(memo: Path) -> dict[str, Machine]:
    try:
        rows = json.loads(small_files.contents(memo, _MEMO_BYTES))
        return {
            str(question): Machine(str(triple), tuple(map(str, words))) for question, (triple, words) in rows.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _save(memo: Path, known: dict[str, Machine]) -> None:
    # Two processes that save at once: the later wins, and the other's answer is worked out again some day.
    with contextlib.suppress(OSError):  # read-only or full: the next start works it out again
        small_files.replace(memo, json.dumps(known).encode("ascii"))
