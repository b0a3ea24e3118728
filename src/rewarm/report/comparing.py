"""Two starts side by side, program by program.

Not promised: which of the differences made one of them slower. Programs are matched by their names; one that is in a
start under several keys is one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rewarm.report.model import Compared, Comparison, Program, StartInfo


def compare(against: StartInfo, before: Sequence[Program], after: Sequence[Program]) -> Comparison:
    """The programs of two starts; what differs most in seconds first."""
    old, new = _by_name(before), _by_name(after)
    rows = [_row(name, old.get(name), new.get(name)) for name in {**new, **old}]
    rows.sort(key=lambda row: (-abs(row.after["seconds"] - row.before["seconds"]), row.program))
    return Comparison(against, tuple(rows))


_NOTHING: Mapping[str, Any] = {"hits": 0, "misses": 0, "seconds": 0.0, "compile": 0.0, "keys": []}


def _by_name(programs: Iterable[Program]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in programs:
        row = found.setdefault(one.program, {**_NOTHING, "keys": []})
        row["hits"] += one.hits
        row["misses"] += one.misses
        row["seconds"] += sum(took for name, took in one.seconds.items() if not name.startswith("ahead"))
        row["compile"] += one.seconds.get("compile", 0.0)
        row["keys"] = sorted({*row["keys"], one.key})
    return found


def _row(name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Compared:
    return Compared(name, _change(before, after), before or _NOTHING, after or _NOTHING)


def _change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None or after is None:
        return "new" if before is None else "gone"
    if before["keys"] != after["keys"]:
        return "other key"
    if bool(before["misses"]) == bool(after["misses"]):
        return "same"
    return "now miss" if after["misses"] else "now hit"
