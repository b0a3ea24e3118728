"""The lock file: a program's tuning, pinned in one text file that people review.

Not promised: that what is pinned is fast, or that it covers a program; `coverage` says that. The file is made, not
edited: what cannot be read as it was meant is an error with its line, and nothing of the file is used then.

    rewarm-autotune-lock 1
    device CUDA: 9.0, Cores: 132, ...           XLA's device text, which keys have (`formats.keys`)
    name NVIDIA H200 141GB HBM3e                what people call it; may be left out
    cudnn 9.10.0                                of the device's description; both may be left out
    cuda 12.8.0
    build 0.12.0.1                              whose compiler reads it: a JAX release, or a name for another program
    family new
    fusions 2

    fusion 3e9a8b0811cf954ce777a88d34867d06     new: XLA's fingerprint; legacy: 32 digits of the text's SHA-256
      says bf16[1024,1024]{1,0} fusion(...)     what it is, where that is known; only `findings` looks at it
      | {                                       legacy alone: the whole HLO text, which the key has
      backend TRITON
      config triton { block_m: 128 ... }        the configuration, as protocol buffer text
      bytes 0a0c...                             where that text does not have all of it: the whole, in hexadecimal
      rest ...                                  what the record has beside; nearly never there
      version 56                                legacy alone: the version in the key
      backend-version b575...                   new alone, and each only where it is not empty:
      codegen-version 070b...
      codegen-options ...
      explicit-version ...

Blocks are in the order of their fusions. Lines that begin with "#" and empty lines say nothing. Backslashes and what
cannot be printed are escaped as in Python, so each value is one line. Every other line must be as `written` makes it,
but for the blanks in a configuration: what people review is then what is used ("block_m: 0200" would be 128). Bump the
number when a line changes its meaning.

The digest is over what decides: device, build and entries, not the names and descriptions, so it does not change with
the way protobuf prints.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rewarm import small_files
from rewarm.autotune.formats import files, hlo, keys, records, text
from rewarm.autotune.formats.builds import Build
from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Finding, Place, Severity, error
from rewarm.autotune.formats.keys import Device
from rewarm.autotune.formats.model import Family, Format, Source, TuningEntry, Versions
from rewarm.autotune.formats.protobuf import message_class, module, pool
from rewarm.autotune.formats.validation import validate
from rewarm.autotune.formats.writing import contents

LARGEST = 64 << 20
_FIRST = "rewarm-autotune-lock 1"
_NOTE = "# Made by `rewarm autotune lock`. Review it like code; to change it, make it anew."
_HEAD = ("device", "name", "cudnn", "cuda", "build", "family", "fusions")
_MAY_LACK = frozenset({"name", "cudnn", "cuda"})
_WORDS = {
    Family.LEGACY: ("says", "|", "backend", "config", "bytes", "rest", "version"),
    Family.NEW: (
        *("says", "backend", "config", "bytes", "rest"),
        *("backend-version", "codegen-version", "codegen-options", "explicit-version"),
    ),
}
_NEEDED = {Family.LEGACY: ("|", "backend", "config", "version"), Family.NEW: ("backend", "config")}
_CONFIGS = {Family.LEGACY: records.RESULT, Family.NEW: "xla.autotuner.BackendConfig"}
_ESCAPE = re.compile(r"\\(?:[\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
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
            raise _refused(Place(), "entries", "none")
        for entry in self.entries:
            _checked(entry, self)
        for one, other in zip(self.entries, self.entries[1:], strict=False):
            if one.fusion == other.fusion:
                raise _refused(_place(other), "one entry for each fusion", f"two for {fusion_id(other)}")

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
    return fusion if entry.family is Family.NEW else hashlib.sha256(_utf8(fusion)).hexdigest()[:32]


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
        raise _refused(_place(entry), f"an entry of the {lock.family} family, as the first", f"one of {entry.family}")
    if not entry.fusion or (entry.family is Family.NEW and not keys.is_fusion(entry.fusion)):
        raise _refused(_place(entry), "a fusion (a legacy file's name is only its digest)", repr(entry.fusion))
    wanted = lock.device.legacy if entry.family is Family.LEGACY else lock.device.fingerprint
    if entry.device != wanted:
        raise _refused(_place(entry), f"an entry of the device {wanted}", str(entry.device))


def _place(entry: TuningEntry) -> Place:
    return Place(entry.source.path, entry=entry.source.index)


def _refused(place: Place, expected: str, found: str) -> TuningFormatError:
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


# Writing.


def written(lock: Lock) -> str:
    """The file's text.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    device = lock.device
    head = {
        **{"device": device.text, "name": device.name, "cudnn": device.dnn_version, "cuda": device.runtime_version},
        **{"build": lock.build, "family": lock.family.value, "fusions": str(len(lock.entries))},
    }
    lines = [_FIRST, _NOTE, *(_line(word, head[word]) for word in _HEAD if head[word] or word not in _MAY_LACK)]
    for entry in lock.entries:
        lines += ["", f"fusion {fusion_id(entry)}"]
        lines += [f"  {_line(word, value)}" for word, value in _block(entry, lock.says.get(entry.fusion or "", ""))]
    return "\n".join(lines) + "\n"


def _line(word: str, value: str) -> str:
    return f"{word} {_escaped(value)}" if value else word


def _block(entry: TuningEntry, says: str) -> Iterator[tuple[str, str]]:
    told = entry.versions
    if says:
        yield "says", says
    if entry.family is Family.LEGACY:
        yield from (("|", line) for line in (entry.fusion or "").split("\n"))
    yield "backend", entry.backend
    config, is_whole = _config_text(entry.config, _CONFIGS[entry.family])
    yield "config", config
    if not is_whole:
        yield "bytes", entry.config.hex()
    if entry.rest:
        yield "rest", entry.rest.hex()
    if entry.family is Family.LEGACY:
        yield "version", str(told.entry)
    more = (told.backend, told.codegen, told.codegen_options, told.explicit)
    yield from ((word, value) for word, value in zip(_WORDS[Family.NEW][-4:], more, strict=True) if value)


def _config_text(config: bytes, name: str) -> tuple[str, bool]:
    """The configuration in one line, and whether the line has all of it.

    What an Any holds is written out where nothing is lost by that.
    """
    message = message_class(name).FromString(config)
    for types in (pool(), module("descriptor_pool").DescriptorPool()):
        line = str(
            module("text_format").MessageToString(message, as_utf8=False, as_one_line=True, descriptor_pool=types)
        ).strip()
        if _config_bytes(line, name) == config:
            return line, True
    return line, False


def _config_bytes(line: str, name: str) -> bytes:
    """What a line of configuration comes to.

    Raises:
      TuningFormatError: it is none.
    """
    data: bytes = text.parse(line.encode(), name).SerializeToString(deterministic=True)
    return data


def _escaped(value: str) -> str:
    return "".join(
        letter if letter.isprintable() and letter != "\\" else letter.encode("unicode_escape").decode()
        for letter in value
    )


def _utf8(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


# Reading.


def read(path: Path) -> Lock:
    """Read a lock file.

    Raises:
      TuningFormatError: it cannot be read, or a line is not as it should be; the finding has file and line.
      MissingLibraryError: protobuf is not there.
    """
    return parsed(files.read(str(path), LARGEST, follow=True), path)


def parsed(data: bytes, path: Path) -> Lock:
    """The lock that a file's bytes are; `path` is for the errors.

    Raises:
      TuningFormatError: see `read`.
    """
    try:
        lines = _Lines(data.decode(), path)
    except UnicodeDecodeError as wrong:
        place = Place(str(path), line=data.count(b"\n", 0, wrong.start) + 1)
        raise _refused(place, "UTF-8", f"byte {data[wrong.start]:#04x}") from None
    head = _head(lines)
    entries: list[TuningEntry] = []
    says: dict[str, str] = {}
    while lines.word == "fusion":
        entry, line = _entry(lines, head, len(entries) + 1)
        entries.append(entry)
        if line:
            says[entry.fusion or ""] = line
    if lines.word:
        raise lines.wrong("a line 'fusion ...', or the end")
    if len(entries) != head.count:
        raise _refused(
            Place(str(path)), f"{head.count} fusions, as its head says", f"{len(entries)}: a part is lacking"
        )
    lock = Lock(head.device, head.build, tuple(entries), says)
    _as_written(lock, lines)
    return lock


def _as_written(lock: Lock, lines: _Lines) -> None:
    wanted = [line for line in written(lock).split("\n") if _says_something(line)]
    for line, (number, found) in zip(wanted, lines.taken, strict=False):
        if line != found and _told_config(line) != _told_config(found):
            expected = f"{line.strip()!r}, as it is written (blocks in the order of their fusions)"
            raise _refused(Place(str(lines.path), line=number), expected, found)
    if len(wanted) != len(lines.taken):  # a line without a value in the last block
        place = Place(str(lines.path), line=lines.taken[-1][0])
        raise _refused(place, f"{len(wanted)} lines that say something, as it is written", f"{len(lines.taken)}")


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _told_config(line: str) -> str:
    """A line without the blanks that libraries for protobuf may put otherwise; other lines as they are."""
    return line.replace(" ", "") if line.startswith("  config ") else line


class _Lines:
    """The lines that say something, one at a time: `word` and `value` of the one that is next; "" at the end."""

    def __init__(self, told: str, path: Path) -> None:
        self.path = path
        self.number = 0
        self.taken: list[tuple[int, str]] = []
        # Not splitlines(): a value may hold what Unicode calls the end of a line only in its escaped form.
        self._lines = iter(told.split("\n"))
        self.line = self.word = self.value = ""
        self.advance()

    def advance(self) -> None:
        for line in self._lines:
            self.number += 1
            if _says_something(line):
                self.line = line
                self.taken.append((self.number, line))
                self.word, _, value = line.removeprefix("  ").partition(" ")
                self.value = self._unescaped(value)
                return
        self.line = self.word = self.value = ""

    @property
    def is_inner(self) -> bool:
        return self.line.startswith("  ")

    @property
    def place(self) -> Place:
        return Place(str(self.path), line=self.number)

    def take(self) -> str:
        value = self.value
        self.advance()
        return value

    def wrong(self, expected: str) -> TuningFormatError:
        return _refused(self.place, expected, self.line or "the end of the file")

    def _unescaped(self, value: str) -> str:
        made = _ESCAPE.sub(lambda found: found[0].encode().decode("unicode_escape"), value)
        if _escaped(made) != value:
            raise self.wrong("a value whose backslashes and unprintable letters are escaped (and lines that end in LF)")
        return made


@dataclass(frozen=True, slots=True)
class _Head:
    device: Device
    build: str
    family: Family
    count: int

    @property
    def key(self) -> str:
        return self.device.legacy if self.family is Family.LEGACY else self.device.fingerprint


def _head(lines: _Lines) -> _Head:
    if lines.line != _FIRST:
        raise lines.wrong(f"{_FIRST!r}: a lock file of a version that this rewarm reads")
    lines.advance()
    told, places = {}, {}
    for word in _HEAD:
        if lines.word == word and not lines.is_inner:
            places[word] = lines.place
            told[word] = lines.take()
        elif word not in _MAY_LACK:
            raise lines.wrong(f"a line {word!r}")
    if told["family"] not in list(Family):
        raise _refused(places["family"], "new or legacy", told["family"])
    if not re.fullmatch("[1-9][0-9]{0,8}", told["fusions"]):
        raise _refused(places["fusions"], "the number of fusions", told["fusions"])
    device = Device(told["device"], told.get("cudnn", ""), told.get("cuda", ""), told.get("name", ""))
    return _Head(device, told["build"], Family(told["family"]), int(told["fusions"]))


def _entry(lines: _Lines, head: _Head, number: int) -> tuple[TuningEntry, str]:
    place, named = lines.place, lines.take()
    told, places = _told(lines, head.family)
    lacking = next((word for word in _NEEDED[head.family] if word not in told), None)
    if lacking is not None:
        raise _refused(place, f"a line {lacking!r} for the fusion {named}", "none")
    fusion = told["|"] if head.family is Family.LEGACY else named
    made = TuningEntry(
        head.family,
        head.key,
        fusion,
        told["backend"],
        _config(told, places, head.family),
        _versions(told, places),
        rest=_hex(told, places, "rest"),
        source=Source(str(lines.path), number, f"line {place.line}"),
    )
    if fusion_id(made) != named or (head.family is Family.NEW and not keys.is_fusion(named)):
        raise _refused(place, f"the fusion {fusion_id(made)}, after its text", named)
    _consistent(made, places)
    return made, told.get("says", "")


def _told(lines: _Lines, family: Family) -> tuple[dict[str, str], dict[str, Place]]:
    """The lines of one block by their words, which come in one order and once; those of a text are put together."""
    told: dict[str, str] = {}
    places: dict[str, Place] = {}
    left = list(_WORDS[family])
    while lines.is_inner:
        word = lines.word
        if word == "|" and word in told and left and left[0] == "backend":
            told[word] += "\n" + lines.take()
            continue
        if word not in left:
            raise lines.wrong(f"one of {', '.join(left)}, in this order" if left else "the next fusion")
        del left[: left.index(word) + 1]
        places[word] = lines.place
        told[word] = lines.take()
    return told, places


def _config(told: Mapping[str, str], places: Mapping[str, Place], family: Family) -> bytes:
    name = _CONFIGS[family]
    try:
        said = _config_bytes(told["config"], name)
    except TuningFormatError as wrong:
        raise _refused(
            places["config"], f"a configuration as text, {wrong.finding.expected}", wrong.finding.found
        ) from None
    if "bytes" not in told:
        return said
    whole = _hex(told, places, "bytes")
    message = _message(whole, name, places["bytes"])
    message.DiscardUnknownFields()
    if message.SerializeToString(deterministic=True) != said:
        raise _refused(places["bytes"], "the bytes of the configuration above them", "those of another")
    return whole


def _message(data: bytes, name: str, place: Place) -> Any:
    try:
        return message_class(name).FromString(data)
    except Exception as wrong:  # noqa: BLE001 - the library's own error, whose class is in a module of the library
        raise _refused(place, f"the bytes of a message {name}", str(wrong)) from None


def _hex(told: Mapping[str, str], places: Mapping[str, Place], word: str) -> bytes:
    value = told.get(word, "")
    if not re.fullmatch("(?:[0-9a-f]{2})*", value):
        raise _refused(places[word], "pairs of lower-case hexadecimal digits", value)
    return bytes.fromhex(value)


def _versions(told: Mapping[str, str], places: Mapping[str, Place]) -> Versions:
    version = told.get("version", "0")
    if not re.fullmatch("0|-?[1-9][0-9]{0,9}", version):
        raise _refused(places["version"], "a number", version)
    backend, codegen, options, explicit = (told.get(word, "") for word in _WORDS[Family.NEW][-4:])
    return Versions(int(version), explicit, codegen, options, backend)


def _consistent(entry: TuningEntry, places: Mapping[str, Place]) -> None:
    """Whether the backend that people read is the one that XLA takes."""
    if entry.family is Family.LEGACY:
        wanted = records.legacy_backend(records.to_result(entry), entry.fusion)
        if wanted != entry.backend:
            raise _refused(places["backend"], f"the backend {wanted or '(none)'} of its configuration", entry.backend)
        return
    try:
        records.backend_number(entry.backend)
    except ValueError as wrong:
        raise _refused(places["backend"], "a backend of XLA's", str(wrong)) from None
