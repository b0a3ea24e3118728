"""Fresh processes that ask for leases, with real signals; and a remote that is a folder, for them to share.

Nothing here decides a result: a process compiles by sleeping and writing a file, and says each step in a line.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rewarm.remote.blobs import BlobInfo, UnreachableError

KEY = "ab" * 32
OTHER = "cd" * 32
PATIENCE = 60.0

PRELUDE = f"""
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from leasing import FolderBlobs
from rewarm.coordination import FleetLeases, HostLeases
from rewarm.small_files import PRIVATE
KEY, OTHER = {KEY!r}, {OTHER!r}
root = Path(sys.argv[1])
stored = root / "stored"

def say(*words):
    print(*words, flush=True)

def host(**more):
    return HostLeases(root / "leases", PRIVATE, **more)

def fleet(**more):
    if more.pop("other_host", True):
        from rewarm.coordination import fleet as module
        module.process_space = lambda: f"{{os.getpid():016x}}"
    return FleetLeases(FolderBlobs(root / "remote"), "ns", enforces=True, **more)

def compile_it(seconds, store=True):
    with (root / "compilations").open("a") as log:
        log.write(f"{{os.getpid()}}\\n")
    time.sleep(seconds)
    if store:
        temporary = root / f"{{os.getpid()}}.tmp"
        temporary.write_text("result")
        temporary.rename(stored)

def resolve(leases, seconds, store=True, key=KEY):
    if stored.exists():
        return say("hit")
    with leases.lead(key, stored.exists) as lead:
        say(lead.outcome, f"{{lead.seconds:.3f}}", lead.why)
        if lead.outcome == "waited" and stored.exists():
            return say("hit")
        compile_it(seconds, store)
    say("compiled")

def go():
    say("ready")
    while not (root / "go").exists():
        time.sleep(0.01)
"""


class Process:
    """A fresh Python that runs the prelude and `code`; its lines come as they are written."""

    def __init__(self, code: str, root: Path) -> None:
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self.popen = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code), str(root)], stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def line(self, starts: str = "", seconds: float = PATIENCE) -> str:
        """The next line that starts so."""
        until = time.monotonic() + seconds
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line {starts!r} after {self.lines}") from None
            assert line is not None, f"it ended without a line {starts!r}: {self.lines}"
            self.lines.append(line)
            if line.startswith(starts):
                return line

    def send(self, number: int) -> None:
        """Send a signal to it."""
        os.kill(self.popen.pid, number)

    def kill(self) -> None:
        """End it as the system would, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.popen.wait(PATIENCE)

    def home(self, seconds: float = PATIENCE) -> list[str]:
        """All its lines, once it has ended well."""
        assert self.popen.wait(seconds) == 0, self.lines
        self._reader.join(PATIENCE)
        while (line := self._queue.get()) is not None:
            self.lines.append(line)
        self._queue.put(None)
        return self.lines

    def says(self, starts: str) -> list[str]:
        """The lines so far that start so."""
        return [line for line in self.lines if line.startswith(starts)]


class Processes:
    """Those of one test. All are ended with it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.all: list[Process] = []

    def start(self, code: str) -> Process:
        """Start one."""
        self.all.append(Process(code, self.root))
        return self.all[-1]

    def start_at_once(self, code: str, count: int) -> list[Process]:
        """Start that many, which all call `go()` first, and let them go together."""
        started = [self.start(code) for _ in range(count)]
        for one in started:
            one.line("ready")
        (self.root / "go").touch()
        return started

    def compilations(self) -> list[int]:
        """Who compiled."""
        log = self.root / "compilations"
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    def end(self) -> None:
        """End all, stopped ones too."""
        for one in self.all:
            with contextlib.suppress(ProcessLookupError):
                if one.popen.poll() is None:
                    one.popen.kill()
            one.popen.wait()
            one._reader.join(PATIENCE)
            assert one.popen.stdout is not None
            one.popen.stdout.close()


def until(true: str, condition: object, seconds: float = PATIENCE) -> float:
    """Wait until `condition()` is true; returns when that was seen."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"never: {true}"
        time.sleep(0.005)
    return time.monotonic()


class FolderBlobs:
    """Named blobs as files of a folder, shared by processes; `only_new` is enforced. A file `down` makes it fail."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.mkdir(exist_ok=True)
        self.asked: list[str] = []

    @property
    def place(self) -> str:
        return f"file://{self.root}"

    def _ask(self, verb: str) -> None:
        self.asked.append(verb)
        if (self.root / "down").exists():
            raise UnreachableError("no answer")

    def _path(self, name: str) -> Path:
        return self.root / name.replace("/", "!")

    def get(self, name: str, *, limit: int) -> bytes | None:
        self._ask("get")
        try:
            data = self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        assert len(data) <= limit
        return data

    def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
        self._ask("put")
        temporary = self.root / f"{os.getpid()}-{threading.get_ident()}.tmp"
        temporary.write_bytes(data)
        if not only_new:
            temporary.rename(self._path(name))
            return True
        try:
            self._path(name).hardlink_to(temporary)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def delete(self, name: str) -> None:
        self._ask("delete")
        self._path(name).unlink(missing_ok=True)

    def scan(self, prefix: str) -> Iterator[BlobInfo]:
        raise NotImplementedError

    def close(self) -> None:
        pass
