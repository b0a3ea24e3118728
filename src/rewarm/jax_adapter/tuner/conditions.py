"""What was going on on this machine while something was measured: clock, load, frequency, and who else computed.

Not promised: anything where there is no /proc (then little is said), nor what a hypervisor hides. Figures are of the
whole machine as this process sees it, in a container perhaps more than it may use.

Sources: proc(5) for /proc/stat (jiffies of all processors: user, nice, system, idle, iowait, irq, softirq, steal) and
/proc/loadavg; the kernel's cpufreq documentation for scaling_cur_freq (kHz).
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import NamedTuple


class Moment(NamedTuple):
    """Counters at one moment.

    Attributes:
      wall: seconds of a monotonic clock.
      busy: processor seconds of everybody, without those that a hypervisor took.
      steal: processor seconds that a hypervisor gave to others.
      own: processor seconds of this process and its ended children.
    """

    wall: float
    busy: float
    steal: float
    own: float


@functools.cache
def clock_resolution() -> float:
    """The smallest step of the clock that times calls, measured, in seconds."""
    steps = []
    for _ in range(200):
        before = time.perf_counter()
        while (after := time.perf_counter()) == before:
            pass
        steps.append(after - before)
    return max(min(steps), time.get_clock_info("perf_counter").resolution)


def moment() -> Moment:
    """The counters now."""
    busy, steal = _jiffies()
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return Moment(time.monotonic(), busy, steal, own)


def environment(begin: Moment, end: Moment, children: float) -> dict[str, int | float | bool | str | None]:
    """What to write down of the time between two moments.

    Args:
      begin, end: the moments.
      children: processor seconds of children that had not ended, or that nobody waited for.
    """
    wall = max(end.wall - begin.wall, 1e-9)
    count = processors()
    others = max(0.0, (end.busy - begin.busy) - (end.own - begin.own) - children) if end.busy else None
    return {
        "seconds": round(wall, 3),
        "processors": count,
        "others": None if others is None else round(min(1.0, others / wall / count), 4),
        "steal": round(min(1.0, (end.steal - begin.steal) / wall / count), 4) if end.busy else None,
        "load": load(),
        "megahertz": frequency(),
        "clock": clock_resolution(),
    }


def processors() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float | None:
    """The load average of the last minute."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def frequency() -> int | None:
    """The mean frequency of the processors now, in MHz; `None` where nobody says."""
    found = [int(text) for path in _FREQUENCIES.glob("cpu[0-9]*/cpufreq/scaling_cur_freq") if (text := _read(path))]
    return round(sum(found) / len(found) / 1000) if found else None


def memory_at_hand() -> int | None:
    """Bytes that may still be taken: what the kernel has available, and what the control group leaves."""
    found = [_available(), *(_left_in_group(limit, use) for limit, use in _GROUPS)]
    known = [one for one in found if one is not None]
    return min(known) if known else None


def resident(pid: int) -> int:
    """Bytes of memory that a process has of its own; 0 where nobody says."""
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def processor_seconds(pid: int) -> float:
    """Processor seconds of a process that runs; 0.0 where nobody says."""
    rest = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (int(rest[11]) + int(rest[12])) / _PER_SECOND if len(rest) > 12 else 0.0


_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_FREQUENCIES = Path("/sys/devices/system/cpu")
_GROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _jiffies() -> tuple[float, float]:
    row = _read(Path("/proc/stat")).partition("\n")[0].split()
    if len(row) < 9:
        return 0.0, 0.0
    user, nice, system, _, _, irq, soft, steal = (int(one) / _PER_SECOND for one in row[1:9])
    return user + nice + system + irq + soft, steal


def _available() -> int | None:
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def _left_in_group(limit: Path, use: Path) -> int | None:
    most, used = _read(limit), _read(use)
    return max(0, int(most) - int(used)) if most.isdecimal() and used.isdecimal() else None
