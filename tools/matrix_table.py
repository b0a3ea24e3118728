"""Print the page about what hits and what misses, made of the rows in tests/adapter/matrix.py.

python tools/matrix_table.py > docs/identity-matrix.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "adapter"))

from matrix import BASES, BYPASSED, HIT, MISS, NO_KEY, ROWS, SECTIONS, Row

_OUTCOMES = {HIT: "hit", MISS: "**miss**", NO_KEY: "no key", BYPASSED: "bypassed"}

_HEAD = """\
# What hits and what misses

Made by `python tools/matrix_table.py` from `tests/adapter/matrix.py`; do not edit. `tests/adapter/test_matrix.py` runs
each row on each supported JAX: a base program in one process, then the same with the one change in a fresh process,
against a copy of the directory that the first left. Of {count} rows {hits} must hit and {misses} must miss; {rest} have
no key or are neither looked up nor stored. A miss is right only if its explanation names the components here, and no
other, and says what stands in the last column.

Rows say where a JAX cannot do them; else all of JAX 0.9 to 0.12 give the same answers.
"""


def page() -> str:
    """The page."""
    counts = {expect: sum(row.expect == expect for row in ROWS) for expect in _OUTCOMES}
    rest = counts[NO_KEY] + counts[BYPASSED]
    head = _HEAD.format(count=len(ROWS), hits=counts[HIT], misses=counts[MISS], rest=rest)
    return "\n".join([head, *(line for title in SECTIONS for line in _section(title)), *_bases()])


def _section(title: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| changed | base | outcome | what `explain` names | and says |"
    yield "| --- | --- | --- | --- | --- |"
    for row in SECTIONS[title]:
        cells = (row.change, row.base, _OUTCOMES[row.expect], ", ".join(row.components), "; ".join(_said(row)))
        yield f"| {' | '.join(_plain(cell) for cell in cells)} |"
    yield ""


def _said(row: Row) -> Iterator[str]:
    if row.item is not None and (row.named or row.components[0]) == "program":
        what = f"`{row.before}` → `{row.after}`" if row.before else f"`{row.after}`" if row.after else ""
        yield " ".join(part for part in (what, f"at the line of `{row.item}`" if row.item else "") if part)
    elif row.item is not None:
        before, after = (text.replace("{jaxlib}", "version,").strip() for text in (row.before, row.after))
        item = row.item.replace("{library}", "<library>")
        yield f"`{item}` {before or '...'} → {after or '...'}" if before or after else f"`{item}`"
    if row.finding:
        yield f"finding “{row.finding}”"
    if row.note:
        yield row.note
    if row.not_on:
        yield "; ".join(f"not tried on JAX {version}: {reason}" for version, reason in row.not_on.items())


def _plain(cell: str) -> str:
    return cell.replace("|", "\\|").strip()


def _bases() -> Iterator[str]:
    yield "## The bases\n"
    seen: dict[str, str] = {}
    for name, base in BASES.items():
        same = seen.setdefault(base.source, name)
        said = " ".join(f"{variable}={value}" for variable, value in base.env.items())
        which = "this program" if same == name else f"the program of {same}"
        yield f"**{name}**: `{base.program}` of {which}, with `{said}`"
        if same == name:
            yield f"\n```python\n{base.source.strip()}\n```"
        yield ""


if __name__ == "__main__":
    sys.stdout.write(page().rstrip() + "\n")
