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
from rewarm.autotune import xla_flags
from rewarm.identity import Toolchain
from rewarm.jax_adapter.libraries import cuda_compiler
from rewarm.jax_adapter.seam import Call
from rewarm.jax_adapter.seam import tuning as said

if TYPE_CHECKING:
    from rewarm.autotune.formats import Device, Family
    from rewarm.autotune.places import Place

logger = logging.getLogger("rewarm")

LIBRARIES_MEMO = "libraries.json"


def build_of_compiler(toolchain: Toolchain) -> tuple[str, str]:
    """The build id of the CUDA compiler that is installed beside JAX, and the JAX release that it is of; the id is that
    of the formats that it uses by default.

    Raises:
      FileNotFoundError: there is none.
      OSError: it cannot be read.
    """
    from rewarm.autotune.build_ids import build_id

    compiler = cuda_compiler()
    digests = toolchain.identify(compiler.libraries)
    digest, *others = digests.values()
    if others:
        digest = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
    return build_id(f"jax-{compiler.version or 'unknown'}", digest), compiler.version


def installed_build() -> str:
    """The build id of the CUDA compiler that is installed beside JAX, as places have it where `XLA_FLAGS` are what they
    are here. Imports no JAX.

    Raises:
      FileNotFoundError: there is none.
      OSError: it cannot be read.
      SettingError: the environment's settings cannot be used.
    """
    from rewarm.autotune.build_ids import with_family

    build, jax = build_of_compiler(Toolchain(settings.directory_of_command(None) / LIBRARIES_MEMO))
    return with_family(build, family_of(jax, xla_flags.new_format(settings.xla_flags())))


def place_for(cache_root: Path, call: Call, toolchain: Toolchain) -> Place:
    """The place for the compiler that is installed and the devices of a call.

    Raises:
      FileNotFoundError, OSError: see `build_of_compiler`.
      MissingLibraryError: protobuf is not there.
    """
    from rewarm.autotune.locating import place_of, place_of_unknown

    build, jax = build_of_compiler(toolchain)
    found = said.device_of(call)
    text = device_text(found.topology) if found.topology is not None else ""
    family = family_of_call(jax, call)
    if text:
        return place_of(cache_root, build, text, family)
    return place_of_unknown(cache_root, build, json.dumps(found.about), family)


def another_device(call: Call, text: str, wanted: Device) -> str:
    """What the devices of a call are, in words, where they are known not to be the wanted kind; "" where they may be.

    Where JAX does not say XLA's text of its device (before 0.11), what it says is held against the wanted one: the
    compute capability and the cores, which are in it, and a kind that is the name of another GPU described here.

    Args:
      text: XLA's, of the call's device; "" where it is not known.
    """
    if text:
        return "" if text == wanted.text else text
    from rewarm.autotune import targets

    found = said.device_of(call)
    facts = [f"{name}: {value}" for name, value in (("CUDA", found.capability), ("Cores", found.cores)) if value]
    if any(f"{fact}," not in wanted.text for fact in facts):
        return f"{', '.join(facts)} ({found.kind})"
    known = next((one for one in targets.devices().values() if one.name == found.kind), None)
    is_other = known is not None and known.text != wanted.text and wanted.name not in ("", known.name)
    return f"{known.text} ({known.name})" if known is not None and is_other else ""


def family_of_call(jax: str, call: Call) -> Family:
    """Which formats a JAX release uses for a call, as its `XLA_FLAGS` and `compiler_options=` have it.

    Of a release that is not known nobody can say whether it still has the option, so there the flags are asked.
    """
    from rewarm.autotune.formats import build_of

    asked = said.new_format(call)
    if asked is None:
        asked = False if build_of(jax) is not None else xla_flags.new_format(settings.xla_flags())
    return family_of(jax, asked)


def family_of(jax: str, asked: bool | None = None) -> Family:
    """Which formats a JAX release uses, where it is asked for the new ones, for the others, or (`None`) for nothing."""
    from rewarm.autotune.build_ids import default_family
    from rewarm.autotune.formats import Family, Format, build_of

    known = build_of(jax)
    if known is not None and Format.NEW_DIRECTORY not in known.formats:
        return Family.LEGACY  # and no such option
    if asked is None:
        return default_family(jax)
    return Family.NEW if asked else Family.LEGACY


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
