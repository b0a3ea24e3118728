"""XLA's own CUDA compiler takes what rewarm writes, and what it would take badly rewarm finds first. No GPU is needed.

Each JAX with a CUDA plugin runs these, with the formats that its build has.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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

import cuda_compile_child
from conftest import first
from cuda_compilers import Compiler, ask_child, compiled, jax_version
from rewarm.autotune import lock, lock_file, targets
from rewarm.autotune.coverage import Needed, Reader, Reason, State, Verdict, directory_format, judge
from rewarm.autotune.formats import (
    Family,
    Format,
    Header,
    Severity,
    Versions,
    keys,
    read,
    validate,
    with_keys,
    write,
)
from rewarm.autotune.formats.protobuf import message_class
from rewarm.autotune.formats.writing import fusion_path
from rewarm.autotune.locating import place_of
from rewarm.autotune.sources import load
from rewarm.jax_adapter.lookups import Lookups, lookups

pytest_plugins = ("compiler_fixtures",)
pytestmark = pytest.mark.contract

PLANS = f"{Path(__file__).with_name('coverage_plans.py')}:kinds"


def kernels(path: Path) -> dict[str, str]:
    """JAX 0.9 knows the option and writes nothing."""
    return {"xla_gpu_kernel_cache_file": str(path)} if build().minor >= (0, 10) else {}


def asked_for(compiler: Compiler, gpu: str) -> list[Needed]:
    """What the compiler looks up for one program on a described GPU."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in compiler.environment().items():
            patch.setenv(variable, value)
        found = lookups(PLAN, targets.description(gpu, jax_version()), build(), build().default, only=["dot_tanh:1024"])
    return needed(found, "dot_tanh:1024")


@pytest.mark.parametrize("gpu", first(1, ["h200", "a100", "h100", "b200"]))
def test_every_route_gives_the_machine_code_of_its_entry(compiler: Compiler, gpu: str, tmp_path: Path) -> None:
    """Each format of the build, a lock file and a managed place: accepted, obeyed, and one cubin by all."""
    fusions, on = asked_for(compiler, gpu), device(gpu)
    default = build().default
    paths: dict[str, tuple[Path | None, Family]] = {"nothing": (None, default)}
    for form in sorted(build().formats):
        entries = [entry_of(one, form.family, on) for one in fusions]
        assert validate(entries, build=build(), device=on) == []
        paths[form.value] = written(entries, form, tmp_path), form.family
    entries = [entry_of(one, default, on) for one in fusions]
    text = lock_file.written(lock.pinned(entries, on, jax_version()))
    paths["a lock"] = lock_file.parsed(text.encode(), Path("tuning.lock")).for_xla(tmp_path / "locks"), default
    (tmp_path / "cache").mkdir()
    place = place_of(tmp_path / "cache", f"jax-{jax_version()}", on.text, default)
    place.add(entries)
    directory = place.prepare().directory
    assert directory is not None
    paths["a place"] = directory, default
    tiles = {"block_m": 32, "block_n": 128, "num_stages": 2}
    other = [entry_of(one, default, on, config_of(one, **tiles)) for one in fusions]
    paths["other tiles"] = written(other, directory_format(default), tmp_path / "other"), default

    def one(named: tuple[str, tuple[Path | None, Family]]) -> dict[str, Any]:
        route, (path, family) = named
        cache = kernels(tmp_path / f"kernels {route}")
        said = {**(options(path, family) if path else family_flag(family)), **cache}
        (answer,), done = compiled(
            compiler,
            tmp_path,
            targets.description(gpu, jax_version()),
            [{"program": "dot_tanh:1024", "options": said, "code": True}],
        )
        assert not answer["error"], (route, answer["error"], done.err[-2000:])
        return answer

    with ThreadPoolExecutor(2) as pool:
        answers = dict(zip(paths, pool.map(one, paths.items()), strict=True))
    nothing, different = answers.pop("nothing"), answers.pop("other tiles")
    assert [64, 64] not in nothing["tiles"]
    assert [32, 128] in different["tiles"]
    for route, answer in answers.items():
        assert [64, 64] in answer["tiles"], route
        assert answer["warps"] == [4], route
    codes = {tuple(answer["cubins"]) for answer in answers.values()}
    assert len(codes) == 1
    assert len({*codes, tuple(nothing["cubins"]), tuple(different["cubins"])}) == 3
    assert all(answer["cubins"] for answer in (nothing, different, *answers.values()))
    # The assembler was PyPI's, whatever toolkit lies on this machine.
    (found,) = {name for answer in answers.values() for name in answer["assembler"]}
    assert list(compiler.folder.glob(f"nvidia_cuda_nvcc-{found}.dist-info"))


@pytest.fixture(scope="module")
def kinds(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    """Instructions of many kinds, looked up in the legacy formats, with XLA's log of it."""
    log = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "autotuner_cache=2"}
    return ask_child(compiler, PLANS, tmp_path_factory.mktemp("kinds"), family_flag(Family.LEGACY), **log)


def test_legacy_keys_are_those_of_xlas_own_log(kinds: tuple[Any, str]) -> None:
    found, said = kinds
    logged = set(re.findall(r"Autotune cache miss: key = (<key model='.*?', hlo='.*?', version=\d+>)", said, re.DOTALL))
    assert logged == {keys.legacy_key(device().legacy, legacy, build().entry_version) for _, legacy, _ in found}
    assert len(logged) >= 5


def test_new_keys_are_those_that_xla_looks_up(compiler: Compiler, kinds: tuple[Any, str], tmp_path: Path) -> None:
    """Entries of another build under rewarm's keys: XLA counts each as one of another version, and none as lacking."""
    if Family.NEW not in families():
        pytest.skip(f"JAX {jax_version()} has no new formats")
    found, _ = kinds
    old = Versions(codegen="0" * 16, backend="0" * 40)
    listed = {text: Needed(text, legacy, name, ()) for text, legacy, name in found}.values()
    entries = [replace(entry_of(one, Family.NEW), versions=old) for one in listed]
    path = written(entries, Format.NEW_DIRECTORY, tmp_path)
    log = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "config_assigner_pass=1"}
    options = {DIRECTORY: str(path), **family_flag(Family.NEW)}
    again, said = ask_child(compiler, PLANS, tmp_path, options, **log)
    assert {text for text, _, _ in again} == {text for text, _, _ in found}
    counted = re.findall(r"hits=(\d+), .*not_found=(\d+), version_mismatch=(\d+), read_error=(\d+)", said)
    hits, lacking, other, broken = (sum(map(int, column)) for column in zip(*counted, strict=True))
    assert (hits, lacking, broken) == (0, 0, 0)
    assert other == len(again) >= 20


@pytest.mark.parametrize("name", ["a100", "h100", "b200"])
def test_other_described_gpus_take_entries_too(compiler: Compiler, name: str, tmp_path: Path) -> None:
    on, target, found = device(name), targets.description(name, jax_version()), asked_for(compiler, name)
    compiles = []
    for number, family in enumerate(families()):
        entries = [entry_of(one, family, on) for one in found]
        path = written(entries, directory_format(family), tmp_path / str(number))
        compiles.append({"program": "dot_tanh:1024", "options": options(path, family)})
    # A build of both families has a table for each.
    answers, done = compiled(compiler, tmp_path, target, compiles)
    for answer in answers:
        assert not answer["error"], (answer, done.err[-2000:])
        assert [64, 64] in answer["tiles"]
    assert len(answers) == len(compiles)


def hazards(asked: Lookups, folder: Path, family: Family) -> Iterator[tuple[str, str, Path, str, str]]:
    """(what it is, program, path for XLA, what XLA says with `require`, the code of the finding)."""
    sizes = iter(cuda_compile_child.SIZES[1:])
    whole = Format.LEGACY_TEXT if family is Family.LEGACY else Format.NEW_TEXT
    each = directory_format(family)

    def fresh(name: str) -> tuple[str, list[Needed], Path]:
        program = f"dot_tanh:{next(sizes)}"
        (folder / name).mkdir(parents=True)
        return program, needed(asked, program), folder / name

    if family is build().default:
        program, _, place = fresh("missing")
        yield "a missing file", program, place / "none.pb", "FAILED_PRECONDITION", "unreadable"

    program, fusions, place = fresh("truncated")
    path = written([entry_of(one, family) for one in fusions], whole, place)
    path.write_bytes(path.read_bytes()[:-20])
    yield "a truncated file", program, path, "INVALID_ARGUMENT", "text"

    program, fusions, place = fresh("torn")
    path = written([entry_of(one, family) for one in fusions], each, place)
    torn = path / fusion_path(entry_of(fusions[0], family))
    torn.write_bytes(torn.read_bytes()[:9])
    yield "a torn file of a directory", program, path, "NOT_FOUND", "text" if family is Family.LEGACY else "binary"

    program, fusions, place = fresh("tiles")
    entries = [entry_of(one, family, config=config_of(one, block_m=48)) for one in fusions]
    yield "a tile that is no power of two", program, written(entries, each, place), "INTERNAL", "block-size"

    program, fusions, place = fresh("other GPU")
    entries = [entry_of(one, family, device("a100")) for one in fusions]
    yield "another GPU's", program, written(entries, each, place), "NOT_FOUND", "other-device"

    if family is Family.NEW:
        program, fusions, place = fresh("old build")
        old = Versions(codegen="ef00bdc5c7995cb0", backend="a77e7c793abc0d0c923a9afb275058e2fe57a190")
        entries = [replace(entry_of(one, family), versions=old) for one in fusions]
        yield "an older build's", program, written(entries, each, place), "NOT_FOUND", "stale"
        return

    program, fusions, place = fresh("old build")
    entries = [replace(entry_of(one, family), versions=Versions(entry=27)) for one in fusions]
    yield "an older build's", program, written(entries, each, place), "NOT_FOUND", "entry-version"

    program, fusions, place = fresh("duplicate")
    entries = [entry_of(one, family) for one in fusions]
    yield "a key twice", program, written(entries * 2, whole, place), "", "duplicate"

    program, fusions, place = fresh("file version")
    path = place / "old.textproto"
    write([entry_of(one, family) for one in fusions], path, whole, header=Header(version=2))
    yield "another version of the file", program, path, "", "file-version"


@pytest.mark.parametrize("family", list(Family))
def test_what_xla_takes_badly_is_found_first(
    compiler: Compiler, asked: Lookups, family: Family, tmp_path: Path
) -> None:
    if family not in families():
        pytest.skip(f"JAX {jax_version()} has no {family} formats")
    listed = list(hazards(asked, tmp_path, family))
    known = [
        (device(name).legacy, one.legacy, version)
        for one in asked.needed
        for name in targets.names()
        for version in (27, build().entry_version)
    ]
    for what, _, path, _, code in listed:
        reading = read(path)
        reading = replace(reading, entries=with_keys(reading.entries, iter(known)))
        findings = [*reading.findings, *validate(reading, build=build(), device=device())]
        assert code in [one.code for one in findings], (what, [str(one) for one in findings])
    # A process reads one results file; of directories it reads any number.
    apart = [[one] for one in listed if not one[2].is_dir()]
    together = [one for one in listed if one[2].is_dir()]

    def ask(ones: list[tuple[str, str, Path, str, str]]) -> list[dict[str, Any]]:
        compiles = [{"program": program, "options": options(path, family)} for _, program, path, _, _ in ones]
        answers, done = compiled(compiler, tmp_path, targets.description("h200", jax_version()), compiles)
        assert len(answers) == len(ones), done.err[-3000:]
        return answers

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(ask, [together, *apart]))
    for ones, answers in zip([together, *apart], told, strict=True):
        for (what, _, _, says, _), answer in zip(ones, answers, strict=True):
            assert answer["error"], what  # XLA does not do what was meant, and says so only because it must
            assert says in answer["error"], (what, answer["error"][:300])


def test_warps_that_end_xlas_process_are_found_first(compiler: Compiler, asked: Lookups, tmp_path: Path) -> None:
    (one,) = needed(asked, "dot_tanh:1024")
    entry = entry_of(one, build().default, config=config_of(one, num_warps=3))
    assert "num-warps" in [finding.code for finding in validate([entry], build=build())]
    path = written([entry], directory_format(build().default), tmp_path)
    asking = [{"program": "dot_tanh:1024", "options": options(path, build().default)}]
    answers, done = compiled(compiler, tmp_path, targets.description("h200", jax_version()), asking)
    assert (done.code and not answers) or answers[0]["error"], "it compiles by now: the rule can go"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"block_m": 1 << 31}, "tile-size"),
        pytest.param({"num_stages": 1000}, "num-stages", marks=pytest.mark.campaign),
    ],
)
def test_sizes_that_end_xlas_process_or_never_end_are_found_first(
    fields: dict[str, int], code: str, compiler: Compiler, asked: Lookups, tmp_path: Path
) -> None:
    (one,) = needed(asked, "dot_tanh:1024")
    entry = entry_of(one, build().default, config=config_of(one, **fields))
    assert [finding.code for finding in validate([entry], build=build())] == [code]
    path = written([entry], directory_format(build().default), tmp_path)
    compiles = [{"program": "dot_tanh:1024", "options": options(path, build().default)}]
    asking = json.dumps({"target": targets.description("h200", jax_version()), "compiles": compiles})
    command = [sys.executable, "-W", "ignore", cuda_compile_child.__file__, asking]
    try:
        done = subprocess.run(
            command, env=compiler.environment(), cwd=tmp_path, capture_output=True, timeout=45, check=False
        )
    except subprocess.TimeoutExpired:
        return
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    assert not answers or answers[0]["error"], "it compiles by now: the bound can be looked at again"


def test_a_torn_file_costs_performance_in_silence_and_a_place_moves_it_aside(
    compiler: Compiler, asked: Lookups, tmp_path: Path
) -> None:
    """Without `require` XLA falls back to another configuration; a managed place never shows it the file."""
    family = build().default
    fusions = needed(asked, "dot_tanh:1024")
    (tmp_path / "cache").mkdir()
    place = place_of(tmp_path / "cache", f"jax-{jax_version()}", device().text, family)
    place.add([entry_of(one, family) for one in fusions])
    torn = place.directory / fusion_path(entry_of(fusions[0], family))
    torn.write_bytes(torn.read_bytes()[:9])
    one = {"program": "dot_tanh:1024", "options": options(place.directory, family, require=False)}
    (answer,), _ = compiled(compiler, tmp_path, targets.description("h200", jax_version()), [one])
    assert not answer["error"]
    assert [64, 64] not in answer["tiles"]
    prepared = place_of(tmp_path / "cache", f"jax-{jax_version()}", device().text, family).prepare()
    assert len(prepared.aside) == 1
    assert torn.name in prepared.aside[0]
    assert not torn.exists()


def test_a_librarys_result_on_a_triton_fusion_is_found_first(
    compiler: Compiler, asked: Lookups, tmp_path: Path
) -> None:
    """XLA compiles it without a word, and nothing of the entry's tiles or of a library's call comes out."""
    if Family.NEW not in families():
        pytest.skip(f"JAX {jax_version()} takes a gemm on a fusion for one that takes the fusion apart")
    (one,) = needed(asked, "dot_tanh:1024")
    gemm = message_class("xla.autotuner.BackendConfig")(gemm={"algorithm": 0})
    entry = entry_of(one, Family.NEW, config=gemm, backend="CUBLASLT")
    path = written([entry], Format.NEW_DIRECTORY, tmp_path)
    asking = [{"program": "dot_tanh:1024", "options": options(path, Family.NEW)}]
    (answer,), _ = compiled(compiler, tmp_path, targets.description("h200", jax_version()), asking)
    assert not answer["error"]
    assert not answer["calls"]
    findings = validate(read(path), build=build(), device=device(), fusions={one.fingerprint: one.text})
    assert [finding.code for finding in findings if finding.severity is Severity.ERROR] == ["backend-of-other-fusion"]


@pytest.mark.parametrize(
    ("fields", "backend", "on_product"),
    [
        ({"algorithm": {"algo_id": 1}}, "CUDNN", False),
        pytest.param({"native_emitter": {"type": 4}}, "NATIVE_EMITTER", False, marks=pytest.mark.campaign),  # reduction
        pytest.param({"native_emitter": {}}, "NATIVE_EMITTER", True, marks=pytest.mark.campaign),
    ],
)
def test_a_backend_that_xla_does_not_offer_for_a_fusion_is_found_first(
    fields: dict[str, Any], backend: str, on_product: bool, compiler: Compiler, asked: Lookups, tmp_path: Path
) -> None:
    """XLA takes it in silence, whatever it then does to the program."""
    family, fusions = build().default, needed(asked, "mlp:1024")
    if build().minor < (0, 10):
        pytest.skip(f"JAX {jax_version()} looks up no fusion that is not for Triton")
    if on_product and family is Family.LEGACY:
        pytest.skip("a legacy key does not have the kind of its fusion")
    wrong = next(one for one in fusions if ("__triton_gemm" in one.text) is on_product and "reduce(" not in one.text)
    config = message_class("xla.autotuner.BackendConfig")(**fields)
    entries = [entry_of(one, family) for one in fusions if one is not wrong]
    entries.append(entry_of(wrong, family, config=config, backend=backend))
    path = written(entries, directory_format(family), tmp_path)
    asking = [{"program": "mlp:1024", "options": options(path, family)}]
    (answer,), _ = compiled(compiler, tmp_path, targets.description("h200", jax_version()), asking)
    assert not answer["error"], "it is refused by now: the rule can be looked at again"
    known = ((device().legacy, one.legacy, build().entry_version) for one in fusions)
    reading = read(path)
    named = replace(reading, entries=with_keys(reading.entries, known))
    findings = validate(named, build=build(), device=device(), fusions={one.fingerprint: one.text for one in fusions})
    assert [one.code for one in findings if one.severity is Severity.ERROR] == ["backend-of-other-fusion"]
    (verdict,) = [one for one in judged(fusions, path, family) if one.needed is wrong]
    assert (verdict.state, verdict.reason) == (State.STALE, Reason.CORRUPT)


def judged(fusions: list[Needed], path: Path, family: Family) -> tuple[Verdict, ...]:
    return judge(fusions, list(load([path])), Reader(build(), device(), family)).verdicts


@pytest.mark.parametrize("family", list(Family))
def test_a_file_of_the_other_family_is_no_entry(
    compiler: Compiler, asked: Lookups, family: Family, tmp_path: Path
) -> None:
    """XLA misses without a word for a binary file. A lock knows its family, and so does whoever reads the file."""
    if len(families()) < 2:
        pytest.skip(f"JAX {jax_version()} has one family")
    other = Family.NEW if family is Family.LEGACY else Family.LEGACY
    fusions = needed(asked, "dot_tanh:1024")
    made = lock.pinned([entry_of(one, other) for one in fusions], device(), jax_version())
    path = made.for_xla(tmp_path)
    asking = [{"program": "dot_tanh:1024", "options": options(path, family)}]
    (answer,), _ = compiled(compiler, tmp_path, targets.description("h200", jax_version()), asking)
    assert "NOT_FOUND" in answer["error"]
    wanted_format = Format.NEW_BINARY if family is Family.NEW else Format.LEGACY_BINARY
    assert "other-format" in [finding.code for finding in read(path, wanted_format).findings]
    assert made.family is other


@pytest.mark.campaign
def test_the_first_entry_of_a_process_stays(compiler: Compiler, asked: Lookups, tmp_path: Path) -> None:
    """Why each question is asked in a process of its own."""
    fusions = needed(asked, "dot_tanh:1024")
    compiles = []
    for size in (64, 32):
        entries = [entry_of(one, build().default, config=config_of(one, block_m=size, block_n=size)) for one in fusions]
        path = written(entries, directory_format(build().default), tmp_path / str(size))
        compiles.append({"program": "dot_tanh:1024", "options": options(path, build().default)})
    answers, _ = compiled(compiler, tmp_path, targets.description("h200", jax_version()), compiles)
    assert [[64, 64] in answer["tiles"] for answer in answers] == [True, True]
    (alone,), _ = compiled(compiler, tmp_path, targets.description("h200", jax_version()), compiles[1:])
    assert [32, 32] in alone["tiles"]
