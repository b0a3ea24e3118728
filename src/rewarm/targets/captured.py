"""Targets in files: what a real machine said of itself.

Not promised: that a machine still says the same after its driver, its JAX or its flags have changed; a file says with
which versions it was made. Nothing secret is in it: no host name, no address, no path.

One JSON object, its keys as below and no others:

    {"format": "rewarm-target", "version": 1, "name": text, "platform": "cuda", "tpu" or "cpu",
     "versions": {distribution: version},
     "platform_version": text, "device_kinds": [text],
     "topology": {"shape": text, "bytes": base64 or null, "fingerprint": number or null},
     "cpu": {"triple": text, "cpu": text, "features": text, "threads": number}     on "cpu" alone
     "gpu": {"config": text GpuTargetConfigProto, "host": text}                    on "cuda" alone
     "tpu": {"chip": text}}                                                        on "tpu" alone

Bump VERSION when a key is added, is gone or changes its meaning. A reader refuses what it does not know: a target that
is half understood gives keys that no machine asks for.
"""

from __future__ import annotations

import base64
import binascii
import errno
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rewarm import small_files
from rewarm.targets import gpus, tpus
from rewarm.targets.model import MOST_SAID, Processor, Reported, Target
from rewarm.targets.wrong import TargetError

FORMAT, VERSION = "rewarm-target", 1
_LARGEST = 1 << 20
_MODE = 0o644  # it is for a repository
_COMMON = ("format", "version", "name", "platform", "versions", "platform_version", "device_kinds", "topology")
_PARTS = {"cpu": "cpu", "cuda": "gpu", "tpu": "tpu"}

T = TypeVar("T")


def read(path: Path) -> Target:
    """The target in a file that was captured, or in a text GpuTargetConfigProto.

    Raises:
      TargetError: it cannot be read, or is neither; the message says what is wrong, and where.
    """
    try:
        if not path.is_file():
            raise TargetError(f"{path}: expected a target in a regular file, found something else")
        data = small_files.contents(path, _LARGEST + 1)
        if len(data) > _LARGEST:
            raise TargetError(f"{path}: expected a target of at most {_LARGEST} bytes, found a larger file")
        text = data.decode()
    except TargetError:
        raise
    except OSError as wrong:
        raise TargetError(f"{path}: cannot be read: {wrong.strerror or wrong}") from wrong
    except ValueError as wrong:
        raise TargetError(f"{path}: expected a target, found what is no text: {wrong}") from None
    if not text.lstrip().startswith(("{", "[")):
        return gpus.of_text(path.stem, text, str(path))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise TargetError(f"{path}: expected a target in JSON: {wrong}; capture it again") from None
    return _Reader(str(path)).target(value)


def write(target: Target, path: Path, *, force: bool = False) -> None:
    """Write a captured target into a file of its own.

    Race: two that write one new file at once. Without `force` one of them gets it and the other an error.

    Raises:
      TargetError: there is a file already, and no `force`; or it cannot be written.
    """
    data = (json.dumps(as_json(target), indent=1) + "\n").encode("ascii")
    try:
        if force:
            small_files.replace(path, data, _MODE)
        else:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), _MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
    except FileExistsError:
        raise TargetError(f"{path} is there already and is not overwritten; name another file, or --force") from None
    except OSError as wrong:
        raise TargetError(
            f"{path}: cannot be written: {wrong.strerror or errno.errorcode.get(wrong.errno or 0)}"
        ) from wrong


def as_json(target: Target) -> dict[str, Any]:
    """A captured target, as its file has it.

    Raises:
      TargetError: it was not captured.
    """
    told = target.reported
    if told is None:
        raise TargetError(f"{target.name} is {target.source}: only what a machine reported can be written")
    data = None if told.topology is None else base64.b64encode(told.topology).decode("ascii")
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": target.name,
        "platform": target.platform,
        "versions": dict(told.versions),
        "platform_version": told.platform_version,
        "device_kinds": list(told.device_kinds),
        "topology": {"shape": told.shape, "bytes": data, "fingerprint": told.fingerprint},
        _PARTS[target.platform]: _part(target),
    }


def _part(target: Target) -> dict[str, Any]:
    if target.platform == "cuda":
        return {"config": target.config, "host": target.host}
    if target.platform == "tpu":
        return {"chip": target.chip}
    cpu = target.processor
    assert cpu is not None, "a captured CPU has said which"
    return {"triple": cpu.triple, "cpu": cpu.cpu, "features": cpu.features, "threads": target.threads}


class _Reader:
    """Reads one file strictly; each error names the file and the place in it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def target(self, value: Any) -> Target:
        whole = self._of(value, dict, "")
        if whole.get("format") != FORMAT:
            raise self._wrong("format", f'"{FORMAT}"', whole.get("format"))
        if whole.get("version") != VERSION:
            raise self._wrong("version", f"{VERSION}, which this rewarm reads", whole.get("version"))
        platform = whole.get("platform")
        if platform not in _PARTS:
            raise self._wrong("platform", "cuda, tpu or cpu", platform)
        self._keys(whole, (*_COMMON, _PARTS[platform]), "")
        name = self._of(whole["name"], str, "name") or Path(self._path).stem
        found = self._machine(name, platform, whole[_PARTS[platform]])
        found = replace(found, name=name, source=self._path, reported=self._reported(whole))
        found.topology()  # its own shape is one
        return replace(found, about=_about(found))

    def _machine(self, name: str, platform: str, value: Any) -> Target:
        part = self._of(value, dict, _PARTS[platform])
        if platform == "cuda":
            self._keys(part, ("config", "host"), "gpu.")
            found = gpus.of_text(name, self._of(part["config"], str, "gpu.config"), self._path)
            return replace(found, host=self._of(part["host"], str, "gpu.host"))
        if platform == "tpu":
            self._keys(part, ("chip",), "tpu.")
            if part["chip"] not in tpus.names():
                raise self._wrong("tpu.chip", " or ".join(tpus.names()), part["chip"])
            return tpus.target(part["chip"])
        self._keys(part, ("triple", "cpu", "features", "threads"), "cpu.")
        texts = [self._of(part[key], str, f"cpu.{key}") for key in ("triple", "cpu", "features")]
        threads = self._of(part["threads"], int, "cpu.threads")
        if not (0 < threads <= MOST_SAID) or not texts[0]:
            raise self._wrong("cpu", f"a triple, and a number of threads from 1 to {MOST_SAID}", part)
        return Target(name, "cpu", "", processor=Processor(*texts), threads=threads)

    def _reported(self, whole: Mapping[str, Any]) -> Reported:
        topology = self._of(whole["topology"], dict, "topology")
        self._keys(topology, ("shape", "bytes", "fingerprint"), "topology.")
        kinds = self._of(whole["device_kinds"], list, "device_kinds")
        versions = self._of(whole["versions"], dict, "versions")
        fingerprint = topology["fingerprint"]
        return Reported(
            platform_version=self._of(whole["platform_version"], str, "platform_version"),
            device_kinds=tuple(self._of(one, str, "device_kinds[]") for one in kinds),
            topology=self._bytes(topology["bytes"]),
            fingerprint=None if fingerprint is None else self._of(fingerprint, int, "topology.fingerprint"),
            shape=self._of(topology["shape"], str, "topology.shape"),
            versions={name: self._of(one, str, f"versions.{name}") for name, one in versions.items()},
        )

    def _bytes(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return base64.b64decode(self._of(value, str, "topology.bytes"), validate=True)
        except binascii.Error:
            raise self._wrong("topology.bytes", "base64", value) from None

    def _of(self, value: Any, kind: type[T], where: str) -> T:
        if not isinstance(value, kind) or isinstance(value, bool):
            words = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}
            raise self._wrong(where, words[kind], value)
        return value

    def _keys(self, value: Mapping[str, Any], wanted: tuple[str, ...], where: str) -> None:
        for key in wanted:
            if key not in value:
                raise self._wrong(f"{where}{key}", "a value", None)
        for key in value:
            if key not in wanted:
                raise self._wrong(f"{where}{key}", "no such key", value[key])

    def _wrong(self, where: str, expected: str, found: Any) -> TargetError:
        shown = json.dumps(found)
        shown = "nothing" if found is None else shown if len(shown) <= 60 else f"{shown[:57]}..."
        place = f"{self._path}: {where}" if where else self._path
        return TargetError(f"{place}: expected {expected}, found {shown}; capture it again with this rewarm")


def _about(target: Target) -> str:
    told = target.reported
    assert told is not None
    kinds = "/".join(sorted(set(told.device_kinds)))
    versions = " ".join(f"{name} {version}" for name, version in told.versions.items() if name.startswith("jax"))
    if target.processor is not None:
        kinds = f"{target.processor.cpu}, {target.threads} threads"
    return f"captured: {kinds}, {told.shape}, {versions}"
