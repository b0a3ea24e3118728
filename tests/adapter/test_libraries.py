"""Which libraries make the code of a platform: found in packages laid out as the real wheels are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rewarm.jax_adapter.libraries import _cuda_plugin, libraries


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages in front of all others."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("jax_plugins", "nvidia", "libtpu", "jax_cuda")):
            del sys.modules[name]


def place(site: Path, *names: str) -> None:
    """Files that stand for libraries and tools."""
    for name in names:
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def names(platform: str, cuda_directory: str = "") -> dict[str, Path]:
    return {library.name: library.path for library in libraries(platform, cuda_directory)}


def test_cpu_is_jaxlib_alone() -> None:
    found = names("cpu")
    assert all(name.startswith("jaxlib/") for name in found)
    assert "jaxlib/libjax_common.so" in found


def test_gpu_adds_plugin_kernels_and_tools(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere/bin")
    place(
        site,
        "jax_plugins/xla_cuda13/__init__.py",
        "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
        "jax_cuda13_plugin/__init__.py",
        "jax_cuda13_plugin/_triton.so",
        "nvidia/cu13/bin/ptxas",
        "nvidia/cu13/bin/nvlink",
        "nvidia/cu13/nvvm/libdevice/libdevice.10.bc",
    )
    (site / "jax_plugins/xla_cuda13/__init__.py").write_text("raise ImportError('a plugin is not imported for this')")
    found = names("gpu")
    assert found["jax_plugins/xla_cuda13/xla_cuda_plugin.so"].parent.parent.parent == site
    assert found["jax_cuda13_plugin/_triton.so"].parent.parent == site
    assert found["cuda/ptxas"] == site / "nvidia/cu13/bin/ptxas"
    assert {"cuda/nvlink", "cuda/libdevice.10.bc", "jaxlib/libjax_common.so"} <= set(found)


def test_the_directory_that_the_options_name_comes_first(site: Path, tmp_path: Path) -> None:
    place(site, "jax_plugins/xla_cuda12/xla_cuda_plugin.so", "nvidia/cuda_nvcc/bin/ptxas", "toolkit/bin/ptxas")
    assert names("gpu", str(tmp_path / "toolkit"))["cuda/ptxas"] == tmp_path / "toolkit/bin/ptxas"
    assert names("gpu", "./cuda_sdk_lib")["cuda/ptxas"] == site / "nvidia/cuda_nvcc/bin/ptxas"


def test_gpu_without_its_plugin_is_an_error(site: Path) -> None:
    place(site, "jax_plugins/other/plugin.so")
    with pytest.raises(FileNotFoundError, match=r"no package jax_plugins\.xla_cuda"):
        libraries("gpu")


def test_tpu(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    place(site, "libtpu/__init__.py", "libtpu/libtpu.so", "other/libtpu.so")
    assert names("tpu")["libtpu/libtpu.so"] == site / "libtpu/libtpu.so"
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(site / "other/libtpu.so"))
    assert names("tpu")["libtpu/libtpu.so"] == site / "other/libtpu.so"


def test_without_the_plugin_of_a_gpu_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words that hold whatever the platform of this process is."""
    monkeypatch.setattr("rewarm.jax_adapter.libraries._folders", lambda _: [])
    with pytest.raises(FileNotFoundError, match="JAX's plugin for CUDA is not installed"):
        list(_cuda_plugin())
