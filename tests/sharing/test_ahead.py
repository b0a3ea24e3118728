"""What is fetched ahead: in order, once, and not what the program has asked for already."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import pytest

from rewarm.sharing.ahead import Ahead


class Fetching:
    """Fetches at a word, and remembers what."""

    def __init__(self, *, held: bool = False) -> None:
        self.fetched: list[str] = []
        self.calls: list[list[str]] = []
        self.go = threading.Event()
        if not held:
            self.go.set()

    def __call__(self, keys: Sequence[str]) -> None:
        self.calls.append(list(keys))
        self.fetched += keys
        self.go.wait(20)


def over(fetching: Fetching, number: int) -> None:
    until = time.monotonic() + 20
    while len(fetching.fetched) < number and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(0.05)


def test_each_once_and_in_order() -> None:
    fetching = Fetching()
    ahead = Ahead(fetching, threads=1)
    ahead.start(["a", "b", "c", "a"])
    over(fetching, 3)
    assert fetching.fetched == ["a", "b", "c"]


def test_some_at_once_and_who_asks_waits_for_all_of_them() -> None:
    fetching = Fetching(held=True)
    ahead = Ahead(fetching, threads=1, at_once=3)
    ahead.start(list("abcde"))
    over(fetching, 3)
    assert fetching.calls == [["a", "b", "c"]]
    assert ahead.settle("e", 1.0) is False, "it is not begun, and who asks has it"
    threading.Timer(0.1, fetching.go.set).start()
    assert ahead.settle("c", 20.0) is True
    over(fetching, 4)
    assert fetching.calls == [["a", "b", "c"], ["d"]]


def test_what_the_program_asked_for_before_the_plan_came_is_its_own() -> None:
    fetching = Fetching()
    ahead = Ahead(fetching, threads=1)
    assert ahead.settle("a", 1.0) is False
    ahead.start(["a", "b"])
    over(fetching, 1)
    assert fetching.fetched == ["b"]


def test_what_is_under_way_is_waited_for_and_what_is_not_begun_is_left_to_who_asks() -> None:
    fetching = Fetching(held=True)
    ahead = Ahead(fetching, threads=1)
    ahead.start(["a", "b"])
    over(fetching, 1)
    assert ahead.settle("b", 5.0) is False
    since = time.monotonic()
    assert ahead.settle("a", 0.2) is False
    assert 0.15 < time.monotonic() - since < 5.0
    threading.Timer(0.1, fetching.go.set).start()
    assert ahead.settle("a", 20.0) is True
    time.sleep(0.1)
    assert fetching.fetched == ["a"]


def test_no_more_threads_than_said() -> None:
    fetching = Fetching(held=True)
    ahead = Ahead(fetching, threads=3)
    ahead.start([str(number) for number in range(50)])
    over(fetching, 3)
    assert len(fetching.fetched) == 3
    ahead.stop()
    fetching.go.set()
    time.sleep(0.1)
    assert len(fetching.fetched) == 3


# In a process of its own: what else was imported beside this test (JAX warns of any fork) is not its matter.
FORKING = """
import os, sys, threading
from rewarm.sharing.ahead import Ahead

begun, go = threading.Event(), threading.Event()

def fetch(key):
    begun.set()
    return go.wait(20)

ahead = Ahead(fetch, threads=1)
ahead.start(["a", "b"])
assert begun.wait(20)
child = os.fork()
if child == 0:
    os._exit(int(ahead.settle("a", 20.0)))
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go.set()
sys.exit(code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_fork_waits_for_nothing() -> None:
    since = time.monotonic()
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=60)
    assert time.monotonic() - since < 15
