"""Where candidates run: a child process that may die, or, for a function without a name, this process.

Not promised: that a child can be had; `NotStartedError` says why not. In this process nobody is saved from a candidate
that crashes or hangs.

A child is waited for phase by phase: it says what it is about to do with which candidate, and has so many seconds for
that. What it takes of memory is looked at meanwhile. One that does not come back, or takes too much, is killed, and
what it said last tells whose fault it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple, Protocol

from rewarm.errors import RewarmError
from rewarm.jax_adapter.tuner import conditions
from rewarm.jax_adapter.tuner.bench import Bench, Prepared
from rewarm.jax_adapter.tuner.candidate_child import is_memory, words_of
from rewarm.jax_adapter.tuner.loading import Spec
from rewarm.tunables.records import Outcome

_LOOK = 0.05
_TAIL = 2000
_AT_ONCE = 1 << 16


class NotStartedError(RewarmError, RuntimeError):
    """No child can run this function; the message says why."""


class FailedError(Exception):
    """A candidate has failed.

    Attributes:
      outcome: one of `tunables.records.Outcome`.
      reason: in words.
      number: of the candidate, as far as that is known.
      died: whether the process is gone, with all that was prepared in it.
    """

    def __init__(self, outcome: Outcome, reason: str, number: int | None = None, *, died: bool = False) -> None:
        super().__init__(outcome, reason)
        self.outcome = outcome
        self.reason = reason
        self.number = number
        self.died = died


class Patience(NamedTuple):
    """Seconds that one step may take.

    Attributes:
      start: until the function is there.
      compile: of one candidate.
      run: of one call, and of one sample.
    """

    start: float = 180.0
    compile: float = 300.0
    run: float = 20.0


class Worker(Protocol):
    """Runs candidates."""

    isolated: bool

    def prepare(self, number: int, choice: Any, calls: int = 0) -> Prepared:
        """See `Bench.prepare`. Raises FailedError."""

    def rounds(self, orders: Sequence[Sequence[tuple[int, int]]]) -> list[list[float]]:
        """Several rounds, see `Bench.round`. Raises FailedError."""

    def drop(self, number: int) -> None:
        """See `Bench.drop`. Raises FailedError."""

    def processor_seconds(self) -> float:
        """What it has taken of processors so far, beside this process."""

    def close(self) -> None:
        """End it."""


class Here:
    """Candidates in this process."""

    isolated = False

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def prepare(self, number: int, choice: Any, calls: int = 0) -> Prepared:
        """See `Worker`."""
        try:
            return self._bench.prepare(number, choice, calls)
        except Exception as error:
            raise _failed(error, number) from error

    def rounds(self, orders: Sequence[Sequence[tuple[int, int]]]) -> list[list[float]]:
        """See `Worker`."""
        try:
            return [self._bench.round(order) for order in orders]
        except Exception as error:
            raise _failed(error, None) from error

    def drop(self, number: int) -> None:
        """See `Worker`."""
        self._bench.drop(number)

    def processor_seconds(self) -> float:
        """See `Worker`."""
        return 0.0

    def close(self) -> None:
        """See `Worker`."""


def _failed(error: Exception, number: int | None) -> FailedError:
    return FailedError(Outcome.NO_MEMORY if is_memory(error) else Outcome.INFEASIBLE, words_of(error), number)


class Child:
    """Candidates in a child.

    Args:
      spec: what it is to run.
      environment: its variables.
      patience: seconds for each step.
      nice: by how much it stands back for others.

    Raises:
      NotStartedError: it cannot run the function.
    """

    isolated = True

    def __init__(self, spec: Spec, environment: Mapping[str, str], patience: Patience, nice: int = 0) -> None:
        self.patience = patience
        self._memory = spec.memory
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the child
        self._ended_with = 0.0
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rewarm.jax_adapter.tuner.candidate_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the program
        )
        if nice:
            with contextlib.suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, nice)
        self._line = b""
        self.begin(spec)

    def begin(self, spec: Spec) -> None:
        """Have it load the function.

        Raises:
          NotStartedError: it cannot.
        """
        try:
            self._send(tuple(spec))
            self._wait(patience=self.patience.start)
        except FailedError as error:
            self.close()
            raise NotStartedError(error.reason) from error

    def send_compile(self, choice: bytes) -> None:
        """Have it compile a candidate, and do not wait."""
        with contextlib.suppress(FailedError):
            self._send({"compile": choice})

    def is_done(self) -> bool:
        """Whether it has answered, or died; never waits."""
        ready, _, _ = select.select([_there(self._process.stdout)], [], [], 0)
        return bool(ready)

    def wait(self) -> None:
        """Wait for its answer. Raises FailedError."""
        self._wait()

    def prepare(self, number: int, choice: Any, calls: int = 0) -> Prepared:
        """See `Worker`."""
        self._send({"prepare": number, "choice": pickle.dumps(choice, protocol=5), "calls": calls})
        return Prepared(**self._wait(number))

    def rounds(self, orders: Sequence[Sequence[tuple[int, int]]]) -> list[list[float]]:
        """See `Worker`."""
        self._send({"rounds": [[list(one) for one in order] for order in orders]})
        found: list[list[float]] = self._wait()["rounds"]
        return found

    def drop(self, number: int) -> None:
        """See `Worker`."""
        self._send({"drop": number})
        self._wait(number)

    def processor_seconds(self) -> float:
        """See `Worker`."""
        return self._ended_with or conditions.processor_seconds(self._process.pid)

    def close(self) -> None:
        """End it, and wait until it has ended."""
        if self._process.poll() is None:
            self._ended_with = conditions.processor_seconds(self._process.pid)
        with contextlib.suppress(OSError):
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                _there(stream).close()
        self._process.wait()
        self._errors.close()

    # -- the pipe ----------------------------------------------------------------------------------------------

    def _send(self, asked: Any) -> None:
        data = pickle.dumps(asked, protocol=5)
        view = memoryview(struct.pack("<I", len(data)) + data)
        try:
            while view:
                view = view[_there(self._process.stdin).write(view) or 0 :]
        except OSError as error:
            raise self._died("", None) from error

    def _wait(self, number: int | None = None, patience: float | None = None) -> Any:
        """The answer; each line that says what is about to happen gives new time."""
        at, seconds = "", patience or self.patience.compile
        until = time.monotonic() + seconds
        while True:
            line = self._read_line(until, at, number)
            told = json.loads(line)
            if "at" not in told:
                break
            at = str(told["at"])
            seconds = patience or self._seconds(at)
            until = time.monotonic() + seconds
        if "error" in told:
            outcome = Outcome.NO_MEMORY if told["memory"] else Outcome.INFEASIBLE
            raise FailedError(outcome, str(told["error"]), number_of(at, number))
        return told["ok"]

    def _seconds(self, at: str) -> float:
        return self.patience.compile if at.startswith(("compile", "start")) else self.patience.run

    def _read_line(self, until: float, at: str, number: int | None) -> bytes:
        answers = _there(self._process.stdout)
        while b"\n" not in self._line:
            left = until - time.monotonic()
            if left <= 0:
                raise self._killed(Outcome.HUNG, f"it does not come back from {phase(at)}", at, number)
            if self._memory and conditions.resident(self._process.pid) > self._memory:
                said = f"it takes more than {self._memory >> 20:,} MiB of memory in {phase(at)}"
                raise self._killed(Outcome.NO_MEMORY, said, at, number)
            ready, _, _ = select.select([answers], [], [], min(left, _LOOK))
            if ready:
                more = answers.read(_AT_ONCE)
                if not more:
                    raise self._died(at, number)
                self._line += more
        line, _, self._line = self._line.partition(b"\n")
        return line

    def _killed(self, outcome: Outcome, reason: str, at: str, number: int | None) -> FailedError:
        self.close()
        return FailedError(outcome, reason, number_of(at, number), died=True)

    def _died(self, at: str, number: int | None) -> FailedError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        code = self._process.poll()
        tail = self._tail()
        self.close()
        by = _signal(code)
        # What the kernel kills a process with that takes the last of the memory.
        outcome = Outcome.NO_MEMORY if by == "SIGKILL" or "bad_alloc" in tail else Outcome.CRASHED
        how = f"with {by}" if by else f"with exit code {code}"
        said = f"its process ended {how} in {phase(at)}" + (f": {tail}" if tail else "")
        return FailedError(outcome, said, number_of(at, number), died=True)

    def _tail(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _TAIL))
            lines = [line.strip() for line in self._errors.read().decode("utf-8", "replace").splitlines()]
            found = [line for line in lines if line]
            return found[-1][:300] if found else ""
        return ""


def number_of(at: str, otherwise: int | None) -> int | None:
    """The candidate that a phase is of."""
    last = at.rpartition(" ")[2]
    return int(last) if last.isdecimal() else otherwise


def phase(at: str) -> str:
    """A phase in words."""
    return {"compile": "compiling", "run": "its first call", "check": "a call on other input", "warm": "warming up",
        "time": "a timed call"}.get(at.partition(" ")[0], "starting")  # fmt: skip


def _signal(code: int | None) -> str:
    if code is None or code >= 0:
        return ""
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def _there(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
