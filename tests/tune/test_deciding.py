"""Verdicts: what they say of samples that are made here, and how often they are wrong over thousands of trials."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewarm.tunables.deciding import compare, drift, fewest_rounds, is_noisy, speed_up, spread


def rounds_of(rng: random.Random, ratio: float, count: int, kind: str) -> tuple[list[float], list[float]]:
    """Samples of a candidate that takes `ratio` times the default's seconds, measured in shuffled order."""
    seconds: tuple[list[float], list[float]] = ([], [])
    level = 1.0
    for _ in range(count):
        drifted = rng.gauss(0, 0.03) if kind == "drift" else 0.0
        level *= math.exp(drifted)
        order = [0, 1]
        rng.shuffle(order)
        for which in order:
            # The processor slows down within the round, too: who is second pays, and that is shuffled.
            level *= math.exp(drifted / 4)
            seconds[which].append((ratio if which == 0 else 1.0) * level * _noise(rng, kind))
    return seconds


def _noise(rng: random.Random, kind: str) -> float:
    if kind == "tails":  # one sample in seven is hit by something of a Pareto tail without a mean
        return math.exp(rng.gauss(0, 0.02)) * (rng.paretovariate(0.9) if rng.random() < 0.15 else 1.0)
    if kind == "two states":  # two frequencies, which any sample may meet
        return math.exp(rng.gauss(0, 0.01)) * rng.choice((1.0, 1.3))
    return math.exp(rng.gauss(0, 0.05))


@pytest.mark.parametrize("kind", ["plain", "tails", "drift", "two states"])
def test_faster_is_said_wrongly_less_often_than_stated(kind: str) -> None:
    # Four candidates that are all exactly as fast as the default, looked at four times while the samples grow.
    rng, sessions, wrong = random.Random(20), 2500, 0
    looks = (8, 16, 24, 40)
    for _ in range(sessions):
        samples = [rounds_of(rng, 1.0, looks[-1], kind) for _ in range(4)]
        verdicts = {
            compare(
                candidate[:count], default[:count], confidence=0.9, looks=len(looks), candidates=4, effect=0.0
            ).verdict
            for candidate, default in samples
            for count in looks
        }
        wrong += "faster" in verdicts
    # 10 % is promised; three standard errors of 2,500 trials are 1.8 %.
    assert wrong / sessions < 0.118


@pytest.mark.parametrize("kind", ["plain", "tails", "drift", "two states"])
def test_what_is_faster_is_found_and_the_interval_holds_the_truth(kind: str) -> None:
    rng = random.Random(21)
    found = [compare(*rounds_of(rng, 1 / 1.2, 60, kind), looks=4, candidates=8) for _ in range(300)]
    assert sum(one.verdict == "faster" for one in found) > 0.8 * len(found) or kind == "two states"
    assert sum(one.low <= 1.2 <= one.high for one in found) > 0.95 * len(found)
    assert not any(one.verdict == "slower" for one in found)


def test_a_slower_candidate_never_wins() -> None:
    rng = random.Random(22)
    verdicts = [
        compare(*rounds_of(rng, 1.02, count, kind), candidates=4).verdict
        for kind in ("plain", "tails", "drift", "two states")
        for count in (10, 30, 100)
        for _ in range(100)
    ]
    assert verdicts.count("faster") <= 0.01 * len(verdicts)


def test_two_that_are_equal_are_called_the_same_once_it_is_clear() -> None:
    rng = random.Random(23)
    seconds = [1 + rng.gauss(0, 0.002) for _ in range(100)]
    assert compare(seconds, [1 + rng.gauss(0, 0.002) for _ in range(100)]).verdict == "same"
    assert compare(seconds[:4], seconds[:4]).verdict == "undecided"


def test_what_is_below_the_smallest_effect_or_the_clock_is_not_faster() -> None:
    default, candidate = [1.0] * 50, [0.995] * 50
    assert compare(candidate, default).verdict == "same"
    assert compare(candidate, default, effect=0.001).verdict == "faster"
    assert compare([0.5] * 50, default).verdict == "faster"
    assert compare([0.5] * 50, default, resolution=0.5).verdict != "faster"


def test_what_is_fast_only_at_first_does_not_win() -> None:
    cold = [0.5] * 65 + [1.2] * 35
    assert compare(cold, [1.0] * 100).verdict == "undecided"
    assert compare(cold, [1.0] * 100).low > 1.9
    assert compare([2.0] * 65 + [0.9] * 35, [1.0] * 100).verdict == "undecided"


def test_numbers_are_speed_ups() -> None:
    found = compare([0.5] * 30, [1.0] * 30)
    assert (found.ratio, found.low, found.high, found.verdict, found.rounds) == (2.0, 2.0, 2.0, "faster", 30)
    assert str(found) == "faster: 2.000 times as fast as the default (2.000 to 2.000 at 0.95, 30 rounds)"
    assert speed_up([0.5, 0.5, 9.0], [1.0, 1.0, 1.0]) == 2.0


def test_with_fewer_rounds_than_the_fewest_nothing_is_decided() -> None:
    for looks, candidates in ((1, 1), (4, 1), (4, 64)):
        fewest = fewest_rounds(looks=looks, candidates=candidates)
        counts = {"looks": looks, "candidates": candidates}
        assert compare([0.5] * (fewest - 1), [1.0] * (fewest - 1), **counts).verdict == "undecided"
        assert compare([0.5] * fewest, [1.0] * fewest, **counts).verdict == "faster"


@pytest.mark.parametrize("bad", [[], [0.0], [-1.0], [math.inf], [math.nan]])
def test_what_is_no_sample_is_an_error(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="samples of one round at least"):
        compare(bad, [1.0] * len(bad))


SECONDS = st.floats(1e-9, 1e3)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=80), st.floats(0.5, 0.999), st.integers(1, 50))
def test_intervals_hold_the_median_are_finite_and_mirror(pairs: list[tuple[float, float]], sure: float, n: int) -> None:
    one, other = zip(*pairs, strict=True)
    found = compare(one, other, confidence=sure, candidates=n)
    assert found.low <= found.ratio * (1 + 1e-9)
    assert found.ratio <= found.high * (1 + 1e-9)
    json.dumps([found.ratio, found.low, found.high], allow_nan=False)
    turned = compare(other, one, confidence=sure, candidates=n)
    assert turned.low == pytest.approx(1 / found.high)
    mirror = {"faster": "slower", "slower": "faster"}
    assert turned.verdict == mirror.get(found.verdict, found.verdict)


def test_noisy_sessions_are_named() -> None:
    rng = random.Random(24)
    quiet = [1 + rng.gauss(0, 0.01) for _ in range(60)]
    assert is_noisy(quiet, others=0.05, frequencies=[3.0, 3.1], stolen=0.0) == ()
    drifting = [one * (1 + number / 200) for number, one in enumerate(quiet)]
    assert is_noisy(drifting)[0].startswith("noisy (drift): the default drifted")
    assert is_noisy([rng.uniform(1, 2) for _ in range(60)])[-1].startswith("noisy (spread): the default's rounds lie")
    words = is_noisy(quiet, others=0.5, frequencies=[2.0, 3.0], stolen=0.1)
    assert [one.split(":")[0] for one in words] == ["noisy (others)", "noisy (frequency)", "noisy (stolen)"]
    assert words[0] == "noisy (others): other processes took processor time, 50.0% where 20% is borne"


def test_of_too_little_nothing_is_said() -> None:
    assert is_noisy([]) == is_noisy([1.0]) == ()
    assert drift([1.0, 9.0]) == 0.0
    assert spread([1.0]) == 0.0
