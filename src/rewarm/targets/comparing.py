"""In what two targets differ, field by field.

Not promised: that two targets without a difference give a program one key; what neither says is not compared, and
what only one says is named as such. Keys depend on the compiler as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rewarm.settings import MOST_CPU_THREADS
from rewarm.targets import proto_text
from rewarm.targets.model import Target

# In no key: LLVM's name for a CPU, which does not show in what code needs, and the CPU beside GPUs, which does not show
# in what is compiled for them.
_UNKEYED = ("cpu.name", "gpu.host")
_UNSAID = "not said"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field.

    Attributes:
      field: such as "gpu.gpu_device_info.clock_rate_ghz" or "cpu.features".
      first, second: what each says, in words.
      keyed: whether it is part of keys, so that an entry made for one does not serve the other.
    """

    field: str
    first: str
    second: str
    keyed: bool

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"field": self.field, "first": self.first, "second": self.second, "keyed": self.keyed}

    def __str__(self) -> str:
        return f"{self.field}: {self.first} and {self.second}{'' if self.keyed else ' (in no key)'}"


def differences(first: Target, second: Target) -> tuple[Difference, ...]:
    """The fields that are not the same; of several platforms, that alone."""
    if first.platform != second.platform:
        return (Difference("platform", first.platform, second.platform, keyed=True),)
    one, other = said(first), said(second)
    if "cpu.features" in one and "cpu.features" in other:
        return (*_features(first, second), *_fields(one, other, "cpu.features"))
    return _fields(one, other)


def said(target: Target) -> dict[str, str]:
    """What a target says, by field, in the order of `rewarm target show`."""
    fields = {"platform": target.platform}
    if target.config:
        fields |= {f"gpu.{name}": value for name, value in proto_text.leaves(target.config).items()}
    if target.host:
        fields["gpu.host"] = target.host
    if target.chip:
        fields |= {"tpu.chip": target.chip, "tpu.chip_config": target.chip_config}
    if target.processor is not None:
        cpu = target.processor
        fields |= {"cpu.triple": cpu.triple, "cpu.name": cpu.cpu, "cpu.features": ",".join(sorted(cpu.present))}
    if target.threads:
        fields["cpu.threads"] = str(min(target.threads, MOST_CPU_THREADS))
    return fields | _reported(target)


def _reported(target: Target) -> dict[str, str]:
    """A described GPU reports its description as its kind and as its platform's version; see `gpus`."""
    if target.platform == "cpu":  # its version says nothing, and its devices are all of one kind
        return {}
    if target.reported is not None:
        kinds = "/".join(sorted(set(target.reported.device_kinds)))
        return {"platform_version": target.reported.platform_version, "device_kind": kinds}
    if target.config:
        kind = proto_text.leaves(target.config).get("device_description_str", "")
        return {"platform_version": kind, "device_kind": kind}
    return {}


def _features(first: Target, second: Target) -> tuple[Difference, ...]:
    assert first.processor is not None
    assert second.processor is not None
    one, other = first.processor.present, second.processor.present
    if one == other:
        return ()
    alone = (" ".join(sorted(one - other)), " ".join(sorted(other - one)))
    words = [
        f"{name} has {more}" if more else f"{name} has no other"
        for name, more in zip((first.name, second.name), alone, strict=True)
    ]
    return (Difference("cpu.features", words[0], words[1], keyed=True),)


def _fields(one: dict[str, str], other: dict[str, str], *without: str) -> tuple[Difference, ...]:
    return tuple(
        Difference(name, one.get(name, _UNSAID), other.get(name, _UNSAID), name not in _UNKEYED)
        for name in dict.fromkeys((*one, *other))
        if name not in without and one.get(name) != other.get(name)
    )
