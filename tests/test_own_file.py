"""A file of ours in a program that closes and removes what it finds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rewarm.own_file import OwnFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made"


def opened(path: Path) -> tuple[OwnFile, int]:
    file, descriptor = OwnFile(), os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    file.take(descriptor)
    return file, descriptor


def test_it_is_ours_until_we_close_it(path: Path) -> None:
    file, descriptor = opened(path)
    status = file.status()
    assert (file.descriptor, file.lost, status is not None and status.st_size) == (descriptor, "", 0)
    file.close()
    assert (file.descriptor, file.status(), file.lost) == (None, None, "")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    file.close()


def test_a_closed_one_is_lost(path: Path) -> None:
    file, descriptor = opened(path)
    os.close(descriptor)
    assert (file.status(), file.descriptor, file.lost) == (None, None, "the program closed it")


def test_another_file_under_our_number_is_left_alone(path: Path) -> None:
    file, descriptor = opened(path)
    other = os.open(path.with_name("other"), os.O_RDWR | os.O_CREAT, 0o600)
    os.dup2(other, descriptor)
    assert (file.status(), file.descriptor) == (None, None)
    os.fstat(descriptor)  # still open: it is the program's
    os.close(descriptor)
    os.close(other)


def test_a_removed_one_is_closed(path: Path) -> None:
    file, descriptor = opened(path)
    path.unlink()
    assert (file.status(), file.lost) == (None, "it was removed")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_one_that_never_had_a_name_is_none_the_less_ours(path: Path) -> None:
    """Where a file system counts no names, that is no sign."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    path.unlink()
    file = OwnFile()
    file.take(descriptor)
    assert file.status() is not None
    file.close()
