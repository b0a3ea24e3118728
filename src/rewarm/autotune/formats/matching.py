"""By which rule a build of XLA finds an entry of the new formats, and which of several it takes.

Not promised: an answer where the versions of cuDNN and CUDA are not known, which are in the codegen version.

An entry matches *strictly* if its codegen version, of all backends together, is that of who reads, and else *loosely*
if the version of its own backend is. Of a file with several entries for a fusion XLA (JAX 0.11 and 0.12) takes the
first key that matches, strictly or loosely, and of equal keys the last entry, in the place of the first.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from rewarm.autotune.formats import keys
from rewarm.autotune.formats.builds import Build
from rewarm.autotune.formats.model import Family, TuningEntry


def rule(entry: TuningEntry, build: Build, device: keys.Device) -> str | None:
    """By which of XLA's rules an entry's versions match: "strict", "loose", or `None`. The device is not compared."""
    versions, codegen = asked_for(build, device)
    if entry.family is not Family.NEW or not versions or not all(versions.values()):
        return None
    if codegen == entry.versions.codegen:
        return "strict"
    its = entry.versions.backend
    return "loose" if its and versions.get(entry.backend) == its else None


def finds(entry: TuningEntry, build: Build, device: keys.Device) -> bool:
    """Whether a build finds an entry of the new formats on a device, as JAX asks for it (no explicit version)."""
    is_for_it = entry.device == device.fingerprint and not entry.versions.explicit
    return is_for_it and rule(entry, build, device) is not None


@functools.lru_cache(64)
def asked_for(build: Build, device: keys.Device) -> tuple[Mapping[str, str], str]:
    """The versions of backends that a build asks for, and the codegen version."""
    versions = keys.codegen_versions(build, device)
    return versions, keys.codegen_version(versions)
