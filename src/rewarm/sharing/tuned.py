"""Where entries with records of the tuner are found: by kernel and case, here, and by kernel in remotes.

Not promised: that a note here, or a hint in a remote, is right: it names entries, which are checked like all others.

An entry of kind "tuned" has its case as its first components (`tunables/records.py`). What all cases of one kernel here
have in common (its content, target, toolchain and libraries, but not the arguments) makes a **place**, so that a
process asks a remote once for all shapes of a kernel:

    <root>/tuned/<place>/<key of the case>/<64 hex>      here: an empty file for each entry
    <namespace>/tuning/<place>/...                       in a remote: hints as those of `tuning.py`

    place := "tuned." 16 hex digits of the kernel's name "-" 16 of name, content, target, toolchain and libraries

Races, and their worst outcome: as `tuning.py` says.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from rewarm import small_files
from rewarm.envelope import Header
from rewarm.identity.components import derive_key
from rewarm.store.contract import is_key

KIND = "tuned"
FOLDER = "tuned"

# The rows of a case, in their order, and those which its place has.
CASE = ("kind", "kernel", "content", "arguments", "target", "toolchain", "libraries")
_HERE = ("kernel", "content", "target", "toolchain", "libraries")

# Entries of one case, and cases and places, that are looked at.
MOST = 10_000
_PLACE = re.compile(r"tuned\.[0-9a-f]{16}-[0-9a-f]{16}")
_DIGEST = re.compile("[0-9a-f]{64}")


def is_place(name: str) -> bool:
    """Whether this can be the name of a place of records."""
    return _PLACE.fullmatch(name) is not None


def place_by(digests: Mapping[str, str]) -> str:
    """The place of a case, whose components have these digests."""
    here = derive_key((name, digests[name]) for name in _HERE)
    return f"{of_kernel(digests['kernel'])}{here[:16]}"


def of_kernel(digest: str) -> str:
    """What the places of a kernel begin with, whose component has this digest."""
    return f"tuned.{digest[:16]}-"


def case_key(digests: Mapping[str, str]) -> str:
    """The key of a case, whose components have these digests."""
    return derive_key((name, digests[name]) for name in CASE)


def digests_of(header: Header) -> dict[str, str] | None:
    """The digests of the case that an entry is about; `None` where it is no such entry."""
    if header.kind != KIND:
        return None
    rows = {str(row.get("name")): str(row.get("digest")) for row in header.components}
    is_whole = all(_DIGEST.fullmatch(rows.get(name, "")) for name in CASE)
    return {name: rows[name] for name in CASE} if is_whole else None


def note_here(root: Path, header: Header) -> None:
    """The entry of the local store is about a case. Never raises."""
    digests = digests_of(header)
    if digests is None:
        return
    folder = root / FOLDER / place_by(digests) / case_key(digests)
    with contextlib.suppress(OSError):
        for one in (root / FOLDER, folder.parent, folder):
            small_files.make_folder(one)
        small_files.append(folder / header.key, b"")


def forget_here(root: Path, place: str, case: str, key: str) -> None:
    """The entry is not there any more. Never raises."""
    folder = root / FOLDER / place / case
    with contextlib.suppress(OSError):
        (folder / key).unlink()
        # Only what is empty goes; another writer may make them anew at the same moment, and notes once more.
        folder.rmdir()
        folder.parent.rmdir()


def known_here(root: Path, place: str, case: str) -> list[str]:
    """Keys of the entries about a case."""
    return _names(root / FOLDER / place / case)


def cases_here(root: Path, place: str) -> list[str]:
    """Keys of the cases of a place."""
    return _names(root / FOLDER / place)


def places_here(root: Path, start: str = "") -> Iterator[str]:
    """The places whose names begin so, in order."""
    with contextlib.suppress(OSError), os.scandir(root / FOLDER) as items:
        yield from sorted(one.name for one in items if is_place(one.name) and one.name.startswith(start))[:MOST]


def entries_of(root: Path, places: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Place, case and key of each entry that notes name."""
    for place in places:
        for case in cases_here(root, place):
            yield from ((place, case, key) for key in known_here(root, place, case))


def forget_gone(root: Path, is_there: Callable[[str], bool]) -> None:
    """Remove the notes of entries that are not there any more. Never raises."""
    for place, case, key in list(entries_of(root, places_here(root))):
        if not is_there(key):
            forget_here(root, place, case, key)


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as items:
        return sorted(one.name for one in items if is_key(one.name))[:MOST]
    return []
