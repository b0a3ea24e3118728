"""GPUs described by name, as XLA's compiler takes them in the place of an attached one.

Not promised: that an attached device reports what its data sheet says. Six figures of a description are in XLA's keys
(compute capability, cores, clock, memory bandwidth, L2 cache, and in legacy keys the version of cuDNN); where a device
reports another, results that are keyed by name do not serve it, and a file that describes what it reports does.

The data files beside this one are text `stream_executor.GpuTargetConfigProto`. Each says where its figures come from.
JAX 0.9 refuses fields that it does not know, so what came after it stands between two comments and is left out for it.
"""

from __future__ import annotations

import functools
import importlib.resources
import os
from pathlib import Path

from rewarm.autotune.formats import Device, TuningFormatError, device_of_target
from rewarm.errors import RewarmError

NEWEST = "0.12.0.1"
_NAMES = ("a100", "b200", "h100", "h200")
_LARGEST = 1 << 20
_BEGIN, _END = "# After JAX 0.9.", "# Every JAX."


class UnknownTargetError(RewarmError, LookupError):
    """Neither a GPU that is described here nor a file."""


def names() -> tuple[str, ...]:
    """The GPUs that are described here, sorted."""
    return _NAMES


def description(name_or_path: str | Path, jax: str = NEWEST) -> str:
    """The description of a GPU, as the compiler of this JAX takes it (`target_config`).

    Args:
      name_or_path: one of `names`, in any case of letters, or the path of a file with such a text, which is given as
        it is.
      jax: the version whose compiler is to take it; 0.9 gets fewer fields.

    Raises:
      UnknownTargetError: neither; the message lists the names.
      TuningFormatError: the file is no such description, or cannot be read.
      MissingLibraryError: protobuf is not there, and it is a file, which must be looked at.
    """
    name = str(name_or_path)
    if name.lower() in _NAMES:
        text = _text(name.lower())
        return _reduced(text) if _minor(jax) < (0, 10) else text
    text = _of_file(Path(name_or_path))
    _described(text, name)
    return text


def device(name_or_path: str | Path) -> Device:
    """What keys have of it.

    Raises:
      UnknownTargetError, TuningFormatError, MissingLibraryError: see `description`.
    """
    name = str(name_or_path)
    return _builtin(name.lower()) if name.lower() in _NAMES else _described(_of_file(Path(name_or_path)), name)


def devices() -> dict[str, Device]:
    """All that are described here, by name.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    return {name: _builtin(name) for name in _NAMES}


@functools.cache
def _builtin(name: str) -> Device:
    return device_of_target(_text(name))


def _text(name: str) -> str:
    return importlib.resources.files(__name__).joinpath(f"{name}.txtpb").read_text()


def _of_file(path: Path) -> str:
    from rewarm.autotune.formats import files

    if not os.path.exists(path):  # noqa: PTH110 - unlike Path.exists it never raises
        raise UnknownTargetError(
            f"no GPU is described as {str(path)!r} and there is no such file; described are {', '.join(_NAMES)}, "
            "and a file with a text GpuTargetConfigProto describes any other"
        )
    data = files.read(str(path), _LARGEST, follow=True)
    return data.decode(errors="replace")


def _described(text: str, path: str) -> Device:
    try:
        return device_of_target(text)
    except TuningFormatError as wrong:
        raise TuningFormatError(wrong.finding.at(path)) from None


def _reduced(text: str) -> str:
    head, _, rest = text.partition(_BEGIN)
    return head.rstrip(" ") + rest.partition(_END)[2].lstrip("\n")


def _minor(jax: str) -> tuple[int, ...]:
    """Major and minor version; of what is no version, the newest's."""
    parts = jax.split(".")[:2]
    return tuple(map(int, parts)) if len(parts) == 2 and all(part.isdecimal() for part in parts) else (999, 0)
