"""Records in the lock file: as text that people review, beside XLA's tuning and whatever else is in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tune_world import DEFAULT, a_case, a_record, a_trial

from conftest import clean_environment
from rewarm import lock_sections
from rewarm.autotune import lock, lock_file, targets
from rewarm.autotune.formats import TuningFormatError, read
from rewarm.tunables.keeping import Keeping
from rewarm.tunables.records import Comparison, Record
from rewarm.tunables.text_file import LockFileError, dump, load, parsed, written

RECORDS = [
    a_record(a_case("f32[2048,512]"), {"block": 128}, flags=("not isolated",)),
    a_record(a_case()),
    a_record(a_case(kernel="a:b", target="other"), DEFAULT, about={"device": "cpu\nx2 \\ ü\u202e", "odd": ""}),
]


def test_the_text_is_sorted_and_has_no_dates_and_no_timings(tmp_path: Path) -> None:
    path = tmp_path / "tuned.lock"
    assert dump(path, RECORDS) == 3
    text = path.read_text()
    assert text.startswith("rewarm-autotune-lock 1\n\nsection tuned 1\n# ")
    assert [line.split()[1] for line in text.split("\n") if line.startswith("kernel")] == ["a:b"] + [
        "kernels:attention"
    ] * 2
    assert "trial" not in text
    assert "17000" not in text
    assert '  winner {"block":64}\n  comparison faster 1.5 1.4 1.6 0.95 40\n  about device cpu x2\n' in text
    dump(path, list(reversed(RECORDS)))
    assert path.read_text() == text


def test_measuring_again_changes_two_lines_at_most() -> None:
    again = a_record(
        when=1.8e9, trials=(a_trial(64, when=1.8e9),), comparison=Comparison(1.5104, 1.4, 1.6, "faster", 0.95, 48)
    )
    before, after = written([a_record()]).split("\n"), written([again]).split("\n")
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "all.lock"
    dump(path, RECORDS, timings=True)
    assert sorted(load(path), key=lambda one: one.text) == sorted(RECORDS, key=lambda one: one.text)
    dump(path, RECORDS)
    bare = load(path)
    assert {(one.case, str(one.winner), one.flags) for one in bare} == {
        (one.case, str(one.winner), one.flags) for one in RECORDS
    }
    assert all(one.trials == () and one.when == 0.0 and one.ratio in (1.5, 1.0) for one in bare)


def test_what_is_not_decided_is_not_written(tmp_path: Path) -> None:
    assert dump(tmp_path / "x.lock", [a_record(comparison=None)]) == 0
    assert load(tmp_path / "x.lock") == []


TEXT = st.text(max_size=20)


@given(
    TEXT, TEXT.filter(bool), st.dictionaries(TEXT.filter(lambda one: one and " " not in one), TEXT, max_size=3), TEXT
)
def test_any_text_survives(arguments: str, kernel: str, about: dict[str, str], flag: str) -> None:
    record = a_record(a_case(arguments, kernel), about=about, flags=(flag,) if flag else ())
    try:
        text = written([record], timings=True)
        kernel.encode()
    except UnicodeEncodeError:
        return
    assert parsed(lock_sections.split(f"rewarm-autotune-lock 1\n\n{text}"), Path("x")) == [record]


# -- beside others in one file -----------------------------------------------------------------------------------


def test_xlas_part_and_unknown_sections_stay(tmp_path: Path) -> None:
    path = tmp_path / "all.lock"
    main = "rewarm-autotune-lock 1\n# a note\ndevice CUDA\nbuild 0.12\n\nfusion abc\n  config x"
    path.write_text(f"{main}\n\nsection zebra 7\nwhatever\n  it has\n\nsection else 1\nx\n")
    dump(path, RECORDS)
    parts = lock_sections.read(path)
    assert parts.main.rstrip("\n") == main
    assert parts.sections["zebra"].rstrip("\n") == "section zebra 7\nwhatever\n  it has"
    assert list(parts.sections) == ["else", "tuned", "zebra"]
    text = path.read_text()
    dump(path, RECORDS)
    assert path.read_text() == text
    assert len(load(path)) == 3
    assert parts.has_main
    assert not lock_sections.split("rewarm-autotune-lock 1\n# note\n\nsection tuned 1\n").has_main
    anew = lock_sections.beside(path, "rewarm-autotune-lock 1\ndevice other\n")
    assert lock_sections.split(anew).sections.keys() == {"else", "tuned", "zebra"}
    assert "device other" in anew
    assert "fusion abc" not in anew
    assert lock_sections.beside(tmp_path / "none", "x\n") == "x\n"


def test_xlas_lock_is_read_beside_the_section(tmp_path: Path) -> None:
    sample = Path(__file__).resolve().parents[1] / "autotune" / "samples" / "jax_0_12_0_1" / "dot_tanh_64x64"
    made = lock.pinned(read(sample / "new_load.textproto").entries, targets.device("h200"), "0.12.0.1")
    path = tmp_path / "x.lock"
    path.write_text(lock_file.written(made))
    dump(path, RECORDS)
    assert lock_file.read(path) == made
    assert lock_file.read(path).digest == made.digest
    assert len(load(path)) == 3
    dump(tmp_path / "alone.lock", RECORDS)
    with pytest.raises(TuningFormatError, match="a line 'device'"):
        lock_file.read(tmp_path / "alone.lock")


def test_adding_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    dump(path, RECORDS[:1])
    assert dump(path, RECORDS[1:], add=True) == 3
    assert dump(path, RECORDS[1:]) == 2


# -- what cannot be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("section tuned 1", "section tuned 2"), ":3: expected 'section tuned 1'"),
        (lambda text: text.replace("rewarm-autotune-lock 1", "something"), ":1: expected 'rewarm-autotune-lock 1'"),
        (lambda text: text.replace("  winner ", "  wimmer "), "expected one of arguments, default, winner"),
        (lambda text: text.replace('{"block":64}', '{"block": 64}'), "as it is written"),
        (lambda text: text.replace('{"block":64}', '{"block":[64]}'), "expected a record as it is written"),
        (lambda text: text.replace("1.5 1.4", "1.5 1,4"), "expected a record as it is written"),
        (lambda text: re.sub("  winner .*\n", "", text), "expected a line 'winner'"),
        (lambda text: text.replace("  content ", "  content Z"), "hexadecimal"),
        (lambda text: text + text.partition("\n\n")[2].partition("\n\n")[2], "expected 13 lines that say"),
        (lambda text: text.replace("  default", "default"), "expected a line 'kernel ...', or the end"),
        (lambda text: text.replace("kernel kernels:attention\n", ""), "expected a line 'kernel ...'"),
        (lambda text: text.replace("\n", "\r\n"), "found 'rewarm-autotune-lock 1|escaped|expected"),
    ],
)
def test_a_changed_file_is_an_error_with_its_line(tmp_path: Path, change: object, words: str) -> None:
    path = tmp_path / "x.lock"
    dump(path, [a_record()])
    path.write_bytes(change(path.read_text()).encode())  # type: ignore[operator]
    with pytest.raises(LockFileError, match=words):
        load(path)
    with pytest.raises(LockFileError, match=str(path)):
        load(path)


def test_every_line_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    dump(path, RECORDS, timings=True)
    lines = path.read_text().split("\n")
    good = load(path)
    for number, line in enumerate(lines):
        if line.startswith("  ") and not line.startswith("  flag"):
            path.write_text("\n".join([*lines[:number], line + "x", *lines[number + 1 :]]))
            try:
                found: list[Record] = load(path)
            except LockFileError:
                continue
            assert found != good, line


def test_what_is_no_file_is_an_error_and_not_overwritten(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("the user's\n")
    with pytest.raises(LockFileError, match='a lock file, found "the user\'s"'):
        dump(notes, RECORDS)
    assert notes.read_text() == "the user's\n"
    with pytest.raises(LockFileError, match="No such file"):
        load(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(LockFileError, match="expected UTF-8, found byte 0xff"):
        load(tmp_path / "bytes")


# -- what a lock is for ------------------------------------------------------------------------------------------


def test_what_a_lock_pins_is_found_before_all_else(tmp_path: Path) -> None:
    dump(tmp_path / "x.lock", [a_record(winner={"block": 16})])
    keeping = Keeping(None, pinned=load(tmp_path / "x.lock"))
    keeping.put(a_record(when=9e9))
    found = keeping.find(a_case())
    assert found is not None
    assert found.winner == {"block": 16}
    assert [one.winner for one in keeping.of_kernel("kernels:attention")] == [{"block": 16}]


def test_a_lock_of_winners_alone_leaves_xlas_tuning_as_it_is(tmp_path: Path) -> None:
    from rewarm.jax_adapter.tuning import _pins_xla

    alone = tmp_path / "alone.lock"
    dump(alone, RECORDS)
    both = tmp_path / "both.lock"
    both.write_text("rewarm-autotune-lock 1\ndevice CUDA\n")
    dump(both, RECORDS)
    assert not _pins_xla(alone, (1, 1))
    assert _pins_xla(both, (1, 1))
    assert _pins_xla(tmp_path / "none.lock", (1, 1))  # who reads it says what is wrong


def test_doctor_says_what_a_lock_pins(tmp_path: Path) -> None:
    alone = tmp_path / "alone.lock"
    dump(alone, RECORDS)
    command = [sys.executable, "-m", "rewarm", "doctor", "--dir", str(tmp_path / "cache")]
    env = clean_environment(REWARM_AUTOTUNE_LOCK=str(alone))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert "pins 3 winners of rewarm.tune, and nothing of XLA's" in " ".join(done.stdout.split()), done.stdout
