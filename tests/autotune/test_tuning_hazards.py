"""What XLA does with tuning results that nobody expects, shown with XLA's own compiler, and what rewarm says of it.

What XLA refuses or falls over is in `test_tuning_compiler`. Here XLA says nothing, or does what its messages do not
tell: which entry it takes, when it passes one over, and what it never writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compiler_entries import (
    DIRECTORY,
    PLAN,
    build,
    config_of,
    device,
    entry_of,
    families,
    family_flag,
    needed,
    options,
    written,
)

from conftest import execute
from cuda_compilers import Compiler, ask_child, compiled, jax_version
from rewarm.autotune import lock_file, states, targets, xla_flags
from rewarm.autotune.coverage import Needed, Reader, Reason, State, Verdict, directory_format, judge
from rewarm.autotune.formats import Family, Format, TuningEntry, Versions, read, validate
from rewarm.autotune.sources import load
from rewarm.jax_adapter.lookups import Lookups

pytest_plugins = ("compiler_fixtures",)
pytestmark = pytest.mark.contract

PLANS = Path(__file__).with_name("coverage_plans.py")
WHOLE = {Family.LEGACY: Format.LEGACY_TEXT, Family.NEW: Format.NEW_TEXT}
PROGRAM = "dot_tanh:1024"
DETERMINISTIC = "xla_gpu_deterministic_ops"
# From here on Triton's backend is off where operations must be deterministic.
TRITON_IS_OFF = build().minor >= (0, 11)
TILES = [64, 64]


def asked_of_xla(compiler: Compiler, folder: Path, *compiles: dict[str, Any]) -> list[dict[str, Any]]:
    """What came of each compile, in one process."""
    answers, done = compiled(compiler, folder, targets.description("h200", jax_version()), list(compiles))
    assert len(answers) == len(compiles), done.err[-3000:]
    return answers


def tuned(asked: Lookups, family: Family, folder: Path, program: str = PROGRAM) -> Path:
    """A directory with an entry for each fusion of a program."""
    return written([entry_of(one, family) for one in needed(asked, program)], directory_format(family), folder)


def checked(compiler: Compiler, folder: Path, cache: Path, *flags: str) -> tuple[int, Any]:
    """What `rewarm autotune check` says of one program."""
    command = [sys.executable, "-W", "ignore", "-m", "rewarm", "autotune", "check", PLAN, "--only", PROGRAM]
    command += ["--target", "h200", "--cache", str(cache), "--json"]
    done = execute(command, env=compiler.environment(XLA_FLAGS=" ".join(flags)), cwd=folder)
    assert done.out, done.err
    return done.code, json.loads(done.out)


def verdicts(asked: Lookups, program: str, path: Path, family: Family) -> list[Verdict]:
    """What rewarm says of a program's fusions, without the compiler."""
    reader = Reader(build(), device(), family)
    return list(judge(needed(asked, program), list(load([path])), reader).verdicts)


def test_where_operations_must_be_deterministic_triton_may_be_off(
    compiler: Compiler, asked: Lookups, tmp_path: Path
) -> None:
    """XLA passes Triton's entries over as if there were none. `check` never says covered then, and says why."""
    family = build().default
    path = tuned(asked, family, tmp_path)
    for name in xla_flags.DETERMINISTIC:
        one = {"program": PROGRAM, "options": {**options(path, family), name: True}}
        (answer,) = asked_of_xla(compiler, tmp_path, one)
        assert answer["error"].count("NOT_FOUND") == TRITON_IS_OFF
        assert (TILES in answer["tiles"]) is not TRITON_IS_OFF
        assert states.obeys({name: True}, jax_version()) is not TRITON_IS_OFF
    code, told = checked(compiler, tmp_path, path, f"--{DETERMINISTIC}=true")
    assert told["complete"] is not TRITON_IS_OFF
    assert code == TRITON_IS_OFF
    for failure in told["failures"]:
        assert f"{DETERMINISTIC} is on" in failure["error"]
    assert len(told["failures"]) == TRITON_IS_OFF


def test_a_level_of_0_tunes_nothing_and_obeys_entries(compiler: Compiler, asked: Lookups, tmp_path: Path) -> None:
    family = build().default
    path = tuned(asked, family, tmp_path)
    one = {"program": PROGRAM, "options": {**options(path, family), "xla_gpu_autotune_level": 0}}
    (answer,) = asked_of_xla(compiler, tmp_path, one)
    assert not answer["error"]
    assert TILES in answer["tiles"]
    assert checked(compiler, tmp_path, path, "--xla_gpu_autotune_level=0")[0] == 0


def versioned(entries: Iterable[TuningEntry], **versions: str) -> list[TuningEntry]:
    return [replace(entry, versions=replace(entry.versions, **versions)) for entry in entries]


def test_which_versions_xla_takes(compiler: Compiler, asked: Lookups, tmp_path: Path) -> None:
    """The rule of the new formats, case by case: rewarm says of each what XLA does."""
    if Family.NEW not in families():
        pytest.skip(f"JAX {jax_version()} has no new formats")
    cases = {
        "strict": ({"backend": "0" * 40}, True),
        "loose": ({"codegen": "0" * 16}, True),
        "neither": ({"codegen": "0" * 16, "backend": "0" * 40}, False),
        "other options of the code generator": ({"codegen_options": "0" * 16}, True),
        "an explicit version": ({"explicit": "1"}, False),
    }
    compiles, said = [], []
    for number, (versions, _) in enumerate(cases.values()):
        program = f"dot_tanh:{1024 + 128 * number}"
        entries = versioned((entry_of(one, Family.NEW) for one in needed(asked, program)), **versions)
        path = written(entries, Format.NEW_DIRECTORY, tmp_path / str(number))
        compiles.append({"program": program, "options": options(path, Family.NEW)})
        said.append({one.state is State.COVERED for one in verdicts(asked, program, path, Family.NEW)})
    answers = asked_of_xla(compiler, tmp_path, *compiles)
    for (name, (_, is_taken)), told, answer in zip(cases.items(), said, answers, strict=True):
        assert (not answer["error"]) is is_taken, (name, answer["error"][:300])
        assert (TILES in answer["tiles"]) is is_taken, name
        assert told == {is_taken}, name


def test_a_legacy_entry_of_no_version_is_whoever_reads_its(compiler: Compiler, asked: Lookups, tmp_path: Path) -> None:
    entries = [replace(entry_of(one, Family.LEGACY), versions=Versions()) for one in needed(asked, PROGRAM)]
    path = written(entries, Format.LEGACY_TEXT, tmp_path)
    (answer,) = asked_of_xla(compiler, tmp_path, {"program": PROGRAM, "options": options(path, Family.LEGACY)})
    assert not answer["error"]
    assert TILES in answer["tiles"]
    assert {one.state for one in verdicts(asked, PROGRAM, path, Family.LEGACY)} == {State.COVERED}


@pytest.mark.parametrize("what", ["shape", "cuDNN"])
def test_what_is_for_another_program_or_library_is_not_found(
    what: str, compiler: Compiler, asked: Lookups, tmp_path: Path
) -> None:
    """The version of cuDNN is in legacy keys alone."""
    family = build().default if what == "shape" else Family.LEGACY
    on, program = (device(), "dot_tanh:1152") if what == "shape" else (replace(device(), dnn_version="9.1.0"), PROGRAM)
    form = directory_format(family) if what == "shape" else Format.LEGACY_TEXT
    path = written([entry_of(one, family, on) for one in needed(asked, program)], form, tmp_path)
    (answer,) = asked_of_xla(compiler, tmp_path, {"program": PROGRAM, "options": options(path, family)})
    assert "NOT_FOUND" in answer["error"]
    reasons = {one.reason for one in verdicts(asked, PROGRAM, path, family)}
    assert reasons == {Reason.NEVER_TUNED if what == "shape" else Reason.OTHER_GPU}


@pytest.mark.parametrize("family", list(Family))
def test_a_text_of_the_other_family_is_no_entry(
    compiler: Compiler, asked: Lookups, family: Family, tmp_path: Path
) -> None:
    """XLA warns of it in its log and goes on without; `check` says what there is."""
    if len(families()) < 2:
        pytest.skip(f"JAX {jax_version()} has one family")
    other = Family.NEW if family is Family.LEGACY else Family.LEGACY
    form = Format.NEW_TEXT if other is Family.NEW else Format.LEGACY_TEXT
    path = written([entry_of(one, other) for one in needed(asked, PROGRAM)], form, tmp_path)
    (answer,) = asked_of_xla(compiler, tmp_path, {"program": PROGRAM, "options": options(path, family)})
    assert "NOT_FOUND" in answer["error"]
    assert {one.reason for one in verdicts(asked, PROGRAM, path, family)} == {Reason.OTHER_FORMAT}


@pytest.mark.parametrize("family", list(Family))
def test_a_torn_file_is_silence_in_either_family(
    compiler: Compiler, asked: Lookups, family: Family, tmp_path: Path
) -> None:
    """Without `require` the program compiles, into something else; `check` calls the fusion stale."""
    if family not in families():
        pytest.skip(f"JAX {jax_version()} has no {family} formats")
    path = tuned(asked, family, tmp_path)
    for file in (one for one in path.rglob("*") if one.is_file()):
        file.write_bytes(file.read_bytes()[:9])
    one = {"program": PROGRAM, "options": options(path, family, require=False)}
    (answer,) = asked_of_xla(compiler, tmp_path, one)
    assert not answer["error"]
    assert TILES not in answer["tiles"]
    assert {(one.state, one.reason) for one in verdicts(asked, PROGRAM, path, family)} == {
        (State.STALE, Reason.CORRUPT)
    }


@pytest.mark.parametrize("first", ["strict", "loose"])
def test_of_two_entries_for_a_fusion_xla_takes_the_first_that_matches(
    first: str, compiler: Compiler, asked: Lookups, tmp_path: Path
) -> None:
    """Whether strictly or loosely, and without a word. rewarm names the one that decides, and the other as repeated."""
    if Family.NEW not in families():
        pytest.skip(f"JAX {jax_version()} has no new formats")
    fusions = needed(asked, PROGRAM)
    strict = [entry_of(one, Family.NEW) for one in fusions]
    small = {"block_m": 32, "block_n": 128, "num_stages": 2}
    loose = versioned((entry_of(one, Family.NEW, config=config_of(one, **small)) for one in fusions), codegen="0" * 16)
    pairs = zip(strict, loose, strict=True) if first == "strict" else zip(loose, strict, strict=True)
    path = written([entry for pair in pairs for entry in pair], Format.NEW_BINARY, tmp_path)
    (answer,) = asked_of_xla(compiler, tmp_path, {"program": PROGRAM, "options": options(path, Family.NEW)})
    assert not answer["error"]
    decided = [name for name, tiles in (("strict", TILES), ("loose", [32, 128])) if tiles in answer["tiles"]]
    assert decided == [first]
    assert {one.words for one in verdicts(asked, PROGRAM, path, Family.NEW)} == {first}
    told = [one for one in validate(read(path), build=build(), device=device()) if one.code == "second-match"]
    assert [one.place.entry for one in told] == [2 * number + 2 for number in range(len(fusions))]


def test_for_a_described_device_xla_writes_nothing(compiler: Compiler, asked: Lookups, tmp_path: Path) -> None:
    """So what a check compiles leaves no trace among results, and nobody's results can come from a described device."""
    folder, dump = tmp_path / "empty", tmp_path / "dumped.pb"
    folder.mkdir()
    one = {
        "program": PROGRAM,
        "options": {
            DIRECTORY: str(folder),
            "xla_gpu_dump_autotune_results_to": str(dump),
            **family_flag(build().default),
        },
    }
    (answer,) = asked_of_xla(compiler, tmp_path, one)
    assert not answer["error"]
    assert list(folder.rglob("*")) == []
    assert not dump.exists()


@pytest.mark.parametrize("family", [Family.LEGACY, pytest.param(Family.NEW, marks=pytest.mark.campaign)])
def test_fusions_that_differ_in_a_constant_alone_share_a_key(
    family: Family, compiler: Compiler, tmp_path: Path
) -> None:
    """So one result decides for both, in a file, a lock and `check`: there is no second one to lack or to lose."""
    if family not in families():
        pytest.skip(f"JAX {jax_version()} has no {family} formats")
    plan, flags = f"{PLANS}:same_key", family_flag(family)
    found, _ = ask_child(compiler, plan, tmp_path, flags)
    names = [Needed(text, legacy, name, ()).fusion(family) for text, legacy, name in found]
    fusions = {one.fusion(family): one for one in (Needed(text, legacy, name, ()) for text, legacy, name in found)}
    assert [name for name in fusions if names.count(name) == 2], names  # of each program one
    path = written([entry_of(one, family) for one in fusions.values()], WHOLE[family], tmp_path)
    assert validate(read(path), build=build(), device=device()) == []
    command = [sys.executable, "-W", "ignore", "-m", "rewarm", "autotune"]
    given = " ".join(f"--{name}={str(value).lower()}" for name, value in flags.items())
    environment, more = compiler.environment(XLA_FLAGS=given), ("--target", "h200", "--json")
    done = execute([*command, "check", plan, "--cache", str(path), *more], env=environment, cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    told = json.loads(done.out)
    assert (told["complete"], told["surplus"], told["counts"]["covered"]) == (True, [], len(fusions))
    assert ["one", "other"] in [one["programs"] for one in told["fusions"]]
    lock = [*command, "lock", plan, str(path), "-o", str(tmp_path / "a.lock"), *more]
    done = execute(lock, env=environment, cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert len(lock_file.read(tmp_path / "a.lock").entries) == len(fusions)
