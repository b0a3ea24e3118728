"""Entries to files and directories.

Not promised: that XLA will serve them; `validate` with the build says that. Nothing is written that would be read as
something else, and nothing is lost unless `lossy` allows it.

Files are written whole and synced, with the modes given (`files`). Two writers of one place do not mix: of one file the
later wins, and the files of a directory are each one writer's. A directory is not cleared first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rewarm.autotune.formats import binary, files, keys, records, text
from rewarm.autotune.formats.builds import FILE_VERSION
from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Finding, Place, error
from rewarm.autotune.formats.model import Family, Format, Header, TuningEntry
from rewarm.autotune.formats.protobuf import Message
from rewarm.autotune.formats.reading import is_text_name
from rewarm.small_files import PRIVATE, Modes

_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def write(
    entries: Iterable[TuningEntry],
    path: Path,
    format: Format,  # noqa: A002 - the field's own word
    *,
    header: Header | None = None,
    modes: Modes = PRIVATE,
    lossy: bool = False,
) -> int:
    """Write entries; returns how many.

    Args:
      header: what a results or cache file says beside them; by default the known version, and no scope.
      modes: rights of files, and of folders that are made.
      lossy: whether fields that are not known may be left out of text.

    Raises:
      TuningFormatError: an entry cannot be in this format; nothing is written then.
      OSError: something cannot be written. In a directory some files may be, each whole.
    """
    made = list(contents(entries, path, format, header=header, lossy=lossy))
    files.write_all(((where, data) for where, data, _ in made), modes)
    return sum(count for _, _, count in made)


def contents(
    entries: Iterable[TuningEntry],
    path: Path,
    format: Format,  # noqa: A002
    *,
    header: Header | None = None,
    lossy: bool = False,
) -> Iterator[tuple[Path, bytes, int]]:
    """Each file that `write` would make: where, its bytes, and how many entries are in it.

    Raises:
      TuningFormatError: an entry cannot be in this format.
    """
    listed = list(entries)
    for entry in listed:
        if entry.family is not format.family:
            raise TuningFormatError(_refused("other-family", entry, f"an entry of the {format.family} family"))
    if format.files in (Format.LEGACY_FUSION, Format.NEW_FUSION):
        yield from _folder(listed, path, format, lossy=lossy)
    else:
        yield path, _file(listed, path, format, header, lossy=lossy), len(listed)


def serialised(entry: TuningEntry, *, lossy: bool = False) -> bytes:
    """What a file of a directory holds for one entry.

    Raises:
      TuningFormatError: it cannot be written; see `write`.
    """
    if entry.family is Family.LEGACY:
        return _text(records.to_result(entry), _place(entry), lossy=lossy)
    return _binary(_record(entry))


def lost(entries: Iterable[TuningEntry], format: Format) -> Iterator[Finding]:  # noqa: A002
    """What is lost of entries where `lossy` allows it: fields that are not known, which text has no names for.

    Of a legacy directory's files some have no room for such a field at all: they hold the result of an entry alone.

    Raises:
      TuningFormatError: an entry cannot be written.
    """
    if not format.is_text:
        return
    for entry in entries:
        record = records.to_legacy(entry) if entry.family is Family.LEGACY else _record(entry)
        for said in dict.fromkeys(binary.unknown_fields(record)):
            expected = f"only fields that are known: {format.value} has no place for others"
            yield error("unknown-field", _place(entry), expected, said)


def unknown_in_header(header: Header, family: Family) -> tuple[str, ...]:
    """Fields of a file that are not known, in words."""
    return tuple(dict.fromkeys(binary.unknown_fields(records.file_of([], header, family))))


def fusion_path(entry: TuningEntry) -> str:
    """Where in a directory an entry's file lies, with "/" between the parts.

    Raises:
      TuningFormatError: the entry does not say, or says what would lead out of the directory.
    """
    if entry.family is Family.LEGACY:
        return f"{_digest(entry)}.textproto"
    if not keys.is_device(entry.device or "") or not keys.is_fusion(entry.fusion or ""):
        expected = "a device of 16 hexadecimal digits and a fusion of 32"
        raise TuningFormatError(error("no-place", _place(entry), expected, f"{entry.device!r} and {entry.fusion!r}"))
    explicit = entry.versions.explicit
    if explicit and (explicit.startswith(".") or not _SAFE.issuperset(explicit)):
        expected = "an explicit version of letters, digits, '.', '_' and '-', without a '.' in front"
        raise TuningFormatError(error("no-place", _place(entry), expected, repr(explicit)))
    return "/".join(part for part in (entry.device, explicit, f"{entry.fusion}.pb") if part)


def _digest(entry: TuningEntry) -> str:
    if entry.device is not None and entry.fusion is not None:
        if not entry.versions.entry:
            expected = "an entry version, which the file's name depends on (convert with the build sets it)"
            raise TuningFormatError(error("no-place", _place(entry), expected, "version 0"))
        return keys.legacy_digest(entry.device, entry.fusion, entry.versions.entry)
    if not keys.is_legacy_digest(entry.digest):
        expected = "device and fusion, or the digest of both"
        raise TuningFormatError(error("no-place", _place(entry), expected, f"digest {entry.digest!r}"))
    return entry.digest


def _folder(
    entries: list[TuningEntry],
    path: Path,
    format: Format,  # noqa: A002
    *,
    lossy: bool,
) -> Iterator[tuple[Path, bytes, int]]:
    seen: set[str] = set()
    for entry in entries:
        place = fusion_path(entry)
        if place in seen or (seen and not format.is_directory):
            raise TuningFormatError(_refused("one-place", entry, f"one entry for {place}"))
        seen.add(place)
        where = path / place if format.is_directory else path
        yield where, serialised(entry, lossy=lossy), 1


def _file(
    entries: list[TuningEntry],
    path: Path,
    format: Format,  # noqa: A002
    header: Header | None,
    *,
    lossy: bool,
) -> bytes:
    if not entries:
        raise TuningFormatError(error("header-only", Place(str(path)), "entries to write", "none"))
    if format.is_text != is_text_name(path.name):
        kind = "text" if format.is_text else "binary"
        raise TuningFormatError(error("name", Place(str(path)), f"a name that XLA takes for {kind}", path.name))
    for entry in entries:
        if entry.family is Family.LEGACY and (entry.device is None or entry.fusion is None):
            expected = "device and fusion, which a results file says and a file of a directory does not"
            raise TuningFormatError(_refused("no-key", entry, expected))
        if entry.family is Family.NEW:
            _record(entry)
    told = header or (Header(version=FILE_VERSION) if format.family is Family.LEGACY else Header())
    message = records.file_of(entries, told, format.family)
    return _text(message, Place(str(path)), lossy=lossy) if format.is_text else _binary(message)


def _record(entry: TuningEntry) -> Message:
    try:
        return records.to_new(entry)
    except ValueError as wrong:
        raise TuningFormatError(error("backend", _place(entry), "a backend of XLA's", str(wrong))) from None


def _binary(message: Message) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def _text(message: Message, place: Place, *, lossy: bool) -> bytes:
    lost = None if lossy else next(binary.unknown_fields(message), None)
    if lost:
        expected = "only fields that are known: text has no names for others (lossy allows it)"
        raise TuningFormatError(error("unknown-field", place, expected, lost))
    return text.print_message(message)


def _place(entry: TuningEntry) -> Place:
    return Place(entry.source.path, entry=entry.source.index)


def _refused(code: str, entry: TuningEntry, expected: str) -> Finding:
    return error(code, _place(entry), expected, f"one of the {entry.family} family, {entry.backend or 'no backend'}")
