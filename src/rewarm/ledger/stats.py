"""The numbers of a process.

Not promised: that they cover more than this process, or programs that were left to JAX's own cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rewarm.ledger.events import ALREADY_STORED

# Less than this, in seconds, is not worth anybody's reading.
_WORTH_A_LINE = 0.1


def _told(seconds: float) -> str:
    """A length of time for people."""
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


@dataclass(frozen=True, slots=True)
class Stats:
    """What rewarm did in this process so far. `requests == hits + misses`, always.

    Attributes:
      requests: programs that JAX wanted compiled while rewarm was on.
      hits: those that were not compiled.
      misses: those that were, whether stored or not.
      stored: entries written.
      hits_from: how many hits came from where: "local", "process", or the place of a remote.
      missed_for: how many misses had which cause: a kind of `explanation.KINDS`, or a component of the key (see
        `Event.cause`).
      not_stored: how many misses were not stored, by reason.
      slow_hits: hits whose fetching and loading took longer than the compilation had.
      dropped: entries removed because that happened again and again.
      quarantined: files put aside because they were not the entry they were named.
      evicted: entries that this process let go since the store was at its bounds.
      errors: times that a store, a loader or a serialiser failed.
      seconds_not_stored: what those took to compile, in seconds, by reason.
      left_to_jax: programs handed to JAX's own code, by reason; they are not among the requests.
      traces: functions that JAX traced, inner ones included.
      traced_again: programs that JAX traced again although nothing differed, and how often: its own cache in memory
        missed, often since a function was made anew (a `jax.jit` or a lambda within a loop). Not a matter of rewarm.
      seconds_saved: compile time that hits spared, less what waiting for, fetching and loading them took.
      seconds_lost: what slow hits took longer than compiling had; `seconds_saved` is less by it already.
      seconds_compiling: time spent compiling misses.
      seconds_overhead: time spent on keys, fetching, storing and explaining.
      seconds_loading: time spent making executables of entries.
      seconds_tracing: time that JAX spent tracing.
      seconds_waiting: time spent waiting for other processes that were compiling the same programs.
      bytes_read: of entries fetched.
      bytes_written: of entries stored.
      jitted: calls of functions of `rewarm.jit` that JAX would have traced, by what became of them: "skipped" (no
        trace), "recorded", "proved" (traced, and as recorded), "traced"; and of the proofs beside the program "proof
        equal", "proof different", "proof void".
      tuned: choices that were made by the tuner: "winner" and "default" of tunable functions, "options" for
        programs that were compiled with a winner's options of XLA.
      loads_ahead: executables that were "read" and "loaded" before they were asked for, and of these the "used".
      remotes: for each remote what came from there and went there: `place`, `state`, `hits`, `misses`, `refused` and
        `failures` by reason, `written`, `bytes_read`, `bytes_written`.
    """

    requests: int = 0
    hits: int = 0
    misses: int = 0
    stored: int = 0
    hits_from: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    missed_for: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    not_stored: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    slow_hits: int = 0
    dropped: int = 0
    quarantined: int = 0
    evicted: int = 0
    errors: int = 0
    seconds_not_stored: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    left_to_jax: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    traces: int = 0
    traced_again: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    seconds_saved: float = 0.0
    seconds_lost: float = 0.0
    seconds_compiling: float = 0.0
    seconds_overhead: float = 0.0
    seconds_loading: float = 0.0
    seconds_tracing: float = 0.0
    seconds_waiting: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    jitted: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    tuned: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    loads_ahead: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    remotes: tuple[Mapping[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in plain.items()}

    def line(self) -> str:
        """One line for people."""
        told = [
            f"{self.requests} requests",
            f"{self.hits} hits",
            f"{self.misses} misses",
            f"{round(self.seconds_saved, 1) + 0.0:.1f} s saved",
            f"{self.seconds_compiling:.1f} s compiling",
            f"{self.stored} stored",
        ]
        if self.not_stored:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self.not_stored.items()))
            told.append(f"{sum(self.not_stored.values())} not stored ({reasons})")
        told.extend(f"{count} {word}" for word, count in self._troubles() if count)
        return ", ".join(told)

    def summary(self) -> str:
        """One line for people that says what was saved, and by what."""
        if not self.requests:
            return "no program was asked for"
        were = "program was" if self.requests == 1 else "programs were"
        found = f"{self.hits} of {self.requests} {were} in the cache"
        if not self.hits:
            kept = f"{self.stored} stored for the next start" if self.stored else "nothing was stored"
            return f"{found}; {_told(self.seconds_compiling)} went into compiling, and {kept}"
        if self.seconds_saved < 0:
            saved = f"loading took {_told(-self.seconds_saved)} longer than compiling had"
        else:
            saved = f"that saved {_told(self.seconds_saved)}"
        rest = f"; {_told(self.seconds_compiling)} went into compiling the others" if self.misses else ""
        return f"{found}, {saved}{rest}"

    def unstored_line(self) -> str | None:
        """One line for people where most of the compile time went into programs that were not stored, else `None`."""
        rows = [row for row in self.seconds_not_stored.items() if row[0] != ALREADY_STORED]
        unstored = sum(seconds for _, seconds in rows)
        if unstored <= self.seconds_compiling / 2 or unstored < _WORTH_A_LINE:
            return None
        rows.sort(key=lambda row: -row[1])
        reasons = "; ".join(f"{seconds:.1f} s in {self.not_stored.get(why, 0)}: {why}" for why, seconds in rows[:4])
        return f"{unstored:.1f} of {self.seconds_compiling:.1f} s of compiling were not stored ({reasons})"

    def _troubles(self) -> list[tuple[str, int]]:
        return [
            ("quarantined", self.quarantined),
            ("errors", self.errors),
            ("left to JAX", sum(self.left_to_jax.values())),
        ]
