"""Reading the runs of a cache directory, whatever state they are in; `journal.py` has the format and the races.

Not promised: that a run is complete. A file that ends in the middle of a line, and lines that are no records, cost
those lines, which are counted; a file that has no header of version 1 is no run, which is a `BadRunError`, and lists
pass over it. Nothing here writes, or waits for anybody.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from rewarm.errors import RewarmError
from rewarm.ledger.jobs import Member, member
from rewarm.ledger.journal import (
    LINE_BYTES,
    RUN_BYTES,
    RUNS,
    SUFFIX,
    VERSION,
    age_of,
    has_writer,
    is_run_id,
    is_run_name,
)

_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_EVENT = b'{"event":'
_READ_AT_ONCE = 2 * RUN_BYTES
_LISTED = 10


class BadRunError(RewarmError, ValueError):
    """A file cannot be read as a run: it is gone, no regular file, without a header, or of a newer rewarm."""


class NoSuchRunError(RewarmError, ValueError):
    """No run, or more than one, is meant; the message lists those that there are."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as its first and its last line tell it.

    Attributes:
      id: the run's id.
      path: of its file.
      started: when, in seconds since the epoch.
      pid: of the process.
      host: the name of its machine.
      argv: its arguments; long ones are cut.
      python: its version.
      directory: it was started in; `None` where there was none.
      parent: the id of the run whose process it was forked from; that run need not have a file.
      about: what the writer had to say: versions, settings.
      state: "ended": it has its last line. "running": its process is there. "unfinished": neither.
      ended: when, in seconds since the epoch; `None` without a last line, as are the next three.
      events: how many were written.
      lost: how many were not.
      stats: the numbers at the end.
      size: of the file, in bytes.
    """

    id: str
    path: Path
    started: float
    pid: int
    host: str
    argv: tuple[str, ...]
    python: str
    directory: str | None
    parent: str | None
    about: Mapping[str, Any]
    state: Literal["ended", "running", "unfinished"]
    ended: float | None
    events: int | None
    lost: int | None
    stats: Mapping[str, Any] | None
    size: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run with its events.

    Attributes:
      info: the run.
      events: as they were given to `RunWriter.event`, in the order of writing.
      damaged: how many lines are no records. The last line of a running run may be one for a moment.
      truncated: whether events are missing because there were more than a run keeps, or this reader takes (16 MiB).
    """

    info: RunInfo
    events: tuple[Mapping[str, Any], ...]
    damaged: int
    truncated: bool


def runs(directory: Path) -> list[RunInfo]:
    """The runs of a cache directory, newest first. What is under a run's name and is no run is passed over.

    Raises:
      BadRunError: the directory of the runs may not be listed.
    """
    found = []
    for run_id in run_ids(directory):
        with contextlib.suppress(BadRunError):
            found.append(_info_of(directory, run_id))
    return sorted(found, key=lambda info: (age_of(info.id)[0], info.started, info.id), reverse=True)


def run_ids(directory: Path) -> list[str]:
    """The ids that files are named by, newest first, to the second; without a look into the files.

    Raises:
      BadRunError: the directory of the runs may not be listed.
    """
    try:
        names = [path.name for path in (directory / RUNS).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BadRunError(f"cannot list the runs in {directory / RUNS}: {error.strerror}") from error
    return sorted((name.removesuffix(SUFFIX) for name in names if is_run_name(name)), key=age_of, reverse=True)


def find_run(directory: Path, prefix: str | None = None) -> RunInfo:
    """The one run whose id starts with `prefix`; for `None`, the last run that has events.

    Raises:
      NoSuchRunError: there is no such run, or more than one.
      BadRunError: there is one file of that name, and it cannot be read.
    """
    if prefix is None:
        for info in runs(directory):
            if count_events(info):
                return info
        raise NoSuchRunError(
            f"no run is recorded in {directory / RUNS}: a program leaves one when it compiles while rewarm is on"
        )
    ids = run_ids(directory)
    meant = [run_id for run_id in ids if run_id.startswith(prefix)]
    if len(meant) == 1:
        return _info_of(directory, meant[0])
    if meant:
        raise NoSuchRunError(f"{prefix!r} starts the ids of {len(meant)} runs: {_some(meant)}; give more of the id")
    there = f"there are: {_some(ids)}" if ids else "there are none"
    raise NoSuchRunError(f"no run in {directory / RUNS} has an id that starts with {prefix!r}; {there}")


def run_info(path: Path) -> RunInfo:
    """What the first and the last line of a file say, without reading what lies between.

    Raises:
      BadRunError: it is no run that can be read.
    """
    with _opened(path) as file:
        return _info(path, file)


def member_of(path: Path) -> Member:
    """What the first line of a file says of its job, and no other line is read.

    Raises:
      BadRunError: it is no run that can be read.
    """
    with _opened(path) as file:
        header = _header(path, next(_lines(file), b""))
    argv = [str(argument) for argument in _of(header, "argv", list, [])[:1]]
    return member(_of(header, "about", dict, {}), argv, _number(header, "started") or 0.0)


def read_run(path: Path) -> Run:
    """A run with all its events, of which there are no more than its writer keeps.

    Of a file that is larger than any writer makes, the first 16 MiB; `iterate_events` reads all of it.

    Raises:
      BadRunError: it is no run that can be read.
    """
    with _opened(path) as file:
        info = _info(path, file)
        records = _Records(file, _READ_AT_ONCE)
        events = tuple(records.events())
    return Run(info, events, records.damaged, records.truncated)


def iterate_events(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events of a file of any size, one at a time, in the order of writing; what is no event is passed over.

    Raises:
      BadRunError: it is no run that can be read; at the first event that is asked for.
    """
    with _opened(path) as file:
        _info(path, file)
        yield from _Records(file, None).events()


def count_events(info: RunInfo) -> int:
    """How many events a run has, by its last line, or else by its lines, which are not looked into; 0 if it is gone."""
    if info.events is not None:
        return info.events
    try:
        with _opened(info.path) as file:
            return sum(line is not None and line.startswith(_EVENT) and line.endswith(b"}}") for line in _lines(file))
    except BadRunError:
        return 0


# ---------------------------------------------------------------------------------------------------------------
# Inside


def _info_of(directory: Path, run_id: str) -> RunInfo:
    path = directory / RUNS / (run_id + SUFFIX)
    info = run_info(path)
    if info.id != run_id:
        raise BadRunError(f"{path} is no run of its own: it is a copy of the run {info.id}")
    return info


def _some(ids: list[str]) -> str:
    more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
    return ", ".join(ids[:_LISTED]) + more


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """An open regular file; errors of reading it become `BadRunError`."""
    try:
        # Without O_NONBLOCK a FIFO under a run's name would hold the reader for ever.
        descriptor = os.open(path, _OPEN)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise BadRunError(f"{path} is no run: not a regular file")
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            yield file
    except (OSError, ValueError) as error:
        if isinstance(error, RewarmError):
            raise
        raise BadRunError(f"cannot read the run {path}: {_why(error)}") from error


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno != errno.ENXIO:
        return error.strerror or str(error)
    return "not a regular file" if isinstance(error, OSError) else str(error)  # a socket


def _info(path: Path, file: BinaryIO) -> RunInfo:
    """What the ends of an open file say; it stands behind the header afterwards."""
    status = os.fstat(file.fileno())
    end = _end(file, status.st_size)
    file.seek(0)
    header = _header(path, next(_lines(file), b""))
    return RunInfo(
        id=header["run"],
        path=path,
        started=_number(header, "started") or 0.0,
        pid=_of(header, "pid", int, 0),
        host=_of(header, "host", str, ""),
        argv=tuple(str(argument) for argument in _of(header, "argv", list, [])),
        python=_of(header, "python", str, ""),
        directory=_of(header, "directory", str, None),
        parent=_of(header, "parent", str, None),
        about=_of(header, "about", dict, {}),
        state=_state(file, status, end),
        ended=_number(end, "end"),
        events=_of(end, "events", int, None),
        lost=_of(end, "lost", int, None),
        stats=_of(end, "stats", dict, None),
        size=status.st_size,
    )


def _header(path: Path, line: bytes | None) -> dict[str, Any]:
    header = _parse(line)
    if header is None or "run" not in header or "version" not in header:
        raise BadRunError(f"{path} is no run: its first line is no header")
    if header["version"] != VERSION:
        raise BadRunError(
            f"{path} is a run of version {header['version']!r}, and this rewarm reads version {VERSION}: "
            f"read it with the rewarm that wrote it"
        )
    named = isinstance(header["run"], str) and is_run_id(header["run"])
    if not named or _number(header, "started") is None:
        raise BadRunError(f"{path} is no run: its header has no id or no start")
    return header


def _of(record: Mapping[str, Any], name: str, kind: type, otherwise: Any) -> Any:
    """A value, if it is of the kind that it should be."""
    value = record.get(name)
    return value if isinstance(value, kind) else otherwise


def _number(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _end(file: BinaryIO, size: int) -> dict[str, Any]:
    """The last line, if it is a run's end, or an empty record."""
    file.seek(max(0, size - LINE_BYTES))
    lines = file.read(LINE_BYTES).removesuffix(b"\n").rsplit(b"\n", 1)
    last = _parse(lines[-1]) or {}
    return last if "end" in last else {}


def _state(file: BinaryIO, status: os.stat_result, end: Mapping[str, Any]) -> Literal["ended", "running", "unfinished"]:
    if end:
        return "ended"
    return "running" if has_writer(file.fileno(), status) else "unfinished"


def _lines(file: BinaryIO, at_most: int | None = None) -> Iterator[bytes | None]:
    """The lines without their ends, as far as they begin in the next `at_most` bytes; `None` for one too long."""
    stop = None if at_most is None else file.tell() + at_most
    while (stop is None or file.tell() < stop) and (line := file.readline(LINE_BYTES)):
        whole = line.endswith(b"\n") or len(line) < LINE_BYTES
        while not whole:
            rest = file.readline(LINE_BYTES)
            whole = not rest or rest.endswith(b"\n")
            line = b""
        yield line.removesuffix(b"\n") if line else None


def _parse(line: bytes | None) -> dict[str, Any] | None:
    """The record of one line, or `None`. The beginning of a record is never a record itself."""
    if line is None:
        return None
    try:
        record = json.loads(line.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


class _Records:
    """What follows the header in an open file, and what was met on the way through it."""

    def __init__(self, file: BinaryIO, at_most: int | None) -> None:
        self._file = file
        self._at_most = at_most
        self.damaged = 0
        self.truncated = False

    def events(self) -> Iterator[Mapping[str, Any]]:
        """The events, to the end of the file."""
        for line in _lines(self._file, self._at_most):
            if line == b"":
                continue
            record = _parse(line)
            if record is None or not isinstance(record.get("event", {}), dict):
                self.damaged += 1
            elif "event" in record:
                yield record["event"]
            elif "truncated" in record:
                self.truncated = True
        if self._at_most is not None and self._file.read(1):
            self.truncated = True
