"""Folders as remotes: real file systems, with whatever lies in the way."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from servers import Server

from rewarm.remote import folder
from rewarm.remote.address import parse
from rewarm.remote.blobs import (
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    TakenError,
    TooLargeError,
    UnreachableError,
)
from rewarm.remote.folder import FolderBlobs
from rewarm.remote.guard import Guarded

pytest_plugins = ["remote_fixtures"]

NAME = "main/ab/" + "ab" * 32


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "shared"
    made.mkdir()
    return made


@pytest.fixture
def blobs(root: Path) -> FolderBlobs:
    return FolderBlobs(root)


def everything(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_what_is_put_is_there(blobs: FolderBlobs, root: Path) -> None:
    assert blobs.get(NAME, limit=10) is None
    assert blobs.put(NAME, b"content")
    assert blobs.get(NAME, limit=7) == b"content"
    assert blobs.put(NAME, b"")
    assert blobs.get(NAME, limit=0) == b""
    assert (root / NAME).read_bytes() == b""
    assert everything(root) == {NAME}
    blobs.delete(NAME)
    blobs.delete(NAME)
    assert blobs.get(NAME, limit=10) is None
    blobs.close()


def test_an_address_opens_one(root: Path) -> None:
    blobs = FolderBlobs.of(parse(f"file://{root}"))
    assert blobs.root == root
    assert blobs.place == f"file://{root}"


def test_more_than_the_reader_wants_is_not_read(blobs: FolderBlobs, root: Path) -> None:
    blobs.put("x", b"12345678")
    with pytest.raises(TooLargeError):
        blobs.get("x", limit=7)
    # A file with a hole: reading it would need a terabyte.
    with (root / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooLargeError):
        blobs.get("huge", limit=1 << 30)


def test_only_new_keeps_what_is_there(blobs: FolderBlobs) -> None:
    assert blobs.put("x", b"first", only_new=True)
    assert not blobs.put("x", b"second", only_new=True)
    assert blobs.get("x", limit=9) == b"first"
    assert blobs.put("x", b"third")
    assert blobs.get("x", limit=9) == b"third"


@pytest.fixture
def no_hard_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("no_hard_links")
def test_only_new_works_where_there_are_no_hard_links(blobs: FolderBlobs, root: Path) -> None:
    test_only_new_keeps_what_is_there(blobs)
    assert everything(root) == {"x"}


@pytest.mark.usefixtures("no_hard_links")
def test_the_claim_of_a_dead_writer_holds_for_a_minute(blobs: FolderBlobs, root: Path) -> None:
    claim = root / ".x.claim"
    claim.touch()
    assert not blobs.put("x", b"1", only_new=True)
    os.utime(claim, (time.time() - 61, time.time() - 61))
    assert blobs.put("x", b"1", only_new=True)
    assert everything(root) == {"x"}


@pytest.mark.parametrize("links", [True, False])
def test_one_of_many_creators_wins(blobs: FolderBlobs, root: Path, links: bool, request: pytest.FixtureRequest) -> None:
    if not links:
        request.getfixturevalue("no_hard_links")
    with ThreadPoolExecutor(16) as pool:
        for turn in range(20):
            won = list(pool.map(lambda who, turn=turn: blobs.put(f"t/{turn}", b"%d" % who, only_new=True), range(16)))
            assert won.count(True) == 1
            assert blobs.get(f"t/{turn}", limit=9) == b"%d" % won.index(True)
    assert len(everything(root)) == 20


def test_a_reader_beside_writers_sees_whole_blobs(blobs: FolderBlobs) -> None:
    contents = [bytes([number]) * 300_000 for number in range(4)]
    blobs.put("x", contents[0])
    done = threading.Event()

    def write(data: bytes) -> None:
        while not done.is_set():
            blobs.put("x", data)

    with ThreadPoolExecutor(4) as pool:
        for data in contents:
            pool.submit(write, data)
        try:
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                assert blobs.get("x", limit=300_000) in contents
        finally:
            done.set()


def test_a_killed_writer_leaves_the_old_blob(root: Path) -> None:
    source = (
        "import sys\nfrom pathlib import Path\nfrom rewarm.remote.folder import FolderBlobs\n"
        "blobs = FolderBlobs(Path(sys.argv[1]))\nprint('on', flush=True)\n"
        "while True: blobs.put('a/x', b'n' * 5_000_000)"
    )
    blobs = FolderBlobs(root)
    for _ in range(5):
        blobs.put("a/x", b"old")
        writer = subprocess.Popen([sys.executable, "-c", source, str(root)], stdout=subprocess.PIPE)
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.03)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        assert blobs.get("a/x", limit=5_000_000) in (b"old", b"n" * 5_000_000)
        assert [info.name for info in blobs.scan("a/x")] == []
    assert blobs.remove_leftovers("a") == 0
    left = everything(root) - {"a/x"}
    assert left
    assert blobs.remove_leftovers("b", older_than=-60.0) == 0
    assert blobs.remove_leftovers("a", older_than=-60.0) == len(left)
    assert everything(root) == {"a/x"}


def test_a_scan_finds_blobs_alone(blobs: FolderBlobs, root: Path) -> None:
    before = time.time()
    for name in ("a/1", "a/b/2", "ab/3", "c"):
        blobs.put(name, name.encode())
    (root / "a/.1.77.x.tmp").touch()
    (root / "a/with space").touch()
    (root / "a/link").symlink_to(root / "c")
    (root / "a/folder-link").symlink_to(root / "ab")
    os.mkfifo(root / "a/fifo")
    found = {info.name: info for info in blobs.scan("a")}
    assert set(found) == {"a/1", "a/b/2"}
    assert found["a/b/2"].size == 5
    assert before - 2 < found["a/1"].modified < time.time() + 2
    assert list(blobs.scan("nothing")) == []
    for wrong in ("", "..", "a/../ab", "/"):
        with pytest.raises(ValueError, match="not the name"):
            list(blobs.scan(wrong))


def test_a_scan_beside_removals(blobs: FolderBlobs, root: Path) -> None:
    for number in range(300):
        blobs.put(f"a/{number % 10}/{number}", b"")
    found = blobs.scan("a")
    next(found)
    shutil.rmtree(root / "a")
    assert len(list(found)) < 300


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        Path.mkdir,
        lambda place: (place.mkdir(), (place / "full").touch()),
        lambda place: place.symlink_to("/etc/passwd"),
        lambda place: place.symlink_to(place),
        lambda place: place.symlink_to("nowhere"),
    ],
    ids=["fifo", "folder", "full-folder", "link-out", "circle", "dangling"],
)
def test_what_lies_under_a_name_and_is_no_file_is_not_read(
    blobs: FolderBlobs, root: Path, make: Callable[[Path], object]
) -> None:
    (root / "a").mkdir()
    make(root / "a/x")
    began = time.monotonic()
    with pytest.raises(RemoteError) as caught:
        blobs.get("a/x", limit=1 << 20)
    assert type(caught.value) is RemoteError
    assert time.monotonic() - began < 1.0
    if (root / "a/x").is_dir():
        with pytest.raises(RemoteError):
            blobs.put("a/x", b"1")
        assert not [name for name in everything(root) if name.endswith(".tmp")]
    else:
        assert blobs.put("a/x", b"1")  # it gets the name; what a link points to stays as it is
        assert not (root / "a/x").is_symlink()
        assert blobs.get("a/x", limit=1) == b"1"


def test_no_link_leads_out(blobs: FolderBlobs, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "b").mkdir(parents=True)
    (outside / "b/x").write_bytes(b"secret")
    (root / "a").symlink_to(outside)
    (root / "c").mkdir()
    (root / "c/b").symlink_to(outside / "b")
    for name in ("a/b/x", "c/b/x"):
        with pytest.raises(RemoteError):
            blobs.get(name, limit=99)
        with pytest.raises(RemoteError):
            blobs.put(name, b"changed")
        with pytest.raises(RemoteError):
            blobs.delete(name)
    assert list(blobs.scan("c")) == []
    assert list(blobs.scan("a")) == []
    assert (outside / "b/x").read_bytes() == b"secret"
    # The root itself may be a link: that is the user's own.
    (tmp_path / "link").symlink_to(root)
    assert FolderBlobs(tmp_path / "link").put("d/x", b"1")
    assert (root / "d/x").read_bytes() == b"1"


def test_a_name_does_not_lead_out_while_folders_are_exchanged_for_links(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"secret")
    blobs = FolderBlobs(root)
    done = threading.Event()

    def exchange() -> None:
        (root / "real").mkdir()
        while not done.is_set():
            (root / "real").rename(root / "a")
            (root / "a").rename(root / "real")
            (root / "a").symlink_to(outside)
            (root / "a").unlink()

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            try:
                assert blobs.get("a/x", limit=99) != b"secret"
                (root / "a").exists()
            except RemoteError:
                pass
    finally:
        done.set()
        thread.join()
    assert (outside / "x").read_bytes() == b"secret"


def test_a_root_that_is_missing_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "mount/point", tmp_path / "file"):
        blobs = FolderBlobs(root)
        for act in (
            lambda blobs=blobs: blobs.get("x", limit=1),
            lambda blobs=blobs: blobs.put("x", b""),
            lambda blobs=blobs: blobs.delete("x"),
            lambda blobs=blobs: list(blobs.scan("x")),
        ):
            with pytest.raises(NoSuchPlaceError, match="not there"):
                act()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.parametrize(
    ("mode", "folders", "files"),
    [(0o755, 0o755, 0o644), (0o700, 0o700, 0o600), (0o2770, 0o2770, 0o660), (0o1777, 0o1777, 0o664)],
)
def test_rights_are_the_roots(root: Path, mode: int, folders: int, files: int) -> None:
    root.chmod(mode)
    before = os.umask(0o077)
    try:
        FolderBlobs(root).put("a/b/x", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / "a").stat().st_mode) == folders
    assert stat.S_IMODE((root / "a/b").stat().st_mode) == folders
    assert stat.S_IMODE((root / "a/b/x").stat().st_mode) == files


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, RefusedError),
        (errno.EDQUOT, RefusedError),
        (errno.EROFS, RefusedError),
        (errno.EACCES, RefusedError),
        (errno.EFBIG, TooLargeError),
        (errno.ESTALE, UnreachableError),
        (errno.EIO, UnreachableError),
        (errno.ENOTCONN, UnreachableError),
        (errno.ETIMEDOUT, UnreachableError),
        (errno.EMFILE, RemoteError),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
def test_errors_of_the_system_are_kinds_of_remote_errors(
    blobs: FolderBlobs, root: Path, number: int, kind: type[RemoteError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What file systems that cannot be had here answer with: given by the call that would get it."""
    blobs.put("x", b"old")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RemoteError) as caught:
        blobs.put("x", b"new")
    assert type(caught.value) is kind
    assert str(root) not in caught.value.reason
    monkeypatch.undo()
    monkeypatch.setattr(os, "read", refuse)
    with pytest.raises(RemoteError):
        blobs.get("x", limit=9)
    monkeypatch.undo()
    assert blobs.get("x", limit=9) == b"old"
    assert everything(root) == {"x"}


def test_a_handle_that_went_stale_is_opened_once_more(blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs.put("x", b"new")
    real, failures = os.read, [OSError(errno.ESTALE, "stale")]

    def read(descriptor: int, length: int) -> bytes:
        if failures:
            raise failures.pop()
        return real(descriptor, length)

    monkeypatch.setattr(os, "read", read)
    assert blobs.get("x", limit=9) == b"new"


def test_a_name_that_the_file_system_cannot_hold_is_an_error(blobs: FolderBlobs) -> None:
    for act in (lambda: blobs.put("x" * 400, b""), lambda: blobs.get("x" * 400, limit=1)):
        with pytest.raises(RemoteError):
            act()
    assert blobs.put("x", b"")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = tmp_path / "small"
    mounted.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs the right to mount")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(mounted)], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.decode()[:200]}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    blobs = FolderBlobs(small_disk)
    assert blobs.put("x", b"1" * 1000)
    with pytest.raises(RefusedError, match="no space left"):
        blobs.put("y", b"2" * 1_000_000)
    assert everything(small_disk) == {"x"}
    assert blobs.get("x", limit=1000) == b"1" * 1000
    assert blobs.put("z", b"3" * 1000)


def test_a_read_only_mount(small_disk: Path) -> None:
    blobs = FolderBlobs(small_disk)
    blobs.put("x", b"1")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for act in (lambda: blobs.put("x", b"2"), lambda: blobs.put("new/x", b"2"), lambda: blobs.delete("x")):
        with pytest.raises(RefusedError, match="read-only"):
            act()
    assert blobs.get("x", limit=1) == b"1"


def test_a_fuse_mount_without_hard_links(server: Callable[[str], Server]) -> None:
    data = server("fuse").data
    assert data is not None
    blobs = FolderBlobs(data)
    (data / "probe").touch()
    with pytest.raises(OSError, match=r"not permitted|not supported|not implemented"):
        (data / "link").hardlink_to(data / "probe")
    assert blobs.put("f/x", b"first", only_new=True)
    assert not blobs.put("f/x", b"second", only_new=True)
    assert blobs.get("f/x", limit=9) == b"first"
    assert [info.name for info in blobs.scan("f")] == ["f/x"]
    blobs.delete("f/x")
    assert blobs.get("f/x", limit=9) is None


def test_no_descriptor_is_left_open(blobs: FolderBlobs, root: Path) -> None:
    os.mkfifo(root / "fifo")
    (root / "link").symlink_to("/etc")
    blobs.put("a/x", b"1")
    before = sorted(Path("/proc/self/fd").iterdir())
    for _ in range(20):
        for act in (
            lambda: blobs.get("a/x", limit=0),
            lambda: blobs.get("fifo", limit=1),
            lambda: blobs.get("link/passwd", limit=1),
            lambda: blobs.put("link/x", b""),
            lambda: blobs.get("a/x/y", limit=1),
            lambda: blobs.put("a", b""),
        ):
            with pytest.raises(RemoteError):
                act()
        blobs.get("a/b/c/d", limit=1)
        list(blobs.scan("a"))
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_the_rights_are_one_function_of_the_root(root: Path) -> None:
    """Nobody but the owner writes where the root's group may not, whatever the root's mode is."""
    for mode in range(0o4000):
        root.chmod(mode | 0o700)
        descriptor = os.open(root, os.O_RDONLY)
        modes = folder._modes_of(descriptor)
        os.close(descriptor)
        assert modes.file & 0o113 == 0
        assert modes.file & 0o600 == 0o600
        assert bool(modes.file & 0o020) == bool(mode & 0o020)
        assert modes.directory & 0o4000 == 0


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """What is done is done as this user."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def sticky() -> Iterator[Path]:
    """A folder of mode 1777 that every user can reach."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can be several users")
    with tempfile.TemporaryDirectory() as made:
        root = Path(made) / "shared"
        root.mkdir()
        Path(made).chmod(0o755)
        root.chmod(0o1777)
        yield root


def test_in_a_sticky_folder_anothers_blob_is_one_names_trouble(sticky: Path) -> None:
    """All others go there, and the guard does not take the whole for one that is only read."""
    told: list[str] = []
    blobs = Guarded(FolderBlobs(sticky), tell=told.append)
    with as_user(31001):
        blobs.put(NAME, b"theirs")
        (sticky / "main" / "cd").mkdir(mode=0o755)  # which they made with other rights
    with as_user(31002):
        with pytest.raises(TakenError, match="another user's lies there"):
            blobs.put(NAME, b"ours")
        with pytest.raises(TakenError):
            blobs.delete(NAME)
        with pytest.raises(TakenError):
            blobs.put("main/cd/" + "cd" * 32, b"ours")
        for number in range(16):
            blobs.put(f"main/ef/{number:064x}", b"ours")
        assert blobs.get(NAME, limit=99) == b"theirs"
        blobs.put(f"main/ef/{0:064x}", b"ours again")
        blobs.delete(f"main/ef/{1:064x}")
    assert told == []
    assert blobs.traffic().state == "ok"
    assert sorted(path.name for path in (sticky / "main" / "ab").iterdir()) == ["ab" * 32]


def test_a_folder_in_which_nothing_may_be_made_is_only_read(sticky: Path) -> None:
    blobs = FolderBlobs(sticky)
    with as_user(31001):
        blobs.put(NAME, b"theirs")
        for path in (sticky / "main" / "ab", sticky / "main"):
            path.chmod(0o755)
    for mode in (0o1777, 0o755):
        sticky.chmod(mode)
        with as_user(31002):
            for act in (lambda: blobs.put(NAME, b"ours"), lambda: blobs.put("main/ef/x", b"ours")):
                with pytest.raises(RefusedError, match="no right to do this"):
                    act()
