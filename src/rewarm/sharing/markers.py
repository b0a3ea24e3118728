"""What is still to go to a remote, on disk: so that a process that was killed leaves its work to a later one.

Not promised: a marker for each entry. Where none can be made (a read-only or full disk), or too many are there, an
entry goes to the remote while this process lives, or not at all.

    <root>/uploads/<16 hex of the remote>/<maker>/<64 hex>    an empty file for each entry; for the maker see `maker.py`

A marker is made before its entry is stored, and goes when the entry arrived. It is taken up by its maker alone: where
others share the directory, what he made waits for his next start, since nobody else signs it.

Races, and their worst outcome:

* a process takes up a marker whose entry another is just storing, and finds no entry: it leaves the marker while it is
  young, so a later start looks again.
* two processes make markers at the bound: as many more than the bound as there are processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

from rewarm import small_files
from rewarm.sharing.maker import Maker, this_user
from rewarm.store.contract import is_key

FOLDER = "uploads"

# How many markers of one maker one remote may have.
MOST = 10_000

# A marker without an entry that is older than this, in seconds, is of one that was evicted.
_YOUNG = 600.0

# Markers of a remote that no start has asked for so long, in seconds, are removed.
_FORGOTTEN = 30 * 86_400.0


class Markers:
    """One maker's markers of one remote in the cache directory `root`; `None`: nothing can be written there. Never
    raises."""

    def __init__(self, root: Path | None, remote: str, *, maker: Maker | None = None, most: int = MOST) -> None:
        digest = hashlib.sha256(remote.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._of_all = None if root is None else root / FOLDER / digest
        self._maker = maker or this_user()
        self._folder = None if self._of_all is None else self._maker.folder_in(self._of_all)
        self._elsewhere: dict[str, Path] = {}  # those that the same maker made without his key
        self._most = most
        self._made = 0  # since the last look at the folder, and what was there then

    def add(self, key: str) -> None:
        """This entry is to go there."""
        if self._folder is None or self._of_all is None or self._made >= self._most:
            return
        with contextlib.suppress(OSError):
            try:
                small_files.append(self._folder / key, b"")
            except FileNotFoundError:
                small_files.make_folder(self._of_all.parent)
                self._maker.make_folder_in(self._of_all)
                small_files.append(self._folder / key, b"")
            self._made += 1

    def remove(self, key: str) -> None:
        """It arrived, or it never will."""
        if (folder := self._folder_of(key)) is not None:
            with contextlib.suppress(OSError):
                (folder / key).unlink()
                self._made = max(0, self._made - 1)
            other = self._elsewhere.pop(key, None)
            if other is not None and self._folder is not None:  # it may have been marked anew meanwhile
                with contextlib.suppress(OSError):
                    (self._folder / key).unlink()

    def missed(self, key: str) -> None:
        """Its entry is not in the store: it was evicted, or is about to be stored."""
        if (folder := self._folder_of(key)) is not None:
            with contextlib.suppress(OSError):
                if time.time() - (folder / key).lstat().st_mtime > _YOUNG:
                    self.remove(key)

    def left(self) -> list[str]:
        """What earlier processes, or ones that run now, have not sent yet; what is beyond the bound is removed."""
        if self._of_all is None:
            return []
        found: dict[str, Path] = {}
        for folder in self._maker.folders_in(self._of_all):
            with contextlib.suppress(OSError), os.scandir(folder) as items:
                os.utime(folder)  # see `sweep`
                found |= {item.name: folder for item in items if is_key(item.name)}
        self._elsewhere = {key: folder for key, folder in found.items() if folder != self._folder}
        self._made = len(found)
        keys = list(found)
        for key in keys[self._most :]:
            self.remove(key)
        return keys[: self._most]

    def _folder_of(self, key: str) -> Path | None:
        """Where its marker lies."""
        return self._elsewhere.get(key, self._folder)


def sweep(root: Path) -> None:
    """Remove the markers of remotes that no process of their maker's has been told of for a month, as far as this user
    may. Never raises."""
    with contextlib.suppress(OSError):
        for folder in _folders_in(root / FOLDER):
            for own in _folders_in(folder):
                with contextlib.suppress(OSError):  # another's
                    if time.time() - own.lstat().st_mtime > _FORGOTTEN:
                        _remove_folder(own)
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def _folders_in(folder: Path) -> list[Path]:
    with os.scandir(folder) as items:
        return [Path(item.path) for item in items if item.is_dir(follow_symlinks=False)]


def _remove_folder(folder: Path) -> None:
    with os.scandir(folder) as items:
        for item in items:
            if is_key(item.name):
                Path(item).unlink()
    folder.rmdir()
