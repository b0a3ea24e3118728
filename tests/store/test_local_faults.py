"""The local store on disks that are full, read-only or in a mess, and with writers that are killed at work."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import store_children
from store_children import run, run_mounting, run_unprivileged

from rewarm.errors import BadEntryError, StoreError
from rewarm.store import LocalStore, quarantine
from rewarm.store.conformance import key_of

KEY = key_of(0)
SHARD = KEY[:2]
NEIGHBOUR = SHARD + key_of(9)[2:]
TEN_MINUTES = 600.0
HOUR = 3600.0


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "cache")


def names_under(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def temporaries(root: Path) -> list[str]:
    return [name for name in names_under(root) if name.endswith(".tmp")]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def set_age(path: Path, seconds: float) -> float:
    """Date a file back; returns the new mtime."""
    then = time.time() - seconds
    os.utime(path, (then, then))
    return then


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# ---------------------------------------------------------------------------------------------------------------
# Writers that are killed

_WRITE_FOR_EVER = """
import random
store, choice = LocalStore(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
print("ready", flush=True)
while True:
    store.put(key_of(0), bytes([choice.randrange(256)]) * (4 << 20))
"""


def _is_whole(data: bytes) -> bool:
    return len(data) == 4 << 20 and data.count(data[:1]) == len(data)


def _kill_a_writer(store: LocalStore, seed: int) -> None:
    writer = store_children.start(_WRITE_FOR_EVER, store.root, seed)
    assert writer.stdout is not None
    try:
        assert writer.stdout.readline() == "ready\n"
        time.sleep(random.Random(seed).uniform(0.0, 0.1))
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    assert writer.returncode == -signal.SIGKILL


def _kill_writers(store: LocalStore, times: int) -> int:
    """Kill that many writers, one after the other; returns how many left a temporary file behind."""
    left = 0
    for seed in range(times):
        before = len(temporaries(store.root)) if store.root.exists() else 0
        _kill_a_writer(store, seed)
        data = store.get(KEY)
        assert data is None or _is_whole(data)
        assert {info.key: info.size for info in store.scan()} == ({} if data is None else {KEY: 4 << 20})
        left += len(temporaries(store.root)) > before
    return left


def test_a_killed_writer_leaves_no_partial_entry(store: LocalStore) -> None:
    assert _kill_writers(store, 12) > 0, "no writer was caught at work, so nothing was tested"
    store.put(KEY, b"after all of that")
    assert store.get(KEY) == b"after all of that"


@pytest.mark.campaign
def test_many_killed_writers_leave_no_partial_entry(store: LocalStore) -> None:
    assert _kill_writers(store, 200) > 20
    assert store.remove_leftovers() > 20
    assert temporaries(store.root) == []


def test_two_processes_writing_one_key_never_mix(store: LocalStore) -> None:
    writers = [store_children.start(_WRITE_FOR_EVER, store.root, seed) for seed in range(2)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        seen, start = 0, time.monotonic()
        while time.monotonic() - start < (1.0 if seen else 60.0):
            data = store.get(KEY)
            assert data is None or _is_whole(data)
            seen += data is not None
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert seen


# ---------------------------------------------------------------------------------------------------------------
# Disks that are full


def test_a_limit_on_file_size_fails_the_put_and_leaves_nothing(store: LocalStore) -> None:
    store.put(KEY, b"what was there")
    before = names_under(store.root)
    printed = run(
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        store = LocalStore(Path(sys.argv[1]))
        print(told(store.put, key_of(0), b"x" * 100_000))
        print(told(store.put, sys.argv[2], b"x" * 100_000))
        print(told(store.get, key_of(0)))
        """,
        store.root,
        NEIGHBOUR,
    )
    assert printed == ["StoreError EFBIG", "StoreError EFBIG", "b'what was there'"]
    assert names_under(store.root) == before


def test_a_put_that_cannot_even_make_the_tag_leaves_no_files(store: LocalStore) -> None:
    printed = run(
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        store = LocalStore(Path(sys.argv[1]))
        for number in range(5):
            print(told(store.put, key_of(number), b"x" * 100_000))
        """,
        store.root,
    )
    assert printed == ["StoreError EFBIG"] * 5
    assert [path for path in names_under(store.root) if not (store.root / path).is_dir()] == []


_FILL = """
store = LocalStore(Path(sys.argv[1]) / "cache")
print(told(store.put, key_of(0), b"x" * 50_000))
print(told(store.put, key_of(1), b"y" * 400_000))
print(told(store.put, key_of(0), b"z" * 400_000))
print(store.get(key_of(0)) == b"x" * 50_000, store.get(key_of(1)))
print(list(store.root.rglob("*.tmp")))
print(told(store.delete, key_of(0)), told(store.put, key_of(1), b"y" * 50_000))
print(store.get(key_of(1)) == b"y" * 50_000, [info.size for info in store.scan()])
"""


def test_a_full_disk_fails_the_put_and_keeps_what_was_there(tmp_path: Path) -> None:
    printed = run_mounting('mount -t tmpfs -o size=256k tmpfs "$3"', _FILL, tmp_path)
    assert printed == [
        "None",
        "StoreError ENOSPC",
        "StoreError ENOSPC",
        "True None",
        "[]",
        "None None",
        "True [50000]",
    ]


def test_a_disk_without_inodes_fails_the_put(tmp_path: Path) -> None:
    printed = run_mounting(
        'mount -t tmpfs -o size=1m,nr_inodes=4 tmpfs "$3"',
        """
        store = LocalStore(Path(sys.argv[1]) / "cache")
        print(told(store.put, key_of(0), b"x"), told(store.put, key_of(1), b"y"))
        print(told(store.get, key_of(0)), list(store.scan()))
        """,
        tmp_path,
    )
    assert printed == ["StoreError ENOSPC StoreError ENOSPC", "None []"]


def test_a_full_disk_gathers_no_leftovers(tmp_path: Path) -> None:
    printed = run_mounting(
        'mount -t tmpfs -o size=16k tmpfs "$3"',
        """
        place = Path(sys.argv[1])
        try:
            (place / "ballast").write_bytes(bytes(1 << 20))
        except OSError:
            pass
        store = LocalStore(place / "cache")
        print({told(store.put, key_of(number), b"x" * 5000) for number in range(20)})
        print([path.name for path in store.root.rglob("*") if path.is_file()])
        """,
        tmp_path,
    )
    assert printed == ["{'StoreError ENOSPC'}", "[]"]


# ---------------------------------------------------------------------------------------------------------------
# Directories that may not be written or read

_READ_ONLY = """
store = LocalStore(Path(sys.argv[1]))
print(store.prepare())
print(told(store.get, key_of(0)), told(store.get, key_of(1)))
print(told(store.put, key_of(0), b"new"), told(store.put, key_of(1), b"new"))
print(told(store.delete, key_of(0)))
store.quarantine(key_of(0), "bad", b"old")
print(told(store.get, key_of(0)), [info.size for info in store.scan()])
"""


def _fill_and_date_back(store: LocalStore) -> float:
    store.put(KEY, b"old")
    return set_age(store.path(KEY), 2 * TEN_MINUTES)


def _assert_served_read_only(printed: list[str]) -> None:
    assert printed == [
        "read-only",
        "b'old' None",
        "StoreError EROFS StoreError EROFS",
        "StoreError EROFS",
        "b'old' [3]",
    ]


def test_a_read_only_mount_is_read(store: LocalStore) -> None:
    used = _fill_and_date_back(store)
    printed = run_mounting('mount --bind "$3" "$3" && mount -o remount,ro,bind "$3"', _READ_ONLY, store.root)
    _assert_served_read_only(printed)
    assert store.path(KEY).stat().st_mtime == pytest.approx(used, abs=0.01)


@contextlib.contextmanager
def _shared_place() -> Iterator[Path]:
    """A directory that every user can reach; pytest's own are its user's alone."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_directory_of_another_user_is_read() -> None:
    with _shared_place() as place:
        store = LocalStore(place / "cache")
        _fill_and_date_back(store)
        store.path(KEY).chmod(0o444)
        for folder in (store.root / SHARD, store.root):
            folder.chmod(0o555)
        try:
            _assert_served_read_only(run_unprivileged(_READ_ONLY, store.root))
        finally:
            for folder in (store.root, store.root / SHARD):
                folder.chmod(0o755)


def test_an_entry_that_may_not_be_read_is_a_store_error() -> None:
    with _shared_place() as place:
        store = LocalStore(place / "cache")
        store.put(KEY, b"secret")
        store.path(KEY).chmod(0)
        for folder in (store.root / SHARD, store.root):
            folder.chmod(0o755)
        printed = run_unprivileged(
            "print(told(LocalStore(Path(sys.argv[1])).get, key_of(0)))",
            store.root,
        )
        assert printed == ["StoreError EACCES"]


def test_a_directory_that_may_not_be_listed_is_a_store_error() -> None:
    with _shared_place() as place:
        store = LocalStore(place / "cache")
        store.put(KEY, b"x")
        store.root.chmod(0)
        try:
            printed = run_unprivileged(
                """
                store = LocalStore(Path(sys.argv[1]))
                print(told(store.prepare), told(store.get, key_of(0)), told(lambda: list(store.scan())))
                """,
                store.root,
            )
        finally:
            store.root.chmod(0o700)
        assert printed == ["StoreError EACCES StoreError EACCES StoreError EACCES"]


def test_a_place_where_no_directory_can_be_made_is_a_store_error() -> None:
    with _shared_place() as place:
        place.chmod(0o555)
        try:
            printed = run_unprivileged(
                """
                store = LocalStore(Path(sys.argv[1]) / "deep" / "cache")
                print(told(store.prepare), told(store.put, key_of(0), b"x"), told(store.get, key_of(0)))
                """,
                place,
            )
        finally:
            place.chmod(0o755)
        assert printed == ["StoreError EACCES StoreError EACCES None"]


# ---------------------------------------------------------------------------------------------------------------
# Things in the way


def test_a_file_in_the_place_of_the_root(store: LocalStore) -> None:
    store.root.write_bytes(b"not a directory")
    with pytest.raises(StoreError):
        store.prepare()
    with pytest.raises(StoreError):
        store.put(KEY, b"x")
    with pytest.raises(StoreError):
        store.get(KEY)
    store.delete(KEY)
    store.quarantine(KEY, "bad", b"x")
    assert list(store.scan()) == []
    assert store.quarantined() == []
    assert store.remove_leftovers() == 0
    assert store.root.read_bytes() == b"not a directory"


def test_a_file_in_the_place_of_a_shard(store: LocalStore) -> None:
    store.put(key_of(1), b"elsewhere")
    (store.root / SHARD).write_bytes(b"not a directory")
    with pytest.raises(StoreError):
        store.put(KEY, b"x")
    with pytest.raises(StoreError):
        store.get(KEY)
    store.delete(KEY)
    store.quarantine(KEY, "bad", b"x")
    assert [info.key for info in store.scan()] == [key_of(1)]
    assert (store.root / SHARD).read_bytes() == b"not a directory"
    assert store.get(key_of(1)) == b"elsewhere"


def test_a_file_in_the_place_of_the_quarantine(store: LocalStore) -> None:
    store.put(KEY, b"bad")
    (store.root / "quarantine").write_bytes(b"not a directory")
    store.quarantine(KEY, "bad", b"bad")
    assert store.quarantined() == []
    store.put(KEY, b"good")
    assert store.get(KEY) == b"good"


def _make_directory(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_bytes(b"x")


def _make_socket(path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name)


def _make_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def _make_dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def _make_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


OBSTACLES = {
    "directory": _make_directory,
    "fifo": os.mkfifo,
    "socket": _make_socket,
    "dangling link": _make_dangling_link,
    "link to itself": _make_link_to_itself,
    "link to a device": _make_link_to_a_device,
}


@pytest.fixture(params=OBSTACLES)
def obstacle(request: pytest.FixtureRequest, store: LocalStore) -> str:
    """Something that is no file, under an entry's name."""
    store.put(NEIGHBOUR, b"neighbour")
    OBSTACLES[request.param](store.path(KEY))
    return str(request.param)


@pytest.mark.timeout(20)
def test_what_is_no_file_is_none_or_an_error_of_rewarm(store: LocalStore, obstacle: str) -> None:
    if obstacle == "dangling link":
        assert store.get(KEY) is None
    else:
        with pytest.raises((BadEntryError, StoreError)):
            store.get(KEY)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["directory", "fifo", "link to a device"])
def test_what_cannot_be_an_entry_is_a_bad_entry(store: LocalStore, kind: str) -> None:
    store.put(NEIGHBOUR, b"neighbour")
    OBSTACLES[kind](store.path(KEY))
    before = open_descriptors()
    for _ in range(5):
        with pytest.raises(BadEntryError, match="not a regular file"):
            store.get(KEY)
    assert open_descriptors() == before


def test_what_is_no_file_is_passed_over_by_scan(store: LocalStore, obstacle: str) -> None:
    assert [info.key for info in store.scan()] == [NEIGHBOUR]


@pytest.mark.timeout(20)
def test_quarantine_clears_what_is_no_file(store: LocalStore, obstacle: str) -> None:
    store.quarantine(KEY, "not a regular file", None)
    assert not os.path.lexists(store.path(KEY))
    store.put(KEY, b"good")
    assert store.get(KEY) == b"good"
    assert store.get(NEIGHBOUR) == b"neighbour"


def test_put_replaces_a_link_and_not_what_it_points_at(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"somebody's file")
    store.put(NEIGHBOUR, b"x")
    store.path(KEY).symlink_to(tmp_path / "target")
    store.put(KEY, b"entry")
    assert store.get(KEY) == b"entry"
    assert (tmp_path / "target").read_bytes() == b"somebody's file"


def test_a_put_over_a_directory_fails_and_leaves_nothing(store: LocalStore) -> None:
    store.put(NEIGHBOUR, b"x")
    _make_directory(store.path(KEY))
    with pytest.raises(StoreError):
        store.put(KEY, b"x")
    assert temporaries(store.root) == []
    with pytest.raises(StoreError):
        store.delete(KEY)
    assert store.path(KEY).is_dir()


# ---------------------------------------------------------------------------------------------------------------
# The directory removed while in use


def test_a_store_whose_directory_was_removed_starts_anew(store: LocalStore) -> None:
    store.put(KEY, b"before")
    shutil.rmtree(store.root)
    assert store.get(KEY) is None
    assert list(store.scan()) == []
    store.delete(KEY)
    store.quarantine(KEY, "bad", b"before")
    assert not store.root.exists()
    store.put(KEY, b"after")
    assert store.get(KEY) == b"after"
    assert store.is_ours()


def test_an_entry_removed_during_a_scan_ends_nothing(store: LocalStore) -> None:
    for number in range(50):
        store.put(key_of(number), b"x")
    scan = store.scan()
    first = next(scan)
    shutil.rmtree(store.root)
    assert first.size == 1
    assert len(list(scan)) < 50


def test_removal_beside_use_costs_misses_and_store_errors_only(store: LocalStore) -> None:
    until, faults = time.monotonic() + 1.5, []

    def use() -> None:
        while time.monotonic() < until:
            try:
                with contextlib.suppress(StoreError):
                    store.put(KEY, b"whole")
                if store.get(KEY) not in (None, b"whole"):
                    faults.append("partial")
                list(store.scan())
                store.quarantine(KEY, "bad", b"whole")
            except Exception as error:
                faults.append(repr(error))

    users = [threading.Thread(target=use) for _ in range(2)]
    for user in users:
        user.start()
    while time.monotonic() < until:
        shutil.rmtree(store.root, ignore_errors=True)
    for user in users:
        user.join()
    assert faults == []
    store.put(KEY, b"whole")
    assert store.get(KEY) == b"whole"


# ---------------------------------------------------------------------------------------------------------------
# What is made, and how


@pytest.mark.parametrize("umask", ["0o000", "0o022", "0o077"])
def test_what_is_made_is_the_users_alone(store: LocalStore, umask: str) -> None:
    run(
        """
        os.umask(int(sys.argv[2], 0))
        store = LocalStore(Path(sys.argv[1]))
        store.put(key_of(0), b"x"); store.put(key_of(1), b"bad")
        store.quarantine(key_of(1), "bad", b"bad")
        """,
        store.root,
        umask,
    )
    folders = [store.root, *(path for path in store.root.rglob("*") if path.is_dir())]
    files = [path for path in store.root.rglob("*") if path.is_file() and path.name != "CACHEDIR.TAG"]
    assert len(folders) == 4
    assert sorted(file.name for file in files)[:3] == [".usage", ".usage", key_of(0)]
    assert len(files) == 5, "two entries, one of them in quarantine, two journals and the table"
    assert {mode_of(folder) for folder in folders} == {0o700}
    assert {mode_of(file) for file in files} == {0o600}


@pytest.mark.parametrize("umask", ["0o000", "0o077"])
def test_the_tag_is_nobody_elses_to_write(store: LocalStore, umask: str) -> None:
    run(
        "os.umask(int(sys.argv[2], 0)); print(LocalStore(Path(sys.argv[1])).prepare())",
        store.root,
        umask,
    )
    assert mode_of(store.root / "CACHEDIR.TAG") & 0o022 == 0


def test_a_directory_that_was_there_keeps_its_mode(store: LocalStore) -> None:
    store.root.mkdir()
    store.root.chmod(0o750)
    store.put(KEY, b"x")
    assert mode_of(store.root) == 0o750


def test_the_tag_says_what_backups_look_for(store: LocalStore) -> None:
    assert not store.is_ours()
    store.put(KEY, b"x")
    tag = (store.root / "CACHEDIR.TAG").read_bytes()
    assert tag.startswith(b"Signature: 8a477f597d28d172789f06886806bc55\n")
    assert b"rewarm" in tag
    assert store.is_ours()
    (store.root / "CACHEDIR.TAG").write_bytes(b"Signature: 8a477f597d28d172789f06886806bc55\n# another program\n")
    assert not store.is_ours()


def test_an_entry_that_others_made_or_may_change_is_refused_where_it_is_said(store: LocalStore) -> None:
    """A directory that was a group's once keeps its files' rights when it is taken back with chmod."""
    store.put(KEY, b"x")
    path = store.path(KEY)
    store.own_alone = True
    assert store.get(KEY) == b"x"
    for mode in (0o666, 0o602):
        path.chmod(mode)
        with pytest.raises(BadEntryError, match="others may write to it"):
            store.get(KEY)
    path.chmod(0o644)
    assert store.get(KEY) == b"x"
    if os.geteuid() == 0:
        os.chown(path, 54321, 54321)
        with pytest.raises(BadEntryError, match="another user's"):
            store.get(KEY)
    store.own_alone = False
    assert store.get(KEY) == b"x"


def test_a_put_while_somebody_clears_the_directory(store: LocalStore) -> None:
    over = threading.Event()

    def clear() -> None:
        while not over.is_set():
            for name in (SHARD, "."):
                with contextlib.suppress(OSError):
                    (store.root / name).rmdir()
            time.sleep(0.003)  # a put takes about one millisecond

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for number in range(300):
            store.put(KEY, b"x%d" % number)
            assert store.get(KEY) == b"x%d" % number
            store.delete(KEY)
            (store.root / SHARD / ".usage").unlink(missing_ok=True)
    finally:
        over.set()
        thread.join()


def test_what_lies_behind_a_link_is_somebody_elses(store: LocalStore, tmp_path: Path) -> None:
    store.put(KEY, b"x")
    other = tmp_path / "other"
    other.mkdir()
    (other / "f").write_text("mine")
    (store.root / "trials").mkdir()
    (store.root / "trials" / "0123456789abcdef").symlink_to(other)
    (store.root / "trials" / "fedcba9876543210").mkdir()
    (store.root / "trials" / "fedcba9876543210" / "f").write_text("rewarm's")
    assert store.remove_leftovers([f"trials/{'[0-9a-f]' * 16}/[0-9a-f]"]) == 1
    assert (other / "f").read_text() == "mine"


@pytest.mark.parametrize("what", ["fifo", "folder", "broken link"])
def test_what_has_the_name_of_the_tag_gives_way_to_it(store: LocalStore, what: str) -> None:
    tag = store.root / "CACHEDIR.TAG"
    store.root.mkdir()
    {"fifo": lambda: os.mkfifo(tag), "folder": tag.mkdir, "broken link": lambda: tag.symlink_to("nowhere")}[what]()
    assert not store.is_ours()
    assert store.prepare() is None
    assert store.is_ours()


def test_a_folder_of_somebodys_under_the_tag_s_name_stays(store: LocalStore) -> None:
    (store.root / "CACHEDIR.TAG").mkdir(parents=True)
    (store.root / "CACHEDIR.TAG" / "mine").write_text("mine")
    assert store.prepare() is None
    store.put(KEY, b"x")
    assert store.get(KEY) == b"x"
    assert (store.root / "CACHEDIR.TAG" / "mine").read_text() == "mine"
    assert not store.is_ours()


def test_an_entry_lies_where_the_layout_says(store: LocalStore) -> None:
    store.put(KEY, b"x")
    books = ["sizes", f"{SHARD}/.usage"]
    assert names_under(store.root) == sorted(["CACHEDIR.TAG", SHARD, f"{SHARD}/{KEY}", *books])
    assert store.path(KEY).read_bytes() == b"x"


def test_data_is_synced_before_it_gets_its_name(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(NEIGHBOUR, b"so that nothing but the entry is left to write")
    synced: list[tuple[int, bool]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_size, store.path(KEY).exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store.put(KEY, b"x" * 1234)
    assert synced == [(1234, False)]


def test_a_sync_that_fails_fails_the_put(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, b"before")

    def fsync(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreError, match="Input/output error"):
        store.put(KEY, b"after")
    assert store.get(KEY) == b"before"
    assert temporaries(store.root) == []


def test_an_interrupted_put_leaves_nothing(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, b"before")

    def fsync(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(KeyboardInterrupt):
        store.put(KEY, b"after")
    assert store.get(KEY) == b"before"
    assert temporaries(store.root) == []


# ---------------------------------------------------------------------------------------------------------------
# Leftovers, recency, quarantine


def _leave(store: LocalStore, name: str, age: float) -> Path:
    path = store.root / SHARD / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half a wr")
    set_age(path, age)
    return path


def test_temporary_files_of_lost_writers_are_swept(store: LocalStore) -> None:
    stale = _leave(store, f".{KEY}.1.0a0a0a0a.tmp", HOUR + 60)
    fresh = _leave(store, f".{KEY}.1.0b0b0b0b.tmp", HOUR - 60)
    foreign = _leave(store, "notes.tmp", 10 * HOUR)
    store.put(KEY, b"x")
    assert not stale.exists()
    assert fresh.exists()
    assert foreign.exists()
    assert store.get(KEY) == b"x"


def test_remove_leftovers_removes_them_whatever_their_age(store: LocalStore) -> None:
    store.put(KEY, b"entry")
    store.put(key_of(1), b"bad")
    store.quarantine(key_of(1), "bad", b"bad")
    _leave(store, f".{KEY}.1.0b0b0b0b.tmp", 0)
    assert store.remove_leftovers() == 2
    assert names_under(store.root) == sorted(["CACHEDIR.TAG", SHARD, f"{SHARD}/{KEY}"])


@pytest.mark.parametrize(("age", "renewed"), [(0.0, False), (TEN_MINUTES - 60, False), (TEN_MINUTES + 60, True)])
def test_a_hit_renews_an_old_mtime_only(store: LocalStore, age: float, renewed: bool) -> None:
    store.put(KEY, b"x")
    before = set_age(store.path(KEY), age)
    assert store.get(KEY) == b"x"
    after = store.path(KEY).stat().st_mtime
    if renewed:
        assert abs(time.time() - after) < 30
        (info,) = store.scan()
        assert info.used == after
    else:
        assert after == pytest.approx(before, abs=0.01)


def test_scan_and_quarantine_do_not_renew(store: LocalStore) -> None:
    store.put(KEY, b"x")
    before = set_age(store.path(KEY), 2 * TEN_MINUTES)
    list(store.scan())
    store.quarantine(KEY, "another was seen", b"y")
    assert store.path(KEY).stat().st_mtime == pytest.approx(before, abs=0.01)


def _quarantine(store: LocalStore, number: int, *, age: float = 0.0) -> None:
    data = b"bad %d" % number
    store.put(key_of(number), data)
    set_age(store.path(key_of(number)), age)
    store.quarantine(key_of(number), "it is bad", data)


def test_quarantine_keeps_the_bytes_the_key_and_the_reason(store: LocalStore) -> None:
    store.put(KEY, b"bad")
    store.quarantine(KEY, "digest does not match: truncated", b"bad")
    (kept,) = store.quarantined()
    assert kept.read_bytes() == b"bad"
    assert kept.name.startswith(KEY + ".")
    assert kept.name.endswith(".digest-does-not-match-truncated")


def test_quarantine_keeps_the_newest_32(store: LocalStore) -> None:
    for number in range(40):
        _quarantine(store, number, age=100.0 - number)
    assert {path.name[:64] for path in store.quarantined()} == {key_of(number) for number in range(8, 40)}


def test_quarantine_keeps_the_latest_put_aside_whatever_the_age_of_the_entry(store: LocalStore) -> None:
    for number in range(40):
        _quarantine(store, number, age=1000.0 * number)
    assert {path.name[:64] for path in store.quarantined()} == {key_of(number) for number in range(8, 40)}


def test_a_directory_in_quarantine_does_not_keep_the_rest_there(store: LocalStore) -> None:
    store.put(NEIGHBOUR, b"x")
    _make_directory(store.path(KEY))
    set_age(store.path(KEY), HOUR)
    store.quarantine(KEY, "not a regular file", None)
    for number in range(1, 41):
        _quarantine(store, number)
    assert len(store.quarantined()) <= quarantine._KEEPS


def test_leftovers_include_a_directory_in_quarantine(store: LocalStore) -> None:
    store.put(NEIGHBOUR, b"x")
    _make_directory(store.path(KEY))
    store.quarantine(KEY, "not a regular file", None)
    store.remove_leftovers()
    assert store.quarantined() == []
    assert not (store.root / "quarantine").exists()


def test_two_processes_quarantining_one_entry_move_it_once(store: LocalStore) -> None:
    for _ in range(5):
        store.put(KEY, b"bad")
        code = "LocalStore(Path(sys.argv[1])).quarantine(key_of(0), 'bad', b'bad')"
        children: list[subprocess.Popen[str]] = [store_children.start(code, store.root) for _ in range(2)]
        for child in children:
            _, complaints = child.communicate(timeout=60)
            assert child.returncode == 0, complaints
        assert store.get(KEY) is None
    assert len(store.quarantined()) == 5
