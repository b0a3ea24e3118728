"""What was proved on a host: kept, bounded, and forgotten without harm."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rewarm.small_files import PRIVATE, SHARED
from rewarm.trials.marks import InHand, begun, read
from rewarm.trials.proved import Proved

HOST = "0123456789abcdef"
DAY = 86_400.0


def add(proved: Proved, content: str) -> None:
    proved.note(content)
    assert not proved.keep(at_once=True)


def digest(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def test_what_is_added_is_there_in_the_next_process(tmp_path: Path) -> None:
    first = Proved(tmp_path / "trials", HOST, PRIVATE)
    for number in range(500):
        assert not first.has(digest(number))
        first.note(digest(number))
        assert first.has(digest(number))
    assert first.keep()
    assert not Proved(tmp_path / "trials", HOST, PRIVATE).has(digest(0)), "it is not due yet"
    assert not first.keep(at_once=True)
    later = Proved(tmp_path / "trials", HOST, PRIVATE)
    assert all(later.has(digest(number)) for number in range(500))
    assert not any(later.has(digest(number)) for number in range(500, 3000))
    assert not Proved(tmp_path / "trials", "f" * 16, PRIVATE).has(digest(0))


def test_another_with_the_same_first_digits_is_not_proved(tmp_path: Path) -> None:
    one = Proved(tmp_path, HOST, PRIVATE)
    add(one, "a" + "1122334455667788" + "0" * 47)
    add(one, "a" + "99aabbccddeeff00" + "0" * 47)
    later = Proved(tmp_path, HOST, PRIVATE)
    assert later.has("a" + "1122334455667788" + "0" * 47)
    assert later.has("a" + "99aabbccddeeff00" + "0" * 47)
    assert not later.has("a" + "11223344556677ff" + "0" * 47)
    assert not later.has("b" + "1122334455667788" + "0" * 47)
    # These bytes stand in the file, at no item's place.
    assert not later.has("a" + "5566778899aabbcc" + "0" * 47)


def test_a_file_is_bounded_and_a_torn_one_started_anew(tmp_path: Path) -> None:
    place = tmp_path / HOST / "a"
    place.parent.mkdir()
    place.write_bytes(os.urandom(64 << 10))
    add(Proved(tmp_path, HOST, PRIVATE), "ab" * 32)
    assert place.stat().st_size == 8
    place.write_bytes(os.urandom(13))
    add(Proved(tmp_path, HOST, PRIVATE), "ab" * 32)
    assert place.read_bytes() == b"\xba" * 8
    assert Proved(tmp_path, HOST, PRIVATE).has("ab" * 32)


def test_hosts_that_were_not_seen_for_30_days_go(tmp_path: Path) -> None:
    old, used, own, strange = (tmp_path / name for name in ("1" * 16, "2" * 16, HOST, "somebodys"))
    for folder in (old, used, own, strange):
        folder.mkdir()
        (folder / "ab").write_bytes(b"12345678")
    for folder in (old, own, strange):
        os.utime(folder, (time.time() - 31 * DAY, time.time() - 31 * DAY))
    Proved(tmp_path, HOST, PRIVATE).remove_unused_hosts()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([used.name, HOST, strange.name])
    Proved(tmp_path, HOST, PRIVATE).has("ab" * 32)
    assert time.time() - own.stat().st_mtime < DAY


def test_a_folder_for_several_users(tmp_path: Path) -> None:
    previous = os.umask(0o077)
    try:
        add(Proved(tmp_path / "trials", HOST, SHARED), "ab" * 32)
    finally:
        os.umask(previous)
    assert (tmp_path / "trials" / HOST).stat().st_mode & 0o7777 == SHARED.directory
    assert (tmp_path / "trials" / HOST / "a").stat().st_mode & 0o777 == SHARED.file


def test_nothing_is_raised_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "trials").write_text("")
    proved = Proved(tmp_path / "trials", HOST, PRIVATE)
    add(proved, "ab" * 32)
    assert proved.has("ab" * 32)
    proved.remove_unused_hosts()


@given(st.text(max_size=300), st.sampled_from(["loading", "running"]), st.floats(0, 4e9))
def test_a_mark_reads_back_whatever_the_program_is_called(program: str, step: str, since: float) -> None:
    line = begun(3, InHand(step, "ab" * 32, "cd" * 32, since, program))
    assert line.count("\n") == 1
    line.encode("ascii")
    mark = read(f"rewarm mark 1 {HOST} 12\n{line}".encode())
    assert mark is not None
    (one,) = mark.in_hand
    assert (mark.host, mark.pid, one.step, one.key, one.content) == (HOST, 12, step, "ab" * 32, "cd" * 32)
    assert abs(one.since - since) < 0.01
    if program.isascii() and program.isprintable() and len(program) <= 200:
        assert one.program == program


@given(st.binary(max_size=400))
def test_a_mark_of_any_bytes_is_read_or_not(data: bytes) -> None:
    read(data)
    read(b"rewarm mark 1 " + HOST.encode() + b" 12\n" + data)


def test_a_line_that_was_being_written_does_not_count() -> None:
    whole = begun(1, InHand("loading", "ab" * 32, "cd" * 32, 1.0, "f"))
    head = f"rewarm mark 1 {HOST} 12\n"
    found = read((head + whole).encode())
    assert found is not None
    assert len(found.in_hand) == 1
    torn = read((head + whole[:-1]).encode())
    assert torn is not None
    assert torn.in_hand == ()
