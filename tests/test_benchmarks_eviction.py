"""Comparing eviction rules: the replay does what the policy says, the traces are whole, the page is right.

The traces made here are synthetic: each is one thing that least recently used does badly. What docs/eviction.md says
is about the recorded ones.
"""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
_traces = importlib.import_module("_traces")
eviction = importlib.import_module("eviction")

MIB = 1 << 20
RECORDED = sorted((BENCHMARKS / "traces").glob("*.jsonl"))


def entry(name: int, *, mib: float = 1.0, seconds: float = 1.0) -> Any:
    return _traces.Entry(f"{name:012x}", int(mib * MIB), seconds)


def trace(starts: Iterable[Iterable[Any]]) -> Any:
    return _traces.Trace("synthetic", tuple(_traces.Start("", tuple(asks)) for asks in starts), {"what": ""})


def saved(of: Any, bound: int) -> dict[str, float]:
    return {name: eviction.replay(of, rule, bound).saved for name, rule in eviction.rules(of).items()}


# -- the recorded traces ------------------------------------------------------------------------------------------


def test_there_are_traces_of_several_kinds_of_use_and_they_are_small() -> None:
    assert {path.stem for path in RECORDED} >= {
        "training", "inference", "robotics", "integration", "sweep", "notebooks", "month",
    }  # fmt: skip
    assert sum(path.stat().st_size for path in RECORDED) < 300_000


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_trace_is_whole(path: Path) -> None:
    header = json.loads(path.read_text(encoding="ascii").splitlines()[0])
    loaded = _traces.load(path)
    assert (header["trace"], header["starts"]) == (path.stem, len(loaded.starts))
    assert (header["entries"], header["bytes"]) == (len(loaded.entries), loaded.footprint)
    assert header["seconds"] == pytest.approx(sum(one.seconds for one in loaded.entries.values()), abs=1e-2)
    assert {"jax", "jaxlib", "rewarm"} <= set(header["versions"])
    assert not re.search(r"/(home|root|tmp|work)\b", path.read_text(encoding="ascii"))
    for start in loaded.starts:
        keys = [one.key for one in start.asks]
        assert len(set(keys)) == len(keys) > 0
    for one in loaded.entries.values():
        assert re.fullmatch("[0-9a-f]{12}", one.key)
        assert one.size > 0
        assert one.seconds > 0


# The bounds, in per cent, at which rewarm saves less than LRU by more than 0.5 %; docs/eviction.md has the figures.
LOSES_AT = {"integration": [70], "robotics": [10, 20, 30], "sweep": [5, 50, 70], "training": [20, 30, 50, 70]}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_rewarm_saves_what_lru_saves_except_where_the_page_says(path: Path) -> None:
    loaded = _traces.load(path)
    lost = [round(100 * fraction) for fraction, by in eviction.compare(loaded).items() if eviction.loses(by)]
    assert lost == LOSES_AT.get(path.stem, [])


def test_over_all_recorded_traces_rewarm_saves_more_than_the_others_at_every_bound() -> None:
    """`month` is left out of the sum, since it would count the others twice, and looked at by itself."""
    compared = {path.stem: eviction.compare(_traces.load(path)) for path in RECORDED}
    month = {"month": compared.pop("month")}
    for together in (compared, month):
        sums = eviction.together(together)
        assert not eviction.losses("", sums)
        for by in sums.values():
            assert by["rewarm"].saved > max(by["LRU"].saved, by["JAX"].saved) * (1 - eviction.ROUNDING)


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = trace([[entry(1), entry(2, seconds=0.25)], [entry(2, seconds=0.25), entry(3), entry(1)], []])
    path = _traces.save(written, tmp_path)
    assert _traces.load(path).starts == written.starts
    assert len(path.read_text(encoding="ascii").splitlines()) == 4
    with pytest.raises(ValueError, match="no trace of version 1"):
        _traces.load(_rewritten(path))


def _rewritten(path: Path) -> Path:
    path.write_text(path.read_text(encoding="ascii").replace('"version": 1', '"version": 2'), encoding="ascii")
    return path


# -- the replay ---------------------------------------------------------------------------------------------------


def keys_kept(of: Any, rule: Any, bound: int) -> set[str]:
    """What the rule would let go, if all had to."""
    eviction.replay(of, rule, bound)
    return set(rule.evict(1 << 60))


def test_the_replay_agrees_with_the_policy_worked_out_by_hand() -> None:
    # Room for three of 1 MiB, so a priority is log2(sqrt(uses) * seconds), and 1/24 more for each start, which are half
    # an hour apart. 4 evicts 2, which spares least; 5 evicts 3; 6 evicts 5.
    one, two, three = entry(1, seconds=5.0), entry(2, seconds=3.0), entry(3, seconds=4.0)
    four, five, six = entry(4, seconds=5.0), entry(5, seconds=1.0), entry(6, seconds=0.5)
    of = trace([[one, two, three], [one, four], [five], [six]])
    rule = eviction.Worth()
    eviction.replay(of, rule, 3 * MIB)
    assert {key: used.priority for key, used in rule._known.items()} == pytest.approx(
        {one.key: 1 / 24 + math.log2(5) + 0.5, four.key: 1 / 24 + math.log2(5), six.key: 3 / 24 - 1.0}
    )


def test_uses_within_ten_minutes_count_once() -> None:
    rule = eviction.Worth()
    rule.stored(entry(1))
    for minutes, uses in [(9.9, 1), (10, 2), (19, 2), (20, 3)]:
        rule.now = eviction.Moment(0, minutes * 60)
        rule.used(entry(1))
        assert rule._known[entry(1).key].uses == uses


def test_lru_evicts_in_the_order_of_use_and_jax_stores_nothing_quick() -> None:
    of = trace([[entry(1), entry(2), entry(3)], [entry(1), entry(4)]])
    assert keys_kept(of, eviction.LeastRecentlyUsed(), 3 * MIB) == {entry(n).key for n in (1, 3, 4)}
    mixed = trace([[entry(1, seconds=0.999), entry(2, seconds=1.0)]])
    assert keys_kept(mixed, eviction.LeastRecentlyUsed(eviction.JAX_THRESHOLD), 3 * MIB) == {entry(2).key}


@st.composite
def traces(draw: st.DrawFn) -> Any:
    known = [
        entry(name, mib=draw(st.sampled_from([0.25, 1.0, 4.0])), seconds=draw(st.sampled_from([0.01, 0.5, 3.0])))
        for name in range(draw(st.integers(1, 12)))
    ]
    starts = st.lists(st.lists(st.sampled_from(known), unique=True, max_size=8), min_size=1, max_size=12)
    return trace(draw(starts))


@settings(deadline=None)
@given(traces(), st.floats(0.05, 1.0))
def test_no_rule_holds_more_than_the_bound_or_saves_more_than_there_is(of: Any, fraction: float) -> None:
    bound = eviction.bound_of(of, fraction)
    sizes = {key: one.size for key, one in of.entries.items()}
    for rule in eviction.rules(of).values():
        outcome = eviction.replay(of, rule, bound)
        assert outcome.saved <= eviction.saveable(of) + 1e-9
        assert sum(sizes[key] for key in rule.evict(1 << 60) if key) <= bound


@settings(deadline=None)
@given(traces())
def test_with_room_for_all_every_rule_saves_all(of: Any) -> None:
    everything = pytest.approx(eviction.saveable(of))
    by = saved(of, of.footprint)
    assert (by["LRU"], by["rewarm"], by["foresight"]) == (everything, everything, everything)


# -- synthetic traces ---------------------------------------------------------------------------------------------


def scanned(uses: int) -> Any:
    """A working set of ten, used so often before scans of 20 one-offs that are worth as much, and after each."""
    working = [entry(name, seconds=3.0) for name in range(10)]
    names = iter(range(1000, 10_000))
    scans = [[entry(next(names), seconds=3.0) for _ in range(20)] for _ in range(10)]
    return trace([working] * uses + [asks for scan in scans for asks in (scan, working)])


@pytest.mark.parametrize("uses", [2, 3, 10])
def test_a_scan_of_one_offs_does_not_flush_a_working_set_that_was_used_before(uses: int) -> None:
    of = scanned(uses)
    by = saved(of, 15 * MIB)
    assert by["LRU"] <= 0.5 * eviction.saveable(of)
    assert by["rewarm"] == pytest.approx(eviction.saveable(of))


def test_a_working_set_above_the_bound_hits_for_its_dearest_part() -> None:
    working = [entry(name, seconds=0.5 + name) for name in range(22)]
    of = trace([working] * 20)
    by = saved(of, 20 * MIB)
    assert by["LRU"] == 0.0
    assert by["rewarm"] >= 0.95 * eviction.saveable(of)


def test_a_flood_of_cheap_entries_pushes_out_no_dear_one() -> None:
    dear = [entry(name, seconds=10.0) for name in range(8)]
    cheap = iter(range(1000, 100_000))
    starts = [dear]
    for _ in range(20):
        starts += [[entry(next(cheap), mib=0.25, seconds=0.02) for _ in range(100)], dear]
    of = trace(starts)
    by = saved(of, 10 * MIB)
    assert by["LRU"] == 0.0
    assert by["rewarm"] == pytest.approx(eviction.saveable(of))
