"""Whole programs as benchmark contestants: fresh processes, timed from outside, in a clean environment.

What is timed is what a person waits for: from the start of a Python process to its exit, imports, tracing,
compilation, the program's own work and anything a cache does at exit included.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
RECORDER = ROOT / "examples" / "recorder.py"

# Whatever the caller's shell says about JAX or caches must not leak into a contestant.
UNWANTED_PREFIXES = ("JAX_", "REWARM", "XLA_", "CCACHE_", "SCCACHE_", "TORCH", "TRITON_", "PEER_")
UNWANTED_NAMES = frozenset({"PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"})

Item = TypeVar("Item")


class BenchmarkError(RuntimeError):
    """A run that says nothing about speed: a program failed, or a contestant was not what it claims."""


@dataclass(frozen=True)
class Run:
    """One finished process: what it took, what it printed, and what the recorder wrote down.

    `foreign_cpu_seconds` is the processor time that anything else on the machine took meanwhile: what makes a
    wall time worthless, and is not seen in it.
    """

    seconds: float
    cpu_seconds: float
    foreign_cpu_seconds: float
    output: str
    record: dict[str, Any]

    @property
    def result(self) -> str:
        """The digest on the RESULT line that each benchmark program prints."""
        lines = [line for line in self.output.splitlines() if line.startswith("RESULT ")]
        if len(lines) != 1:
            raise BenchmarkError(f"expected one RESULT line, found {len(lines)} in:\n{self.output}")
        return lines[0].removeprefix("RESULT ")


@dataclass(frozen=True)
class Spread:
    """A median with the smallest and the largest value, and how well the median is known.

    `low` and `high` hold 95 % of the medians of samples drawn again from the values (the bootstrap's percentile
    interval, Efron and Tibshirani, An Introduction to the Bootstrap, 1993).
    """

    median: float
    min: float
    max: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarises at least one value."""
        draw = random.Random(0)
        medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
        return cls(statistics.median(values), min(values), max(values), medians[50], medians[-51])


def paired_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Divides round by round, since a machine's drift between rounds is larger than within one."""
    return [above / below for above, below in zip(numerators, denominators, strict=True)]


def rotated(items: Sequence[Item], by: int) -> list[Item]:
    """Returns the items with another one in front each round, so that no place belongs to one."""
    start = by % len(items)
    return [*items[start:], *items[:start]]


def clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the inherited environment less all that steers JAX, XLA or a cache, plus the settings."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(UNWANTED_PREFIXES) and name not in UNWANTED_NAMES
    }
    return {**inherited, **settings}


def run_program(
    program: Path, settings: Mapping[str, str], arguments: Sequence[str] = (), timeout: float = 900.0
) -> Run:
    """Runs one program in a fresh process under examples/recorder.py and times the process as a whole.

    Dirty pages that an earlier run left are flushed first, so that each run pays for its own writes only.
    """
    with tempfile.TemporaryDirectory(prefix="rewarm-record-") as folder:
        record = Path(folder) / "record.json"
        command = [sys.executable, str(RECORDER), str(record), str(program), *arguments]
        os.sync()
        cpu_before, machine_before = _children_cpu_seconds(), _machine_cpu_seconds()
        start = time.perf_counter()
        output, status = _run_to_end(command, clean_environment(settings), timeout)
        seconds = time.perf_counter() - start
        cpu_seconds = _children_cpu_seconds() - cpu_before
        foreign_cpu_seconds = max(0.0, _machine_cpu_seconds() - machine_before - cpu_seconds)
        if status != 0:
            raise BenchmarkError(f"{program.name} exited with status {status}:\n{output}")
        return Run(seconds, cpu_seconds, foreign_cpu_seconds, output, json.loads(record.read_text(encoding="utf-8")))


def run_command(
    command: Sequence[str], settings: Mapping[str, str], timeout: float, cwd: Path | None = None
) -> tuple[str, int]:
    """Runs a command in a clean environment; returns all that it printed and its exit status, whatever that is.

    Raises BenchmarkError where it does not end.
    """
    return _run_to_end(command, clean_environment(settings), timeout, cwd)


def _run_to_end(
    command: Sequence[str], environment: Mapping[str, str], timeout: float, cwd: Path | None = None
) -> tuple[str, int]:
    """Waits for a command and returns all that it printed, with its exit status.

    The child leads a group of its own, so that one that hangs is ended with all that it started.
    """
    with subprocess.Popen(
        command,
        env=dict(environment),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise BenchmarkError(f"no end after {timeout:.0f} s: {' '.join(command)}") from error
            raise
        return output, process.returncode


def _children_cpu_seconds() -> float:
    """Returns the processor time, user and system, of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _machine_cpu_seconds() -> float:
    """Returns the processor time that all processes of this machine took since it started; 0 where unknown.

    Time stolen by other guests of the same host counts as well.
    """
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """Gives a directory for caches, on the disk that TMPDIR names, and removes it with all its entries."""
    with tempfile.TemporaryDirectory(prefix="rewarm-benchmark-") as folder:
        yield Path(folder)


def directory_state(directory: Path) -> dict[str, int]:
    """Returns each file under the directory with its size: equal before and after: nothing was stored."""
    return {
        str(path.relative_to(directory)): path.stat().st_size for path in sorted(directory.rglob("*")) if path.is_file()
    }


def describe_machine() -> dict[str, Any]:
    """Returns what a reader must know about the machine to judge a figure measured on it."""
    return {
        "cpu": _cpu_name(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    """Returns the processor's name as Linux gives it, or what Python knows elsewhere."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def package_versions(names: Sequence[str]) -> dict[str, str]:
    """Returns the versions of those named packages that are installed for this interpreter."""
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
