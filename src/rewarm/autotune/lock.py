"""A lock: a program's tuning, pinned, and what XLA is given while it is in force. `lock_file` has its text.

Not promised: that what is pinned is fast, or that it covers a program; `coverage` says that.

The digest is over what decides: device, build and entries, not the names and descriptions, so it does not change with
the way protobuf prints.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rewarm import small_files
from rewarm.autotune.formats import files, hlo, keys, records
from rewarm.autotune.formats.builds import Build
from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Finding, Place, Severity, error
from rewarm.autotune.formats.keys import Device
from rewarm.autotune.formats.model import Family, Format, TuningEntry
from rewarm.autotune.formats.validation import validate
from rewarm.autotune.formats.writing import contents

_LONGEST_SAYING = 400


@dataclass(frozen=True, slots=True)
class Lock:
    """What is pinned. Entries are in the order of their fusions, whatever order they are given in.

    Attributes:
      device: the kind of device, by XLA's text and the versions of its libraries.
      build: whose compiler reads it: a JAX release ("0.12.0.1"), or a name for another program.
      entries: one for each fusion, all of one family and of this device.
      says: fusion -> what it is, in one line. Not in the digest, and XLA never sees it; `findings` looks at it.
    """

    device: Device
    build: str
    entries: tuple[TuningEntry, ...]
    says: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)

    def __post_init__(self) -> None:
        """Sort, and refuse what cannot be one lock.

        Raises:
          TuningFormatError: entries of two families, of another device, without a fusion, or two for one fusion.
        """
        object.__setattr__(self, "entries", tuple(sorted(self.entries, key=_order)))
        if not self.entries:
            raise refused(Place(), "entries", "none")
        for entry in self.entries:
            _checked(entry, self)
        for one, other in zip(self.entries, self.entries[1:], strict=False):
            if one.fusion == other.fusion:
                raise refused(_place(other), "one entry for each fusion", f"two for {fusion_id(other)}")

    @property
    def family(self) -> Family:
        """Of all its entries."""
        return self.entries[0].family

    @property
    def digest(self) -> str:
        """SHA-256 over all that decides, 64 hexadecimal digits."""
        device = [self.device.text, self.device.dnn_version, self.device.runtime_version]
        told = [1, device, self.build, [_plain(entry) for entry in self.entries]]
        return hashlib.sha256(json.dumps(told, separators=(",", ":")).encode()).hexdigest()

    def for_xla(self, folder: Path) -> Path:
        """The entries as one file for `xla_gpu_load_autotune_results_from`, named by the digest, for its owner to read.

        A build that reads both families must be told which, by `xla_gpu_use_new_autotune_cache_format`. Whoever may
        write to the folder can replace the file between this and the compile, so the folder is to be the user's own.
        Two processes that do this at once write the same bytes.

        Raises:
          OSError: the file cannot be written.
          MissingLibraryError: protobuf is not there.
        """
        path = folder / f"lock-{self.digest[:32]}.pb"
        form = Format.LEGACY_BINARY if self.family is Family.LEGACY else Format.NEW_BINARY
        ((_, data, _),) = contents(self.entries, path, form)
        if not _is_there(path, data):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            small_files.replace(path, data, 0o400, durable=True)
        return path


def pinned(entries: Iterable[TuningEntry], device: Device, build: str, says: Mapping[str, str] | None = None) -> Lock:
    """A lock of these entries, without the times that their tuning measured: tuned again alike, the file is the same.

    Raises:
      TuningFormatError: there are none, an entry is not sound, or see `Lock`.
    """
    listed = [_without_time(entry) for entry in entries]
    unsound = next((one for one in validate(listed) if one.severity is Severity.ERROR), None)
    if unsound is not None:
        raise TuningFormatError(unsound)
    known = {entry.fusion for entry in listed}
    return Lock(device, build, tuple(listed), {name: line for name, line in (says or {}).items() if name in known})


def findings(lock: Lock, build: Build) -> list[Finding]:
    """Why a lock must not be put in force for a build, all of it; empty where it may.

    The errors of `validate` for its build and device, with what the lock says of its fusions; that it is for another
    build; that the build does not read its family. Not that a compile needs a fusion which it does not have.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    place = Place(next((entry.source.path for entry in lock.entries), ""))
    found = []
    if lock.build != build.jax:
        found.append(error("lock", place, f"a lock for JAX {build.jax}", f"one for {lock.build}"))
    if lock.family not in {form.family for form in build.formats}:
        read = ", ".join(sorted({str(form.family) for form in build.formats}))
        found.append(error("lock", place, f"a family that JAX {build.jax} reads ({read})", str(lock.family)))
    found += validate(lock.entries, build=build, device=lock.device, fusions=lock.says)
    return [one for one in found if one.severity is Severity.ERROR]


def fusion_id(entry: TuningEntry) -> str:
    """What a fusion is called here: XLA's fingerprint, or for a legacy entry 32 digits of its text's SHA-256."""
    fusion = entry.fusion or ""
    return (
        fusion
        if entry.family is Family.NEW
        else hashlib.sha256(fusion.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    )


def saying(instruction: str) -> str:
    """What a fusion is, in one line: shapes and operations, from the text that keys are made of.

    `hlo.instruction` understands the line of a key of the new formats, too.
    """
    told = hlo.instruction(instruction)
    first = next((line for line in instruction.splitlines() if line.strip(" {}")), "").removesuffix(" calls=")
    if instruction.startswith("{"):  # of a computation the first line is a parameter; the result says more
        first = next((line for line in instruction.splitlines() if line.lstrip().startswith("ROOT ")), first)
        first = first.partition(" = ")[2].partition("(")[0]
    inside = sorted((told.operations if told else frozenset()) - {"parameter", "constant"})
    return f"{first.strip(' ,')[:_LONGEST_SAYING]}: {', '.join(inside)}" if inside else first.strip(" ,")


def _order(entry: TuningEntry) -> tuple[str, ...]:
    return (fusion_id(entry), *entry.key)


def _checked(entry: TuningEntry, lock: Lock) -> None:
    if entry.family is not lock.family:
        raise refused(_place(entry), f"an entry of the {lock.family} family, as the first", f"one of {entry.family}")
    if not entry.fusion or (entry.family is Family.NEW and not keys.is_fusion(entry.fusion)):
        raise refused(_place(entry), "a fusion (a legacy file's name is only its digest)", repr(entry.fusion))
    wanted = lock.device.legacy if entry.family is Family.LEGACY else lock.device.fingerprint
    if entry.device != wanted:
        raise refused(_place(entry), f"an entry of the device {wanted}", str(entry.device))


def _place(entry: TuningEntry) -> Place:
    return Place(entry.source.path, entry=entry.source.index)


def refused(place: Place, expected: str, found: str) -> TuningFormatError:
    """The error of what cannot be a lock."""
    return TuningFormatError(error("lock", place, expected, found))


def _plain(entry: TuningEntry) -> list[str | int]:
    told = entry.versions
    texts = [entry.fusion or "", entry.backend, told.explicit, told.codegen, told.codegen_options, told.backend]
    return [entry.family.value, *texts, told.entry, entry.config.hex(), entry.rest.hex()]


def _is_there(path: Path, data: bytes) -> bool:
    try:
        return files.read(str(path), len(data)) == data
    except TuningFormatError:
        return False


def _without_time(entry: TuningEntry) -> TuningEntry:
    if entry.family is Family.NEW or entry.run_time is None:
        return entry
    result = records.to_result(entry)
    result.ClearField("run_time")
    return replace(entry, config=result.SerializeToString(deterministic=True), run_time=None)
