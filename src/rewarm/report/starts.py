"""Starts on disk: the runs of a cache directory, with those of one job put together.

Not promised: all ranks of a job. Those whose directory is another one (a host's own disk), and those whose run is not
kept any more, are not there; `Start.ranks` says how many the job had. Which runs are of one start: `ledger/jobs.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rewarm.ledger.jobs import job_of, member, number_of, together
from rewarm.ledger.runs import RunInfo, count_events, find_run, runs


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
    return number_of(job_of(info.about), "rank", 0)


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
    found = together((info, member(info.about, info.argv, info.started)) for info in infos)
    found.sort(key=lambda group: max(info.started for info in group), reverse=True)
    return [_start(group) for group in found]


def _start(group: list[RunInfo]) -> Start:
    by_rank = sorted(group, key=lambda info: (rank_of(info), info.started))
    return Start(tuple(by_rank), max(len(group), number_of(job_of(group[0].about), "ranks", 1)))
