"""One lock file, as one process has it open: to lead by, or to watch its leader.

Not promised: that the locks of the file system mean anything. Each look says how far they go.

    <folder>/<key>.lock
    file  := "rewarm lease 1 " host " " pid LF     52 bytes; host: 16 hexadecimal digits, pid: padded to 19
    mtime := when its leader was last heard

A leader holds the file's lock (`flock`) from before the first byte, and at the end removes the name before it lets
go. So a lock that is free, on a file that still has its name, tells of a leader that died; a file without a name, of
one whose work is over.

Races, and their worst outcome:

* one opens a file that its maker has not locked yet, and locks it: it leads, and the maker watches.
* one locks a file whose leader has just removed it: after every lock follows a look whether the name still leads to
  this file. It is kept open meanwhile, so that its number cannot be given to the next one.
* Ctrl-C between the system call that opens a file and the line that keeps its number: the file stays open and
  unlocked until the process ends, and the next one who asks takes it over.
* the program closes every descriptor that it has: the lock is gone, another may lead beside us.
* a fork: the child closes its copies, of files that are watched too. A child that was forked by other means than
  Python's keeps the lock until it ends or replaces its program; to others its parent, once dead, is a leader that is
  silent.
* where the lock of one host means nothing on another, and each finds a file that is still empty: both lead.
"""

from __future__ import annotations

import contextlib
import enum
import os
import stat
import threading
from pathlib import Path

from rewarm import locks
from rewarm.host import host_id
from rewarm.own_file import OwnFile
from rewarm.small_files import Modes

_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_OPEN = os.O_RDWR | _CAREFUL
_CREATE = _OPEN | os.O_CREAT | os.O_EXCL
_TRIES = 100
_HEADER = b"rewarm lease 1 "
_SECOND = 1_000_000_000

# The files that this process has open.
_open: set[LeaseFile] = set()


class State(enum.Enum):
    """What one look at a lock file shows."""

    OURS = "nobody else leads by it"
    LED = "somebody leads by it"
    HEIR = "its lock is ours, which says nothing of its leader, who is of another host"
    OVER = "the work of its leader is over"


class LeaseFile:
    """See the module. One thread at a time, but for `beat`.

    Args:
      path: the file.
      modes: the rights of what is made.
    """

    def __init__(self, path: Path, modes: Modes) -> None:
        self._path = path
        self._modes = modes
        self._file = OwnFile()
        self._made = False
        self._locked: bool | None = False
        self._leads = False
        self._closing = threading.RLock()  # a beat beside the end would touch whatever has our number by then
        self.heard = 0  # the file's mtime at the last look, in nanoseconds

    def open(self, *, make: bool = True) -> None:
        """Open the file, which is made if it is not there.

        Raises:
          OSError: it cannot be made or opened, or is no regular file.
        """
        _open.add(self)
        for _ in range(_TRIES if make else 1):
            if make:
                with contextlib.suppress(FileExistsError):
                    self._take(os.open(self._path, _CREATE, self._modes.file))
                    self._made = True
                    self._give_mode()
                    return
            with contextlib.suppress(FileNotFoundError):  # its leader has just ended
                self._take(os.open(self._path, _OPEN))
                return
        raise OSError(0, "it comes and goes", str(self._path))

    def look(self) -> State:
        """Try its lock, without waiting, and see what is to be seen. Once the lock is ours it stays."""
        status, descriptor = self._file.status(), self._file.descriptor
        if status is None or descriptor is None:
            return State.OVER
        self.heard = status.st_mtime_ns
        if not self._locked:
            self._locked = locks.try_lock(descriptor)
        if not self._is_named(status):
            return State.OVER
        if self._locked is None:
            return State.OURS if self._made else State.LED
        if self._locked is False:
            return State.LED
        return State.OURS if self._made or self._is_of_this_host(descriptor) else State.HEIR

    def silent_for(self) -> float:
        """Seconds from its leader's last beat to now, both by the clock of the file system; 0 where nothing tells."""
        folder = self._path.parent
        try:
            os.utime(folder)
            return max(0.0, (folder.stat().st_mtime_ns - self.heard) / _SECOND)
        except OSError:
            return 0.0

    def is_heard_anew(self) -> bool:
        """Whether there was a beat since the last look, by a name that is opened once more.

        Network file systems may show an old mtime of an open file for a minute; opening asks the server.
        """
        try:
            descriptor = os.open(self._path, os.O_RDONLY | _CAREFUL)
        except OSError:
            return True  # the next look says more
        try:
            return os.fstat(descriptor).st_mtime_ns != self.heard
        except OSError:
            return True
        finally:
            os.close(descriptor)

    def lead(self) -> None:
        """Lead by it: say so in the file, where there is room."""
        self._leads = True
        descriptor = self._file.descriptor
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.pwrite(descriptor, b"%s%s %19d\n" % (_HEADER, host_id().encode("ascii"), os.getpid()), 0)
        self.beat()

    def beat(self) -> None:
        """Show that the leader is alive."""
        with self._closing:
            if self._file.status() is not None and (descriptor := self._file.descriptor) is not None:
                with contextlib.suppress(OSError, NotImplementedError):
                    os.utime(descriptor if os.utime in os.supports_fd else self._path)

    def end(self) -> None:
        """Close it; a leader removes it first. Any number of times."""
        with self._closing:
            if (status := self._file.status()) is not None and self._leads and self._is_named(status):
                with contextlib.suppress(OSError):
                    self._path.unlink()
            with contextlib.suppress(OSError):
                self._file.close()
        _open.discard(self)

    def remove_if_left(self, seconds: float) -> bool:
        """Remove what a leader left behind who was silent for so many seconds, and close it; whether it was removed."""
        if self.look() is not State.OVER and self._locked is not False and not self.is_heard_anew():
            self._leads = self.silent_for() >= seconds
        removes = self._leads
        self.end()
        return removes

    def leave(self) -> None:
        """In a forked child: the file is the parent's. Closing leaves the lock, since the parent has it open."""
        self._leads = False
        self._closing = threading.RLock()
        self._file.status()  # what the program closed is not ours to close
        with contextlib.suppress(OSError):
            self._file.close()

    def _take(self, descriptor: int) -> None:
        self._file.take(descriptor)
        status = self._file.status()
        if status is not None and not stat.S_ISREG(status.st_mode):  # none: it was removed since
            raise OSError(0, "not a regular file", str(self._path))

    def _give_mode(self) -> None:
        if self._modes.file & 0o077 and (descriptor := self._file.descriptor) is not None:
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, self._modes.file)  # whatever the umask

    def _is_named(self, status: os.stat_result) -> bool:
        try:
            named = self._path.stat(follow_symlinks=False)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == (status.st_dev, status.st_ino)

    def _is_of_this_host(self, descriptor: int) -> bool:
        """Whether its leader is, or died before it could say."""
        try:
            text = os.pread(descriptor, len(_HEADER) + 16, 0)
        except OSError:
            return False
        return not text or text == _HEADER + host_id().encode("ascii")


def _leave_in_child() -> None:
    for file in tuple(_open):
        file.leave()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_in_child)
