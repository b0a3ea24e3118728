"""The table of totals: what was written is read, and whatever else lies there counts as not counted."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewarm.small_files import PRIVATE
from rewarm.store.totals import Row, Snapshot, Totals

relaxed = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
priorities = st.floats(0.0, 1e12) | st.just(math.inf)
rows = st.builds(
    Row,
    size=st.integers(0, 1 << 50),
    entries=st.integers(0, 1 << 31),
    changes=st.integers(0, 1 << 31),
    lowest=priorities,
    oldest=priorities,
    sequence=st.integers(0, (1 << 32) - 1),
)
tables = st.dictionaries(st.integers(0, 255), rows, max_size=12)


@pytest.fixture
def totals(tmp_path: Path) -> Totals:
    return Totals(str(tmp_path), PRIVATE)


def column(snapshot: Snapshot) -> dict[int, tuple[int, int, float, float]]:
    return {
        index: (snapshot.sizes[index], snapshot.entries[index], snapshot.lowest[index], snapshot.oldest[index])
        for index in range(256)
        if snapshot.counted[index]
    }


def fresh(tmp_path: Path, table: dict[int, Row]) -> Totals:
    (tmp_path / "sizes").unlink(missing_ok=True)
    totals = Totals(str(tmp_path), PRIVATE)
    for index, row in table.items():
        totals.write(index, row)
    return totals


def shown(table: dict[int, Row]) -> dict[int, tuple[int, int, float, float]]:
    return {index: (row.size, row.entries, row.lowest, row.oldest) for index, row in table.items()}


@relaxed
@given(table=tables, later=tables)
def test_a_table_is_what_was_written(tmp_path: Path, table: dict[int, Row], later: dict[int, Row]) -> None:
    totals = fresh(tmp_path, table)
    assert column(totals.read()) == shown(table)
    assert {index: totals.row(index) for index in table} == table
    for index, row in later.items():
        totals.write(index, row)
    assert column(totals.read()) == shown({**table, **later}), "a second look takes only the differences apart"
    assert column(Totals(str(tmp_path), PRIVATE).read()) == shown({**table, **later})


@relaxed
@given(table=tables, at=st.integers(0, 10_239), by=st.integers(1, 255))
def test_a_changed_byte_is_not_believed(tmp_path: Path, table: dict[int, Row], at: int, by: int) -> None:
    totals = fresh(tmp_path, table)
    totals.read()
    data = bytearray((tmp_path / "sizes").read_bytes().ljust(10_240, b"\0")) if table else bytearray(10_240)
    data[at] ^= by
    (tmp_path / "sizes").write_bytes(data)
    damaged = at // 40
    assert column(totals.read()) == shown({index: row for index, row in table.items() if index != damaged})
    assert totals.row(damaged) is None


@relaxed
@given(table=tables, length=st.integers(0, 10_240))
def test_a_shortened_table_has_the_rows_that_are_left(tmp_path: Path, table: dict[int, Row], length: int) -> None:
    totals = fresh(tmp_path, table)
    totals.write(255, Row(1, 1, 0, 0.0, 0.0, 0))
    totals.read()
    os.truncate(tmp_path / "sizes", length)
    left = {index: row for index, row in table.items() if (index + 1) * 40 <= length and index != 255}
    seen = column(totals.read())
    seen.pop(255, None)
    assert seen == shown(left)


@relaxed
@given(data=st.binary(max_size=12_000))
def test_foreign_bytes_count_as_not_counted(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "sizes").write_bytes(data)
    totals = Totals(str(tmp_path), PRIVATE)
    assert column(totals.read()) == {}
    assert totals.read().total() == (0, 0)


def test_a_row_in_anothers_place_is_not_believed(totals: Totals, tmp_path: Path) -> None:
    totals.write(3, Row(10, 1, 0, 1.0, 1.0, 1))
    data = bytearray((tmp_path / "sizes").read_bytes())
    data[40 * 7 : 40 * 8] = data[40 * 3 : 40 * 4]
    (tmp_path / "sizes").write_bytes(data)
    assert totals.row(3) is not None
    assert totals.row(7) is None


def test_differences_below_nothing_are_nothing(totals: Totals) -> None:
    totals.write(3, Row(-5, -1, 0, 1.0, 1.0, 1))
    assert totals.row(3) == Row(0, 0, 0, 1.0, 1.0, 1)


def test_the_sum_counts_what_is_not_counted_as_the_mean(totals: Totals) -> None:
    for index in range(64):
        totals.write(index, Row(100, 2, 0, 1.0, 1.0, 1))
    assert totals.read().total() == (100 * 256, 2 * 256)
    totals.fill(range(256))
    assert totals.read().total() == (100 * 64, 2 * 64)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["directory", "fifo", "link"])
def test_what_is_no_file_is_no_table(totals: Totals, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "somebody's file"
    victim.write_bytes(b"precious")
    place = tmp_path / "sizes"
    {"directory": Path.mkdir, "fifo": os.mkfifo, "link": lambda path: path.symlink_to(victim)}[kind](place)
    assert column(totals.read()) == {}
    assert totals.row(0) is None
    with pytest.raises(OSError, match=r".*"):
        totals.write(0, Row(1, 1, 0, 1.0, 1.0, 1))
    assert victim.read_bytes() == b"precious"
