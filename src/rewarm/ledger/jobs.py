"""Which runs are of one start: those of the ranks of a job.

Not promised: that runs of one job are known for such, where nothing told their processes so.

Runs are of one start when they say the same job (the address of its `jax.distributed` service, or what Slurm, Open MPI
or torchrun call it) and the same number of ranks, ran the same program, began within ten minutes of the first of them,
and no rank is there twice: a job that is started again at the same address is another start.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

# Ranks of one job may begin to compile this far apart, in seconds: their clocks differ, and so do their ways there.
_APART = 600.0


class Member(NamedTuple):
    """What a run says of its job.

    Attributes:
      job: what its ranks have in common; `None` outside a job.
      rank: 0 outside one.
      started: when, in seconds since the epoch.
    """

    job: Hashable
    rank: int
    started: float


def job_of(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the header of a run says of its job; empty outside one."""
    job = about.get("job")
    return job if isinstance(job, Mapping) and isinstance(job.get("id"), str) else {}


def number_of(job: Mapping[str, Any], name: str, otherwise: int) -> int:
    """The rank, or the number of ranks."""
    value = job.get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else otherwise


def member(about: Mapping[str, Any], argv: Sequence[str], started: float) -> Member:
    """What a run says, by its header."""
    job = job_of(about)
    if not job:
        return Member(None, 0, started)
    program = PurePath(argv[0]).name if argv else ""
    return Member((job["id"], number_of(job, "ranks", 1), program), number_of(job, "rank", 0), started)


def together(members: Iterable[tuple[T, Member]]) -> list[list[T]]:
    """Runs by start. In no order; those of one start by when they began."""
    starts: list[list[T]] = []
    latest: dict[Hashable, tuple[float, set[int], list[T]]] = {}
    for one, said in sorted(members, key=lambda pair: pair[1].started):
        began, ranks, start = latest.get(said.job) or (said.started, set(), [])
        if said.job is None or not start or said.started - began > _APART or said.rank in ranks:
            began, ranks, start = said.started, set(), []
            starts.append(start)
            latest[said.job] = began, ranks, start
        ranks.add(said.rank)
        start.append(one)
    return starts
