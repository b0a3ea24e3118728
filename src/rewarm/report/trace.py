"""The steps of starts as trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing.

Not promised: anything of a report but its timeline.

The format is Chrome's "Trace Event Format" in its JSON object form: complete events ("X") and metadata ("M"), in
microseconds. A lane is a process, named by its rank; a step is a track of its own, and where steps of one kind overlap
(several threads) there is one more of them.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from typing import Any

from rewarm.report.model import Lane, Report, Spans

# Tracks of one step; no process has more threads at it.
_MOST_TRACKS = 1000


def to_trace(report: Report) -> str:
    """The trace as one JSON object in ASCII."""
    events = [event for number, lane in enumerate(report.lanes) for event in _lane(report, number, lane)]
    about = {"rewarm": report.rewarm, "directory": report.directory, "starts": [one.id for one in report.starts]}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}, separators=(",", ":"))


def _lane(report: Report, number: int, lane: Lane) -> Iterator[dict[str, Any]]:
    process, steps = number + 1, list(report.steps)
    start = report.starts[lane.start]
    words = f"rank {lane.rank} on {lane.host}, process {lane.pid}: {start.program}, {start.id}"
    yield _named("process_name", process, 0, {"name": words})
    yield _named("process_sort_index", process, 0, {"sort_index": process})
    spans = report.spans[number]
    tracks = _tracks(spans)
    for track in sorted(set(tracks)):
        step, copy = divmod(track, _MOST_TRACKS)
        name = steps[step] + (f" ({copy + 1})" if copy else "")
        yield _named("thread_name", process, track + 1, {"name": name})
        yield _named("thread_sort_index", process, track + 1, {"sort_index": track})
    for track, program, step, at, took in zip(tracks, spans.program, spans.step, spans.at, spans.took, strict=True):
        row = report.programs[program]
        yield {
            "name": row.program,
            "cat": steps[step],
            "ph": "X",
            "ts": at,
            "dur": took,
            "pid": process,
            "tid": track + 1,
            "args": {"key": row.key},
        }


def _named(name: str, process: int, track: int, said: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": process, "tid": track, "args": said}


def _tracks(spans: Spans) -> list[int]:
    """For each step, on which track it is: those of one track do not overlap."""
    found, free, busy, made = [], {}, {}, {}  # type: ignore[var-annotated]
    for step, at, took in zip(spans.step, spans.at, spans.took, strict=True):
        ends, idle = busy.setdefault(step, []), free.setdefault(step, [])
        while ends and ends[0][0] <= at:
            heapq.heappush(idle, heapq.heappop(ends)[1])
        if not idle:
            made[step] = made.get(step, -1) + 1
            idle.append(min(made[step], _MOST_TRACKS - 1))
        track = heapq.heappop(idle)
        heapq.heappush(ends, (at + took, track))
        found.append(step * _MOST_TRACKS + track)
    return found
