"""What lies in a folder that XLA is given: looked at file by file, and remembered, so that only what changed is read.

Not promised: that a file is what it was when it was read. One is taken for unchanged while its name, size, mtime, ctime
and inode are: whoever edits one in place cannot set its ctime back, so only a change within one tick of the file
system's clock after the reading (4 ms, or what it keeps) is not seen.

    <place>/checked.json    {"version": 2, "files": {path: [size, mtime in ns, ctime in ns, inode, digest, is kept]}},
                            the paths below xla/

"is kept" says that the result lies in an entry of the store, too (`batches.py`). The file is disposable: without it all
is read again, and results are kept once more.

Races, and their worst outcome: a file that is replaced between the look and the reading is remembered as the older one,
so it is read again next time.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rewarm import small_files
from rewarm.autotune.formats import files, keys
from rewarm.autotune.formats.builds import Build
from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Place as Where
from rewarm.autotune.formats.findings import Severity, error
from rewarm.autotune.formats.model import Format, TuningEntry
from rewarm.autotune.formats.reading import LARGEST_FUSION, Reading, read_bytes, with_keys
from rewarm.autotune.formats.validation import validate
from rewarm.small_files import Modes

NAME = "checked.json"
VERSION = 2
_BYTES = 64 << 20

# Where XLA keeps files while it writes them; what lies in it is never read as a result.
TEMPORARY = "tmp"


# What a build that is not known may have, and those that are have not: no reason to take it away from XLA.
_OF_BUILDS = frozenset(
    ("backend", "no-config", "other-config", "config-of-other-backend", "field-of-other-build", "split-k")
)


class Seen(NamedTuple):
    """A file that was read and found sound.

    Attributes:
      size: bytes.
      mtime, ctime: nanoseconds since the epoch; of the content, and of whatever changed last.
      inode: its number.
      digest: SHA-256 of its content, hexadecimal.
      kept: its result lies in an entry of the store.
    """

    size: int
    mtime: int
    ctime: int
    inode: int
    digest: str
    kept: bool = False

    @classmethod
    def of(cls, status: os.stat_result, digest: str) -> Seen:
        """A file that had this status before it was read, or was just written."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, digest)

    def is_of(self, status: os.stat_result) -> bool:
        """Whether the file still is what was read."""
        return self[:4] == (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class Bad(NamedTuple):
    """Something that XLA must not see: its path below the folder, and why, in words."""

    path: str
    why: str


class Means(NamedTuple):
    """What files are checked against, as far as it is known.

    Attributes:
      build: who reads them.
      device: what they are for.
      fusions: fingerprint of the new formats -> HLO text.
      legacy: name of a legacy file, without ".textproto" -> (device text, HLO text, entry version).
      owners: users whose files and folders are trusted; empty: anybody's are, and a group may write to folders.
    """

    build: Build | None = None
    device: keys.Device | None = None
    fusions: Mapping[str, str] = {}
    legacy: Mapping[str, tuple[str, str, int]] = {}
    owners: frozenset[int] = frozenset()


@dataclass(slots=True)
class Look:
    """What came of looking at a folder.

    Attributes:
      files: the sound ones.
      fresh: the entries of those that had not been read before.
      bad: what is to be moved aside.
      changed: whether anything is to be remembered anew.
    """

    files: dict[str, Seen] = field(default_factory=dict)
    fresh: dict[str, TuningEntry] = field(default_factory=dict)
    bad: list[Bad] = field(default_factory=list)
    changed: bool = False


def look(folder: Path, known: Mapping[str, Seen], means: Means) -> Look:
    """Every file below `folder` that XLA could open, and what stands in such a file's place.

    Raises:
      OSError: a folder cannot be listed.
      MissingLibraryError: protobuf is not there.
    """
    found = Look()
    for path, status in _listed(folder, means):
        seen = known.get(path)
        if seen is not None and stat.S_ISREG(status.st_mode) and seen.is_of(status) and not _foreign(status, means):
            found.files[path] = seen
            continue
        found.changed = True
        why = _in_the_way(path, status, means) or _read(folder, path, status, means, found)
        if why:
            found.bad.append(Bad(path, why))
    found.changed = found.changed or len(found.files) != len(known)
    return found


def digest_of(files_seen: Mapping[str, Seen]) -> str:
    """What one set of results is known by, whatever order they came in: 64 hexadecimal digits; "" for none."""
    if not files_seen:
        return ""
    lines = "".join(f"{path} {files_seen[path].digest}\n" for path in sorted(files_seen))
    return hashlib.sha256(lines.encode()).hexdigest()


def load(place: Path) -> dict[str, Seen]:
    """What is remembered of a place; nothing where it cannot be read."""
    try:
        told = json.loads(small_files.contents(place / NAME, _BYTES))
        rows = told["files"] if told["version"] == VERSION else {}
        return {path: Seen(*row) for path, row in rows.items() if _is_row(row)}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def save(place: Path, files_seen: Mapping[str, Seen], modes: Modes) -> None:
    """Remember.

    Raises:
      OSError: it cannot be written.
    """
    told = {"version": VERSION, "files": files_seen}
    small_files.replace(place / NAME, json.dumps(told, separators=(",", ":")).encode(), modes.file)


def _is_row(row: object) -> bool:
    return (
        isinstance(row, list)
        and [type(one) for one in row] == [int, int, int, int, str, bool]
        and len(row[4]) == hashlib.sha256().digest_size * 2
    )


def format_of(path: str) -> Format | None:
    """What XLA takes a file at this path for; `None`: it never opens it."""
    parts = path.split("/")
    if any(part.startswith(".") for part in parts):
        return None
    if len(parts) == 1:
        return Format.LEGACY_FUSION if path.endswith(".textproto") else None
    is_new = len(parts) <= 3 and keys.is_device(parts[0]) and parts[-1].endswith(".pb")
    return Format.NEW_FUSION if is_new else None


def _listed(folder: Path, means: Means) -> Iterator[tuple[str, os.stat_result]]:
    """Files by their paths, and folders that are none, are links, or are others'; nothing of what XLA is writing."""
    for one, status in _items(folder):
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder and is_folder_name(one.name):
            if not _is_private(Path(one.path), status, means):
                yield one.name, status
            elif one.name != TEMPORARY:
                yield from _device(Path(one.path), one.name, means, deep=True)
        elif format_of(one.name) is not None or (not is_folder and is_folder_name(one.name)):
            yield one.name, status


def _is_private(folder: Path, status: os.stat_result, means: Means) -> bool:
    """Whether nobody else may put files into a folder; one's own is made so. Whoever owns one may swap its files
    between a look and XLA's, whatever is in it now.

    Raises:
      OSError: others may write to it, and that cannot be changed.
    """
    if _foreign(status, means):
        return False
    if means.owners and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        folder.chmod(stat.S_IMODE(status.st_mode) & 0o755)
    return True


def is_folder_name(name: str) -> bool:
    """Whether XLA expects a folder under this name."""
    return name == TEMPORARY or keys.is_device(name)


def _device(folder: Path, above: str, means: Means, *, deep: bool) -> Iterator[tuple[str, os.stat_result]]:
    for one, status in _items(folder):
        path = f"{above}/{one.name}"
        if stat.S_ISDIR(status.st_mode) and deep and not one.name.endswith(".pb") and not one.name.startswith("."):
            if _is_private(Path(one.path), status, means):
                yield from _device(Path(one.path), path, means, deep=False)
            else:
                yield path, status
        elif format_of(path) is not None or stat.S_ISLNK(status.st_mode):
            yield path, status


def _items(folder: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    with os.scandir(folder) as items:
        for one in items:
            try:
                status = one.stat(follow_symlinks=False)
            except FileNotFoundError:  # gone since
                continue
            yield one, status


def _in_the_way(path: str, status: os.stat_result, means: Means) -> str:
    """Why this is no file that XLA may open, whatever is in it; "" where it is one."""
    foreign = _foreign(status, means)
    if foreign and stat.S_ISDIR(status.st_mode):
        return foreign
    if not stat.S_ISREG(status.st_mode):
        return f"expected a regular file, found {files.kind_of(status.st_mode)}"
    if foreign:
        return foreign
    if format_of(path) is None:
        return "expected a folder, found a file"
    return ""


def _foreign(status: os.stat_result, means: Means) -> str:
    """Why a file may be the work of others; "" where it is one's own. Its mode follows from XLA's umask and says
    nothing: the place around it lets nobody in."""
    if means.owners and status.st_uid not in means.owners:
        what = "folder" if stat.S_ISDIR(status.st_mode) else "file"
        return f"expected a {what} of one's own, found one of uid {status.st_uid}"
    return ""


def _read(folder: Path, path: str, status: os.stat_result, means: Means, found: Look) -> str:
    """Read a file into what was found; returns what is wrong with it."""
    place, wanted = folder / path, format_of(path)
    try:
        data = files.read(str(place), LARGEST_FUSION)
    except TuningFormatError as wrong:
        return "" if not os.path.lexists(place) else _words(wrong)
    reading = read_bytes(data, place, wanted)
    if reading.format is not wanted and reading.entries:
        told = reading.format.value if reading.format else "something else"
        return f"expected {wanted.value if wanted else 'a result'}, found {told}"
    if reading.format is Format.LEGACY_FUSION and (key := means.legacy.get(Path(path).stem)):
        reading = replace(reading, entries=with_keys(reading.entries, iter((key,))))
    if why := first_error(reading, means):
        return why
    found.files[path] = Seen.of(status, hashlib.sha256(data).hexdigest())
    found.fresh[path] = reading.entries[0]
    return ""


def first_error(reading: Reading | Iterable[TuningEntry], means: Means) -> str:
    """The first thing that is wrong with a reading, or with entries, in words; "" where nothing is."""
    findings = list(reading.findings) if isinstance(reading, Reading) else []
    listed = reading if isinstance(reading, Reading) else list(reading)
    findings += validate(listed, build=means.build, device=means.device, fusions=means.fusions)
    errors = (one for one in findings if one.severity is Severity.ERROR)
    wrong = next((one for one in errors if means.build is not None or one.code not in _OF_BUILDS), None)
    if wrong is None and isinstance(reading, Reading) and not reading.entries:
        wrong = error("empty", Where(str(reading.path)), "an entry", "none")
    return f"{wrong.code}: expected {wrong.expected}, found {wrong.found}" if wrong else ""


def _words(wrong: TuningFormatError) -> str:
    return f"{wrong.finding.code}: expected {wrong.finding.expected}, found {wrong.finding.found}"
