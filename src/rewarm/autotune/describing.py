"""Tuning entries in words, for tables, reports and error texts.

Not promised: that the words keep their form, or that they tell two entries apart; `name_of` does within a place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rewarm.autotune import targets
from rewarm.autotune.formats import Device, Family, TuningEntry, chosen, device_of_legacy
from rewarm.autotune.formats.findings import shown
from rewarm.autotune.formats.keys import fingerprint64, legacy_digest

_NUMBERS = re.compile(r"(CUDA|ROCM): ([^,]+), Cores: (\d+), GPU clock: ([^,]+), Memory bandwidth: ([^,]+), ")
_NONE: Mapping[str, str] = MappingProxyType({})
_TRIVIAL = ("{", "}", "")
_TRITON_REST = ("split_k", "waves_per_eu", "group_size", "is_tma_allowed", "is_warp_specialization_allowed")


def name_of(entry: TuningEntry) -> str:
    """What an entry is called: the fusion's fingerprint (new), or the digest that names its file (legacy)."""
    if entry.family is Family.NEW:
        return entry.fusion or ""
    if entry.device is None or entry.fusion is None:
        return entry.digest
    return legacy_digest(entry.device, entry.fusion, entry.versions.entry)


def fingerprint_of(device: str) -> str:
    """The new formats' device of a legacy device text, with or without the version of cuDNN."""
    return fingerprint64(device_of_legacy(device).text)


def described(device: str | None) -> tuple[str, Device] | None:
    """The GPU that `targets` describes so, with its name there, by a device text or a fingerprint."""
    if device is None:
        return None
    return _described().get(device) or _described().get(device_of_legacy(device).text)


@functools.cache
def _described() -> dict[str, tuple[str, Device]]:
    known = targets.devices().items()
    return {key: (name, device) for name, device in known for key in (device.text, device.fingerprint)}


def device_in_words(device: str | None, texts: Mapping[str, str] = _NONE) -> str:
    """An entry's device: its usual name where it is one of `targets`, else what its text says.

    Args:
      texts: device texts by fingerprint, as far as they are known.
    """
    if device is None:
        return "not said"
    known = described(device)
    if known:
        return known[1].name
    told = _NUMBERS.match(texts.get(device, device))
    if not told:
        return shown(device) or "empty"
    kind, capability, cores, clock, bandwidth = told.groups()
    return f"{kind} {capability}, {cores} cores, {clock}, {bandwidth}"


def fusion_line(entry: TuningEntry, texts: Mapping[str, str] = _NONE, width: int = 72) -> str:
    """The first line of a fusion's text that computes something; its fingerprint where there is no text.

    Args:
      texts: HLO texts by the fingerprints of the new formats, as far as they are known.
      width: of the line, in characters, at most.
    """
    text = texts.get(entry.fusion or "") if entry.family is Family.NEW else entry.fusion
    if text is None:
        return name_of(entry)
    lines = [line.strip() for line in text.splitlines() if line.strip() not in _TRIVIAL]
    computing = [line for line in lines if " parameter(" not in line and " constant(" not in line]
    line = next(iter(computing or lines), text)
    return shown(line.removeprefix("ROOT ").partition(" = ")[2] or line)[:width]


def config_in_words(entry: TuningEntry) -> str:
    """What an entry decides: tile sizes, stages, warps; or an algorithm.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    name, message = chosen(entry)
    if message is None:
        return name or "none"
    if name == "triton":
        return _triton(message)
    if name == "block_level":
        return _block_level(message)
    said = ", ".join(f"{key} {value}" for key, value in fields_of(message).items())
    return said or name.replace("_", " ")


def _triton(message: Any) -> str:
    tiles = f"{message.block_m}x{message.block_n}x{message.block_k}"
    rest = [f"{name} {value}" for name in _TRITON_REST if (value := int(getattr(message, name))) > (name == "split_k")]
    return ", ".join((tiles, *_threads(message), *rest))


def _block_level(message: Any) -> str:
    tiles = " ".join("x".join(str(size) for size in tile.sizes) or "scalar" for tile in message.output_tiles)
    rest = ["TMA"] if message.is_tma_allowed else []
    return ", ".join((tiles or "no tiles", *_threads(message), *rest))


def _threads(message: Any) -> list[str]:
    said = [_counted(message.num_stages, "stage"), _counted(message.num_warps, "warp")]
    return [*said, *([_counted(message.num_ctas, "CTA")] if message.num_ctas > 1 else [])]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def fields_of(message: Any, within: str = "") -> dict[str, str]:
    """The fields of a configuration that are set, by path, as text."""
    said: dict[str, str] = {}
    for descriptor, value in message.ListFields():
        path = f"{within}.{descriptor.name}" if within else descriptor.name
        if descriptor.type != descriptor.TYPE_MESSAGE:
            said[path] = shown(str(list(value)) if _is_list(value) else str(value))
        elif descriptor.message_type.GetOptions().map_entry:
            said[path] = shown(str(dict(sorted(value.items()))))
        elif _is_list(value):
            for index, one in enumerate(value):
                said.update(fields_of(one, f"{path}[{index}]"))
        else:
            said.update(fields_of(value, path))
    return said


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes)


def run_time_in_words(entry: TuningEntry) -> str:
    """How long the winner took."""
    return "-" if entry.run_time is None else f"{entry.run_time * 1e6:.6g} µs"
