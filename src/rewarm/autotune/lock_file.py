"""The lock file: a program's tuning, pinned in one text file that people review.

Not promised: that the file can be edited. It is made: what cannot be read as it was meant is an error with its line,
and nothing of the file is used then.

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
but for the blanks in a configuration: what people review is then what is used ("block_m: 0200" would be 128). Sections
that follow (`lock_sections.py`) are others' and are left as they are. Bump the number when a line changes its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewarm import lock_sections
from rewarm.autotune.formats import files, keys, records, text
from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Place
from rewarm.autotune.formats.keys import Device
from rewarm.autotune.formats.model import Family, Source, TuningEntry, Versions
from rewarm.autotune.formats.protobuf import message_class, module, pool
from rewarm.autotune.lock import Lock, fusion_id, refused

LARGEST = 64 << 20
_FIRST = lock_sections.FIRST
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
        lines = _Lines(lock_sections.split(data.decode()).main, path)
    except UnicodeDecodeError as wrong:
        place = Place(str(path), line=data.count(b"\n", 0, wrong.start) + 1)
        raise refused(place, "UTF-8", f"byte {data[wrong.start]:#04x}") from None
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
        raise refused(Place(str(path)), f"{head.count} fusions, as its head says", f"{len(entries)}: a part is lacking")
    lock = Lock(head.device, head.build, tuple(entries), says)
    _as_written(lock, lines)
    return lock


def _as_written(lock: Lock, lines: _Lines) -> None:
    wanted = [line for line in written(lock).split("\n") if _says_something(line)]
    for line, (number, found) in zip(wanted, lines.taken, strict=False):
        if line != found and _told_config(line) != _told_config(found):
            expected = f"{line.strip()!r}, as it is written (blocks in the order of their fusions)"
            raise refused(Place(str(lines.path), line=number), expected, found)
    if len(wanted) != len(lines.taken):  # a line without a value in the last block
        place = Place(str(lines.path), line=lines.taken[-1][0])
        raise refused(place, f"{len(wanted)} lines that say something, as it is written", f"{len(lines.taken)}")


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
        return refused(self.place, expected, self.line or "the end of the file")

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
        raise refused(places["family"], "new or legacy", told["family"])
    if not re.fullmatch("[1-9][0-9]{0,8}", told["fusions"]):
        raise refused(places["fusions"], "the number of fusions", told["fusions"])
    device = Device(told["device"], told.get("cudnn", ""), told.get("cuda", ""), told.get("name", ""))
    return _Head(device, told["build"], Family(told["family"]), int(told["fusions"]))


def _entry(lines: _Lines, head: _Head, number: int) -> tuple[TuningEntry, str]:
    place, named = lines.place, lines.take()
    told, places = _told(lines, head.family)
    lacking = next((word for word in _NEEDED[head.family] if word not in told), None)
    if lacking is not None:
        raise refused(place, f"a line {lacking!r} for the fusion {named}", "none")
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
        raise refused(place, f"the fusion {fusion_id(made)}, after its text", named)
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
        raise refused(
            places["config"], f"a configuration as text, {wrong.finding.expected}", wrong.finding.found
        ) from None
    if "bytes" not in told:
        return said
    whole = _hex(told, places, "bytes")
    message = _message(whole, name, places["bytes"])
    message.DiscardUnknownFields()
    if message.SerializeToString(deterministic=True) != said:
        raise refused(places["bytes"], "the bytes of the configuration above them", "those of another")
    return whole


def _message(data: bytes, name: str, place: Place) -> Any:
    try:
        return message_class(name).FromString(data)
    except Exception as wrong:  # noqa: BLE001 - the library's own error, whose class is in a module of the library
        raise refused(place, f"the bytes of a message {name}", str(wrong)) from None


def _hex(told: Mapping[str, str], places: Mapping[str, Place], word: str) -> bytes:
    value = told.get(word, "")
    if not re.fullmatch("(?:[0-9a-f]{2})*", value):
        raise refused(places[word], "pairs of lower-case hexadecimal digits", value)
    return bytes.fromhex(value)


def _versions(told: Mapping[str, str], places: Mapping[str, Place]) -> Versions:
    version = told.get("version", "0")
    if not re.fullmatch("0|-?[1-9][0-9]{0,9}", version):
        raise refused(places["version"], "a number", version)
    backend, codegen, options, explicit = (told.get(word, "") for word in _WORDS[Family.NEW][-4:])
    return Versions(int(version), explicit, codegen, options, backend)


def _consistent(entry: TuningEntry, places: Mapping[str, Place]) -> None:
    """Whether the backend that people read is the one that XLA takes."""
    if entry.family is Family.LEGACY:
        wanted = records.legacy_backend(records.to_result(entry), entry.fusion)
        if wanted != entry.backend:
            raise refused(places["backend"], f"the backend {wanted or '(none)'} of its configuration", entry.backend)
        return
    try:
        records.backend_number(entry.backend)
    except ValueError as wrong:
        raise refused(places["backend"], "a backend of XLA's", str(wrong)) from None
