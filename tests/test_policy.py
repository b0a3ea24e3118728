"""What is stored: both thresholds are inclusive, and the bound is on one entry."""

from __future__ import annotations

import math

import pytest

from rewarm.policy import TOO_LARGE, TOO_QUICK, TOO_SMALL, Thresholds, refuse_by_size, refuse_by_time


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
