"""From a target and a topology to JAX devices that are only described, and to what is compiled for them.

Not promised: that a machine of the target's name has the same keys. Where it was captured the topology is the machine's
own, byte for byte; for another topology of the same machine the numbers in it are changed, and what else a cluster's
topology may say is not known without one. `docs/prewarm.md`, "Targets", has what was compared and what was not.

Which devices each JAX makes:

    CUDA   0.9 and later, by the compiler of its plugin. Captured ones from 0.11 on.
    TPU    every JAX that its libtpu works with.
    CPU    0.11 and later. 0.9 and 0.10 cannot make a topology of bytes; the CPU of this host is compiled for there by
           running on it.

A CPU's number of threads is part of its programs, and that of the process that compiles: it must run under the target's
(`environment`), which is looked at when the devices are made. `seam.compile_now` then compiles for these devices
through a client with that many; JAX's own way would take as many as this host has processors (`seam/described.py`).
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import threading
from collections.abc import Iterator
from platform import machine as architecture_of_host
from typing import Any

from rewarm import settings
from rewarm.errors import RewarmError
from rewarm.jax_adapter import libraries, machines, seam, topology_bytes
from rewarm.jax_adapter.seam import Call
from rewarm.jax_adapter.told import Told, tell
from rewarm.targets import Reported, Target, Topology
from rewarm.targets.tpus import chip_of_kind

_CPU_CLIENTS: dict[int, Any] = {}
_lock = threading.Lock()


class DescribedError(RewarmError, RuntimeError):
    """Devices cannot be described, or the machine cannot be captured; the message says why and what to do."""


# -- devices -------------------------------------------------------------------------------------------------------


def obstacle(target: Target) -> str | None:
    """Why this JAX cannot describe devices of a target, and what to install; `None` where it can.

    Starts nothing and imports JAX's version alone.
    """
    jax = seam.version()
    if target.platform == "cuda":
        return _cuda_obstacle(target, jax)
    if target.platform == "tpu":
        return None if _has_libtpu() else f"libtpu, which has the TPU's compiler, is not here; {_install('tpu-aot')}"
    if not seam.can_make_devices():
        return (
            f"JAX {jax} cannot describe CPUs (0.11 and later can); this host's own are compiled for by running the "
            f"program on them"
        )
    return wrong_architecture(target)


def wrong_architecture(target: Target) -> str | None:
    """Why no code for the CPU of a target can be made here; `None` where it can, as far as its name says."""
    if target.processor is None:
        return None
    wanted, here = target.processor.triple.partition("-")[0], architecture_of_host()
    if _ALSO.get(wanted, wanted) == _ALSO.get(here, here):
        return None
    return (
        f"it is a CPU of the architecture {wanted}, and the compiler in this jaxlib makes code for {here} alone: run "
        f"this where the processor is {wanted}"
    )


# Names that systems and LLVM have for one architecture.
_ALSO = {"amd64": "x86_64", "AMD64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}


def _cuda_obstacle(target: Target, jax: str) -> str | None:
    try:
        libraries.cuda_compiler()
    except FileNotFoundError as wrong:
        return f"XLA's CUDA compiler is not here ({wrong}), which needs no GPU; {_install('gpu-aot')}"
    if target.reported is not None and not seam.can_make_devices():
        return f"JAX {jax} cannot describe a captured GPU (0.11 and later can); name one of the built-in ones"
    return None


def _install(extra: str) -> str:
    """What to do: JAX is named, so that pip takes the compiler that belongs to the one that is here."""
    return f"pip install 'rewarm[{extra}]' 'jax=={seam.version()}'"


def _has_libtpu() -> bool:
    return bool(settings.tpu_library_path()) or importlib.util.find_spec("libtpu") is not None


def environment(target: Target, topology: Topology) -> dict[str, str]:
    """Variables that a process needs which makes these devices and compiles for them; from before it imports JAX."""
    if target.platform == "cuda":
        # The plugin asks for CUDA's run-time libraries, which compiling does not need.
        return {"JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
    if target.platform == "tpu":
        # Without these libtpu asks Google's metadata server who this is, and waits; and one process at a time may load
        # it, since it takes each for one that is about to use the chips.
        return {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    return {"JAX_PLATFORMS": "cpu", "NPROC": str(target.threads_of(topology))}


def devices(target: Target, topology: Topology) -> list[Any]:
    """Compile-only devices of a target, of all processes, in the order in which JAX lists them.

    Raises:
      DescribedError: this JAX cannot, or this process does not have the target's threads.
    """
    if (why := obstacle(target)) is not None:
        raise DescribedError(f"{target.name}: {why}")
    make = {"cuda": _gpus, "tpu": _tpus, "cpu": _cpus}[target.platform]
    try:
        made, memories = make(target, topology)
    except RewarmError:
        raise
    except Exception as wrong:
        raise DescribedError(f"{target.name} {topology.text}: {type(wrong).__name__}: {wrong}") from wrong
    return made if seam.names_memories(made[0]) else seam.with_memories(made, memories)


# The memories that XLA's client for GPUs makes for each of them, the default one first.
# Source: xla/pjrt/gpu/se_gpu_pjrt_client.cc; StreamExecutorGpuHbmMemorySpace and PinnedHostMemorySpace.
_OF_GPUS = ("device", "pinned_host")


def _gpus(target: Target, topology: Topology) -> tuple[list[Any], tuple[str, ...]]:
    from jax.experimental import topologies

    config = target.config_for(seam.version())
    made = list(
        topologies.get_topology_desc(platform="cuda", target_config=config, topology=topology.text).devices
    )  # also of a captured one: this loads the plugin
    seam.name_gpus("cuda")
    told = target.reported
    if told is None or told.topology is None:
        return made, _OF_GPUS
    own = told.topology
    if topology.shape != topology_bytes.shape_of_gpus(own):
        own = topology_bytes.for_gpus(own, topology.shape)
    made = seam.devices_of(own)
    # A described client repeats the version of the platform as its devices' kind.
    kinds = told.device_kinds[:1] * len(made)
    tell(made[0].client, Told(topology=own, platform_version=told.platform_version, device_kinds=kinds))
    return made, _OF_GPUS


def _tpus(target: Target, topology: Topology) -> tuple[list[Any], tuple[str, ...]]:
    from jax.experimental import topologies

    more: dict[str, Any] = {"chip_config_name": target.chip_config}
    if topology.host:
        more["chips_per_host_bounds"] = topology.host
    if topology.slices > 1:
        more["num_slices"] = topology.slices
    made = list(topologies.get_topology_desc(topology.text, platform="tpu", **more).devices)
    told = target.reported
    if told is None or told.topology is None or topology != target.topology():
        return made, ()
    # Another libtpu describes the slice its own way, and so will the machine once it has that.
    same = made[0].client.platform_version == told.platform_version
    return (seam.devices_of(told.topology) if same and seam.can_make_devices() else made), ()


def _cpus(target: Target, topology: Topology) -> tuple[list[Any], tuple[str, ...]]:
    threads = target.threads_of(topology)
    client = _cpu_client(target, threads)
    own, _ = seam.topology(client.local_devices())
    assert own is not None, "since 0.11"
    made = seam.devices_of(topology_bytes.for_cpus(own, topology.processes, topology.local, target.processor))
    tell(made[0].client, Told(threads=threads))
    seam.have_compiled(made[0].client, client)
    attached = client.local_devices()[0]
    default = str(attached.default_memory().kind)
    kinds = (str(memory.kind) for memory in attached.addressable_memories())
    return made, (default, *(kind for kind in kinds if kind != default))


def _cpu_client(target: Target, threads: int) -> Any:
    """The client with so many threads, made once: a pool keeps its size.

    Race: the attached client of JAX is made by another thread between the two counts. Its threads are taken for this
    pool's, the numbers disagree, and there is an error where there need be none.
    """
    with _lock:
        if threads not in _CPU_CLIENTS:
            here = settings.cpu_threads()
            if here > threads:
                raise DescribedError(
                    f"{target.name}: its programs are divided among {threads} threads, and this process has {here}: "
                    f"start it with NPROC={threads}"
                )
            client, counted = machines.with_own_pool(lambda: seam.cpu_client(threads if threads > here else 1))
            if counted not in (0, threads):
                raise DescribedError(
                    f"{target.name}: its programs are divided among {threads} threads, and XLA made a pool of {counted}"
                    f": start a fresh process with NPROC={threads}"
                )
            _CPU_CLIENTS[threads] = client
        return _CPU_CLIENTS[threads]


def compile_now(call: Call) -> Any:
    """Compile a call for described devices, as `seam.compile_now` does.

    Raises:
      Exception: what the compiler raises.
    """
    return seam.compile_now(call)


# -- what a machine says -------------------------------------------------------------------------------------------


def exact(target: Target) -> Target:
    """A target with nothing left to be asked: for this host's CPU, as JAX reports it.

    Raises:
      DescribedError: JAX cannot tell.
    """
    if target.platform != "cpu" or target.processor is not None:
        return target
    return dataclasses.replace(target, processor=capture(target.name, "cpu").processor)


def capture(name: str, platform: str | None = None) -> Target:
    """What the attached machine is, for `targets.write`.

    Args:
      name: what it is to be called.
      platform: "cuda", "tpu" or "cpu"; by default that of JAX's default devices.

    Raises:
      DescribedError: there are no such devices, or JAX does not say enough of them.
    """
    import jax

    wanted = {"cuda": "gpu"}.get(platform or "", platform)
    try:
        found = jax.local_devices(backend=wanted) if wanted else jax.local_devices()
    except RuntimeError as wrong:
        raise DescribedError(f"JAX finds no device of the platform {platform}: {wrong}") from wrong
    try:
        make = {"gpu": _captured_gpu, "tpu": _captured_tpu, "cpu": _captured_cpu}[found[0].platform]
        return make(name, found)
    except KeyError:
        raise DescribedError(f"no target describes devices of the platform {found[0].platform}") from None
    except ValueError as wrong:
        raise DescribedError(f"JAX {seam.version()} does not say what this machine is: {wrong}") from wrong


def _captured_cpu(name: str, found: list[Any]) -> Target:
    from rewarm.targets import Processor

    topology, fingerprint = seam.topology(found)
    if topology is not None:
        processor = topology_bytes.processor_of(topology)
    else:  # JAX 0.10
        machine = machines.machine_of_smallest(found[0].client)
        processor = Processor(machine.triple, "", ",".join(f"+{word}" for word in machine.features))
    counted = machines.cpu_threads(len(found))
    if isinstance(counted, tuple):
        raise DescribedError(
            f"XLA has {counted[0]} threads where this process says {counted[1]}: capture it in a fresh process"
        )
    told = _reported(found, topology, fingerprint, f"1x1x{len(found)}", ())
    return _as_captured(Target(name, "cpu", "", processor=processor, threads=settings.cpu_threads()), told)


def _captured_gpu(name: str, found: list[Any]) -> Target:
    from rewarm.autotune import attached
    from rewarm.autotune.formats import TuningFormatError

    topology, fingerprint = seam.topology(found)
    if topology is None or not seam.can_make_devices():
        raise ValueError("its topologies are not complete before JAX 0.11")
    try:
        config = attached.description(topology)
    except TuningFormatError as wrong:
        raise ValueError(str(wrong)) from wrong
    shape = "x".join(map(str, topology_bytes.shape_of_gpus(topology)))
    told = _reported(found, topology, fingerprint, shape, _OF_CUDA)
    host = topology_bytes.host_of_gpus(topology)
    return _as_captured(Target(name, "cuda", "", config=config, host=host), told)


def _captured_tpu(name: str, found: list[Any]) -> Target:
    import jax

    from rewarm.targets import tpus

    chip = chip_of_kind(str(found[0].device_kind))
    if chip is None:
        raise ValueError(f"no kind of TPU is called {found[0].device_kind}")
    known = tpus.target(chip)
    assert known.grid is not None
    every = jax.devices("tpu")
    topology, fingerprint = seam.topology(every)
    told = _reported(every, topology, fingerprint, shape_of_slice(every, known.grid.directions), ("libtpu",))
    return _as_captured(dataclasses.replace(known, name=name), told)


def shape_of_slice(found: list[Any], directions: int) -> str:
    """How many slices there are, the chips of one in each direction, and those of one host, from the devices."""
    slices = sorted({int(getattr(device, "slice_index", 0) or 0) for device in found})
    if len(slices) > 1:
        first_slice = [device for device in found if int(device.slice_index) == slices[0]]
        return f"{len(slices)}*{shape_of_slice(first_slice, directions)}"
    whole = _span([device.coords for device in found], directions)
    first = [device.coords for device in found if device.process_index == found[0].process_index]
    host = _span(first, directions)
    return whole if host == whole else f"{whole}@{host}"


def _span(coordinates: list[Any], directions: int) -> str:
    axes = list(zip(*coordinates, strict=True))[:directions]
    return "x".join(str(max(axis) - min(axis) + 1) for axis in axes)


def _as_captured(target: Target, told: Reported) -> Target:
    return dataclasses.replace(target, source="this host", reported=told, about=f"captured: {told.shape}")


# What makes the code of a GPU: JAX's plugin, and NVIDIA's assembler with its library.
_OF_CUDA = ("jax-cuda", "nvidia-cuda-nvcc", "nvidia-nvvm")


def _reported(
    found: list[Any], topology: bytes | None, fingerprint: int | None, shape: str, prefixes: tuple[str, ...]
) -> Reported:
    return Reported(
        platform_version=str(found[0].client.platform_version),
        device_kinds=tuple(str(device.device_kind) for device in found),
        topology=topology,
        fingerprint=fingerprint,
        shape=shape,
        versions=dict(_versions(prefixes)),
    )


def _versions(prefixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Of JAX, and of the distributions whose names begin so."""
    yield "jax", seam.version()
    yield "jaxlib", seam.jaxlib_version()
    for one in importlib.metadata.distributions() if prefixes else ():
        name = str(one.metadata["Name"] or "").lower()
        if name.startswith(prefixes):
            yield name, one.version
