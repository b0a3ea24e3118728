"""Traces: which entries of a cache programs ask for, start by start, with the size and the worth of each.

    benchmarks/traces/<name>.jsonl

    file    := header { start }; each is one JSON object in ASCII on one line
    header  := {"trace": name, "version": 1, "what": text, "made": text, "versions": {}, "machine": text,
                "starts": n, "entries": n, "bytes": n, "seconds": s}
    start   := {"start": command, "asks": [ request ]}
    request := [key: 12 hex digits, bytes of the entry, seconds that compiling it took] | n

The first request for an entry describes it; later ones give its number, counted from 0 in the order of the
descriptions. A start asks for each entry once, in the order in which the program did first: what a process asks for
again is there, whatever the eviction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 1
TRACES = Path(__file__).resolve().parent / "traces"


class Entry(NamedTuple):
    """One entry: `size` in bytes, `seconds` that compiling it took when it was made."""

    key: str
    size: int
    seconds: float


@dataclass(frozen=True)
class Start:
    """One start of a process and what it asked for."""

    command: str
    asks: tuple[Entry, ...]


@dataclass(frozen=True)
class Trace:
    """Starts in order, under a name; `about` is the header's rest."""

    name: str
    starts: tuple[Start, ...]
    about: dict[str, Any]

    @property
    def entries(self) -> dict[str, Entry]:
        """Every entry that is asked for, by its key."""
        return {entry.key: entry for start in self.starts for entry in start.asks}

    @property
    def footprint(self) -> int:
        """Bytes of all entries together: a cache of this size evicts nothing."""
        return sum(entry.size for entry in self.entries.values())

    @property
    def requests(self) -> int:
        """How many requests all starts make."""
        return sum(len(start.asks) for start in self.starts)


def load(path: Path) -> Trace:
    """Reads a trace.

    Raises:
      ValueError: the file is no trace, or not one of version 1.
    """
    lines = path.read_text(encoding="ascii").splitlines()
    header = json.loads(lines[0])
    if header.pop("version", None) != VERSION:
        raise ValueError(f"{path} is no trace of version {VERSION}")
    described: list[Entry] = []
    starts = tuple(_start(json.loads(line), described) for line in lines[1:])
    return Trace(header.pop("trace"), starts, header)


def load_all(folder: Path = TRACES) -> list[Trace]:
    """Reads all recorded traces, in the order of their names."""
    return [load(path) for path in sorted(folder.glob("*.jsonl"))]


def save(trace: Trace, folder: Path = TRACES) -> Path:
    """Writes a trace under its name; returns the path."""
    path = folder / f"{trace.name}.jsonl"
    folder.mkdir(exist_ok=True)
    sums = {
        "starts": len(trace.starts),
        "entries": len(trace.entries),
        "bytes": trace.footprint,
        "seconds": round(sum(entry.seconds for entry in trace.entries.values()), 3),
    }
    header = {"trace": trace.name, "version": VERSION, **trace.about, **sums}
    lines = [json.dumps(header), *_lines(trace.starts)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return path


def united(starts: Iterable[Start]) -> tuple[Start, ...]:
    """The starts with each key's first description for all of its requests.

    A program that several traces ask for was compiled once in each of them, in a few bytes and seconds more or less.
    """
    first: dict[str, Entry] = {}
    return tuple(
        Start(start.command, tuple(first.setdefault(entry.key, entry) for entry in start.asks)) for start in starts
    )


def _start(line: dict[str, Any], described: list[Entry]) -> Start:
    asks = []
    for request in line["asks"]:
        if isinstance(request, list):
            described.append(Entry(*request))
            asks.append(described[-1])
        else:
            asks.append(described[request])
    return Start(line["start"], tuple(asks))


def _lines(starts: Sequence[Start]) -> Iterator[str]:
    numbers: dict[str, int] = {}
    for start in starts:
        asks: list[Any] = []
        for entry in start.asks:
            asks.append(numbers.get(entry.key, list(entry)))
            numbers.setdefault(entry.key, len(numbers))
        yield json.dumps({"start": start.command, "asks": asks}, separators=(",", ":"))
