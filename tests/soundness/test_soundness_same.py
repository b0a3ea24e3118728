"""Each edit that changes nothing: the trace is skipped, in fresh processes, and the proof beside it agrees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from soundness_case import SKIPPED, Case
from soundness_runner import Runner, missing
from soundness_table import SAME_PROGRAM

from conftest import first


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("soundness"))
    yield made
    made.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("row", first(6, SAME_PROGRAM, long=True), ids=lambda row: row.change)
def test_what_changes_nothing_is_skipped(runner: Runner, row: Case) -> None:
    if without := missing(row):
        pytest.skip(f"{without} is not installed")
    verdict = runner.verdict(row)
    assert verdict.found == ("recorded" if row.retraced else SKIPPED), verdict.told
