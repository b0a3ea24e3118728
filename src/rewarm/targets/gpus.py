"""GPUs of NVIDIA, from data sheets. Each file in `gpus/` says where its figures come from.

Not promised: that an attached one reports these figures (its clock and bandwidth above all), and never its versions of
driver, CUDA and cuDNN: all of them are in the key of a GPU program. What a tuning result is looked up by is less:
compute capability, cores, clock, bandwidth, L2 cache.

The files are text `stream_executor.GpuTargetConfigProto`.
"""

from __future__ import annotations

import functools
import importlib.resources

from rewarm.targets import proto_text
from rewarm.targets.model import Target
from rewarm.targets.wrong import TargetError

_NAMES = ("a100", "a100-40", "b200", "h100", "h100-pcie", "h200", "l4", "l40s", "rtx-6000-ada")
_ALSO = {"a100-80": "a100", "h100-sxm": "h100", "rtx-6000": "rtx-6000-ada", "rtx6000": "rtx-6000-ada"}


def names() -> tuple[str, ...]:
    """The GPUs that are described here, sorted."""
    return _NAMES


def target(name: str) -> Target:
    """One of `names`, or another word for one.

    Raises:
      KeyError: it is none.
    """
    known = _ALSO.get(name, name)
    if known not in _NAMES:
        raise KeyError(name)
    return of_text(known, _text(known), "built in")


def of_text(name: str, config: str, source: str) -> Target:
    """A GPU that a text describes.

    Raises:
      TargetError: it is no such text, or says no compute capability.
    """
    try:
        said = proto_text.leaves(config)
    except ValueError as wrong:
        raise TargetError(f"{source}: expected a text GpuTargetConfigProto: {wrong}") from None
    info = "gpu_device_info."
    major = said.get(f"{info}cuda_compute_capability.major")
    if major is None:
        raise TargetError(f"{source}: expected gpu_device_info with a cuda_compute_capability, found none")
    capability = f"{major}.{said.get(f'{info}cuda_compute_capability.minor', '0')}"
    memory = int(said.get(f"{info}device_memory_size", "0")) / 1e9
    kind = said.get("device_description_str") or said.get(f"{info}name") or name
    about = f"{kind}: compute capability {capability}, {memory:.0f} GB"
    return Target(name, "cuda", about, source, config=config)


@functools.cache
def _text(name: str) -> str:
    return importlib.resources.files("rewarm.targets").joinpath("gpus", f"{name}.txtpb").read_text()
