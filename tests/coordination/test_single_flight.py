"""One thread per key does the work; whatever becomes of it, nobody waits for ever."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rewarm.coordination import Flight, SingleFlight

PATIENCE = 20.0


class CountedFlights(SingleFlight):
    """Flights that say when a thread has boarded, so that tests need not sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.boarded = threading.Semaphore(0)

    @contextmanager
    def board(self, key: str) -> Iterator[Flight]:
        with super().board(key) as flight:
            self.boarded.release()
            yield flight

    def wait_for(self, count: int) -> None:
        """Wait until that many more have boarded."""
        for _ in range(count):
            assert self.boarded.acquire(timeout=PATIENCE), "somebody did not board"


class Crowd:
    """Threads that all ask for one key and note what they were given."""

    def __init__(self, flights: CountedFlights, key: str = "k") -> None:
        self.flights = flights
        self.key = key
        self.given: list[bytes | None] = []
        self.led = 0
        self._threads: list[threading.Thread] = []

    def follow(self, count: int) -> None:
        """Send that many threads, and wait until each has boarded."""
        new = [threading.Thread(target=self._ask, daemon=True) for _ in range(count)]
        for thread in new:
            thread.start()
        self._threads += new
        self.flights.wait_for(count)

    def _ask(self) -> None:
        with self.flights.board(self.key) as flight:
            if flight.mine:
                self.led += 1
            else:
                self.given.append(flight.wait())

    def come_home(self) -> list[bytes | None]:
        """What the followers were given, once all are done."""
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a thread waits for ever"
        return self.given


@pytest.fixture
def flights() -> CountedFlights:
    return CountedFlights()


@contextmanager
def leading(flights: CountedFlights, key: str = "k") -> Iterator[Flight]:
    """A flight that this thread leads."""
    with flights.board(key) as flight:
        flights.wait_for(1)
        assert flight.mine
        yield flight


# ---------------------------------------------------------------------------------------------------------------
# A leader and its followers


def test_followers_get_what_the_leader_lands(flights: CountedFlights) -> None:
    crowd = Crowd(flights)
    with leading(flights) as flight:
        crowd.follow(7)
        assert flight.followers == 7
        flight.land(b"result")
    assert crowd.come_home() == [b"result"] * 7
    assert crowd.led == 0


def test_followers_need_not_wait_for_the_leader_to_leave(flights: CountedFlights) -> None:
    crowd = Crowd(flights)
    with leading(flights) as flight:
        crowd.follow(3)
        flight.land(b"early")
        assert crowd.come_home() == [b"early"] * 3


def test_who_comes_after_the_landing_still_gets_the_result(flights: CountedFlights) -> None:
    crowd = Crowd(flights)
    with leading(flights) as flight:
        flight.land(b"result")
        crowd.follow(1)
        assert crowd.come_home() == [b"result"]


def test_an_empty_result_is_a_result(flights: CountedFlights) -> None:
    crowd = Crowd(flights)
    with leading(flights) as flight:
        crowd.follow(1)
        flight.land(b"")
    assert crowd.come_home() == [b""]


def test_the_first_landing_counts(flights: CountedFlights) -> None:
    crowd = Crowd(flights)
    with leading(flights) as flight:
        crowd.follow(2)
        flight.land(b"first")
        flight.land(b"second")
        flight.land(None)
    assert crowd.come_home() == [b"first"] * 2


def test_keys_do_not_wait_for_each_other(flights: CountedFlights) -> None:
    crowd = Crowd(flights, key="another")
    with leading(flights, "one"):
        crowd.follow(1)
        crowd.come_home()
    assert crowd.led == 1


def test_after_a_flight_the_next_one_leads(flights: CountedFlights) -> None:
    for _ in range(3):
        with leading(flights) as flight:
            flight.land(b"x")
    crowd = Crowd(flights)
    crowd.follow(1)
    assert crowd.come_home() == []
    assert crowd.led == 1


# ---------------------------------------------------------------------------------------------------------------
# Leaders that fail


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_followers_of_a_leader_that_raises_get_none(flights: CountedFlights, error: type[BaseException]) -> None:
    crowd = Crowd(flights)

    def fail() -> None:
        with leading(flights):
            crowd.follow(4)
            raise error

    with pytest.raises(error):
        fail()
    assert crowd.come_home() == [None] * 4
    with leading(flights):
        pass


def test_followers_of_a_leader_without_a_result_get_none(flights: CountedFlights) -> None:
    crowd = Crowd(flights)
    with leading(flights):
        crowd.follow(2)
    assert crowd.come_home() == [None] * 2


def test_a_follower_that_raises_harms_nobody(flights: CountedFlights) -> None:
    crowd = Crowd(flights)
    followed: list[bool] = []

    def fail() -> None:
        with contextlib.suppress(ValueError), flights.board("k") as flight:
            followed.append(not flight.mine)
            raise ValueError("of a follower")

    with leading(flights) as flight:
        crowd.follow(1)
        thread = threading.Thread(target=fail, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        flights.wait_for(1)
        crowd.follow(1)
        assert crowd.led == 0
        assert followed == [True]
        flight.land(b"result")
    assert crowd.come_home() == [b"result"] * 2


# ---------------------------------------------------------------------------------------------------------------
# Closing


def test_closing_says_how_many_wait(flights: CountedFlights) -> None:
    crowd = Crowd(flights)
    with leading(flights) as flight:
        crowd.follow(3)
        assert flight.close() == 3
        assert flight.close() == 3
        flight.land(b"for three")
    assert crowd.come_home() == [b"for three"] * 3


def test_closing_without_followers_leaves_the_key_to_the_next(flights: CountedFlights) -> None:
    crowd = Crowd(flights)
    with leading(flights) as flight:
        assert flight.close() == 0
        crowd.follow(1)
        crowd.come_home()
        assert crowd.led == 1
        assert flight.close() == 0


def test_leaving_a_closed_flight_does_not_close_its_successor(flights: CountedFlights) -> None:
    second = Crowd(flights)
    release = threading.Event()
    led: list[bool] = []

    def lead_the_second() -> None:
        with flights.board("k") as flight:
            led.append(flight.mine)
            assert release.wait(PATIENCE)
            flight.land(b"of the second")

    with leading(flights) as flight:
        flight.close()
        leader = threading.Thread(target=lead_the_second, daemon=True)
        leader.start()
        flights.wait_for(1)
    second.follow(2)
    release.set()
    assert second.come_home() == [b"of the second"] * 2
    leader.join(PATIENCE)
    assert led == [True]
    assert second.led == 0


# ---------------------------------------------------------------------------------------------------------------
# Dead ends


@pytest.mark.timeout(30)
def test_a_thread_does_not_wait_for_itself(flights: CountedFlights) -> None:
    crowd = Crowd(flights)
    with leading(flights) as outer:
        with leading(flights) as inner:
            assert inner is not outer
            assert inner.close() == 0
            inner.land(b"inner")
        crowd.follow(1)
        outer.land(b"outer")
    assert crowd.come_home() == [b"outer"], "the inner flight can be joined by nobody"
    with leading(flights):
        pass


def _python(code: str) -> str:
    """What a child process prints. Its own process, since it forks, or may hang."""
    command = [sys.executable, "-c", _PRELUDE + textwrap.dedent(code)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail("it hangs")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_PRELUDE = """
import os, threading
from rewarm.coordination import SingleFlight
flights = SingleFlight()

def ask(key):
    with flights.board(key) as flight:
        return "leads" if flight.mine else flight.wait()

def in_child(act):
    child = os.fork()
    if child == 0:
        try:
            print(act(), flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""


def test_two_threads_that_want_each_others_program_both_come_home() -> None:
    printed = _python(
        """
        both_lead = threading.Barrier(2)
        def work(mine, other):
            with flights.board(mine):
                both_lead.wait()
                ask(other)
            print("home", flush=True)
        threads = [threading.Thread(target=work, args=pair) for pair in (("a", "b"), ("b", "a"))]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """
    )
    assert printed.count("home") == 2


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")


@needs_fork
def test_a_child_does_not_wait_for_flights_of_its_parents_threads() -> None:
    printed = _python(
        """
        boarded, done = threading.Event(), threading.Event()
        def lead():
            with flights.board("k"):
                boarded.set(); done.wait()
        leader = threading.Thread(target=lead); leader.start(); boarded.wait()
        in_child(lambda: ask("k"))
        done.set(); leader.join()
        """
    )
    assert printed == "leads"


@needs_fork
def test_a_child_forked_while_the_table_is_locked_goes_on() -> None:
    printed = _python(
        """
        with flights._lock:
            in_child(lambda: ask("k"))
        """
    )
    assert printed == "leads"


@needs_fork
def test_a_leader_that_forks_leads_on_in_both() -> None:
    printed = _python(
        """
        import sys
        given = []
        with flights.board("k") as flight:
            follower = threading.Thread(target=lambda: given.append(ask("k"))); follower.start()
            while not flight.followers: pass
            child = os.fork()
            flight.land(b"result")
        if child == 0:
            print(ask("k"), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        follower.join()
        print(given, ask("k"))
        """
    )
    assert printed.splitlines() == ["leads", "[b'result'] leads"]


# ---------------------------------------------------------------------------------------------------------------
# Many at once


def _rush(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a thread waits for ever"


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads take turns after microseconds, so that they meet."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switching")
def test_at_most_one_leads_a_key_at_a_time(flights: CountedFlights) -> None:
    inside = {f"k{number}": 0 for number in range(3)}
    faults: list[str] = []

    def work(number: int) -> None:
        for turn in range(200):
            key = f"k{(number + turn) % 3}"
            with flights.board(key) as flight:
                if not flight.mine:
                    if flight.wait() not in (None, key.encode()):
                        faults.append(f"{key}: the result of another key")
                    continue
                inside[key] += 1
                if inside[key] != 1:
                    faults.append(f"{key}: {inside[key]} leaders")
                inside[key] -= 1
                flight.land(key.encode() if turn % 3 else None)

    _rush(work, 8)
    assert faults == []
