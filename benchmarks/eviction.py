"""What a bounded cache saves: rewarm's eviction against least recently used and JAX's rule, on recorded traces.

    python benchmarks/eviction.py [--traces NAME,NAME] [--store NAME] [--json FILE]

Not promised: seconds that somebody else's programs would be spared. The traces are of real programs
(`record_traces.py`), one machine's and small; the replay is a simulation in which a hit saves what compiling its
entry took and costs nothing, and in which all caches hold the same bytes for an entry.

Each trace is replayed at bounds from 5 to 90 % of all the bytes that it ever asks for, with

* LRU: least recently used, which is JAX's own cache with both its thresholds at 0;
* JAX: the same with JAX's default threshold: what compiled in under 1 s is not stored;
* rewarm: the functions of `rewarm.policy`;
* foresight: a rule that knows all later requests, for orientation. It is no proven optimum.

Starts are half an hour apart. `--store NAME` also replays one trace with `LocalStore` on disk, whose files are aged
by as much between two starts, and compares.

Exits with 1 where over all traces together rewarm saves less than LRU or JAX by more than 0.5 % (`month`, which is made
of the others, by itself), or where the store saves less than 90 % of what the simulation says. Where it saves less
than LRU on one trace is told, and is no failure.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from _processes import scratch_directory
from _traces import Entry, Trace, load_all
from rewarm.policy import Bounds, Usage, priority, victims
from rewarm.store import LocalStore

FRACTIONS = (0.05, 0.10, 0.20, 0.30, 0.50, 0.70, 0.90)
JAX_THRESHOLD = 1.0  # seconds: jax_persistent_cache_min_compile_time_secs
BETWEEN_STARTS = 1800.0  # seconds
USE_COUNTS_AFTER = 600.0  # seconds: as the store does, which looks at the age of a file
ROUNDING = 0.005
MIXED = "month"  # made of the others
AGREEMENT = 0.90


class Moment(NamedTuple):
    """When a request is made: its number, from 0, and the seconds since the first start."""

    number: int
    time: float


class Rule(ABC):
    """What a cache keeps: told of every hit and of every entry that is stored, asked who goes.

    Attributes:
      now: the moment of the request; the replay sets it.
      least_seconds: what compiled faster is not stored, as `jax._src.compiler` has it.
    """

    now = Moment(0, 0.0)
    least_seconds = 0.0

    def admits(self, entry: Entry) -> bool:
        """Whether an entry that was just compiled is stored."""
        return entry.seconds >= self.least_seconds

    @abstractmethod
    def used(self, entry: Entry) -> None:
        """A hit."""

    @abstractmethod
    def stored(self, entry: Entry) -> None:
        """The entry is there from now on."""

    @abstractmethod
    def evict(self, wanted: int) -> list[str]:
        """The keys that go so that at least `wanted` bytes are gained; forgotten by the rule."""


class LeastRecentlyUsed(Rule):
    """Who was used longest ago goes first; what compiled faster than `least_seconds` is not stored."""

    def __init__(self, least_seconds: float = 0.0) -> None:
        self.least_seconds = least_seconds
        self._held: dict[str, Entry] = {}  # in the order of use

    def used(self, entry: Entry) -> None:
        """To the end of the line."""
        self._held[entry.key] = self._held.pop(entry.key)

    def stored(self, entry: Entry) -> None:
        """To the end of the line."""
        self._held[entry.key] = entry

    def evict(self, wanted: int) -> list[str]:
        """From the head of the line."""
        gone = []
        while wanted > 0 and self._held:
            gone.append(next(iter(self._held)))
            wanted -= self._held.pop(gone[-1]).size
        return gone


class Worth(Rule):
    """rewarm's rule, through the store's own functions; what the store keeps beside them is kept here."""

    def __init__(self) -> None:
        self._known: dict[str, Usage] = {}
        self._noted: dict[str, float] = {}

    def used(self, entry: Entry) -> None:
        """Counts, unless the last one that counted is less than ten minutes old."""
        if self.now.time - self._noted[entry.key] >= USE_COUNTS_AFTER:
            self._note(entry, self._known[entry.key].uses + 1)

    def stored(self, entry: Entry) -> None:
        """The first use."""
        self._note(entry, 1)

    def _note(self, entry: Entry, uses: int) -> None:
        worth = priority(self.now.time, entry.seconds, uses, entry.size)
        self._known[entry.key] = Usage(entry.key, entry.size, entry.seconds, uses, worth)
        self._noted[entry.key] = self.now.time

    def evict(self, wanted: int) -> list[str]:
        """Those that `policy.victims` names."""
        gone = victims(self._known.values(), wanted, 0)
        for one in gone:
            del self._known[one.key], self._noted[one.key]
        return [one.key for one in gone]


class Foresight(Rule):
    """Knows all requests: who saves least for each byte and each request until its next use goes first.

    After L. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5, 1966,
    whose rule is for pages of one size and one cost.
    """

    def __init__(self, trace: Trace) -> None:
        self._next: dict[str, list[int]] = {}
        for number, entry, _ in requests(trace):
            self._next.setdefault(entry.key, []).append(number)
        for numbers in self._next.values():
            numbers.reverse()
        self._held: dict[str, Entry] = {}

    def admits(self, entry: Entry) -> bool:
        """What is never asked for again is not stored."""
        return len(self._next[entry.key]) > 1

    def used(self, entry: Entry) -> None:
        """Still held."""
        self._held[entry.key] = entry

    def stored(self, entry: Entry) -> None:
        """Held from now on."""
        self._held[entry.key] = entry

    def evict(self, wanted: int) -> list[str]:
        """Those who save least, the least first."""
        gone = []
        for entry in sorted(self._held.values(), key=self._density):
            if wanted <= 0:
                break
            gone.append(entry.key)
            wanted -= self._held.pop(entry.key).size
        return gone

    def _density(self, entry: Entry) -> float:
        later = self._next[entry.key]
        while later and later[-1] <= self.now.number:
            later.pop()
        return entry.seconds / entry.size / (later[-1] - self.now.number) if later else 0.0


@dataclass(frozen=True)
class Outcome:
    """What one replay came to.

    Attributes:
      saved: seconds of compiling that hits made unnecessary.
      hits: how many requests were hits.
      requests: how many there were.
    """

    saved: float
    hits: int
    requests: int

    @property
    def hit_ratio(self) -> float:
        """Hits of all requests."""
        return self.hits / self.requests


def requests(trace: Trace) -> Iterator[tuple[int, Entry, float]]:
    """Every request of a trace: its number, the entry, and the seconds since the first start."""
    number = 0
    for place, start in enumerate(trace.starts):
        for entry in start.asks:
            yield number, entry, place * BETWEEN_STARTS
            number += 1


def replay(trace: Trace, rule: Rule, bound: int) -> Outcome:
    """Replays a trace with an empty cache of at most `bound` bytes, for which room is made before an entry comes."""
    held: dict[str, int] = {}
    size, saved, hits = 0, 0.0, 0
    for number, entry, time in requests(trace):
        rule.now = Moment(number, time)
        if entry.key in held:
            rule.used(entry)
            saved, hits = saved + entry.seconds, hits + 1
        elif entry.size <= bound and rule.admits(entry):
            for key in rule.evict(size + entry.size - bound) if size + entry.size > bound else ():
                size -= held.pop(key)
            rule.stored(entry)
            held[entry.key] = entry.size
            size += entry.size
    return Outcome(saved, hits, trace.requests)


def rules(trace: Trace) -> dict[str, Rule]:
    """The contestants, by their names, each new."""
    return {
        "LRU": LeastRecentlyUsed(),
        "JAX": LeastRecentlyUsed(JAX_THRESHOLD),
        "rewarm": Worth(),
        "foresight": Foresight(trace),
    }


def bound_of(trace: Trace, fraction: float) -> int:
    """Bytes of this part of all that the trace ever asks for."""
    return int(trace.footprint * fraction)


def compare(trace: Trace) -> dict[float, dict[str, Outcome]]:
    """All contestants at all bounds."""
    return {
        fraction: {name: replay(trace, rule, bound_of(trace, fraction)) for name, rule in rules(trace).items()}
        for fraction in FRACTIONS
    }


def loses(by: dict[str, Outcome], other: str = "LRU") -> bool:
    """Whether rewarm saves less than another beyond rounding, at one bound."""
    return by["rewarm"].saved < by[other].saved * (1 - ROUNDING)


def losses(name: str, outcomes: dict[float, dict[str, Outcome]], others: Sequence[str] = ("LRU", "JAX")) -> list[str]:
    """Where rewarm saves less than the others, a line each."""
    return [
        f"{name} at {fraction:.0%}: rewarm saves {by['rewarm'].saved:.1f} s, {other} {by[other].saved:.1f} s"
        for fraction, by in outcomes.items()
        for other in others
        if loses(by, other)
    ]


def together(compared: dict[str, dict[float, dict[str, Outcome]]]) -> dict[float, dict[str, Outcome]]:
    """The sums over several traces."""
    tables = list(compared.values())
    return {
        fraction: {
            name: Outcome(*(sum(parts) for parts in zip(*(_parts(one[fraction][name]) for one in tables), strict=True)))
            for name in by
        }
        for fraction, by in tables[0].items()
    }


def _parts(one: Outcome) -> tuple[float, int, int]:
    return one.saved, one.hits, one.requests


# ---------------------------------------------------------------------------------------------------------------
# The store itself


def replay_in_store(trace: Trace, root: Path, bound: int) -> Outcome:
    """Replays a trace with a store on disk, whose entries are as large as the trace says and hold nothing else."""
    store = LocalStore(root, bounds=Bounds(max_size=bound))
    store.prepare()
    saved, hits = 0.0, 0
    for start in trace.starts:
        for entry in start.asks:
            key = hashlib.sha256(entry.key.encode()).hexdigest()
            if store.get(key) is not None:
                saved, hits = saved + entry.seconds, hits + 1
            elif entry.size <= bound:
                store.put(key, bytes(entry.size), seconds=entry.seconds)
        _age(root)
        list(store.collect(Bounds()))  # mtimes never go back by themselves: the store's table must hear of it
    return Outcome(saved, hits, trace.requests)


def _age(root: Path) -> None:
    """Makes all entries older by the time between two starts: a hit renews, and counts, what is old enough."""
    for path in root.glob("??/" + "?" * 64):
        status = path.stat()
        os.utime(path, (status.st_atime, status.st_mtime - BETWEEN_STARTS))


def compare_store(trace: Trace) -> list[tuple[float, Outcome, Outcome]]:
    """The simulation and the store at each bound."""
    pairs = []
    for fraction in FRACTIONS:
        bound = bound_of(trace, fraction)
        with scratch_directory() as scratch:
            pairs.append((fraction, replay(trace, Worth(), bound), replay_in_store(trace, scratch, bound)))
    return pairs


# ---------------------------------------------------------------------------------------------------------------
# Telling


def saveable(trace: Trace) -> float:
    """Seconds that a cache without a bound saves."""
    first = sum(entry.seconds for entry in trace.entries.values())
    return sum(entry.seconds for _, entry, _ in requests(trace)) - first


def headline(trace: Trace) -> str:
    """What a trace is, as Markdown."""
    return (
        f"**{trace.name}**: {trace.about['what']} {len(trace.starts)} starts, {trace.requests} requests for "
        f"{len(trace.entries)} entries of {trace.footprint / (1 << 20):.1f} MiB; without a bound "
        f"{saveable(trace):.0f} s are saved."
    )


def table(title: str, outcomes: dict[float, dict[str, Outcome]]) -> str:
    """One trace, or several together, as Markdown."""
    names = list(next(iter(outcomes.values())))
    lines = [
        title,
        "",
        "| bound | " + " | ".join(names) + " |",
        "| ---: |" + " ---: |" * len(names),
    ]
    for fraction, by in outcomes.items():
        cells = (f"{by[name].saved:.1f} s ({by[name].hit_ratio:.0%})" for name in names)
        lines.append(f"| {fraction:.0%} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def store_table(trace: Trace, pairs: Sequence[tuple[float, Outcome, Outcome]]) -> str:
    """The simulation beside the store, as Markdown."""
    lines = [f"**{trace.name}**, simulated and with `LocalStore` on disk.", "", "| bound | simulated | on disk |"]
    lines.append("| ---: | ---: | ---: |")
    for fraction, simulated, real in pairs:
        cells = (f"{one.saved:.1f} s ({one.hit_ratio:.0%})" for one in (simulated, real))
        lines.append(f"| {fraction:.0%} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def disagreements(pairs: Sequence[tuple[float, Outcome, Outcome]]) -> list[str]:
    """Where the store saves clearly less than the simulation says, a line each."""
    return [
        f"the store at {fraction:.0%} saves {real.saved:.1f} s, the simulation {simulated.saved:.1f} s"
        for fraction, simulated, real in pairs
        if real.saved < simulated.saved * AGREEMENT
    ]


def main() -> int:
    """Compares, prints, and says whether the claim holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", help="names, divided by commas; default: all")
    parser.add_argument("--store", metavar="NAME", help="replay this trace with a store on disk too")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    wanted = arguments.traces.split(",") if arguments.traces else None
    traces = load_all()
    failures: list[str] = []
    compared: dict[str, dict[float, dict[str, Outcome]]] = {}
    for trace in traces:
        if wanted is None or trace.name in wanted:
            compared[trace.name] = compare(trace)
            print(table(headline(trace), compared[trace.name]), end="\n\n", flush=True)
        if trace.name == arguments.store:
            pairs = compare_store(trace)
            print(store_table(trace, pairs), end="\n\n", flush=True)
            failures += disagreements(pairs)
    if arguments.json:
        told: dict[str, Any] = {
            name: {fraction: {rule: vars(one) for rule, one in by.items()} for fraction, by in outcomes.items()}
            for name, outcomes in compared.items()
        }
        arguments.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    print("\n".join(line for name in compared for line in losses(name, compared[name], ["LRU"])), end="\n\n")
    failures += _sums(compared)
    print("\n".join(failures) or "over all traces rewarm saves most, at every bound", file=sys.stderr)
    return 1 if failures else 0


def _sums(compared: dict[str, dict[float, dict[str, Outcome]]]) -> list[str]:
    """Tell the sum over the traces that are recorded by themselves; where it is less than the others' comes back."""
    apart = {name: compared[name] for name in compared if name == MIXED}
    failures = [line for name, outcomes in apart.items() for line in losses(name, outcomes)]
    rest = {name: compared[name] for name in compared if name != MIXED}
    if len(rest) > 1:
        sums = together(rest)
        print(table(f"**Together**: {', '.join(rest)}.", sums), end="\n\n")
        failures += losses("together", sums)
    return failures


if __name__ == "__main__":
    raise SystemExit(main())
