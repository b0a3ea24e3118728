"""The queues of what is to go to remotes: order, bounds, failures, what a later start is left, forks and the end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from sharing_world import Held, entry_of, key_of, ring, store_at, until, uploads_of

from conftest import clean_environment
from rewarm.remote.blobs import (
    RefusedError,
    RemoteError,
    TakenError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
)
from rewarm.sharing import RemoteTier, Uploads, uploads
from rewarm.sharing.markers import FOLDER, Markers, sweep
from rewarm.sharing.tier import name_of
from rewarm.trust import Keyring, Posture
from shared_remotes import MAIN, folder_tier


def tier_over(blobs: Held, *, keyring: Keyring | None = None, told: list[str] | None = None) -> RemoteTier:
    return RemoteTier(
        blobs,
        namespaces=MAIN,
        keyring=ring() if keyring is None else keyring,
        posture=Posture.REQUIRE,
        writes=True,
        tell=(lambda _: None) if told is None else told.append,
    )


def marks(root: Path) -> set[str]:
    return {path.name for path in (root / FOLDER).glob("*/*/*")}


def test_nobody_waits_and_what_arrived_is_not_marked(tmp_path: Path) -> None:
    store, blobs = store_at(tmp_path / "cache"), Held()
    queue = uploads_of(store, tier_over(blobs))
    blobs.open.clear()
    for number in range(20):
        queue.announce(key_of(number))
        store.put(key_of(number), entry_of(number))
        before = time.monotonic()
        queue.add(key_of(number), None)
        assert time.monotonic() - before < 1.0
    assert queue.waiting() == 20
    assert marks(store.root) == {key_of(number) for number in range(20)}
    assert queue.drain(0.2) == 20
    blobs.open.set()
    assert queue.drain(10) == 0
    assert set(blobs.blobs) == {name_of("main", key_of(number)) for number in range(20)}
    assert marks(store.root) == set()


def test_a_later_start_sends_what_was_left_and_what_was_announced(tmp_path: Path) -> None:
    store, blobs = store_at(tmp_path / "cache"), Held()
    killed = uploads_of(store, tier_over(blobs))
    killed.announce(key_of(1))
    store.put(key_of(1), entry_of(1))  # and here the process is killed
    killed.announce(key_of(2))  # or before it is stored
    later = uploads_of(store, tier_over(blobs))
    later.resume()
    assert later.drain(10) == 0
    assert set(blobs.blobs) == {name_of("main", key_of(1))}
    assert marks(store.root) == {key_of(2)}, "another may just be storing it"
    old = time.time() - 3600
    os.utime(next((store.root / FOLDER).glob(f"*/*/{key_of(2)}")), (old, old))
    again = uploads_of(store, tier_over(blobs))
    again.resume()
    assert again.drain(10) == 0
    assert marks(store.root) == set()


@pytest.mark.parametrize(
    ("error", "arrives", "stays_marked"),
    [
        (UnreachableError("no answer"), True, False),
        (ThrottledError("slow down", 0.2), True, False),
        (TooLargeError("too large"), False, False),
        (RemoteError("something else lies there"), False, True),
        (RefusedError("no right"), False, True),
        (OSError("what a client may do"), False, True),
    ],
)
def test_what_fails(
    tmp_path: Path, error: Exception, arrives: bool, stays_marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_PAUSE", 0.05)
    store, blobs = store_at(tmp_path / "cache"), Held()
    blobs.errors.append(error)
    queue = uploads_of(store, tier_over(blobs))
    store.put(key_of(1), entry_of(1))
    queue.add(key_of(1), None)
    until(lambda: queue.waiting() == 0)
    assert (name_of("main", key_of(1)) in blobs.blobs) is arrives
    assert (marks(store.root) == {key_of(1)}) is stays_marked
    store.put(key_of(2), entry_of(2))
    queue.add(key_of(2), None)
    queue.drain(5)
    assert (name_of("main", key_of(2)) in blobs.blobs) is not isinstance(error, RefusedError)


def test_without_a_key_it_is_said_once_and_nothing_goes(tmp_path: Path) -> None:
    store, blobs, told = store_at(tmp_path / "cache"), Held(), list[str]()
    queue = uploads_of(store, tier_over(blobs, keyring=Keyring(), told=told), told=told)
    for number in range(5):
        store.put(key_of(number), entry_of(number))
        queue.add(key_of(number), None)
        queue.drain(5)
    assert blobs.put_names == []
    assert len(told) == 1
    assert "rewarm keys new" in told[0]
    assert len(marks(store.root)) == 5


def test_the_queue_is_bounded_and_drops_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_QUEUED", 10)
    monkeypatch.setattr(uploads, "_HELD_BYTES", 5_000)
    blobs = Held()
    queue = uploads_of(None, tier_over(blobs))
    blobs.open.clear()
    for number in range(40):
        queue.add(key_of(number), entry_of(number))
    assert queue.waiting() <= 14
    for number in range(40, 60):
        queue.add(key_of(number), entry_of(number, bytes(1_000)))
    assert queue.waiting() <= 8
    held = queue._queues[0]._held
    assert 0 < held <= 5_000
    blobs.open.set()
    assert queue.drain(10) == 0
    assert queue._queues[0]._held == 0
    assert name_of("main", key_of(59)) in blobs.blobs
    assert name_of("main", key_of(30)) not in blobs.blobs


def test_the_markers_are_bounded_and_forgotten_remotes_are_swept(tmp_path: Path) -> None:
    markers = Markers(tmp_path, "a", most=10)
    for number in range(30):
        markers.add(key_of(number))
    assert len(marks(tmp_path)) == 10
    folder = next((tmp_path / FOLDER).glob("*/*"))
    for number in range(100, 120):
        (folder / key_of(number)).touch()
    (folder / "not a key").touch()
    assert len(Markers(tmp_path, "a", most=10).left()) == 10
    assert len(marks(tmp_path)) == 11
    other = Markers(tmp_path, "b")
    other.add(key_of(1))
    old = time.time() - 40 * 86_400
    os.utime(folder, (old, old))
    (folder / "not a key").unlink()
    os.utime(folder, (old, old))
    sweep(tmp_path)
    assert not folder.parent.exists()
    assert other.left() == [key_of(1)]


@pytest.mark.parametrize("stands", ["file", "dangling link", "nothing may be made"])
def test_where_no_marker_can_be_made_entries_go_all_the_same(tmp_path: Path, stands: str) -> None:
    store, blobs = store_at(tmp_path / "cache"), Held()
    if stands == "file":
        (store.root / FOLDER).write_text("")
    elif stands == "dangling link":
        (store.root / FOLDER).symlink_to(tmp_path / "nowhere" / "at all")
    queue = uploads_of(None if stands == "nothing may be made" else store, tier_over(blobs))
    queue.resume()
    queue.announce(key_of(1))
    queue.add(key_of(1), entry_of(1))
    assert queue.drain(10) == 0
    assert len(blobs.blobs) == 1


def test_a_remote_that_is_dead_is_not_waited_for(tmp_path: Path) -> None:
    store, blobs = store_at(tmp_path / "cache"), Held()
    blobs.errors = [UnreachableError("dead")] * 1000
    queue = uploads_of(store, tier_over(blobs))
    store.put(key_of(1), entry_of(1))
    queue.add(key_of(1), None)
    until(lambda: len(blobs.errors) < 1000)
    before = time.monotonic()
    assert queue.drain(30) == 1
    assert time.monotonic() - before < 2.0


def test_a_throttling_remote_is_waited_for_where_it_says_soon_and_left_where_it_says_late(tmp_path: Path) -> None:
    for asked, left in ((0.5, 0), (50.0, 1)):
        store, blobs = store_at(tmp_path / f"cache{asked}"), Held()
        blobs.errors = [ThrottledError("slow down", asked)]
        queue = uploads_of(store, tier_over(blobs))
        store.put(key_of(1), entry_of(1))
        queue.add(key_of(1), None)
        until(lambda blobs=blobs: not blobs.errors)  # type: ignore[misc]
        before = time.monotonic()
        assert queue.drain(5) == left
        assert time.monotonic() - before < 2.0


def test_one_remote_that_hangs_does_not_hold_up_another(tmp_path: Path) -> None:
    store, slow, fast = store_at(tmp_path / "cache"), Held("memory://slow"), Held("memory://fast")
    slow.open.clear()
    queue = uploads_of(store, tier_over(slow), tier_over(fast))
    store.put(key_of(1), entry_of(1))
    queue.add(key_of(1), None)
    until(lambda: fast.blobs)
    before = time.monotonic()
    assert queue.drain(1) == 1
    assert time.monotonic() - before < 2.0
    slow.open.set()


CHILD = """
    import os, sys, threading, time
    from pathlib import Path
    sys.path[:0] = sys.argv[2:4]
    from sharing_world import *
    from shared_remotes import *
    root = Path(sys.argv[1])
    store, remote = store_at(root / "cache"), root / "remote"
    tier = folder_tier(remote, ring())
    queue = uploads_of(store, tier)
    queue.resume()
    def send(number):
        store.put(key_of(number), entry_of(number))
        queue.add(key_of(number), None)
"""


def child(body: str, tmp_path: Path, seconds: float = 30.0) -> tuple[int, str]:
    """A process with a store and a folder remote."""
    here = Path(__file__).parent
    code = textwrap.dedent(CHILD) + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path), str(here), str(here.parent)],
        env=clean_environment(), capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_what_is_added_when_no_thread_can_be_started_arrives(tmp_path: Path) -> None:
    body = """
        import atexit
        tier.get(key_of(1))
        def at_end():
            send(1)
            print(queue.drain(10))
        atexit.register(at_end)
    """
    assert child(body, tmp_path) == (0, "0\n")
    assert len(list((tmp_path / "remote" / "main").glob("*/*"))) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forks_while_the_queue_is_busy(tmp_path: Path) -> None:
    """No child hangs in a lock of its parent's, none sends what is its parent's, and each can send its own."""
    body = """
        for number in range(200):
            send(number)
            if number % 10 == 0 and not os.fork():
                assert queue.waiting() == 0
                send(1000 + number)
                os._exit(queue.drain(10))
        codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(20)]
        print(codes, queue.drain(20))
    """
    assert child(body, tmp_path, 60) == (0, f"{[0] * 20} 0\n")
    assert len(list((tmp_path / "remote" / "main").glob("*/*"))) == 220
    assert marks(tmp_path / "cache") == set()


@pytest.mark.parametrize("moment", range(3))
def test_kill_nine_in_the_middle_loses_nothing(tmp_path: Path, moment: int) -> None:
    body = f"""
        def stop():
            time.sleep({0.02 + 0.05 * moment})
            os.kill(os.getpid(), 9)
        threading.Thread(target=stop, daemon=True).start()
        for number in range(5000):
            queue.announce(key_of(number))
            send(number)
    """
    assert child(body, tmp_path)[0] == -9
    code, out = child("print(queue.drain(20))", tmp_path)
    assert (code, out) == (0, "0\n")
    stored = {path.name for path in (tmp_path / "cache").glob("[0-9a-f][0-9a-f]/*") if len(path.name) == 64}
    assert stored
    assert {path.name for path in (tmp_path / "remote" / "main").glob("*/*") if len(path.name) == 64} == stored


def test_a_queue_needs_no_remote(tmp_path: Path) -> None:
    read_only = folder_tier(tmp_path / "remote", ring(), writes=False)
    queue = Uploads(tmp_path, [read_only], lambda _: None, lambda _: None)
    queue.resume()
    queue.announce(key_of(1))
    queue.add(key_of(1), entry_of(1))
    assert (queue.waiting(), queue.drain(5), marks(tmp_path)) == (0, 0, set())


def test_what_another_alone_may_replace_is_named_once_and_given_up(tmp_path: Path) -> None:
    """And keeps nothing else from going there, in this start or a later one."""
    store, blobs, told = store_at(tmp_path / "cache"), Held(), list[str]()
    uploads = uploads_of(store, tier_over(blobs), told=told)
    blobs.errors = [TakenError(), TakenError()]
    for number in range(5):
        store.put(key_of(number), entry_of(number))
        uploads.add(key_of(number), None)
    assert uploads.drain(10) == 0
    assert len(blobs.blobs) == 3
    assert marks(store.root) == set()
    assert ["another user's lies there" in line for line in told] == [True]
