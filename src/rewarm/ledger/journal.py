"""A run on disk: one file per process, one line per event, written as it happens.

Not promised: that every event gets there. A full or read-only disk, a file that somebody removed, and the bounds
below cost events, and a power cut may cost the newest, since nothing is forced to disk. Promised: an event that
`RunWriter.event` has returned from is read after `kill -9` of the process, and nothing here raises.

    <cache directory>/runs/<run id>.jsonl    mode 0600, also in a group's directory: arguments may hold secrets

    run id := UTC time "-" pid "-" 8 random hex digits, such as 20261129T184500Z-12345-9f3a07c1
    file   := header { record } [ end ]; each is one JSON object in ASCII on one line of at most 64 KiB
    header := {"run": id, "version": 1, "started": s, "pid":, "host":, "argv": [], "python":, "directory":,
               "parent": id of the run this process was forked from, or null, "about": {what the caller gives}}
    record := {"event": {}} | {"truncated": {"events": n, "bytes": n}} | {what a later rewarm adds}
    end    := {"end": s, "events": n, "lost": n, "stats": {}}

Times are seconds since the epoch; numbers that JSON does not have (NaN, the infinities) are null. Readers pass over
empty lines. Bump `VERSION` when a reader of today would misread what is written; a new kind of record is no reason.

The writer holds a lock (`flock`) on its file from before its first byte to its end: whoever finds the lock free knows
that the process is gone, whatever its pid means where the reader is (another container, another host, a pid that was
given out again).

Races, and their worst outcome:

* two processes at one file: never, since a name is made once (`O_EXCL`) and a forked child closes its parent's file.
* a reader beside the writer: a write is not atomic for readers, so the last line may be seen in part and be counted
  as damaged; it is whole at the next look.
* `kill -9` in the middle of a write: the same, for good. The events before it are whole.
* a write that fails half way: the next line starts with a line end, so that one line is lost and no other.
* two processes pruning at once: one does, and the other leaves it to a later start (`savings.py`).
* pruning beside a start: a file is made a moment before it is locked. Pruning passes over what was written to in the
  last five minutes, so only a process that was stopped at that very point for longer can lose its file; its events
  are lost then, and its `problem` says so.
* pruning beside a reader: it has the file open and reads on, or it finds no file.
* a look at the lock beside a start: a look takes the lock for a moment, and would make the writer miss it. Whoever
  looks passes over empty files, and the writer locks before it writes, so the two do not meet.
* the program closes every descriptor it has, ours too (daemons do), and the number is given to another file: each line
  is preceded by a look at which file it is, so nothing is written there, and the run ends.
* a signal handler that records an event while its own thread is recording one: both lines are whole; while the file is
  being made, the handler's is lost; the number in the last line may be short by one.
* a fork while another thread opens the file: the child may inherit the descriptor unseen. It never writes there, but
  the parent's run looks alive until the child is gone too.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rewarm import locks, small_files
from rewarm.own_file import OwnFile

RUNS = "runs"
SUFFIX = ".jsonl"
VERSION = 1

# Bounds of one line, of one run, and of one directory. A run may pass its own by one last line. The ranks of a job are
# one start, and so that their files have a bound, too, they are counted besides.
LINE_BYTES = 64 << 10
RUN_BYTES = 8 << 20
RUN_EVENTS = 20_000
STARTS_KEPT = 64
RUNS_KEPT = 1024
RUNS_BYTES = 64 << 20

# Clocks of hosts are no further apart than this, in seconds.
_CLOCKS_APART = 86_400.0

# Written to within this, in seconds: left alone by pruning.
_RECENT = 300.0
# Summing up what goes costs a start some milliseconds of disk: one start in eight does it for all.
_SLACK = 8
# Where the file system has no locks, a file older than this, in seconds, is nobody's.
_SURELY_LEFT = 86_400.0

_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9]+-[0-9a-f]{8}")
_CREATE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_LOOK = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

_ARGUMENTS_KEPT = 64
_ARGUMENT_LENGTH = 512
_CLIPPED = 1000
_DEPTH = 32
_INTEGER_BITS = 2048  # Python may refuse to read back more than 640 digits


def is_run_id(text: str) -> bool:
    """Whether `text` has the form of a run's id."""
    return _ID.fullmatch(text) is not None


def is_run_name(name: str) -> bool:
    """Whether a file of this name is a run's: nothing else in the directory is ever read or removed."""
    return name.endswith(SUFFIX) and is_run_id(name.removesuffix(SUFFIX))


class RunWriter:
    """Writes the events of this process to `<directory>/runs`. Safe for any number of threads.

    Not promised: a file. It is made at the first event, so a process that compiles nothing leaves none; the cache
    directory itself must be there. A method that fails goes quiet: `problem` says why, and nothing is raised.

    A forked child has a run of its own, with its own id, which names its parent's.

    Args:
      directory: the cache directory.
      about: what the header is to say beside the process: versions, settings. Plain JSON values.
    """

    def __init__(self, directory: Path, about: Mapping[str, Any]) -> None:
        self._folder = directory / RUNS
        self._about = about
        self._begin(parent=None)
        _writers.add(self)

    def _begin(self, parent: str | None) -> None:
        # A lock that its own thread may take twice: a signal handler may compile while `event` is at work.
        self._lock = threading.RLock()
        self._started = time.time()
        self._id = _new_id(self._started)
        self._parent = parent
        self._problem: str | None = None
        self._file = OwnFile()
        self._quiet = False
        self._torn = False
        self._events = 0
        self._lost = 0

    @property
    def id(self) -> str:
        """The id of this process's run. Final from the first event on."""
        return self._id

    @property
    def path(self) -> Path:
        """Where the file lies, once it is made."""
        return self._folder / (self._id + SUFFIX)

    @property
    def problem(self) -> str | None:
        """What first went wrong, with the path, for one log line; `None` while nothing has."""
        return self._problem

    def event(self, record: Mapping[str, Any]) -> None:
        """Add one event. Values that JSON does not have are replaced; of more than 64 KiB, long strings are cut."""
        line = encode_line({"event": record})
        with self._lock:
            if line is not None and self._has_room(len(line)) and self._append(line):
                self._events += 1
            else:
                self._lost += 1

    def end(self, stats: Mapping[str, Any]) -> None:
        """Write the last line and close the file; what comes later is not kept. Harmless a second time."""
        with self._lock:
            self._quiet = True
            if self._look() is None:
                return
            last = {"end": time.time(), "events": self._events, "lost": self._lost}
            line = encode_line({**last, "stats": stats}) or encode_line({**last, "stats": {}})
            self._append(line or b"")
            self._close()

    # -- inside, under the lock --------------------------------------------------------------------------------

    def _has_room(self, length: int) -> bool:
        """Whether a line may be added to the file, which is made here if need be."""
        if self._file.descriptor is None and not self._quiet:
            self._open()
        status = None if self._quiet else self._look()
        if status is None:
            return False
        if self._events < RUN_EVENTS and status.st_size + length <= RUN_BYTES:
            return True
        self._quiet = True
        self._append(encode_line({"truncated": {"events": self._events, "bytes": status.st_size}}) or b"")
        return False

    def _look(self) -> os.stat_result | None:
        """The state of the open file; `None` where there is none, or it is not ours any more."""
        status = self._file.status()
        if self._file.lost:
            self._quiet = True
            self._note(self._file.lost)
        return status

    def _open(self) -> None:
        # Quiet until all is well: so it stays after a failure, and after a Ctrl-C at any point of this.
        self._quiet = True
        try:
            descriptor = self._create()
            self._file.take(descriptor)
            locks.try_lock(descriptor)  # held until the last descriptor of the file is closed
        except (OSError, ValueError) as error:  # ValueError: a path that no file system has
            self._note(error)
            self._close()
            return
        if self._append(self._header()):
            self._quiet = False
            prune(self._folder, _SLACK, counts_starts=self._is_first_of_job())
        else:
            self._close()
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _is_first_of_job(self) -> bool:
        job = self._about.get("job")
        return not isinstance(job, Mapping) or not job.get("rank")

    def _create(self) -> int:
        for _ in range(3):
            try:
                return os.open(self.path, _CREATE, 0o600)
            except FileNotFoundError:  # the first run here, or somebody cleared the directory meanwhile
                small_files.make_folder(self._folder)
            except FileExistsError:
                self._id = _new_id(self._started)
        return os.open(self.path, _CREATE, 0o600)

    def _header(self) -> bytes:
        header = {
            "run": self._id,
            "version": VERSION,
            "started": self._started,
            **_about_this_process(),
            "parent": self._parent,
            "about": self._about,
        }
        return encode_line(header) or encode_line({**header, "argv": [], "about": {}}) or b""

    def _append(self, line: bytes) -> bool:
        """Write one line: one system call, unless the disk takes only a part of it."""
        descriptor = self._file.descriptor
        if descriptor is None:
            return False
        data = memoryview(b"\n" + line if self._torn else line)
        self._torn = True  # until all of it is known to be there
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError as error:
            return self._note(error)
        self._torn = False
        return True

    def _close(self) -> None:
        self._quiet = True
        try:
            self._file.close()
        except OSError as error:  # a network file system may say here what it could not write
            self._note(error)

    def _note(self, why: OSError | ValueError | str) -> bool:
        """Remember the first trouble; returns False, for callers that say whether all went well."""
        if self._problem is None:
            told = (why.strerror or str(why)) if isinstance(why, OSError) else str(why)
            self._problem = f"cannot keep the record of this run in {self.path}: {told}"
        return False

    def _renew_in_child(self) -> None:
        # Closing leaves the parent's lock: it goes with the last descriptor, and the parent has another.
        if self._look() is not None:
            self._close()
        self._begin(parent=self._id)


_writers: weakref.WeakSet[RunWriter] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for writer in list(_writers):
        writer._renew_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _new_id(started: float) -> str:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(started))
    return f"{moment}-{os.getpid()}-{os.urandom(4).hex()}"


def _arguments() -> list[str]:
    """The program's arguments; it may have put anything in their place."""
    try:
        return [str(argument)[:_ARGUMENT_LENGTH] for argument in list(sys.argv)[:_ARGUMENTS_KEPT]]
    except Exception:  # noqa: BLE001 - a run without its arguments is still a run
        return []


def _about_this_process() -> dict[str, Any]:
    try:
        directory = str(Path.cwd())
    except OSError:  # removed under the process
        directory = None
    return {
        "pid": os.getpid(),
        "host": os.uname().nodename if hasattr(os, "uname") else "",
        "argv": _arguments(),
        "python": sys.version.split(maxsplit=1)[0],
        "directory": directory,
    }


# ---------------------------------------------------------------------------------------------------------------
# Lines


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encode_line(record: Mapping[str, Any]) -> bytes | None:
    """One line; `None` for what is too long for one even with its strings cut.

    Almost always the record is good as it is. If not: what JSON does not have is replaced; if that is too long,
    strings are cut too.
    """
    for longest in (0, LINE_BYTES, _CLIPPED):
        try:
            text = _encode(_Plain(longest).of(record) if longest else record)
        except Exception:  # noqa: BLE001 - a record may hold anything, with any __str__ or __iter__
            continue
        if len(text) < LINE_BYTES:
            return f"{text}\n".encode("ascii")
    return None


class _Plain:
    """Turns a value into what JSON has: non-finite numbers into null, other objects into the name of their class.

    Not promised: all of a value that is deeper than 32, larger than a line, or that contains itself.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._left = LINE_BYTES

    def of(self, value: Any, depth: int = _DEPTH) -> Any:
        self._left -= 1
        if depth and self._left > 0:
            if isinstance(value, Mapping):
                return {self._name(name): self.of(inner, depth - 1) for name, inner in value.items()}
            if isinstance(value, list | tuple):
                return [self.of(inner, depth - 1) for inner in value]
        return self._scalar(value)

    def _name(self, name: Any) -> str:
        return str(self._scalar(name))

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, str):
            return value[: self._longest]
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if value is None or (isinstance(value, int) and value.bit_length() <= _INTEGER_BITS):
            return value
        return f"<{type(value).__name__}>"


# ---------------------------------------------------------------------------------------------------------------
# Locks and pruning


def has_writer(descriptor: int, status: os.stat_result) -> bool:
    """Whether the process that writes a file is still there.

    Not promised: an answer where the file system has no locks, or while the file is empty, which see the module; then
    it is "yes" for a day after the last write.
    """
    if status.st_size:
        try:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (ImportError, OSError):
            pass
        else:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            return False
    return _written_within(status, _SURELY_LEFT)


def open_to_look(path: Path) -> int:
    """A descriptor for a look at a run's lock, which neither waits nor follows a link.

    Raises:
      OSError: there is no such file, or it may not be read.
    """
    return os.open(path, _LOOK)


_Files = list[tuple[str, os.stat_result]]


def prune(folder: Path, slack: int = 0, *, counts_starts: bool = True) -> None:
    """Remove the oldest runs, by their ids: those of the newest 64 starts stay, as far as they are no more than 1,024
    and fit into 64 MiB. The ranks of a job are one start.

    What a run adds up to is kept (`savings.py`) before it goes. Nothing is done while no more than `slack` runs of no
    more than 8 MiB would go. Counting starts takes a look into each file, so of a job one rank does.

    Not promised: any bound at every moment. Runs whose process lives and those written to in the last five minutes
    stay whatever their number, files of other users are neither counted nor removed, and one call removes at most
    128. Never removed: what has no run's name, and what is no regular file.
    """
    with contextlib.suppress(OSError):
        own = _own_runs(folder)
        starts = _starts(folder, own) if counts_starts and len(own) > STARTS_KEPT + slack else [own]
        runs_kept = bytes_kept = bytes_over = 0
        surplus, urgent = [], set()
        for starts_kept, start in enumerate(starts, start=1):
            for name, status in start:
                runs_kept, bytes_kept = runs_kept + 1, bytes_kept + status.st_size
                over = max(starts_kept / STARTS_KEPT, runs_kept / RUNS_KEPT, bytes_kept / RUNS_BYTES)
                if over > 1 and not _written_within(status, _RECENT):
                    surplus.append(name)
                    bytes_over += status.st_size
                    if over > 2:
                        urgent.add(name)
        if len(surplus) > slack or bytes_over > RUN_BYTES:
            from rewarm.ledger.savings import retire

            retire(folder, surplus[::-1], urgent)


def _starts(folder: Path, own: _Files) -> list[_Files]:
    """The run files by start, the newest first, both the starts and the files of each."""
    from rewarm.ledger.jobs import Member, together
    from rewarm.ledger.runs import BadRunError, member_of

    place = {name: number for number, (name, _) in enumerate(own)}
    told = []
    for name, status in own:
        try:
            said = member_of(folder / name)
        except BadRunError:  # a start of its own
            said = Member(None, 0, 0.0)
        told.append(((name, status), said))
    starts = [sorted(start, key=lambda one: place[one[0]]) for start in together(told)]
    return sorted(starts, key=lambda start: place[start[0][0]])


def _own_runs(folder: Path) -> _Files:
    """The run files of this user, newest first."""
    found = []
    owner = os.getuid() if hasattr(os, "getuid") else None
    with os.scandir(folder) as items:
        for item in items:
            if is_run_name(item.name):
                with contextlib.suppress(OSError):  # removed since
                    status = item.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and owner in (None, status.st_uid):
                        found.append((item.name, status))
    return sorted(found, key=lambda one: age_of(one[0]), reverse=True)


def age_of(name: str) -> tuple[bool, str]:
    """What runs are ordered by, from the name of a file or an id: the later, the greater.

    A run of a day that is yet to come was made while the clock was wrong: it counts as older than all others, else no
    later run would be the last one, nor stay, until that day.
    """
    return name < time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + _CLOCKS_APART)), name


def _written_within(status: os.stat_result, seconds: float) -> bool:
    # A time well ahead of this clock is a wrong one, and no reason to keep a file for ever.
    return abs(time.time() - status.st_mtime) < seconds
