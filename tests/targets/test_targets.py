"""Targets: their names, the forms of topologies, captured files, and in what two of them differ."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import clean_environment
from rewarm import settings, targets
from rewarm.targets import Processor, Reported, Target, TargetError, Topology, TopologyError, UnknownTargetError
from rewarm.targets.captured import as_json
from rewarm.targets.proto_text import leaves

CPU = Target(
    "build-host",
    "cpu",
    "",
    "this host",
    processor=Processor("x86_64-unknown-linux-gnu", "znver4", "+avx,+avx2,-avx512f,+prefer-no-gather"),
    threads=16,
    reported=Reported("cpu", ("cpu", "cpu"), b"\x08\x01", None, "1x1x2", {"jax": "0.12.0.1", "jaxlib": "0.12.0.1"}),
)


def gpu(**changes: Any) -> Target:
    told = Reported("cuda 13000", ("NVIDIA H200",), b"\x08\x02", None, "1x1x1", {"jax": "0.12.0.1"})
    host = "x86_64-unknown-linux-gnu/znver4"
    return replace(targets.named("h200"), name="gpu-host", host=host, reported=told, **changes)


def tpu() -> Target:
    told = Reported("TFRT TPU v5 lite", ("TPU v5 lite",) * 8, b"\x08\x03", None, "2x4@2x2", {"libtpu": "0.0.52"})
    return replace(targets.named("v5e"), name="slice", reported=told)


# -- names ---------------------------------------------------------------------------------------------------------


def test_every_name_is_a_target_that_says_what_compilers_read() -> None:
    for name in targets.names():
        target = targets.named(name.upper())
        assert target.name == name
        assert target.about
        smallest = target.topology()
        assert (smallest.devices, smallest.processes) in ((1, 1), (2, 1)), "the smallest there is"
        if target.platform == "cuda":
            said = leaves(target.config)
            assert said["gpu_device_info.cuda_compute_capability.major"] in ("8", "9", "10")
            for figure in ("core_count", "clock_rate_ghz", "memory_bandwidth", "l2_cache_size", "device_memory_size"):
                assert float(said[f"gpu_device_info.{figure}"]) > 0, (name, figure)
            assert target.config.startswith("#"), "each file says where its figures come from"
            assert "device_vendor" not in target.config_for("0.9.2")
            assert target.config_for("0.10.0") == target.config


def test_other_words_for_one_target() -> None:
    same = {"a100-80": "a100", "H100-SXM": "h100", "rtx-6000": "rtx-6000-ada", "7x": "tpu7x", "V7X": "tpu7x"}
    assert {word: targets.named(word).name for word in same} == same


def test_an_unknown_name_is_answered_with_the_names() -> None:
    for name in ("h300", "", "nul\0", "v5e:2x4", "h200:8"):
        with pytest.raises(UnknownTargetError, match=r"h200.*v5e.*host.*x86-64-v3.*rewarm target capture"):
            targets.named(name)


def test_the_threads_of_a_cpu_are_this_process_s_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPROC", "5")
    assert settings.cpu_threads() == 5
    assert targets.named("host").threads == targets.named("x86-64-v4").threads == 5
    assert targets.named("X86-64-V3:64").threads == 64
    for wrong in ("host:", "host:0", "host:many", "host:1.5", "host:99999999"):
        with pytest.raises(TargetError, match="number of threads"):
            targets.named(wrong)
    many = targets.named("host:3")
    assert [many.threads_of(many.topology(text)) for text in ("1", "8", "2x2", "1x4x1")] == [3, 8, 3, 3]
    assert targets.named("h200").threads_of(targets.named("h200").topology("8")) == 0


def test_naming_a_target_costs_no_heavy_import() -> None:
    look = (
        "import sys; from rewarm import targets\n"
        "for name in targets.names(): targets.differences(targets.named(name), targets.named('h200'))\n"
        "assert not {'jax', 'jaxlib', 'numpy', 'google.protobuf', 'click'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", look], env=clean_environment(), check=True)


# -- topologies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("h200", "4x8x1", Topology("4x8x1", 32, 32)),
        ("h200", "1x1x8", Topology("1x1x8", 1, 8)),
        ("b200", " 8 ", Topology("1x1x8", 1, 8)),
        ("host", "1x2x4", Topology("1x2x4", 2, 8)),
        ("host", "2x4", Topology("1x2x4", 2, 8)),
        ("x86-64-v3:8", "4", Topology("1x1x4", 1, 4)),
        ("v5e", "2x4", Topology("v5e:2x4", 2, 8)),
        ("v5e", "v5e:2x4", Topology("v5e:2x4", 2, 8)),
        ("v5e", "2x4@2x4", Topology("v5e:2x4", 1, 8, (2, 4, 1))),
        ("v5e", "1x2x4", Topology("v5e:2x4", 2, 8)),
        ("v6e", "1x1x8", Topology("v6e:2x4", 1, 8, (2, 4, 1))),
        ("v6e", "1x1x4", Topology("v6e:2x2", 1, 4)),
        ("v5e", "1x8x1", Topology("v5e:2x4", 8, 8, (1, 1, 1))),
        ("v5e", "16x16", Topology("v5e:16x16", 64, 256)),
        ("v5e", "2*2x4", Topology("v5e:2x4", 4, 16, (), 2)),
        ("v5e", "3*v5e:2x4@2x4", Topology("v5e:2x4", 3, 24, (2, 4, 1), 3)),
        ("v5p", "2*2x2x2", Topology("v5p:2x2x2", 4, 16, (), 2)),
        ("v4", "2x2x2", Topology("v4:2x2x2", 2, 8)),
        ("v5p", "4x4x16", Topology("v5p:4x4x16", 64, 256)),
        ("tpu7x", "2x2x1", Topology("tpu7x:2x2x1", 1, 8)),
        ("7x", "tpu7x:4x4x4", Topology("tpu7x:4x4x4", 16, 128)),
    ],
)
def test_what_a_topology_means(name: str, text: str, expected: Topology) -> None:
    found = targets.named(name).topology(text)
    assert found == expected
    assert found.local * found.processes == found.devices


@pytest.mark.parametrize(
    ("name", "texts", "good"),
    [
        ("h200", ("", "8x", "2x4", "0x1x1", "1x1x1x1", "-1x1x1", "4*8*1", "1x1x9999999", "v5e:2x4"), r"such as 1x2x4"),
        ("host", ("", "1x1x1x1", "two", "2 x 2", "00x1"), "processes and the devices of each"),
        (
            "v5e",
            ("", "8", "3x3x3", "v6e:2x4", "2x4@", "2x4@3x3", "1x1x7", "3x1x4", "2x4x", "v5e:1x2x4", "2*1x2x4"),
            "2x4@2x4",
        ),
        ("v5e", ("0*2x4", "*2x4", "2*", "2*2*2x4", "1x2*2x4", "2**2x4", "999999*16x16"), "2*2x4"),
        ("v4", ("2x2", "4", "2x2x2x2", "tpu7x:2x2x1", "3x2x1@2x2x1"), "each of 3 directions, such as 2x2x1"),
    ],
)
def test_a_wrong_form_is_answered_with_the_good_ones(name: str, texts: tuple[str, ...], good: str) -> None:
    for text in texts:
        with pytest.raises(TopologyError, match=good):
            targets.named(name).topology(text)


@given(st.sampled_from(targets.names()), st.text("0123456789x:@v5e ", max_size=12))
def test_any_text_is_a_topology_or_an_error_of_ours(name: str, text: str) -> None:
    target = targets.named(name)
    try:
        found = target.topology(text)
    except TopologyError:
        return
    assert found.devices >= found.processes >= 1
    assert target.topology(found.text).devices == found.devices, "what is handed to the compiler reads the same"


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [CPU, gpu(), tpu()], ids=lambda target: target.platform)
def test_a_captured_target_comes_back_from_its_file(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    targets.write(target, path)
    found = targets.named(str(path))
    assert replace(found, source=target.source, about=target.about) == target
    assert found.source == str(path)
    assert found.about.startswith("captured: ")
    assert found.topology() == target.topology(target.reported.shape if target.reported else None)
    assert targets.differences(found, target) == ()
    with pytest.raises(TargetError, match="not overwritten"):
        targets.write(target, path)
    targets.write(replace(target, name="other"), path, force=True)
    assert targets.named(path).name == "other"
    assert [one.name for one in tmp_path.iterdir()] == ["machine.json"]


def test_only_what_a_machine_said_is_written(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="only what a machine reported"):
        targets.write(targets.named("h200"), tmp_path / "file")
    with pytest.raises(TargetError, match="cannot be written"):
        targets.write(CPU, tmp_path / "no" / "file")
    assert list(tmp_path.iterdir()) == []


def _changes() -> list[tuple[str, Any, str]]:
    """Where, what is put there (`None`: the key is taken out), and what the error names."""
    return [
        ("format", "tune", 'format: expected "rewarm-target", found "tune"'),
        ("version", 2, "version: expected 1"),
        ("version", None, "version"),
        ("platform", "rocm", "platform: expected cuda, tpu or cpu"),
        ("name", 3, "name: expected a text, found 3"),
        ("more", 1, "more: expected no such key, found 1"),
        ("cpu", None, "cpu: expected a value, found nothing"),
        ("gpu", {}, "gpu: expected no such key"),
        ("cpu.threads", 0, "cpu: expected a triple, and a number of threads from 1 to 65536"),
        ("cpu.threads", True, "cpu.threads: expected a whole number, found true"),
        ("cpu.triple", "", "cpu: expected a triple"),
        ("cpu.more", "", "cpu.more: expected no such key"),
        ("versions", [], "versions: expected an object"),
        ("versions", {"jax": 1}, "versions.jax: expected a text"),
        ("device_kinds", "cpu", "device_kinds: expected a list"),
        ("device_kinds", [1], "device_kinds"),
        ("topology.shape", "many", "cpu has no topology 'many'"),
        ("topology.bytes", "?", "topology.bytes: expected base64"),
        ("topology.bytes", None, "topology.bytes: expected a value"),
        ("topology.fingerprint", "1", "topology.fingerprint: expected a whole number"),
    ]


@pytest.mark.parametrize(("where", "value", "error"), _changes())
def test_a_file_is_read_strictly(where: str, value: Any, error: str, tmp_path: Path) -> None:
    content = as_json(CPU)
    *parents, last = where.split(".")
    part = content
    for parent in parents:
        part = part[parent]
    if value is None:
        del part[last]
    else:
        part[last] = value
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(content))
    with pytest.raises(TargetError) as caught:
        targets.read(path)
    assert error in str(caught.value)
    assert str(path) in str(caught.value) or "topology" in error
    assert len(str(caught.value)) < 600


def test_what_is_no_file_of_ours(tmp_path: Path) -> None:
    for content in (b"", b"\xff", b"[]", b"{", b"{}", b'{"a": NaN}', b"[" * 5000, b"nonsense", b"gpu_device_info {}"):
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises(TargetError, match=str(path)):
            targets.named(str(path))
    (tmp_path / "large").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(TargetError, match="larger file"):
        targets.named(tmp_path / "large")
    with pytest.raises(TargetError, match="regular file"):
        targets.named(tmp_path)


def test_a_text_description_of_a_gpu_is_a_target(tmp_path: Path) -> None:
    path = tmp_path / "theirs.txtpb"
    path.write_text(targets.named("h200").config.replace("4800000000000", "4814000000000"))
    found = targets.named(path)
    assert (found.name, found.platform) == ("theirs", "cuda")
    assert [(one.field, one.second) for one in targets.differences(targets.named("h200"), found)] == [
        ("gpu.gpu_device_info.memory_bandwidth", "4814000000000")
    ]


# -- differences ---------------------------------------------------------------------------------------------------


def test_every_field_that_differs_is_named() -> None:
    built_in = targets.named("h200")
    found = {
        one.field: one for one in targets.differences(built_in, gpu(config=built_in.config.replace("1.98", "1.9")))
    }
    assert set(found) == {"gpu.gpu_device_info.clock_rate_ghz", "gpu.host", "platform_version", "device_kind"}
    assert found["gpu.host"].first == "not said"
    assert [one.field for one in found.values() if not one.keyed] == ["gpu.host"]
    assert str(found["platform_version"]) == "platform_version: NVIDIA H200 141GB HBM3e and cuda 13000"
    shorter = built_in.config.replace('  driver_version: "13.0.0"\n', "")
    (one,) = targets.differences(built_in, replace(built_in, config=shorter))
    assert (one.field, one.first, one.second) == ("gpu.gpu_device_info.driver_version", "13.0.0", "not said")


def test_features_of_cpus_are_compared_one_by_one() -> None:
    assert CPU.processor is not None
    words = "+avx512f,+avx2,-sse4a,-prefer-no-gather"
    other = replace(CPU, name="theirs", threads=8, processor=replace(CPU.processor, cpu="skylake", features=words))
    found = {one.field: one for one in targets.differences(CPU, other)}
    assert set(found) == {"cpu.features", "cpu.name", "cpu.threads"}
    assert (found["cpu.features"].first, found["cpu.features"].second) == ("build-host has avx", "theirs has avx512f")
    assert [one.keyed for one in found.values()] == [True, False, True]
    same = replace(CPU, processor=replace(CPU.processor, features="+avx2,+avx"))
    assert targets.differences(CPU, same) == (), "absent ones and words of tuning are in no key"


def test_targets_of_two_platforms_differ_in_that() -> None:
    (one,) = targets.differences(targets.named("h200"), targets.named("v5e"))
    assert (one.field, one.first, one.second, one.keyed) == ("platform", "cuda", "tpu", True)
    assert {one.field for one in targets.differences(targets.named("v4"), targets.named("v5e"))} == {
        "tpu.chip",
        "tpu.chip_config",
    }
