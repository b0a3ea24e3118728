"""Records: one text for each, strict reading, and the rule by which several become one."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tune_world import DEFAULT, FASTER, WHEN, a_case, a_record, a_trial, digest

from conftest import clean_environment
from rewarm.errors import BadEntryError
from rewarm.tunables.merging import is_decided, merged
from rewarm.tunables.records import MOST_SAMPLES, Case, Comparison, Record, Trial, read

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def test_the_golden_record_is_read_and_written_as_it_was() -> None:
    data = (GOLDEN / "tuned-record-v1.json").read_bytes().removesuffix(b"\n")
    record = read(data)
    assert record.data == data
    made = [sys.executable, "-c", "import make_tuned, sys; sys.stdout.write(make_tuned.RECORD.text)"]
    assert subprocess.check_output(made, cwd=GOLDEN, env=clean_environment()) == data
    assert record.case.key == "1c59c67e8327a9bfccbf70fee0ad4bb5865a94bc212259c2b9f4f1aa5a17963a"
    assert record.winner == {"block": 64}
    assert record.trials[0].outcome == "hung" or record.best_known({"block": 128}) is not None
    assert record.ratio == 1.5


def test_every_component_of_a_case_makes_another_key() -> None:
    cases = [
        a_case(),
        a_case("f32[1024,513]"),
        a_case(kernel="kernels:other"),
        *(a_case(**{name: "changed"}) for name in ("content", "target", "toolchain", "libraries")),
    ]
    assert len({one.key for one in cases}) == len(cases)
    assert a_case().key == a_case().key
    assert a_case().here == a_case("f32[7]").here


@pytest.mark.parametrize(
    "wrong",
    [{"kernel": ""}, {"content": "abc"}, {"target": "X" * 64}, {"arguments": "x" * 99_999}],
)
def test_what_can_be_no_case_is_an_error(wrong: dict[str, str]) -> None:
    digests = {name: digest(name) for name in ("content", "target", "toolchain", "libraries")}
    good = {"kernel": "m:f", "arguments": "", **digests}
    Case(**good)
    with pytest.raises(ValueError, match=r"has a name|hexadecimal"):
        Case(**{**good, **wrong})


def test_a_trial_is_bounded_and_knows_when_to_be_tried_again() -> None:
    assert len(a_trial(seconds=(0.1,) * 1000).seconds) == MOST_SAMPLES
    bad = a_trial(outcome="crashed", seconds=(), expires=WHEN + 10)
    assert bad.is_bad(WHEN)
    assert not bad.is_bad(WHEN + 10)
    assert not a_trial(expires=WHEN + 10).is_bad(WHEN)
    for wrong in ({"outcome": "fine"}, {"seconds": (float("nan"),)}, {"when": -1.0}):
        with pytest.raises(ValueError, match=r"Outcome|finite"):
            a_trial(**wrong)


def test_ratio_is_one_where_the_default_stays() -> None:
    assert a_record().ratio == 1.5
    assert a_record(winner=DEFAULT).ratio == 1.0
    assert a_record(comparison=None).ratio == 1.0
    assert not is_decided(a_record(comparison=None))


def test_order_of_trials_is_no_part_of_a_record() -> None:
    one = a_record()
    other = a_record(trials=tuple(reversed(one.trials)))
    assert one == other
    assert hash(one) == hash(other)


# -- reading what anybody may have written -----------------------------------------------------------------------


def _paths(told: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    return [path, *itertools.chain.from_iterable(_paths(value, (*path, name)) for name, value in inner)]


TOLD = json.loads(a_record(flags=("noisy",)).text)


@pytest.mark.parametrize("bad", [None, 3, -1, "x", [], {}, [[]], {"a": []}, True, 1e400, "x" * 20000])
@pytest.mark.parametrize("path", _paths(TOLD))
def test_no_change_of_any_value_is_more_than_a_broken_record(path: tuple[Any, ...], bad: Any) -> None:
    told = json.loads(a_record(flags=("noisy",)).text)
    at: Any = told
    for name in path[:-1]:
        at = at[name]
    if path:
        at[path[-1]] = bad
    else:
        told = bad
    try:
        found = read(json.dumps(told).encode())
    except BadEntryError:
        return
    assert isinstance(found, Record)
    assert read(found.data) == found


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_a_broken_record(data: bytes) -> None:
    with pytest.raises(BadEntryError):
        read(data)


def test_another_version_is_named() -> None:
    with pytest.raises(BadEntryError, match="version 2, this rewarm reads 1"):
        read(json.dumps({**TOLD, "version": 2}).encode())
    with pytest.raises(BadEntryError, match="not in the known form"):
        read(b"[" * 100000)


# -- merging -----------------------------------------------------------------------------------------------------

TRIALS = st.builds(
    a_trial,
    st.sampled_from([32, 64, 128]),
    st.sampled_from([(0.1,), (0.2, 0.3), ()]),
    outcome=st.sampled_from(["timed", "crashed", "noisy"]),
    when=st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
)
RECORDS = st.builds(
    a_record,
    st.just(a_case()),
    st.sampled_from([{"block": 32}, {"block": 64}]),
    trials=st.lists(TRIALS, max_size=12).map(tuple),
    comparison=st.sampled_from([None, FASTER, Comparison(0.9, 0.8, 1.1, "undecided")]),
    flags=st.sampled_from([(), ("noisy (drift)",), ("not isolated",)]),
    when=st.sampled_from([1.0, 2.0, 3.0]),
)


@settings(max_examples=300)
@given(st.lists(RECORDS, min_size=1, max_size=5), st.randoms(use_true_random=False), st.data())
def test_merging_knows_no_order_and_no_grouping(found: list[Record], rng: Any, data: Any) -> None:
    whole = merged(found)
    shuffled = list(found)
    rng.shuffle(shuffled)
    assert merged(shuffled) == whole
    assert merged([*found, whole]) == whole
    assert merged([whole]) == whole
    cut = data.draw(st.integers(0, len(found)))
    parts = [merged(part) for part in (shuffled[:cut], shuffled[cut:]) if part]
    assert merged(parts) == whole
    assert read(whole.data) == whole


def test_a_final_comparison_counts_more_than_a_later_time_and_quiet_more_than_noisy() -> None:
    decided = a_record(when=1.0)
    begun = a_record(winner={"block": 128}, comparison=None, when=9.0)
    noisy = a_record(winner={"block": 128}, flags=("noisy (drift): ...",), when=9.0)
    newer = a_record(winner={"block": 256}, when=2.0)
    assert merged([begun, decided]).winner == {"block": 64}
    assert merged([noisy, decided]).winner == {"block": 64}
    assert merged([decided, newer]).winner == {"block": 256}
    assert is_decided(merged([begun, decided, noisy]))


def test_trials_are_united_and_the_newest_of_each_candidate_stay() -> None:
    many = [a_record(trials=(a_trial(when=float(when)), a_trial(128, when=float(when)))) for when in range(9)]
    found = merged(many)
    assert sorted(one.when for one in found.trials if one.config["block"] == 128) == [5.0, 6.0, 7.0, 8.0]
    assert found.best_known({"block": 64}).when == 8.0  # type: ignore[union-attr]


def test_records_of_two_cases_are_not_merged() -> None:
    with pytest.raises(ValueError, match="one case"):
        merged([a_record(), a_record(a_case("f32[1]"))])
    with pytest.raises(ValueError, match="at least one"):
        merged([])


def test_a_trial_may_be_of_any_scalars() -> None:
    trial = Trial({"a": 1, "b": True, "c": None, "d": "x", "e": 0.5}, "timed", (1.0,))
    assert read(a_record(trials=(trial,)).data).trials == (trial,)
