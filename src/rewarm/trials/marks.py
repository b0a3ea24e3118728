"""Marks: what a process had in hand, readable after whatever ended it.

Not promised: a mark after a power cut (nothing is synced), on a directory that cannot be written, or of a process
that was killed between its start and its first line.

    <root>/trials/<pid>-<8 hex>.mark    mode 0600, made at the first load of an entry that is not proved

    file  := "rewarm mark 1 " host " " pid LF { line }
    line  := step " " what | "loaded " number | "ran " number | "armed" | "disarmed", each with LF
    step  := "loading" | "ahead", for a load by a thread that loads ahead of the program | "running"
    what  := number " " key " " digest of the entry " " seconds since the epoch " " program

A number stands for one load; what was begun (a step) under a number and not ended is what the process had in hand. Each
"running" says all again, so the file can be started anew whenever nothing is in hand. While it is "armed", a fatal
signal leaves its report in the file as well (`witness.py`).

The process holds a lock (`flock`) on its mark from before the first byte until it ends, whatever its pid means where
the reader is. While something is in hand for longer than a second the file's mtime is renewed each second: where the
lock says nothing, silence does, and it tells when the process died.

Races, and their worst outcome:

* a look beside the making: the file is empty until it is locked, and whoever looks passes over empty files.
* a look at a mark takes its lock: only marks that are not locked, and not empty, are looked at so; their process is
  gone.
* the program closes every descriptor it has, ours too, and the number is given to another file: each line is preceded
  by a look at which file it is, so nothing is written there. The mark looks left behind; what it had in hand at that
  moment is suspected, and is rebuilt once.
* somebody removes the file: the next load makes another; what is in hand meanwhile is not watched.
* a fork: the child closes its copy. A child that was forked by other means than Python's keeps the lock until it
  ends or replaces its program; a crash of the parent is seen only then.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from rewarm import locks
from rewarm.own_file import OwnFile
from rewarm.small_files import Modes, make_folder
from rewarm.trials.witness import Testimony, testimony

SUFFIX = ".mark"
ARMED, DISARMED = "armed", "disarmed"
LOADING, AHEAD, RUNNING = "loading", "ahead", "running"
_HEADER = "rewarm mark 1"
_CREATE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_LONG = 64 << 10
_PROGRAM_LENGTH = 200
_NAME = re.compile(r"[0-9]+-[0-9a-f]{8}\.mark")
_BEGUN = re.compile(r"(loading|ahead|running) ([0-9]+) ([0-9a-f]{64}) ([0-9a-f]{64}) ([0-9.]{1,20}) (.*)")
_ENDED = re.compile(r"(?:loaded|ran) ([0-9]+)")


class InHand(NamedTuple):
    """What a process had begun.

    Attributes:
      step: `LOADING`, `AHEAD` or `RUNNING`.
      key: of the entry.
      content: the digest of the entry, 64 hexadecimal digits.
      since: when it was begun, in seconds since the epoch.
      program: its name.
    """

    step: str
    key: str
    content: str
    since: float
    program: str


class LeftMark(NamedTuple):
    """A mark as it is read.

    Attributes:
      host: where its process ran, 16 hexadecimal digits.
      pid: the process.
      in_hand: what was begun and not ended.
      witnessed: whether a fatal signal would have left a report.
      testimony: the report.
    """

    host: str
    pid: int
    in_hand: tuple[InHand, ...]
    witnessed: bool = False
    testimony: Testimony | None = None


def is_mark_name(name: str) -> bool:
    """Whether a file of this name is a mark."""
    return _NAME.fullmatch(name) is not None


def begun(number: int, what: InHand) -> str:
    """The line of a step that begins."""
    program = what.program[:_PROGRAM_LENGTH].encode("ascii", "backslashreplace").decode("ascii")
    printable = program if program.isprintable() else repr(program)
    return f"{what.step} {number} {what.key} {what.content} {what.since:.3f} {printable}\n"


def read(data: bytes) -> LeftMark | None:
    """What a mark says; `None` when it is none. Lines that cannot be read are passed over."""
    lines = data.decode("ascii", "replace").split("\n")
    words = lines[0].split(" ")
    if " ".join(words[:3]) != _HEADER or len(words) != 5 or not words[4].isdecimal():
        return None
    found: dict[str, InHand] = {}
    witnessed = False
    for line in lines[1:-1]:  # what has no line end was being written
        if (begins := _BEGUN.fullmatch(line)) is not None:
            step, number, key, content, since, program = begins.groups()
            with contextlib.suppress(ValueError):
                found[number] = InHand(step, key, content, float(since), program)
        elif (ends := _ENDED.fullmatch(line)) is not None:
            found.pop(ends[1], None)
        elif line in (ARMED, DISARMED):
            witnessed = line == ARMED
    return LeftMark(words[3], int(words[4]), tuple(found.values()), witnessed, testimony(lines))


class MarkFile:
    """The mark of this process in one directory. No method raises; the caller sees to one at a time."""

    def __init__(self, folder: Path, host: str, modes: Modes) -> None:
        self._folder = folder
        self._host = host
        self._modes = modes
        self._path = folder
        self._file = OwnFile()
        self._written = 0

    @property
    def descriptor(self) -> int | None:
        """The open file, as it was at the last look; `None` where there was none."""
        return self._file.descriptor

    def write(self, line: str, *, look: bool = True) -> bool:
        """Add a line to the mark, which is there already; whether it is in the file. `look`: none was taken just now.

        A mark that cannot be written to (a full disk) is removed: half of the truth would accuse the innocent.
        """
        if look:
            self._file.status()
        descriptor = self.descriptor
        if descriptor is None:
            return False
        data = line.encode("ascii")
        self._written += len(data)
        try:
            whole = os.write(descriptor, data) == len(data)
        except OSError:
            whole = False
        if not whole:
            self.remove()
        return whole

    def make(self) -> bool:
        """Make the mark if there is none; whether it was made now."""
        if self._file.status() is not None:
            return False
        try:
            descriptor = self._create()
            self._file.take(descriptor)
            locks.try_lock(descriptor)
            self._written = 0
        except OSError:  # read-only, full, gone
            self._close()
            return False
        return self.write(self._header())

    def start_anew_if_long(self) -> None:
        """Empty a mark that has grown long. Only while nothing is in hand."""
        if self._written <= _LONG:
            return
        status, descriptor = self._file.status(), self._file.descriptor
        if status is not None and descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                self._written = 0
                self.write(self._header())

    def touch(self) -> None:
        """Show that the process is alive."""
        descriptor = self.descriptor if self._file.status() is not None else None
        if descriptor is not None:
            with contextlib.suppress(OSError, NotImplementedError):
                os.utime(descriptor if os.utime in os.supports_fd else self._path)

    def remove(self) -> None:
        """The process has nothing in hand, or ends as it should."""
        if self._file.status() is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            self._close()

    def leave(self) -> None:
        """In a forked child: the mark is the parent's. Closing leaves its lock, since the parent has the file open."""
        if self._file.status() is not None:
            self._close()

    def _create(self) -> int:
        self._path = self._folder / f"{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
        try:
            descriptor = os.open(self._path, _CREATE, self._modes.file)
        except FileNotFoundError:  # the first mark here, or somebody cleared the directory
            make_folder(self._folder, self._modes.directory)
            descriptor = os.open(self._path, _CREATE, self._modes.file)
        if self._modes.file & 0o077:
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, self._modes.file)  # whatever the umask
        return descriptor

    def _header(self) -> str:
        return f"{_HEADER} {self._host} {os.getpid()}\n"

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
