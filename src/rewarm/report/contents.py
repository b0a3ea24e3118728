"""What lies in the directory: entries by program, files by kind, and how complete the tuning of executables was.

Not promised: that entries hold. Headers are read, and nothing is verified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rewarm.envelope import Header
from rewarm.report.model import Store, StoreKind, StoreProgram, Tuning
from rewarm.store.inventory import Item

_MISSING_SHOWN = 50


def store_of(items: Sequence[Item], kinds: Iterable[StoreKind]) -> Store:
    """The directory, its largest programs and kinds first."""
    sums: dict[tuple[str, str], list[float]] = {}
    for item in items:
        header = item.header
        name = (header.program, header.target) if header is not None else ("unreadable", "")
        row = sums.setdefault(name, [0, 0, 0.0])
        row[0] += 1
        row[1] += item.info.size
        row[2] += header.compile_seconds if header is not None else 0.0
    programs = [StoreProgram(*name, int(row[0]), int(row[1]), row[2]) for name, row in sums.items()]
    return Store(
        entries=len(items),
        bytes=sum(item.info.size for item in items),
        seconds_compiling=sum(row.seconds_compiling for row in programs),
        unreadable=sum(item.header is None for item in items),
        kinds=tuple(sorted(kinds, key=lambda kind: -kind.bytes)),
        programs=tuple(sorted(programs, key=lambda row: (-row.bytes, row.program))),
    )


def tuning_of(items: Sequence[Item]) -> tuple[Tuning, ...]:
    """Of the entries whose headers tell of tuning, those with the most look-ups that found nothing first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for item in items:
        if item.header is not None and isinstance(item.header.tuning, Mapping):
            groups.setdefault(_name(item.header), []).append(item.header.tuning)
    rows = [_tuning(name, told) for name, told in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-row.untuned, row.program)))


def _name(header: Header) -> tuple[str, str]:
    return header.program, header.target


def _tuning(name: tuple[str, str], told: Sequence[Mapping[str, Any]]) -> Tuning:
    missing = {str(fusion) for one in told for fusion in _list(one.get("missing"))}
    return Tuning(
        program=name[0],
        target=name[1],
        states=dict(Counter(str(one.get("state")) for one in told)),
        fusions=sum(_count(one.get("fusions")) for one in told),
        untuned=sum(_count(one.get("untuned")) for one in told),
        missing=tuple(sorted(missing)[:_MISSING_SHOWN]),
    )


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
