"""Coverage: planted cases, judged without a compiler and then asked of the real one, and lock files of plans."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuning_samples import BODY, legacy_entry, new_entry, target, triton_result

from conftest import Run, clean_environment, execute, first
from cuda_compilers import Compiler, ask_child, compiled, jax_version, wanted
from rewarm.autotune import lock_file, targets, xla_flags
from rewarm.autotune.coverage import (
    Needed,
    Reader,
    Reason,
    State,
    Verdict,
    directory_format,
    family_for,
    judge,
    usable,
)
from rewarm.autotune.formats import (
    Build,
    Family,
    Format,
    Reading,
    TuningEntry,
    Versions,
    build_of,
    keys,
    read,
    records,
    write,
)
from rewarm.autotune.formats.hlo import fusion_text
from rewarm.autotune.formats.protobuf import message_class
from rewarm.autotune.formats.writing import contents, fusion_path
from rewarm.autotune.locating import place_of
from rewarm.autotune.sources import Loaded
from rewarm.jax_adapter import plans
from rewarm.jax_adapter.plan_coverage import Checked, Failure, family_to_lock

PLANS = Path(__file__).with_name("coverage_plans.py")
H200, A100 = target("h200"), target("a100")
TEXT = fusion_text(BODY, "kCustom", keys.TRITON_GEMM_CONFIG)
GEMM = Needed(TEXT, BODY, "gemm_fusion", ("train_step",))


def known_build(jax: str = "0.12.0.1") -> Build:
    found = build_of(jax)
    assert found is not None
    return found


NEW = Reader(known_build(), H200, Family.NEW)
LEGACY = Reader(known_build(), H200, Family.LEGACY)


def loaded(*entries: TuningEntry, **more: Any) -> Loaded:
    return Loaded(Reading(Path("cache"), None, tuple(entries)), **more)


def fresh(**fields: Any) -> TuningEntry:
    return new_entry(fusion=GEMM.fingerprint, **fields)


def verdict(reader: Reader, *sources: Loaded) -> Verdict:
    (one,) = judge([GEMM], sources, reader).verdicts
    return one


OLD = Versions(codegen="0" * 16, backend="a77e7c793abc0d0c923a9afb275058e2fe57a198")
LOOSE = Versions(codegen="0" * 16, backend="b575c0c38d428a609e25487db64051a5fa7bfab8")
UNFIT = message_class("xla.autotuner.BackendConfig")(gemm={"algorithm": 0})
CASES: list[tuple[str, Reader, TuningEntry | None, State, Reason, str]] = [
    ("strict", NEW, fresh(), State.COVERED, Reason.NONE, "strict"),
    ("loose", NEW, fresh(versions=LOOSE), State.COVERED, Reason.NONE, "loose"),
    ("legacy", LEGACY, legacy_entry(), State.COVERED, Reason.NONE, ""),
    ("legacy of any version", LEGACY, legacy_entry(versions=Versions()), State.COVERED, Reason.NONE, ""),
    ("nothing", NEW, None, State.MISSING, Reason.NEVER_TUNED, "new or changed in the model"),
    ("another fusion's", NEW, new_entry(), State.MISSING, Reason.NEVER_TUNED, "new or changed in the model"),
    ("another GPU's", NEW, fresh(device=A100.fingerprint), State.MISSING, Reason.OTHER_GPU, "A100"),
    ("another GPU's, legacy", LEGACY, legacy_entry(device=A100.legacy), State.MISSING, Reason.OTHER_GPU, "A100"),
    (
        *("another cuDNN, legacy", LEGACY, legacy_entry(device=f"{H200.text}, DNN version: 9.1.0")),
        *(State.MISSING, Reason.OTHER_GPU, "cuDNN 9.1.0, which is in legacy keys"),
    ),
    ("another build's", NEW, fresh(versions=OLD), State.STALE, Reason.OTHER_BUILD, "loose rule does not match either"),
    (
        *("another build's, legacy", LEGACY, legacy_entry(versions=Versions(entry=52))),
        *(State.STALE, Reason.OTHER_BUILD, "by their version alone (56 is wanted)"),
    ),
    (
        *("unsound", LEGACY, legacy_entry(triton_result(num_warps=3))),
        *(State.STALE, Reason.CORRUPT, "num_warps as a power of two"),
    ),
    (
        *("of a library", NEW, fresh(backend="CUBLASLT", config=UNFIT.SerializeToString())),
        *(State.STALE, Reason.CORRUPT, "a backend that compiles fusions"),
    ),
    ("legacy for new", NEW, legacy_entry(), State.MISSING, Reason.OTHER_FORMAT, "convert makes one of the new ones"),
    ("new for legacy", LEGACY, fresh(), State.MISSING, Reason.OTHER_FORMAT, "convert makes one of the legacy ones"),
]


@pytest.mark.parametrize(
    ("reader", "entry", "state", "reason", "words"), [one[1:] for one in CASES], ids=[one[0] for one in CASES]
)
def test_each_reason(reader: Reader, entry: TuningEntry | None, state: State, reason: Reason, words: str) -> None:
    found = verdict(reader, *([loaded(entry)] if entry is not None else []))
    assert (found.state, found.reason) == (state, reason)
    assert words in found.words


def test_results_in_a_place_are_its_builds_alone() -> None:
    """The same entry that a folder of XLA's would serve by the loose rule: brought in by `import`, it does."""
    place = loaded(fresh(), build="jax-0.11.2-0123456789ab")
    found = verdict(NEW, place)
    assert (found.state, found.reason) == (State.STALE, Reason.OTHER_BUILD)
    assert "it would match here, under the rule strict" in found.words
    assert "rewarm autotune import" in found.words
    assert verdict(NEW, loaded(fresh(), build="jax-0.12.0.1-0123456789ab")).state is State.COVERED
    assert usable([place], NEW) == []


def test_a_damaged_file_is_named_where_it_lies(tmp_path: Path) -> None:
    for reader, entry in ((NEW, fresh()), (LEGACY, legacy_entry())):
        folder = tmp_path / reader.family
        write([entry], folder, directory_format(reader.family))
        path = folder / fusion_path(entry)
        path.write_bytes(path.read_bytes()[:9])
        found = verdict(reader, Loaded(read(folder)))
        assert (found.state, found.reason) == (State.STALE, Reason.CORRUPT)
        assert str(path) in found.words


def test_a_broken_file_is_no_proof_that_nothing_was_tuned(tmp_path: Path) -> None:
    path = tmp_path / "results.pb"
    path.write_bytes(b"")
    found = verdict(NEW, Loaded(read(path)))
    assert found.reason is Reason.NEVER_TUNED
    assert "1 of them" in found.words


def test_legacy_folders_are_understood_by_what_is_needed(tmp_path: Path) -> None:
    write([legacy_entry()], tmp_path / "dir", Format.LEGACY_DIRECTORY)
    assert verdict(LEGACY, Loaded(read(tmp_path / "dir"))).state is State.COVERED
    old = legacy_entry(device=A100.legacy, versions=Versions(entry=45))
    write([old], tmp_path / "old", Format.LEGACY_DIRECTORY)
    assert verdict(LEGACY, Loaded(read(tmp_path / "old"))).reason is Reason.OTHER_GPU


def test_what_serves_nothing_is_listed_with_its_reason() -> None:
    worse = fresh(versions=LOOSE)
    others = [
        new_entry(),
        fresh(device=A100.fingerprint),
        replace(new_entry(), versions=OLD),
        legacy_entry(triton_result(num_warps=3)),
    ]
    found = judge([GEMM], [loaded(fresh(), worse, *others)], NEW)
    assert found.is_complete
    assert sorted(one.reason for one in found.surplus) == sorted(
        [Reason.NOT_NEEDED, Reason.OTHER_GPU, Reason.OTHER_BUILD, Reason.CORRUPT, Reason.REPEATED]
    )


def test_an_entry_that_serves_wins_over_one_that_does_not() -> None:
    for entries in ([fresh(versions=OLD), fresh()], [fresh(device=A100.fingerprint), fresh(), fresh(versions=OLD)]):
        assert verdict(NEW, loaded(*entries)).entry == fresh()
        assert verdict(NEW, *map(loaded, reversed(entries))).entry == fresh()


def test_the_family_is_the_builds_unless_all_entries_are_of_the_other() -> None:
    assert family_for(known_build(), [loaded(fresh())]) is Family.NEW
    assert family_for(known_build(), [loaded(fresh(), legacy_entry())]) is Family.NEW
    assert family_for(known_build(), [loaded(legacy_entry())]) is Family.LEGACY
    assert family_for(known_build(), []) is Family.NEW
    assert family_for(known_build("0.10.2"), [loaded(fresh())]) is Family.LEGACY


# Files and folders of XLA's are judged as they are.


def laid_down(folder: Path, form: Format, *entries: TuningEntry) -> Path:
    """Byte by byte as given: `write` would refuse or repair some of it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, data, _ in contents(entries, folder if form.is_directory else folder / "results.pb", form):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder if form.is_directory else folder / "results.pb"


def warps(number: int) -> bytes:
    config = message_class("xla.autotuner.BackendConfig")(triton=triton_result(num_warps=number).triton)
    return bytes(config.SerializeToString(deterministic=True))


def test_an_entry_under_another_name_or_device_is_not_what_xla_finds(tmp_path: Path) -> None:
    folder = laid_down(tmp_path / "named", Format.NEW_DIRECTORY, fresh())
    (path,) = files(folder)
    path.rename(path.with_name("0" * 32 + ".pb"))
    found = verdict(NEW, Loaded(read(folder)))
    assert (found.state, found.reason) == (State.STALE, Reason.CORRUPT)
    assert "file-name" in found.words
    folder = laid_down(tmp_path / "device", Format.NEW_DIRECTORY, fresh())
    (folder / H200.fingerprint).rename(folder / A100.fingerprint)
    found = verdict(NEW, Loaded(read(folder)))
    assert (found.state, found.reason) == (State.STALE, Reason.CORRUPT)
    assert "folder" in found.words


def test_another_entry_under_the_name_of_a_needed_one_is_corrupt(tmp_path: Path) -> None:
    """XLA finds it by the name and takes what is inside."""
    folder = laid_down(tmp_path, Format.NEW_DIRECTORY, new_entry())
    (path,) = files(folder)
    path.rename(path.with_name(f"{GEMM.fingerprint}.pb"))
    found = verdict(NEW, Loaded(read(folder)))
    assert (found.state, found.reason) == (State.STALE, Reason.CORRUPT)


@pytest.mark.parametrize(
    ("versions", "warps_of", "state"),
    [
        ("SS", (4, 3), State.STALE),
        ("SS", (3, 4), State.COVERED),
        ("SL", (4, 3), State.COVERED),
        ("LS", (3, 4), State.STALE),
        ("LSL", (4, 3, 3), State.STALE),
        ("OS", (3, 4), State.COVERED),
    ],
)
def test_of_several_entries_in_a_new_file_the_one_counts_that_xla_takes(
    versions: str, warps_of: tuple[int, ...], state: State, tmp_path: Path
) -> None:
    """S: found strictly, L: loosely, O: not. As JAX 0.12.0.1 was seen to choose."""
    known = {"S": fresh().versions, "L": LOOSE, "O": OLD}
    given = zip(versions, warps_of, strict=True)
    path = laid_down(tmp_path, Format.NEW_BINARY, *(fresh(versions=known[v], config=warps(n)) for v, n in given))
    found = judge([GEMM], [Loaded(read(path))], NEW)
    assert found.verdicts[0].state is state
    assert any(one.reason is Reason.REPEATED for one in found.surplus) is (versions != "OS")


def test_what_is_wrong_with_a_whole_file_is_wrong_with_each_entry(tmp_path: Path) -> None:
    other = legacy_entry(fusion=BODY.replace("tanh", "cosine"))
    path = laid_down(tmp_path / "twice", Format.LEGACY_BINARY, legacy_entry(), other)
    path.write_bytes(path.read_bytes() + path.read_bytes())
    twice = verdict(LEGACY, Loaded(read(path)))
    path = laid_down(tmp_path / "version", Format.LEGACY_BINARY, legacy_entry())
    path.write_bytes(path.read_bytes().replace(b"\x08\x03", b"\x08\x02", 1))
    version = verdict(LEGACY, Loaded(read(path)))
    path = laid_down(tmp_path / "named", Format.NEW_BINARY, fresh())
    named = verdict(NEW, Loaded(read(path.rename(path.with_suffix(".textproto")))))
    for found, code in ((twice, "duplicate"), (version, "file-version"), (named, "binary-under-text-name")):
        assert (found.state, found.reason) == (State.STALE, Reason.CORRUPT)
        assert f"XLA refuses the whole file: {code}" in found.words


def test_one_file_of_a_folder_is_nothing_to_load(tmp_path: Path) -> None:
    (path,) = files(laid_down(tmp_path, Format.NEW_DIRECTORY, fresh()))
    found = verdict(NEW, Loaded(read(path)))
    assert (found.state, found.reason) == (State.MISSING, Reason.OTHER_FORMAT)


def test_an_explicit_version_is_never_asked_for(tmp_path: Path) -> None:
    entry = fresh(versions=replace(fresh().versions, explicit="mine"))
    found = verdict(NEW, Loaded(read(laid_down(tmp_path, Format.NEW_DIRECTORY, entry))))
    assert (found.state, found.reason) == (State.STALE, Reason.OTHER_BUILD)


def test_links_inside_a_folder_are_said_to_be_links(tmp_path: Path) -> None:
    folder = laid_down(tmp_path / "real", Format.NEW_DIRECTORY, fresh())
    (path,) = files(folder)
    linked = tmp_path / "file" / H200.fingerprint
    linked.mkdir(parents=True)
    (linked / path.name).symlink_to(path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / H200.fingerprint).symlink_to(path.parent)
    for name in ("file", "folder"):
        found = verdict(NEW, Loaded(read(tmp_path / name)))
        assert (found.state, found.reason) == (State.STALE, Reason.LINK)
        assert "XLA follows and rewarm does not" in found.words


# Plans, without a compiler.


def names(plan: str) -> list[str]:
    import jax

    return [one.name for one in plans.programs(f"{PLANS}:{plan}", jax.devices()[:1])]


def test_plans_name_their_programs() -> None:
    assert names("two") == ["mlp", "named"]
    assert names("sharded") == ["step"]
    assert names("nothing_at_all") == []


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("no colon", "expected module:function"),
        ("no_such_module_anywhere:plan", "there is no module no_such_module_anywhere"),
        ("none.py:plan", "expected a Python file with the plan"),
        (f"{PLANS}:none", "has no function none; it has"),
        (f"{PLANS}:wrong_kind", "found a int as number 1"),
    ],
)
def test_a_plan_that_is_none_is_one_clear_error(plan: str, says: str) -> None:
    with pytest.raises(plans.PlanError, match=says):
        list(plans.programs(plan, []))


def test_a_plan_compiles_for_the_attached_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert plans.main([f"{PLANS}:two", "--only", "named"]) == 0
    assert capsys.readouterr().out.startswith("named: compiled in ")
    assert plans.main([f"{PLANS}:does_not_compile"]) == 1
    assert plans.main([f"{PLANS}:two", "--only", "nobody"]) == 1
    assert "it has mlp, named" in capsys.readouterr().err


def test_a_plan_is_compiled_whatever_caches_there_are(tmp_path: Path) -> None:
    """XLA tunes nothing for a program that is found: neither the environment nor the plan turns a cache on."""
    said = {
        **{"REWARM": "1", "REWARM_DIR": str(tmp_path / "rewarm"), "PLAN_CACHES": str(tmp_path), "PLAN_SIZE": "32"},
        **{"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
    }
    for plan in ("small", "with_caches"):
        command = [sys.executable, "-W", "ignore", "-m", "rewarm.jax_adapter.plans", f"{PLANS}:{plan}"]
        done = execute(command, env=clean_environment(**said), cwd=tmp_path)
        assert done.code == 0, done.err
        assert done.out.startswith("mlp: compiled in ")
        assert list(tmp_path.iterdir()) == []


def test_nobody_says_what_a_program_that_did_not_compile_needs() -> None:
    judged = judge([GEMM], [loaded(fresh(), new_entry(), fresh(device=A100.fingerprint))], NEW)
    assert {one.reason for one in judged.surplus} == {Reason.NOT_NEEDED, Reason.OTHER_GPU}
    whole = Checked.of(judged, (), (), is_whole=True)
    assert (whole.coverage, whole.unjudged) == (judged, 0)
    failed = (Failure("step", "it does not", with_entries=False),)
    for done in (Checked.of(judged, (), failed, is_whole=True), Checked.of(judged, (), (), is_whole=False)):
        assert [one.reason for one in done.coverage.surplus] == [Reason.OTHER_GPU]
        assert done.unjudged == 1


def test_a_lock_is_made_in_the_formats_that_flags_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [loaded(fresh(), legacy_entry())]
    monkeypatch.setenv("XLA_FLAGS", "")
    assert family_to_lock(known_build(), both) is Family.NEW
    assert family_to_lock(known_build(), [loaded(legacy_entry())]) is Family.LEGACY
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_use_new_autotune_cache_format=false")
    assert family_to_lock(known_build(), both) is Family.LEGACY
    assert family_to_lock(known_build("0.10.2"), both) is Family.LEGACY


# With the real compiler.


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return wanted()


# What the command of `check` runs, with a described GPU in the place of an attached one.
ON_DESCRIBED = """
import sys, jax
from jax.experimental import topologies
from rewarm.jax_adapter import plans
described = topologies.get_topology_desc(platform="cuda", target_config=open(sys.argv[1]).read(), topology="1x1x1")
jax.devices = lambda: list(described.devices)
sys.exit(plans.main(sys.argv[2:]))
"""


@pytest.mark.contract
def test_results_land_where_the_command_says(compiler: Compiler, tuned: Path, tmp_path: Path) -> None:
    """XLA finds there what it is told to have, whatever JAX's cache and the plan's options name."""
    (tmp_path / "target").write_text(targets.description("h200", jax_version()))
    (tmp_path / "caches").mkdir()
    said = {
        **{
            "REWARM_DIR": str(tmp_path / "caches" / "rewarm"),
            "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "caches/jax"),
        },
        **{"PLAN_CACHES": str(tmp_path / "caches"), "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "all"},
    }
    for folder, code in ((tuned, 0), (tmp_path / "none", 1)):
        folder.mkdir(exist_ok=True)
        flags = f"--{xla_flags.DIRECTORY}={folder} --{xla_flags.REQUIRE}=true"
        for plan in ("small", "with_caches"):
            arguments = (str(tmp_path / "target"), f"{PLANS}:{plan}")
            done = compiler.run(ON_DESCRIBED, tmp_path, *arguments, XLA_FLAGS=flags, **said)
            assert done.code == code, done.err
            assert ("No cached config found" in done.err) is (code == 1)
    assert list((tmp_path / "caches").iterdir()) == []
    assert checked(compiler, tmp_path, "with_caches", tuned, **said)[0] == 0
    assert list((tmp_path / "caches").iterdir()) == []


def rewarm(compiler: Compiler, folder: Path, *arguments: str, **extra: str) -> Run:
    command = [sys.executable, "-W", "ignore", "-m", "rewarm", "autotune", *arguments]
    return execute(command, env=compiler.environment(**extra), cwd=folder)


def checked(compiler: Compiler, folder: Path, plan: str, cache: Path, *more: str, **extra: str) -> tuple[int, Any]:
    options = ("--json", "--cache", str(cache), *([] if "--target" in more else ["--target", "h200"]), *more)
    done = rewarm(compiler, folder, "check", f"{PLANS}:{plan}", *options, **extra)
    assert done.out, done.err
    return done.code, json.loads(done.out)


def states(answer: Any) -> list[tuple[str, str | None]]:
    return sorted((one["state"], one["reason"]) for one in answer["fusions"])


def entries_for(answer: Any, family: Family) -> list[TuningEntry]:
    """Sound entries for what a check found to be needed, as a tuner might have made them."""
    build, made = known_build(jax_version()), []
    told = keys.codegen_versions(build, targets.device("h200"))
    for one in answer["fusions"]:
        is_gemm = "kind=kCustom" in one["says"]
        backend = "TRITON" if is_gemm else "NATIVE_EMITTER"
        config = message_class("xla.autotuner.BackendConfig")()
        if is_gemm:
            config.triton.CopyFrom(triton_result().triton)
        else:
            config.native_emitter.SetInParent()
        if family is Family.NEW:
            versions = Versions(codegen=keys.codegen_version(told), backend=told[backend])
            entry = new_entry(config, fusion=one["fingerprint"], backend=backend, versions=versions)
        else:
            result = triton_result()
            if not is_gemm:
                result.other.name = backend
                result.other.config.type_url = "type.googleapis.com/xla.autotuner.BackendConfig"
                result.other.config.value = config.SerializeToString()
            versions = Versions(entry=build.entry_version)
            device = targets.device("h200").legacy
            entry = legacy_entry(result, fusion=one["fusion"], device=device, versions=versions)
            entry = replace(entry, backend=records.legacy_backend(result, one["fusion"]))
        made.append(entry)
    return made


@pytest.fixture(scope="module")
def tuned(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of XLA's with a sound entry for each fusion of the plan `small`."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "empty").mkdir()
    code, answer = checked(compiler, folder, "small", folder / "empty")
    assert code == 1
    assert set(states(answer)) == {("missing", "never tuned")}
    family = Family(answer["family"])
    write(entries_for(answer, family), folder / "xla", directory_format(family))
    return folder / "xla"


def copy(folder: Path, to: Path) -> Path:
    for path in folder.rglob("*"):
        if path.is_file():
            (to / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (to / path.relative_to(folder)).write_bytes(path.read_bytes())
    return to


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.contract
def test_what_is_said_to_be_covered_is_what_xla_takes(compiler: Compiler, tuned: Path, tmp_path: Path) -> None:
    """`check` and XLA's own `require` agree, with all entries and without one."""
    code, answer = checked(compiler, tmp_path, "small", tuned)
    assert code == 0
    assert answer["complete"] is True
    assert answer["command"] == ""
    assert answer["surplus"] == []
    assert {one["configuration"] for one in answer["fusions"]} >= {"64x64x32, 3 stages, 4 warps"}
    lacking = copy(tuned, tmp_path / "lacking")
    files(lacking)[0].unlink()
    code, answer = checked(compiler, tmp_path, "small", lacking)
    assert code == 1
    assert answer["counts"]["missing"] == 1
    assert f"--xla_gpu_per_fusion_autotune_cache_dir={lacking}" in answer["command"]
    for folder, is_enough in ((tuned, True), (lacking, False)):
        options = {
            "xla_gpu_per_fusion_autotune_cache_dir": str(folder),
            "xla_gpu_require_complete_aot_autotune_results": True,
        }
        one = {"program": "mlp:1024", "options": options}
        (told,), _ = compiled(compiler, tmp_path, targets.description("h200", jax_version()), [one])
        assert (not told["error"]) is is_enough, told["error"]


@pytest.mark.contract
def test_the_command_compiles_as_the_check_does(compiler: Compiler, tmp_path: Path) -> None:
    """With the flags that make the fusions what they are, and without those that would keep XLA from tuning there."""
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    kept, *others = (
        "--xla_gpu_enable_triton_gemm=true",
        "--xla_gpu_autotune_level=0",
        "--xla_gpu_require_complete_aot_autotune_results=true",
        "--xla_dump_to=/nowhere",
        "--xla_gpu_per_fusion_autotune_cache_dir=/nowhere",
    )
    flags = f"--xla_gpu_cuda_data_dir={compiler.toolkit} {kept}"
    _, answer = checked(compiler, tmp_path, "small", lacking, XLA_FLAGS=" ".join([kept, *others]))
    assert answer["counts"]["missing"] >= 1
    place = f"--xla_gpu_per_fusion_autotune_cache_dir={lacking}"
    assert answer["command"].startswith(f"XLA_FLAGS='{flags} {place}' python -m rewarm.jax_adapter.plans ")
    arguments = ("check", f"{PLANS}:small", "--target", "h200", "--dir", str(tmp_path), "--json")
    answer = json.loads(rewarm(compiler, tmp_path, *arguments, XLA_FLAGS=kept).out)
    assert answer["command"].startswith(f"XLA_FLAGS='{flags}' rewarm autotune run --dir {tmp_path} -- python -m ")
    if known_build(jax_version()).minor < (0, 11):  # later ones cannot compile it without a GPU
        done = rewarm(compiler, tmp_path, *arguments[:-1], XLA_FLAGS="--xla_gpu_deterministic_ops=true")
        assert "No command tunes what is missing: with xla_gpu_deterministic_ops in XLA_FLAGS" in done.out


@pytest.mark.campaign
def test_entries_of_programs_that_were_not_compiled_are_not_said_to_serve_nothing(
    compiler: Compiler, tuned: Path, tmp_path: Path
) -> None:
    count = len(files(tuned))
    for plan, more, size in (("does_not_compile", (), "1152"), ("two", ("--only", "named"), "1024")):
        code, answer = checked(compiler, tmp_path, plan, tuned, *more, PLAN_SIZE=size)
        assert code == 1
        assert (answer["surplus"], answer["unjudged"]) == ([], count)
    arguments = ("check", f"{PLANS}:two", "--target", "h200", "--cache", str(tuned), "--only", "named")
    said = f"{count} entries serve none of what was compiled, which was not the whole plan"
    assert said in rewarm(compiler, tmp_path, *arguments).out


@pytest.mark.contract
def test_planted_cases(compiler: Compiler, tuned: Path, tmp_path: Path) -> None:
    """A changed model, another GPU, another build, a corrupt file and surplus entries, told apart."""
    family = Family(read(tuned).format.family if read(tuned).format else Family.NEW)
    count = len(files(tuned))

    code, answer = checked(compiler, tmp_path, "small", tuned, PLAN_SIZE="1152")
    assert code == 1
    assert set(states(answer)) == {("missing", "never tuned")}
    assert len(answer["surplus"]) == count

    code, answer = checked(compiler, tmp_path, "small", tuned, "--target", "a100")
    assert code == 1
    assert ("missing", "other GPU") in states(answer)
    assert not [one for one in answer["fusions"] if one["state"] == "covered"]

    planted = copy(tuned, tmp_path / "planted")
    torn, *_ = files(planted)
    torn.write_bytes(torn.read_bytes()[:9])
    known = read(tuned).entries[0]
    if family is Family.NEW:
        surplus = replace(known, fusion="0" * 32)
    else:
        versions = Versions(entry=known_build(jax_version()).entry_version)
        surplus = legacy_entry(fusion=BODY, device=targets.device("h200").legacy, versions=versions)
    write([surplus], planted, directory_format(family))
    code, answer = checked(compiler, tmp_path, "small", planted)
    assert code == 1
    assert [one for one in answer["fusions"] if one["reason"] == "corrupt" and str(torn) in one["words"]]
    assert answer["counts"]["stale"] == 1
    assert {one["reason"] for one in answer["surplus"]} == {"not in the plan"}
    assert len(answer["surplus"]) == 1


@pytest.mark.contract
def test_what_xla_would_not_take_is_not_covered(compiler: Compiler, tuned: Path, tmp_path: Path) -> None:
    """Results in formats that XLA is not told to look into, one under the name of another, and a file not loadable."""
    entries = read(tuned).entries
    family, build = entries[0].family, known_build(jax_version())
    if len({one.family for one in build.formats}) > 1:
        flag = "--xla_gpu_use_new_autotune_cache_format=false"
        code, answer = checked(compiler, tmp_path, "small", tuned, XLA_FLAGS=flag)
        assert code == 1
        assert set(states(answer)) == {("missing", "other format")}
    if family is Family.NEW:
        swapped = copy(tuned, tmp_path / "swapped")
        one, other = files(swapped)[:2]
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(kept)
        code, answer = checked(compiler, tmp_path, "small", swapped)
        assert code == 1
        assert states(answer).count(("stale", "corrupt")) == 2
        assert answer["command"].startswith(f"mkdir {swapped}.corrupt && mv -- {one} {other} {swapped}.corrupt && XLA")
    form = Format.NEW_BINARY if family is Family.NEW else Format.LEGACY_BINARY
    path = tmp_path / "results.pb"
    write([fresh() if family is Family.NEW else legacy_entry()], path, form)
    path.write_bytes(path.read_bytes()[:-3])  # torn, so whatever was in it
    code, answer = checked(compiler, tmp_path, "small", path)
    assert code == 1
    tuned_anew = tmp_path / "results.tuned.pb"
    assert f" --xla_gpu_dump_autotune_results_to={tuned_anew}' python -m " in answer["command"]
    assert "load_autotune" not in answer["command"]


@pytest.mark.campaign
def test_the_managed_directory_is_what_is_checked_by_default(compiler: Compiler, tuned: Path, tmp_path: Path) -> None:
    """With the build id that rewarm has for the compiler in JAX programs; under another id the results are not its."""
    asking = "from rewarm.jax_adapter.tuning_places import installed_build; print(installed_build())"
    done = execute([sys.executable, "-c", asking], env=compiler.environment(REWARM_DIR=str(tmp_path)), cwd=tmp_path)
    entries = read(tuned).entries
    for build, state in ((done.out.strip(), "covered"), (f"jax-{jax_version()}-000000000000", "stale")):
        root = tmp_path / state
        root.mkdir()
        place_of(root, build, targets.device("h200").text, entries[0].family).add(entries)
        arguments = ("check", f"{PLANS}:small", "--target", "h200", "--dir", str(root), "--json")
        answer = json.loads(rewarm(compiler, tmp_path, *arguments).out)
        assert {one["state"] for one in answer["fusions"]} == {state}, answer
    assert f" rewarm autotune run --dir {root} -- python -m rewarm.jax_adapter.plans " in answer["command"]
    assert answer["command"].endswith("--only mlp")


def test_only_children_that_ask_have_the_compiler(compiler: Compiler, tmp_path: Path) -> None:
    """A CUDA plugin in the environment would change each start of JAX in it."""
    look = "import sys; print([one for one in sys.path if one.endswith(sys.argv[1])])"
    for environment, is_there in ((clean_environment(), False), (compiler.environment(), True)):
        done = execute([sys.executable, "-c", look, compiler.folder.name], env=environment, cwd=tmp_path)
        assert (done.out.strip() != "[]") is is_there


def test_another_build_is_told_from_another_model(compiler: Compiler, tuned: Path, tmp_path: Path) -> None:
    entries = read(tuned).entries
    if entries[0].family is Family.LEGACY:
        pytest.skip("names in a legacy folder are digests of the version, too")
    write([replace(one, versions=OLD) for one in entries], tmp_path / "old", Format.NEW_DIRECTORY)
    code, answer = checked(compiler, tmp_path, "small", tmp_path / "old")
    assert code == 1
    assert set(states(answer)) == {("stale", "other XLA build")}
    assert all("loose rule does not match either" in one["words"] for one in answer["fusions"])


@pytest.mark.contract
def test_a_lock_decides_the_formats_for_programs_that_ask_for_others(
    compiler: Compiler, tuned: Path, tmp_path: Path
) -> None:
    """As in a run with the lock in force (`test_tuning_directories`)."""
    if len({one.family for one in known_build(jax_version()).formats}) == 1:
        pytest.skip("there is one generation of formats")
    held, plan = tmp_path / "tuning.lock", f"{PLANS}:other_formats"
    done = rewarm(compiler, tmp_path, "lock", plan, str(tuned), "--target", "h200", "-o", str(held))
    assert done.code == 0, done.out
    assert lock_file.read(held).family is Family.NEW
    assert rewarm(compiler, tmp_path, "lock", plan, "--check", str(held)).code == 0
    assert checked(compiler, tmp_path, "other_formats", held)[0] == 0
    flags = "--xla_gpu_use_new_autotune_cache_format=false"  # nor do these decide, and the command has the lock's
    code, answer = checked(compiler, tmp_path, "other_formats", held, PLAN_SIZE="1152", XLA_FLAGS=flags)
    assert (code, answer["family"], answer["failures"]) == (1, "new", [])
    assert "use_new_autotune_cache_format" not in answer["command"]
    assert answer["command"].count("XLA_FLAGS=") == 3


@pytest.mark.campaign
def test_a_lock_is_written_checked_and_refused(compiler: Compiler, tuned: Path, tmp_path: Path) -> None:
    held = tmp_path / "tuning.lock"
    plan, more = f"{PLANS}:small", ("--target", "h200", "-o", str(held))
    done = rewarm(compiler, tmp_path, "lock", plan, str(tuned), *more)
    assert done.code == 0, done.err
    made = lock_file.read(held)
    assert len(made.entries) == len(read(tuned).entries)
    known = {entry.fusion for entry in read(tuned).entries} - {None}  # a legacy folder says none
    assert known in (set(), {entry.fusion for entry in made.entries})
    assert made.build == jax_version()
    assert len(made.says) == len(made.entries)
    assert "is there; --force replaces it" in rewarm(compiler, tmp_path, "lock", plan, str(tuned), *more).err
    done = rewarm(compiler, tmp_path, "lock", plan, "--check", str(held), "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["digest"] == made.digest
    done = rewarm(compiler, tmp_path, "lock", plan, "--check", str(held), PLAN_SIZE="1152")
    assert done.code == 1
    assert "never tuned" in done.out
    assert f"-o {held} --force" in done.out
    other = ("--target", "h200", "-o", str(tmp_path / "other.lock"))
    done = rewarm(compiler, tmp_path, "lock", plan, str(tuned), *other, PLAN_SIZE="1152")
    assert done.code == 1
    assert "no lock was written" in done.err
    assert not (tmp_path / "other.lock").exists()


def test_a_lock_of_a_cache_needs_no_plan(compiler: Compiler, tuned: Path, tmp_path: Path) -> None:
    held = tmp_path / "tuning.lock"
    done = rewarm(compiler, tmp_path, "lock", str(tuned), "--target", "h200", "-o", str(held))
    if "legacy folder" in done.err:  # whose files do not say their fusions
        known = build_of(compiler.jax)
        assert known is not None
        assert known.default is Family.LEGACY
        assert (done.code, held.exists()) == (1, False)
        return
    assert done.code == 0, done.err
    assert len(lock_file.read(held).entries) == len(files(tuned))
    done = rewarm(compiler, tmp_path, "lock", str(tuned), "--target", "a100", "-o", str(tmp_path / "none"))
    assert done.code == 1
    assert "no lock was written: no result there serves" in done.err
    for arguments, says in (
        ((str(tuned),), "name the file to write with -o"),
        ((str(tuned), "--check", str(held)), "--check needs the plan that the lock file is to cover"),
        (("--check", str(held)), "--check needs the plan that the lock file is to cover"),
        ((str(tuned), "-o", "x"), "--target is needed"),
        ((str(tuned), "-o", "x", "--target", "tpu"), "h200"),
    ):
        done = rewarm(compiler, tmp_path, "lock", *arguments)
        assert done.code == 2, done.err
        assert says in done.err


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rewarm", "autotune", "check", f"{PLANS}:small", "--target", "h200"]
    done = execute([*command, "--cache", str(tmp_path)], env=clean_environment(), cwd=tmp_path)
    assert done.code == 1
    assert f"pip install --no-deps jax-cuda13-plugin=={jax_version()}" in done.err
    assert "Traceback" not in done.err


def test_a_plan_without_programs_is_an_error(compiler: Compiler, tmp_path: Path) -> None:
    for plan, more, says in (
        ("nothing_at_all", (), "yields no program"),
        ("small", ("--only", "none"), "has no program none; it has mlp"),
    ):
        arguments = ("check", f"{PLANS}:{plan}", "--target", "h200", "--cache", str(tmp_path), *more)
        done = rewarm(compiler, tmp_path, *arguments)
        assert done.code == 1
        assert says in done.err
        assert "Traceback" not in done.err


def test_a_plan_that_raises_is_one_line(compiler: Compiler, tmp_path: Path) -> None:
    done = rewarm(compiler, tmp_path, "check", f"{PLANS}:raises", "--target", "h200", "--cache", str(tmp_path))
    assert done.code == 1
    assert "coverage_plans.py:raises raises RuntimeError: the plan's own" in done.err
    assert "Traceback" not in done.err


@pytest.mark.contract
@pytest.mark.parametrize(
    "plan",
    [
        "elsewhere",
        pytest.param("partly_elsewhere", marks=pytest.mark.campaign),
        pytest.param("jitted_elsewhere", marks=pytest.mark.campaign),
    ],
)
def test_a_program_for_other_devices_is_not_covered_whatever_it_needs(
    plan: str, compiler: Compiler, tuned: Path, tmp_path: Path
) -> None:
    """Compiled for this process's CPU it has no fusion to look up: nothing is lacking, and nothing is known."""
    code, answer = checked(compiler, tmp_path, plan, tuned)
    assert (code, answer["complete"]) == (1, False)
    (failure,) = answer["failures"]
    lines = PLANS.read_text().splitlines()
    line = int(failure["error"].removeprefix(f"step ({PLANS}:").partition(")")[0])
    assert "yield" in lines[line - 1]
    assert "not for the devices that the plan was given: take those, plan(devices)" in failure["error"]
    assert "Traceback" not in failure["error"]


@pytest.mark.campaign
def test_a_lock_does_not_cover_a_program_for_other_devices(compiler: Compiler, tuned: Path, tmp_path: Path) -> None:
    held, plan = tmp_path / "tuning.lock", f"{PLANS}:partly_elsewhere"
    done = rewarm(compiler, tmp_path, "lock", plan, str(tuned), "--target", "h200", "-o", str(held))
    assert (done.code, held.exists()) == (1, False)
    assert "not for the devices" in done.out
    made = rewarm(compiler, tmp_path, "lock", f"{PLANS}:small", str(tuned), "--target", "h200", "-o", str(held))
    assert made.code == 0, made.err
    done = rewarm(compiler, tmp_path, "lock", f"{PLANS}:partly_elsewhere", "--check", str(held))
    assert done.code == 1
    assert "not for the devices" in done.out


def test_devices_of_a_plan_are_compared_where_it_compiles_for_attached_ones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that tunes: what is compiled for something else would be tuned nowhere."""
    import jax

    assert plans.main([f"{PLANS}:elsewhere"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(jax, "devices", lambda *_: [object()])
    (program,) = list(plans.programs(f"{PLANS}:small", []))
    lowered = plans.lowered(program, jax.local_devices())
    with pytest.raises(plans.PlanError, match="not for the devices"):
        plans.compiled(program, lowered, jax.devices(), None)


@pytest.mark.parametrize("topology", first(1, ["0x1x1", "1x1", "eight", "1x1x-8"]))
def test_a_topology_that_is_none_is_wrong_usage(topology: str, compiler: Compiler, tmp_path: Path) -> None:
    more = ("--target", "h200", "--cache", str(tmp_path), "--topology", topology)
    done = rewarm(compiler, tmp_path, "check", f"{PLANS}:small", *more)
    assert done.code == 2
    assert f"cuda has no topology '{topology}'" in done.err


@pytest.mark.campaign
def test_a_topology_of_one_number_is_the_devices_of_a_process(compiler: Compiler, tmp_path: Path) -> None:
    code, answer = checked(compiler, tmp_path, "sharded", tmp_path, "--topology", "8")
    assert (code, answer["failures"]) == (1, [])
    assert answer["counts"]["needed"] > 0


@pytest.mark.campaign
def test_a_plan_that_ends_its_process_is_named(compiler: Compiler, tmp_path: Path) -> None:
    done = rewarm(compiler, tmp_path, "check", f"{PLANS}:leaves", "--target", "h200", "--cache", str(tmp_path))
    assert done.code == 1
    assert "coverage_plans.py:leaves ends the process: SystemExit, as of sys.exit(0)" in done.err


def test_a_result_that_lies_in_two_places_of_a_cache_directory_is_not_repeated() -> None:
    """Before JAX 0.11 an import lies in the place of the device's text, and a run takes it over into its own."""
    here = {"build": "jax-0.12.0.1-0123456789ab"}
    found = judge([GEMM], [loaded(fresh(), **here), loaded(fresh(), **here)], NEW)
    assert (found.is_complete, found.surplus) == (True, ())
    worse = fresh(versions=LOOSE)
    found = judge([GEMM], [loaded(fresh(), **here), loaded(worse, **here)], NEW)
    assert [one.reason for one in found.surplus] == [Reason.REPEATED]
    found = judge([GEMM], [loaded(fresh()), loaded(fresh())], NEW)  # two files of anybody's
    assert [one.reason for one in found.surplus] == [Reason.REPEATED]


@pytest.mark.campaign
def test_a_transformers_train_step_is_checked_in_under_a_minute(compiler: Compiler, tmp_path: Path) -> None:
    before, since = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    code, answer = checked(compiler, tmp_path, "transformer", tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert code == 1
    assert answer["counts"]["needed"] >= 30
    # Processor time: what else this machine does meanwhile is not this command's.
    took, wall = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - since
    assert took < 60, f"{took:.1f} s of processor time, {wall:.1f} s in all"
    waiting = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # for its turn, where others compute as well
    assert wall < 60 * waiting, f"{wall:.1f} s, with {waiting:.1f} programs for each processor"


@pytest.mark.campaign
def test_a_program_that_no_longer_compiles_with_its_entries_is_told(
    compiler: Compiler, tuned: Path, tmp_path: Path
) -> None:
    """Too much shared memory for the device is known only to the compiler."""
    entries = [_too_large(entry) for entry in read(tuned).entries]
    write(entries, tmp_path / "large", directory_format(entries[0].family))
    code, answer = checked(compiler, tmp_path, "small", tmp_path / "large")
    assert code == 1
    (failure,) = answer["failures"]
    assert failure["with_entries"] is True
    assert failure["program"] == "mlp"
    assert "shared memory" in failure["error"] or "RESOURCE_EXHAUSTED" in failure["error"]
    assert answer["counts"]["covered"] == len(entries)  # by the keys


def _too_large(entry: TuningEntry) -> TuningEntry:
    if entry.backend != "TRITON":
        return entry
    name = records.RESULT if entry.family is Family.LEGACY else "xla.autotuner.BackendConfig"
    config = message_class(name).FromString(entry.config)
    config.triton.block_m = config.triton.block_n = 256
    config.triton.block_k = 128
    return replace(entry, config=config.SerializeToString(deterministic=True))


@pytest.mark.campaign
def test_a_librarys_result_on_a_triton_fusion_is_stale(compiler: Compiler, tuned: Path, tmp_path: Path) -> None:
    """XLA would take it without a word; what it did to the program is not in the answer."""
    entries = list(read(tuned).entries)
    if entries[0].family is Family.LEGACY:
        pytest.skip("a gemm on a fusion means another backend in the legacy formats")
    at = next(number for number, one in enumerate(entries) if one.backend == "TRITON")
    versions = replace(entries[at].versions, backend="12.8.0")
    entries[at] = replace(entries[at], backend="CUBLASLT", config=UNFIT.SerializeToString(), versions=versions)
    write(entries, tmp_path / "unfit", Format.NEW_DIRECTORY)
    code, answer = checked(compiler, tmp_path, "small", tmp_path / "unfit")
    assert code == 1
    assert states(answer).count(("stale", "corrupt")) == 1
    assert answer["counts"]["covered"] == len(entries) - 1


@pytest.mark.campaign
@pytest.mark.parametrize("topology", ["1x1x8", "1x2x4"])
def test_a_topology_makes_other_programs(compiler: Compiler, topology: str, tmp_path: Path) -> None:
    code, answer = checked(compiler, tmp_path, "sharded", tmp_path, "--topology", topology)
    assert code == 1
    assert not answer["failures"]
    assert answer["counts"]["needed"] >= 1


@pytest.mark.contract
def test_a_programs_own_options_are_those_of_a_run(compiler: Compiler, tmp_path: Path) -> None:
    """Without fusion by Triton other fusions are looked up. A place for tuning among them is not the plan's to say."""
    _, plain = checked(compiler, tmp_path, "small", tmp_path)
    _, answer = checked(compiler, tmp_path, "with_options", tmp_path)
    assert answer["failures"] == []
    assert [one["name"] for one in answer["programs"]] == ["options"]
    assert {one["fingerprint"] for one in answer["fusions"]} != {one["fingerprint"] for one in plain["fusions"]}
    assert not [one for one in answer["fusions"] if "kind=kCustom" in one["says"]]
    if len({one.family for one in known_build(jax_version()).formats}) == 1:
        return
    code, answer = checked(compiler, tmp_path, "other_formats", tmp_path)
    assert code == 1
    (failure,) = answer["failures"]
    assert "its compiler_options say xla_gpu_use_new_autotune_cache_format=False" in failure["error"]
    flag = "--xla_gpu_use_new_autotune_cache_format=False"
    assert checked(compiler, tmp_path, "other_formats", tmp_path, XLA_FLAGS=flag)[1]["failures"] == []


@pytest.mark.contract
def test_a_kernel_of_pallas_compiles_and_takes_no_part(compiler: Compiler, tmp_path: Path) -> None:
    """It finds the device that is only described, and XLA looks nothing up for it."""
    code, answer = checked(compiler, tmp_path, "pallas", tmp_path)
    assert answer["failures"] == []
    assert [(one["name"], one["fusions"]) for one in answer["programs"]] == [("kernel", 0)]
    assert code == 0


@pytest.mark.campaign
def test_a_program_that_does_not_trace_is_told_and_the_others_are_judged(compiler: Compiler, tmp_path: Path) -> None:
    code, answer = checked(compiler, tmp_path, "does_not_compile", tmp_path)
    assert code == 1
    assert [one["program"] for one in answer["failures"]] == ["bad"]
    assert answer["failures"][0]["with_entries"] is False
    assert answer["counts"]["needed"] >= 1


@pytest.mark.campaign
def test_rounds_of_tuning_and_checking_end_with_a_whole_train_step_covered(compiler: Compiler, tmp_path: Path) -> None:
    """Entries can leave other fusions over. When `check` says that all are covered, XLA with `require` agrees."""
    family = known_build(jax_version()).default
    folder = tmp_path / "xla"
    folder.mkdir()
    for _ in range(4):
        code, answer = checked(compiler, tmp_path, "transformer", folder)
        if code == 0:
            break
        write(entries_for(answer, family), folder, directory_format(family))
    assert answer["complete"], _left(answer)
    options = {
        "xla_gpu_per_fusion_autotune_cache_dir": str(folder),
        "xla_gpu_require_complete_aot_autotune_results": True,
    }
    ask_child(compiler, f"{PLANS}:transformer", tmp_path, options)


def _left(answer: Any) -> Sequence[Any]:
    return [answer["failures"], [one for one in answer["fusions"] if one["state"] != "covered"]]
