"""XLA:GPU's tuning results in a call's options: what JAX and the user said of them, and what rewarm says.

Not promised: that XLA reads what it is given. Entries live in a table of the process: of two directories, or files,
that have a result for one fusion, the first that XLA looked into decides, for as long as the process lives.

The attributes of `DebugOptions` that are used here are in jaxlib 0.9 to 0.12.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rewarm.identity import canonical_options
from rewarm.jax_adapter.seam.backends import topology
from rewarm.jax_adapter.seam.compile_step import Call
from rewarm.jax_adapter.seam.options import holders

DIRECTORY = "xla_gpu_per_fusion_autotune_cache_dir"
KERNELS = "xla_gpu_kernel_cache_file"
LOAD = "xla_gpu_load_autotune_results_from"
DUMP = "xla_gpu_dump_autotune_results_to"
REQUIRE = "xla_gpu_require_complete_aot_autotune_results"
NEW_FORMAT = "xla_gpu_use_new_autotune_cache_format"
_OTHER_DIRECTORY = "xla_gpu_experimental_autotuner_cache_dir"
_MODE = "xla_gpu_experimental_autotune_cache_mode"


class Named(NamedTuple):
    """What a call's options name, but for what JAX put there by itself; empty for nothing.

    Attributes:
      directory: of results, one file for each fusion.
      file: to load results from, or to write them to.
      kernels: XLA's kernel cache.
      by_jax: the directory that JAX made of its own cache's.
    """

    directory: str = ""
    file: str = ""
    kernels: str = ""
    by_jax: str = ""


def xla_caches() -> frozenset[str]:
    """Which caches of XLA the option `jax_persistent_cache_enable_xla_caches` turns on, read as JAX reads it."""
    said = holders().persistent_cache_enable_xla_caches.value or ""
    return frozenset(name for name in (DIRECTORY, KERNELS) if said == "all" or name in said)


def is_described(backend: Any) -> bool:
    """Whether it compiles for devices that are only described."""
    from jax._src.lib import _jax

    return isinstance(backend, getattr(_jax, "CompileOnlyPyClient", ()))


def named(call: Call) -> Named:
    """What the user's flags and `compiler_options=` name, and what JAX added."""
    debug = _debug_options(call)
    overrides = {name: str(value) for name, value in call.compile_options.env_option_overrides}
    cache = str(holders().compilation_cache_dir.value or "")
    by_jax = str(Path(cache) / DIRECTORY) if cache else ""
    kernels_by_jax = str(Path(cache) / KERNELS) if cache else ""
    directory, kernels = str(getattr(debug, DIRECTORY, "")), str(getattr(debug, KERNELS, ""))
    return Named(
        directory=overrides.get(DIRECTORY, "") or ("" if directory == by_jax else directory),
        file=next(
            (
                said
                for name in (LOAD, DUMP, _OTHER_DIRECTORY)
                if (said := overrides.get(name, "") or str(getattr(debug, name, "")))
            ),
            "",
        ),
        kernels=overrides.get(KERNELS, "") or ("" if kernels == kernels_by_jax else kernels),
        by_jax=by_jax if directory == by_jax else "",
    )


def give_directory(call: Call, directory: Path | None, *, writes: bool) -> None:
    """Let XLA use this directory of results; `None`: none."""
    from jax._src.lib import xla_client

    debug, modes = _debug_options(call), xla_client.AutotuneCacheMode
    setattr(debug, DIRECTORY, "" if directory is None else str(directory))
    if directory is not None:
        setattr(debug, _MODE, modes.UPDATE if writes else modes.READ)


def give_kernels(call: Call, path: Path | None) -> None:
    """Let XLA keep its kernels in this file; `None`: nowhere."""
    setattr(_debug_options(call), KERNELS, "" if path is None else str(path))


def give_file(call: Call, path: Path, overrides: Sequence[tuple[str, bool]]) -> None:
    """Let XLA load results from this file, and from no directory, with these options besides."""
    give_directory(call, None, writes=False)
    setattr(_debug_options(call), LOAD, str(path))
    for name, value in overrides:
        say(call, name, value)


def say(call: Call, name: str, value: bool | None) -> None:
    """Set one of XLA's options for this call, over what the flags say; `None`: as the flags say."""
    options = call.compile_options
    others = [row for row in options.env_option_overrides if row[0] != name]
    options.env_option_overrides = others if value is None else [*others, (name, value)]


def new_format(call: Call) -> bool | None:
    """Whether a call's options ask for the new formats of results; `None` where neither they nor XLA's defaults do,
    which is also so where they ask for the old ones by a flag.
    """
    overrides = dict(call.compile_options.env_option_overrides)
    if NEW_FORMAT in overrides:
        return str(overrides[NEW_FORMAT]).lower() in ("true", "1")
    # `DebugOptions` has no attribute for it.
    return canonical_options(call.compile_options.SerializeAsString()).value.get(NEW_FORMAT) is True or None


class Described(NamedTuple):
    """What is known of a kind of device.

    Attributes:
      topology: the serialised topology; `None` where this JAX has none.
      about: what the client and the device say of themselves: platform, kind, compute capability, cores.
      kind: its name.
      capability, cores: "9.0" and "132"; "" where the device does not say it.
    """

    topology: bytes | None
    about: tuple[str, ...]
    kind: str = ""
    capability: str = ""
    cores: str = ""


def device_of(call: Call) -> Described:
    """The kind of device that a call compiles for."""
    devices = call.flat_devices()
    serialized, _ = topology(devices)
    first = devices[0]
    facts = {}
    for name in ("compute_capability", "core_count"):
        try:
            facts[name] = str(getattr(first, name))
        except Exception:  # noqa: BLE001 - a runtime raises what it likes for what it does not know
            continue
    kind = str(first.device_kind)
    about = (str(call.backend.platform_version), kind, *(f"{name} {value}" for name, value in facts.items()))
    return Described(serialized, about, kind, facts.get("compute_capability", ""), facts.get("core_count", ""))


def _debug_options(call: Call) -> Any:
    return call.compile_options.executable_build_options.debug_options
