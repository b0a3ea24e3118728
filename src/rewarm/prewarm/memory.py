"""How much memory there is for one more worker.

Not promised: that none runs out: what a compile takes is known when it is over. A worker that was killed for it is
reported, and its program is not remembered as failing.
"""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

# What a worker takes before any has told, in bytes: JAX with XLA's compiler for a small train step, as measured
# (CPU 0.3 GB, GPU 0.56 GB for two layers on JAX 0.12), and room for larger ones.
FIRST = {"cpu": 700 << 20, "cuda": 1500 << 20, "tpu": 2500 << 20}


def available() -> float:
    """Bytes that are free for this process: of the machine, and of its control group where that has a limit; infinite
    where nobody says."""
    return min(_machine(Path("/proc/meminfo")), *(_group(*names) for names in _GROUPS))


_GROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"), Path("/sys/fs/cgroup/memory.stat")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.stat"),
    ),
)


def _machine(path: Path) -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    return math.inf


def _group(limit: Path, used: Path, stat: Path) -> float:
    """What a control group leaves; file pages that can go count as free."""
    try:
        bound, taken = float(limit.read_text()), float(used.read_text())  # "max" is no number
    except (OSError, ValueError):
        return math.inf
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in stat.read_text().splitlines():
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                taken -= float(line.split()[1])
                break
    return bound - taken


def resident(pid: int) -> float:
    """What a process has now, in bytes; 0 where it is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return float(line.split()[1]) * 1024
    return 0.0
