"""Small files: whatever lies under a name, nothing hangs, nothing leaks, and the rights are those of the folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rewarm import small_files


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["directory", "fifo"])
def test_what_is_no_file_has_no_contents_and_leaks_nothing(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd"
    {"directory": Path.mkdir, "fifo": os.mkfifo}[kind](path)
    before = descriptors()
    for _ in range(5):
        assert small_files.contents(path, 100) == b""
        with pytest.raises(OSError, match=r"."):
            small_files.append(path, b"line")
    assert descriptors() == before


def test_contents_are_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert small_files.contents(path, 4) == b"6789"
    assert small_files.contents(path, 40) == b"0123456789"
    with pytest.raises(FileNotFoundError):
        small_files.contents(tmp_path / "none", 4)


def test_a_journal_keeps_its_newer_half(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for number in range(100):
        size = small_files.append(path, b"line %03d\n" % number)
    assert size == 900
    small_files.shorten(path, 200)
    lines = path.read_bytes().splitlines()
    assert lines == [b"line %03d" % number for number in range(89, 100)]


@pytest.mark.parametrize(
    ("rights", "folder", "file"),
    [(0o700, 0o700, 0o600), (0o2770, 0o2770, 0o660), (0o770, 0o770, 0o660), (0o755, 0o700, 0o600)],
)
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_made_has_the_rights_of_its_folder(
    tmp_path: Path, rights: int, folder: int, file: int, umask: int
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(rights)
    before = os.umask(umask)
    try:
        small_files.make_folder(root / "made")
        small_files.replace(root / "made" / "memo", b"x")
        small_files.append(root / "made" / "journal", b"x\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / "made").stat().st_mode) & ~0o2000 == folder & ~0o2000
    for name in ("memo", "journal"):
        assert stat.S_IMODE((root / "made" / name).stat().st_mode) == file


def test_a_folder_that_is_there_stays_and_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    small_files.make_folder(tmp_path / "there")
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        small_files.make_folder(tmp_path / "file")


def test_nothing_is_left_of_a_memo_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "memo").mkdir()
    with pytest.raises(OSError, match=r"."):
        small_files.replace(tmp_path / "memo", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["memo"]
