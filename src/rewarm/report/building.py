"""Runs, entries and books to one report.

Not promised: a snapshot. What other processes write or remove meanwhile may be there in part.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rewarm.ledger.explanation import Explanation
from rewarm.ledger.runs import BadRunError, Run, read_run
from rewarm.report import comparing, contents, history
from rewarm.report.model import Comparison, Lane, Program, Report, Spans, StartInfo, StoreKind, Totals
from rewarm.report.programs import Collected
from rewarm.report.reading import Event, is_hit, number, seconds, spans
from rewarm.report.starts import Start, rank_of
from rewarm.store import LocalStore
from rewarm.store.inventory import Item

# A step: when it began, in seconds since the epoch, the number of its program, which one, and how long it took.
_Step = tuple[float, int, int, float]

_VERSIONS = ("rewarm", "jax", "jaxlib", "python")


class Kind(NamedTuple):
    """Files of one kind in the directory, as `rewarm du` sums them up."""

    name: str
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a report comes from.

    Attributes:
      store: the directory.
      items: its entries, looked at.
      kinds: its files.
      explained: the explanation of a miss's event.
      progress: is given what is worked through, to show how far it came.
    """

    store: LocalStore
    items: Sequence[Item]
    kinds: Sequence[Kind]
    explained: Callable[[Event], Explanation | None]
    progress: Callable[[Sequence[Start]], Iterable[Start]] = iter


def build(sources: Sources, starts: Sequence[Start], against: Start | None = None) -> Report:
    """The report of some starts, the latest first, or with none of the store alone.

    Raises:
      BadRunError: no run of a start can be read.
    """
    collected = Collected(sources.explained)
    read = [_read(collected, number, start) for number, start in enumerate(sources.progress(starts))]
    programs, misses = collected.programs(), collected.misses()
    order = collected.order()
    return Report(
        made=time.time(),
        rewarm=importlib.metadata.version("rewarm"),
        directory=str(sources.store.root),
        starts=tuple(one.info for one in read),
        lanes=tuple(lane for one in read for lane in one.lanes),
        spans=tuple(_ordered(spans, order) for one in read for spans in one.spans),
        totals=_sum(one.info.totals for one in read),
        programs=programs,
        misses=misses,
        not_stored=collected.not_stored(),
        store=contents.store_of(sources.items, [StoreKind(*kind) for kind in sources.kinds]),
        history=history.of(sources.store, sources.items, collected.names()),
        tuning=contents.tuning_of(sources.items),
        tuned=_tuned(lane for one in read for lane in one.lanes),
        comparison=None if against is None else _compared(programs, against),
        notes=tuple(note for one in read for note in one.notes),
    )


class _Read(NamedTuple):
    """What came of reading a start."""

    info: StartInfo
    lanes: list[Lane]
    spans: list[Spans]
    notes: list[str]


def _read(collected: Collected, number: int, start: Start) -> _Read:
    runs, notes = _runs_of(start)
    rows = [_rows(collected, run, (number, place)) for place, run in enumerate(runs)]
    began = min(one[0][0] if one else run.info.started for one, run in zip(rows, runs, strict=True))
    lanes = [_lane(number, run, one, began) for run, one in zip(runs, rows, strict=True)]
    notes += [f"run {lane.run}: {_missing(lane)}" for lane in lanes if _missing(lane)]
    if len(runs) < start.ranks:
        notes.append(f"{start.ranks - len(runs)} of the {start.ranks} ranks of {start.program} have no run here")
    about = runs[0].info.about.get("versions")
    versions = about if isinstance(about, Mapping) else {}
    info = StartInfo(
        id=start.id,
        program=start.program,
        began=began,
        seconds=max((lane.began + lane.seconds for lane in lanes), default=0.0),
        ranks=start.ranks,
        lanes=len(lanes),
        versions={name: str(versions[name]) for name in _VERSIONS if name in versions},
        totals=_sum(lane.totals for lane in lanes),
    )
    return _Read(info, lanes, [_columns(one, began) for one in rows], notes)


def _runs_of(start: Start) -> tuple[list[Run], list[str]]:
    """The runs that can be read, and a note for each that cannot."""
    found, notes, wrong = [], [], None
    for info in start.runs:
        try:
            found.append(read_run(info.path))
        except BadRunError as error:
            wrong = error
            notes.append(str(error))
    if not found and wrong is not None:
        raise wrong
    return found, notes


def _missing(lane: Lane) -> str:
    words = [f"{lane.lost} events were not written"] if lane.lost else []
    words += [f"{lane.damaged} lines cannot be read"] if lane.damaged else []
    words += ["it had more events than a run keeps"] if lane.truncated else []
    return ", ".join(words)


def _rows(collected: Collected, run: Run, lane: tuple[int, int]) -> list[_Step]:
    """The steps of a run, in the order in which they began."""
    rows = []
    for event in run.events:
        program = collected.add(event, lane)
        rows += [(at, program, step, took) for step, at, took in spans(event)]
    return sorted(rows)


def _columns(rows: list[_Step], began: float) -> Spans:
    return Spans(
        program=[program for _, program, _, _ in rows],
        step=[step for _, _, step, _ in rows],
        at=[round((at - began) * 1e6) for at, _, _, _ in rows],
        took=[round(took * 1e6) for _, _, _, took in rows],
    )


def _lane(start: int, run: Run, rows: list[_Step], began: float) -> Lane:
    info, counts = run.info, Counter[str]()
    for event in run.events:
        _count(counts, event)
    first = rows[0][0] if rows else info.started
    last = max((at + took for at, _, _, took in rows), default=first)
    return Lane(
        start=start,
        rank=rank_of(info),
        run=info.id,
        host=info.host,
        pid=info.pid,
        state=info.state,
        began=first - began,
        seconds=last - first,
        totals=_totals(counts),
        lost=info.lost or 0,
        damaged=run.damaged,
        truncated=run.truncated,
        stats=info.stats,
    )


def _count(counts: Counter[str], event: Event) -> None:
    hit = is_hit(event)
    saved = number(event, "seconds_saved")
    found = seconds(event, "fetch", "load")
    waited = seconds(event, "wait")
    compiled = seconds(event, "compile")
    told: dict[str, Any] = {
        "requests": 1,
        "hits": int(hit),
        "misses": int(not hit),
        "stored": int(event.get("stored") is True),
        "seconds_saved": saved,
        "seconds_cold": saved + found + waited if hit else compiled,
        "seconds_compiling": compiled,
        "seconds_loading": found,
        "seconds_overhead": seconds(event, "key", "store", "explain") + waited,
        "bytes_read": int(number(event, "bytes_read")),
        "bytes_written": int(number(event, "bytes_written")),
    }
    for name, value in told.items():
        counts[name] += value


def _totals(counts: Mapping[str, float]) -> Totals:
    plain = {name: float(value) if name.startswith("seconds") else int(value) for name, value in counts.items()}
    return Totals(**plain)  # type: ignore[arg-type]


def _sum(totals: Iterable[Totals]) -> Totals:
    counts = Counter[str]()
    for one in totals:
        for name in Totals.__dataclass_fields__:
            counts[name] += getattr(one, name)
    return _totals(counts)


def _ordered(columns: Spans, order: Sequence[int]) -> Spans:
    """The same with programs counted as the report counts them."""
    return dataclasses.replace(columns, program=[order[row] for row in columns.program])


def _tuned(lanes: Iterable[Lane]) -> dict[str, int]:
    counts = Counter[str]()
    for lane in lanes:
        tuned = (lane.stats or {}).get("tuned")
        if isinstance(tuned, Mapping):
            counts.update({str(name): int(value) for name, value in tuned.items() if isinstance(value, int)})
    return dict(counts)


def _compared(programs: Sequence[Program], against: Start) -> Comparison:
    other = Collected(lambda _: None)
    read = _read(other, 0, against)
    return comparing.compare(read.info, other.programs(), programs)
