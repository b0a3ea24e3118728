"""The `options` and `inputs` components: the compile options, free of locations, and the files that they name.

Not promised, yet: that spelling an option at its default keeps the key.

Read from `CompileOptionsProto` (xla/pjrt/proto/compile_options.proto), field by field:

* `executable_build_options` (3): its `device_assignment` (9) belongs to the target; the rest counts.
* its `debug_options` (3): fields of `debug_options.NO_EFFECT` do not count; `FILES` count by content.
* `env_option_overrides` (7), from `compiler_options=`: the same, by name, in any order.
* everything else counts as it is.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rewarm.identity import wire
from rewarm.identity.debug_options import CUDA_DIRECTORY, FILES, NAMED_FILES, NO_EFFECT, NUMBERS, OUTPUTS

_BUILD_OPTIONS, _OVERRIDES = 3, 7
_DEBUG_OPTIONS, _DEVICE_ASSIGNMENT = 3, 9


class CanonicalOptions(NamedTuple):
    """The compile options as a key sees them.

    Attributes:
      canonical: bytes that are equal when no option that counts differs.
      inputs: content of the named files: option, base name where it counts, digest.
      outputs: names of the options that ask for files or logs to be written; such a program is not cached.
      cuda_directory: where the options say the CUDA toolkit lies, or "".
    """

    canonical: bytes
    inputs: tuple[tuple[str, str, str], ...]
    outputs: tuple[str, ...]
    cuda_directory: str


class _Part(NamedTuple):
    kept: bytes
    files: tuple[tuple[int, str], ...] = ()
    outputs: tuple[str, ...] = ()
    cuda_directory: str = ""


def canonical_options(serialized: bytes) -> CanonicalOptions:
    """The canonical form of a serialised `CompileOptionsProto`.

    Raises:
      ValueError: the bytes are not such a message.
    """
    whole = _parsed(serialized)
    # Files are read each time: the text of the options says nothing about their content.
    inputs = tuple(sorted(_content(number, path) for number, path in whole.files))
    return CanonicalOptions(whole.kept, inputs, whole.outputs, whole.cuda_directory)


# The programs of one process share a few values of these bytes.
@functools.lru_cache(maxsize=256)
def _parsed(serialized: bytes) -> _Part:
    rest, build, debug, overrides = _take_apart(serialized)
    parts = (_debug_part(debug), _override_part(overrides))
    return _Part(
        kept=_framed([rest, build, *(part.kept for part in parts)]),
        files=tuple(named for part in parts for named in part.files),
        outputs=tuple(sorted({name for part in parts for name in part.outputs})),
        cuda_directory=next((part.cuda_directory for part in reversed(parts) if part.cuda_directory), ""),
    )


def _take_apart(serialized: bytes) -> tuple[bytes, bytes, bytes, list[bytes]]:
    rest, build, debug, overrides = bytearray(), bytearray(), b"", []
    for field in wire.fields(serialized):
        if field.number == _OVERRIDES:
            overrides.append(field.data)
        elif field.number != _BUILD_OPTIONS:
            rest += field.raw
        else:
            for inner in wire.fields(field.data):
                if inner.number == _DEBUG_OPTIONS:
                    debug = inner.data
                elif inner.number != _DEVICE_ASSIGNMENT:
                    build += inner.raw
    return bytes(rest), bytes(build), debug, overrides


def _framed(parts: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


# This message is most of the options' bytes, and less varied still.
@functools.lru_cache(maxsize=64)
def _debug_part(debug: bytes) -> _Part:
    kept, cuda = bytearray(), ""
    files: list[tuple[int, str]] = []
    outputs: list[str] = []
    for field in wire.fields(debug):
        if field.number == CUDA_DIRECTORY:
            cuda = field.data.decode("utf-8", "replace")
        elif field.number in FILES:
            if field.value:
                files.append((field.number, field.data.decode("utf-8", "surrogateescape")))
        elif field.number not in NO_EFFECT:
            kept += field.raw
        elif field.number in OUTPUTS and field.value:
            outputs.append(NO_EFFECT[field.number])
    return _Part(bytes(kept), tuple(files), tuple(outputs), cuda)


def _override_part(overrides: list[bytes]) -> _Part:
    kept: list[bytes] = []
    files: list[tuple[int, str]] = []
    outputs: list[str] = []
    cuda = ""
    for name, value, raw in map(_override, overrides):
        number = NUMBERS.get(name)
        if number is None:
            kept.append(raw)
        elif number == CUDA_DIRECTORY:
            cuda = str(value)
        elif number in FILES:
            # Only options that repeat take a list.
            paths = str(value).split(",") if number in NAMED_FILES else [str(value)]
            files.extend((number, path) for path in paths if path)
        elif number in OUTPUTS and value not in (0, "", "0", "False", "false"):
            outputs.append(name)
    return _Part(_framed(sorted(kept)), tuple(files), tuple(outputs), cuda)


def _override(entry: bytes) -> tuple[str, Any, bytes]:
    """Name, value and raw value of one map entry {1: name, 2: OptionOverrideProto of one field}."""
    name, value, inner = "", None, b""
    for field in wire.fields(entry):
        if field.number == 1:
            name = field.data.decode("utf-8", "replace")
        elif field.number == 2:
            inner = field.data
    for field in wire.fields(inner):
        value = field.value.decode("utf-8", "replace") if isinstance(field.value, bytes) else field.value
    return name, value, entry


# ---------------------------------------------------------------------------------------------------------------
# inputs


def _content(number: int, path: str) -> tuple[str, str, str]:
    base = Path(path).name if number in NAMED_FILES else ""
    return FILES[number], base, _digest_of(path)


def _digest_of(path: str) -> str:
    """The content of a file or of a folder's files; a missing one is "missing" with the text of the path.

    The text counts then since some of these options also take their content inline.
    """
    place = Path(path)
    total = hashlib.sha256()
    try:
        for relative, file in _files(place):
            content = file.read_bytes()
            total.update(_framed([relative.encode("utf-8", "surrogateescape"), content]))
    except OSError:
        return f"missing: {hashlib.sha256(path.encode('utf-8', 'surrogateescape')).hexdigest()}"
    return total.hexdigest()


def _files(place: Path) -> Iterator[tuple[str, Path]]:
    if place.is_dir():
        inside = sorted(path for path in place.rglob("*") if path.is_file())
        yield from ((path.relative_to(place).as_posix(), path) for path in inside)
    else:
        yield "", place
