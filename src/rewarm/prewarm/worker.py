"""A worker process, seen from here: asked for one program after the other.

Not promised: that it lives to answer. A compiler can end its process; then the program that it had in hand has failed,
and the others go to another worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from rewarm import settings
from rewarm.prewarm.work import Job, Wanted

_LINES_SHOWN = 3

# What a crash prints behind its reason: where it was, the threads, the registers.
_OF_A_CRASH = re.compile(
    r"\s*(?:@\s|#\d+\s|PC: @|\*\*\* |File \"|Thread 0x|Current thread|Extension modules:|Stack (?:dump|trace)|"
    r"(?:0x)?[0-9a-f]{8,}\b|[\w./-]+\(.*\) ?\[0x|\S+\.so[.\d]*[:(+]|<no Python frame>|Garbage-collecting)"
)
_WANT = re.compile(r"memory|bad_alloc|pthread_create|temporarily unavailable|too many open files", re.IGNORECASE)
_LAST_BYTES = 64 << 10
_PATIENCE = 10.0
_LOOK = 0.2


class EndedError(Exception):
    """The worker's process has ended without an answer.

    Attributes:
      code: its exit code, negative for a signal.
    """

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code

    @property
    def is_of_the_machine(self) -> bool:
        """Whether it looks as if memory, threads or patience had run out, and not as if the program was at fault."""
        killed = self.code in {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, 137, 143, 130}
        return killed or _WANT.search(str(self)) is not None


class CannotError(Exception):
    """The worker cannot begin: the plan, the target, or JAX is not as it should be.

    Attributes:
      kind: "plan", "target" or "jax".
    """

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class Worker:
    """One process for one job, from `__init__` to `end`, which must be called.

    Attributes:
      programs: number, name and line of each program of the plan, where it has listed them.
      wrong: why the plan ended early; "" where it did not.
      asked: how many programs it was asked for.
    """

    def __init__(self, job: Job, wanted: Wanted) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`; it has no name that could be left behind
        self.asked = 0
        self._process = subprocess.Popen(
            # -P: what lies in the working directory is not to be imported in the place of JAX; the plan still can.
            [sys.executable, "-P", "-W", "ignore", "-m", "rewarm.prewarm.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**settings.unwatched(settings.child_environment(None, "")), "REWARM": "0", **job.environment},
        )
        self._heard = b""
        self._question = {
            **{"plan": job.plan, "target": job.target, "topology": job.topology},
            **{name: value for name, value in asdict(wanted).items() if name not in ("only", "forget_after")},
        }
        self.programs: list[tuple[int, str, str]] = []
        self.wrong = ""

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def begin(self, *, lists: bool) -> None:
        """Have it read the plan, and list its programs or not.

        Raises:
          CannotError: it says that it cannot.
          EndedError: it has ended; `programs` are those that it had listed.
        """
        self._send(json.dumps({**self._question, "lists": lists}))
        while "yields" in (answer := self._hear()):
            number, name, line = answer["yields"]
            self.programs.append((int(number), str(name), str(line)))
        if "cannot" in answer:
            raise CannotError(str(answer["kind"]), str(answer["cannot"]))
        self.wrong = str(answer["wrong"])

    def fill(self, number: int, name: str, begins: Callable[[str], None]) -> Mapping[str, Any]:
        """Have it fill in one program of the plan; `begins` is told the key before it is compiled.

        Raises:
          EndedError: it has ended.
        """
        self.asked += 1
        self._send(json.dumps([number, name]))
        while "begins" in (answer := self._hear()):
            begins(str(answer["begins"]))
        return answer

    def kill(self) -> None:
        """End it at once; another thread may be waiting for its answer, and hears that it has ended."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def end(self) -> None:
        """Let it end, and clear up."""
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    # -- inside ------------------------------------------------------------------------------------------------

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, which shows when its answer is read
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        line = self._line()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        try:  # the pipe is at its end, so the process is, or as good as
            code = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        how = f"signal {_signal(-code)}" if code < 0 else f"exit code {code}"
        raise EndedError(f"the worker's process ended ({how}): {self._last_words()}", code)

    def _line(self) -> bytes:
        """The next line; none once the process is gone, though one that the plan has forked may hold the pipe."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        looks = select.poll()
        looks.register(pipe, select.POLLIN)
        while b"\n" not in self._heard:
            gone = self._process.poll() is not None
            if looks.poll(0 if gone else _LOOK * 1000):
                more = os.read(pipe, 1 << 16)
                self._heard += more
                if not more:
                    return b""
            elif gone:
                return b""
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            size = os.fstat(self._log.fileno()).st_size
            last = os.pread(self._log.fileno(), _LAST_BYTES, max(0, size - _LAST_BYTES))
            lines = last.decode(errors="replace").splitlines()
            said = [line for line in lines if line.strip()]
            said = [line for line in said if not _OF_A_CRASH.match(line)] or said
            return " | ".join(said[-_LINES_SHOWN:]) or "it said nothing"
        return "it said nothing"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
