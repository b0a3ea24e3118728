"""The child of `env` and `run`: says on standard output which GPU is attached and which XLA the installed JAX has.

Not promised: anything to whoever else starts it. It answers with one line of JSON: {"build":, "jax":, "device": text,
"target": the description, "about": what the client says of it}, the last three empty without --device, the first two of
them where this JAX does not tell; or {"cannot": why}.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from typing import Any

import rewarm

_NO_DEVICE = {"about": "", "device": "", "target": ""}


class _CannotError(Exception):
    """There is no answer, for the reason in the words."""


def main() -> None:
    """Answer, and let nothing else onto standard output."""
    rewarm.disable()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        told = _build() | (_device() if "--device" in sys.argv[1:] else _NO_DEVICE)
    except _CannotError as wrong:
        told = {"cannot": str(wrong)}
    answers.write(json.dumps(told) + "\n")
    answers.close()


def _build() -> dict[str, str]:
    """The build, by the name that rewarm has for it where it is on in a JAX program."""
    from rewarm.jax_adapter import tuning_places

    if importlib.util.find_spec("jax") is None:
        raise _CannotError("it has no JAX")
    try:
        return {"build": tuning_places.installed_build(), "jax": importlib.metadata.version("jax")}
    except FileNotFoundError as wrong:
        raise _CannotError(f"its JAX has no XLA for NVIDIA's GPUs ({wrong})") from None


def _device() -> dict[str, str]:
    """What it is; where this JAX does not say that, what its client says of it."""
    from rewarm.autotune import attached
    from rewarm.autotune.formats import TuningFormatError, device_of_target

    devices = _devices()
    topology = _topology(devices)
    try:
        target = attached.description(topology) if topology is not None else ""
        text = device_of_target(target).text if target else ""
    except TuningFormatError:
        target = text = ""
    return {"about": _about(devices[0]), "device": text, "target": target}


def _devices() -> list[Any]:
    try:
        import jax

        return list(jax.devices("gpu"))
    except Exception as wrong:  # noqa: BLE001 - no driver, no device, a plugin that does not load
        said = next(iter(str(wrong).splitlines()), type(wrong).__name__)
        raise _CannotError(f"JAX finds no GPU ({said})") from None


def _topology(devices: list[Any]) -> bytes | None:
    """The topology of one device, serialised; `None` before JAX 0.11."""
    from jax.experimental import topologies

    described = topologies.TopologyDescription(devices[:1])
    if not hasattr(described, "serialize"):
        return None
    serialized: bytes = described.serialize()
    return serialized


def _about(device: Any) -> str:
    """What tells this kind of device from others, in the words that name its place (`jax_adapter.tuning`)."""
    facts = [str(device.client.platform_version), str(device.device_kind)]
    for name in ("compute_capability", "core_count"):
        try:
            facts.append(f"{name} {getattr(device, name)}")
        except Exception:  # noqa: BLE001 - a runtime raises what it likes for what it does not know
            continue
    return json.dumps(facts)


if __name__ == "__main__":
    main()
