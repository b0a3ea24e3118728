"""Devices by name, and the filters: what they mean, what they leave open, and what they say of an unknown word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tuning_many import legacy_one, new_one
from tuning_samples import NEW, SAMPLES, new_entry

from rewarm.autotune import describing, targets
from rewarm.autotune.formats import (
    BUILDS,
    Device,
    TuningEntry,
    TuningFormatError,
    Versions,
    device_of_target,
    read,
)
from rewarm.autotune.formats.keys import codegen_version, codegen_versions
from rewarm.autotune.formats.protobuf import message_class
from rewarm.autotune.selecting import SelectionError, build_in_words, builds_of, selection, serves

H200 = targets.device("h200")
NINE, TEN, ELEVEN, NEWEST = BUILDS

# As the compilers of JAX 0.9.2 to 0.12.0.1 asked for them.
FINGERPRINTS = {
    "a100": "f568469d2ece8568",
    "a100-40": "4882ef514d13f9de",
    "b200": "45a23d12be5bc693",
    "h100": "699b92c0fb30cb16",
    "h100-pcie": "c3ba452acee67486",
    "h200": "a4baa03864db7cfb",
    "l4": "08b37dc549ae750b",
    "l40s": "984ea19474b4f3e5",
    "rtx-6000-ada": "fb686d2c61549cd3",
}


def test_described_devices_have_the_keys_that_compilers_ask_for() -> None:
    assert {name: device.fingerprint for name, device in targets.devices().items()} == FINGERPRINTS
    assert targets.names() == tuple(sorted(FINGERPRINTS))
    assert all(device.dnn_version == "9.10.0" for device in targets.devices().values())


@pytest.mark.parametrize("name", sorted(FINGERPRINTS))
def test_jax_0_9_gets_the_fields_that_it_knows(name: str) -> None:
    whole, reduced = targets.description(name), targets.description(name.upper(), "0.9.2")
    assert device_of_target(whole) == device_of_target(reduced) == targets.device(name)
    assert targets.description(name, "0.10.2") == whole
    lacking = {line.split(":")[0].strip() for line in whole.splitlines()} - {
        line.split(":")[0].strip() for line in reduced.splitlines()
    }
    assert "device_vendor" in lacking
    known = {line.split(":")[0].strip() for line in (SAMPLES / "targets/h200_reduced.txtpb").read_text().splitlines()}
    fields = {line.split(":")[0].strip() for line in reduced.splitlines() if line.strip()[:1] not in ("#", "")}
    assert {field.split(" {")[0] for field in fields} <= {field.split(" {")[0] for field in known}


def test_a_path_does_wherever_a_name_does(tmp_path: Path) -> None:
    path = SAMPLES / "targets/a100.txtpb"
    assert targets.description(path) == path.read_text()
    assert targets.device(str(path)).fingerprint == FINGERPRINTS["a100"]
    with pytest.raises(targets.UnknownTargetError, match=r"a100.*b200.*h100.*h200"):
        targets.description("h300")
    for content in (b"", b"\xff\xfe", b"gpu_device_info { core_count: 3 }", b"nonsense"):
        (tmp_path / "h200").write_bytes(content)
        with pytest.raises(TuningFormatError, match=str(tmp_path)):
            targets.device(tmp_path / "h200")
    with pytest.raises(TuningFormatError, match="regular file"):
        targets.device(tmp_path)
    with pytest.raises(targets.UnknownTargetError):
        targets.device("nul\0")


def test_an_attached_device_that_differs_in_one_figure_is_another() -> None:
    text = targets.description("h200").replace("4800000000000", "4814000000000")
    assert device_of_target(text).fingerprint != H200.fingerprint


DEVICE_WORDS = [
    "h200",
    "H200",
    str(SAMPLES / "targets/h200.txtpb"),
    H200.fingerprint,
    H200.text,
    H200.legacy,
]


@pytest.mark.parametrize("word", DEVICE_WORDS, ids=["name", "case", "path", "fingerprint", "text", "legacy"])
def test_device_filters(word: str) -> None:
    wanted = selection(devices=[word])
    mine = [legacy_one(0, 0), new_one(0, 0)]
    other = [
        replace(mine[0], device=targets.device("h100").legacy),
        replace(mine[1], device=targets.device("h100").fingerprint),
    ]
    assert wanted.of([*other, *mine]) == tuple(mine)
    assert wanted.admits(replace(mine[0], device=None, fusion=None)) is None
    newer = replace(mine[0], device=H200.legacy.replace("9.10.0", "9.12.0"))
    assert wanted.admits(newer) is (word != H200.legacy)


def test_build_filters() -> None:
    entries = [legacy_one(0, 0, version=version) for version in (0, 28, 45, 52, 56, 57)]
    for build in BUILDS:
        assert [one.versions.entry for one in selection(builds=[build.jax]).of(entries)] == [0, build.entry_version]
    assert [one.versions.entry for one in selection(builds=["57"]).of(entries)] == [57]
    assert [one.versions.entry for one in selection(builds=["0.10", "0.12"]).of(entries)] == [0, 45, 56]
    assert [one.versions.entry for one in selection(builds=["0"]).of([*entries, new_one(0, 0)])] == [0]
    new = new_one(0, 0)
    assert selection(builds=[new.versions.codegen]).of([new, *entries]) == (new,)
    assert [build_in_words(one) for one in (*entries, new)] == [
        *("any", "JAX 0.9.2", "JAX 0.10.2", "JAX 0.11.2", "JAX 0.12.0.1", "version 57", "JAX 0.12.0.1"),
    ]


def versioned(codegen: str, backend_version: str, backend: str = "TRITON") -> TuningEntry:
    config = message_class("xla.autotuner.BackendConfig")
    made = config(gemm={"algorithm": 1}) if backend.startswith("CUBLAS") else config(native_emitter={})
    base = new_one(0, 0) if backend == "TRITON" else new_entry(made, backend=backend)
    return replace(base, versions=Versions(codegen=codegen, backend=backend_version))


def test_whom_a_new_entry_serves_is_xlas_own_rule() -> None:
    triton = NEWEST.backend_versions["TRITON"]
    current = codegen_version(codegen_versions(NEWEST, H200))
    other = Device(H200.text, "9.11.0", "13.0.0")
    assert serves(versioned(current, triton), NEWEST) is True
    assert serves(versioned("0" * 16, triton), NEWEST) is True  # the loose rule
    assert serves(versioned(current, "x"), NEWEST) is True  # the strict one
    assert serves(versioned("0" * 16, "x"), NEWEST) is False
    assert serves(versioned("", ""), NEWEST) is False
    assert serves(versioned(current, triton), ELEVEN) is False
    assert serves(versioned(current, triton), TEN) is False  # it reads no such format
    assert serves(versioned(current, triton), NEWEST, other) is True
    library = versioned("0" * 16, "12.8.0", "CUBLASLT_FISSION")
    assert serves(library, NEWEST) is None  # which depends on the device's libraries
    assert serves(library, NEWEST, H200) is True
    assert serves(library, NEWEST, other) is False
    assert builds_of(versioned("0" * 16, "v1", "NATIVE_EMITTER")) == (ELEVEN, NEWEST)


def test_backend_and_fusion_filters() -> None:
    entries = [legacy_one(number, 0) for number in range(20)] + [new_one(0, 0)]
    assert selection(backends=["triton"]).of(entries) == tuple(entries)
    assert selection(backends=["CUDNN"]).of(entries) == ()
    assert selection(fusions=["f32[8,13]"]).of(entries) == (entries[12],)
    assert selection(fusions=["5feceb66"]).of(entries) == (entries[-1],)
    assert selection(fusions=["f32[8,13]"], devices=["h100"]).of(entries) == ()
    name = describing.name_of(entries[3])
    assert selection(fusions=[name[:6]]).of(entries) == (entries[3],)
    texts = {entries[-1].fusion or "": "bf16[7,7] fusion(...)"}
    assert selection(fusions=["[7,7]"]).of(entries, texts) == (entries[-1],)
    assert selection(fusions=["[7,7]"]).of(entries) == ()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"devices": ["h900"]}, "a100, .*b200, .*h200"),
        ({"builds": ["0.99"]}, "0.9.2, 0.10.2, 0.11.2, 0.12.0.1"),
        ({"builds": [""]}, "known as"),
        ({"backends": ["TENSORRT"]}, "TRITON"),
    ],
    ids=str,
)
def test_words_that_are_not_known_are_answered_with_those_that_are(more: dict[str, list[str]], said: str) -> None:
    with pytest.raises(SelectionError, match=said):
        selection(**more)


def test_entries_in_words() -> None:
    gemm, softmax = read(NEW / "mlp_128x128/legacy_load.pb").entries
    assert describing.device_in_words(gemm.device) == "NVIDIA H200 141GB HBM3e"
    assert describing.device_in_words(
        "CUDA: 9.0, Cores: 132, GPU clock: 1.98 GHz, Memory bandwidth: 4814 GB/s, L2"
    ) == ("CUDA 9.0, 132 cores, 1.98 GHz, 4814 GB/s")
    assert describing.device_in_words(None) == "not said"
    assert describing.device_in_words("\x1b[31m") == r"\x1b[31m"
    assert describing.fusion_line(gemm).startswith("bf16[1024,1024]{1,0} dot(")
    assert describing.config_in_words(gemm) == "128x128x64, 4 stages, 8 warps"
    assert describing.config_in_words(softmax) == "1x1024, 1 stage, 8 warps"
