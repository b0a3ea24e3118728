"""Who makes entries in a cache directory, as far as a signature says so: a user of the system, and his key.

Not promised: that two users are two persons. Containers that all run as root are one user; there the key tells them
apart, where each has one. Two of them that have none are one maker.

A directory may be a group's, and its members sign for themselves. So what one made is kept in a folder of his own name,
which is looked into only if it is his: nobody else may say that he made something.

    <folder>/<user>          what he made without a key: his, whichever key he has later
    <folder>/<user>-<tag>    with the key that has this tag (`SigningKey.tag`)
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from rewarm import trust
from rewarm.errors import SettingError
from rewarm.in_force import Settings
from rewarm.sharing.key_settings import sources_of
from rewarm.small_files import PRIVATE, make_folder
from rewarm.trust.keys import TAG_DIGITS

_ANY_TAG = re.compile(rf"-[0-9a-f]{{{TAG_DIGITS}}}")


class Maker(NamedTuple):
    """See the module.

    Attributes:
      user: his number; "user" where users have none.
      tag: of his key, or "".
    """

    user: str
    tag: str = ""

    def folder_in(self, folder: Path) -> Path:
        """Where he keeps what he does now."""
        return folder / (f"{self.user}-{self.tag}" if self.tag else self.user)

    def make_folder_in(self, folder: Path) -> Path:
        """The same, made with the folder above it, which is everybody's who may write to the directory.

        Raises:
          OSError: it cannot be made.
        """
        make_folder(folder)
        own = self.folder_in(folder)
        make_folder(own, PRIVATE.directory)
        return own

    def folders_in(self, folder: Path) -> list[Path]:
        """Where his own things are: what he did with this key, and without any. Without a key, by which nothing is
        signed, what he did with any."""
        names = [self.user, f"{self.user}-{self.tag}"] if self.tag else [self.user]
        if not self.tag:
            with contextlib.suppress(OSError):
                names += [name for name in os.listdir(folder) if self._is_his(name)]  # noqa: PTH208 - names will do
        return [folder / name for name in names if _is_ours(folder / name)]

    def _is_his(self, name: str) -> bool:
        return name.startswith(f"{self.user}-") and _ANY_TAG.fullmatch(name, len(self.user)) is not None


def this_user(tag: str = "") -> Maker:
    """The user as whom this process runs."""
    return Maker(str(os.geteuid()) if hasattr(os, "geteuid") else "user", tag)


def maker_of(in_force: Settings) -> Maker:
    """The user, and the key of these settings; one that cannot be used is none. Reads the key's file, and runs nothing.
    Never raises."""
    try:
        return this_user(trust.tag_of_signing(sources_of(in_force)))
    except SettingError:
        return this_user()


def _is_ours(folder: Path) -> bool:
    """Whether a folder is there, and is this user's: in a group's directory others may make one of any name."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and (not hasattr(os, "geteuid") or status.st_uid == os.geteuid())
