"""The builds of XLA that rewarm knows, as facts about each.

Not promised: anything about a build that is not here. A JAX between two of these may have the entry version of either
or one of its own (it grows with almost every release), so an unknown build is never guessed from its neighbours.

Measured with the CUDA plugins of these releases (`jax-cuda13-pjrt`): entry versions from the keys that the compiler
asks for, the versions of backends from the text that it hashes, fields from the descriptors inside the library.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rewarm.autotune.formats import schema
from rewarm.autotune.formats.model import Family, Format

# `AutotuneResults.version` of every known build: "Version mismatch in autotune results. Expected 3 but was 2".
FILE_VERSION = 3

_LEGACY = frozenset({Format.LEGACY_DIRECTORY, Format.LEGACY_TEXT, Format.LEGACY_BINARY})
_BOTH = _LEGACY | {Format.NEW_DIRECTORY, Format.NEW_TEXT, Format.NEW_BINARY}


@dataclass(frozen=True, slots=True)
class Build:
    """One build of XLA.

    Attributes:
      jax: the JAX release whose plugin it is.
      entry_version: the version in keys of the legacy formats.
      formats: what it reads.
      default: the family that it uses unless `xla_gpu_use_new_autotune_cache_format` says otherwise.
      backend_versions: versions of backends that are fixed in the build, by name. Those of cuDNN and cuBLAS come from
        the device's description (`keys.codegen_versions`).
      takes_split_k: whether a Triton configuration may have split_k above 1.
    """

    jax: str
    entry_version: int
    formats: frozenset[Format]
    default: Family
    backend_versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    takes_split_k: bool = False

    @property
    def minor(self) -> schema.Minor:
        """Major and minor version of JAX, (0, 12)."""
        return _minor(self.jax)

    @property
    def backends(self) -> frozenset[str]:
        """The names of the backends that it has."""
        return _backends(self.minor)


# Asked for with each entry.
@functools.cache
def _minor(jax: str) -> schema.Minor:
    major, minor, *_ = jax.split(".")
    return int(major), int(minor)


@functools.cache
def _backends(minor: schema.Minor) -> frozenset[str]:
    return frozenset(value.name for value in schema.backends().values() if value.number and value.known.to(minor))


def _versions(triton: str) -> Mapping[str, str]:
    return MappingProxyType({"TRITON": triton, "BLOCK_LEVEL_EMITTER": triton, "NATIVE_EMITTER": "v1"})


BUILDS: tuple[Build, ...] = (
    Build("0.9.2", 28, _LEGACY, Family.LEGACY, takes_split_k=True),
    Build("0.10.2", 45, _LEGACY, Family.LEGACY),
    Build("0.11.2", 52, _BOTH, Family.NEW, _versions("a77e7c793abc0d0c923a9afb275058e2fe57a198")),
    Build("0.12.0.1", 56, _BOTH, Family.NEW, _versions("b575c0c38d428a609e25487db64051a5fa7bfab8")),
)


def build_of(jax: str) -> Build | None:
    """The build of a JAX release, by its exact version ("0.12.0.1"); `None` for one that is not known."""
    return next((build for build in BUILDS if build.jax == jax), None)
