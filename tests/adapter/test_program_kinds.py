"""Each kind of program, cold and warm in fresh processes: the warm one compiles nothing and gives the same bits."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import clean_environment, execute

pytestmark = pytest.mark.contract

_PROGRAM = Path(__file__).with_name("kinds.py")
_KINDS = [
    "jit",
    "grad",
    "grad_of_jit",
    "vmap",
    "sharded",
    "propagated",
    "shard_map",
    "pmap",
    "constants",
    "donated",
    "prng",
    "ahead_of_time",
    "linear_algebra",
    "control_flow",
    "other_device",
    "pure_callback",
    "io_callback",
    "buffer_callback",
    "debug_print",
    "does_not_compile",
    "threads",
]


@dataclass(frozen=True)
class Pair:
    """What the program told: without the cache, cold, warm, and warm with another callback."""

    without: dict[str, Any]
    cold: dict[str, Any]
    warm: dict[str, Any]
    other_callback: dict[str, Any]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("kinds")
    on = {"REWARM_DIR": str(folder / "cache")}
    runs = []
    for extra in ({}, on, on, {**on, "FACTOR": "20"}):
        done = execute([sys.executable, str(_PROGRAM)], env=clean_environment(**extra), cwd=folder)
        assert done.code == 0, done.err[-4000:]
        runs.append(done.json)
    return Pair(*runs)


def test_the_list_is_the_program(pair: Pair) -> None:
    assert list(pair.cold) == _KINDS


@pytest.mark.parametrize("kind", _KINDS)
def test_warm_compiles_nothing(pair: Pair, kind: str) -> None:
    events = pair.warm[kind]["events"]
    if kind == "does_not_compile":
        assert [event["outcome"] for event in events] == ["miss"]
        return
    assert {event["outcome"] for event in events} == ({"hit"} if events else set())


@pytest.mark.parametrize("kind", _KINDS)
def test_bits_are_those_without_the_cache(pair: Pair, kind: str) -> None:
    digests = {told[kind]["digest"] for told in (pair.without, pair.cold, pair.warm)}
    assert len(digests) == 1


@pytest.mark.parametrize("kind", _KINDS)
def test_cold_and_warm_ask_for_the_same_keys(pair: Pair, kind: str) -> None:
    keys = [{event["key"] for event in told[kind]["events"]} for told in (pair.cold, pair.warm)]
    assert keys[0] == keys[1]
    assert keys[0]


def test_which_equal_device_a_program_sits_on_does_not_count(pair: Pair) -> None:
    events = [event for event in pair.cold["other_device"]["events"] if event["program"] == "jit_placed"]
    assert [event["outcome"] for event in events] == ["miss", "hit"]


def test_a_loaded_program_calls_the_new_process_own_callback(pair: Pair) -> None:
    assert pair.other_callback["pure_callback"]["digest"] != pair.warm["pure_callback"]["digest"]
    assert {event["outcome"] for event in pair.other_callback["pure_callback"]["events"]} == {"hit"}


def test_threads_compile_one_key_once(pair: Pair) -> None:
    events = [event for event in pair.cold["threads"]["events"] if event["program"] == "jit_same"]
    assert len(events) == 8
    assert len({event["key"] for event in events}) == 1
    assert [event["outcome"] for event in events].count("miss") == 1


def test_a_program_that_does_not_compile_raises_as_without_the_cache(pair: Pair) -> None:
    event = pair.cold["does_not_compile"]["events"][0]
    assert (event["stored"], event["not_stored"]) == (False, "it does not compile")
