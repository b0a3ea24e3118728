"""Explanations after the fact: events of runs on disk, with what the entries themselves can add.

Not promised: more than the directory still holds. Where an entry is gone, what was said when it missed stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rewarm.envelope import Entry, open_entry
from rewarm.errors import BadEntryError, StoreError
from rewarm.explain.difference import compare_entries, summarise
from rewarm.ledger.explanation import Change, Explanation, Finding
from rewarm.store import Store


def explanation_of(event: Mapping[str, Any]) -> Explanation | None:
    """The explanation that a stored event carries; `None` where it has none that can be read."""
    said = event.get("explanation")
    if not isinstance(said, Mapping):
        return None
    try:
        return Explanation(
            summary=str(said["summary"]),
            nearest=said["nearest"] if isinstance(said["nearest"], str) else None,
            differs=tuple(said["differs"]),
            changes=tuple(Change(**change) for change in said["changes"]),
            findings=tuple(Finding(**finding) for finding in said["findings"]),
        )
    except (KeyError, TypeError):
        return None


def completed(event: Mapping[str, Any], store: Store) -> Explanation | None:
    """The event's explanation, with the programs' lines where it has none and both entries are still there.

    While a program runs, only small ones are compared line by line.
    """
    said = explanation_of(event)
    if said is None or "program" not in said.differs or said.nearest is None:
        return said
    if any(change.component == "program" for change in said.changes):
        return said
    before, after = entry(store, said.nearest), entry(store, str(event.get("key")))
    if before is None or after is None:
        return said
    found = compare_entries(before, after)
    kept = tuple(change for change in said.changes if change.component != "program")
    new = tuple(change for change in found.changes if change.component == "program")
    changes, findings = kept + new, _merged(said.findings, found.findings)
    head = said.summary.partition(", but:")[0]
    summary = summarise(f"{head}, but", said.differs, changes, findings)
    return Explanation(summary, said.nearest, said.differs, changes, findings)


# What a comparison of programs can find; said from digests while the program ran, and better from the lines.
_OF_PROGRAMS = frozenset({"constants", "shapes", "types", "order", "operands", "operations", "names", "unfinished"})


def _merged(said: tuple[Finding, ...], found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """What the lines tell in the place of what digests told; what was known of other runs stays where it still fits."""
    shapes = next((one for one in said if one.kind == "shapes"), None)  # with the list of those that were seen
    told = tuple(shapes if one.kind == "shapes" and shapes is not None else one for one in found)
    fits = {one.kind for one in found}
    others = (one for one in said if one.kind not in _OF_PROGRAMS)
    return told + tuple(one for one in others if one.kind != "varying constant" or "constants" in fits)


def entry(store: Store, key: str) -> Entry | None:
    """The checked entry of a key, or `None`."""
    try:
        data = store.get(key, use=False)
        return open_entry(data, key) if data is not None else None
    except (BadEntryError, StoreError, ValueError):
        return None


def misses(events: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The events that are misses."""
    return (event for event in events if event.get("outcome") == "miss")
