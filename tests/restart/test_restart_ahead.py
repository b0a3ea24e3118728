"""Reading and loading ahead, by readers and loaders of the test's own: asked for early, late, never, otherwise."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewarm.restart import Ahead, Load, Opened, Way, ahead

WAY = Way("cpu", (0,), b"options")


def key(number: int) -> str:
    """A key."""
    return f"{number:064x}"


class Desk:
    """Reads and loads for `Ahead`; each step may be held up by the test."""

    def __init__(self) -> None:
        self.is_up = True
        self.current = True
        self.missing: set[str] = set()
        self.refused: set[str] = set()
        self.ways: dict[str, Way | None] = {}
        self.broken: set[str] = set()
        self.read_gate, self.load_gate = threading.Event(), threading.Event()
        self.read_gate.set()
        self.load_gate.set()
        self.reads: list[str] = []
        self.loads: list[str] = []
        self.how: dict[str, tuple[Way, bool]] = {}

    def read(self, asked: str) -> Opened | None:
        self.reads.append(asked)
        assert self.read_gate.wait(20)
        if asked in self.broken:
            raise OSError("broken")
        if asked in self.missing:
            return None
        return Opened(None, asked.encode(), asked.encode(), self.ways.get(asked, WAY))  # type: ignore[arg-type]

    def is_ready(self) -> bool:
        return self.is_up

    def load(self, way: Way, opened: Opened, *, recorded: bool) -> Any:
        asked = opened.raw.decode()
        self.loads.append(asked)
        self.how[asked] = way, recorded
        assert self.load_gate.wait(20)
        return None if asked in self.refused else asked

    def is_current(self, way: Way, executable: Any) -> bool:  # noqa: ARG002
        return self.current


_made: list[Ahead] = []


@pytest.fixture(autouse=True)
def _no_threads_stay() -> Iterator[None]:
    yield
    while _made:
        _made.pop().close()
    until(no_threads)


def no_threads() -> bool:
    """Whether no thread works ahead."""
    return not any(thread.name.startswith("rewarm-ahead") for thread in threading.enumerate())


def begun(desk: Desk, count: int = 3, size: int = 10) -> Ahead:
    """Loads of so many entries, begun."""
    made = Ahead([Load(key(number), WAY, size) for number in range(count)], desk.read, desk)
    made.begin()
    _made.append(made)
    return made


def until(true: Callable[[], bool]) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.002)


def ask(made: Ahead, number: int, way: Way | None = WAY) -> Any:
    """What a program gets: "loaded", "read" or `None`; of the right entry."""
    taken = made.take(key(number), lambda: way)
    if taken is None:
        return None
    assert taken.opened.raw == key(number).encode()
    assert taken.executable in (None, key(number))
    return "read" if taken.executable is None else "loaded"


def test_all_is_ready_and_is_handed_out_once() -> None:
    desk = Desk()
    made = begun(desk)
    until(lambda: made.counts["loaded"] == 3)
    assert [ask(made, number) for number in (0, 1, 2, 0, 1, 7)] == ["loaded"] * 3 + [None] * 3
    assert made.counts == {"read": 3, "loaded": 3, "used": 3}


def test_nothing_is_loaded_before_there_is_a_client() -> None:
    desk = Desk()
    desk.is_up = False
    made = begun(desk)
    until(lambda: made.counts["read"] == 3)
    assert ask(made, 0) == "read"
    time.sleep(0.05)
    assert desk.loads == []
    desk.is_up = True
    until(lambda: made.counts["loaded"] == 2)
    assert ask(made, 1) == "loaded"


@pytest.mark.parametrize("gate", ["read_gate", "load_gate"])
def test_who_asks_early_joins_what_is_under_way(gate: str) -> None:
    desk = Desk()
    getattr(desk, gate).clear()
    made = begun(desk, count=1)
    until(lambda: bool(desk.reads if gate == "read_gate" else desk.loads))
    found: list[Any] = []
    asker = threading.Thread(target=lambda: found.append(ask(made, 0)))
    asker.start()
    time.sleep(0.05)
    assert found == []
    getattr(desk, gate).set()
    asker.join(20)
    assert found == ["loaded"]
    assert len(desk.loads) == 1


def test_what_was_not_begun_is_not_waited_for() -> None:
    desk = Desk()
    desk.read_gate.clear()
    made = begun(desk, count=20)
    until(lambda: bool(desk.reads))
    assert ask(made, 19) is None
    desk.read_gate.set()
    until(lambda: made.counts["loaded"] == 19)
    assert key(19) not in desk.reads


def test_what_is_not_there_or_broken_is_not_handed_out() -> None:
    desk = Desk()
    desk.missing, desk.broken, desk.refused = {key(0)}, {key(1)}, {key(2)}
    made = begun(desk, count=4)
    until(lambda: made.counts["loaded"] == 1)
    assert [ask(made, number) for number in range(4)] == [None, None, "read", "loaded"]


# -- what is offered while it runs ---------------------------------------------------------------------------------


def offered(*numbers: int) -> list[Load]:
    """Entries of which no record says how they are loaded."""
    return [Load(key(number)) for number in numbers]


def test_what_is_offered_is_loaded_as_it_says_itself() -> None:
    desk = Desk()
    made = begun(desk, count=1)
    until(lambda: made.counts["loaded"] == 1)
    desk.ways = {key(5): None}
    made.offer(offered(4, 5))
    until(lambda: made.counts["read"] == 3 and made.counts["loaded"] == 2)
    assert desk.how == {key(0): (WAY, True), key(4): (WAY, False)}
    assert [ask(made, number) for number in (4, 5, 0, 4)] == ["loaded", "read", "loaded", None]


def test_threads_come_again_for_what_is_offered_after_all_was_asked_for() -> None:
    made = begun(Desk(), count=0)
    until(no_threads)
    made.offer(offered(1))
    until(lambda: made.counts["loaded"] == 1)
    assert ask(made, 1) == "loaded"
    until(no_threads)
    made.offer(offered(2, 3))
    until(lambda: made.counts["loaded"] == 3)
    assert [ask(made, number) for number in (2, 3)] == ["loaded"] * 2


def test_nothing_is_done_before_it_begins() -> None:
    desk = Desk()
    made = Ahead([], desk.read, desk)
    _made.append(made)
    made.offer(offered(1))
    assert ask(made, 1) is None
    made.offer(offered(2))
    assert no_threads()
    made.begin()
    until(lambda: made.counts["loaded"] == 1)
    assert desk.reads == [key(2)]


def test_what_was_asked_for_already_is_not_read_when_it_is_offered() -> None:
    desk = Desk()
    made = begun(desk, count=1)
    assert ask(made, 7) is None
    made.offer(offered(0, 7, 8, 8))
    until(lambda: made.counts["loaded"] == 2)
    assert sorted(desk.reads) == [key(0), key(8)]


def test_what_says_the_same_is_loaded_as_the_program_wants_it() -> None:
    desk, other = Desk(), WAY._replace(devices=(1,))
    made = begun(desk, count=0)
    made.offer(offered(1, 2))
    until(lambda: made.counts["loaded"] == 2)
    assert ask(made, 1, None) == "read", "whatever the program cannot say teaches nothing"
    assert ask(made, 2, other) == "read"
    desk.ways = {key(4): WAY._replace(options=b"another")}
    made.offer(offered(3, 4))
    until(lambda: made.counts["loaded"] == 4)
    assert [desk.how[key(number)][0] for number in (2, 3, 4)] == [WAY, other, desk.ways[key(4)]]
    assert ask(made, 3, other) == "loaded"


def test_what_a_record_says_is_not_learned_otherwise() -> None:
    desk = Desk()
    desk.load_gate.clear()
    made = begun(desk, count=50)
    until(lambda: bool(desk.loads))
    desk.load_gate.set()
    assert ask(made, 0, WAY._replace(devices=(1,))) == "read"
    until(lambda: made.counts["loaded"] == 50)
    assert {way for way, _ in desk.how.values()} == {WAY}


def test_after_the_end_nothing_is_taken_that_is_offered() -> None:
    desk = Desk()
    made = begun(desk, count=0)
    made.close()
    made.offer(offered(1))
    time.sleep(0.05)
    assert (desk.reads, ask(made, 1)) == ([], None)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=40))
def test_offers_and_questions_in_any_order(steps: list[tuple[bool, int]]) -> None:
    desk = Desk()
    made = begun(desk, count=3)
    handed: list[int] = []
    for asks, number in steps:
        if asks:
            handed += [number] if ask(made, number) else []
        else:
            made.offer(offered(number))
    assert len(handed) == len(set(handed))
    assert len(desk.reads) == len(set(desk.reads))
    made.close()
    until(no_threads)


@pytest.mark.parametrize(
    "way", [None, WAY._replace(devices=(1,)), WAY._replace(options=b""), WAY._replace(platform="gpu")]
)
def test_an_executable_loaded_in_another_way_is_not_used(way: Way | None) -> None:
    made = begun(Desk())
    until(lambda: made.counts["loaded"] == 3)
    assert ask(made, 0, way) == "read"
    assert made.counts["used"] == 0


def test_an_executable_of_another_client_is_not_used() -> None:
    desk = Desk()
    made = begun(desk)
    until(lambda: made.counts["loaded"] == 3)
    desk.current = False
    assert ask(made, 0) == "read"


def test_no_more_is_held_than_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_LOADED_BYTES", 50)
    monkeypatch.setattr(ahead, "_READ_BYTES", 30)
    made = begun(Desk(), count=100)
    # Each of the threads may have passed the look before another's step counted.
    until(lambda: made.counts["loaded"] >= 6)
    time.sleep(0.1)
    assert made.counts["loaded"] <= 6 + ahead._THREADS
    assert made.counts["read"] <= 6 + 4 + 2 * ahead._THREADS
    assert [ask(made, number) for number in range(100)].count(None) < 100
    made.close()


def test_what_nobody_asks_for_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_PATIENCE", 0.2)
    made = begun(Desk())
    until(lambda: made.counts["loaded"] == 3)
    until(no_threads)
    assert ask(made, 0) is None


def test_after_the_end_nothing_is_begun() -> None:
    desk = Desk()
    desk.load_gate.clear()
    made = begun(desk, count=50)
    until(lambda: bool(desk.loads))
    made.close()
    began = len(desk.loads)
    desk.load_gate.set()
    until(no_threads)
    assert len(desk.loads) == began
    assert ask(made, 0) is None


FORKS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from test_restart_ahead import Desk, ask, begun, until
desk = Desk()
desk.load_gate.clear()
made = begun(desk)
until(lambda: bool(desk.loads))
child = os.fork()
if child == 0:
    os._exit(0 if ask(made, 0) is None else 1)
assert os.waitpid(child, 0)[1] == 0
desk.load_gate.set()
until(lambda: made.counts["loaded"] == 3)
print(ask(made, 0))
"""


def test_a_child_of_fork_has_nothing_and_waits_for_nothing() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "loaded\n"), done.stderr


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 4), st.sets(st.integers(0, 30)))
def test_many_threads_ask_in_any_order(order: list[int], askers: int, missing: set[int]) -> None:
    desk = Desk()
    desk.missing = {key(number) for number in missing}
    made = begun(desk, count=25)
    found: list[tuple[int, Any]] = []

    def work(mine: list[int]) -> None:
        found.extend((number, ask(made, number)) for number in mine)

    threads = [threading.Thread(target=work, args=(order[who::askers],)) for who in range(askers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    made.close()
    handed = [number for number, what in found if what]
    assert len(handed) == len(set(handed))
    assert not set(handed) & (missing | set(range(25, 31)))
