"""Writing a run beside killers, forks, threads, full disks, and others who prune."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from run_children import finish, run, run_mounting, run_unprivileged, start

from rewarm.ledger.journal import RUN_BYTES, RUN_EVENTS, VERSION, RunWriter, encode_line, prune
from rewarm.ledger.runs import read_run, run_ids, runs

EVENT = {"program": "jit_f", "outcome": "miss"}
HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    directory = tmp_path / "cache"
    directory.mkdir()
    return directory


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def numbers(events: Any) -> list[int]:
    return [event["number"] for event in events]


# ---------------------------------------------------------------------------------------------------------------
# Killed


@pytest.mark.parametrize("size", [10, 30_000])
def test_a_killed_process_is_read_to_its_last_event(cache: Path, size: int) -> None:
    for seed in range(4):
        child = start(
            """
            for number in range(10**9):
                writer.event({"number": number, "x": "y" * int(sys.argv[2])})
                print(number, flush=True)
            """,
            cache,
            size,
        )
        assert child.stdout is not None
        acknowledged = -1
        for line in child.stdout:
            acknowledged = int(line)
            if acknowledged >= 20 + 13 * seed:
                break
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split("\n")[:-1]  # not communicate, which misses what is buffered here
        child.communicate()
        acknowledged = int(rest[-1]) if rest else acknowledged
        info = runs(cache)[0]
        read = read_run(info.path)
        # One more may be there than was acknowledged, or begun.
        assert numbers(read.events) in ([*range(acknowledged + 1)], [*range(acknowledged + 2)])
        assert read.damaged <= 1
        assert (info.state, info.ended, info.stats) == ("unfinished", None, None)
        assert info.pid == child.pid
        info.path.unlink()


def test_a_stopped_process_is_running(cache: Path) -> None:
    child = start('writer.event({}); print("ready", flush=True); time.sleep(60)', cache)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGSTOP)
        assert [info.state for info in runs(cache)] == ["running"]
    finally:
        child.kill()
        child.communicate()
    assert [info.state for info in runs(cache)] == ["unfinished"]


# ---------------------------------------------------------------------------------------------------------------
# Many at once


def test_a_forked_child_writes_its_own_run(cache: Path) -> None:
    run(
        """
        writer.event({"who": "parent", "number": 0})
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                for number in range(200):
                    writer.event({"who": "child", "number": number})
                writer.end({"who": "child"})
                os._exit(0 if writer.problem is None else 1)
            children.append(child)
        for number in range(1, 200):
            writer.event({"who": "parent", "number": number})
        assert {os.waitpid(child, 0)[1] for child in children} == {0}
        writer.end({"who": "parent"})
        """,
        cache,
    )
    read = [read_run(info.path) for info in runs(cache)]
    (parent,) = [one for one in read if one.info.parent is None]
    assert len(read) == 3
    assert {one.info.parent for one in read if one is not parent} == {parent.info.id}
    assert len({one.info.pid for one in read}) == 3
    for one in read:
        who = "parent" if one is parent else "child"
        assert {event["who"] for event in one.events} == {who}
        assert numbers(one.events) == list(range(200))
        assert (one.damaged, one.info.state, one.info.stats) == (0, "ended", {"who": who})


def test_a_fork_while_threads_write_neither_hangs_nor_mixes(cache: Path) -> None:
    run(
        """
        done = threading.Event()
        def work():
            while not done.is_set():
                writer.event({"pid": os.getpid()})
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        children = []
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                writer.event({"pid": os.getpid()})
                os._exit(0)
            children.append(child)
        assert {os.waitpid(child, 0)[1] for child in children} == {0}
        done.set()
        for thread in threads:
            thread.join()
        """,
        cache,
    )
    read = [read_run(info.path) for info in runs(cache)]
    assert len(read) == 21
    for one in read:
        assert {event["pid"] for event in one.events} == {one.info.pid}
        assert one.damaged == 0


def test_a_child_that_outlives_its_parent_does_not_hold_its_run(cache: Path) -> None:
    (pid,) = run(
        """
        writer.event({})
        child = os.fork()
        if child == 0:
            os.close(1); os.close(2)
            time.sleep(60)
            os._exit(0)
        print(child)
        os.kill(os.getpid(), 0)
        """,
        cache,
    )
    try:
        assert [info.state for info in runs(cache)] == ["unfinished"]
    finally:
        os.kill(int(pid), signal.SIGKILL)


def test_a_child_does_not_end_its_parents_run(cache: Path) -> None:
    run(
        """
        writer.event({"number": 0})
        child = os.fork()
        if child == 0:
            writer.end({})
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert [info.state for info in runs(Path(sys.argv[1]))] == ["running"]
        writer.event({"number": 1})
        """,
        cache,
    )
    (info,) = runs(cache)
    assert numbers(read_run(info.path).events) == [0, 1]


def test_threads_write_one_run(cache: Path) -> None:
    writer = RunWriter(cache, {})

    def work(thread: int) -> None:
        for number in range(200):
            writer.event({"thread": thread, "number": number, "x": "y" * (number % 50) * 40})

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.end({})
    read = read_run(writer.path)
    assert (len(read.events), read.damaged, read.info.events, read.info.lost) == (1600, 0, 1600, 0)
    for place in range(8):
        assert numbers(event for event in read.events if event["thread"] == place) == list(range(200))
    assert len(run_ids(cache)) == 1


def test_processes_never_mix(cache: Path) -> None:
    children = [
        start(
            """
            for number in range(300):
                writer.event({"pid": os.getpid(), "number": number})
            writer.end({"pid": os.getpid()})
            """,
            cache,
        )
        for _ in range(4)
    ]
    for child in children:
        finish(child)
    read = [read_run(info.path) for info in runs(cache)]
    assert {one.info.pid for one in read} == {child.pid for child in children}
    for one in read:
        assert {event["pid"] for event in one.events} == {one.info.pid}
        assert numbers(one.events) == list(range(300))
        assert (one.damaged, one.info.stats) == (0, {"pid": one.info.pid})


def test_an_id_that_is_taken_is_not_used(cache: Path) -> None:
    writer = RunWriter(cache, {})
    taken = writer.path
    taken.parent.mkdir()
    taken.write_text("somebody's\n")
    writer.event(EVENT)
    writer.end({})
    assert taken.read_text() == "somebody's\n"
    assert writer.path != taken
    assert read_run(writer.path).events == (EVENT,)
    assert read_run(writer.path).info.id == writer.id


def test_a_signal_handler_may_record_and_end(cache: Path) -> None:
    printed = run(
        """
        writer.event({"who": "main"})
        count = 0
        def handle(number, frame):
            global count
            count += 1
            writer.event({"who": "handler"})
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0003)
        until = time.monotonic() + 1
        wrote = 0
        while time.monotonic() < until and wrote < 5000:
            writer.event({"who": "main"})
            wrote += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(count, wrote, writer.problem)
        signal.signal(signal.SIGALRM, lambda number, frame: writer.end({}))
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        while not writer._quiet:
            writer.event({"who": "main"})
        writer.event({"who": "main"})
        """,
        cache,
    )
    count, wrote, problem = printed[0].split()
    assert problem == "None"
    (info,) = runs(cache)
    read = read_run(info.path)
    assert (read.damaged, info.state) == (0, "ended")
    assert len(read.events) >= int(wrote)
    assert sum(event["who"] == "handler" for event in read.events) == int(count)


# ---------------------------------------------------------------------------------------------------------------
# Disks that are full, read-only or gone


def test_a_limit_on_file_size_loses_events_and_no_lines(cache: Path) -> None:
    (line,) = run(
        """
        soft = lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        writer.event({"number": 0})
        soft(writer.path.stat().st_size + 100)
        writer.event({"number": 1, "x": "y" * 1000})
        writer.event({"number": 2, "x": "y" * 1000})
        soft(resource.RLIM_INFINITY)
        writer.event({"number": 3})
        writer.event({"number": 4})
        writer.end({})
        print(writer.problem)
        """,
        cache,
    )
    (info,) = runs(cache)
    read = read_run(info.path)
    assert numbers(read.events) == [0, 3, 4]
    assert (read.damaged, info.events, info.lost, info.state) == (1, 3, 2, "ended")
    assert line == f"cannot keep the record of this run in {info.path}: File too large"


def test_a_limit_that_lets_nothing_in_leaves_no_file(cache: Path) -> None:
    (line,) = run(
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        writer.event({}); writer.event({}); writer.end({})
        print(writer.problem)
        """,
        cache,
    )
    assert line.endswith("File too large")
    assert list((cache / "runs").iterdir()) == []


def test_a_full_disk_loses_events_and_no_lines(tmp_path: Path) -> None:
    printed = run_mounting(
        'mount -t tmpfs -o size=64k tmpfs "$3"',
        """
        place = Path(sys.argv[1])
        writer.event({"number": 0})
        # The disk ends at a page: from here on 4000 bytes of one page are left, which no whole number of lines fills.
        filled = writer.path.stat().st_size + len('{"event":{"number":1,"x":""}}\\n')
        writer.event({"number": 1, "x": "y" * ((96 - filled) % 4096)})
        try:
            (place / "ballast").write_bytes(bytes(1 << 20))
        except OSError:
            pass
        for number in range(2, 1000):
            writer.event({"number": number, "x": "y" * 100})
        (place / "ballast").unlink()
        writer.event({"number": 1000})
        writer.end({})
        (info,) = runs(place)
        read = read_run(info.path)
        kept = [event["number"] for event in read.events]
        print(kept == [*range(len(kept) - 1), 1000], len(kept) < 900, read.damaged, info.state)
        print(info.lost == 1001 - len(kept), writer.problem.rsplit(": ")[-1])
        """,
        tmp_path,
    )
    assert printed == ["True True 1 ended", "True No space left on device"]


def test_a_disk_that_is_full_from_the_start_gathers_nothing(tmp_path: Path) -> None:
    printed = run_mounting(
        'mount -t tmpfs -o size=16k tmpfs "$3"',
        """
        place = Path(sys.argv[1])
        try:
            (place / "ballast").write_bytes(bytes(1 << 20))
        except OSError:
            pass
        writer.event({}); writer.end({})
        print([path.name for path in (place / "runs").iterdir()], writer.problem.rsplit(": ")[-1])
        """,
        tmp_path,
    )
    assert printed == ["[] No space left on device"]


_QUIET = 'writer.event({}); writer.event({}); writer.end({}); print(writer.problem.rsplit(": ")[-1])'


def test_a_read_only_mount_is_quiet(cache: Path) -> None:
    printed = run_mounting('mount --bind "$3" "$3" && mount -o remount,ro,bind "$3"', _QUIET, cache)
    assert printed == ["Read-only file system"]
    assert list(cache.iterdir()) == []


def test_a_directory_of_another_user_is_quiet() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o555)
        assert run_unprivileged(_QUIET, place) == ["Permission denied"]
        Path(place).chmod(0o755)


@pytest.mark.parametrize("place", ["nowhere", "file", "a\0b", "x" * 300])
def test_a_place_that_is_no_directory_is_quiet(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    writer = RunWriter(tmp_path / place, {})
    for _ in range(3):
        writer.event(EVENT)
    writer.end({})
    assert writer.problem is not None
    assert str(writer.path) in writer.problem
    assert not (tmp_path / "nowhere").exists()


def test_a_directory_that_vanishes_is_quiet(cache: Path) -> None:
    writer = RunWriter(cache, {})
    writer.event(EVENT)
    assert writer.problem is None
    shutil.rmtree(cache)
    writer.event(EVENT)
    writer.event(EVENT)
    writer.end({})
    assert writer.problem == f"cannot keep the record of this run in {writer.path}: it was removed"
    assert not cache.exists()


def test_a_file_that_somebody_empties_has_no_holes(cache: Path) -> None:
    writer = RunWriter(cache, {})
    writer.event(EVENT)
    os.truncate(writer.path, 0)
    writer.event(EVENT)
    assert writer.path.read_bytes() == b'{"event":{"program":"jit_f","outcome":"miss"}}\n'


def test_a_directory_that_vanishes_before_the_first_event_is_quiet(cache: Path) -> None:
    writer = RunWriter(cache, {})
    shutil.rmtree(cache)
    writer.event(EVENT)
    assert writer.problem is not None
    assert "No such file or directory" in writer.problem


def test_no_working_directory_is_no_obstacle(cache: Path, tmp_path: Path) -> None:
    run(
        """
        os.mkdir(sys.argv[2]); os.chdir(sys.argv[2]); os.rmdir(sys.argv[2])
        writer.event({})
        """,
        cache,
        tmp_path / "gone",
    )
    (info,) = runs(cache)
    assert info.directory is None


def test_a_descriptor_that_is_somebody_elses_now_is_not_written_to(cache: Path, tmp_path: Path) -> None:
    (line,) = run(
        """
        writer.event({"number": 0})
        os.closerange(3, 256)
        others = [os.open(sys.argv[2], os.O_RDWR | os.O_CREAT, 0o600) for _ in range(8)]
        assert writer._file.descriptor in others
        writer.event({"number": 1}); writer.end({})
        assert [os.fstat(other).st_size for other in others] == [0] * 8
        print(writer.problem)
        """,
        cache,
        tmp_path / "somebody's",
    )
    assert line.endswith("the program closed it")
    (info,) = runs(cache)
    assert numbers(read_run(info.path).events) == [0]


def test_a_daemon_that_closes_everything_writes_on(cache: Path) -> None:
    run(
        """
        writer.event({"number": 0})
        if os.fork():
            os._exit(0)
        os.setsid()
        os.closerange(3, 256)
        writer.event({"number": 1}); writer.end({})
        """,
        cache,
    )
    until = time.monotonic() + 20
    while len([info for info in runs(cache) if info.state == "ended"]) < 1:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert sorted(numbers(read_run(info.path).events)[0] for info in runs(cache)) == [0, 1]


def test_a_write_that_is_interrupted_costs_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RunWriter(cache, {})
    writer.event({"number": 0})
    real = os.write

    def half(descriptor: int, data: Any) -> int:
        real(descriptor, bytes(data)[: len(data) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(KeyboardInterrupt):
            writer.event({"number": 1})
    writer.event({"number": 2})
    writer.end({})
    read = read_run(writer.path)
    assert (numbers(read.events), read.damaged, read.info.state) == ([0, 2], 1, "ended")


def test_a_disk_that_fails_at_close_is_a_problem_and_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RunWriter(cache, {})
    writer.event(EVENT)
    real = os.close

    def close(descriptor: int) -> None:
        real(descriptor)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", close)
        writer.end({})
    assert writer.problem is not None
    assert writer.problem.endswith("Disk quota exceeded")


def test_what_comes_after_the_end_is_not_kept(cache: Path) -> None:
    writer = RunWriter(cache, {})
    writer.event(EVENT)
    writer.end({"a": math.nan})
    writer.event(EVENT)
    writer.end({"b": 2})
    read = read_run(writer.path)
    assert (len(read.events), read.info.stats) == (1, {"a": None})
    assert len(run_ids(cache)) == 1


# ---------------------------------------------------------------------------------------------------------------
# Bounds


def test_a_run_is_bounded_in_bytes(cache: Path) -> None:
    writer = RunWriter(cache, {})
    for number in range(300):
        writer.event({"number": number, "x": "y" * 60_000})
    assert read_run(writer.path).truncated
    writer.event({"number": 300})
    writer.end({"requests": 301})
    read = read_run(writer.path)
    assert RUN_BYTES - 70_000 < read.info.size < RUN_BYTES + 1000
    assert numbers(read.events) == list(range(len(read.events)))
    assert (read.truncated, read.damaged, read.info.state) == (True, 0, "ended")
    assert (read.info.events, read.info.lost) == (len(read.events), 301 - len(read.events))
    assert writer.path.read_bytes().count(b'{"truncated":') == 1


def test_a_run_is_bounded_in_events(cache: Path) -> None:
    writer = RunWriter(cache, {})
    for _ in range(RUN_EVENTS + 10):
        writer.event({})
    writer.end({})
    lines = writer.path.read_bytes().splitlines()
    assert len(lines) == 1 + RUN_EVENTS + 2
    assert json.loads(lines[-2])["truncated"]["events"] == RUN_EVENTS
    assert (json.loads(lines[-1])["events"], json.loads(lines[-1])["lost"]) == (RUN_EVENTS, 10)


def leave(cache: Path, number: int, *, age: float = HOUR, size: int = 10) -> Path:
    """What a run left behind that started `number` seconds into a day long past."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(1_700_000_000 + number))
    path = cache / "runs" / f"{moment}-{number}-0000abcd.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, size)
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_the_newest_64_stay(cache: Path) -> None:
    left = [leave(cache, number) for number in range(80)]
    writer = RunWriter(cache, {})
    writer.event(EVENT)
    assert set((cache / "runs").iterdir()) == {*left[-63:], writer.path}


def leave_job(cache: Path, number: int, ranks: int, *, size: int = 0) -> list[Path]:
    """What the ranks of a job left behind that started `number` minutes into a day long past, at one address."""
    (cache / "runs").mkdir(exist_ok=True)
    paths = []
    for rank in range(ranks):
        started = 1_700_000_000 + 60 * number + rank % 50
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(started))
        path = cache / "runs" / f"{moment}-{rank}-{number:08x}.jsonl"
        about = {"job": {"id": "10.0.0.1:1234", "rank": rank, "ranks": ranks}}
        header = {"run": path.stem, "version": VERSION, "started": started, "argv": ["train.py"], "about": about}
        path.write_bytes((encode_line(header) or b"").ljust(size))
        os.utime(path, (time.time() - HOUR,) * 2)
        paths.append(path)
    return paths


def test_the_ranks_of_a_job_are_one_start_of_the_64_that_stay(cache: Path) -> None:
    alone = leave(cache, 60 * 75)
    jobs = [leave_job(cache, number, 8) for number in range(70)]
    prune(cache / "runs")
    assert set((cache / "runs").iterdir()) == {alone, *(path for job in jobs[-63:] for path in job)}


def test_a_job_of_64_ranks_leaves_those_before_it(cache: Path) -> None:
    """Also where it is each rank that prunes, as at a real start."""
    jobs = [leave_job(cache, number, 64) for number in range(3)]
    for rank in range(2):
        writer = RunWriter(cache, {"job": {"id": "10.0.0.1:1234", "rank": rank, "ranks": 64}})
        writer.event(EVENT)
        writer.end({})
    assert {path for job in jobs for path in job} < set((cache / "runs").iterdir())


def test_no_more_than_1024_files_stay_whoever_prunes(cache: Path) -> None:
    left = [path for number in range(11) for path in leave_job(cache, number, 100)]
    for counts_starts in (True, False):
        prune(cache / "runs", counts_starts=counts_starts)
        kept = sorted((cache / "runs").iterdir())
        assert (len(kept), kept[0].name[:15] > left[0].name[:15]) == (1024, True)
        leave_job(cache, 0, 20)


def test_the_bytes_of_jobs_are_bounded(cache: Path) -> None:
    jobs = [leave_job(cache, number, 4, size=4 << 20) for number in range(6)]
    for _ in range(10):  # each call removes some 2 MiB
        prune(cache / "runs")
    assert set((cache / "runs").iterdir()) == {path for job in jobs[-4:] for path in job}


def test_one_start_in_eight_removes_for_all(cache: Path) -> None:
    for number in range(64):
        leave(cache, number)
    counts = []
    for _ in range(10):
        RunWriter(cache, {}).event(EVENT)
        counts.append(len(run_ids(cache)))
    assert counts == [65, 66, 67, 68, 69, 70, 71, 72, 64, 65]


def test_the_newest_64_mib_stay(cache: Path) -> None:
    left = [leave(cache, number, size=8 << 20) for number in range(10)]
    prune(cache / "runs")
    assert sorted((cache / "runs").iterdir()) == left[-8:]


def test_what_was_written_to_lately_stays(cache: Path) -> None:
    lately = leave(cache, 0, age=100)
    ahead = leave(cache, 1, age=-100)
    old = leave(cache, 2, age=400)
    far_ahead = leave(cache, 3, age=-400 * DAY)
    for number in range(10, 74):
        leave(cache, number)
    prune(cache / "runs")
    assert [path.exists() for path in (lately, ahead, old, far_ahead)] == [True, True, False, False]


def test_a_run_whose_process_lives_stays(cache: Path) -> None:
    code = "writer.event({}); print(writer.path, flush=True); time.sleep(60)"
    children = [start(code, cache) for _ in range(2)]
    try:
        paths = []
        for child in children:
            assert child.stdout is not None
            paths.append(Path(child.stdout.readline().strip()))
            os.utime(paths[-1], (time.time() - 30 * DAY,) * 2)
        for number in range(64):  # newer than those of the children
            path = leave(cache, number)
            moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + 3600 + number))
            path.rename(path.with_name(f"{moment}{path.name[16:]}"))
        children[0].kill()
        children[0].communicate()
        prune(cache / "runs")
        assert [path.exists() for path in paths] == [False, True]
    finally:
        for child in children:
            child.kill()
            child.communicate()


def test_an_empty_file_is_given_a_day(cache: Path) -> None:
    hour, days = leave(cache, 0, size=0), leave(cache, 1, size=0, age=2 * DAY)
    for number in range(10, 74):
        leave(cache, number)
    prune(cache / "runs")
    assert (hour.exists(), days.exists()) == (True, False)


def test_where_there_are_no_locks_a_run_is_given_a_day(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    hour, days = leave(cache, 0), leave(cache, 1, age=2 * DAY)
    for number in range(10, 73):
        leave(cache, number)
    writer = RunWriter(cache, {})
    writer.event(EVENT)
    prune(cache / "runs")
    assert (hour.exists(), days.exists()) == (True, False)
    assert writer.problem is None


def test_strays_are_neither_counted_nor_removed(cache: Path) -> None:
    left = [leave(cache, number) for number in range(100)]
    strays = []
    for number, name in enumerate(["notes.txt", "x.jsonl", left[0].stem, f"{left[0].name}.gz", f".{left[0].name}"]):
        path = leave(cache, 200 + number, age=30 * DAY)
        strays.append(path.rename(path.with_name(name)))
    link = left[0].with_name(f"{left[0].stem[:-1]}0.jsonl")
    link.symlink_to(cache / "elsewhere")
    fifo = left[0].with_name(f"{left[0].stem[:-1]}1.jsonl")
    os.mkfifo(fifo)
    folder = left[0].with_name(f"{left[0].stem[:-1]}2.jsonl")
    folder.mkdir()
    for odd in (link, fifo, folder):
        os.utime(odd, (time.time() - 30 * DAY,) * 2, follow_symlinks=False)
    prune(cache / "runs")
    assert set((cache / "runs").iterdir()) == {*left[-64:], *strays, link, fifo, folder}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user")
def test_files_of_other_users_are_neither_counted_nor_removed(cache: Path) -> None:
    theirs = [leave(cache, number) for number in range(70)]
    for path in theirs:
        os.chown(path, 12345, 12345)
    mine = leave(cache, -100)
    prune(cache / "runs")
    assert all(path.exists() for path in [*theirs, mine])


def test_one_start_does_not_pay_for_all(cache: Path) -> None:
    for number in range(400):
        leave(cache, number)
    counts = []
    for _ in range(4):
        prune(cache / "runs")
        counts.append(len(run_ids(cache)))
    assert counts == [272, 144, 64, 64]


def test_processes_that_prune_at_once_remove_no_more_than_one(cache: Path) -> None:
    left = [leave(cache, number) for number in range(150)]
    code = 'journal.prune(Path(sys.argv[1]) / "runs"); writer.event({}); writer.end({}); assert not writer.problem'
    for child in [start(code, cache) for _ in range(4)]:
        finish(child)
    prune(cache / "runs")
    stayed = sorted(set((cache / "runs").iterdir()) & set(left))
    assert stayed == left[-60:]
    assert len(run_ids(cache)) == 64


def test_pruning_where_there_is_nothing_is_quiet(tmp_path: Path) -> None:
    prune(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    prune(tmp_path / "file")


# ---------------------------------------------------------------------------------------------------------------
# What it costs


def _spent(act: Any, *arguments: Any) -> float:
    began = time.perf_counter()
    act(*arguments)
    return time.perf_counter() - began


def test_an_event_costs_microseconds(cache: Path) -> None:
    writer = RunWriter(cache, {})
    record = {**EVENT, "key": "a" * 64, "reason": "x" * 800, "seconds": {"key": 0.001, "compile": 1.25}}
    writer.event(record)
    took = [_spent(writer.event, record) for _ in range(2000)]
    assert statistics.median(took) < 200e-6  # 20e-6 on a quiet machine


def test_a_start_costs_milliseconds_among_strays(cache: Path) -> None:
    for number in range(64):
        leave(cache, number)
    took = [_spent(RunWriter(cache, {}).event, EVENT) for _ in range(20)]
    assert statistics.median(took) < 10e-3  # 0.5e-3 on a quiet machine
    for number in range(10_000):
        (cache / "runs" / f"stray-{number}").touch()
    assert min(_spent(RunWriter(cache, {}).event, EVENT) for _ in range(5)) < 0.2


def test_descriptors_do_not_gather(cache: Path) -> None:
    before = open_descriptors()
    for _ in range(5):
        writer = RunWriter(cache, {})
        writer.event(EVENT)
        runs(cache)
        writer.end({})
    assert open_descriptors() == before


def test_runs_of_a_day_that_is_yet_to_come_are_the_oldest(tmp_path: Path) -> None:
    """They were made while the clock was wrong; else no later run would be the last one, nor stay, until that day."""
    writer = RunWriter(tmp_path, {})
    writer.event({"n": 1})
    writer.end({})
    future = []
    for number in range(80):
        name = f"20991231T235959Z-1-{number:08x}"
        copy = writer.path.with_name(f"{name}.jsonl")
        copy.write_bytes(writer.path.read_bytes().replace(writer.id.encode(), name.encode()))
        os.utime(copy, (time.time() - 3600,) * 2)
        future.append(name)
    assert run_ids(tmp_path)[0] == writer.id
    assert runs(tmp_path)[0].id == writer.id
    os.utime(writer.path, (time.time() - 3600,) * 2)
    prune(tmp_path / "runs")
    assert writer.id in run_ids(tmp_path)
    assert len(run_ids(tmp_path)) == 64
