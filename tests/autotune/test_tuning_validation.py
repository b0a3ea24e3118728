"""Findings: each is found where it is, and sound entries have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuning_samples import BODY, NEW, PROGRAMS, files_of, json_of, legacy_entry, new_entry, target, triton_result

from rewarm.autotune import lock
from rewarm.autotune.formats import (
    BUILDS,
    Build,
    Finding,
    Format,
    Header,
    Place,
    Severity,
    TuningEntry,
    Versions,
    build_of,
    keys,
    read,
    read_bytes,
    records,
    validate,
    with_keys,
    write,
)
from rewarm.autotune.formats.hlo import fusion_text
from rewarm.autotune.formats.protobuf import Message, message_class

LOOP = "{\n  tmp_0 = f32[8]{0} parameter(0)\n  ROOT tmp_1 = f32[8]{0} tanh(f32[8]{0} tmp_0)\n}"
REDUCTION = (
    "{\n  tmp_0 = f32[8]{0} parameter(0)\n  tmp_1 = f32[] constant(0)\n"
    "  ROOT tmp_2 = f32[] reduce(f32[8]{0} tmp_0, f32[] tmp_1), dimensions={0}, to_apply={...}\n}"
)
CONVOLUTION = (
    "{\n  tmp_0 = f32[8]{0} parameter(0)\n"
    "  ROOT tmp_1 = f32[8]{0} convolution(f32[8]{0} tmp_0, f32[8]{0} tmp_0), window={}\n}"
)
CUBLAS = '(f32[8,8]{1,0}, s8[4]{0}) custom-call(f32[8,8]{1,0} a, f32[8]{0} b), custom_call_target="__cublas$gemm"'
CUDNN = '(f32[8]{0}, u8[0]{0}) custom-call(f32[8]{0} a), custom_call_target="__cudnn$convForward"'


def build(jax: str) -> Build:
    found = build_of(jax)
    assert found is not None
    return found


def result(**fields: Any) -> Message:
    return message_class("xla.AutotuneResult")(**fields)


def config(**fields: Any) -> Message:
    return message_class("xla.autotuner.BackendConfig")(**fields)


def block(**fields: Any) -> Message:
    sound = {"num_warps": 4, "num_stages": 1, "num_ctas": 1, "output_tiles": [{"sizes": [1, 1024]}]}
    return config(block_level={**sound, **fields})


def other(name: str, held: Message, kind: str = "xla.autotuner.BackendConfig") -> Message:
    packed = {"type_url": f"type.googleapis.com/{kind}", "value": held.SerializeToString()}
    return result(other={"name": name, "config": packed})


def native(**fields: Any) -> Message:
    return config(native_emitter=fields)


def legacy(made: Message, fusion: str = BODY) -> TuningEntry:
    return replace(legacy_entry(made, fusion=fusion), backend=records.legacy_backend(made, fusion))


def codes(found: list[Finding], severity: Severity | None = None) -> list[str]:
    return [finding.code for finding in found if severity in (None, finding.severity)]


def test_sound_entries_have_no_findings() -> None:
    for program in PROGRAMS:
        jax = program.parent.name.removeprefix("jax_").replace("_", ".")
        for path in files_of(program):
            assert validate(read(path), build=build(jax), device=target("h200")) == []
    assert validate([legacy_entry(), new_entry()]) == []


@pytest.mark.parametrize(
    ("entry", "code", "found"),
    [
        (legacy(triton_result(num_warps=3)), "num-warps", "3"),
        (legacy(triton_result(num_warps=0)), "num-warps", "0"),
        (legacy(triton_result(block_m=48)), "block-size", "48"),
        (legacy(triton_result(block_n=-64)), "block-size", "-64"),
        (legacy(triton_result(block_k=0)), "block-size", "0"),
        (legacy(triton_result(num_stages=-1)), "num-stages", "-1"),
        (legacy(triton_result(num_stages=0)), "num-stages", "0"),
        (legacy(triton_result(num_warps=64)), "num-warps", "64"),
        (legacy(triton_result(num_ctas=-1)), "num-ctas", "-1"),
        (legacy(triton_result(num_ctas=0)), "num-ctas", "0"),
        (new_entry(block(num_ctas=3), backend="BLOCK_LEVEL_EMITTER"), "num-ctas", "3"),
        (new_entry(block(num_stages=0), backend="BLOCK_LEVEL_EMITTER"), "num-stages", "0"),
        (new_entry(block(output_tiles=[]), backend="BLOCK_LEVEL_EMITTER"), "output-tiles", "none"),
        (legacy(triton_result(split_k=-1)), "split-k", "-1"),
        (new_entry(config(triton=triton_result(num_warps=6).triton)), "num-warps", "6"),
        (new_entry(block(num_warps=5), backend="BLOCK_LEVEL_EMITTER"), "num-warps", "5"),
        (new_entry(block(output_tiles=[{"sizes": [0]}]), backend="BLOCK_LEVEL_EMITTER"), "block-size", "0"),
        (legacy(other("BLOCK_LEVEL_EMITTER", block(num_warps=7)), LOOP), "num-warps", "7"),
        # Sizes that end the process, or that make a compile of minutes, or one without an end.
        (legacy(triton_result(block_m=1 << 31)), "tile-size", "2147483648 x 64"),
        (new_entry(config(triton=triton_result(block_n=1 << 40).triton)), "tile-size", f"64 x {1 << 40}"),
        (legacy(triton_result(block_m=256, block_n=256, num_warps=2)), "tile-size", "256 x 256"),
        (legacy(triton_result(block_k=1 << 31)), "tile-size", f"(64 + 64) x {1 << 31}"),
        (legacy(triton_result(num_stages=33)), "num-stages", "33"),
        (legacy(triton_result(num_stages=10**9)), "num-stages", "1000000000"),
        (legacy(triton_result(num_ctas=32)), "num-ctas", "32"),
        (legacy(triton_result(split_k=1 << 20)), "split-k", "1048576"),
        (legacy(triton_result(group_size=-1)), "negative", "-1"),
        (new_entry(block(num_stages=100000), backend="BLOCK_LEVEL_EMITTER"), "num-stages", "100000"),
        (new_entry(block(num_ctas=64), backend="BLOCK_LEVEL_EMITTER"), "num-ctas", "64"),
        (new_entry(block(num_tiles_per_pid=-5), backend="BLOCK_LEVEL_EMITTER"), "negative", "-5"),
        (
            new_entry(block(output_tiles=[{"sizes": [1024, 1024]}], num_warps=32), backend="BLOCK_LEVEL_EMITTER"),
            "tile-size",
            "1024 x 1024",
        ),
        (
            new_entry(block(output_tiles=[{"sizes": [2, 64, 64, 9]}]), backend="BLOCK_LEVEL_EMITTER"),  # padded to 16
            "tile-size",
            "2 x 64 x 64 x 9",
        ),
        (
            new_entry(block(output_tiles=[{"sizes": [1 << 62] * 100_000}]), backend="BLOCK_LEVEL_EMITTER"),
            "tile-size",
            " x ...",
        ),
        (new_entry(native(unroll_factor=-3), backend="NATIVE_EMITTER"), "unroll-factor", "-3"),
        (new_entry(native(unroll_factor=3), backend="NATIVE_EMITTER"), "unroll-factor", "3"),
        (new_entry(native(unroll_factor=1 << 20), backend="NATIVE_EMITTER"), "unroll-factor", "1048576"),
        (new_entry(native(type=99), backend="NATIVE_EMITTER"), "emitter-type", "99"),
        (legacy(result(failure={"kind": 2, "msg": "wrong"})), "failure-only", "only a failure: wrong"),
        (legacy(result()), "no-config", "none of those that are known"),
        (legacy(result(run_time={"seconds": 1})), "no-config", "none of those that are known"),
        (legacy(result(conv={"algorithm": 1})), "no-config", "conv, which only old ones did"),
        (new_entry(config=b""), "no-config", "none of those that are known"),
        (new_entry(backend=""), "backend", "none"),
        (new_entry(backend="77"), "backend", "77"),
        (legacy(other("NOPE", block())), "backend", "NOPE"),
        (
            legacy(other("BLOCK_LEVEL_EMITTER", block().block_level, "xla.gpu.BlockLevelFusionConfig")),
            "other-config",
            "type.googleapis.com/xla.gpu.BlockLevelFusionConfig",
        ),
        (legacy(result(other={"name": "TRITON"})), "other-config", "an Any without a type"),
        (new_entry(backend="CUBLASLT"), "config-of-other-backend", "triton"),
        (new_entry(config(gemm={"algorithm": 1})), "config-of-other-backend", "gemm"),
        (legacy_entry(device=""), "no-key", "one of them empty"),
        (legacy_entry(fusion=""), "no-key", "one of them empty"),
        (legacy_entry(versions=Versions(entry=-1)), "entry-version", "-1"),
        (new_entry(device="A4BAA03864DB7CFB"), "no-key", "'A4BAA03864DB7CFB'"),
        (new_entry(fusion="abc"), "no-key", "'abc'"),
    ],
)
def test_an_entry_that_xla_would_not_bear(entry: TuningEntry, code: str, found: str) -> None:
    said = [finding for finding in validate([entry]) if finding.severity is Severity.ERROR]
    assert [finding.code for finding in said] == [code]
    assert found in said[0].found


@pytest.mark.parametrize(
    "made",
    [
        # The largest that XLA's searches and lists for its targets have, and what follows from a device's figures.
        triton_result(block_m=128, block_n=256, block_k=64, num_stages=4, num_warps=4).triton,
        triton_result(block_m=256, block_n=256, block_k=128, num_stages=3, num_warps=8).triton,
        triton_result(block_m=256, block_n=256, block_k=256, num_stages=1, num_warps=4).triton,
        triton_result(block_m=16, block_n=8192, block_k=16, num_stages=5, num_warps=32).triton,
        triton_result(block_m=4, block_n=16, block_k=1024, num_stages=2, num_warps=1).triton,
        triton_result(block_m=512, block_n=512, block_k=128, num_stages=1, num_warps=16).triton,
        triton_result(num_ctas=16, num_stages=16, group_size=8).triton,
        block(output_tiles=[{"sizes": [1, 65536]}], num_warps=16).block_level,
        block(output_tiles=[{"sizes": [64, 256]}, {"sizes": [64]}]).block_level,
        native(type=1, unroll_factor=16).native_emitter,
        native().native_emitter,
    ],
)
def test_what_a_tuner_may_find_is_within_the_bounds(made: Message) -> None:
    kinds = {"TritonGemmKey": ("triton", "TRITON"), "BlockLevelFusionConfig": ("block_level", "BLOCK_LEVEL_EMITTER")}
    field, backend = kinds.get(made.DESCRIPTOR.name, ("native_emitter", "NATIVE_EMITTER"))
    assert validate([new_entry(config(**{field: made}), backend=backend)]) == []


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (legacy(triton_result(block_k=48)), "block-size"),
        (legacy(triton_result(split_k=2)), "split-k"),
        (new_entry(block(output_tiles=[{"sizes": [3]}]), backend="BLOCK_LEVEL_EMITTER"), "block-size"),
        (new_entry(versions=Versions()), "no-version"),
    ],
)
def test_an_entry_that_should_be_looked_at(entry: TuningEntry, code: str) -> None:
    found = validate([entry])
    assert codes(found) == codes(found, Severity.WARNING) == [code]


@pytest.mark.parametrize(
    ("made", "fusion", "fits"),
    [
        (other("CUBLASLT", config(gemm={"algorithm": 1})), BODY, False),
        (other("CUBLASLT", config(gemm={"algorithm": 1})), CUBLAS, True),
        (other("CUBLASLT_FISSION", config(gemm={"algorithm": 1})), BODY, True),
        (other("CUBLASLT_FISSION", config(gemm={"algorithm": 1})), LOOP, False),
        (result(gemm={"algorithm": 1}), BODY, True),
        (result(gemm={"algorithm": 1}), CUBLAS, True),
        (result(gemm={"algorithm": 1}), LOOP, False),
        (result(gemm={"algorithm": 1}), CUDNN, False),
        (triton_result(), BODY, True),
        (triton_result(), LOOP, False),
        (triton_result(), CONVOLUTION, False),
        (triton_result(), CUBLAS, False),
        (triton_result(), CUDNN, False),
        (result(algorithm={"algo_id": 1}), CUDNN, True),
        (result(algorithm={"algo_id": 1}), BODY, True),
        (result(algorithm={"algo_id": 1}), CONVOLUTION, True),
        (result(algorithm={"algo_id": 1}), CUBLAS, False),
        (other("BLOCK_LEVEL_EMITTER", block()), LOOP, True),
        (other("BLOCK_LEVEL_EMITTER", block()), BODY, True),
        (other("NATIVE_EMITTER", config(native_emitter={})), LOOP, True),
        (triton_result(), "nothing that can be told", True),
        (result(algorithm={"algo_id": 1}), LOOP, False),
        (other("CUDNN", config(algorithm={"algo_id": 1})), LOOP, False),
        (other("CUSTOM_KERNEL_FISSION", config(gemm={"algorithm": 1})), LOOP, False),
        (other("NATIVE_EMITTER", native(type=1, unroll_factor=4)), LOOP, True),
        (other("NATIVE_EMITTER", native(type=4)), LOOP, False),
        (other("NATIVE_EMITTER", native(type=4)), REDUCTION, True),
        (other("NATIVE_EMITTER", native(type=10)), REDUCTION, False),
        (other("NATIVE_EMITTER", native(type=1)), CUDNN, False),
        (other("CUBLASLT_FISSION", config(gemm={"algorithm": 1})), CUDNN, False),
    ],
)
def test_an_entry_of_the_wrong_backend_for_its_fusion(made: Message, fusion: str, fits: bool) -> None:
    found = validate([legacy(made, fusion)])
    assert codes(found, Severity.ERROR) == ([] if fits else ["backend-of-other-fusion"])


def test_a_new_entry_is_held_against_the_text_of_its_fusion_where_it_is_known() -> None:
    entry = new_entry(config(gemm={"algorithm": 1}), backend="CUBLASLT")
    text = keys.fusion_text(json_of(NEW / "dot_tanh_64x64", "legacy_keys.json")[0][1], "kCustom")
    assert validate([entry]) == []
    found = validate([entry], fusions={entry.fusion or "": text})
    assert codes(found) == ["backend-of-other-fusion"]
    assert "compiles something that is not meant" in found[0].expected
    assert validate([new_entry()], fusions={entry.fusion or "": text}) == []


@pytest.mark.parametrize(
    ("made", "backend", "body", "kind", "fits"),
    [
        (native(type=1, unroll_factor=4), "NATIVE_EMITTER", LOOP, "kLoop", True),
        (native(), "NATIVE_EMITTER", REDUCTION, "kInput", True),
        (native(), "NATIVE_EMITTER", BODY, "kCustom", False),
        (native(type=1), "NATIVE_EMITTER", BODY, "kLoop", True),
        (config(triton=triton_result().triton), "TRITON", BODY, "kCustom", True),
        (config(triton=triton_result().triton), "TRITON", BODY, "kLoop", False),
        (config(algorithm={"algo_id": 1}), "CUDNN", LOOP, "kLoop", False),
        (config(algorithm={"algo_id": 1}), "CUDNN", BODY, "kCustom", True),
        (block(), "BLOCK_LEVEL_EMITTER", LOOP, "kLoop", True),
    ],
)
def test_what_the_kind_of_a_fusion_tells(made: Message, backend: str, body: str, kind: str, fits: bool) -> None:
    """A key of the new formats has it, and so has the line that a lock file has of it."""
    entry, text = new_entry(made, backend=backend), fusion_text(body, kind)
    for said in (text, lock.saying(text)):
        found = validate([entry], fusions={entry.fusion or "": said})
        assert codes(found) == ([] if fits else ["backend-of-other-fusion"]), said


def test_a_backend_that_its_maker_did_not_have_is_passed_over_by_xla() -> None:
    """The codegen version says which backends there were: with others it would be another one."""
    made, means = config(tensor_ir={"tile_size": [8]}), {"build": build("0.12.0.1"), "device": target("h200")}
    found = validate([new_entry(made, backend="TENSOR_IR")], **means)
    assert codes(found, Severity.ERROR) == ["backend"]
    assert "TRITON" in found[0].expected
    of_other_flags = Versions(codegen="0" * 16)
    assert codes(validate([new_entry(made, backend="TENSOR_IR", versions=of_other_flags)], **means)) == ["stale"]


def test_a_file_of_another_version_and_duplicates(tmp_path: Path) -> None:
    path = tmp_path / "a.pb"
    current = legacy_entry(versions=Versions())
    write([legacy_entry(), legacy_entry(fusion=LOOP), current], path, Format.LEGACY_BINARY, header=Header(version=2))
    found = validate(read(path))
    assert codes(found) == ["file-version", "backend-of-other-fusion"]
    assert (found[0].place, found[0].found) == (Place(str(path)), "version 2")
    # Version 0 is that of whoever reads, so it is a duplicate for one build and none for another.
    found = validate(read(path), build=build("0.12.0.1"))
    assert [finding.place.entry for finding in found if finding.code == "duplicate"] == [3]
    assert "duplicate" not in codes(validate(read(path), build=build("0.11.2")))
    write([new_entry(), new_entry()], path, Format.NEW_BINARY)
    assert codes(validate(read(path)), Severity.WARNING) == ["duplicate"]
    other_environment = new_entry(versions=Versions(codegen="0" * 16))
    write([new_entry(), other_environment], path, Format.NEW_BINARY)
    assert validate(read(path)) == []


def test_a_scope_that_is_not_that_of_the_entries(tmp_path: Path) -> None:
    write([new_entry()], tmp_path / "a.pb", Format.NEW_BINARY, header=Header(device_scope="0" * 16))
    assert codes(validate(read(tmp_path / "a.pb")), Severity.WARNING) == ["scope"]


@pytest.mark.parametrize("one", BUILDS, ids=lambda one: one.jax)
def test_what_a_build_does_not_have(one: Build) -> None:
    old = one.minor < (0, 10)
    assert codes(validate([legacy(triton_result(split_k=2))], build=replace(one, entry_version=56))) == (
        [] if old else ["split-k"]
    )
    entry = legacy_entry(versions=Versions(entry=1))
    assert codes(validate([entry], build=one), Severity.WARNING) == ["entry-version"]
    assert validate([legacy_entry(versions=Versions())], build=one) == []
    emitter = replace(legacy(other("BLOCK_LEVEL_EMITTER", block()), LOOP), versions=Versions())
    assert codes(validate([emitter], build=one)) == (["field-of-other-build"] if old else [])
    new = read(NEW / "mlp_128x128/new_load.pb")
    assert ("format-unknown" in codes(validate(new, build=one))) == (one.minor < (0, 11))
    tensor_ir = new_entry(config(tensor_ir={"tile_size": [8]}), backend="TENSOR_IR")
    assert ("backend" in codes(validate([tensor_ir], build=one))) == (one.minor < (0, 12))


def test_a_field_that_a_build_lacks_spoils_a_text_and_is_skipped_in_binary(tmp_path: Path) -> None:
    entry = legacy_entry(triton_result(group_size=8), versions=Versions())
    for name, form in (("a.txt", Format.LEGACY_TEXT), ("a.pb", Format.LEGACY_BINARY)):
        write([entry], tmp_path / name, form)
        found = validate(read(tmp_path / name), build=build("0.10.2"))
        assert codes(found) == ["field-of-other-build"]
        assert found[0].severity is (Severity.ERROR if form.is_text else Severity.WARNING)
        assert found[0].found == "triton.group_size"
        assert validate(read(tmp_path / name), build=build("0.11.2")) == []


def test_entries_of_another_device_or_another_version() -> None:
    for entry in (legacy_entry(), new_entry()):
        assert codes(validate([entry], device=target("a100"))) == ["other-device"]
    loose = new_entry(versions=Versions(codegen="0" * 16, backend=new_entry().versions.backend))
    strict = new_entry(versions=Versions(codegen=new_entry().versions.codegen))
    for entry in (loose, strict):
        assert validate([entry], build=build("0.12.0.1"), device=target("h200")) == []
    assert codes(validate([loose], build=build("0.11.2"), device=target("h200"))) == ["stale"]
    explicit = new_entry(versions=replace(strict.versions, explicit="x"))
    assert codes(validate([explicit]), Severity.INFO) == ["explicit-version"]


@pytest.mark.parametrize("first", ["strict", "loose"])
def test_of_two_entries_that_match_the_second_is_told(first: str, tmp_path: Path) -> None:
    """XLA takes the first in silence (`test_tuning_hazards`)."""
    strict, loose = new_entry(), new_entry(versions=Versions(codegen="0" * 16, backend=new_entry().versions.backend))
    old = new_entry(versions=Versions(codegen="1" * 16, backend="0" * 40))
    pair = [strict, loose] if first == "strict" else [loose, strict]
    write([old, *pair], tmp_path / "a.pb", Format.NEW_BINARY)
    known = {"build": build("0.12.0.1"), "device": target("h200")}
    found = [one for one in validate(read(tmp_path / "a.pb"), **known) if one.code == "second-match"]
    assert [(one.place.entry, one.severity) for one in found] == [(3, Severity.WARNING)]
    second = "loose" if first == "strict" else "strict"
    assert "it takes entry 2" in found[0].expected
    assert found[0].found == f"another whose key is before it: that matches {first}ly, this one {second}ly"
    assert "it takes entry 2" in found[0].expected
    # Another GPU's, another file's, or of a build that takes one of them alone: no choice is made.
    assert "second-match" not in codes(validate(read(tmp_path / "a.pb"), **known | {"device": target("a100")}))
    assert "second-match" not in codes(validate(read(tmp_path / "a.pb"), **known | {"build": build("0.11.2")}))
    assert "second-match" not in codes(validate(read(tmp_path / "a.pb")))
    write([old, strict], tmp_path / "b.pb", Format.NEW_BINARY)
    write([loose], tmp_path / "c.pb", Format.NEW_BINARY)
    both = [*read(tmp_path / "b.pb").entries, *read(tmp_path / "c.pb").entries]
    assert "second-match" not in codes(validate(both, **known))


def test_where_a_key_is_repeated_what_xla_takes_is_said(tmp_path: Path) -> None:
    """XLA has the last of equal keys, in the place of the first (`test_tuning_hazards`)."""
    strict, loose = new_entry(), new_entry(versions=Versions(codegen="0" * 16, backend=new_entry().versions.backend))
    again = new_entry(config(triton=triton_result(block_m=16).triton))
    write([strict, loose, again], tmp_path / "a.pb", Format.NEW_BINARY)
    found = validate(read(tmp_path / "a.pb"), build=build("0.12.0.1"), device=target("h200"))
    assert [(one.code, one.place.entry) for one in found] == [("duplicate", 1), ("second-match", 2)]
    assert found[0].found == "another with the same key after it, entry 3, which XLA takes"
    assert "it takes entry 3" in found[1].expected
    write([loose, strict, again], tmp_path / "a.pb", Format.NEW_BINARY)
    found = validate(read(tmp_path / "a.pb"), build=build("0.12.0.1"), device=target("h200"))
    told = [(one.code, one.place.entry) for one in found]
    assert told == [("duplicate", 2), ("second-match", 2), ("second-match", 3)]
    assert "it takes entry 1" in found[1].expected


@pytest.mark.parametrize(
    ("move", "code"),
    [
        (lambda path: path.rename(path.with_name("0" * 32 + ".pb")), "file-name"),
        (lambda path: path.parent.rename(path.parent.with_name("0" * 16)), "folder"),
        (lambda path: (path.parent / "v1").mkdir() or path.rename(path.parent / "v1" / path.name), "folder"),
    ],
    ids=["file", "device", "explicit-version"],
)
def test_a_new_file_that_lies_elsewhere_than_its_content_says(
    move: Callable[[Path], object], code: str, tmp_path: Path
) -> None:
    write([new_entry()], tmp_path, Format.NEW_DIRECTORY)
    move(next(tmp_path.rglob("*.pb")))
    done = read(tmp_path)
    assert (len(done.entries), done.findings) == (1, ())
    assert codes(validate(done), Severity.ERROR) == [code]


def test_a_legacy_file_that_is_not_named_by_its_key(tmp_path: Path) -> None:
    known = [tuple(key) for key in json_of(NEW / "dot_tanh_64x64", "legacy_keys.json")]
    done = read(NEW / "dot_tanh_64x64/legacy_dir")
    named = replace(done, entries=with_keys(done.entries, iter(known)))
    assert validate(named) == []
    wrong = replace(named, entries=(replace(named.entries[0], versions=Versions(entry=55)),))
    assert codes(validate(wrong)) == ["file-name"]
    path = tmp_path / "mine.textproto"
    path.write_bytes(next((NEW / "dot_tanh_64x64/legacy_dir").iterdir()).read_bytes())
    assert codes(validate(read(tmp_path))) == ["file-name"]


def test_the_place_of_a_finding_is_the_file_and_the_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.pb"
    write([legacy_entry(), legacy(triton_result(num_warps=3), f"{BODY} ")], path, Format.LEGACY_BINARY)
    (finding,) = validate(read(path))
    assert finding.place == Place(str(path), entry=2)
    assert str(finding) == f"{path}, entry 2: error: num-warps: expected num_warps as a power of two up to 32, found 3"


def test_what_is_found_is_shown_in_one_short_line() -> None:
    entry = legacy(result(failure={"msg": "a\nb\x1b[31m" + "x" * 9999}))
    (finding,) = validate([entry])
    assert finding.found.isprintable()
    assert len(finding.found) < 300


def test_findings_of_reading_are_not_said_twice() -> None:
    done = read_bytes(b"version: 2\n", Path("a.txt"))
    assert codes(list(done.findings)) == ["header-only"]
    assert codes(validate(done)) == ["file-version"]
