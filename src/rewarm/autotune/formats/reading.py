"""Tuning files and directories to entries: `read` and `sniff`.

Not promised: that what is read is sound, only that it is of the format; `validate` says the rest. What is broken is a
finding with its place, and everything else of a directory is still read.

Nothing on disk stops or holds a reader: sizes, depths and counts are bounded (`text`, `binary`, `MOST_ENTRIES`,
`LARGEST_FUSION`), and FIFOs, devices, links and folders in a file's place are findings (`files`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rewarm.autotune.formats import binary, files, keys, records, text
from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Finding, Place, Severity, error, info, warning
from rewarm.autotune.formats.model import Family, Format, Header, Source, TuningEntry
from rewarm.autotune.formats.protobuf import Message

# One file of a directory; the largest that was seen has less than a kilobyte.
LARGEST_FUSION = 1 << 20
MOST_ENTRIES = 200_000

# Bytes of a torn file that must make sense before it is called one.
_ENOUGH = 8

TEXT_NAMES = (".txt", ".txtpb", ".textproto", ".prototxt", ".pbtxt")

_MESSAGES = {
    Format.LEGACY_TEXT: records.RESULTS,
    Format.LEGACY_BINARY: records.RESULTS,
    Format.LEGACY_FUSION: records.RESULT,
    Format.NEW_TEXT: records.CACHE,
    Format.NEW_BINARY: records.CACHE,
    Format.NEW_FUSION: records.ENTRY,
}
_OF_MESSAGES = {
    records.RESULTS: (Format.LEGACY_TEXT, Format.LEGACY_BINARY),
    records.CACHE: (Format.NEW_TEXT, Format.NEW_BINARY),
    records.RESULT: (Format.LEGACY_FUSION, Format.LEGACY_FUSION),
    records.ENTRY: (Format.NEW_FUSION, Format.NEW_FUSION),
}
# By what a text begins with.
_FIRST_NAMES = {
    **dict.fromkeys(("version", "results"), records.RESULTS),
    **dict.fromkeys(("device_scope", "explicit_version_scope", "entries"), records.CACHE),
    **dict.fromkeys(("key", "value"), records.ENTRY),
    **dict.fromkeys(("triton", "gemm", "algorithm", "other", "conv", "cuda_conv_plan"), records.RESULT),
    **dict.fromkeys(("custom_kernel_fusion", "failure", "scratch_bytes", "run_time"), records.RESULT),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read.

    Attributes:
      path: what was named.
      format: what it is; `None` where that cannot be told. Of a directory that holds both families, as JAX's own does
        after an upgrade, the new one.
      entries: in the order of the files, and within a file in its order.
      findings: what is broken or does not belong there.
      header: what a results or cache file says beside its entries.
    """

    path: Path
    format: Format | None
    entries: tuple[TuningEntry, ...] = ()
    findings: tuple[Finding, ...] = ()
    header: Header = field(default_factory=Header)

    @property
    def is_broken(self) -> bool:
        """Whether a finding is an error."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)


def is_text_name(name: str) -> bool:
    """Whether XLA takes a results or cache file of this name for text."""
    return name.endswith(TEXT_NAMES)


def sniff(path: Path) -> Format | None:
    """What lies there, by its content; `None` where that cannot be told (empty, broken, foreign).

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    if _is_folder(path):
        return _sniff_folder(str(path))
    try:
        told = _told(files.read(str(path), binary.LARGEST, follow=True), path.name, None)
    except TuningFormatError:
        return None
    return told.format if told and told.is_whole else None


def read(path: Path, format: Format | None = None) -> Reading:  # noqa: A002 - the field's own word
    """Read a file or a directory; by default as what it is.

    Args:
      format: what it is meant to be: another one is a finding, and is read all the same where it can be told.

    Raises:
      MissingLibraryError: protobuf is not there. All else is in the findings.
    """
    path = Path(path)
    if _is_folder(path):
        return _read_folder(path, format)
    try:
        data = files.read(str(path), binary.LARGEST, follow=True)
    except TuningFormatError as wrong:
        return Reading(path, format, findings=(wrong.finding,))
    return read_bytes(data, path, format)


def read_bytes(data: bytes, path: Path, format: Format | None = None) -> Reading:  # noqa: A002
    """Read the content of a file; its name says what XLA would take it for.

    Raises:
      MissingLibraryError: protobuf is not there. All else is in the findings.
    """
    place = Place(str(path))
    if not data.strip():
        return Reading(path, format, findings=(error("empty", place, "entries", _blank(data)),))
    findings: list[Finding] = []
    try:
        told = _told(data, path.name, format)
    except TuningFormatError as wrong:
        return Reading(path, format, findings=(wrong.finding.at(str(path)),))
    if told is None:
        return Reading(path, format, findings=(_foreign(data, path),))
    findings += _wrong_form(told, path, format)
    try:
        return _of_message(_parsed(data, told), path, told.format, findings)
    except TuningFormatError as wrong:
        return Reading(path, told.format, findings=(*findings, wrong.finding.at(str(path))))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a folder on the way may not be looked into; reading says so
        return False


def _blank(data: bytes) -> str:
    return "an empty file" if not data else f"{len(data)} bytes of blanks"


class _Told(NamedTuple):
    """What some bytes are. Those that are not whole do not parse, and are what they most likely were."""

    format: Format
    is_text: bool
    is_whole: bool = True


def _parsed(data: bytes, told: _Told) -> Message:
    name = _MESSAGES[told.format.files]
    return text.parse(data, name) if told.is_text else binary.parse(data, name)


def _told(data: bytes, name: str, wanted: Format | None) -> _Told | None:
    """Text has names, so its first one tells. Binary has none: the message that makes the most sense of the bytes.

    A binary file can begin as a text does, since a length can be a letter; but it has control characters.

    Raises:
      TuningFormatError: there is more in them than is ever looked at.
    """
    first = text.first_name(data)
    by_name = _OF_MESSAGES[_FIRST_NAMES[first]][0] if first in _FIRST_NAMES else None
    if text.looks_like_text(data):
        return _Told(by_name, is_text=True) if by_name else None
    if text.looks_like_json(data):
        return None
    scores, reached = _scores(data, name, wanted)
    if scores:
        return _Told(_OF_MESSAGES[min(scores, key=scores.__getitem__)][1], is_text=False)
    if by_name:
        return _Told(by_name, is_text=True, is_whole=False)
    if wanted:
        return _Told(wanted.files, wanted.is_text, is_whole=False)
    best = max(reached, key=reached.__getitem__)
    return _Told(_OF_MESSAGES[best][1], is_text=False, is_whole=False) if reached[best] >= _ENOUGH else None


def _scores(data: bytes, name: str, wanted: Format | None) -> tuple[dict[str, int], dict[str, int]]:
    """Of each message how strange the bytes would be as one, and of those that they are not how far they go (bytes).

    Raises:
      TuningFormatError: there is more in them than is ever looked at.
    """
    order = [records.RESULTS, records.CACHE, records.ENTRY, records.RESULT]
    if keys.is_fusion(name.removesuffix(".pb")):
        order.insert(0, records.ENTRY)
    if wanted:
        order.insert(0, _MESSAGES[wanted.files])
    scores: dict[str, int] = {}
    reached: dict[str, int] = {}
    for one in dict.fromkeys(order):
        try:
            message = binary.parse(data, one)
            # Bytes of which no field is known are no such message.
            if message.ListFields():
                scores[one] = binary.strangeness(message)
        except TuningFormatError as wrong:
            if wrong.finding.code != "binary":
                raise
            reached[one] = max(0, wrong.finding.place.offset)
        if scores.get(one) == 0:  # of two that make as much sense the first is taken
            break
    return scores, reached or {records.RESULTS: 0}


def _foreign(data: bytes, path: Path) -> Finding:
    first = text.first_name(data)
    if first == "logs":
        found = "a log of autotuning (xla_gpu_dump_autotune_logs_to), which holds no results that XLA reads"
    elif text.looks_like_json(data):
        found = f"a text that begins with {data.lstrip()[:1].decode()!r}, as JSON does"
    else:
        found = f"a text that begins with {first!r}" if first else f"bytes that begin with {data[:8].hex(' ')}"
    return error("foreign", Place(str(path), offset=0), "a tuning file of XLA's", found)


def _wrong_form(told: _Told, path: Path, wanted: Format | None) -> Iterator[Finding]:
    """Text in a binary's place, and the other way round; another format than was asked for."""
    place, is_text, one = Place(str(path)), told.is_text, told.format.files
    if wanted and _MESSAGES[wanted.files] != _MESSAGES[one]:
        yield error("other-format", place, wanted.value, told.format.value)
    if one is Format.NEW_FUSION:
        if is_text:
            yield error("text-where-binary", place, "a binary AutotuneEntry: XLA reads no text here", "text")
    elif one is Format.LEGACY_FUSION:
        if not is_text:
            yield error("binary-where-text", place, "a text AutotuneResult: XLA reads no binary here", "a binary file")
    elif is_text and not is_text_name(path.name):
        make = error if one.family is Family.LEGACY else info
        expected = f"a name that XLA takes for text ({' '.join(TEXT_NAMES)})"
        yield make("text-under-binary-name", place, expected, path.name)
    elif not is_text and is_text_name(path.name):
        yield error("binary-under-text-name", place, "text, by its name", "a binary file")


def _of_message(message: Message, path: Path, told: Format, findings: list[Finding]) -> Reading:
    place = Place(str(path))
    findings += _unknown(message, path)
    if told.files is Format.LEGACY_FUSION:
        entry = records.from_result(message, path.name.removesuffix(".textproto"), Source(str(path), 1))
        return Reading(path, told, (entry,), tuple(findings))
    if told.files is Format.NEW_FUSION:
        return Reading(path, told, (records.from_new(message, Source(str(path), 1)),), tuple(findings))
    header = records.header_of(message, told.family)
    found, make = _records(message, told.family)
    if not found:
        findings.append(error("header-only", place, "entries", "a file with nothing but what stands before them"))
    if len(found) > MOST_ENTRIES:
        findings.append(error("too-many", place, f"at most {MOST_ENTRIES} entries", str(len(found))))
        return Reading(path, told, (), tuple(findings), header)
    entries = tuple(make(record, Source(str(path), index)) for index, record in enumerate(found, start=1))
    return Reading(path, told, entries, tuple(findings), header)


def _records(message: Message, family: Family) -> tuple[list[Message], Callable[[Message, Source], TuningEntry]]:
    if family is Family.LEGACY:
        return list(message.results), records.from_legacy
    return list(message.entries), records.from_new


def _unknown(message: Message, path: Path) -> Iterator[Finding]:
    """Fields that are not in the schema, once for each kind."""
    for said in dict.fromkeys(binary.unknown_fields(message)):
        expected = "fields that are known (it is kept in binary files, and would be lost in text)"
        yield info("unknown-field", Place(str(path)), expected, said)


def _sniff_folder(folder: str) -> Format | None:
    try:
        names = [(one.name, one.is_dir(follow_symlinks=False)) for one in files.listed(folder)]
    except TuningFormatError:
        return None
    if any(is_folder and keys.is_device(name) for name, is_folder in names):
        return Format.NEW_DIRECTORY
    return Format.LEGACY_DIRECTORY if any(_is_legacy_name(name) for name, is_folder in names if not is_folder) else None


def _is_legacy_name(name: str) -> bool:
    return name.endswith(".textproto") and not name.startswith(".")


def _read_folder(path: Path, wanted: Format | None) -> Reading:
    walk = _Folder()
    try:
        walk.top(str(path), wanted)
    except TuningFormatError as wrong:
        walk.findings.append(wrong.finding)
    told = _sniff_folder(str(path))
    if wanted and told and told is not wanted:
        walk.findings.append(error("other-format", Place(str(path)), wanted.value, told.value))
    if not walk.entries and not any(finding.severity is Severity.ERROR for finding in walk.findings):
        walk.findings.append(error("empty", Place(str(path)), "entries", "a folder without any"))
    return Reading(path, told or wanted, tuple(walk.entries), tuple(walk.findings))


class _Folder:
    """A directory, read file by file."""

    def __init__(self) -> None:
        self.entries: list[TuningEntry] = []
        self.findings: list[Finding] = []

    def top(self, folder: str, wanted: Format | None) -> None:
        """Files of the legacy family, and folders of devices of the new one."""
        for one in files.listed(folder):
            if one.is_dir(follow_symlinks=False):
                # XLA keeps files that are being written in "tmp".
                if keys.is_device(one.name):
                    self._new(one.path, deep=True)
                elif one.name != "tmp":
                    self._stray(one.path, "folders of devices (16 hexadecimal digits)", "another folder")
            elif _is_legacy_name(one.name) and wanted is not Format.NEW_DIRECTORY:
                self._file(one, Format.LEGACY_FUSION)
            else:
                self._other(one)

    def _new(self, folder: str, *, deep: bool) -> None:
        """A device's folder; one level deeper lie those of explicit versions."""
        try:
            found = list(files.listed(folder))
        except TuningFormatError as wrong:
            self.findings.append(wrong.finding)
            return
        for one in found:
            if one.is_dir(follow_symlinks=False) and deep and not one.name.startswith("."):
                self._new(one.path, deep=False)
            elif one.name.endswith(".pb") and not one.name.startswith("."):
                self._file(one, Format.NEW_FUSION)
            else:
                self._other(one)

    def _file(self, one: os.DirEntry[str], wanted: Format) -> None:
        if len(self.entries) >= MOST_ENTRIES:
            raise TuningFormatError(error("too-many", Place(one.path), f"at most {MOST_ENTRIES} entries", "more"))
        try:
            data = files.read(one.path, LARGEST_FUSION)
        except TuningFormatError as wrong:
            self.findings.append(_link_or(one, wrong.finding))
            return
        reading = read_bytes(data, Path(one.path), wanted)
        self.findings += reading.findings
        if reading.format and reading.format is wanted:
            self.entries += reading.entries

    def _other(self, one: os.DirEntry[str]) -> None:
        """What is being written, by XLA or by rewarm, has a dot in front."""
        if one.is_symlink() and keys.is_device(one.name):
            self.findings.append(_link_or(one, error("not-a-file", Place(one.path), "a folder", "a link")))
        elif not one.name.startswith("."):
            self._stray(one.path, "tuning files", "another file")

    def _stray(self, path: str, expected: str, found: str) -> None:
        self.findings.append(info("stray", Place(path), expected, found))


def _link_or(one: os.DirEntry[str], finding: Finding) -> Finding:
    if one.is_symlink():
        expected = "a file or folder of its own (XLA follows links inside a folder, rewarm does not)"
        return warning("link", finding.place, expected, "a link")
    return finding


def with_keys(entries: tuple[TuningEntry, ...], known: Iterator[tuple[str, str, int]]) -> tuple[TuningEntry, ...]:
    """Entries of a legacy directory with the device and fusion that their names are digests of.

    Args:
      known: (device text, HLO text, entry version) of keys that may be among them.
    """
    by_digest = {keys.legacy_digest(*key): key for key in known}
    return tuple(_named(entry, by_digest.get(entry.digest)) for entry in entries)


def _named(entry: TuningEntry, key: tuple[str, str, int] | None) -> TuningEntry:
    if key is None or entry.family is not Family.LEGACY:
        return entry
    device, fusion, version = key
    backend = records.legacy_backend(records.to_result(entry), fusion)
    versions = replace(entry.versions, entry=version)
    return replace(entry, device=device, fusion=fusion, backend=backend, versions=versions, digest="")
