"""How one program differs from another: components first, then the programs themselves where their lines are kept.

Not promised: that both programs can be read. An entry of another jaxlib, or one that was made before programs were
kept, is compared by its components alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from rewarm.cache import COMPONENTS, PROGRAM, SOURCE
from rewarm.envelope import Entry
from rewarm.errors import BadEntryError
from rewarm.explain import programs
from rewarm.explain.components import changes_in
from rewarm.explain.programs import Difference
from rewarm.identity.program import Listing, list_operations
from rewarm.ledger.explanation import Change, Explanation, Finding
from rewarm.telling import one_line

_SHOWN = 3
_RESULT = re.compile(r"^%[\w:, %#]* = ")


def compare_entries(before: Entry, after: Entry) -> Explanation:
    """How the entry `after` differs from the entry `before`."""
    old, new = components_of(before), components_of(after)
    differs = tuple(name for name in new if old.get(name) != new[name])
    values = values_of(before), values_of(after)
    producers = before.header.producer, after.header.producer
    changes: list[Change] = []
    findings: tuple[Finding, ...] = ()
    for name in differs:
        if name == "program":
            difference = compare_programs(listing_of(before), listing_of(after))
            changes += difference.changes
            findings = difference.findings
        else:
            changes += changes_in(name, values[0].get(name), values[1].get(name), producers)
    summary = summarise("the two entries", differs, changes, findings) if differs else "the same key"
    return Explanation(summary, before.header.key, differs, tuple(changes), findings)


def components_of(entry: Entry) -> dict[str, str]:
    """Name to digest."""
    return {str(row.get("name")): str(row.get("digest")) for row in entry.header.components}


def values_of(entry: Entry) -> dict[str, Any]:
    """Name to value, of the components whose value the entry keeps."""
    small = {str(row["name"]): row["value"] for row in entry.header.components if row.get("value") is not None}
    try:
        large = json.loads(entry.section(COMPONENTS))
    except (BadEntryError, ValueError, RecursionError):
        large = {}
    return {**small, **large} if isinstance(large, dict) else small


def listing_of(entry: Entry, *, sources: bool = True, limit: int | None = None) -> Listing | None:
    """The program's lines, with source lines where the entry has them and `sources` asks for them.

    `None` when they cannot be read, or when the canonical program is larger than `limit` bytes.
    """
    sizes = {section.name: section.raw_length for section in entry.header.sections}
    if limit is not None and sizes.get(PROGRAM, 0) > limit:
        return None
    for section in (SOURCE, PROGRAM) if sources else (PROGRAM,):
        try:
            return list_operations(entry.section(section))
        except (BadEntryError, ValueError, ImportError):
            continue
    return None


def compare_programs(before: Listing | None, after: Listing | None) -> Difference:
    """As `programs.compare`, also where one of the two cannot be read."""
    if before is None or after is None:
        return Difference((), (Finding("unfinished", "the programs differ; one of them is not kept, or unreadable"),))
    found = programs.compare(before, after)
    if found.findings:
        return found
    return Difference((), (Finding("names", "the operations are equal; names or source locations differ"),))


def summarise(what: str, differs: Iterable[str], changes: Iterable[Change], findings: Sequence[Finding]) -> str:
    """One line: what is compared, the components that differ, the first changes, and what they mean."""
    by_component: dict[str, list[Change]] = {name: [] for name in differs}
    for change in changes:
        by_component.setdefault(change.component, []).append(change)
    kinds = {finding.kind for finding in findings}
    parts = [_part(name, found, kinds) for name, found in by_component.items()]
    if any(change.item == "jaxlib" for change in by_component.get("toolchain", ())):
        # Another jaxlib says it all: its defaults, which are among the options, differ as well.
        rest = [name for name in by_component if name not in ("toolchain", "program")]
        parts = [_part(name, found, kinds) for name, found in by_component.items() if name not in rest]
        parts += [f"with it {', '.join(rest)}"] if rest else []
    return one_line(f"{what}: {'; '.join([*parts, *(finding.text for finding in findings)])}")


def _part(name: str, changes: list[Change], meaning: set[str]) -> str:
    if name == "program":
        return _program_part(changes, meaning)
    told = [f"{change.item} {change.before} → {change.after}".strip() for change in changes[:_SHOWN]]
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return f"{name} differs" + (f" ({', '.join(told)}{more})" if told else "")


def _program_part(changes: list[Change], meaning: set[str]) -> str:
    """The first place says enough on one line; where all lines differ alike, or only their order, not even that."""
    if not changes or "shapes" in meaning:
        return "program differs"
    first = changes[0]
    where = f" at {first.item}" if first.item else ""
    if "order" in meaning:
        return f"program differs (first{where})" if where else "program differs"
    return f"program differs ({_operation(first.before)} → {_operation(first.after)}{where})"


def _operation(text: str) -> str:
    """An operation without the name of its result."""
    return _RESULT.sub("", text) or "nothing"
