"""Nothing that lies in a file crashes a reader, holds it, or comes out as something else than a reading."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_samples import PROGRAMS, SAMPLES, files_of, target

from rewarm.autotune.formats import (
    BUILDS,
    Family,
    Format,
    Place,
    Reading,
    TuningEntry,
    TuningFormatError,
    convert,
    device_of_target,
    hlo,
    read,
    read_bytes,
    serialised,
    validate,
)
from rewarm.autotune.outputs import OUTPUTS
from rewarm.cli import group
from rewarm.errors import RewarmError

SEEDS = [path for program in PROGRAMS for top in files_of(program) for path in [top, *top.rglob("*")] if path.is_file()]
NAMES = [
    "a.pb",
    "a.textproto",
    "ac8f0d4128d487c0959cd00e541162bd.pb",
    "5rlhlWmfo57rAxtSzBdF8hvR_VcZDsln6tyh9BbQn7E.textproto",
]
WORDS = [
    b"results {",
    b"}",
    b'"',
    b"\\",
    b"#",
    b"'",
    b"\x00",
    b"\xff",
    b"[",
    b"<",
    b"-1",
    b"9" * 40,
    b": ",
    b"\n",
    b"version",
]
SLOWEST = 5.0  # seconds of processor time; a few kilobytes take milliseconds


def mangled(chance: random.Random) -> bytes:
    """A sample with some bytes changed, cut, doubled, or words put in."""
    data = bytearray(chance.choice(SEEDS).read_bytes())
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at : at + chance.randrange(1, 64)]
        elif kind == 2:
            data[at:at] = data[at : at + chance.randrange(1, 200)]
        elif kind == 3:
            data[at:at] = chance.choice(WORDS)
        elif kind == 4:
            data[at:at] = chance.randbytes(chance.randrange(1, 8))
        else:
            del data[at:]
    return bytes(data)


def check(data: bytes, name: str, form: Format | None) -> Reading:
    """A reading holds what it says, and its entries can be checked, converted, written and read again."""
    begun = time.process_time()
    done = read_bytes(data, Path(name), form)
    assert done.entries or done.is_broken
    assert all(isinstance(finding.place, Place) and str(finding).isprintable() for finding in done.findings)
    for build in (None, *BUILDS):
        validate(done, build=build, device=target("h200"))
    for to in Format:
        convert(done.entries, to, build=BUILDS[-1], device=target("h200"))
    for entry in done.entries:
        try:
            written = serialised(entry, lossy=False)
        except TuningFormatError as wrong:
            assert wrong.finding.code in ("unknown-field", "backend")  # noqa: PT017 - most entries raise nothing
            continue
        form = Format.LEGACY_FUSION if entry.family is Family.LEGACY else Format.NEW_FUSION
        again = read_bytes(written, Path("a.pb"), form)
        if again.format is form and again.entries:  # what has no field that is known can be taken for anything
            assert (again.entries[0].config, again.entries[0].rest) == (entry.config, rest_of(entry))
    assert time.process_time() - begun < SLOWEST
    return done


def rest_of(entry: TuningEntry) -> bytes:
    """A file of a legacy directory holds the result alone."""
    return entry.rest if entry.family is Family.NEW else b""


def run(chance: random.Random, count: int) -> None:
    for _ in range(count):
        check(mangled(chance), chance.choice(NAMES), chance.choice([None, *Format]))


def test_mangled_files() -> None:
    run(random.Random(20), 300)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_many_mangled_files() -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    run(random.Random(seed), 5_000)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300), name=st.sampled_from(NAMES), form=st.sampled_from([None, *Format]))
def test_any_bytes(data: bytes, name: str, form: Format | None) -> None:
    check(data, name, form)


@settings(max_examples=100, deadline=None)
@given(data=st.text(max_size=200), head=st.sampled_from(["", "version: 3 results { ", "entries { ", "triton { "]))
def test_any_text(data: str, head: str) -> None:
    check((head + data).encode(errors="surrogatepass"), "a.textproto", None)


@settings(max_examples=200, deadline=None)
@given(data=st.text(alphabet='{}()[]= \ntmpROOTf32,.0123fusioncalls=custom-call"', max_size=300))
def test_any_hlo(data: str) -> None:
    hlo.instruction(data)
    try:
        hlo.fusion_text(data, "kLoop")
    except ValueError as wrong:
        assert "not the computation" in str(wrong)  # noqa: PT017 - few texts raise nothing


def test_hlo_that_could_make_a_pattern_slow() -> None:
    begun = time.process_time()
    for data in ("= (" * 20_000, "{" + "= (x" * 20_000, "a[" * 50_000 + " fusion", "= a b" * 50_000, "(" * 100_000):
        hlo.instruction(data)
        hlo.instruction("{" + data)
    assert time.process_time() - begun < 20


@settings(max_examples=100, deadline=None)
@given(cut=st.integers(0, 1200), put=st.sampled_from(["", "}", "{", "x: 1", '"', "major: 99999999999"]))
def test_any_target(cut: int, put: str) -> None:
    whole = (SAMPLES / "targets/h200.txtpb").read_text()
    try:
        device = device_of_target(whole[:cut] + put + whole[cut + 20 :])
    except TuningFormatError as wrong:
        assert wrong.finding.expected  # noqa: PT017 - some cuts raise nothing
    else:
        assert device.text.startswith("CUDA: ")


def test_a_whole_directory_of_mangled_files(tmp_path: Path) -> None:
    chance = random.Random(21)
    folder = tmp_path / "a4baa03864db7cfb"
    folder.mkdir()
    for number in range(60):
        (folder / f"{number:032x}.pb").write_bytes(mangled(chance))
        (tmp_path / f"{number:043d}.textproto").write_bytes(mangled(chance))
    sound = next(path for path in SEEDS if path.parent.name == "a4baa03864db7cfb")
    (folder / sound.name).write_bytes(sound.read_bytes())
    done = read(tmp_path)
    assert read(sound).entries[0] in done.entries
    assert {Path(finding.place.path).parent for finding in done.findings} <= {folder, tmp_path}
    validate(done, build=BUILDS[-1], device=target("h200"))


def called(words: list[str]) -> int:
    """Call a command in this process, as the program `rewarm` does; returns its exit code.

    Raises:
      Exception: whatever would end the program with a traceback.
    """
    begun = time.process_time()
    try:
        group.main(["autotune", *words], prog_name="rewarm", standalone_mode=False)
    except click.ClickException as wrong:
        assert wrong.format_message()  # noqa: PT017 - a command that is content raises nothing
        return wrong.exit_code
    except (RewarmError, OSError) as wrong:  # `main` makes one line of each
        assert str(wrong)  # noqa: PT017
        return 1
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        assert time.process_time() - begun < SLOWEST
    return 0


def commands_on(path: Path, other: Path, out: Path, chance: random.Random) -> list[list[str]]:
    """Every command, once."""
    forms = [one.value for one in Format]
    means = chance.choice([[], ["--jax", "0.12.0.1"], ["--jax", "0.9.2", "--target", "h200"], ["--target", "b200"]])
    filters = chance.choice(
        [[], ["--device", "h200"], ["--build", "56"], ["--fusion", "tmp_0"], ["--backend", "CUDNN"]]
    )
    lossy = chance.choice([[], ["--lossy"]])
    to = ["--to", chance.choice([one.value for one in OUTPUTS])]
    a, b = str(path), str(other)
    return [
        ["ls", a, *filters, *chance.choice([[], ["--json"]])],
        ["show", chance.choice(["a", "dot", "5"]), a, *filters, *chance.choice([[], ["--json"]])],
        ["validate", a, *means, *chance.choice([[], ["--as", chance.choice(forms)]])],
        ["diff", a, b, *filters],
        ["merge", a, b, "-o", str(out / "merged"), *to, *means, *lossy, "--force"],
        ["convert", a, "-o", str(out / "made.pb"), *to, *means, *lossy, "--force", "--keys", b],
        ["prune", a, *means],
    ]


def fuzz_commands(folder: Path, chance: random.Random, count: int) -> None:
    sound = SAMPLES / "jax_0_12_0_1/mlp_128x128/legacy_load.pb"
    for number in range(count):
        name = chance.choice([*NAMES, "tuning.lock"])
        path = folder / f"{number}" / name
        path.parent.mkdir()
        data = mangled(chance)
        path.write_bytes((b"rewarm-autotune-lock 1\n" if name == "tuning.lock" else b"") + data)
        given = path.parent if chance.random() < 0.3 else path
        for words in commands_on(given, sound, path.parent / "out", chance):
            assert called(words) in (0, 1, 2), words
            assert sound.is_file()
            if words[0] != "prune":
                assert path.read_bytes().endswith(data)


def test_no_file_makes_a_command_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fuzz_commands(tmp_path, random.Random(22), 40)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_no_file_of_many_makes_a_command_crash(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    fuzz_commands(tmp_path, random.Random(seed), 800)


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(
        st.one_of(
            st.sampled_from(
                ["ls", "show", "diff", "--device", "--build", "--backend", "--fusion", "--limit", "--", "-o"]
            ),
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12).filter(
                lambda text: text not in ("-h", "--help")
            ),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_no_words_make_a_command_crash(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    nowhere = tmp_path_factory.getbasetemp() / "nowhere"
    for name in ("ls", "show", "validate", "diff"):
        assert called([name, str(nowhere), *words]) in (0, 1, 2)


@pytest.mark.parametrize("name", ["ls", "validate", "diff", "merge", "prune"])
def test_what_is_no_file_holds_no_command(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder" / "a4baa03864db7cfb").mkdir(parents=True)
    os.mkfifo(tmp_path / "folder/a4baa03864db7cfb/ac8f0d4128d487c0959cd00e541162bd.pb")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "fifo", tmp_path / "folder", tmp_path / "loop"):
        words = [str(path), str(path)] if name == "diff" else [str(path)]
        more = ["-o", str(tmp_path / "out")] if name == "merge" else []
        assert called([name, *words, *more]) == (0 if name == "prune" else 1)
