"""GPUs described by name, as keys of tuning results have them and as XLA's compiler takes them.

Not promised: that an attached device reports what its data sheet says. Six figures of a description are in XLA's keys
(compute capability, cores, clock, memory bandwidth, L2 cache, and in legacy keys the version of cuDNN); where a device
reports another, results that are keyed by name do not serve it, and a file that describes what it reports does.

The descriptions themselves are `rewarm.targets`.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from rewarm.autotune.formats import Device, TuningFormatError, device_of_target
from rewarm.autotune.formats.findings import Place, error
from rewarm.targets import Target, TargetError, captured, gpus
from rewarm.targets.wrong import UnknownTargetError as UnknownTargetError

NEWEST = "0.12.0.1"
_LARGEST = 1 << 20


def names() -> tuple[str, ...]:
    """The GPUs that are described, sorted."""
    return gpus.names()


def description(name_or_path: str | Path, jax: str = NEWEST) -> str:
    """The description of a GPU, as the compiler of this JAX takes it (`target_config`).

    Args:
      name_or_path: one of `names`, in any case of letters; or the path of a file with such a text, which is given as it
        is, or of one that `rewarm target capture` made of a GPU.
      jax: the version whose compiler is to take it; 0.9 gets fewer fields.

    Raises:
      UnknownTargetError: neither; the message lists the names.
      TuningFormatError: the file is no such description, or cannot be read.
      MissingLibraryError: protobuf is not there, and it is a file, which must be looked at.
    """
    found = _builtin(str(name_or_path))
    if found is not None:
        return found.config_for(jax)
    text = _of_file(Path(name_or_path))
    _described(text, str(name_or_path))
    return text


def device(name_or_path: str | Path) -> Device:
    """What keys have of it.

    Raises:
      UnknownTargetError, TuningFormatError, MissingLibraryError: see `description`.
    """
    name = str(name_or_path)
    found = _builtin(name)
    return _device(found.name) if found is not None else _described(_of_file(Path(name)), name)


def devices() -> dict[str, Device]:
    """All that are described, by name.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    return {name: _device(name) for name in gpus.names()}


def _builtin(name: str) -> Target | None:
    try:
        return gpus.target(name.lower())
    except KeyError:
        return None


@functools.cache
def _device(name: str) -> Device:
    return device_of_target(gpus.target(name).config)


def _of_file(path: Path) -> str:
    from rewarm.autotune.formats import files

    if not os.path.exists(path):  # noqa: PTH110 - unlike Path.exists it never raises
        raise UnknownTargetError(
            f"no GPU is described as {str(path)!r} and there is no such file; described are {', '.join(gpus.names())}, "
            "and a file with a text GpuTargetConfigProto, or of rewarm target capture, describes any other"
        )
    text = files.read(str(path), _LARGEST, follow=True).decode(errors="replace")
    return _of_captured(path) if text.lstrip().startswith("{") else text


def _of_captured(path: Path) -> str:
    try:
        found = captured.read(path)
    except TargetError as wrong:
        raise TuningFormatError(error("target", Place(str(path)), "a captured GPU", str(wrong))) from None
    if found.platform != "cuda":
        raise TuningFormatError(error("target", Place(str(path)), "a captured GPU", f"one of {found.platform}"))
    return found.config


def _described(text: str, path: str) -> Device:
    try:
        return device_of_target(text)
    except TuningFormatError as wrong:
        raise TuningFormatError(wrong.finding.at(path)) from None
