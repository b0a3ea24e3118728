"""From one call of JAX to one request of the cache: the call is taken apart into plain inputs, and these into a key.

Not promised: a key for every program. What cannot be identified has none, and the request says why.
"""

from __future__ import annotations

import functools
import logging
import sys
import time
import weakref
from typing import Any

from rewarm import settings
from rewarm.cache import Request
from rewarm.identity import (
    CanonicalOptions,
    Component,
    KeyComponents,
    TargetFacts,
    Toolchain,
    canonical_options,
    canonical_program,
    canonical_target,
    component,
)
from rewarm.in_force import Settings
from rewarm.jax_adapter import executables, seam
from rewarm.jax_adapter.libraries import libraries
from rewarm.jax_adapter.seam import Call

logger = logging.getLogger("rewarm")


class Identifier:
    """Builds requests under one set of settings; what is the same for all programs is worked out once."""

    def __init__(self, in_force: Settings, toolchain: Toolchain) -> None:
        self._settings = in_force
        self._toolchain = toolchain
        self._rows = functools.lru_cache(maxsize=256)(self._row)
        # Per client, and gone with it: JAX can drop its clients and make new ones.
        self._facts: weakref.WeakKeyDictionary[Any, dict[Any, TargetFacts]] = weakref.WeakKeyDictionary()

    def request(self, call: Call) -> Request[Any]:
        """The request of one call. Where the key cannot be built, it says so and the program is only compiled."""
        since = time.perf_counter()
        name, components, unkeyable, target = "unknown", None, None, ""
        try:
            program = canonical_program(call.computation, metadata_in_key=self._settings.metadata_in_key)
            name = program.name
            options = canonical_options(call.compile_options.SerializeAsString())
            facts = self._target_facts(call)
            target = facts.summary()
            unkeyable = program.unkeyable or _unkeyable_options(options)
            if unkeyable is None:
                components = self._components(program.canonical, options, facts)
        except Exception as error:
            if self._settings.strict:
                raise
            unkeyable = f"the key cannot be built: {type(error).__name__}"
            logger.warning("rewarm: %s for %s: %s; compiling, not caching", unkeyable, name, error)
        return Request(
            program=name,
            components=components,
            unkeyable=unkeyable,
            key_seconds=time.perf_counter() - since,
            compile=functools.partial(seam.compile_now, call),
            serialise=functools.partial(executables.serialise, call),
            load=functools.partial(executables.load, call),
            same=functools.partial(executables.same_code, call.backend.platform),
            producer=producer(),
            target=target,
        )

    def _target_facts(self, call: Call) -> TargetFacts:
        known = self._facts.setdefault(call.backend, {})
        asked = (call.devices.shape, tuple(device.id for device in call.devices.flat))
        if asked not in known:
            known[asked] = _ask_for_facts(call)
        return known[asked]

    def _components(self, program: bytes, options: CanonicalOptions, facts: TargetFacts) -> KeyComponents:
        hooks = seam.salt_of_hooks(sys.argv)
        return KeyComponents.of(
            {
                "program": component("program", program),
                "callbacks": self._rows("callbacks"),
                "options": self._rows("options", options.canonical),
                "inputs": self._rows("inputs", options.inputs),
                "toolchain": self._rows("toolchain", facts.platform, options.cuda_directory),
                "target": self._rows("target", facts),
                "salt": self._rows("salt", hooks),
            }
        )

    def _row(self, name: str, *facts: Any) -> Component:
        """One row of the table; remembered, since the programs of a process share all of them but `program`."""
        return component(name, getattr(self, f"_{name}_value")(*facts))

    def _callbacks_value(self) -> str:
        return "none"  # programs whose compilation runs Python have no key

    def _options_value(self, canonical: bytes) -> bytes:
        return canonical

    def _inputs_value(self, inputs: tuple[tuple[str, str, str], ...]) -> list[list[str]]:
        return [list(file) for file in inputs]

    def _toolchain_value(self, platform: str, cuda_directory: str) -> dict[str, Any]:
        found: dict[str, Any] = dict(self._toolchain.identify(libraries(platform, cuda_directory)))
        if platform == "tpu":
            found["LIBTPU_INIT_ARGS"] = _last_values(settings.libtpu_arguments())
        return found

    def _target_value(self, facts: TargetFacts) -> dict[str, Any]:
        return canonical_target(facts)

    def _salt_value(self, hooks: tuple[str, ...]) -> dict[str, Any]:
        hook, *flags = hooks
        said = {"salt": self._settings.salt, "custom_hook": hook, "flags": flags}
        return {**said, "metadata": True} if self._settings.metadata_in_key else said


def _unkeyable_options(options: CanonicalOptions) -> str | None:
    if _fuel_is_set():
        return "XLA_FLAGS has --xla_fuel, which counts over the whole process"
    if options.outputs:
        return f"the options ask the compiler to write: {', '.join(options.outputs)}"
    return None


_seen_flags: set[str] = set()


def note_flags() -> None:
    """Remember `XLA_FLAGS` as it is now. XLA reads it once, at a moment of its own, and a program may change it."""
    _seen_flags.add(settings.xla_flags())


def _fuel_is_set() -> bool:
    note_flags()
    return any("--xla_fuel" in flags for flags in _seen_flags)


def _ask_for_facts(call: Call) -> TargetFacts:
    devices = call.flat_devices()
    rows = call.devices if call.devices.ndim == 2 else call.devices.reshape(1, -1)
    serialized, fingerprint = seam.topology(devices)
    return TargetFacts(
        platform=call.backend.platform,
        platform_version=str(call.backend.platform_version),
        device_kinds=tuple(str(device.device_kind) for device in devices),
        assignment=tuple(tuple(int(device.id) for device in row) for row in rows),
        topology=serialized,
        fingerprint=fingerprint,
        threads=settings.cpu_threads() if call.backend.platform == "cpu" else 0,
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
