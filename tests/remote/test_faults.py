"""The guard over real clients and real servers, with a proxy between them that does what networks and servers do."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import fault_proxy as faults
import pytest
from fault_proxy import Fault, FaultProxy
from servers import Server

from conftest import first
from rewarm.remote.address import parse
from rewarm.remote.blobs import RemoteError, ThrottledError, UnreachableError
from rewarm.remote.guard import Guarded
from rewarm.remote.opening import open_blobs

pytest_plugins = ["remote_fixtures"]
pytestmark = pytest.mark.usefixtures("clean_clients")

# Of tests/conftest.py: runs a source in a fresh process.
Program = Callable[..., Any]

DEADLINE = 0.7
SLACK = 0.6  # a busy machine must not fail these
NAME = "main/ab/" + "ab" * 32
CONTENT = bytes(range(256)) * 20

# Those that HTTP alone has.
STATUSES = [
    faults.status(500),
    faults.status(502),
    faults.status(503),
    faults.status(503, "1"),
    faults.status(429, "1"),
    faults.status(429),
]
# Those in which nobody can be served.
DEAD = [
    faults.RESET,
    faults.RESET_IN_BODY,
    faults.HANG,
    faults.HANG_IN_HEAD,
    faults.HANG_IN_BODY,
    faults.TRUNCATE,
    faults.drip(0.05),
]


@dataclass
class Remote:
    """One server behind a proxy.

    Attributes:
      address: how the user spells it.
      http: whether it speaks HTTP.
    """

    proxy: FaultProxy
    address: str
    http: bool

    def guarded(self, told: list[str] | None = None) -> Guarded:
        """A client of its own under a guard."""
        tell: Callable[[str], object] = [].append if told is None else told.append
        return Guarded(open_blobs(parse(self.address)), deadline=DEADLINE, tell=tell)


HTTP = ("moto", "rclone-s3", "nginx")


@contextmanager
def behind_a_proxy(running: Server) -> Iterator[Remote]:
    http = running.name in HTTP
    with FaultProxy(running.port, http=http) as proxy:
        url, options = running.url, dict(running.options)
        if "endpoint" in options:
            options["endpoint"] = f"http://127.0.0.1:{proxy.port}"
        else:
            url = url.replace(f":{running.port}", f":{proxy.port}")
        address = Server(running.name, url, options=options).address(deadline=f"{DEADLINE}")
        made = Remote(proxy, address, http=http)
        open_blobs(parse(address.replace(f"deadline={DEADLINE}", "deadline=10"))).put(NAME, CONTENT)
        yield made


@pytest.fixture(params=first(2, ["moto", "valkey", "rclone-s3", "nginx", "redis"]))
def remote(request: pytest.FixtureRequest, server: Callable[[str], Server]) -> Iterator[Remote]:
    with behind_a_proxy(server(request.param)) as made:
        yield made


@pytest.fixture(params=first(1, HTTP))
def http_remote(request: pytest.FixtureRequest, server: Callable[[str], Server]) -> Iterator[Remote]:
    with behind_a_proxy(server(request.param)) as made:
        yield made


def outcome(act: Callable[[], Any]) -> tuple[Any, float]:
    """What came, or was raised, and after how many seconds."""
    began = time.monotonic()
    try:
        result = act()
    except RemoteError as error:
        result = error
    return result, time.monotonic() - began


def read(guard: Guarded) -> Any:
    return guard.get(NAME, limit=100_000)


def recovers(guard: Guarded, within: float) -> None:
    end = time.monotonic() + within
    while True:
        result, _ = outcome(lambda: read(guard))
        if result == CONTENT:
            return
        assert isinstance(result, RemoteError)
        assert time.monotonic() < end, result
        time.sleep(0.02)


def test_without_a_fault_the_proxy_changes_nothing(remote: Remote) -> None:
    guard = remote.guarded()
    assert read(guard) == CONTENT
    assert guard.put("n/x", b"1" * 100_000)
    assert guard.get("n/x", limit=100_000) == b"1" * 100_000
    guard.delete("n/x")
    assert guard.get("n/x", limit=100_000) is None
    assert guard.traffic().state == "ok"
    assert remote.proxy.requests > 0


def test_latency_below_the_deadline_is_no_fault(remote: Remote) -> None:
    guard = remote.guarded()
    read(guard)
    remote.proxy.fault = faults.latency(0.08)
    result, took = outcome(lambda: read(guard))
    assert result == CONTENT
    assert 0.08 <= took < DEADLINE
    assert guard.traffic().opened == 0


@pytest.mark.parametrize(("fresh", "verb"), [(True, "get"), (False, "get"), (False, "put")])
@pytest.mark.parametrize("fault", DEAD, ids=str)
def test_each_fault_is_an_error_in_time(remote: Remote, fault: Fault, fresh: bool, verb: str) -> None:
    guard = remote.guarded()
    if not fresh:
        assert read(guard) == CONTENT
    remote.proxy.fault = fault
    act = (lambda: read(guard)) if verb == "get" else (lambda: guard.put("n/fault", CONTENT))
    result, took = outcome(act)
    assert took <= DEADLINE + SLACK
    if result is True:  # an answer without a body has none that could break off: the put did happen
        assert verb == "put"
        assert fault.kind in ("reset-in-body", "hang-in-body", "truncate", "drip")
        return
    assert isinstance(result, UnreachableError), result
    assert guard.traffic().state == "dead"


@pytest.mark.parametrize("verb", ["get", "put"])
@pytest.mark.parametrize("fault", STATUSES, ids=str)
def test_each_status_is_an_error_of_its_kind(http_remote: Remote, fault: Fault, verb: str) -> None:
    guard = http_remote.guarded()
    http_remote.proxy.fault = fault
    result, took = outcome(lambda: read(guard) if verb == "get" else guard.put("n/fault", CONTENT))
    assert took <= DEADLINE + SLACK
    assert isinstance(result, ThrottledError if fault.status in (429, 503) else UnreachableError), result
    before = http_remote.proxy.requests
    assert type(outcome(lambda: read(guard))[0]) is type(result)
    assert http_remote.proxy.requests == before
    http_remote.proxy.fault = faults.NONE
    recovers(guard, 1.0 + SLACK)


def test_flipped_bytes_are_an_error_or_the_readers_to_find(remote: Remote) -> None:
    guard = remote.guarded()
    assert read(guard) == CONTENT
    remote.proxy.fault = faults.FLIP
    for _ in range(5):
        result, took = outcome(lambda: read(guard))
        assert took <= DEADLINE + SLACK
        assert isinstance(result, RemoteError) or result is None or result != CONTENT
    remote.proxy.fault = faults.NONE
    recovers(guard, 2 * DEADLINE + 2.0)


@pytest.mark.parametrize("fault", [*DEAD, "refuse"], ids=str)
def test_a_dead_remote_costs_one_deadline_and_comes_back_within_the_pause(remote: Remote, fault: Fault | str) -> None:
    told: list[str] = []
    guard = remote.guarded(told)
    assert read(guard) == CONTENT
    if isinstance(fault, Fault):
        remote.proxy.fault = fault
    else:
        remote.proxy.die()
    began = time.monotonic()
    for _ in range(20):
        assert isinstance(outcome(lambda: read(guard))[0], UnreachableError)
    assert time.monotonic() - began <= 3 * DEADLINE  # of twenty
    assert guard.traffic().opened == 1
    remote.proxy.fault = faults.NONE
    if not isinstance(fault, Fault):
        remote.proxy.come_back()
    recovers(guard, 1.0 + SLACK)
    assert [("does not answer" in line, "answers again" in line) for line in told] == [(True, False), (False, True)]


@pytest.mark.parametrize("fault", [faults.HANG, faults.HANG_IN_BODY, faults.drip(0.05)], ids=str)
def test_many_threads_wait_for_one_deadline_together(remote: Remote, fault: Fault) -> None:
    guard = remote.guarded()
    remote.proxy.fault = fault
    began = time.monotonic()

    def ask(number: int) -> Any:
        time.sleep(0.05 * number)
        return outcome(lambda: read(guard))[0]

    with ThreadPoolExecutor(16) as pool:
        assert {type(result) for result in pool.map(ask, range(16))} == {UnreachableError}
    assert time.monotonic() - began <= DEADLINE + SLACK
    assert guard.traffic().opened == 1


def test_faults_in_any_order_under_load(remote: Remote) -> None:
    """Eight threads, a fault every 0.15 s: every verb in time, and what is read and not flipped is what was put."""
    chance = random.Random(7)
    guards = [remote.guarded() for _ in range(4)]
    done = threading.Event()
    wrong: list[str] = []
    good = [0]

    def blob(number: int) -> bytes:
        body = b"%d" % number * 700
        return hashlib.sha256(body).digest() + body

    def work(who: int) -> None:
        own = random.Random(who)
        while not done.is_set():
            guard, number = own.choice(guards), own.randrange(20)
            if own.random() < 0.5:
                result, took = outcome(lambda: guard.put(f"load/{number}", blob(number)))  # noqa: B023
            else:
                result, took = outcome(lambda: guard.get(f"load/{number}", limit=10_000))  # noqa: B023
            if took > DEADLINE + SLACK:
                wrong.append(f"{took:.3f} s: {result!r}")
            if isinstance(result, bytes):
                if result == blob(number):
                    good[0] += 1
                elif hashlib.sha256(result[32:]).digest() == result[:32]:
                    wrong.append(f"another blob for {number}")
            time.sleep(0.002)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            kinds = [*DEAD, faults.FLIP, faults.NONE, faults.NONE, faults.latency(0.05)]
            remote.proxy.fault = chance.choice(kinds + (STATUSES if remote.http else []))
            if chance.random() < 0.1:
                remote.proxy.die()
                time.sleep(0.05)
                remote.proxy.come_back()
            time.sleep(0.15)
        remote.proxy.fault = faults.NONE
    finally:
        done.set()
        for thread in threads:
            thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    recovers(remote.guarded(), 1.0)


PROGRAM = """
    import os, signal, sys, threading, time
    from rewarm.remote.address import parse
    from rewarm.remote.blobs import RefusedError, RemoteError, UnreachableError
    from rewarm.remote.guard import Guarded
    from rewarm.remote.opening import open_blobs

    def guarded(deadline=0.7):
        return Guarded(open_blobs(parse(sys.argv[1])), deadline=deadline)

    def get(guard):
        return guard.get(sys.argv[2], limit=100_000)
"""


@pytest.mark.parametrize("fault", [faults.HANG, faults.HANG_IN_BODY, faults.drip(0.05)], ids=str)
def test_requests_that_hang_do_not_hold_or_change_the_end_of_a_process(
    remote: Remote, program: Program, fault: Fault
) -> None:
    remote.proxy.fault = fault
    began = time.monotonic()
    run = program(
        PROGRAM
        + """
    guard = guarded()
    def ask():
        try:
            get(guard)
        except RemoteError:
            pass
    # Some were given up, and some are under way, when it ends.
    for _ in range(4):
        threading.Thread(target=ask, daemon=True).start()
    time.sleep(float(sys.argv[3]))
    sys.exit(5)
    """,
        remote.address,
        NAME,
        "0.9" if fault is faults.HANG else "0.4",
        ok=False,
    )
    assert run.code == 5
    assert run.err == ""
    assert time.monotonic() - began < 5.0


def test_an_answer_that_comes_while_the_interpreter_goes_does_not_abort_it(remote: Remote, program: Program) -> None:
    """A thread that returns from a client then cannot get on; whatever becomes of it, the exit code stays."""
    remote.proxy.fault = faults.latency(0.3)
    run = program(
        PROGRAM
        + """
    guard = guarded()
    class Slow:
        def __del__(self, sleep=time.sleep, write=os.write):
            sleep(0.6)
            write(1, b"gone")
    sys.slow = Slow()  # goes last, when threads are not let on any more
    def ask():  # on a busy machine the deadline may come first, and a thread would say so
        try:
            get(guard)
        except RemoteError:
            pass
    for _ in range(4):
        threading.Thread(target=ask, daemon=True).start()
    time.sleep(0.15)
    sys.exit(5)
    """,
        remote.address,
        NAME,
        ok=False,
    )
    assert run.out.endswith("gone")
    assert run.code == 5
    assert run.err == ""


def test_a_child_of_fork_never_hangs(remote: Remote, program: Program) -> None:
    """Redis goes on in the child with connections of its own; obstore, which would hang, is refused."""
    program(
        PROGRAM
        + """
    guard = guarded(2.0)
    content = get(guard)
    assert content
    on = True
    wrong = []
    def ask():
        while on:
            if get(guard) != content:
                wrong.append("another content")
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads: thread.start()
    def child():
        began = time.monotonic()
        for one in (guard, guarded(2.0)):
            try:
                answer = get(one)
            except RefusedError as error:
                assert sys.argv[3] == "http" and "forked" in str(error), error
            else:
                assert sys.argv[3] == "redis" and answer == content
        assert time.monotonic() - began < 1.5
    codes = []
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            signal.alarm(5)
            try:
                child()
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr)
                os._exit(1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    on = False
    for thread in threads: thread.join()
    assert codes == [0] * 10, codes
    assert wrong == []
    assert get(guard) == content  # what the children closed was not the parent's
    """,
        remote.address,
        NAME,
        "http" if remote.http else "redis",
    )
