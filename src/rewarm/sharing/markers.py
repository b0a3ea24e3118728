"""What is still to go to a remote, on disk: so that a process that was killed leaves its work to a later one.

Not promised: a marker for each entry. Where none can be made (a read-only or full disk), or too many are there, an
entry goes to the remote while this process lives, or not at all.

    <root>/uploads/<16 hex of the remote>/<64 hex>    an empty file for each entry

A marker is made before its entry is stored, and goes when the entry arrived.

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
from rewarm.store.contract import is_key

FOLDER = "uploads"

# How many markers one remote may have.
MOST = 10_000

# A marker without an entry that is older than this, in seconds, is of one that was evicted.
_YOUNG = 600.0

# Markers of a remote that no start has asked for so long, in seconds, are removed.
_FORGOTTEN = 30 * 86_400.0


class Markers:
    """The markers of one remote in the cache directory `root`; `None`: nothing can be written there. Never raises."""

    def __init__(self, root: Path | None, remote: str, *, most: int = MOST) -> None:
        digest = hashlib.sha256(remote.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._folder = None if root is None else root / FOLDER / digest
        self._most = most
        self._made = 0  # since the last look at the folder, and what was there then

    def add(self, key: str) -> None:
        """This entry is to go there."""
        if self._folder is None or self._made >= self._most:
            return
        with contextlib.suppress(OSError):
            try:
                small_files.append(self._folder / key, b"")
            except FileNotFoundError:
                small_files.make_folder(self._folder.parent)
                small_files.make_folder(self._folder)
                small_files.append(self._folder / key, b"")
            self._made += 1

    def remove(self, key: str) -> None:
        """It arrived, or it never will."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / key).unlink()
                self._made = max(0, self._made - 1)

    def missed(self, key: str) -> None:
        """Its entry is not in the store: it was evicted, or is about to be stored."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                if time.time() - (self._folder / key).lstat().st_mtime > _YOUNG:
                    self.remove(key)

    def left(self) -> list[str]:
        """What earlier processes, or ones that run now, have not sent yet; what is beyond the bound is removed."""
        if self._folder is None:
            return []
        try:
            with os.scandir(self._folder) as items:
                found = [item.name for item in items if is_key(item.name)]
            os.utime(self._folder)  # see `sweep`
        except OSError:
            return []
        self._made = len(found)
        for key in found[self._most :]:
            self.remove(key)
        return found[: self._most]


def sweep(root: Path) -> None:
    """Remove the markers of remotes that no process of this directory has been told of for a month. Never raises."""
    with contextlib.suppress(OSError), os.scandir(root / FOLDER) as items:
        for item in items:
            with contextlib.suppress(OSError):
                if item.is_dir(follow_symlinks=False) and time.time() - item.stat().st_mtime > _FORGOTTEN:
                    _remove_folder(Path(item.path))


def _remove_folder(folder: Path) -> None:
    with os.scandir(folder) as items:
        for item in items:
            if is_key(item.name):
                Path(item).unlink()
    folder.rmdir()
