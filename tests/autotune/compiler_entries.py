"""Entries for what XLA's CUDA compiler looks up, of each build and family, and the options that give them to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cuda_compile_child
from cuda_compilers import jax_version
from rewarm.autotune import targets
from rewarm.autotune.coverage import Needed
from rewarm.autotune.formats import Build, Device, Family, Format, TuningEntry, Versions, build_of, keys, records, write
from rewarm.autotune.formats.protobuf import message_class
from rewarm.jax_adapter.lookups import Lookups

PLAN = f"{cuda_compile_child.__file__}:plan"
LOAD, DIRECTORY = "xla_gpu_load_autotune_results_from", "xla_gpu_per_fusion_autotune_cache_dir"
REQUIRE = {"xla_gpu_require_complete_aot_autotune_results": True}
TILES = {"block_m": 64, "block_n": 64, "block_k": 32, "split_k": 1, "num_stages": 3, "num_warps": 4, "num_ctas": 1}


def build() -> Build:
    found = build_of(jax_version())
    assert found is not None
    return found


def device(name: str = "h200") -> Device:
    return targets.device(name)


def needed(asked: Lookups, program: str) -> list[Needed]:
    found = [one for one in asked.needed if program in one.programs]
    assert found, [one.name for one in asked.programs]
    return found


def config_of(one: Needed, **fields: int) -> Any:
    """A configuration for one fusion: Triton's for a matrix product, the block emitter's for anything else."""
    made = message_class("xla.autotuner.BackendConfig")
    if "__triton_gemm" in one.text:
        return made(triton={**TILES, **fields})
    return made(block_level={"num_warps": 4, "num_stages": 1, "num_ctas": 1, "output_tiles": [{"sizes": [1, 256]}]})


def entry_of(
    one: Needed, family: Family, on: Device | None = None, config: Any = None, backend: str = ""
) -> TuningEntry:
    """An entry for a fusion that was looked up."""
    on = on or device()
    config = config or config_of(one)
    name = config.WhichOneof("config")
    of_fields = {"triton": "TRITON", "gemm": "CUBLASLT_FISSION", "algorithm": "CUDNN"}
    backend = backend or of_fields.get(name, "BLOCK_LEVEL_EMITTER")
    if family is Family.NEW:
        versions = keys.codegen_versions(build(), on)
        told = Versions(codegen=keys.codegen_version(versions), backend=versions[backend])
        return TuningEntry(family, on.fingerprint, one.fingerprint, backend, config.SerializeToString(), told)
    result = message_class("xla.AutotuneResult")()
    if name in of_fields:
        getattr(result, name).CopyFrom(getattr(config, name))
    else:
        result.other.name = backend
        result.other.config.type_url = "type.googleapis.com/xla.autotuner.BackendConfig"
        result.other.config.value = config.SerializeToString()
    made = TuningEntry(
        family, on.legacy, one.legacy, "", result.SerializeToString(), Versions(entry=build().entry_version)
    )
    return replace(made, backend=records.legacy_backend(result, one.legacy))


def family_flag(family: Family) -> dict[str, Any]:
    one_family = len({one.family for one in build().formats}) == 1
    return {} if one_family else {"xla_gpu_use_new_autotune_cache_format": family is Family.NEW}


def options(path: Path, family: Family, *, require: bool = True) -> dict[str, Any]:
    """The options of one route."""
    return {DIRECTORY if path.is_dir() else LOAD: str(path), **family_flag(family), **(REQUIRE if require else {})}


def written(entries: list[TuningEntry], form: Format, folder: Path) -> Path:
    suffix = "" if form.is_directory else ".textproto" if form.is_text else ".pb"
    path = folder / f"{form.value}{suffix}"
    write(entries, path, form)
    return path


def families() -> list[Family]:
    return sorted({one.family for one in build().formats})
