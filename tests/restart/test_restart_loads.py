"""What is kept of a start's loads, and read at the next."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewarm.restart import Load, Record, Surroundings, Way, loads
from rewarm.restart.surroundings import File

PROGRAM = ("train.py", "--steps", "3")
ways = st.builds(Way, st.sampled_from(["cpu", "gpu"]), st.lists(st.integers(0, 9)).map(tuple), st.binary(max_size=50))
one_load = st.builds(Load, st.integers(0, 2**256 - 1).map(lambda n: f"{n:064x}"), ways, st.integers(0, 1 << 40))
LOAD = Load("ab" * 32, Way("cpu", (0, 1), b"options"), 77)
RECORD = Record((LOAD,), Surroundings("digest", "--xla_flag", (File("/a.py", 7, 123),)))


@given(st.lists(one_load, max_size=30, unique_by=lambda load: load.key))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, kept: list[Load]) -> None:
    root = tmp_path_factory.mktemp("root")
    loads.write(root, PROGRAM, Record(tuple(kept)))
    assert loads.read(root, PROGRAM) == Record(tuple(kept))
    assert loads.read(root, ("train.py", "--steps", "4")) == Record(tuple(kept)), "by its name alone"
    assert loads.read(root, ("test.py",)) == loads.NOTHING


def test_of_another_kind_of_host_only_what_is_loaded_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads.write(tmp_path, PROGRAM, RECORD)
    monkeypatch.setattr(loads, "about_this_host", lambda: "another")
    assert loads.read(tmp_path, PROGRAM) == Record((Load(LOAD.key),))


@given(ways)
def test_an_entry_says_its_way(way: Way) -> None:
    assert Way.said(way.in_entry()) == way


@pytest.mark.parametrize(
    "section",
    [
        b"", b"\n", b"{}\n", b"[]\noptions", b"null\n", b"\xff\n", b"[" * 9000,
        b'{"callbacks":1,"devices":[0],"platform":"cpu"}\noptions',
        b'{"callbacks":0,"devices":["0"],"platform":"cpu"}\noptions',
        b'{"callbacks":0,"devices":0,"platform":"cpu"}\noptions',
        b'{"callbacks":0,"devices":[0],"platform":7}\noptions',
    ],
)  # fmt: skip
def test_what_is_no_way_is_none(section: bytes) -> None:
    assert Way.said(section) is None


@given(st.data())
def test_no_damage_of_a_record_does_harm(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("root")
    loads.write(root, PROGRAM, RECORD)
    for path in (root / loads.FOLDER).iterdir():
        whole = bytearray(path.read_bytes())
        where = data.draw(st.integers(0, len(whole) - 1))
        cut = data.draw(st.booleans())
        whole[where] = data.draw(st.integers(0, 255))
        path.write_bytes(whole[:where] if cut else whole)
    assert loads.read(root, PROGRAM) in (RECORD, loads.NOTHING)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', "null", "[" * 5000])
def test_what_is_no_record_is_none(tmp_path: Path, text: str) -> None:
    loads.write(tmp_path, PROGRAM, RECORD)
    for path in (tmp_path / loads.FOLDER).iterdir():
        path.write_text(text)
    assert loads.read(tmp_path, PROGRAM) == loads.NOTHING


@pytest.mark.parametrize(
    "change",
    [
        {"loads": [["x", 0, 1]]},
        {"loads": [["ab" * 32, 5, 1]]},
        {"loads": [["ab" * 32, 0, float("inf")]]},
        {"ways": [{}]},
    ],
)
def test_what_names_nothing_is_passed_over(tmp_path: Path, change: dict[str, object]) -> None:
    loads.write(tmp_path, PROGRAM, RECORD)
    for path in (tmp_path / loads.FOLDER).iterdir():
        told = json.dumps({**json.loads(path.read_text().partition("\n")[2]), **change})
        path.write_text(f"{hashlib.sha256(told.encode()).hexdigest()}\n{told}")
    assert loads.read(tmp_path, PROGRAM) == loads.NOTHING


def test_a_program_without_a_name_keeps_nothing(tmp_path: Path) -> None:
    loads.write(tmp_path, (), RECORD)
    assert not (tmp_path / loads.FOLDER).exists()


def test_the_oldest_records_go(tmp_path: Path) -> None:
    for number in range(600):
        loads.write(tmp_path, ("train.py", str(number)), Record((LOAD._replace(size=number),)))
    for number in range(600, 1100):
        loads.write(tmp_path, ("train.py", str(number)), RECORD)
    assert len(list((tmp_path / loads.FOLDER).iterdir())) <= 1000
    assert loads.read(tmp_path, ("train.py", "1099")) == RECORD
