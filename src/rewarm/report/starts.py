"""Starts on disk: the runs of a cache directory, with those of one job put together.

Not promised: all ranks of a job. Those whose directory is another one (a host's own disk), and those whose run is not
kept any more, are not there; `Start.ranks` says how many the job had.

Runs are of one start when they say the same job (the address of its `jax.distributed` service, or what Slurm, Open MPI
or torchrun call it) and the same number of ranks, ran the same program, began within ten minutes of the first of them,
and no rank is there twice: a job that is started again at the same address is another start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewarm.ledger.runs import RunInfo, count_events, find_run, runs

# Ranks of one job may begin to compile this far apart, in seconds: their clocks differ, and so do their ways there.
_APART = 600.0


@dataclass(frozen=True, slots=True)
class Start:
    """The runs of one start, by rank.

    Attributes:
      runs: at least one; the run of the lowest rank first.
      ranks: how many processes the job had.
    """

    runs: tuple[RunInfo, ...]
    ranks: int

    @property
    def id(self) -> str:
        """The id of its first run."""
        return self.runs[0].id

    @property
    def program(self) -> str:
        """What was started, in words."""
        return words_of(self.runs[0].argv)


def words_of(argv: Iterable[str]) -> str:
    """A program and its arguments for people: the script without its folders."""
    words = list(argv)
    return " ".join([Path(words[0]).name or words[0], *words[1:]]) if words else "(unknown program)"


def rank_of(info: RunInfo) -> int:
    """The rank of a run in its job; 0 outside one."""
    return _number(_job(info), "rank", 0)


def all_starts(directory: Path) -> list[Start]:
    """The starts of a cache directory that have events, the latest first.

    Raises:
      BadRunError: the directory of the runs may not be listed.
    """
    return _together(info for info in runs(directory) if count_events(info))


def chosen_starts(directory: Path, run: str | None, last: int) -> list[Start]:
    """The start that a run is of, or the last so many, the latest first.

    Raises:
      NoSuchRunError: there is none, or more than one is meant.
      BadRunError: it cannot be read.
    """
    if run is None and last > 1:
        found = all_starts(directory)
        return found[:last] if found else [_start_of(directory, find_run(directory, None), found)]
    info = find_run(directory, run)
    return [_start_of(directory, info, all_starts(directory))]


def _start_of(directory: Path, info: RunInfo, found: list[Start]) -> Start:
    del directory
    return next((start for start in found if any(one.id == info.id for one in start.runs)), Start((info,), 1))


def _together(infos: Iterable[RunInfo]) -> list[Start]:
    alone: list[list[RunInfo]] = []
    jobs: dict[tuple[Any, ...], list[list[RunInfo]]] = {}
    for info in sorted(infos, key=lambda info: info.started):
        job = _job(info)
        if not job:
            alone.append([info])
            continue
        groups = jobs.setdefault((job.get("id"), job.get("ranks"), Path(info.argv[0]).name if info.argv else ""), [])
        if not groups or _is_another(groups[-1], info):
            groups.append([])
        groups[-1].append(info)
    together = [*alone, *(group for groups in jobs.values() for group in groups)]
    together.sort(key=lambda group: max(info.started for info in group), reverse=True)
    return [_start(group) for group in together]


def _is_another(group: list[RunInfo], info: RunInfo) -> bool:
    return info.started - group[0].started > _APART or rank_of(info) in {rank_of(one) for one in group}


def _start(group: list[RunInfo]) -> Start:
    by_rank = sorted(group, key=lambda info: (rank_of(info), info.started))
    return Start(tuple(by_rank), max(len(group), _number(_job(group[0]), "ranks", 1)))


def _job(info: RunInfo) -> Mapping[str, Any]:
    job = info.about.get("job")
    return job if isinstance(job, Mapping) and isinstance(job.get("id"), str) else {}


def _number(job: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = job.get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else otherwise
