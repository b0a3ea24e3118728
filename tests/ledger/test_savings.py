"""The totals of runs whose files are gone: nothing counted twice, nothing lost, whatever dies in between."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_children import finish, start

from rewarm.ledger import savings
from rewarm.ledger.journal import RUN_BYTES, RunWriter, encode_line, prune
from rewarm.ledger.runs import run_ids
from rewarm.ledger.savings import PROGRAMS_KEPT, NotFoldedError, Savings, Totals, all_time, fold_all, of_run

HOUR = 3600.0


def event(program: str = "jit_f", *, saved: float = 0.0, compiling: float = 0.0) -> dict[str, Any]:
    """A hit that saved something, or else a miss."""
    outcome = "hit" if saved else "miss"
    return {"program": program, "outcome": outcome, "seconds": {"compile": compiling}, "seconds_saved": saved}


def leave(cache: Path, number: int, *events: dict[str, Any], age: float = HOUR) -> Path:
    """The file of a run that ended, which started `number` seconds into a day long past."""
    began = 1_700_000_000 + number
    run_id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(began))}-{number}-0000abcd"
    records = [
        {"run": run_id, "version": 1, "started": began},
        *({"event": one} for one in events),
        {"end": began + 1, "events": len(events), "lost": 2, "stats": {}},
    ]
    path = cache / "runs" / f"{run_id}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(encode_line(record) or b"" for record in records))
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def fill(cache: Path, count: int) -> None:
    """Runs that each saved two seconds and compiled for one."""
    for number in range(count):
        leave(cache, number, event(saved=2.0), event("jit_g", compiling=1.0))


def expected(count: int) -> Totals:
    """What they come to."""
    return Totals(2 * count, count, 2.0 * count, 1.0 * count)


def test_what_is_pruned_stays_in_the_totals(cache: Path) -> None:
    cache.mkdir()
    fill(cache, 80)
    before = all_time(cache)
    assert before.total() == expected(80)
    assert (before.since, before.runs, before.lost) == (1_700_000_000, 80, 160)
    prune(cache / "runs")
    assert len(run_ids(cache)) == 64
    after = all_time(cache)
    assert after.total() == expected(80)
    assert (after.since, after.runs, after.lost, after.uncounted) == (1_700_000_000, 80, 160, 0)
    assert after.programs == {"jit_f": Totals(80, 80, 160.0, 0.0), "jit_g": Totals(80, 0, 0.0, 80.0)}
    assert stat.S_IMODE((cache / "savings.json").stat().st_mode) == 0o600


def test_a_start_folds(cache: Path) -> None:
    cache.mkdir()
    fill(cache, 80)
    writer = RunWriter(cache, {})
    writer.event(event(saved=5.0))
    assert writer.problem is None
    assert len(run_ids(cache)) == 64
    assert all_time(cache).total().seconds_saved == 165.0


def test_a_directory_that_has_nothing_saved_nothing(tmp_path: Path) -> None:
    assert all_time(tmp_path) == Savings()
    assert all_time(tmp_path / "nowhere") == Savings()
    fold_all(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_dying_at_any_step_counts_every_run_once(cache: Path) -> None:
    """The process is killed at each system call of a fold in turn; the next one sets all right."""
    code = """
        import sys
        left = int(sys.argv[2])
        watched = ("open", "os.rename", "os.remove", "os.replace")
        def watch(name, arguments):
            global left
            if name in watched:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        import rewarm.ledger.savings, json.encoder
        sys.addaudithook(watch)
        journal.prune(Path(sys.argv[1]) / "runs")
        left = 1 << 30
    """
    deaths = 0
    for step in range(400):
        here = cache.with_name(f"cache{step}")
        here.mkdir()
        fill(here, 67)
        child = start(code, here, str(step))
        child.communicate()
        deaths += child.returncode == -9
        assert all_time(here).total() == expected(67), step
        prune(here / "runs")
        assert all_time(here).total() == expected(67), step
        assert len(run_ids(here)) == 64
        if child.returncode == 0:
            break
    assert deaths > 10


def test_many_that_fold_at_once_count_every_run_once(cache: Path) -> None:
    cache.mkdir()
    fill(cache, 400)
    code = """
        for _ in range(5):
            journal.prune(Path(sys.argv[1]) / "runs")
    """
    children = [start(code, cache) for _ in range(6)]
    seen = [all_time(cache).total() for _ in range(10)]
    for child in children:
        finish(child)
    assert all_time(cache).total() == expected(400)
    assert all_time(cache).uncounted == 0
    assert [one for one in seen if one != expected(400)] == []


def test_many_that_are_killed_while_they_fold_count_every_run_once(cache: Path) -> None:
    cache.mkdir()
    fill(cache, 110)
    code = 'print(flush=True)\nwhile True: journal.prune(Path(sys.argv[1]) / "runs")'
    random.seed(7)
    while len(run_ids(cache)) > 64:
        children = [start(code, cache) for _ in range(2)]
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(random.random() * 0.03)
            child.kill()
            child.communicate()
    assert all_time(cache).total() == expected(110)


def test_what_was_folded_and_stayed_is_not_counted_again(cache: Path) -> None:
    cache.mkdir()
    fill(cache, 3)
    kept = {path: path.read_bytes() for path in (cache / "runs").iterdir()}
    fold_all(cache)
    (cache / "runs").mkdir()
    for path, data in kept.items():  # as after a death between the two steps
        path.write_bytes(data)
    told = json.loads((cache / "savings.json").read_text())
    told["folded"] = [path.stem for path in kept]
    (cache / "savings.json").write_text(json.dumps(told))
    assert all_time(cache).total() == expected(3)
    fold_all(cache)
    assert all_time(cache).total() == expected(3)
    assert run_ids(cache) == []
    leave(cache, 9, event(saved=1.0))
    fold_all(cache)
    assert all_time(cache).total() == expected(3).plus(Totals(1, 1, 1.0, 0.0))
    assert len(json.loads((cache / "savings.json").read_text())["folded"]) == 1, "those without a file are forgotten"


def test_while_another_holds_the_lock_runs_stay_up_to_twice_the_bound(cache: Path) -> None:
    cache.mkdir()
    fill(cache, 140)
    with (cache / ".savings.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.perf_counter()
        prune(cache / "runs")
        assert time.perf_counter() - began < 0.5
        assert len(run_ids(cache)) == 140, "a moment's work of another: it will see to them"
        os.utime(cache / ".savings.lock", (time.time() - 90,) * 2)
        prune(cache / "runs")
    assert len(run_ids(cache)) == 128
    assert not (cache / "savings.json").exists()
    prune(cache / "runs")
    assert len(run_ids(cache)) == 64
    assert all_time(cache).total() == expected(128)


def test_a_full_disk_keeps_the_runs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    fill(cache, 70)

    def write(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(savings.small_files, "replace", write)
    prune(cache / "runs")
    assert len(run_ids(cache)) == 70
    with pytest.raises(NotFoldedError, match=r"cannot write .*savings\.json: No space left"):
        fold_all(cache)
    assert len(run_ids(cache)) == 70


def test_without_locks_runs_are_folded_all_the_same(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    for number in range(70):
        leave(cache, number, event(saved=1.0), age=48 * HOUR)

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    prune(cache / "runs")
    assert len(run_ids(cache)) == 64
    assert all_time(cache).total() == Totals(70, 70, 70.0, 0.0)


def test_a_lock_whose_file_was_removed_is_no_lock(cache: Path) -> None:
    cache.mkdir()
    descriptor = os.open(cache / ".savings.lock", os.O_CREAT | os.O_RDWR)
    (cache / ".savings.lock").unlink()
    with pytest.raises(NotFoldedError, match="was removed meanwhile"):
        savings._take(descriptor, cache / ".savings.lock")
    os.close(descriptor)


def test_a_run_that_cannot_be_read_is_said_to_be_missing(cache: Path) -> None:
    cache.mkdir()
    fill(cache, 66)
    journal_path = sorted((cache / "runs").iterdir())[0]
    journal_path.write_bytes(b"nothing that was ever a run")
    os.utime(journal_path, (time.time() - HOUR,) * 2)
    prune(cache / "runs")
    assert (all_time(cache).total(), all_time(cache).uncounted) == (expected(65), 1)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b"[" * 100_000])
def test_damaged_totals_are_put_aside(cache: Path, content: bytes) -> None:
    cache.mkdir()
    (cache / "savings.json").write_bytes(content)
    fill(cache, 3)
    assert all_time(cache).total() == expected(3)
    fold_all(cache)
    assert all_time(cache).total() == expected(3)
    if content:
        assert (cache / "savings.damaged.json").read_bytes() == content


def test_totals_of_a_newer_rewarm_are_left_alone(cache: Path) -> None:
    cache.mkdir()
    newer = json.dumps({"version": 2, "all": "else"})
    (cache / "savings.json").write_text(newer)
    fill(cache, 70)
    prune(cache / "runs")
    assert len(run_ids(cache)) == 70
    assert (cache / "savings.json").read_text() == newer
    with pytest.raises(NotFoldedError, match="of version 2, and this rewarm writes version 1"):
        fold_all(cache)


def test_what_is_no_file_under_the_name_holds_nobody(cache: Path) -> None:
    cache.mkdir()
    os.mkfifo(cache / "savings.json")
    fill(cache, 66)
    prune(cache / "runs")
    assert all_time(cache).total() == expected(66)


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"program": None, "outcome": 7, "seconds": None, "seconds_saved": "x"},
        {"program": "jit_f", "seconds": {"compile": None}, "seconds_saved": None},
        {"program": "jit_f", "seconds": {"compile": "1"}, "seconds_saved": 10**400},
        {"program": {"a": 1}, "seconds": []},
    ],
)
def test_odd_events_are_requests_and_nothing_else(cache: Path, odd: dict[str, Any]) -> None:
    cache.mkdir()
    assert of_run(leave(cache, 0, odd, event(saved=1.0))).total() == Totals(2, 1, 1.0, 0.0)


def test_the_programs_that_saved_most_have_rows(cache: Path) -> None:
    cache.mkdir()
    number = PROGRAMS_KEPT + 100
    leave(cache, 0, *(event(f"jit_{index}", saved=1.0 + index) for index in range(number)))
    fold_all(cache)
    found = all_time(cache)
    assert len(found.programs) == PROGRAMS_KEPT
    assert found.other_programs == 100
    assert found.others == Totals(100, 100, sum(1.0 + index for index in range(100)), 0.0)
    assert found.total().requests == number
    assert "jit_100" in found.programs
    assert "jit_99" not in found.programs


def test_a_groups_directory_has_a_groups_file(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o2770)
    fill(cache, 1)
    previous = os.umask(0o077)
    try:
        fold_all(cache)
    finally:
        os.umask(previous)
    assert stat.S_IMODE((cache / "savings.json").stat().st_mode) == 0o660
    assert stat.S_IMODE((cache / ".savings.lock").stat().st_mode) == 0o660


def test_one_start_does_not_pay_for_large_runs_of_others(cache: Path) -> None:
    cache.mkdir()
    large = [event("jit_" + "x" * 100, saved=1.0)] * (RUN_BYTES // 200)
    for number in range(3):
        leave(cache, number, *large)
    for number in range(3, 67):
        leave(cache, number)
    counts = []
    for _ in range(4):
        prune(cache / "runs")
        counts.append(len(run_ids(cache)))
    assert counts[0] > 64
    assert counts[-1] == 64
    assert all_time(cache).total().requests == 3 * len(large)


_totals = st.builds(Totals, st.integers(0, 9), st.integers(0, 9), st.integers(-9, 9), st.integers(0, 9))
_savings = st.builds(
    Savings,
    since=st.none() | st.floats(0, 2e9),
    runs=st.integers(0, 9),
    uncounted=st.integers(0, 9),
    lost=st.integers(0, 9),
    programs=st.dictionaries(st.text(max_size=3), _totals, max_size=4),
    others=_totals,
    other_programs=st.integers(0, 3),
    folded=st.lists(st.text("0123-TZ", max_size=4), max_size=3).map(tuple),
)


@given(_savings)
@settings(max_examples=200, deadline=None)
def test_what_is_saved_is_read(tmp_path_factory: pytest.TempPathFactory, one: Savings) -> None:
    place = tmp_path_factory.getbasetemp()
    savings._save(place, one)
    assert savings._load(place) == one


@given(_savings, _savings, _savings)
@settings(max_examples=200, deadline=None)
def test_the_order_of_folding_does_not_matter(one: Savings, two: Savings, three: Savings) -> None:
    left, right = one.plus(two).plus(three), three.plus(two).plus(one)
    assert left.total() == right.total()
    assert (left.since, left.runs, left.programs) == (right.since, right.runs, right.programs)


def test_folding_costs_a_start_little(cache: Path) -> None:
    """One run of 200 events, and a file of 300 programs, as in a directory that is used every day."""
    cache.mkdir()
    leave(cache, 0, *(event(f"jit_{index}", saved=1.0) for index in range(300)))
    fold_all(cache)
    took = []
    for number in range(1, 8):
        leave(cache, number, *(event(f"jit_{index}", saved=1.0) for index in range(200)))
        began = time.perf_counter()
        savings.retire(cache / "runs", [path.name for path in (cache / "runs").iterdir()], ())
        took.append(time.perf_counter() - began)
        assert run_ids(cache) == []
    assert min(took) < 0.05
