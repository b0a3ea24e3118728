"""What a command makes: a file or a folder of XLA's, whole or not at all, and never over something unasked.

Not promised: one step for a folder that replaces another. The old one is moved aside, the new one gets its name, and
then the old one's files are removed; killed between the first two, the place is empty and the old folder lies beside
it, its name beginning with a dot and ending in ".old". Two who replace one folder at once: one of them fails, or the
later one's stays; none is a mixture.

A link, as the output, is followed: what is behind it is written, or made, and the link stays. Whether something is
there already is asked of the link, and whether a file is text of its name, as XLA does.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from rewarm.autotune import checked
from rewarm.autotune.beyond_doubt import is_named, tuning_files
from rewarm.autotune.formats import Family, Format, Header, TuningEntry, files, read
from rewarm.autotune.formats.reading import MOST_ENTRIES, is_text_name
from rewarm.autotune.formats.writing import contents
from rewarm.errors import RewarmError
from rewarm.small_files import Modes

_KINDS = {
    Family.LEGACY: (Format.LEGACY_DIRECTORY, Format.LEGACY_TEXT, Format.LEGACY_BINARY),
    Family.NEW: (Format.NEW_DIRECTORY, Format.NEW_TEXT, Format.NEW_BINARY),
}
# What files in a folder of results are called, and how deep its folders lie: devices, and explicit versions in them.
_ENDINGS = (".pb", ".textproto")
_DEEPEST = 2

OUTPUTS = tuple(one for kinds in _KINDS.values() for one in kinds)


class OutputError(RewarmError, ValueError):
    """Something cannot be written where, or as what, it was asked for."""


def format_of(path: str, families: Iterable[Family], to: Format | None = None) -> Format:
    """What to write: what was asked for, else by the name, in the family of all that goes in.

    A name that ends in a slash, is that of a folder, or has no suffix is a folder; XLA's suffixes for text are text;
    all else is binary.

    Raises:
      OutputError: there are entries of both families, and nothing says which is meant.
    """
    if to is not None:
        return to
    found = set(families)
    if len(found) != 1:
        names = ", ".join(one.value for one in OUTPUTS)
        raise OutputError(f"{path}: there are entries of both families (legacy and new); say which: --to {names}")
    folder, text, binary = _KINDS[found.pop()]
    if path.endswith(os.sep) or os.path.isdir(path) or not Path(path).suffix:  # noqa: PTH112 - never raises
        return folder
    return text if is_text_name(path) else binary


def write_whole(
    entries: Sequence[TuningEntry],
    path: Path,
    format: Format,  # noqa: A002 - the field's own word
    *,
    header: Header | None = None,
    force: bool = False,
    lossy: bool = False,
    modes: Modes | None = None,
) -> int:
    """Write entries to a place, and nothing where one of them cannot be written; returns how many.

    Args:
      force: whether what is there is replaced. A folder only if nothing but tuning files are in it (`beyond_doubt`).
      lossy: whether fields that are not known may be left out of text.
      modes: rights of files and folders; by default what the umask leaves, and of a file that is replaced its own.

    Raises:
      OutputError: something is there, and may not be replaced.
      TuningFormatError: an entry cannot be in this format.
      OSError: it cannot be written.
    """
    path = _with_name(path)
    listed = list(contents(entries, path, format, header=header, lossy=lossy))
    modes = modes or modes_for(path)
    if not format.is_directory:
        _may_replace_file(path, force)
        files.write_all([(followed(where), data) for where, data, _ in listed], modes)
        return sum(count for _, _, count in listed)
    if not listed:
        raise OutputError(f"{path}: no entries to write")
    old = _may_replace_folder(path, force)
    named, path = path, followed(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent) as name:
        made = Path(name) / "made"
        files.write_all(((made / where.relative_to(named), data) for where, data, _ in listed), modes)
        _put(made, path, old)
    return len(listed)


def refuse_place(path: Path, format: Format, *, force: bool) -> None:  # noqa: A002
    """Say at once what `write_whole` would say of the place, before there is anything to write.

    Raises:
      OutputError: something is there, and may not be replaced.
      OSError: it cannot be looked at.
    """
    path = _with_name(path)
    if not format.is_directory:
        _may_replace_file(path, force)
    elif os.path.lexists(path):
        _may_be_a_folder(path, force)


def _with_name(path: Path) -> Path:
    """The same place, by a name that can be given to what is made beside it."""
    return path if path.name not in ("", "..") else Path(os.path.abspath(path))  # noqa: PTH100 - links stay


def followed(path: Path) -> Path:
    """Where what is to be written at a path lies: behind a link, if there is one. It need not be there.

    Raises:
      OutputError: the link leads to no place.
    """
    if not path.is_symlink():
        return path
    behind = Path(os.path.realpath(path))
    if behind.is_symlink():
        raise OutputError(f"{path} is a link that leads back to itself; remove it, or name another place")
    return behind


def modes_for(path: Path) -> Modes:
    """The rights that a file at this place has or would get. Not for programs with threads: it sets the umask."""
    mask = os.umask(0o077)
    os.umask(mask)
    try:
        status = path.stat()
    except OSError:
        return Modes(0o777 & ~mask, 0o666 & ~mask)
    file = stat.S_IMODE(status.st_mode) & 0o777 if stat.S_ISREG(status.st_mode) else 0o666 & ~mask
    return Modes(0o777 & ~mask, file)


def _may_replace_file(path: Path, force: bool) -> None:
    followed(path)
    if path.is_dir():
        raise OutputError(f"{path} is a folder, and a file is to be written; name another place, or --to for a folder")
    if os.path.lexists(path) and not force:
        raise OutputError(f"{path} is there already; --force replaces it")


def _may_replace_folder(path: Path, force: bool) -> list[Path]:
    """What is there already, which goes when the new folder has its place."""
    if not os.path.lexists(path):
        return []
    _may_be_a_folder(path, force)
    path = followed(path)
    if not path.exists():
        return []
    there: list[Path] = []
    foreign = _strange(path, there, deep=_DEEPEST) or _foreign(path, there)
    if foreign:
        raise OutputError(f"{foreign} is no tuning file, so {path} is not replaced; name another place")
    return there


def _may_be_a_folder(path: Path, force: bool) -> None:
    """What a look at the folder alone tells, whatever is in it and however much."""
    if not followed(path).exists():  # a link to what is not there yet
        if not force:
            raise OutputError(f"{path} is a link already, to what is not there; --force makes it")
        return
    if not path.is_dir():
        raise OutputError(f"{path} is no folder, and a folder is to be written; name another place")
    if os.path.ismount(followed(path)):
        raise OutputError(f"{path} is where a file system begins, which nothing replaces; name a folder in it")
    if not force:
        with os.scandir(path) as items:
            if next(items, None) is not None:
                raise OutputError(f"{path} is there already and is not empty; --force replaces it")


def _strange(folder: Path, there: list[Path], *, deep: int) -> Path | None:
    """The first thing that no folder of results has; what else is there is added to `there`.

    A look ends at it, so of a folder that holds anything else, however large, little is looked at.
    """
    with os.scandir(folder) as items:
        for one in items:
            path = Path(one.path)
            if one.is_dir(follow_symlinks=False):
                is_strange = not deep or (deep == _DEEPEST and not checked.is_folder_name(one.name))
                found = path if is_strange else _strange(path, there, deep=deep - 1)
                if found is not None:
                    return found
                continue
            there.append(path)
            if not one.name.endswith(_ENDINGS) or len(there) > MOST_ENTRIES:
                return path
    return None


def _foreign(folder: Path, there: list[Path]) -> Path | None:
    """A file that nobody should lose: what is no tuning file beyond doubt."""
    doubtful = [path for path in there if not is_named(path, folder)]
    known = tuning_files(read(folder)) if doubtful else frozenset()
    return next((path for path in doubtful if str(path) not in known), None)


def _put(made: Path, path: Path, old: list[Path]) -> None:
    if not old:
        # Over an empty folder this is one step; over one that somebody filled meanwhile it fails.
        made.rename(path)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
    path.rename(aside)
    try:
        made.rename(path)
    except OSError:
        aside.rename(path)
        raise
    for one in old:
        with contextlib.suppress(FileNotFoundError):
            (aside / one.relative_to(path)).unlink()
    remove_empty(aside)


def remove_empty(folder: Path) -> None:
    """Remove a folder and those in it, as far as they are empty: what came there meanwhile stays."""
    for top, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            Path(top).rmdir()
