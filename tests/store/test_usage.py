"""The journal of one directory: whatever is in the file, what is whole is read, and nothing else is believed."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewarm.small_files import PRIVATE
from rewarm.store import LocalStore, usage
from rewarm.store.conformance import key_of
from rewarm.store.usage import Known

KEYS = tuple(key_of(number) for number in range(4))
FOREIGN = key_of(99)

amounts = st.floats(0.0, 1e12, allow_nan=False)
keys = st.sampled_from(KEYS)
puts = st.tuples(st.just("put"), keys, amounts)
uses = st.tuples(st.just("use"), keys)
relaxed = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "shard").mkdir()
    return str(tmp_path / "shard")


def journal(folder: str) -> Path:
    return Path(folder, ".usage")


def note(folder: str, line: tuple[object, ...]) -> None:
    kind, key, *rest = line
    if kind == "put":
        usage.note_puts(folder, {str(key): Known(rest[0], 1)}, PRIVATE)  # type: ignore[arg-type]
    else:
        usage.note_use(folder, str(key), PRIVATE)


def expected(lines: list[tuple[object, ...]]) -> dict[str, Known]:
    known: dict[str, Known] = {}
    for kind, key, *rest in lines:
        if kind == "put":
            known[str(key)] = Known(rest[0], 1)  # type: ignore[arg-type]
        else:
            before = known.get(str(key), Known(0.0, 1))
            known[str(key)] = Known(before.seconds, before.uses + 1)
    return known


@relaxed
@given(lines=st.lists(puts | uses, max_size=12))
def test_what_was_noted_is_known(tmp_path: Path, lines: list[tuple[object, ...]]) -> None:
    journal(str(tmp_path)).unlink(missing_ok=True)
    for line in lines:
        note(str(tmp_path), line)
    known, size = usage.load(str(tmp_path), KEYS)
    assert known == expected(lines)
    assert size == (journal(str(tmp_path)).stat().st_size if lines else 0)


@relaxed
@given(lines=st.lists(puts | uses, min_size=1, max_size=8), more=puts | uses, cut=st.integers(1, 130))
def test_a_torn_line_spoils_no_other_and_is_not_believed(
    tmp_path: Path, lines: list[tuple[object, ...]], more: tuple[object, ...], cut: int
) -> None:
    journal(str(tmp_path)).unlink(missing_ok=True)
    for line in lines:
        note(str(tmp_path), line)
    before = journal(str(tmp_path)).stat().st_size
    note(str(tmp_path), more)
    whole = journal(str(tmp_path)).read_bytes()
    torn = whole[: max(len(whole) - cut - 1, before)]  # at least the newline and the end mark are missing
    journal(str(tmp_path)).write_bytes(torn)
    note(str(tmp_path), lines[-1])
    assert usage.load(str(tmp_path), KEYS)[0] == expected([*lines, lines[-1]])


@relaxed
@given(noise=st.lists(st.binary(max_size=120), max_size=6))
def test_foreign_bytes_are_passed_over(tmp_path: Path, noise: list[bytes]) -> None:
    line = ("put", KEYS[0], 2.5, 1.0)
    journal(str(tmp_path)).write_bytes(b"\n".join(noise))
    note(str(tmp_path), line)
    known, _ = usage.load(str(tmp_path), KEYS)
    assert known == expected([line])


@pytest.mark.parametrize(
    "line",
    [
        f"{KEYS[0]} nan 1;",
        f"{KEYS[0]} inf 1;",
        f"{KEYS[0]} -1.0 1;",
        f"{KEYS[0]} 1.0 0;",
        f"{KEYS[0]} 1.0 -3;",
        f"{KEYS[0]} 1.0 inf;",
        f"{KEYS[0]} 1.0 1.5;",
        f"{KEYS[0]} 1.0 1",
        f"{KEYS[0]} 1.0 1 2;",
        f"{KEYS[0]} 1.0;",
        f"{KEYS[0]} ;",
        f"{KEYS[0]}",
        f"{FOREIGN} 1.0 1;",
        f"{FOREIGN};",
        ";",
    ],
)
def test_a_line_that_means_nothing_is_passed_over(folder: str, line: str) -> None:
    journal(folder).write_text(f"\n{line}\n")
    assert usage.load(folder, KEYS)[0] == {}


def test_absurd_uses_keep_a_priority_finite(folder: str) -> None:
    journal(folder).write_text(f"\n{KEYS[0]} 1.0 {'9' * 400};\n")
    known, _ = usage.load(folder, KEYS)
    assert all(math.isfinite(one.uses * one.seconds) for one in known.values())


def test_a_sum_is_what_was_known(folder: str) -> None:
    known = {key: Known(number + 0.1, number + 1) for number, key in enumerate(KEYS)}
    usage.replace(folder, known, PRIVATE)
    assert usage.load(folder, KEYS)[0] == known
    note(folder, ("use", KEYS[0]))
    assert usage.load(folder, KEYS)[0][KEYS[0]] == Known(0.1, 2)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["directory", "fifo", "link"])
def test_what_is_no_file_is_no_journal(folder: str, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "somebody's file"
    victim.write_bytes(b"precious")
    {"directory": Path.mkdir, "fifo": os.mkfifo, "link": lambda path: path.symlink_to(victim)}[kind](journal(folder))
    with pytest.raises(OSError, match=r".*"):
        note(folder, ("use", KEYS[0]))
    assert usage.load(folder, KEYS)[0] == {}
    assert victim.read_bytes() == b"precious"


# ---------------------------------------------------------------------------------------------------------------
# In a store


def make_old(store: LocalStore, key: str) -> None:
    os.utime(store.path(key), (1e9, 1e9))
    store._renewed.clear()


def test_a_journal_is_bounded_by_puts(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache")
    for number in range(600):
        store.put(KEYS[0], b"x" * number, seconds=float(number + 1))
    place = store.root / KEYS[0][:2] / ".usage"
    assert place.stat().st_size < 20_000
    assert usage.load(str(place.parent), KEYS)[0][KEYS[0]].seconds == 600.0


def test_a_journal_is_bounded_by_hits_alone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache")
    store.put(KEYS[0], b"x", seconds=3.0)
    (store.root / "sizes").unlink()
    for _ in range(500):
        make_old(store, KEYS[0])
        assert store.get(KEYS[0]) == b"x"
    place = store.root / KEYS[0][:2] / ".usage"
    assert place.stat().st_size < 20_000
    assert usage.load(str(place.parent), KEYS)[0][KEYS[0]] == Known(3.0, 501)


def test_a_look_is_no_use(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache")
    store.put(KEYS[0], b"x", seconds=3.0)
    make_old(store, KEYS[0])
    assert store.get(KEYS[0], use=False) == b"x"
    assert store.path(KEYS[0]).stat().st_mtime == 1e9
    assert store.usages()[KEYS[0]].uses == 1


def test_a_hit_counts_once_in_ten_minutes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache")
    store.put(KEYS[0], b"x", seconds=3.0)
    for _ in range(5):
        store.get(KEYS[0])
    assert store.usages()[KEYS[0]].uses == 1
    make_old(store, KEYS[0])
    for _ in range(5):
        store.get(KEYS[0])
    assert store.usages()[KEYS[0]].uses == 2


def test_a_mtime_that_does_not_stay_renewed_is_renewed_once_in_ten_minutes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache")
    store.put(KEYS[0], b"x", seconds=3.0)
    for _ in range(5):
        os.utime(store.path(KEYS[0]), (1e9, 1e9))  # as a file system does that keeps no mtimes
        store.get(KEYS[0])
    assert store.usages()[KEYS[0]].uses == 2


def test_a_hit_that_does_not_renew_writes_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "cache")
    store.put(KEYS[0], b"x", seconds=3.0)
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*")}
    for _ in range(50):
        store.get(KEYS[0])
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*")} == before
