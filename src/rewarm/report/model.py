"""What a report says, as plain frozen records: the one form that all writers are given.

Not promised: that a later version has no more fields. `SCHEMA` changes when one goes or changes its meaning;
`schema.json` beside this file describes the JSON.

Times are seconds since the epoch, lengths of time are seconds, sizes are bytes, unless a name says otherwise. A lane is
one process of one start, which is a rank where the start was a job of several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA = "rewarm-report 1"

# The steps of a request, in the order in which they are drawn, with a few words for people.
STEPS = {
    "trace": "JAX traces the function",
    "lower": "JAX lowers the trace to a program",
    "key": "building the key",
    "fetch": "reading the entry and checking it",
    "load": "making the entry an executable",
    "compile": "compiling",
    "store": "serialising, packing and writing",
    "explain": "finding out why it missed",
    "wait": "waiting for another process that compiles it",
    "ahead_read": "reading the entry ahead, in a thread",
    "ahead_load": "loading the entry ahead, in a thread",
}


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the requests of a lane, a start, or a report.

    Attributes:
      requests: hits and misses.
      hits: what was not compiled.
      misses: what was.
      stored: entries written.
      seconds_saved: compile time that hits spared, less what waiting, fetching and loading took.
      seconds_cold: what compiling all of it took or had taken when the entries were made.
      seconds_compiling: spent on misses.
      seconds_loading: spent on fetching and loading in the program's thread.
      seconds_overhead: spent on keys, storing, explaining and waiting.
      bytes_read: of entries.
      bytes_written: of entries.
    """

    requests: int = 0
    hits: int = 0
    misses: int = 0
    stored: int = 0
    seconds_saved: float = 0.0
    seconds_cold: float = 0.0
    seconds_compiling: float = 0.0
    seconds_loading: float = 0.0
    seconds_overhead: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One process of one start.

    Attributes:
      start: the index of its start.
      rank: 0 where it was the only one.
      run: the id of its run.
      host: the name of its machine.
      pid: of the process.
      state: "ended", "running" or "unfinished".
      began: when its first step began, in seconds after its start began.
      seconds: from there to the end of its last step.
      totals: over its requests.
      lost: events that were not written.
      damaged: lines that are no records.
      truncated: whether events are missing, since there were more than a run keeps.
      stats: the numbers at the end of the process; `None` where it left none.
    """

    start: int
    rank: int
    run: str
    host: str
    pid: int
    state: str
    began: float
    seconds: float
    totals: Totals
    lost: int
    damaged: int
    truncated: bool
    stats: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class StartInfo:
    """One start of a program, of one process or of a job of several.

    Attributes:
      id: the id of the run of its first rank, which `--run` and `--against` take.
      program: what was started, in words.
      began: when its first step began.
      seconds: from there to the end of its last step.
      ranks: how many processes the job had, those without a run here too.
      lanes: how many have a run here.
      versions: of JAX and of rewarm.
      totals: over all its lanes.
    """

    id: str
    program: str
    began: float
    seconds: float
    ranks: int
    lanes: int
    versions: Mapping[str, str]
    totals: Totals


@dataclass(frozen=True, slots=True)
class Program:
    """All requests for one program under one key.

    Attributes:
      program: the module's name.
      key: 64 hexadecimal digits; "" for one without a key.
      lanes: in how many it was asked for.
      hits: requests that were served.
      misses: requests that were compiled.
      tier: where the last hit came from; "" for none.
      ahead: hits that were loaded ahead.
      seconds: the sums of each step over all lanes, those that were taken.
      longest: the longest that one request took from end to end, tracing included.
      seconds_saved: over all hits.
      bytes: of its entry, as far as it was read or written.
      reason: why the last miss was one; "".
      not_stored: why it was not stored; "".
      options: that a winner of the tuner added; "".
      miss: the index in `misses`; `None`.
    """

    program: str
    key: str
    lanes: int
    hits: int
    misses: int
    tier: str
    ahead: int
    seconds: Mapping[str, float]
    longest: float
    seconds_saved: float
    bytes: int
    reason: str
    not_stored: str
    options: str
    miss: int | None


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a program was compiled, once for all lanes in which it was for the same reason.

    Attributes:
      program, key: as in `Program`.
      times: how often.
      seconds_compiling: over all of them.
      stored: whether one of them wrote the entry.
      not_stored: why none did; "".
      reason: what the cache found.
      summary: the explanation in one line; "" where there is none.
      nearest: the key that it was compared with; "".
      changes: {"component", "item", "before", "after"}.
      findings: {"kind", "text"}.
    """

    program: str
    key: str
    times: int
    seconds_compiling: float
    stored: bool
    not_stored: str
    reason: str
    summary: str
    nearest: str
    changes: tuple[Mapping[str, str], ...]
    findings: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class NotStored:
    """Compilations whose results were not kept, by reason."""

    reason: str
    times: int
    programs: int
    seconds_compiling: float


@dataclass(frozen=True, slots=True)
class Spans:
    """The steps of one lane: column by column, in the order in which they began.

    Attributes:
      program: indices in `programs`.
      step: indices in `steps`.
      at: when they began, in microseconds after the start began.
      took: microseconds.
    """

    program: list[int]
    step: list[int]
    at: list[int]
    took: list[int]


@dataclass(frozen=True, slots=True)
class StoreKind:
    """Files of one kind in the directory."""

    name: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreProgram:
    """Entries of one program for one kind of device."""

    program: str
    target: str
    entries: int
    bytes: int
    seconds_compiling: float


@dataclass(frozen=True, slots=True)
class Store:
    """What lies in the directory."""

    entries: int
    bytes: int
    seconds_compiling: float
    unreadable: int
    kinds: tuple[StoreKind, ...]
    programs: tuple[StoreProgram, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """An entry that was evicted, put into quarantine, or condemned after it ended a process.

    Attributes:
      what: "evicted", "quarantined" or "condemned".
      time: when; `None` where that is not known.
      key: "" where what lay there had no entry's name.
      program: "" where it is not known.
      bytes: of its file; 0 for unknown.
      why: in words.
    """

    what: str
    time: float | None
    key: str
    program: str
    bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Tuning:
    """How complete XLA:GPU's tuning was for the executables of one program for one kind of device.

    Attributes:
      program, target: of the entries.
      states: how many entries have each state (`autotune/states.py`).
      fusions: look-ups of results, as far as they were counted.
      untuned: those that found none.
      missing: names of fusions without a result, as far as they are known.
    """

    program: str
    target: str
    states: Mapping[str, int]
    fusions: int
    untuned: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """One program in two starts; sums over all lanes of each.

    Attributes:
      program: the module's name.
      change: "same", "now hit", "now miss", "other key", "new" or "gone".
      before, after: {"hits", "misses", "seconds", "compile", "keys"} of the one compared with, and of the first.
    """

    program: str
    change: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The first start of the report beside another."""

    against: StartInfo
    programs: tuple[Compared, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All of it.

    Attributes:
      made: when.
      rewarm: the version that made it.
      directory: the cache directory.
      steps: what `Spans.step` counts, and what each is.
      starts: the latest first; none for a report of the store alone.
      lanes: by start, then by rank.
      spans: of each lane.
      totals: over all starts.
      programs: those that took longest first.
      misses: those that compiled longest first.
      not_stored: by reason, what cost most first.
      store: what lies in the directory now.
      history: what went, the latest first.
      tuning: of executables for GPUs.
      tuned: choices of the tuner, summed over the lanes.
      comparison: with another start.
      notes: what is missing from this report, and why.
    """

    made: float
    rewarm: str
    directory: str
    starts: tuple[StartInfo, ...]
    lanes: tuple[Lane, ...]
    spans: tuple[Spans, ...]
    totals: Totals
    programs: tuple[Program, ...]
    misses: tuple[Miss, ...]
    not_stored: tuple[NotStored, ...]
    store: Store
    history: tuple[Gone, ...]
    tuning: tuple[Tuning, ...]
    tuned: Mapping[str, int] = field(default_factory=dict)
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()
    steps: Mapping[str, str] = field(default_factory=lambda: STEPS)
    schema: str = SCHEMA
