"""Each change between two starts, in fresh processes: seen, refused, or found by the proof; never a wrong result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from soundness_case import PROOF, REFUSED, SKIPPED, TRACED, Case
from soundness_runner import Runner, missing
from soundness_table import CHANGES, SAME_PROGRAM

from conftest import first

_ROOT = Path(__file__).parents[2]
ROWS = [row for rows in CHANGES.values() for row in rows]
# One of each kind first, then the rest.
_FIRST = 12


def _spread(rows: list[Case]) -> list[Case]:
    """Rows of all sections early on."""
    by_section = [list(section) for section in CHANGES.values()]
    found = []
    while any(by_section):
        found += [section.pop(0) for section in by_section if section]
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("soundness"))
    yield made
    made.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("row", first(_FIRST, _spread(ROWS), long=True), ids=lambda row: row.change)
def test_a_change_is_not_missed(runner: Runner, row: Case) -> None:
    if without := missing(row):
        pytest.skip(f"{without} is not installed")
    verdict = runner.verdict(row)
    assert verdict.found == row.expect, verdict.told


def test_there_are_a_hundred_changes_and_each_is_there_once() -> None:
    assert len(ROWS) >= 100
    for rows in (ROWS, SAME_PROGRAM):
        names = [row.change for row in rows]
        assert sorted(names) == sorted(set(names))
    assert all(row.expect in (TRACED, REFUSED, PROOF) for row in ROWS)
    assert len([row for row in SAME_PROGRAM if row.expect == SKIPPED and not row.retraced]) >= 25


def test_what_is_unlike_the_rule_says_why() -> None:
    assert all(row.note for row in ROWS if row.expect == PROOF)
    assert all(row.note for row in SAME_PROGRAM if row.retraced)


def test_the_page_is_made_of_the_table() -> None:
    page = subprocess.run(
        [sys.executable, str(_ROOT / "tools" / "soundness_table.py")], capture_output=True, text=True, check=True
    )
    assert (_ROOT / "docs" / "soundness.md").read_text() == page.stdout
