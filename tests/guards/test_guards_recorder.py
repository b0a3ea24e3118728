"""The recorder: what it sees, of whom, and when."""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rewarm.guards import Recorder, RecorderError
from rewarm.guards.seen import Seen


def ran(seen: Seen) -> set[str]:
    return {one.code.co_name for one in seen.user_code()}


def called(seen: Seen) -> set[str]:
    return {
        f"{one.module}.{one.name}" for one in seen.calls.values() if one.asker and one.asker.co_filename == __file__
    }


def one() -> int:
    return two()


def two() -> int:
    return 2


def three() -> int:
    return 3


def test_code_that_ran() -> None:
    with Recorder() as recorder:
        one()
    three()
    assert {"one", "two"} <= ran(recorder.seen)
    assert "three" not in ran(recorder.seen)
    assert recorder.seen.has_run(one.__code__)
    assert not recorder.seen.has_run(three.__code__)


def test_an_earlier_recording_hides_nothing() -> None:
    with Recorder() as first:
        one()
    with Recorder() as second:
        one()
    assert ran(first.seen) & {"one", "two"} == ran(second.seen) & {"one", "two"} == {"one", "two"}


@pytest.mark.skipif(not Recorder.is_cheap(), reason="one profile function at a time")
def test_one_inside_another() -> None:
    with Recorder() as outer:
        one()
        with Recorder() as inner:
            one()
            three()
    assert "three" in ran(outer.seen)
    assert {"one", "two", "three"} <= ran(inner.seen)


def test_other_threads_are_not_seen() -> None:
    with Recorder() as recorder:
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
    assert not {"one", "two"} & ran(recorder.seen)


def test_another_thread_that_was_first_hides_nothing() -> None:
    with Recorder() as recorder:
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
        one()
    assert {"one", "two"} <= ran(recorder.seen)


def test_pauses() -> None:
    with Recorder() as recorder:
        with recorder.pause():
            three()
            time.time()
            with recorder.pause():
                pass
            two()
        one()
    assert "three" not in ran(recorder.seen)
    assert {"one", "two"} <= ran(recorder.seen)
    assert "time.time" not in called(recorder.seen)


def test_left_out_folders() -> None:
    with Recorder(leave_out=[str(Path(__file__).parent)]) as recorder:
        one()
        os.environ.get("GUARDED_X")
        time.time()
    assert not ran(recorder.seen)
    assert not recorder.seen.environment
    assert not recorder.seen.calls


def test_calls_of_c_functions() -> None:
    with Recorder() as recorder:
        len([1])
        time.time()
        os.getpid()
        datetime.datetime.now()
        contextvars.ContextVar("v").get(None)
    assert {"time.time", "posix.getpid", "datetime.datetime.now"} <= called(recorder.seen)
    assert "builtins.len" not in called(recorder.seen)


def test_each_callee_of_one_place_in_user_code() -> None:
    callees: list[Callable[[], object]] = [dict, os.getpid, time.time]
    with Recorder() as recorder:
        for callee in callees:
            callee()
    assert {"time.time", "posix.getpid"} <= called(recorder.seen)


def test_what_python_does_for_each_who_asks() -> None:
    with Recorder() as recorder:
        os.path.exists("/nothing")  # noqa: PTH110
        asked_by_another()
    askers = {one.asker.co_name for one in recorder.seen.calls.values() if one.name == "stat" and one.asker}
    assert {"test_what_python_does_for_each_who_asks", "asked_by_another"} <= askers


def asked_by_another() -> bool:
    return os.path.exists("/nothing")  # noqa: PTH110


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GUARDED_1", "a")
    monkeypatch.delenv("GUARDED_2", raising=False)
    with Recorder() as recorder:
        os.environ.get("GUARDED_1")
        os.getenv("GUARDED_2")
        "GUARDED_3" in os.environ  # noqa: B015
        os.environb.get(b"GUARDED_4")
    assert recorder.seen.environment == {"GUARDED_1": "a", "GUARDED_2": None, "GUARDED_3": None, "GUARDED_4": None}
    assert not recorder.seen.whole_environment
    with Recorder() as recorder:
        dict(os.environ)
    assert recorder.seen.whole_environment


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("1")
    with Recorder() as recorder:
        path.read_text()
        (tmp_path / "out").write_text("2")
        os.listdir(tmp_path)  # noqa: PTH208
    effects = {(one.event, Path(one.what).name, one.writes) for one in recorder.seen.effects.values()}
    assert {("open", "data", False), ("open", "out", True), ("os.listdir", tmp_path.name, False)} <= effects
    path.read_text()
    with Recorder() as recorder:
        pass
    assert not [one for one in recorder.seen.effects.values() if one.event == "open"]


def test_it_is_entered_once() -> None:
    recorder = Recorder()
    with recorder:
        pass
    with pytest.raises(RecorderError, match="once"):
        recorder.__enter__()


@pytest.mark.skipif(Recorder.is_cheap(), reason="before Python 3.12")
def test_a_profiler_is_left_alone() -> None:
    def profiler(*_: object) -> None: ...

    sys.setprofile(profiler)
    try:
        with pytest.raises(RecorderError, match="profile"):
            Recorder().__enter__()
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)


@pytest.mark.skipif(not Recorder.is_cheap(), reason="from Python 3.12 on")
def test_no_tool_is_free() -> None:
    monitoring = vars(sys)["monitoring"]
    taken = [number for number in range(6) if monitoring.get_tool(number) is None]
    for number in taken:
        monitoring.use_tool_id(number, "test")
    try:
        with pytest.raises(RecorderError, match="in use"):
            Recorder().__enter__()
    finally:
        for number in taken:
            monitoring.free_tool_id(number)
    with Recorder() as recorder:
        one()
    assert "one" in ran(recorder.seen)


def test_an_error_ends_the_recording() -> None:
    recorder = Recorder()
    with contextlib.suppress(ZeroDivisionError), recorder:
        one()
        1 / 0  # noqa: B018
    three()
    assert "one" in ran(recorder.seen)
    assert "three" not in ran(recorder.seen)
    assert sys.getprofile() is None
