"""Events to rows: one for each program under each key, one for each reason of a miss.

Not promised: that two programs of one name are one. They are told apart by their keys; those without a key are not.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from rewarm.ledger.explanation import Explanation
from rewarm.report.model import STEPS, Miss, NotStored, Program
from rewarm.report.reading import Event, is_hit, number, seconds, spans, text

_NAMES = tuple(STEPS)


class _Row:
    """What is known of one program so far."""

    def __init__(self, program: str, key: str) -> None:
        self.program = program
        self.key = key
        self.lanes: set[tuple[int, int]] = set()
        self.hits = self.misses = self.ahead = self.bytes = 0
        self.tier = self.reason = self.not_stored = self.options = ""
        self.seconds: dict[str, float] = defaultdict(float)
        self.longest = self.saved = 0.0
        self.miss: _Miss | None = None

    def add(self, event: Event) -> None:
        hit = is_hit(event)
        self.hits += hit
        self.misses += not hit
        self.ahead += hit and text(event, "ahead") == "loaded"
        self.tier = text(event, "tier") or self.tier
        self.bytes = int(number(event, "bytes_read") or number(event, "bytes_written")) or self.bytes
        self.reason = text(event, "reason") or self.reason
        self.not_stored = text(event, "not_stored") or self.not_stored
        self.options = text(event, "options") or self.options
        self.saved += number(event, "seconds_saved")
        self._add_spans(event)

    def _add_spans(self, event: Event) -> None:
        first, last = [], []
        for step, began, took in spans(event):
            name = _NAMES[step]
            self.seconds[name] += took
            if not name.startswith("ahead"):
                first.append(began)
                last.append(began + took)
        if first:
            self.longest = max(self.longest, max(last) - min(first))

    def weight(self) -> float:
        """What it took in the programs' own threads."""
        return sum(value for name, value in self.seconds.items() if not name.startswith("ahead"))


class _Miss:
    """One reason for which a program was compiled."""

    def __init__(self, event: Event, said: Explanation | None) -> None:
        self.event = event
        self.said = said
        self.times = 0
        self.seconds = 0.0
        self.stored = False
        self.not_stored = ""

    def add(self, event: Event) -> None:
        self.times += 1
        self.seconds += seconds(event, "compile")
        self.stored = self.stored or event.get("stored") is True
        self.not_stored = text(event, "not_stored") or self.not_stored


class Collected:
    """The rows of a report, as events are added.

    Args:
      explained: the explanation of a miss's event; called once for each row of `misses`.
    """

    def __init__(self, explained: Callable[[Event], Explanation | None]) -> None:
        self._explained = explained
        self._rows: dict[tuple[str, str], int] = {}
        self._programs: list[_Row] = []
        self._misses: dict[tuple[str, str, str, str], _Miss] = {}
        self._unstored: dict[str, list[Any]] = {}

    def add(self, event: Event, lane: tuple[int, int]) -> int:
        """Add an event of a lane; returns the number of its program's row, in the order of their appearance."""
        name = text(event, "program"), text(event, "key")
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = len(self._programs)
            self._programs.append(_Row(*name))
        program = self._programs[row]
        program.lanes.add(lane)
        program.add(event)
        if not is_hit(event):
            self._add_miss(program, event)
        return row

    def _add_miss(self, program: _Row, event: Event) -> None:
        said = event.get("explanation")
        summary = text(said, "summary") if isinstance(said, dict) else ""
        name = program.program, program.key, text(event, "reason"), summary
        miss = self._misses.get(name)
        if miss is None:
            miss = self._misses[name] = _Miss(event, self._explained(event))
        miss.add(event)
        program.miss = miss
        if reason := text(event, "not_stored"):
            entry = self._unstored.setdefault(reason, [0, set(), 0.0])
            entry[0] += 1
            entry[1].add((program.program, program.key))
            entry[2] += seconds(event, "compile")

    def _ranked(self) -> list[int]:
        return sorted(range(len(self._programs)), key=lambda row: (-self._programs[row].weight(), row))

    def _ranked_misses(self) -> list[_Miss]:
        return sorted(self._misses.values(), key=lambda miss: -miss.seconds)

    def order(self) -> list[int]:
        """For each number that `add` gave, the place in `programs`."""
        places = [0] * len(self._programs)
        for place, row in enumerate(self._ranked()):
            places[row] = place
        return places

    def names(self) -> dict[str, str]:
        """The programs' names by key."""
        return {row.key: row.program for row in self._programs if row.key}

    def programs(self) -> tuple[Program, ...]:
        """The programs, what took longest first."""
        numbers = {id(miss): number for number, miss in enumerate(self._ranked_misses())}
        return tuple(_program(self._programs[row], numbers) for row in self._ranked())

    def misses(self) -> tuple[Miss, ...]:
        """Why programs were compiled, what took longest first."""
        return tuple(map(_miss, self._ranked_misses()))

    def not_stored(self) -> tuple[NotStored, ...]:
        """What was not stored, by reason."""
        rows = [NotStored(why, times, len(names), took) for why, (times, names, took) in self._unstored.items()]
        return tuple(sorted(rows, key=lambda row: -row.seconds_compiling))


def _program(row: _Row, numbers: dict[int, int]) -> Program:
    return Program(
        program=row.program,
        key=row.key,
        lanes=len(row.lanes),
        hits=row.hits,
        misses=row.misses,
        tier=row.tier,
        ahead=row.ahead,
        seconds={name: round(row.seconds[name], 6) for name in _NAMES if row.seconds.get(name)},
        longest=round(row.longest, 6),
        seconds_saved=round(row.saved, 6),
        bytes=row.bytes,
        reason=row.reason if row.misses else "",
        not_stored=row.not_stored,
        options=row.options,
        miss=numbers[id(row.miss)] if row.miss is not None else None,
    )


def _miss(miss: _Miss) -> Miss:
    said = miss.said
    return Miss(
        program=text(miss.event, "program"),
        key=text(miss.event, "key"),
        times=miss.times,
        seconds_compiling=round(miss.seconds, 6),
        stored=miss.stored,
        not_stored="" if miss.stored else miss.not_stored,
        reason=text(miss.event, "reason"),
        summary=said.summary if said is not None else "",
        nearest=(said.nearest or "") if said is not None else "",
        changes=_plain(said.changes) if said is not None else (),
        findings=_plain(said.findings) if said is not None else (),
    )


def _plain(records: Sequence[Any]) -> tuple[dict[str, str], ...]:
    return tuple({name: str(value) for name, value in dataclasses.asdict(one).items()} for one in records)
