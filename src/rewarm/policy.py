"""What is worth storing and what goes first: pure functions over frozen records. They decide and touch nothing.

Not promised: that what is admitted stays, or that what is worth most to one user is worth most to another. Both of
JAX's thresholds must hold for an entry to be written.

Eviction ranks by what an entry is worth, `sqrt(uses) * seconds / MiB` where `seconds` are those that a hit spares.
That is the worth of GreedyDual-Size-Frequency, with less weight on frequency: L. Cherkasova, "Improving WWW Proxies
Performance with Greedy-Dual-Size-Frequency Caching Policy", Hewlett-Packard Laboratories, HPL-98-69 (R.1), 1998. It
ages as in LRFU: D. Lee and others, "LRFU: a spectrum of policies that subsumes the least recently used and least
frequently used policies", IEEE Transactions on Computers 50, 2001: it halves with every twelve hours that the entry is
not used. So what is no longer wanted goes in the end, however dear it was.

GreedyDual's own ageing, a floor that rises with every eviction, was tried first (`docs/eviction.md`): one start of a
large program moves that floor so far that entries go which the same start is about to ask for. Half a day is long
beside a start, and short beside the life of an experiment. The square root, since programs that were started often
before they were edited are not asked for again: when an entry was last used says more of tomorrow than how often.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

TOO_QUICK = "compiled faster than min_compile_seconds"
TOO_SMALL = "smaller than min_entry_bytes"
SWITCHED_OFF = "max_size is 0"
TOO_LARGE = "larger than max_size"
LOADS_SLOWER = "loading it is slower than compiling it on this host"

_MIB = float(1 << 20)

# The worth of an entry halves in so many seconds without a use.
_HALVES_IN = 12 * 3600.0

# An entry whose seconds are not known is taken for one that is quick to make: of the two errors the cheaper.
LEAST_SECONDS = 1e-3

# What compiling costs for each byte of the program. 720 programs on CPU (the three of `benchmarks/programs`, JAX 0.10
# and 0.12) took from 17 to 2,000 microseconds, half of them some 100 or more; GPUs and TPUs take more.
_SECONDS_PER_BYTE = 100e-6
_MOST_SECONDS_PER_BYTE = 2000e-6

# An entry is seldom more times as large as its program.
_ENTRY_BYTES_PER_BYTE = 10

# One slow load may be a cold disk or a busy machine; two are a habit.
_SLOW_LOADS = 2


class Thresholds(NamedTuple):
    """The user's limits on what is stored.

    Attributes:
      min_compile_seconds: an entry must have taken at least this long to compile.
      min_entry_bytes: an entry must be at least this large on disk; JAX's -1 ("no restriction") and 0 ("the cache
        may choose") both admit every size, since a local directory has no size it does better without.
      max_size: the whole store's bound in bytes; less than 0 is none. One entry above it can never fit.
      costs: whether entries that load slower than they compile are left out; no where the user has set a threshold
        of time, whose word counts.
    """

    min_compile_seconds: float
    min_entry_bytes: int
    max_size: int = -1
    costs: bool = True


def refuse_by_time(compile_seconds: float, thresholds: Thresholds) -> str | None:
    """Why an executable that took `compile_seconds` is not stored, or `None`. JAX's rule: `<` refuses."""
    return TOO_QUICK if compile_seconds < thresholds.min_compile_seconds else None


def refuse_by_size(entry_bytes: int, thresholds: Thresholds) -> str | None:
    """Why an entry of `entry_bytes` is not stored, or `None`."""
    if entry_bytes < thresholds.min_entry_bytes:
        return TOO_SMALL
    if 0 <= thresholds.max_size < entry_bytes:
        return TOO_LARGE
    return None


def is_slow(compile_seconds: float, load_seconds: float) -> bool:
    """Whether a hit that took `load_seconds` to fetch and load was a loss."""
    return load_seconds > compile_seconds


def is_a_loss(slow_loads: int) -> bool:
    """Whether an entry that was slower to load than to compile this many times is to be dropped."""
    return slow_loads >= _SLOW_LOADS


def refuse_by_cost(compile_seconds: float, slow_loads: int, load_seconds: float) -> str | None:
    """Why an executable is not stored whose earlier entry was slow to load, or `None`.

    Args:
      compile_seconds: what compiling it took this time.
      slow_loads: how often loading it was slower than compiling it, on this host.
      load_seconds: the quickest of those loads.
    """
    known_loss = is_a_loss(slow_loads) and is_slow(compile_seconds, load_seconds)
    return LOADS_SLOWER if known_loss else None


def is_worth_a_lease(program_bytes: int, round_trip: float) -> bool:
    """Whether compiling a program is likely to take five times as long as asking the other hosts, or more.

    Args:
      program_bytes: its size as bytecode.
      round_trip: what asking takes, in seconds: a request to the remote, which comes before the compilation.
    """
    return program_bytes * _SECONDS_PER_BYTE >= 5 * round_trip


def is_likely_kept(program_bytes: int, thresholds: Thresholds) -> bool:
    """Whether what compiling a program of so many bytes makes is likely to be stored: what others may count on."""
    return _may_be_kept(program_bytes * _SECONDS_PER_BYTE, program_bytes, thresholds)


def may_be_kept(program_bytes: int, thresholds: Thresholds) -> bool:
    """Whether it may be stored at all, even if compiling it takes unusually long."""
    return _may_be_kept(program_bytes * _MOST_SECONDS_PER_BYTE, program_bytes, thresholds)


def _may_be_kept(seconds: float, program_bytes: int, thresholds: Thresholds) -> bool:
    """`program_bytes` of 0: nobody knows."""
    large = program_bytes * _ENTRY_BYTES_PER_BYTE >= thresholds.min_entry_bytes
    return program_bytes == 0 or (refuse_by_time(seconds, thresholds) is None and large)


class Bounds(NamedTuple):
    """How much a store may hold; `None` is no bound.

    Attributes:
      max_size: bytes of all entries.
      max_entries: how many entries.
      max_age: seconds since an entry was last used.
    """

    max_size: int | None = None
    max_entries: int | None = None
    max_age: float | None = None

    def exceeded(self, size: int, entries: int) -> bool:
        """Whether a store of so many bytes and entries holds too much."""
        too_large = self.max_size is not None and size > self.max_size
        return too_large or (self.max_entries is not None and entries > self.max_entries)

    def expired(self, age: float) -> bool:
        """Whether an entry that was last used `age` seconds ago is too old."""
        return self.max_age is not None and age > self.max_age


class Usage(NamedTuple):
    """What eviction knows of one entry.

    Attributes:
      key: 64 hexadecimal digits.
      size: bytes.
      seconds: what a hit spares.
      uses: how often it was written or read; reads within ten minutes count once.
      priority: see above; the lowest goes first.
    """

    key: str
    size: int
    seconds: float
    uses: int
    priority: float


def priority(used: float, seconds: float, uses: int, size: int) -> float:
    """The priority of an entry that was last used at `used`, in seconds since the epoch.

    It is the binary logarithm of the worth, plus one for every twelve hours of the clock: two entries age alike, so
    their order never changes while neither is used, and a priority can be kept without looking at the clock again.
    """
    worth = math.sqrt(max(1, uses)) * max(seconds, LEAST_SECONDS) * _MIB / max(size, 1)
    return used / _HALVES_IN + math.log2(worth)


def victims(known: Iterable[Usage], bytes_wanted: int, entries_wanted: int) -> list[Usage]:
    """Which entries go, the first first, so that at least so many bytes and entries are gained; as many as there are.

    Among equals the larger goes first, since fewer are lost then.
    """
    chosen: list[Usage] = []
    for one in sorted(known, key=lambda one: (one.priority, -one.size, one.key)):
        if bytes_wanted <= 0 and entries_wanted <= 0:
            break
        chosen.append(one)
        bytes_wanted -= one.size
        entries_wanted -= 1
    return chosen
