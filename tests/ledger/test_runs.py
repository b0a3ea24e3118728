"""What a run's file holds, and reading it in whatever state it is."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewarm.errors import RewarmError
from rewarm.ledger import journal
from rewarm.ledger import runs as runs_module
from rewarm.ledger.journal import LINE_BYTES, RunWriter, encode_line, is_run_name
from rewarm.ledger.runs import (
    BadRunError,
    NoSuchRunError,
    count_events,
    find_run,
    iterate_events,
    read_run,
    run_ids,
    run_info,
    runs,
)

EVENT = {"program": "jit_f", "outcome": "miss", "seconds": {"compile": 1.5}, "key": None}
OLD_RUN = """\
{"run":"20261129T184500Z-12345-9f3a07c1","version":1,"started":1795978700.25,"pid":12345,"host":"tower",\
"argv":["train.py","--steps=3"],"python":"3.12.3","directory":"/home/someone","parent":null,"about":{"jax":"0.9.2"}}
{"event":{"program":"jit_f","outcome":"miss"}}
{"event":{"program":"jit_g","outcome":"hit"}}
{"end":1795978712.5,"events":2,"lost":0,"stats":{"requests":2}}
"""
OLD_ID = "20261129T184500Z-12345-9f3a07c1"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    directory = tmp_path / "cache"
    directory.mkdir()
    return directory


def put(cache: Path, text: str | bytes, run_id: str = OLD_ID) -> Path:
    """A file in the place of a run's."""
    path = cache / "runs" / f"{run_id}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def written(cache: Path, *events: dict[str, Any], end: bool = True) -> RunWriter:
    """A run of this process with these events."""
    writer = RunWriter(cache, {"jax": "0.9.2"})
    for event in events:
        writer.event(event)
    if end:
        writer.end({"requests": len(events)})
    assert writer.problem is None
    return writer


# ---------------------------------------------------------------------------------------------------------------
# What is written


def test_a_process_without_events_leaves_nothing(cache: Path) -> None:
    writer = RunWriter(cache, {})
    writer.end({"requests": 0})
    assert list(cache.iterdir()) == []
    assert writer.problem is None
    assert runs(cache) == []


def test_the_lines_of_a_run(cache: Path) -> None:
    before = time.time()
    writer = written(cache, EVENT, {"n": 2})
    header, first, second, end = [json.loads(line) for line in writer.path.read_text("ascii").splitlines()]
    assert header == {
        "run": writer.id,
        "version": 1,
        "started": header["started"],
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "argv": [argument[:512] for argument in sys.argv[:64]],
        "python": ".".join(map(str, sys.version_info[:3])),
        "directory": str(Path.cwd()),
        "parent": None,
        "about": {"jax": "0.9.2"},
    }
    assert before <= header["started"] <= end["end"] <= time.time()
    assert (first, second) == ({"event": EVENT}, {"event": {"n": 2}})
    assert end == {"end": end["end"], "events": 2, "lost": 0, "stats": {"requests": 2}}


def test_the_file_is_the_users_alone(cache: Path) -> None:
    path = written(cache, EVENT).path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert is_run_name(path.name)


def test_the_id_tells_start_and_process(cache: Path) -> None:
    writer = RunWriter(cache, {})
    moment, pid, digits = writer.id.split("-")
    assert abs(time.time() - _seconds(moment)) < 30
    assert int(pid) == os.getpid()
    assert len(digits) == 8


def _seconds(moment: str) -> float:
    from datetime import UTC, datetime

    return datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def test_each_event_is_one_write_that_is_there_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = written(cache, EVENT, end=False)
    sizes = []
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        sizes.append(len(data))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    for number in range(10):
        writer.event({"number": number})
        assert read_run(writer.path).events[-1] == {"number": number}
    assert len(sizes) == 10


def test_what_a_caller_says_may_be_too_long_for_a_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["\ud800" * 10_000] * 10_000)
    writer = RunWriter(cache, {str(number): "x" * 900 for number in range(1000)})
    writer.event(EVENT)
    writer.end({str(number): "x" * 900 for number in range(1000)})
    run = read_run(writer.path)
    assert run.events == (EVENT,)
    assert (run.info.about, run.info.argv, run.info.stats, run.info.state) == ({}, (), {}, "ended")


# ---------------------------------------------------------------------------------------------------------------
# Records


def as_json_has_it(value: Any) -> Any:
    """What a JSON value comes back as: no non-finite numbers, and a pair of surrogates is one character."""
    if isinstance(value, dict):
        return {as_json_has_it(name): as_json_has_it(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_json_has_it(inner) for inner in value]
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return None if isinstance(value, float) and not math.isfinite(value) else value


TEXT = st.text(st.characters(exclude_categories=[]) | st.characters(categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=12)


@given(st.lists(st.dictionaries(TEXT, VALUES, max_size=8), max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_mapping_comes_back(events: list[dict[str, Any]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        writer = RunWriter(Path(place), {})
        for event in [*events, EVENT]:
            writer.event(event)
        run = read_run(writer.path)
        writer.end({})
    assert run.events == (*(as_json_has_it(event) for event in events), EVENT)
    assert run.damaged == 0


class Awkward:
    """Nothing of it can be written or shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Hostile(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no")


def test_what_json_does_not_have_is_told_by_its_class() -> None:
    circle: dict[str, Any] = {}
    circle.update(one=circle, two=[circle] * 3)
    for value, told in [
        (Awkward(), "<Awkward>"),
        ({1: 2, None: 3, (4,): 5}, {"1": 2, "None": 3, "<tuple>": 5}),
        ((1, math.nan), [1, None]),
        (b"x", "<bytes>"),
        (10**5000, "<int>"),
    ]:
        line = encode_line({"event": {"bad": math.inf, "value": value}})
        assert line is not None
        assert json.loads(line) == {"event": {"bad": None, "value": told}}
    started = time.monotonic()
    encode_line({"event": circle})
    assert time.monotonic() - started < 5


def test_an_event_that_cannot_be_written_is_lost_alone(cache: Path) -> None:
    writer = written(cache, EVENT, end=False)
    writer.event(Hostile(a=math.nan))
    writer.event({str(number): "x" * 900 for number in range(1000)})
    writer.event(EVENT)
    writer.end({})
    run = read_run(writer.path)
    assert run.events == (EVENT, EVENT)
    assert (run.info.events, run.info.lost, run.damaged) == (2, 2, 0)


def test_long_strings_are_cut_so_that_the_event_is_kept(cache: Path) -> None:
    writer = written(cache, {"program": "jit_f", "reason": "because " * 100_000, "n": [1, 2]})
    (event,) = read_run(writer.path).events
    assert event == {"program": "jit_f", "reason": ("because " * 200)[:1000], "n": [1, 2]}


@pytest.mark.parametrize("length", range(LINE_BYTES - 30, LINE_BYTES + 5))
def test_the_longest_line_is_read(cache: Path, length: int) -> None:
    writer = written(cache, {"x": "y" * length})
    run = read_run(writer.path)
    assert run.damaged == 0
    assert len(run.events) == 1
    assert max(map(len, writer.path.read_bytes().splitlines(keepends=True))) <= LINE_BYTES


# ---------------------------------------------------------------------------------------------------------------
# Reading


def test_a_run_of_version_1_is_read(cache: Path) -> None:
    run = read_run(put(cache, OLD_RUN))
    info = run.info
    assert (info.id, info.started, info.pid, info.host) == (OLD_ID, 1795978700.25, 12345, "tower")
    assert (info.argv, info.python) == (("train.py", "--steps=3"), "3.12.3")
    assert (info.directory, info.parent, info.about) == ("/home/someone", None, {"jax": "0.9.2"})
    assert (info.state, info.ended, info.events, info.lost) == ("ended", 1795978712.5, 2, 0)
    assert (info.stats, info.size) == ({"requests": 2}, len(OLD_RUN))
    assert run.events == ({"program": "jit_f", "outcome": "miss"}, {"program": "jit_g", "outcome": "hit"})
    assert (run.damaged, run.truncated) == (0, False)
    assert list(iterate_events(info.path)) == list(run.events)
    assert runs(cache) == [info]


def test_a_run_is_readable_wherever_it_was_cut(cache: Path) -> None:
    data = OLD_RUN.encode()
    ends = [place for place, byte in enumerate(data) if byte == ord("\n")]
    for length in range(len(data)):
        path = put(cache, data[:length])
        if length < ends[0]:
            with pytest.raises(BadRunError, match="its first line is no header"):
                read_run(path)
            assert runs(cache) == []
            continue
        run = read_run(path)
        whole = sum(length >= end for end in ends[1:3])
        assert len(run.events) == whole == count_events(run.info)
        assert run.info.state == ("ended" if length >= ends[3] else "unfinished")
        assert run.damaged == (length not in ends and length - 1 not in ends)


@pytest.mark.parametrize(
    "junk",
    [
        b"garbage",
        b"\x00" * 5000,
        bytes(range(256)).replace(b"\n", b""),
        b"[1]",
        b'"x"',
        b'{"event":3}',
        b"[" * 60_000,
        b'{"event":{}' + b" " * 200_000 + b"}",
        b'{"event":{}}' + b" " * 200_000,
        b"1" * 5000,
        '{"event":{"é":1}}'.encode("latin-1"),
        b"\xff\xfe{\x00}\x00",
    ],
)
def test_a_line_of_junk_costs_itself(cache: Path, junk: bytes) -> None:
    lines = OLD_RUN.encode().splitlines(keepends=True)
    path = put(cache, b"".join([*lines[:2], junk, b"\n\n", *lines[2:]]))
    run = read_run(path)
    assert len(run.events) == 2
    assert (run.damaged, run.info.state) == (1, "ended")
    assert len(list(iterate_events(path))) == 2


def test_a_record_of_a_later_kind_is_passed_over(cache: Path) -> None:
    lines = OLD_RUN.splitlines(keepends=True)
    run = read_run(put(cache, "".join([*lines[:2], '{"advice":{"x":1}}\n', *lines[2:]])))
    assert (len(run.events), run.damaged) == (2, 0)


def _header(**changes: Any) -> str:
    return json.dumps({**json.loads(OLD_RUN.splitlines()[0]), **changes}) + "\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no header"),
        ("\n\n", "no header"),
        ("garbage\n" + OLD_RUN, "no header"),
        ("{}\n", "no header"),
        ("x" * 300_000, "no header"),
        (_header(version=2), "version 2, and this rewarm reads version 1"),
        (_header(version="new"), "version 'new'"),
        (_header(run="../../etc/passwd"), "no id or no start"),
        (_header(run=3), "no id or no start"),
        (_header(started="yesterday"), "no id or no start"),
        (_header(started=math.nan), "no id or no start"),
        (_header(started=10**400), "no id or no start"),
    ],
)
def test_what_has_no_header_is_no_run(cache: Path, text: str, complaint: str) -> None:
    path = put(cache, text)
    for read in (read_run, run_info, lambda path: list(iterate_events(path))):
        with pytest.raises(BadRunError, match=complaint) as caught:
            read(path)
        assert str(path) in str(caught.value)
    assert runs(cache) == []


def test_fields_of_another_kind_do_not_stop_a_reader(cache: Path) -> None:
    odd = _header(pid="x", host=None, argv={}, python=3, directory=[], parent=1, about="y")
    info = run_info(put(cache, odd + '{"end":"x","events":"y","lost":null,"stats":[]}\n'))
    assert (info.pid, info.host, info.argv, info.directory, info.parent, info.about) == (0, "", (), None, None, {})
    assert (info.state, info.ended, info.events, info.stats) == ("ended", None, None, None)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    (path / "inside").mkdir(parents=True)


def _circle(path: Path) -> None:
    path.symlink_to(path)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [_fifo, _directory, _circle, _socket])
def test_what_is_no_file_holds_nobody(cache: Path, make: Any) -> None:
    path = put(cache, OLD_RUN)
    path.unlink()
    make(path)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(BadRunError):
            read_run(path)
        assert runs(cache) == []
    with pytest.raises(BadRunError):
        find_run(cache, OLD_ID)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    writer = written(cache, EVENT)
    assert [info.id for info in runs(cache)] == [writer.id]
    assert os.path.lexists(path)


def test_a_file_that_is_gone_is_a_bad_run(cache: Path) -> None:
    info = run_info(put(cache, OLD_RUN.rsplit("{", 2)[0]))
    info.path.unlink()
    with pytest.raises(BadRunError, match="No such file"):
        read_run(info.path)
    assert count_events(info) == 0
    with pytest.raises(BadRunError, match="cannot read"):
        read_run(Path("a\0b"))


def test_files_that_vanish_during_a_listing_are_passed_over(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = written(cache, EVENT)
    ids = runs_module.run_ids(cache)
    monkeypatch.setattr(runs_module, "run_ids", lambda _: [*ids, OLD_ID])
    assert [info.id for info in runs(cache)] == [writer.id]


def test_a_huge_file_is_read_in_bounded_memory(cache: Path) -> None:
    import tracemalloc

    line = b'{"event":{"x":"' + b"y" * 60_000 + b'"}}\n'
    path = put(cache, OLD_RUN.splitlines(keepends=True)[0].encode() + line * 1000 + b"\xee" * 8_000_000)
    tracemalloc.start()
    assert sum(1 for _ in iterate_events(path)) == 1000
    assert run_info(path).state == "unfinished"
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    run = read_run(path)
    assert tracemalloc.get_traced_memory()[1] < 40_000_000
    tracemalloc.stop()
    assert run.truncated
    assert 16 << 20 <= len(run.events) * len(line) < 17 << 20


def test_copies_and_strays_are_no_runs(cache: Path) -> None:
    path = put(cache, OLD_RUN)
    other = OLD_ID[:-1] + "2"
    put(cache, OLD_RUN, run_id=other)
    for name in ["notes.txt", OLD_ID, f"{OLD_ID}.jsonl.bak", f"x{OLD_ID}.jsonl", ".jsonl", f"{OLD_ID[:-1]}g.jsonl"]:
        (path.parent / name).write_text(OLD_RUN)
    assert [info.id for info in runs(cache)] == [OLD_ID]
    assert run_ids(cache) == [other, OLD_ID]
    with pytest.raises(BadRunError, match=f"it is a copy of the run {OLD_ID}"):
        find_run(cache, other)
    kept = cache / "kept.jsonl"
    shutil.copy(path, kept)
    assert read_run(kept).info.id == OLD_ID


# ---------------------------------------------------------------------------------------------------------------
# Which run


def test_a_run_that_is_open_is_running(cache: Path) -> None:
    writer = written(cache, EVENT, end=False)
    (info,) = runs(cache)
    assert (info.state, info.events, info.ended) == ("running", None, None)
    assert count_events(info) == 1
    writer.end({})
    assert [info.state for info in runs(cache)] == ["ended"]


@pytest.fixture
def three(cache: Path) -> list[str]:
    """Three runs, oldest first, of which the newest has no event."""
    ids = ["20260101T000000Z-1-00000001", "20260101T000000Z-2-00000002", "20260202T000000Z-1-00000003"]
    for place, run_id in enumerate(ids):
        header = _header(run=run_id, started=1767225600.0 + 60 * (place != 1) + place)
        put(cache, header + ('{"event":{}}\n' if place < 2 else ""), run_id)
    return ids


def test_runs_are_listed_newest_first(cache: Path, three: list[str]) -> None:
    assert [info.id for info in runs(cache)] == [three[2], three[0], three[1]]  # by the header, which is finer


def test_the_last_run_is_the_last_with_events(cache: Path, three: list[str]) -> None:
    assert find_run(cache).id == three[0]
    (cache / "runs" / f"{three[0]}.jsonl").unlink()
    assert find_run(cache, None).id == three[1]


def test_a_run_is_found_by_the_start_of_its_id(cache: Path, three: list[str]) -> None:
    assert find_run(cache, "202602").id == three[2]
    assert find_run(cache, three[0]).id == three[0]


def test_a_prefix_that_fits_none_or_several_says_what_there_is(cache: Path, three: list[str]) -> None:
    with pytest.raises(NoSuchRunError, match="starts the ids of 2 runs") as caught:
        find_run(cache, "202601")
    assert three[0] in str(caught.value)
    assert three[2] not in str(caught.value)
    with pytest.raises(NoSuchRunError, match=r"no run in .* starts with 'x'; there are") as caught:
        find_run(cache, "x")
    assert all(run_id in str(caught.value) for run_id in three)
    assert isinstance(caught.value, RewarmError)
    assert isinstance(caught.value, ValueError)


def test_a_long_list_is_cut(cache: Path) -> None:
    for number in range(25):
        put(cache, "", f"20260101T0000{number:02}Z-1-00000001")
    with pytest.raises(NoSuchRunError, match=r"20260101T000024Z.* and 15 more$"):
        find_run(cache, "x")


@pytest.mark.parametrize("prefix", [None, "2026"])
def test_where_there_are_no_runs_the_message_says_so(tmp_path: Path, prefix: str | None) -> None:
    assert runs(tmp_path / "nowhere") == []
    with pytest.raises(NoSuchRunError, match="no run"):
        find_run(tmp_path / "nowhere", prefix)
    (tmp_path / "runs").write_text("a file")
    assert runs(tmp_path) == []


def test_the_names_of_the_module_fit_those_of_the_store(cache: Path) -> None:
    from rewarm.store import LocalStore

    written(cache, EVENT)
    store = LocalStore(cache)
    assert list(store.scan()) == []
    assert journal.RUNS not in {f"{number:02x}" for number in range(256)}
