"""Many processes over one bounded store: peers that are stopped, killed, slow, or another user's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_children import start
from store_making import adopt, key_in, keys_of, tell_worth, truth

from rewarm.policy import Bounds
from rewarm.store import LocalStore
from rewarm.store.conformance import key_of
from rewarm.store.shards import SHARDS

_PRELUDE = """
from rewarm.policy import Bounds
import fcntl
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@contextlib.contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed "ready" and runs on until the block ends."""
    process = start(_PRELUDE + code, *arguments)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "ready\n", process.stderr.read() if process.stderr else line
        yield process
    finally:
        process.kill()
        process.communicate()


def is_locked(root: Path, shard: str) -> bool:
    descriptor = os.open(root / shard, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# ---------------------------------------------------------------------------------------------------------------
# Locks that are held

_HOLD = """
import os
held = [os.open(Path(sys.argv[1]) / name, os.O_RDONLY) for name in sys.argv[2:]]
for descriptor in held:
    fcntl.flock(descriptor, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(600)
"""


def seconds_of_puts(store: LocalStore, numbers: range, shard: str) -> list[float]:
    times = []
    for number in numbers:
        since = time.perf_counter()
        store.put(key_in(shard, number), b"x" * 50, seconds=1.0)
        times.append(time.perf_counter() - since)
    return times


@pytest.mark.parametrize("stopped", [False, True])
def test_a_peer_that_holds_a_lock_all_the_time_costs_nothing(root: Path, stopped: bool) -> None:
    store = LocalStore(root, bounds=Bounds(max_entries=60))
    for number in range(60):
        store.put(key_in("aa" if number % 2 else "bb", number), b"x" * 50, seconds=1.0)
    before = seconds_of_puts(store, range(100, 140), "aa")
    with child(_HOLD, root, "aa") as peer:
        if stopped:
            peer.send_signal(signal.SIGSTOP)
        assert is_locked(root, "aa")
        during = seconds_of_puts(store, range(200, 240), "aa")
        assert store.get(key_in("aa", 239)) == b"x" * 50
        assert truth(store)[1] <= 60
        assert store.total() == truth(store), "what is counted without the lock is exact all the same"
        store.delete(key_in("aa", 239))
        store.quarantine(key_in("aa", 238), "bad", b"x" * 50)
        assert store.total() == truth(store)
        list(store.collect(Bounds(max_entries=20)))
        assert store.total() == truth(store)
        assert truth(store)[1] == 20
        assert is_locked(root, "aa"), "the peer had it to the end"
    # Loosely, since other processes run beside this test: a wait for the lock would last for ever.
    assert statistics.median(during) < 5 * statistics.median(before) + 0.02
    assert max(during) < 1.0


def test_all_locks_held_for_the_whole_life_of_a_store(root: Path) -> None:
    for shard in SHARDS:
        (root / shard).mkdir(parents=True)
    with child(_HOLD, root, *SHARDS) as peer:
        peer.send_signal(signal.SIGSTOP)
        store = LocalStore(root, bounds=Bounds(max_entries=30))
        for number in range(100):
            store.put(key_of(number), b"x" * number, seconds=1.0)
            assert truth(store)[1] <= 30
        assert store.total() == truth(store)


_WRITE = """
store = LocalStore(Path(sys.argv[1]), bounds=Bounds(max_entries=int(sys.argv[3])))
import random
choice = random.Random(int(sys.argv[2]))
print("ready", flush=True)
while True:
    number = choice.randrange(400)
    store.put(key_of(number), bytes([number % 256]) * choice.randrange(1, 2000), seconds=choice.random())
    store.get(key_of(choice.randrange(400)))
    if choice.random() < 0.05:
        store.delete(key_of(choice.randrange(400)))
"""


def test_a_writer_that_is_stopped_anywhere_costs_others_nothing(root: Path) -> None:
    store, choice = LocalStore(root, bounds=Bounds(max_entries=50)), random.Random(5)
    with child(_WRITE, root, 1, 50) as peer:
        for round_ in range(30):
            time.sleep(choice.uniform(0.0, 0.03))
            peer.send_signal(signal.SIGSTOP)
            since = time.perf_counter()
            for number in range(10):
                store.put(key_of(1000 + 10 * round_ + number), b"x", seconds=0.5)
            assert time.perf_counter() - since < 2.0
            assert truth(store)[1] <= 50 + 2, "one of ours and one of the peer's in flight"
            peer.send_signal(signal.SIGCONT)
    list(store.collect(Bounds(max_entries=50)))
    assert store.total() == truth(store)


# ---------------------------------------------------------------------------------------------------------------
# Many at once

_PUT_SOME = """
store = LocalStore(Path(sys.argv[1]), bounds=Bounds(max_entries=200))
print("ready", flush=True)
sys.stdin.read()
for number in range(8):
    store.put(key_of(1000 * int(sys.argv[2]) + number), b"x" * 100, seconds=1.0)
    found = store.get(key_of(1000 * int(sys.argv[2])))
    assert found in (None, b"x" * 100)
"""


def start_waiting(code: str, *arguments: object) -> subprocess.Popen[str]:
    import sys

    import store_children

    command = [sys.executable, "-c", store_children._PRELUDE + _PRELUDE + code, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_64_processes_at_once(root: Path) -> None:
    writers = [start_waiting(_PUT_SOME, root, number) for number in range(64)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:  # all at once: each waits for the end of its input
            assert writer.stdin is not None
            writer.stdin.close()
        for writer in writers:
            assert writer.wait(timeout=120) == 0, writer.stderr.read() if writer.stderr else ""
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            for stream in (writer.stdout, writer.stderr):
                assert stream is not None
                stream.close()
    store = LocalStore(root, bounds=Bounds(max_entries=200))
    assert 150 <= truth(store)[1] <= 200 + 64
    list(store.collect(Bounds(max_entries=200)))
    assert store.total() == truth(store)


def kill_all_at_work(root: Path, seed: int) -> None:
    choice = random.Random(seed)
    writers = [start(_PRELUDE + _WRITE, root, 10 * seed + number, 60) for number in range(8)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            time.sleep(choice.uniform(0.0, 0.05))
            writer.send_signal(signal.SIGKILL)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


@pytest.mark.parametrize("seed", range(3))
def test_eight_writers_killed_at_work_leave_a_store_that_a_clean_up_makes_exact(root: Path, seed: int) -> None:
    kill_all_at_work(root, seed)
    store = LocalStore(root, bounds=Bounds(max_entries=60))
    _, entries = store.total()
    assert abs(entries - truth(store)[1]) <= 8, "each was at one entry when it went"
    assert truth(store)[1] <= 60 + 8
    for info in store.scan():
        data = store.get(info.key)
        assert data is not None
        assert len(set(data)) <= 1
        assert len(data) == info.size
    list(store.collect(store.bounds))
    assert store.total() == truth(store)
    for temporary in root.glob("*/.*.tmp"):
        os.utime(temporary, (1e9, 1e9))
    list(store.collect(store.bounds))
    assert list(root.glob("*/.*.tmp")) == [], "old ones of lost writers go"
    store.put(key_of(5000), b"after all of that", seconds=1.0)
    assert store.total() == truth(store)


_FORK = """
import threading
store = LocalStore(Path(sys.argv[1]), bounds=Bounds(max_entries=40))
for number in range(40):
    store.put(key_of(number), b"x" * 50, seconds=1.0)
until = time.monotonic() + 1.5
def work(seed):
    number = seed
    while time.monotonic() < until:
        store.put(key_of(number), b"x" * 50, seconds=1.0)
        number += 1
threading.Thread(target=work, args=(1000,)).start()
children = []
for seed in range(8):
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        work(100_000 * (seed + 2))
        os._exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
work(0)
print(codes)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_children_forked_while_threads_put_go_on(root: Path) -> None:
    process = start(_PRELUDE + "import warnings; warnings.simplefilter('ignore')\n" + _FORK, root)
    printed, complaints = process.communicate(timeout=60)
    assert printed.splitlines() == [str([0] * 8)], complaints
    store = LocalStore(root, bounds=Bounds(max_entries=40))
    assert truth(store)[1] <= 40 + 10
    assert not any(is_locked(root, shard.name) for shard in root.glob("[0-9a-f][0-9a-f]"))
    list(store.collect(store.bounds))
    assert store.total() == truth(store)


def _points_at(descriptor: Path, place: Path) -> bool:
    with contextlib.suppress(OSError):
        return descriptor.readlink() == place
    return False


def test_a_lock_held_at_a_fork_ends_with_its_work(root: Path) -> None:
    from rewarm.store import shards

    (root / "aa").mkdir(parents=True)
    with shards.lock(str(root), 0xAA) as held:
        assert held
        # As a forked child would have it: a second descriptor of the same open file.
        ours = [int(path.name) for path in Path("/proc/self/fd").iterdir() if _points_at(path, root / "aa")]
        duplicate = os.dup(ours[0])
        assert is_locked(root, "aa")
    try:
        assert not is_locked(root, "aa")
    finally:
        os.close(duplicate)


# ---------------------------------------------------------------------------------------------------------------
# File systems without locks, and without rights


@pytest.mark.parametrize("code", ["ENOTSUP", "ENOSYS", "ENOLCK", "EBADF"])
def test_a_file_system_without_locks_is_used_without(root: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    import errno

    from rewarm.store import shards

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(getattr(errno, code), "no locks here")

    monkeypatch.setattr(shards, "flock", flock)
    store = LocalStore(root, bounds=Bounds(max_entries=20))
    for number in range(60):
        store.put(key_of(number), b"x" * number, seconds=1.0)
        assert truth(store)[1] <= 20
    assert store.total() == truth(store)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    store.put(key_of(100), b"x")
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_what_may_not_be_removed_is_passed_over(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [key_in("aa", number) for number in range(20)]
    adopt(root, keys, 10)
    tell_worth(root, {key: 1.0 + number for number, key in enumerate(keys)})
    real, tried = os.unlink, []

    def unlink(path: str | Path, *arguments: object, **options: object) -> None:
        if Path(path).name in keys[:5]:
            tried.append(path)
            raise PermissionError(1, "Operation not permitted")
        real(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "unlink", unlink)
    store = LocalStore(root, bounds=Bounds(max_entries=20))
    for number in range(8):
        store.put(key_in("aa", 100 + number), b"x", seconds=1e6)
        assert truth(store)[1] <= 20
    assert len(tried) == 5, "each is tried once"
    assert set(keys[:5]) <= keys_of(store)
    assert not set(keys[5:13]) & keys_of(store)


# ---------------------------------------------------------------------------------------------------------------
# The rows and the lock, at the points where peers meet


def test_a_row_written_by_another_during_an_eviction_is_counted_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root, bounds=Bounds(max_entries=20))
    for number in range(20):
        store.put(key_in("aa", number), b"x", seconds=1.0)
    from rewarm.store import accounts

    real, met = accounts.Accounts.remove_entry, []

    def meet(self: accounts.Accounts, key: str, size: int, why: str) -> bool:
        if not met:  # a peer without the lock puts right now
            met.append(key)
            LocalStore(root).put(key_in("aa", 500), b"y" * 7, seconds=1e6)
        return real(self, key, size, why)

    monkeypatch.setattr(accounts.Accounts, "remove_entry", meet)
    store.put(key_in("aa", 100), b"x", seconds=1e6)
    assert met
    assert store.total() == truth(store)


def test_what_happened_past_the_books_is_found_after_some_changes(root: Path) -> None:
    store = LocalStore(root)
    for number in range(20):
        store.put(key_in("aa", number), b"x")
    (root / "aa" / key_in("aa", 900)).write_bytes(b"past the books")
    assert store.total() != truth(store)
    for number in range(20, 36):
        store.put(key_in("aa", number), b"x")
    assert store.total() == truth(store)


def test_room_is_made_before_an_entry_gets_its_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root, bounds=Bounds(max_size=1000))
    for number in range(10):
        store.put(key_of(number), b"x" * 100, seconds=1.0)
    real, seen = os.replace, []

    def replace(source: str, target: str) -> None:
        if Path(target).name == key_of(100):
            seen.append(truth(store))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    store.put(key_of(100), b"x" * 300, seconds=1.0)
    assert [size for size, _ in seen] == [700]
