"""The load check: each new entry is loaded once in a child process, so that one which ends it ends nobody's program.

Not promised: that an entry which passes can be loaded everywhere, nor that each is tried (on Windows none is). What
cannot be tried (no device for a second process, a function that only the program registers, no answer within a
minute) is left alone.

There is one child, started at the first new entry, on devices of its own. A thread of the program feeds it, so the
program waits only at its end: for 30 seconds at most, for what is not tried yet.

    parent to child   one JSON object on each line: first {"platform":, "devices": [ids]}, then for each entry
                      {"key":, "path":, "options": base64, "devices": [ids]}
    child to parent   first {"ok": true} once it has these devices, or {"cannot": why}, then for each entry
                      {"ok": seconds} or {"error": why}

Races, and their worst outcome:

* the program is killed: the child reads the end of its input and ends.
* a fork: the child of the fork starts a checker of its own at its first new entry; while it lives, the parent's
  checker may outlive the parent, and waits.
* an entry that was replaced meanwhile: the child loads the new one; what is put aside is the old one or nothing.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from rewarm.cache import Request
from rewarm.envelope import content_of
from rewarm.jax_adapter.first_runs import put_aside_in
from rewarm.store import LocalStore, Store

_PATIENCE = 60.0
_AT_EXIT = 30.0
_DEATHS = 8
_AT_ONCE = 64 << 10

# What ends a process by its own doing; SIGKILL and SIGTERM come from others (no memory, an administrator).
_OWN_DOING = frozenset(
    getattr(signal, name) for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT", "SIGFPE") if hasattr(signal, name)
)


class NewEntry(NamedTuple):
    """What the child needs to load an entry.

    Attributes:
      key: of the entry.
      program: its name.
      path: where it lies.
      content: its digest, see `envelope.content_of`.
      options: the serialised `CompileOptions`.
      devices: the ids of the devices that it is for.
      platform: of these.
    """

    key: str
    program: str
    path: Path
    content: str
    options: bytes
    devices: tuple[int, ...]
    platform: str

    def hello(self) -> dict[str, Any]:
        """What a new child is told first."""
        return {"platform": self.platform, "devices": list(self.devices)}

    def question(self) -> dict[str, Any]:
        """What the child is asked."""
        return {
            "key": self.key,
            "path": str(self.path),
            "options": base64.b64encode(self.options).decode("ascii"),
            "devices": list(self.devices),
        }


class LoadCheck:
    """Tries new entries of one store. Safe for any number of threads. No method raises.

    Args:
      store: where the entries lie; one that ends the child is quarantined there.
      tell: says one line to the user.
      environment: the child's variables; `None`: those of this process. The child turns rewarm off for itself.
    """

    def __init__(self, store: Store, tell: Callable[[str], None], environment: Mapping[str, str] | None = None) -> None:
        self._put_aside = put_aside_in(store)
        self._tell = tell
        self._environment = environment
        self._begin()
        atexit.register(self._end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._entries: queue.SimpleQueue[NewEntry | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._parents = getattr(self, "_child", None)  # in a forked child: not ours to end, nor to collect
        self._child: _Child | None = None
        self._off = False
        self.passed = 0
        self.failed = 0

    def submit(self, entry: NewEntry) -> None:
        """Try this entry when its turn comes."""
        if self._off or not sys.executable or os.name != "posix":
            return
        self._entries.put(entry)
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._feed, name="rewarm-load-check", daemon=True)
                with contextlib.suppress(RuntimeError):  # no more threads
                    thread.start()
                    self._thread = thread

    def _feed(self) -> None:
        while (entry := self._entries.get()) is not None:
            if not self._off:
                try:
                    self._try(entry)
                except Exception as error:  # noqa: BLE001 - the check is a courtesy
                    self._turn_off(f"{type(error).__name__}: {error}")
        if self._child is not None:
            self._child.stop()

    def _try(self, entry: NewEntry) -> None:
        if self._child is None:
            self._child = _Child(self._environment)
            hello = self._child.ask(entry.hello())
            if "ok" not in hello:
                self._turn_off(str(hello.get("cannot", "a child process did not start")))
                return
        answer = self._child.ask(entry.question())
        if "ok" in answer:
            self.passed += 1
        elif not answer:
            child, self._child = self._child, None
            self._judge(entry, child.stop())

    def _judge(self, entry: NewEntry, code: int | None) -> None:
        """The child has ended, or was ended for giving no answer."""
        if code is None or -code not in _OWN_DOING:
            return
        self.failed += 1
        reason = f"loading it ended a child process with {signal.Signals(-code).name}"
        self._put_aside(entry.key, reason, entry.content)
        self._tell(f"entry {entry.key[:12]} of {entry.program} is not usable ({reason}): quarantined")
        if self.failed >= _DEATHS:
            self._turn_off(f"{self.failed} of them ended it")

    def _turn_off(self, why: str) -> None:
        self._off = True
        if self._child is not None:
            self._child.stop()
            self._child = None
        self._tell(f"new entries are not tried in a child process any more: {why}")

    def _end(self) -> None:
        thread = self._thread
        if thread is not None:
            self._entries.put(None)
            thread.join(_AT_EXIT)
            self._off = True
            if (child := self._child) is not None:
                child.kill()


class _Child:
    """The process that loads entries."""

    def __init__(self, environment: Mapping[str, str] | None) -> None:
        # -P: what lies in the program's working directory is not to be imported in the place of JAX.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rewarm.jax_adapter.load_check_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=None if environment is None else dict(environment),
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the program
        )

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Ask, and read the answer; an empty one where the child has ended, or gave none in time."""
        try:
            _there(self._process.stdin).write(json.dumps(question).encode("ascii") + b"\n")
            answer = json.loads(self._read_line(time.monotonic() + _PATIENCE))
        except (OSError, ValueError):
            return {}
        return answer if isinstance(answer, dict) else {}

    def _read_line(self, until: float) -> bytes:
        # Not with a timer that kills: at the end of a program no thread can be started any more.
        line, answers = b"", _there(self._process.stdout)
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([answers], [], [], max(0.0, until - time.monotonic()))
            more = answers.read(_AT_ONCE) if ready else b""
            if not more:
                break
            line += more
        return line

    def kill(self) -> None:
        """End the child at once."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def stop(self) -> int | None:
        """End the child, if it has not ended; its exit code, the negative signal where one ended it."""
        with contextlib.suppress(OSError):
            _there(self._process.stdin).close()
        code = _ended_within(self._process, 1.0)
        if code is None:
            self.kill()
            _ended_within(self._process, 1.0)
        with contextlib.suppress(OSError):
            _there(self._process.stdout).close()
        return code


def _there(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    until = time.monotonic() + seconds
    while (code := process.poll()) is None and time.monotonic() < until:
        time.sleep(0.01)
    return code


class EntryCheck:
    """The load check as the cache wants it (`cache.Checker`)."""

    def __init__(self, check: LoadCheck, store: LocalStore) -> None:
        self._check = check
        self._store = store

    def stored(self, request: Request[Any], key: str, entry: bytes) -> None:
        """See `cache.Checker`."""
        if request.place is not None:
            options, devices, platform, _ = request.place()
            path = self._store.path(key)
            self._check.submit(NewEntry(key, request.program, path, content_of(entry), options, devices, platform))
