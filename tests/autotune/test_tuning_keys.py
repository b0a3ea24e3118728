"""Keys: those that real compilers asked for, from the same device and the same fusion."""

from __future__ import annotations

from pathlib import Path

import pytest
from tuning_samples import NEW, PROGRAMS, json_of, target

from rewarm.autotune import targets
from rewarm.autotune.formats import BUILDS, TuningFormatError, build_of, device_of_legacy, device_of_target, keys
from rewarm.autotune.formats.farmhash import fingerprint64, fingerprint128

ROOT = Path(__file__).parents[2]

H200 = "CUDA: 9.0, Cores: 132, GPU clock: 1.98 GHz, Memory bandwidth: 4800 GB/s, L2 cache: 50 MB"


def pattern(size: int) -> bytes:
    return bytes(32 + (place * 7 + size) % 95 for place in range(size))


@pytest.mark.parametrize(
    ("size", "short", "low", "high"),
    [
        (0, 0x9AE16A3B2F90404F, 0x3DF09DFC64C09A2B, 0x3CB540C392E51E29),
        (3, 0x3498DB0C1D5DAF51, 0x5187272FA82E4772, 0xE6EC3A7FAB79C661),
        (7, 0xDEA7B742662AFE68, 0xC63C0222B16F322D, 0x9E6A4801355E9DE8),
        (16, 0x08B0DA38404F0074, 0x21C4536E55551694, 0x9BE5995BE9DAE143),
        (20, 0x9F2BCCA13C4D3441, 0x02B968E588480DC5, 0x750696B970A6E599),
        (32, 0xBD1CB88D7716D69D, 0xD79EA54F07E29F7E, 0x9E210A119BCD793D),
        (50, 0x4F4CD8BC8C11C1FB, 0xE112149EF79E1E57, 0x65CD7A88FC1C9D93),
        (64, 0xA53C73E2B2FDF42D, 0x333B23818308793A, 0xDCADC1F08030A5E1),
        (65, 0xFAFE6C35911CF595, 0xD1E57B37D66F38F4, 0x1975F80EDD13F3ED),
        (100, 0x2C5114125B3DF9D3, 0xF4923F9B27C9BE4C, 0x9754D59A16C2FE8F),
        (128, 0x231F733AA229449F, 0x17270FD5E568FF8B, 0x879C2E7338DCB874),
        (200, 0x9E39CD132F5F45B2, 0x4E6177FB7696189C, 0x90C37007962C33C8),
        (300, 0x0341BDE697D21308, 0xAB18383513157481, 0x66BBFF54AEE020B2),
    ],
)
def test_fingerprints_are_farmhashs(size: int, short: int, low: int, high: int) -> None:
    """Values of Google's own implementation (its Python binding pyfarmhash 0.5.1), one for each branch."""
    assert fingerprint64(pattern(size)) == short
    assert fingerprint128(pattern(size)) == (low, high)


@pytest.mark.parametrize("name", ["h200", "h200_reduced"])
def test_a_described_device_has_the_text_that_the_compiler_had(name: str) -> None:
    device = target(name)
    assert (device.text, device.dnn_version, device.runtime_version) == (H200, "9.10.0", "12.8.0")
    assert device.fingerprint == "a4baa03864db7cfb"
    assert device.legacy == json_of(NEW / "dot_tanh_64x64", "legacy_keys.json")[0][0]
    assert device_of_legacy(device.legacy).fingerprint == device.fingerprint
    assert "H200" in device.name


def test_the_page_names_every_gpu_that_is_described() -> None:
    text = " ".join((ROOT / "docs" / "autotuning.md").read_text().split())
    *most, last = (f"`{name}`" for name in targets.names())
    assert f"The names {', '.join(most)} and {last} stand for" in text


def test_other_devices() -> None:
    assert target("a100").fingerprint == "f568469d2ece8568"
    text = "gpu_device_info { rocm_compute_capability { gcn_arch_name: 'gfx942:sramecc+' } core_count: 304 }"
    assert device_of_target(text).text.startswith("ROCM: gfx942, Cores: 304,")
    half = "cuda_compute_capability { major: 9 } memory_bandwidth: 4812500000000 l2_cache_size: 132644864"
    figures = device_of_target(f"gpu_device_info {{ {half} clock_rate_ghz: 1.965 }}").text
    assert figures == "CUDA: 9.0, Cores: 0, GPU clock: 1.965 GHz, Memory bandwidth: 4813 GB/s, L2 cache: 126.5 MB"


@pytest.mark.parametrize("text", ["gpu_device_info {", "gpu_device_info { core_count: 1 }", "x" * (2 << 20), "\x00"])
def test_what_describes_no_device_is_an_error(text: str) -> None:
    with pytest.raises(TuningFormatError):
        device_of_target(text)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_files_of_a_legacy_directory_are_named_by_their_keys(program: Path) -> None:
    names = {keys.legacy_digest(*key) for key in json_of(program, "legacy_keys.json")}
    assert names == {path.stem for path in (program / "legacy_dir").iterdir()}


def test_the_fingerprint_of_a_gemm_fusion_follows_from_its_computation() -> None:
    for name in ("dot_tanh_64x64", "mlp_128x128"):
        body = json_of(NEW / name, "legacy_keys.json")[0][1]
        wanted = json_of(NEW / name, "new_keys.json")["keys"][0][1]
        assert keys.fusion_fingerprint(body, "kCustom", keys.TRITON_GEMM_CONFIG) == wanted
    loop = json_of(NEW / "mlp_128x128", "legacy_keys.json")[1][1]
    assert keys.fusion_fingerprint(loop, "kLoop") == json_of(NEW / "mlp_128x128", "new_keys.json")["keys"][1][1]


@pytest.mark.parametrize("body", ["", "{}", "{\n  tmp_0 = f32[] parameter(0)\n}", "{\n ROOT t = (f32[ tuple(\n}"])
def test_what_is_no_computation_has_no_fingerprint(body: str) -> None:
    with pytest.raises(ValueError, match="not the computation"):
        keys.fusion_fingerprint(body, "kLoop")


def test_a_tuple_of_results_and_parameters_out_of_order() -> None:
    body = (
        "{\n  tmp_0 = s8[2]{0} parameter(1)\n  tmp_1 = (f32[], s32[2]{0}) parameter(0)\n"
        "  ROOT tmp_2 = (s8[2]{0}, (f32[], s32[2]{0})) tuple(s8[2]{0} tmp_0, (f32[], s32[2]{0}) tmp_1)\n}"
    )
    head = "(s8[2]{0}, (f32[], s32[2]{0})) fusion((f32[], s32[2]{0}), s8[2]{0}), kind=kLoop, calls=\n"
    assert keys.fusion_fingerprint(body, "kLoop") == keys.fingerprint128(head + body)


@pytest.mark.parametrize(("jax", "wanted"), [("0.11.2", "ef00bdc5c7995cbf"), ("0.12.0.1", "070b7c91256c4093")])
def test_codegen_versions_are_those_of_the_builds(jax: str, wanted: str) -> None:
    build = build_of(jax)
    assert build is not None
    assert keys.codegen_version(keys.codegen_versions(build, target("h200"))) == wanted
    if jax == "0.12.0.1":
        said = json_of(NEW / "dot_tanh_64x64", "new_keys.json")["codegen"][1]
        assert keys.codegen_text(keys.codegen_versions(build, target("h200"))) == said


def test_builds() -> None:
    assert {build.jax: build.entry_version for build in BUILDS} == {
        "0.9.2": 28,
        "0.10.2": 45,
        "0.11.2": 52,
        "0.12.0.1": 56,
    }
    assert build_of("0.12.0.2") is None
    old, new = build_of("0.9.2"), build_of("0.12.0.1")
    assert old is not None
    assert new is not None
    assert "CUBLAS" in old.backends - new.backends
    assert "TENSOR_IR" in new.backends - old.backends
