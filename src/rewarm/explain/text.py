"""An explanation as lines for people.

Not promised: the form of the lines; `--json` is for programs.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewarm.ledger.explanation import Change, Explanation


def lines(explanation: Explanation) -> Iterator[str]:
    """What differs, component by component, and what it means."""
    for name in explanation.differs:
        yield f"{name} differs"
        for change in explanation.changes:
            if change.component == name:
                yield from _change(change)
    for finding in explanation.findings:
        yield f"=> {finding.text}"


def _change(change: Change) -> Iterator[str]:
    if change.component != "program":
        yield f"  {change.item or 'value'}: {change.before} → {change.after}"
        return
    yield f"  {change.item or _place(change)}"
    if change.before:
        yield f"    - {change.before}"
    if change.after:
        yield f"    + {change.after}"


def _place(change: Change) -> str:
    return "in the signature" if (change.after or change.before).startswith("func.func") else "source line unknown"
