"""The guard over a client that hangs, fails or panics as a test wants: what a caller gets, when, and what it costs."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rewarm.remote.blobs import (
    BlobInfo,
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
)
from rewarm.remote.folder import FolderBlobs
from rewarm.remote.guard import Guarded

# Of tests/conftest.py: runs a source in a fresh process.
Program = Callable[..., Any]

DEADLINE = 1.0
SLACK = 0.6  # a busy machine must not fail these; less than the deadline, so that two of them are seen


class Gated(FolderBlobs):
    """A folder whose verbs first do what the test wants: `before` may wait for the gate, or raise."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.before: Callable[[], None] = self.nothing
        self.gate = threading.Event()
        self.calls = 0
        self.closed = 0

    def nothing(self) -> None:
        """Let it through."""

    def hang(self) -> None:
        """What a client does that heeds no timeout."""
        self.gate.wait(60)

    def get(self, name: str, *, limit: int) -> bytes | None:
        self.calls += 1
        self.before()
        return super().get(name, limit=limit)

    def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
        self.calls += 1
        self.before()
        return super().put(name, data, only_new=only_new)

    def scan(self, prefix: str) -> Iterator[BlobInfo]:
        for info in super().scan(prefix):
            self.before()
            yield info

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def blobs(tmp_path: Path) -> Iterator[Gated]:
    gated = Gated(tmp_path)
    gated.put("n/there", b"content")
    gated.calls = 0
    yield gated
    gated.gate.set()


def guarded(blobs: Any, told: list[str] | None = None, **more: Any) -> Guarded:
    return Guarded(blobs, deadline=DEADLINE, tell=[].append if told is None else told.append, **more)


def outcome(act: Callable[[], Any]) -> tuple[Any, float]:
    """What came, or was raised, and after how many seconds."""
    began = time.monotonic()
    try:
        result = act()
    except RemoteError as error:
        result = error
    return result, time.monotonic() - began


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_verbs_go_through(blobs: Gated) -> None:
    guard = guarded(blobs)
    assert guard.place == blobs.place
    assert guard.get("n/there", limit=99) == b"content"
    assert guard.get("n/not", limit=99) is None
    assert guard.put("n/more", b"12345")
    assert not guard.put("n/more", b"other", only_new=True)
    assert {info.name: info.size for info in guard.scan("n")} == {"n/there": 7, "n/more": 5}
    guard.delete("n/more")
    assert guard.get("n/more", limit=99) is None
    guard.close()
    assert blobs.closed == 1
    assert guard.get("n/there", limit=99) == b"content"
    traffic = guard.traffic()
    assert (traffic.bytes_read, traffic.bytes_written, traffic.passed_over) == (14, 5, 0)
    assert dict(traffic.failures) == {}
    assert traffic.state == "ok"
    assert traffic.requests >= 8
    assert traffic.seconds > 0


def test_names_are_checked_before_anything_is_asked(blobs: Gated) -> None:
    guard = guarded(blobs)
    for act in (
        lambda: guard.get("../etc/passwd", limit=1),
        lambda: guard.put("/x", b""),
        lambda: guard.delete(".x"),
    ):
        with pytest.raises(ValueError, match="not the name of a blob"):
            act()
    assert guard.traffic().requests == 0


def test_a_hanging_client_costs_one_deadline_and_then_microseconds(blobs: Gated) -> None:
    told: list[str] = []
    guard = guarded(blobs, told)
    blobs.before = blobs.hang
    error, took = outcome(lambda: guard.get("n/there", limit=99))
    assert isinstance(error, UnreachableError)
    assert DEADLINE <= took <= DEADLINE + SLACK
    began = time.monotonic()
    for _ in range(200):
        assert isinstance(outcome(lambda: guard.get("n/there", limit=99))[0], UnreachableError)
    assert time.monotonic() - began < DEADLINE / 3
    assert blobs.calls == 1
    traffic = guard.traffic()
    assert (traffic.requests, traffic.passed_over, traffic.opened, traffic.stuck) == (1, 200, 1, 1)
    assert traffic.state == "dead"
    assert len(told) == 1
    assert "does not answer" in told[0]


@pytest.mark.parametrize("verb", ["put", "delete", "scan", "close"])
def test_every_verb_keeps_the_deadline(blobs: Gated, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = guarded(blobs)

    def hang(*_: Any, **__: Any) -> Any:
        blobs.hang()

    monkeypatch.setattr(blobs, verb, hang)
    act: dict[str, Callable[[], Any]] = {
        "put": lambda: guard.put("n/x", b""),
        "delete": lambda: guard.delete("n/x"),
        "scan": lambda: list(guard.scan("n")),
        "close": guard.close,
    }
    error, took = outcome(act[verb])
    assert took <= DEADLINE + SLACK
    assert verb == "close" or isinstance(error, UnreachableError)


def test_a_scan_that_hangs_in_the_middle_is_given_up(blobs: Gated) -> None:
    for number in range(5):
        blobs.put(f"n/{number}", b"")
    blobs.before = lambda: time.sleep(DEADLINE * 0.6)
    guard = guarded(blobs)
    # Each step is in time, though the whole is not.
    assert len(list(guard.scan("n"))) == 6
    blobs.before = blobs.hang
    error, took = outcome(lambda: list(guard.scan("n")))
    assert isinstance(error, UnreachableError)
    assert took <= DEADLINE + SLACK


@pytest.mark.parametrize("threads", [2, 16])
def test_a_dead_remote_costs_sixteen_threads_one_deadline(blobs: Gated, threads: int) -> None:
    guard = guarded(blobs, threads=threads)
    blobs.before = blobs.hang
    began = time.monotonic()

    def ask(number: int) -> float:
        time.sleep(number * DEADLINE / 16)
        error, _ = outcome(lambda: guard.get("n/there", limit=99))
        assert isinstance(error, UnreachableError)
        return time.monotonic() - began

    with ThreadPoolExecutor(16) as pool:
        assert max(pool.map(ask, range(16))) <= DEADLINE + SLACK
    assert guard.traffic().opened == 1


def test_a_client_that_gives_up_by_itself_lets_the_others_go_too(blobs: Gated) -> None:
    guard = guarded(blobs)

    def gives_up() -> None:
        blobs.before = blobs.hang
        time.sleep(0.95 * DEADLINE)
        raise UnreachableError("timed out")

    blobs.before = gives_up
    began = time.monotonic()

    def ask(number: int) -> Any:
        time.sleep(number * DEADLINE / 5)
        return outcome(lambda: guard.get("n/there", limit=99))[0]

    with ThreadPoolExecutor(4) as pool:
        assert {type(result) for result in pool.map(ask, range(4))} == {UnreachableError}
    assert time.monotonic() - began < 1.35 * DEADLINE
    assert guard.traffic().opened == 1


def test_it_is_tried_again_and_is_back(blobs: Gated) -> None:
    told: list[str] = []
    guard = guarded(blobs, told)
    blobs.before = raising(UnreachableError("server says 503"))
    assert isinstance(outcome(lambda: guard.get("n/there", limit=99))[0], UnreachableError)
    time.sleep(1.05)
    assert isinstance(outcome(lambda: guard.get("n/there", limit=99))[0], UnreachableError)
    assert blobs.calls == 2
    blobs.before = blobs.nothing
    time.sleep(1.05)
    assert guard.traffic().state == "dead"
    time.sleep(1.0)  # twice as long as the first time
    assert guard.get("n/there", limit=99) == b"content"
    assert guard.traffic().state == "ok"
    assert [line.split(" ", 1)[1][:13] for line in told] == ["does not answ", "answers again"]
    assert "503" in told[0]


def test_while_one_tries_the_others_do_not_wait(blobs: Gated) -> None:
    guard = guarded(blobs)
    blobs.before = raising(UnreachableError("reset"))
    outcome(lambda: guard.get("n/there", limit=99))
    time.sleep(1.05)
    blobs.before = blobs.hang
    with ThreadPoolExecutor(1) as pool:
        trial = pool.submit(outcome, lambda: guard.get("n/there", limit=99))
        time.sleep(0.1)
        _, took = outcome(lambda: guard.get("n/there", limit=99))
        assert took < DEADLINE / 3
        blobs.gate.set()
        assert trial.result()[0] == b"content"
    assert guard.get("n/there", limit=99) == b"content"


def test_a_remote_that_hangs_costs_one_deadline_in_all_and_is_heard_when_it_is_back(blobs: Gated) -> None:
    guard = Guarded(blobs, deadline=2.0)
    blobs.before = blobs.hang
    assert 1.8 < outcome(lambda: guard.get("n/there", limit=99))[1] < 3
    time.sleep(1.05)
    error, took = outcome(lambda: guard.get("n/there", limit=99))
    assert isinstance(error, UnreachableError)
    assert "passed over" in error.reason
    assert took < 1.0, "it is tried, and not waited for"
    assert outcome(lambda: guard.get("n/there", limit=99))[1] < 0.2, "while that is under way nobody asks"
    blobs.gate.set()
    end = time.monotonic() + 5
    while guard.traffic().state != "ok":
        assert time.monotonic() < end
        time.sleep(0.01)
    assert guard.get("n/there", limit=99) == b"content"


def test_what_is_tried_and_never_ends_makes_the_next_pause_longer(blobs: Gated) -> None:
    guard = guarded(blobs)
    blobs.before = blobs.hang
    for _ in range(2):
        outcome(lambda: guard.get("n/there", limit=99))
        time.sleep(1.05 + DEADLINE)
    outcome(lambda: guard.get("n/there", limit=99))
    assert guard.traffic().opened == 2
    assert blobs.calls == 2
    assert guard.traffic().state == "dead"


def test_one_slow_blob_among_others_is_no_dead_remote(blobs: Gated) -> None:
    guard = guarded(blobs)
    slow = threading.Event()

    def first_hangs() -> None:
        if not slow.is_set():
            slow.set()
            blobs.hang()

    blobs.before = first_hangs
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(outcome, lambda: guard.put("n/large", b"x"))
        slow.wait(5)
        assert guard.get("n/there", limit=99) == b"content"
        assert isinstance(late.result()[0], UnreachableError)
    assert guard.get("n/there", limit=99) == b"content"
    assert guard.traffic().state == "ok"
    assert guard.traffic().stuck == 1


def test_throttling_stops_reads_and_tells_puts_how_long_to_wait(blobs: Gated) -> None:
    told: list[str] = []
    guard = guarded(blobs, told)
    blobs.before = raising(ThrottledError("429", 1.2))
    assert isinstance(outcome(lambda: guard.get("n/there", limit=99))[0], ThrottledError)
    blobs.before = blobs.nothing
    for act in (lambda: guard.get("n/there", limit=99), lambda: guard.put("n/x", b"")):
        error, took = outcome(act)
        assert isinstance(error, ThrottledError)
        assert error.retry_after is not None
        assert 0.5 < error.retry_after <= 1.5
        assert took < DEADLINE / 3
    assert blobs.calls == 1
    assert guard.traffic().state == "throttled"
    time.sleep(1.55)
    assert guard.put("n/x", b"")
    assert len(told) == 2
    assert "asks for fewer requests" in told[0]


def test_a_refused_put_turns_writing_off_alone(blobs: Gated) -> None:
    told: list[str] = []
    guard = guarded(blobs, told)
    blobs.before = raising(RefusedError("no right to do this"))
    assert isinstance(outcome(lambda: guard.get("n/there", limit=99))[0], RefusedError)
    assert guard.traffic().state == "ok"
    for _ in range(3):
        assert isinstance(outcome(lambda: guard.put("n/x", b""))[0], RefusedError)
    assert blobs.calls == 2
    blobs.before = blobs.nothing
    assert guard.get("n/there", limit=99) == b"content"
    assert guard.traffic().state == "read-only"
    assert told == [f"{blobs.place} is read-only: no right to do this"]


def test_a_place_that_is_not_there_turns_everything_off(tmp_path: Path) -> None:
    told: list[str] = []
    guard = guarded(FolderBlobs(tmp_path / "mistyped"), told)
    for _ in range(3):
        assert isinstance(outcome(lambda: guard.get("n/x", limit=1))[0], NoSuchPlaceError)
        assert isinstance(outcome(lambda: guard.put("n/x", b""))[0], NoSuchPlaceError)
    traffic = guard.traffic()
    assert (traffic.requests, traffic.passed_over, traffic.state) == (1, 5, "off")
    assert len(told) == 1
    assert not (tmp_path / "mistyped").exists()


def test_other_errors_of_a_remote_do_not_close_it(blobs: Gated) -> None:
    guard = guarded(blobs)
    blobs.before = raising(RemoteError("something else lies under the name"))
    assert type(outcome(lambda: guard.get("n/there", limit=99))[0]) is RemoteError
    blobs.before = blobs.nothing
    assert isinstance(outcome(lambda: guard.get("n/there", limit=2))[0], TooLargeError)
    assert guard.get("n/there", limit=99) == b"content"
    assert sum(guard.traffic().failures.values()) == 2


def test_preparing_a_client_is_not_the_remotes_time(blobs: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = []

    def prepare() -> None:
        time.sleep(1.5 * DEADLINE)
        prepared.append(1)

    monkeypatch.setattr(blobs, "prepare", prepare, raising=False)
    guard = guarded(blobs)
    for _ in range(3):
        assert guard.get("n/there", limit=99) == b"content"
    assert prepared == [1]


def test_a_client_that_cannot_be_loaded_is_off(blobs: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(blobs, "prepare", raising(ImportError("no module")), raising=False)
    guard = guarded(blobs, told)
    for _ in range(3):
        error, _ = outcome(lambda: guard.get("n/there", limit=99))
        assert isinstance(error, RefusedError)
        assert "ImportError" in error.reason
    assert len(told) == 1
    assert blobs.calls == 0


class PanicError(BaseException):
    """As native code raises one: not an `Exception`."""


@pytest.mark.parametrize("raised", [ValueError("?"), KeyError("x"), PanicError("rust"), SystemExit(3)])
def test_whatever_a_client_raises_the_program_sees_an_error_of_the_remote(blobs: Gated, raised: BaseException) -> None:
    guard = guarded(blobs)
    blobs.before = raising(raised)
    error, _ = outcome(lambda: guard.get("n/there", limit=99))
    assert isinstance(error, UnreachableError)
    assert guard.traffic().state == "dead"


def test_with_too_many_requests_that_hang_nothing_is_asked_until_they_return(blobs: Gated) -> None:
    told: list[str] = []
    guard = guarded(blobs, told, threads=3, stuck_limit=3)
    blobs.before = blobs.hang
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: outcome(lambda: guard.get("n/there", limit=99)), range(3)))
    blobs.before = blobs.nothing
    assert guard.traffic().stuck == 3
    time.sleep(1.05)
    error, took = outcome(lambda: guard.get("n/there", limit=99))
    assert "hang in the client" in str(error)
    assert took < DEADLINE / 3
    assert sum("hang in the client" in line for line in told) == 1
    blobs.gate.set()
    time.sleep(0.1)
    assert guard.traffic().stuck == 0
    assert guard.get("n/there", limit=99) == b"content"


def test_threads_are_bounded_and_kept(blobs: Gated) -> None:
    before = set(threading.enumerate())
    guard = guarded(blobs, threads=4)
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(lambda _: guard.get("n/there", limit=99), range(400))) == {b"content"}
    mine = [thread for thread in threading.enumerate() if thread not in before and thread.name == "rewarm-remote"]
    assert 1 <= len(mine) <= 4
    assert all(thread.daemon for thread in mine)
    guard.close()
    for thread in mine:
        thread.join(5)
        assert not thread.is_alive()
    assert guard.get("n/there", limit=99) == b"content"


def test_the_threads_of_a_guard_that_is_gone_go(blobs: Gated) -> None:
    before = set(threading.enumerate())
    guard = guarded(blobs)
    guard.get("n/there", limit=99)
    mine = set(threading.enumerate()) - before
    assert mine
    del guard
    gc.collect()
    for thread in mine:
        thread.join(5)
        assert not thread.is_alive()


def test_a_request_that_found_no_thread_says_nothing_about_the_remote(blobs: Gated) -> None:
    guard = Guarded(blobs, deadline=1.0, threads=1)
    blobs.before = lambda: time.sleep(0.8)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(outcome, lambda: guard.get("n/there", limit=99)) for _ in range(3)]
        results = [one.result()[0] for one in asked]
    assert results.count(b"content") == 1
    assert guard.traffic().state == "ok"
    assert dict(guard.traffic().failures) == {"all connections are busy": 2}


def test_nothing_holds_on_to_what_a_failed_put_was_given(blobs: Gated) -> None:
    class Data(bytearray):
        """One that can be watched."""

    def refuse() -> None:
        raise RemoteError("no")

    guard = guarded(blobs)
    blobs.before = refuse
    kept = [Data(b"x" * 1000)]
    seen = weakref.ref(kept[0])
    gc.disable()
    try:
        try:  # not `outcome`, which keeps the error
            guard.put("n/x", kept[0])
        except RemoteError:
            kept.clear()
        blobs.before = blobs.nothing
        guard.get("n/there", limit=99)  # so that the thread has moved on
        assert seen() is None
    finally:
        gc.enable()


FORK = """
    import os, sys, time, threading
    from pathlib import Path
    from rewarm.remote.blobs import RefusedError, RemoteError
    from rewarm.remote.folder import FolderBlobs
    from rewarm.remote.guard import Guarded

    class Native(FolderBlobs):
        reopens_after_fork = False

    class Closes(FolderBlobs):
        closed = 0
        def close(self):
            self.closed += 1

    def child(act):
        # 0 where the child's act is true; -14 where it hangs.
        pid = os.fork()
        if pid == 0:
            import signal
            signal.alarm(5)
            try:
                os._exit(0 if act() else 1)
            except BaseException as error:
                print(repr(error), file=sys.stderr)
                os._exit(2)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def refused(guard):
        began = time.monotonic()
        for act in (lambda: guard.get("n/x", limit=9), lambda: guard.put("n/x", b""), lambda: list(guard.scan("n")),
                    lambda: guard.delete("n/x")):
            try:
                act()
            except RefusedError as error:
                if "forked" not in str(error):
                    return False
            else:
                return False
        guard.close()
        return time.monotonic() - began < 0.5

    root = Path(sys.argv[1])
"""


def test_a_child_of_fork_is_refused_at_once_by_a_client_that_cannot_go_on(program: Program, tmp_path: Path) -> None:
    run = program(
        FORK
        + """
    used, unused = Guarded(Native(root), deadline=1.0), Guarded(Native(root), deadline=1.0)
    assert child(lambda: unused.get("n/x", limit=9) is None) == 0   # before anything was used, a fork is harmless
    used.put("n/x", b"1")
    # Threads of the parent ask without end, so that locks are held at the moment of the fork.
    on = True
    def ask():
        while on:
            used.get("n/x", limit=9)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads: thread.start()
    codes = [child(lambda: refused(used)) for _ in range(20)]
    codes += [child(lambda: refused(unused)), child(lambda: refused(Guarded(Native(root), deadline=1.0)))]
    on = False
    for thread in threads: thread.join()
    print(codes)
    assert set(codes) == {0}, codes
    assert used.get("n/x", limit=9) == b"1"
    """,
        str(tmp_path),
    )
    assert run.code == 0, run.err


def test_a_child_of_fork_opens_again_what_can_be(program: Program, tmp_path: Path) -> None:
    program(
        FORK
        + """
    blobs = Closes(root)
    guard = Guarded(blobs, deadline=1.0)
    guard.put("n/x", b"1")
    on = True
    def ask():
        while on:
            guard.get("n/x", limit=9)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads: thread.start()
    def works():
        return guard.get("n/x", limit=9) == b"1" and guard.put("n/y", b"2") and blobs.closed == 1
    codes = [child(works) for _ in range(20)]
    # A child of the child, too.
    codes.append(child(lambda: works() and child(lambda: guard.get("n/y", limit=9) == b"2" and blobs.closed == 2) == 0))
    on = False
    for thread in threads: thread.join()
    assert set(codes) == {0}, codes
    assert blobs.closed == 0
    """,
        str(tmp_path),
    )


def test_a_request_that_hangs_does_not_keep_the_process(program: Program, tmp_path: Path) -> None:
    began = time.monotonic()
    run = program(
        """
    import sys, time
    from pathlib import Path
    from rewarm.remote.blobs import UnreachableError
    from rewarm.remote.folder import FolderBlobs
    from rewarm.remote.guard import Guarded
    class Hangs(FolderBlobs):
        def get(self, name, *, limit):
            time.sleep(120)
    guard = Guarded(Hangs(Path(sys.argv[1])), deadline=0.3)
    try:
        guard.get("n/x", limit=9)
    except UnreachableError:
        sys.exit(7)
    """,
        str(tmp_path),
        ok=False,
    )
    assert run.code == 7
    assert run.err == ""
    assert time.monotonic() - began < 5


def test_uploads_can_be_drained_at_the_end_of_a_program(program: Program, tmp_path: Path) -> None:
    """Python 3.12 starts no thread there; those that are there still work, and without one it is a clean error."""
    run = program(
        """
    import atexit, sys
    from pathlib import Path
    from rewarm.remote.blobs import UnreachableError
    from rewarm.remote.folder import FolderBlobs
    from rewarm.remote.guard import Guarded
    used, unused = (Guarded(FolderBlobs(Path(sys.argv[1])), deadline=1.0) for _ in range(2))
    def drain():
        print(used.put("n/last", b"1"))
        try:
            print(unused.put("n/other", b"1"))
        except UnreachableError as error:
            print(error.reason, unused.traffic().state)
    atexit.register(drain)
    used.get("n/x", limit=9)
    """,
        str(tmp_path),
    )
    lines = run.out.splitlines()
    assert lines[0] == "True"
    assert lines[1] in ("True", "no thread can be started ok")
    assert (tmp_path / "n/last").read_bytes() == b"1"


def test_a_child_that_python_did_not_see_is_noticed(blobs: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = guarded(blobs)
    guard.get("n/there", limit=99)
    before = blobs.closed
    real = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: real + 1)
    assert guard.get("n/there", limit=99) == b"content"
    assert blobs.closed == before + 1
