"""What is worth storing, learnt from what loading costs: entries that load slower than they compile do not stay."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from desk import OPEN, Desk, key_of

from rewarm import policy
from rewarm.ledger import LoadCosts
from rewarm.policy import Thresholds
from rewarm.store import LocalStore

SLOW = 0.03


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "cache")


def slow_load(raw: bytes) -> bytes:
    time.sleep(SLOW)
    return raw.removeprefix(b"serialised ")


def quick_load(raw: bytes) -> bytes:
    return raw.removeprefix(b"serialised ")


def process(store: LocalStore, host: str = "here", thresholds: Thresholds = OPEN) -> Desk:
    """A fresh process that has loaded something already: the first load of a process is never held against an entry."""
    desk = Desk(store, thresholds=thresholds, costs=LoadCosts(store.root, host))
    desk.ask("first")
    desk.again(costs=LoadCosts(store.root, host))
    return desk


def start(store: LocalStore, load: Callable[[bytes], bytes] = slow_load, **settings: object) -> Desk:
    """One start of a program that wants `first`, whose load is quick, and `step`."""
    desk = process(store, **settings)  # type: ignore[arg-type]
    assert desk.ask("step", load=load) == b"STEP"
    return desk


def outcome(desk: Desk) -> tuple[str, bool, str | None]:
    event = desk.last
    return event.outcome, event.dropped, event.not_stored


def test_an_entry_that_is_slow_twice_is_dropped_and_not_stored_again(store: LocalStore) -> None:
    assert outcome(start(store)) == ("miss", False, None)
    assert outcome(start(store)) == ("hit", False, None), "one slow load may be a cold disk"
    second = start(store)
    assert outcome(second) == ("hit", True, None)
    assert second.stats.slow_hits >= 1
    assert second.stats.dropped == 1
    assert store.get(key_of("step")) is None
    assert outcome(start(store)) == ("miss", False, policy.LOADS_SLOWER)
    assert store.get(key_of("step")) is None
    assert store.get(key_of("first")) is not None


def test_an_entry_that_spares_a_trace_as_well_is_no_loss(store: LocalStore) -> None:
    for number in range(4):
        desk = process(store)
        assert desk.ask("step", load=slow_load, spares_trace=True) == b"STEP"
        assert outcome(desk) == ("hit" if number else "miss", False, None)
    assert store.get(key_of("step")) is not None


def test_a_quick_load_is_never_held_against_an_entry(store: LocalStore) -> None:
    def compile_slowly() -> bytes:
        time.sleep(0.02)
        return b"STEP"

    Desk(store).ask("step", compile=compile_slowly)
    for _ in range(4):
        assert outcome(start(store, quick_load)) == ("hit", False, None)
    assert not (store.root / "costs").exists(), "a start at which all is well writes nothing"


def test_the_first_load_of_a_process_pays_for_imports_and_is_not_counted(store: LocalStore) -> None:
    Desk(store).ask("step")
    for _ in range(4):
        desk = Desk(store, costs=LoadCosts(store.root, "here"))
        desk.ask("step", load=slow_load)
        assert outcome(desk) == ("hit", False, None)


def test_what_one_host_learnt_another_has_not(store: LocalStore) -> None:
    for host in ("here", "here", "there"):
        assert not start(store, host=host).stats.dropped
    assert start(store, host="here").stats.dropped == 1
    assert outcome(start(store, host="there")) == ("miss", False, None), "stored again: it may be worth it there"


def test_the_user_s_own_threshold_wins(store: LocalStore) -> None:
    said = Thresholds(0.0, 0, costs=False)
    for _ in range(4):
        start(store, thresholds=said)
    assert store.get(key_of("step")) is not None


def test_a_program_that_compiles_slower_than_that_load_is_stored_again(store: LocalStore) -> None:
    for _ in range(3):
        start(store)

    def compile_very_slowly() -> bytes:
        time.sleep(2 * SLOW)
        return b"STEP"

    desk = process(store)
    desk.ask("step", compile=compile_very_slowly)
    assert desk.last.stored


def test_what_was_learnt_counts_for_a_week(tmp_path: Path) -> None:
    costs = tmp_path / "costs"
    costs.mkdir()
    now = time.time()
    rows = [("a" * 64, now - 8 * 86400), ("b" * 64, now - 6 * 86400), ("b" * 64, now), ("c" * 64, now + 30 * 86400)]
    lines = [json.dumps({"key": key, "seconds": 0.5 + index, "time": when}) for index, (key, when) in enumerate(rows)]
    strays = ["", "{", "[]", "7", '{"key": 1}', '{"key": "d", "seconds": "x", "time": 0}', "\0" * 50]
    (costs / "here.jsonl").write_text("\n".join([*lines, *strays]))
    known = LoadCosts(tmp_path, "here")
    assert known.known("a" * 64).times == 0
    assert known.known("b" * 64) == (2, 1.5)
    assert known.known("c" * 64).times == 0, "a clock that jumped"
    assert known.known("d" * 64).times == 0


def test_what_is_learnt_is_bounded(tmp_path: Path) -> None:
    costs = LoadCosts(tmp_path, "here")
    for number in range(2000):
        costs.note(f"{number:064x}", 0.1)
    assert (tmp_path / "costs" / "here.jsonl").stat().st_size <= 70_000
    again = LoadCosts(tmp_path, "here")
    assert again.known(f"{1999:064x}").times == 1
    assert again.known(f"{0:064x}").times == 0


def test_a_directory_that_cannot_be_written_costs_the_memory_alone(tmp_path: Path) -> None:
    (tmp_path / "costs").write_text("in the way")
    costs = LoadCosts(tmp_path, "here")
    assert [costs.note("a" * 64, seconds).times for seconds in (0.2, 0.1)] == [1, 2]
    assert costs.known("a" * 64).seconds == 0.1
    assert LoadCosts(tmp_path, "here").known("a" * 64).times == 0


# ---------------------------------------------------------------------------------------------------------------
# What a program hears of it


def test_the_seconds_that_went_unstored_are_counted_by_reason(store: LocalStore) -> None:
    desk = Desk(store, thresholds=Thresholds(3600.0, 0))
    desk.compiler.seconds = 0.06
    desk.ask("one")
    desk.ask("two")
    assert desk.stats.seconds_not_stored == {policy.TOO_QUICK: pytest.approx(0.12, abs=0.05)}
    line = desk.stats.unstored_line()
    assert line is not None
    assert line.startswith("0.1 of 0.1 s of compiling were not stored (0.1 s in 2: compiled faster than")


def test_where_most_was_stored_there_is_nothing_to_say(store: LocalStore) -> None:
    desk = Desk(store)
    desk.compiler.seconds = 0.2
    desk.ask("one")
    desk.compiler.seconds = 0.15
    desk.ask("two", components=None, unkeyable="no key")
    assert desk.stats.unstored_line() is None


def test_checking_contents_is_not_called_unstored(store: LocalStore) -> None:
    Desk(store).ask("one")
    desk = Desk(store, check_contents=True)
    desk.compiler.seconds = 0.2
    desk.ask("one")
    assert desk.stats.unstored_line() is None


def test_a_directory_that_cannot_be_written_is_a_reason_and_no_work(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    Desk(store).ask("known")
    desk = Desk(store, unwritable="the directory is read-only")
    with caplog.at_level(logging.WARNING):
        assert desk.ask("known") == b"KNOWN"
        assert desk.ask("step") == b"STEP"
    assert (desk.stats.hits, desk.stats.not_stored) == (1, {"the directory is read-only": 1})
    assert "serialise" not in desk.compiler.did
    assert caplog.records == []
