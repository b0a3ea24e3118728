"""What is stored: both thresholds are inclusive, and the bound is on one entry."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewarm.policy import (
    LOADS_SLOWER,
    TOO_LARGE,
    TOO_QUICK,
    TOO_SMALL,
    Bounds,
    Thresholds,
    Usage,
    priority,
    refuse_by_cost,
    refuse_by_size,
    refuse_by_time,
    victims,
)


def limits(*, seconds: float = 0.0, size: int = 0, whole: int = -1) -> Thresholds:
    return Thresholds(min_compile_seconds=seconds, min_entry_bytes=size, max_size=whole)


@pytest.mark.parametrize(
    ("took", "least", "refused"),
    [
        (0.0, 0.0, None),
        (1e-9, 0.0, None),
        (1.0, 1.0, None),
        (math.nextafter(1.0, 0.0), 1.0, TOO_QUICK),
        (math.nextafter(1.0, 2.0), 1.0, None),
        (0.0, 1e-9, TOO_QUICK),
        (3600.0, 1.0, None),
    ],
)
def test_the_least_compile_time_is_enough(took: float, least: float, refused: str | None) -> None:
    assert refuse_by_time(took, limits(seconds=least)) == refused


@pytest.mark.parametrize(
    ("size", "least", "refused"),
    [(0, 0, None), (0, -1, None), (0, 1, TOO_SMALL), (99, 100, TOO_SMALL), (100, 100, None), (101, 100, None)],
)
def test_the_least_size_is_enough(size: int, least: int, refused: str | None) -> None:
    assert refuse_by_size(size, limits(size=least)) == refused


@pytest.mark.parametrize(
    ("size", "whole", "refused"),
    [(1 << 40, -1, None), (100, 100, None), (101, 100, TOO_LARGE), (1, 0, TOO_LARGE), (0, 0, None)],
)
def test_an_entry_must_fit_into_the_whole(size: int, whole: int, refused: str | None) -> None:
    assert refuse_by_size(size, limits(whole=whole)) == refused


def test_time_and_size_are_asked_separately() -> None:
    strict = limits(seconds=10.0, size=10)
    assert refuse_by_time(20.0, strict) is None
    assert refuse_by_size(5, strict) == TOO_SMALL
    assert refuse_by_time(5.0, strict) == TOO_QUICK
    assert refuse_by_size(20, strict) is None


def test_no_bound_unless_said() -> None:
    assert refuse_by_size(1 << 50, Thresholds(0.0, 0)) is None


# ---------------------------------------------------------------------------------------------------------------
# Cost


@pytest.mark.parametrize(
    ("compiling", "times", "load", "refused"),
    [
        (1.0, 0, math.inf, None),
        (1.0, 1, 2.0, None),
        (1.0, 2, 2.0, LOADS_SLOWER),
        (1.0, 2, 1.0, None),
        (3.0, 2, 2.0, None),
        (1.0, 9, 1.1, LOADS_SLOWER),
    ],
)
def test_two_slow_loads_keep_an_entry_out(compiling: float, times: int, load: float, refused: str | None) -> None:
    assert refuse_by_cost(compiling, times, load) == refused


# ---------------------------------------------------------------------------------------------------------------
# Bounds and eviction


def test_no_bound_is_never_exceeded() -> None:
    assert not Bounds().exceeded(1 << 60, 1 << 60)
    assert not Bounds().expired(1e12)


@pytest.mark.parametrize(
    ("bounds", "size", "entries", "exceeded"),
    [
        (Bounds(max_size=100), 100, 10**9, False),
        (Bounds(max_size=100), 101, 0, True),
        (Bounds(max_entries=3), 1 << 60, 3, False),
        (Bounds(max_entries=3), 0, 4, True),
        (Bounds(max_size=100, max_entries=3), 100, 4, True),
        (Bounds(max_size=0), 1, 1, True),
    ],
)
def test_a_bound_may_be_reached_and_not_passed(bounds: Bounds, size: int, entries: int, exceeded: bool) -> None:
    assert bounds.exceeded(size, entries) is exceeded


def test_age_is_since_the_last_use() -> None:
    bounds = Bounds(max_age=10.0)
    assert [bounds.expired(age) for age in (-1e9, 0.0, 10.0, 10.1)] == [False, False, False, True]


NOW = 1.8e9
HALF_DAY = 12 * 3600.0


def entry(name: str, seconds: float, size: int, uses: int = 1, age: float = 0.0) -> Usage:
    return Usage(name, size, seconds, uses, priority(NOW - age, seconds, uses, size))


def test_dear_small_and_often_used_entries_stay() -> None:
    known = [
        entry("cheap", 0.1, 1 << 20),
        entry("dear", 100.0, 1 << 20),
        entry("dear and large", 100.0, 1 << 30),
        entry("cheap and used", 0.1, 1 << 20, uses=50),
    ]
    assert [one.key for one in victims(known, 1 << 40, 0)] == ["dear and large", "cheap", "cheap and used", "dear"]


def test_only_as_many_go_as_are_wanted() -> None:
    known = [entry(f"{number}", float(number), 100) for number in range(1, 10)]
    assert [one.key for one in victims(known, 250, 0)] == ["1", "2", "3"]
    assert [one.key for one in victims(known, 0, 2)] == ["1", "2"]
    assert victims(known, 0, 0) == []
    assert len(victims(known, 1 << 40, 1)) == 9


def test_worth_halves_with_every_half_day_without_a_use() -> None:
    for times in (0.5, 1.0, 3.0, 10.0):
        older, newer = entry("older", 2.0**times, 100, age=times * HALF_DAY), entry("newer", 1.0, 100)
        assert older.priority == pytest.approx(newer.priority, abs=1e-6)
        assert entry("a little dearer", 2.0**times * 1.01, 100, age=times * HALF_DAY).priority > newer.priority


def test_four_uses_are_worth_twice_as_much_as_one() -> None:
    assert entry("four", 1.0, 100, uses=4).priority == pytest.approx(entry("one", 2.0, 100).priority)


def test_within_a_start_it_is_worth_that_counts() -> None:
    """An hour's difference of age is worth six per cent: a program's own start does not push out what it needs."""
    assert entry("dear", 1.07, 100, age=3600.0).priority > entry("just now", 1.0, 100).priority


def test_a_scan_of_one_offs_does_not_flush_what_is_used() -> None:
    working = [entry(f"working {number}", 1.0, 1000, uses=10, age=HALF_DAY) for number in range(10)]
    scan = [entry(f"one-off {number}", 1.0, 1000, age=number * 60.0) for number in range(1000)]
    gone = {one.key for one in victims([*working, *scan], 1000 * 1000, 0)}
    assert not gone & {one.key for one in working}


@given(st.floats(0, 4e9), st.floats(0, 1e9), st.integers(0, 1 << 30), st.integers(0, 1 << 50))
def test_priorities_are_numbers(used: float, seconds: float, uses: int, size: int) -> None:
    assert math.isfinite(priority(used, seconds, uses, size))


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 1 << 40), st.integers(0, 10**6)), max_size=30),
    st.integers(-5, 1 << 42),
    st.integers(-5, 40),
)
def test_victims_are_enough_and_no_more_and_the_least_worth(
    rows: list[tuple[float, int, int]], size: int, entries: int
) -> None:
    known = [entry(f"{index:064x}", *row) for index, row in enumerate(rows)]
    chosen = victims(known, size, entries)
    kept = [one for one in known if one not in chosen]
    assert max((one.priority for one in chosen), default=-math.inf) <= min(
        (one.priority for one in kept), default=math.inf
    )
    enough = sum(one.size for one in chosen) >= size and len(chosen) >= entries
    assert enough or not kept
    if chosen:
        before = chosen[:-1]
        assert sum(one.size for one in before) < size or len(before) < entries
