"""How complete an executable's tuning was, and when that is not good enough any more."""

from __future__ import annotations

from typing import Any

import pytest

from rewarm.autotune import states
from rewarm.autotune.states import Conditions, State


@pytest.mark.parametrize(
    ("how", "state"),
    [
        (Conditions(attached=True), State.COMPLETE),
        (Conditions(attached=True, tunes=False), State.INCOMPLETE),
        (Conditions(attached=True, writes=False), State.INCOMPLETE),
        (Conditions(attached=True, tunes=False, obeys=False), State.DETERMINISTIC),
        (Conditions(attached=True, tunes=False, obeys=False, required=True), State.COMPLETE),
        (Conditions(attached=False, tunes=False, obeys=False), State.DETERMINISTIC),
        (Conditions(attached=False, tunes=False, obeys=False, missing=("a",)), State.DETERMINISTIC),
        (Conditions(attached=False, tunes=False, obeys=False, missing=()), State.COMPLETE),
        (Conditions(attached=True, tunes=False, obeys=False, own=True), State.NONE),
        (Conditions(attached=True, tunes=False, required=True), State.COMPLETE),
        (Conditions(attached=False), State.UNKNOWN),
        (Conditions(attached=False, required=True), State.COMPLETE),
        (Conditions(attached=False, missing=()), State.COMPLETE),
        (Conditions(attached=False, missing=("a",)), State.INCOMPLETE),
        (Conditions(attached=True, own=True), State.NONE),
        (Conditions(attached=False, own=True, required=True), State.NONE),
    ],
)
def test_a_state_follows_from_how_it_was_compiled(how: Conditions, state: State) -> None:
    assert states.state_of(how) is state
    told = states.record(how, "d", 3, 1, "a place")
    assert (told["state"], told["set"], told["entries"], told["new"], told["place"]) == (state, "d", 3, 1, "a place")


@pytest.mark.parametrize(
    ("options", "tunes"),
    [
        ({"xla_gpu_autotune_level": 4}, True),
        ({"xla_gpu_autotune_level": 0}, False),
        ({}, False),
        ({"xla_gpu_autotune_level": 4, "xla_gpu_deterministic_ops": True}, False),
        ({"xla_gpu_autotune_level": 4, "xla_gpu_exclude_nondeterministic_ops": True}, False),
        ({"xla_gpu_autotune_level": 4, "xla_gpu_deterministic_ops": False}, True),
    ],
)
def test_xla_times_nothing_where_it_must_be_deterministic(options: dict[str, Any], tunes: bool) -> None:
    assert states.tunes(options) is tunes


@pytest.mark.parametrize(
    ("jax", "obeys"),
    [("0.9.2", True), ("0.10.2", True), ("0.11.2", False), ("0.12.0.1", False), ("1.0", False), ("", False)],
)
def test_which_builds_take_results_where_they_must_be_deterministic(jax: str, obeys: bool) -> None:
    assert states.obeys({"xla_gpu_deterministic_ops": True}, jax) is obeys
    assert states.obeys({"xla_gpu_exclude_nondeterministic_ops": True}, jax) is obeys
    assert states.obeys({"xla_gpu_autotune_level": 0}, jax)


LACKS = {"state": "incomplete", "set": "one", "entries": 2, "missing": ["c", "d"]}
DOES_NOT_SAY = {"state": "unknown", "set": "one", "entries": 2}


@pytest.mark.parametrize(
    ("tuning", "digest", "present", "outdated"),
    [
        (LACKS, "one", "ab", False),
        (LACKS, "two", "abc", False),  # one of two is still missing
        (LACKS, "two", "cd", True),
        (LACKS, "two", "abcdef", True),
        (DOES_NOT_SAY, "one", "ab", False),
        (DOES_NOT_SAY, "two", "abc", True),
        (DOES_NOT_SAY, "two", "ab", False),  # another set, and no larger
        (DOES_NOT_SAY, "two", "", False),
        ({**DOES_NOT_SAY, "state": "incomplete"}, "two", "abc", True),
        ({**DOES_NOT_SAY, "state": "complete"}, "two", "abc", False),
        ({**DOES_NOT_SAY, "state": "none"}, "two", "abc", False),
        ({**DOES_NOT_SAY, "state": "deterministic"}, "two", "abc", False),
        ({**LACKS, "state": "deterministic"}, "two", "cd", False),
        (None, "two", "abc", False),
        ({}, "two", "abc", False),
    ],
)
def test_an_executable_is_outdated_where_complete_tuning_is_at_hand(
    tuning: dict[str, Any] | None, digest: str, present: str, outdated: bool
) -> None:
    assert (states.is_outdated(tuning, digest, frozenset(present)) is not None) is outdated


@pytest.mark.parametrize(
    "tuning",
    [
        {"state": 3},
        {"state": ["complete"]},
        {"state": "Complete"},
        {"state": "incomplete", "missing": 3, "entries": "many"},
        {"state": "incomplete", "missing": [{}, []], "entries": None},
        {"state": "unknown", "set": [], "entries": 1.5},
    ],
)
def test_what_anybody_wrote_into_a_header_does_no_harm(tuning: dict[str, Any]) -> None:
    assert states.is_outdated(tuning, "d", frozenset("ab")) is None
    assert states.state_said(tuning) in {*State, states.UNSAID}


def test_headers_are_counted_by_state() -> None:
    found = states.counts([{"state": "complete"}, {"state": "complete"}, {"state": "x"}, None])
    assert found == {"complete": 2, "incomplete": 0, "deterministic": 0, "unknown": 0, "none": 0, "unsaid": 2}


def test_a_long_list_of_what_was_missing_is_cut_and_then_only_the_set_counts() -> None:
    how = Conditions(attached=False, missing=tuple(f"{number:03}" for number in range(1000)))
    told = states.record(how, "one", 2, 0)
    assert len(told["missing"]) == 256
    assert states.is_outdated(told, "two", frozenset(told["missing"])) is not None
    assert states.is_outdated(told, "one", frozenset(told["missing"])) is None
