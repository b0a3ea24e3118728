"""Which native libraries and tools make the code of a platform. `identity.toolchain` identifies them.

Not promised: libraries that an executable calls at run time (cuBLAS, cuDNN, LAPACK); they do not make its code.

The list follows from the installed packages, not from what is mapped into the process, which grows with time.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rewarm import settings
from rewarm.identity.toolchain import Library

_LIBRARY_SUFFIXES = (".so", ".dylib", ".pyd", ".dll")
_CUDA_TOOLS = ("bin/ptxas", "bin/nvlink", "nvvm/libdevice/libdevice.10.bc")
_CUDA_FALLBACK = "/usr/local/cuda"


def libraries(platform: str, cuda_directory: str = "") -> list[Library]:
    """The libraries of "cpu", "gpu" or "tpu"; `cuda_directory` is where the options say the CUDA toolkit lies.

    Raises:
      FileNotFoundError: the platform's compiler is not where its package should have put it.
    """
    found = list(_native("jaxlib", "jaxlib"))
    if platform == "gpu":
        found += [*_cuda_plugin(), *_cuda_tools(cuda_directory)]
    elif platform == "tpu":
        found += _libtpu()
    return found


class Compiler(NamedTuple):
    """XLA's compiler for GPUs of NVIDIA, as a JAX plugin brings it.

    Attributes:
      version: of the wheel that it came in, which is that of JAX; "" where there is no wheel.
      libraries: the files that hold it.
    """

    version: str
    libraries: tuple[Library, ...]


def cuda_compiler() -> Compiler:
    """The compiler that tuning results belong to. The tools beside it make no difference to them.

    Raises:
      FileNotFoundError: no such plugin is installed.
    """
    found = tuple(one for one in _cuda_plugin() if one.name.startswith("jax_plugins/"))
    for one in found:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return Compiler(importlib.metadata.version(one.distribution or ""), found)
    return Compiler("", found)


def _native(package: str, distribution: str) -> Iterator[Library]:
    """The native libraries that lie directly in a package."""
    folders = _folders(package)
    files = sorted(path for folder in folders for path in folder.iterdir() if path.suffix in _LIBRARY_SUFFIXES)
    if not files:
        raise FileNotFoundError(f"no native library in the package {package}")
    for path in files:
        yield Library(f"{package.replace('.', '/')}/{path.name}", path, distribution)


def _folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return []
    places = spec.submodule_search_locations if spec is not None else None
    return [folder for folder in map(Path, places or ()) if folder.is_dir()]


def _cuda_plugin() -> Iterator[Library]:
    plugins = sorted(path.name for folder in _folders("jax_plugins") for path in folder.glob("xla_cuda*"))
    if not plugins:
        raise FileNotFoundError("JAX's plugin for CUDA is not installed: no package jax_plugins.xla_cuda*")
    for plugin in plugins:
        number = plugin.removeprefix("xla_cuda")
        yield from _native(f"jax_plugins.{plugin}", f"jax-cuda{number}-pjrt")
        if _folders(f"jax_cuda{number}_plugin"):
            yield from _native(f"jax_cuda{number}_plugin", f"jax-cuda{number}-plugin")


def _cuda_tools(cuda_directory: str) -> Iterator[Library]:
    """ptxas, nvlink and libdevice: the first of each along XLA's search; none of a kind is a fact of its own."""
    roots = [Path(cuda_directory)] if cuda_directory else []
    roots += [wheel for folder in _folders("nvidia") for wheel in (*folder.glob("cu[0-9]*"), folder / "cuda_nvcc")]
    roots += [Path(entry).parent for entry in settings.tool_search_path().split(":") if entry.endswith("bin")]
    roots.append(Path(_CUDA_FALLBACK))
    for tool in _CUDA_TOOLS:
        for root in roots:
            if (root / tool).is_file():
                yield Library(f"cuda/{Path(tool).name}", root / tool)
                break


def _libtpu() -> Iterator[Library]:
    named = settings.tpu_library_path()
    if named:
        yield Library("libtpu/libtpu.so", Path(named))
    else:
        yield from _native("libtpu", "libtpu")
