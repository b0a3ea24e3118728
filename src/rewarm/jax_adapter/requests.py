"""From one call of JAX to one request of the cache: the call is taken apart into plain inputs, and these into a key.

Not promised: a key for every program. What cannot be identified has none, and the request says why.
"""

from __future__ import annotations

import functools
import logging
import sys
import time
from typing import Any

from rewarm import settings
from rewarm.cache import Request
from rewarm.identity import (
    CanonicalOptions,
    KeyComponents,
    TargetFacts,
    Toolchain,
    canonical_options,
    canonical_program,
    canonical_target,
    component,
)
from rewarm.jax_adapter import executables, seam
from rewarm.jax_adapter.libraries import libraries
from rewarm.jax_adapter.seam import Call
from rewarm.settings import Settings

logger = logging.getLogger("rewarm")


class Identifier:
    """Builds requests under one set of settings; what is the same for all programs is worked out once."""

    def __init__(self, in_force: Settings, toolchain: Toolchain) -> None:
        self._settings = in_force
        self._toolchain = toolchain
        self._libraries = functools.lru_cache(maxsize=8)(self._identify_libraries)

    def request(self, call: Call) -> Request[Any]:
        """The request of one call. Where the key cannot be built, it says so and the program is only compiled."""
        since = time.perf_counter()
        name, components, unkeyable, target = "unknown", None, None, ""
        try:
            program = canonical_program(call.computation, metadata_in_key=self._settings.metadata_in_key)
            name = program.name
            options = canonical_options(call.compile_options.SerializeAsString())
            facts = _target_facts(call)
            target = facts.summary()
            unkeyable = program.unkeyable or _unkeyable_options(options)
            if unkeyable is None:
                components = self._components(program.canonical, options, facts)
        except Exception as error:
            if self._settings.strict:
                raise
            unkeyable = f"the key cannot be built: {type(error).__name__}"
            logger.warning("%s for %s: %s; compiling, not caching", unkeyable, name, error)
        return Request(
            program=name,
            components=components,
            unkeyable=unkeyable,
            key_seconds=time.perf_counter() - since,
            compile=functools.partial(_compile, call),
            serialise=functools.partial(executables.serialise, call),
            load=functools.partial(executables.load, call),
            same=functools.partial(executables.same_code, call.backend.platform),
            producer=producer(),
            target=target,
        )

    def _components(self, program: bytes, options: CanonicalOptions, facts: TargetFacts) -> KeyComponents:
        toolchain: dict[str, Any] = dict(self._libraries(facts.platform, options.cuda_directory))
        if facts.platform == "tpu":
            toolchain["LIBTPU_INIT_ARGS"] = _last_values(settings.libtpu_arguments())
        salt = {"salt": self._settings.salt, **seam.salt_of_hooks(sys.argv)}
        if self._settings.metadata_in_key:
            salt["metadata"] = True
        return KeyComponents.of(
            {
                "program": component("program", program),
                "callbacks": component("callbacks", "none"),
                "options": component("options", options.canonical),
                "inputs": component("inputs", [list(file) for file in options.inputs]),
                "toolchain": component("toolchain", toolchain),
                "target": component("target", canonical_target(facts)),
                "salt": component("salt", salt),
            }
        )

    def _identify_libraries(self, platform: str, cuda_directory: str) -> tuple[tuple[str, str], ...]:
        return tuple(self._toolchain.identify(libraries(platform, cuda_directory)).items())


def _compile(call: Call) -> Any:
    return seam.compile_now(call)


def _unkeyable_options(options: CanonicalOptions) -> str | None:
    if "--xla_fuel" in settings.xla_flags():
        return "XLA_FLAGS has --xla_fuel, which counts over the whole process"
    if options.outputs:
        return f"the options ask the compiler to write: {', '.join(options.outputs)}"
    return None


def _target_facts(call: Call) -> TargetFacts:
    devices = call.flat_devices()
    rows = call.devices.reshape(call.devices.shape[0], -1) if call.devices.ndim != 1 else call.devices.reshape(1, -1)
    serialized, fingerprint = seam.topology(devices)
    return TargetFacts(
        platform=call.backend.platform,
        platform_version=str(call.backend.platform_version),
        device_kinds=tuple(str(device.device_kind) for device in devices),
        assignment=tuple(tuple(int(device.id) for device in row) for row in rows),
        topology=serialized,
        fingerprint=fingerprint,
    )


def _last_values(arguments: str) -> list[str]:
    """Flags split, the last value of each name, sorted: what libtpu acts on."""
    return sorted({argument.partition("=")[0]: argument for argument in arguments.split()}.values())


@functools.cache
def producer() -> dict[str, str]:
    """Versions of what makes an entry, for people; none of them is in the key."""
    import rewarm

    python = ".".join(map(str, sys.version_info[:3]))
    return {
        "rewarm": rewarm.__version__,
        "jax": seam.version(),
        "jaxlib": seam.jaxlib_version(),
        "python": python,
    }
