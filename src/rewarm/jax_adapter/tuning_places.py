"""Which managed place belongs to a call of JAX: the build of the compiler that is installed, and the kind of device.

Not promised: the device's text where JAX does not say it (JAX 0.10 has no topology to read, and a real device's need
not have the description in it). Such a place is named by a digest of what the client says of its device, and XLA's own
name for the device shows in the folder that it writes (`Place.device_folders`). What was imported for the device by its
text is taken over (`managed.py`).
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from rewarm import settings
from rewarm.identity import Toolchain
from rewarm.jax_adapter.libraries import cuda_compiler
from rewarm.jax_adapter.seam import Call
from rewarm.jax_adapter.seam import tuning as said

if TYPE_CHECKING:
    from rewarm.autotune.formats import Family
    from rewarm.autotune.places import Place

logger = logging.getLogger("rewarm")

LIBRARIES_MEMO = "libraries.json"


def build_of_compiler(toolchain: Toolchain) -> tuple[str, str]:
    """The build id of the CUDA compiler that is installed beside JAX, and the JAX release that it is of.

    Raises:
      FileNotFoundError: there is none.
      OSError: it cannot be read.
    """
    from rewarm.autotune.places import build_id

    compiler = cuda_compiler()
    digests = toolchain.identify(compiler.libraries)
    digest, *others = digests.values()
    if others:
        digest = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
    return build_id(f"jax-{compiler.version or 'unknown'}", digest), compiler.version


def installed_build() -> str:
    """The build id of the CUDA compiler that is installed beside JAX, as places have it. Imports no JAX.

    Raises:
      FileNotFoundError: there is none.
      OSError: it cannot be read.
      SettingError: the environment's settings cannot be used.
    """
    return build_of_compiler(Toolchain(settings.directory_of_command(None) / LIBRARIES_MEMO))[0]


def place_for(cache_root: Path, call: Call, toolchain: Toolchain) -> Place:
    """The place for the compiler that is installed and the devices of a call.

    Raises:
      FileNotFoundError, OSError: see `build_of_compiler`.
      MissingLibraryError: protobuf is not there.
    """
    from rewarm.autotune.places import place_of, place_of_unknown

    build, jax = build_of_compiler(toolchain)
    found = said.device_of(call)
    text = device_text(found.topology) if found.topology is not None else ""
    if text:
        return place_of(cache_root, build, text, family_of(jax))
    return place_of_unknown(cache_root, build, json.dumps(found.about), family_of(jax))


def family_of(jax: str) -> Family:
    """Which formats a JAX release uses by default; of one that is not known, the new ones if it is newer."""
    from rewarm.autotune.formats import Family, build_of

    known = build_of(jax)
    if known is not None:
        return known.default
    numbers = [int(part) for part in jax.split(".")[:2] if part.isdecimal()]
    return Family.LEGACY if numbers and numbers < [0, 11] else Family.NEW


def device_text(topology: bytes) -> str:
    """XLA's device text, from a serialised topology; "" where the topology does not say what is in it.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    from rewarm.autotune import attached
    from rewarm.autotune.formats import TuningFormatError, device_of_target

    try:
        return device_of_target(attached.description(topology)).text
    except TuningFormatError as wrong:
        logger.debug("rewarm: the topology does not say the device: %s", wrong)
        return ""
