"""What no data sheet tells of a machine, though it is part of keys.

Not promised: that the rest of a description is what a real machine says; `differences` compares the two.
"""

from __future__ import annotations

from rewarm.targets.model import Target

# As the topology of an attached GPU names them (`identity.gpu_topology`), and its client its version.
_OF_GPUS = (
    "platform_version",
    "device_kind",
    "gpu.gpu_device_info.driver_version",
    "gpu.gpu_device_info.runtime_version",
    "gpu.gpu_device_info.dnn_version",
)


def untold(target: Target) -> tuple[str, ...]:
    """The fields of keys that this description cannot know, so that no real machine asks for its keys; none where a
    machine has said them itself, or where the compiler describes the machine on both sides, as libtpu does."""
    if target.reported is not None or target.source == "this host":
        return ()
    if target.platform == "cuda":
        return _OF_GPUS
    return ("cpu.features",) if target.platform == "cpu" else ()
