"""A worker process, seen from here: asked for one program after the other.

Not promised: that it lives to answer. A compiler can end its process; then the program that it had in hand has failed,
and the others go to another worker.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rewarm import settings
from rewarm.prewarm.work import Job, Wanted

_LINES_SHOWN = 3
_LAST_BYTES = 64 << 10
_PATIENCE = 10.0


class EndedError(Exception):
    """The worker's process has ended without an answer.

    Attributes:
      code: its exit code, negative for a signal.
    """

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code

    @property
    def may_pass(self) -> bool:
        """Whether it was killed, as a system without memory and an impatient person do."""
        return self.code in {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, 137, 143, 130}


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
      programs: number, name and line of each program of the plan.
      wrong: why the plan ended early; "" where it did not.
      asked: how many programs it was asked for.
    """

    def __init__(self, job: Job, wanted: Wanted) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rewarm-worker-")
        self._log = Path(self._folder.name) / "log"
        self.asked = 0
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                # -P: what lies in the working directory is not to be imported in the place of JAX; the plan still can.
                [sys.executable, "-P", "-W", "ignore", "-m", "rewarm.prewarm.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**settings.child_environment(None, ""), "REWARM": "0", **job.environment},
            )
        self._question = {
            **{"plan": job.plan, "target": job.target, "topology": job.topology, "log": str(self._log)},
            **{name: value for name, value in asdict(wanted).items() if name != "forget_after"},
        }
        self.programs: list[tuple[int, str, str]] = []
        self.wrong = ""

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def begin(self) -> None:
        """Have it read the plan.

        Raises:
          CannotError: it says that it cannot.
          EndedError: it has ended.
        """
        self._send(json.dumps(self._question))
        answer = self._hear()
        if "cannot" in answer:
            raise CannotError(str(answer["kind"]), str(answer["cannot"]))
        self.programs = [(int(number), str(name), str(line)) for number, name, line in answer["programs"]]
        self.wrong = str(answer["wrong"])

    def fill(self, number: int, begins: Callable[[str], None]) -> Mapping[str, Any]:
        """Have it fill in one program; `begins` is told the key before it is compiled.

        Raises:
          EndedError: it has ended.
        """
        self.asked += 1
        self._send(str(number))
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
        with contextlib.suppress(OSError):
            self._folder.cleanup()

    # -- inside ------------------------------------------------------------------------------------------------

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, which shows when its answer is read
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.endswith(b"\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = self._process.wait()
        how = f"signal {_signal(-code)}" if code < 0 else f"exit code {code}"
        raise EndedError(f"the worker's process ended ({how}): {self._last_words()}", code)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_bytes()[-_LAST_BYTES:].decode(errors="replace").splitlines()
            said = [line for line in lines if line.strip()]
            return " | ".join(said[-_LINES_SHOWN:]) or "it said nothing"
        return "it said nothing"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
