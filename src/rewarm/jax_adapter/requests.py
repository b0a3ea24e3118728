"""From one call of JAX to one request of the cache: the call is taken apart into plain inputs, and these into a key.

Not promised: a key for every program. What cannot be identified has none, and the request says why.
"""

from __future__ import annotations

import functools
import json
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rewarm import settings
from rewarm.cache import Evidence, Request
from rewarm.errors import NotFingerprintableError
from rewarm.identity import (
    CanonicalOptions,
    Component,
    KeyComponents,
    Machine,
    Program,
    TargetFacts,
    Toolchain,
    canonical_options,
    canonical_program,
    canonical_target,
    component,
)
from rewarm.identity.option_files import content_of
from rewarm.identity.program import arguments_of, signature_of, with_locations
from rewarm.in_force import Settings
from rewarm.jax_adapter import custom_calls, distributed, executables, machines, partitioning, seam
from rewarm.jax_adapter.libraries import libraries
from rewarm.jax_adapter.seam import Call
from rewarm.jax_adapter.told import Told, told_of
from rewarm.telling import Teller


class Identifier:
    """Builds requests under one set of settings; what is the same for all programs is worked out once."""

    def __init__(self, in_force: Settings, toolchain: Toolchain) -> None:
        self._settings = in_force
        self._toolchain = toolchain
        self._teller = Teller()
        self._option_rows: dict[bytes, Component] = {}
        self._rows = functools.lru_cache(maxsize=256)(self._row)
        # Per client, and gone with it: JAX can drop its clients and make new ones.
        self._facts: weakref.WeakKeyDictionary[Any, dict[Any, TargetFacts]] = weakref.WeakKeyDictionary()

    def request(self, call: Call) -> Request[Any]:
        """The request of one call. Where the key cannot be built, it says so and the program is only compiled."""
        since = time.perf_counter()
        name, target, found, machine = "unknown", "", _Identity(), None
        try:
            program = canonical_program(call.computation, metadata_in_key=self._settings.metadata_in_key)
            name = program.name
            custom_calls.prepare(call.backend.platform, program)
            options = canonical_options(call.compile_options.SerializeAsString())
            facts = self._target_facts(call)
            target, machine = facts.summary(), facts.machine
            found = self._identify(program, options, facts)
        except Exception as error:
            if self._settings.strict:
                raise
            found = _Identity(unkeyable=f"the key cannot be built: {_words(error)}")
            self._teller.tell(f"{found.unkeyable}; {name} is compiled and not cached, as is all that it goes for")
        request = Request(
            program=name,
            components=found.components,
            unkeyable=found.unkeyable,
            bypass=found.bypass,
            evidence=found.components and _evidence(call, program),
            key_seconds=time.perf_counter() - since,
            compile=functools.partial(seam.compile_now, call),
            serialise=functools.partial(executables.serialise, call),
            load=functools.partial(executables.load, call, machine),
            same=functools.partial(executables.same_code, call.backend.platform),
            producer=producer(),
            target=target,
            again=functools.partial(seam.copy_of, call),
            place=functools.partial(_place, call),
        )
        return distributed.of_several_processes(request, call)

    def known(self, call: Call, program: Component) -> Known:
        """The components of a program that was identified before, whose module is not here: the digest of the program
        as it was, everything else as it is now.

        Raises:
          Exception: the key cannot be built.
        """
        options = canonical_options(call.compile_options.SerializeAsString())
        facts = self._target_facts(call)
        callbacks = self._rows("callbacks")
        components = self._rows_of(program, callbacks, options, facts)
        return Known(components, facts.machine, facts.summary(), functools.partial(_place, call))

    def kind(self, client: Any, devices: tuple[int, ...], options: bytes) -> Kind:
        """What the key has of programs that are compiled, or loaded, on these devices with these options.

        Raises:
          Exception: it cannot be found out, or a device is not there.
        """
        placed, listed, parsed = seam.placed(client, devices, (-1,), options)
        call = Call(client, None, placed.reshape(parsed.num_replicas, -1), parsed, (), listed, None)
        return self.kind_of(call, options)

    def kind_of(self, call: Call, options: bytes) -> Kind:
        """As `kind`, for what a program would be compiled with; also for devices that are only described.

        Raises:
          Exception: it cannot be found out.
        """
        facts, directory = self._target_facts(call), canonical_options(options).cuda_directory
        toolchain = self._rows("toolchain", facts.platform, directory)
        return Kind(toolchain.digest, self._rows("target", facts).digest, facts.machine)

    def _identify(self, program: Program, options: CanonicalOptions, facts: TargetFacts) -> _Identity:
        unkeyable = program.unkeyable or _fuel()
        if unkeyable is not None:
            return _Identity(unkeyable=unkeyable)
        try:
            callbacks = self._callbacks(program)
        except NotFingerprintableError as error:
            return _Identity(unkeyable=f"custom_partitioning: {error}")
        components = self._components(program, callbacks, options, facts)
        if (obstacle := custom_calls.obstacle(facts.platform, program)) is not None:
            return _Identity(components, bypass=obstacle)
        if options.outputs:
            # An executable obeys these again after it was loaded, and whoever asks for a dump wants the compiler's.
            return _Identity(components, bypass=f"the options ask the compiler to write: {', '.join(options.outputs)}")
        return _Identity(components)

    def _target_facts(self, call: Call) -> TargetFacts:
        known = self._facts.setdefault(call.backend, {})
        asked = (call.devices.shape, tuple(device.id for device in call.devices.flat))
        if asked not in known:
            known[asked] = self._ask_for_facts(call)
        return known[asked]

    def _ask_for_facts(self, call: Call) -> TargetFacts:
        platform, devices = call.backend.platform, call.flat_devices()
        rows = call.devices if call.devices.ndim == 2 else call.devices.reshape(1, -1)
        topology, fingerprint = seam.topology(devices)
        told = told_of(call.backend)
        if told.topology is not None:
            topology, fingerprint = told.topology, None
        machine = None
        if platform == "cpu":
            toolchain = self._rows("toolchain", platform, "").digest
            memo = self._settings.directory / machines.MEMO
            machine = machines.cpu_machine(call.backend, topology, fingerprint, toolchain, memo)
        return TargetFacts(
            platform=platform,
            platform_version=told.platform_version or str(call.backend.platform_version),
            device_kinds=told.device_kinds or tuple(str(device.device_kind) for device in devices),
            assignment=tuple(tuple(int(device.id) for device in row) for row in rows),
            topology=topology,
            fingerprint=fingerprint,
            machine=machine,
            threads=_threads(call, told) if platform == "cpu" else 0,
        )

    def _components(
        self, program: Program, callbacks: Component, options: CanonicalOptions, facts: TargetFacts
    ) -> KeyComponents:
        return self._rows_of(component("program", program.canonical), callbacks, options, facts)

    def _rows_of(
        self, program: Component, callbacks: Component, options: CanonicalOptions, facts: TargetFacts
    ) -> KeyComponents:
        hooks = seam.salt_of_hooks(sys.argv)
        return KeyComponents.of(
            {
                "program": program,
                "callbacks": callbacks,
                "options": self._options(options),
                "inputs": self._rows("inputs", options.inputs),
                "toolchain": self._rows("toolchain", facts.platform, options.cuda_directory),
                "target": self._rows("target", facts),
                "salt": self._rows("salt", hooks, self._declared()),
            }
        )

    def _row(self, name: str, *facts: Any) -> Component:
        """One row of the table; remembered, since the programs of a process share all of them but `program`."""
        return component(name, getattr(self, f"_{name}_value")(*facts))

    def _callbacks(self, program: Program) -> Component:
        if not program.callbacks:
            return self._rows("callbacks")
        return component("callbacks", partitioning.callbacks_value(program.callbacks))

    def _callbacks_value(self) -> str:
        return "none"

    def _options(self, options: CanonicalOptions) -> Component:
        row = self._option_rows.get(options.canonical)
        if row is None:
            row = self._option_rows[options.canonical] = component("options", options.value)
        return row

    def _declared(self) -> tuple[tuple[str, ...], ...]:
        """The content of the files and the variables that the user declared, as they are now."""
        files = tuple(_declared_file(path) for path in self._settings.extra_files)
        return files, tuple(settings.digest_of_variable(name) for name in self._settings.extra_variables)

    def _inputs_value(self, inputs: tuple[tuple[str, str, str], ...]) -> list[list[str]]:
        return [list(file) for file in inputs]

    def _toolchain_value(self, platform: str, cuda_directory: str) -> dict[str, Any]:
        found: dict[str, Any] = dict(self._toolchain.identify(libraries(platform, cuda_directory)))
        if platform == "tpu":
            found["LIBTPU_INIT_ARGS"] = _last_values(settings.libtpu_arguments())
        return found

    def _target_value(self, facts: TargetFacts) -> dict[str, Any]:
        return canonical_target(facts)

    def _salt_value(self, hooks: tuple[str, ...], declared: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
        hook, *flags = hooks
        said: dict[str, Any] = {"salt": self._settings.salt, "custom_hook": hook, "flags": flags}
        files, variables = declared
        if files:
            said["files"] = list(files)
        if variables:
            said["variables"] = dict(zip(self._settings.extra_variables, variables, strict=True))
        return {**said, "metadata": True} if self._settings.metadata_in_key else said


def _words(error: Exception) -> str:
    # Errors of value are written here and say all; of others the class is half of what they say.
    return str(error) if isinstance(error, ValueError) and str(error) else f"{type(error).__name__}: {error}"


def _threads(call: Call, told: Told) -> int | tuple[int, int]:
    """Of a described CPU those of its target, which it is compiled under; of an attached one those that it has."""
    return told.threads or machines.cpu_threads(call.backend.local_device_count())


def _declared_file(path: Path) -> str:
    try:
        return content_of(path)
    except OSError as error:
        raise ValueError(f"extra_files names what cannot be read: {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"extra_files names {error}: {path}") from error


class _Identity(NamedTuple):
    """What came of identifying a program: components, or why there are none, and whether they are to be used."""

    components: KeyComponents | None = None
    unkeyable: str | None = None
    bypass: str | None = None


class Kind(NamedTuple):
    """By what, and for what, a program is compiled.

    Attributes:
      toolchain: digest of the component of that name.
      target: likewise.
      machine: the CPU that code is made for; `None` for other devices.
    """

    toolchain: str
    target: str
    machine: Machine | None


class Known(NamedTuple):
    """What a request for a program takes that is not here as a module.

    Attributes:
      components: of its key.
      machine: the CPU that code is made for; `None` for other devices.
      target: a few words on the device.
      place: how its executable is loaded.
    """

    components: KeyComponents
    machine: Any
    target: str
    place: Callable[[], Place]


class Place(NamedTuple):
    """Where and how an executable is loaded, for another process.

    Attributes:
      options: the serialised `CompileOptions`.
      devices: ids.
      platform: of the devices.
      callbacks: how many functions of this process the executable calls.
    """

    options: bytes
    devices: tuple[int, ...]
    platform: str
    callbacks: int


def _place(call: Call) -> Place:
    devices = tuple(int(device.id) for device in call.flat_devices())
    options = call.compile_options.SerializeAsString()
    return Place(options, devices, str(call.backend.platform), len(call.host_callbacks or ()))


def _evidence(call: Call, program: Program) -> Evidence:
    return Evidence(
        canonical=program.canonical,
        kinds=program.kinds,
        signature=functools.partial(signature_of, call.computation),
        source=functools.partial(with_locations, call.computation),
        arguments=functools.partial(_arguments, call.computation),
    )


def _arguments(module: Any) -> bytes:
    try:
        rows = [one.plain() for one in arguments_of(module)]
    except Exception:  # noqa: BLE001 - of another form: the entry goes without
        return b""
    return json.dumps(rows, separators=(",", ":")).encode("ascii")


_seen_flags: set[str] = set()


def note_flags() -> None:
    """Remember `XLA_FLAGS` as it is now. XLA reads it once, at a moment of its own, and a program may change it."""
    _seen_flags.add(settings.xla_flags())


def _fuel() -> str | None:
    note_flags()
    if any("--xla_fuel" in flags for flags in _seen_flags):
        return "XLA_FLAGS has --xla_fuel, which counts over the whole process"
    return None


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
