"""What is timed next: all of a small space, and the better part of a large one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from rewarm.tunables.optimising import MissingOptimiserError, Optuna
from rewarm.tunables.searching import WHOLE, Search
from rewarm.tunables.spaces import Config, Range, Space, canonical

SMALL = Space.of({"a": [1, 2, 3], "b": [1, 2]}, {"a": 2, "b": 1})
LARGE = Space.of(
    {"block_m": Range(8, 1024, log=2), "block_n": Range(8, 1024, log=2), "warps": [1, 2, 4, 8], "stages": Range(1, 6)},
    {"block_m": 64, "block_n": 64, "warps": 4, "stages": 2},
    lambda block_m, block_n: block_m * block_n <= 1 << 16,
)


def cost(config: Config) -> float:
    """Least at block_m=256, block_n=128, warps=8, stages=3; the default's is 1."""
    said: Any = config
    away = abs(math.log2(said["block_m"] / 256)) + abs(math.log2(said["block_n"] / 128))
    return (1 + away / 3 + abs(math.log2(said["warps"] / 8)) / 4 + abs(said["stages"] - 3) / 5) / 2.35


def run(search: Search, score: Callable[[Config], float | None], spent: float = 0.0) -> list[list[Config]]:
    batches = []
    while batch := search.ask(spent):
        batches.append(batch)
        for one in batch:
            search.tell(one, score(one))
        assert len(batches) < 1000
    return batches


def test_a_small_space_is_tried_whole_and_the_default_is_not_asked_for() -> None:
    search = Search(SMALL)
    (batch,) = run(search, lambda one: 1.0 / float(one["a"]))  # type: ignore[arg-type]
    assert search.is_whole
    assert search.ended_by == "all tried"
    assert len(batch) == 5 == search.asked
    assert SMALL.default not in batch
    assert search.best[0]["a"] == 3
    assert len(search.best) == 6


def test_what_is_known_is_not_timed_again_and_counts() -> None:
    known = {canonical({"a": 3, "b": 2}): 0.1, canonical({"a": 9, "b": 9}): 0.01}
    search = Search(SMALL, known=known, bad=[{"a": 1, "b": 1}])
    (batch,) = run(search, lambda _: 0.5)
    assert batch == [{"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 3, "b": 1}]
    assert search.best[0] == {"a": 3, "b": 2}
    assert {"a": 1, "b": 1} not in search.best


def test_a_space_at_the_bound_is_whole_and_one_above_is_not() -> None:
    assert Search(Space.of({"a": Range(1, WHOLE)})).is_whole
    assert not Search(Space.of({"a": Range(1, WHOLE + 1)})).is_whole


def test_a_large_space_is_halved_and_then_refined() -> None:
    search = Search(LARGE, seed=3)
    batches = run(search, cost)
    assert search.ended_by == "no better neighbour"
    assert search.asked < 150 < LARGE.count(10**6)
    assert canonical(search.best[0]) == canonical({"block_m": 256, "block_n": 128, "warps": 8, "stages": 3})
    assert len(batches[1]) == len(batches[0]) // 2
    assert all(one in batches[0] for one in batches[1])
    assert batches == run(Search(LARGE, seed=3), cost)


def test_rounds_double_while_candidates_halve() -> None:
    search = Search(LARGE)
    rounds = []
    while (batch := search.ask()) and len(rounds) < 4:
        rounds.append(search.rounds)
        for one in batch:
            search.tell(one, cost(one))
    assert rounds == [4, 8, 16, 32]


def test_seeds_come_first_with_their_neighbours() -> None:
    seed = {"block_m": 256, "block_n": 64, "warps": 8, "stages": 3}
    search = Search(LARGE, seeds=[seed, {"block_m": 7}, {**seed, "block_m": 1 << 20}])
    first = search.ask()
    assert first[0] == seed
    assert first[1] in LARGE.neighbours(seed)


def test_failures_are_not_asked_for_again_and_do_not_win() -> None:
    search = Search(LARGE, seed=1)
    asked = [
        canonical(one) for batch in run(search, lambda one: None if one["warps"] == 8 else cost(one)) for one in batch
    ]
    failed = [one for one in asked if '"warps":8' in one]
    assert len(failed) == len(set(failed)) > 0
    assert search.best[0]["warps"] == 4
    lost = Search(LARGE)
    run(lost, lambda _: None)
    assert lost.best == [LARGE.default]


def test_budgets_end_a_search() -> None:
    search = Search(LARGE, trials=10)
    assert len({canonical(one) for batch in run(search, cost) for one in batch}) == 10 == search.asked
    assert search.ended_by == "trials"
    assert Search(LARGE, trials=0).ask() == []
    search = Search(LARGE, seconds=60)
    assert len(search.ask(0.0)) == 32
    for one in search._running:
        search.tell(one, cost(one))
    assert search.ask(61.0) == []
    assert search.ended_by == "seconds"


def test_where_time_runs_out_fewer_new_ones_come() -> None:
    search = Search(LARGE, seconds=100)
    for one in search.ask(0.0):
        search.tell(one, None if one["warps"] == 1 else cost(one))
    search._running = []  # as though the halving were over: only new ones come
    assert 0 < len(search.ask(95.0)) <= 2


def test_optuna_says_what_to_try_and_finds_the_good_ones() -> None:
    pytest.importorskip("optuna")
    search = Search(LARGE, proposer=Optuna(LARGE, seed=2), trials=80)
    batches = run(search, lambda one: None if one["stages"] == 6 else cost(one))
    asked = [canonical(one) for batch in batches for one in batch]
    assert 40 < len(asked) == len(set(asked)) <= 80
    assert all(LARGE.broken(one) is None for batch in batches for one in batch)
    assert cost(search.best[0]) < 0.8
    again = run(Search(LARGE, proposer=Optuna(LARGE, seed=2), trials=20), cost)
    assert again == run(Search(LARGE, proposer=Optuna(LARGE, seed=2), trials=20), cost)


def test_optuna_in_a_space_of_labels_ends_when_all_are_tried() -> None:
    pytest.importorskip("optuna")
    space = Space.of({"variant": {str(one): one for one in range(70)}})
    search = Search(space, proposer=Optuna(space))
    run(search, lambda one: 1.0 / (1 + int(str(one["variant"]))))
    assert search.ended_by == "proposer"
    assert search.asked > 40


def test_without_optuna_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingOptimiserError, match=r"pip install 'rewarm\[tune\]'"):
        Optuna(SMALL)


@pytest.mark.parametrize("seed", range(20))
def test_random_answers_always_end(seed: int) -> None:
    rng = random.Random(seed)
    search = Search(LARGE, seed=seed)
    batches = run(search, lambda _: rng.choice((None, rng.random(), 1 + rng.random())))
    assert search.ended_by == "no better neighbour"
    assert sum(map(len, batches)) < 2000
