"""Which entries this user made here, so that his signature goes to those and to no others by itself.

Not promised: memory for all. Of an entry that is not known nothing is signed by itself: it stays here until somebody
asks for it to be sent (`rewarm sync push --all`).

    <root>/made/<maker>/    a set of digests of entries (`digest_set.py`); for the maker see `maker.py`

A signature says "I made this", to all who trust the key. What came from somebody else keeps his signature where it is
passed on, or is not passed on: else revoking his key would not refuse what he made, and whoever trusts this user would
trust everybody whom this user trusts. That goes for who shares the directory, too: he signs what he made, and nobody
else does. An entry is known by its digest: another one that came under the same key is not the one that was made here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from rewarm.digest_set import DigestSet
from rewarm.envelope import content_of
from rewarm.in_force import Settings
from rewarm.sharing.maker import Maker, maker_of, this_user
from rewarm.small_files import PRIVATE
from rewarm.store import LocalStore

FOLDER = "made"
_DIGITS = 64


class Made:
    """What was made in the cache directory `root`; `None`: nothing can be written there. No method raises.

    Args:
      root: the directory.
      maker: who makes; asked for when it is needed, since that may take reading a key.
    """

    def __init__(self, root: Path | None, maker: Callable[[], Maker] = this_user) -> None:
        self._folder = None if root is None else root / FOLDER
        self._get_maker = maker
        self._here: set[str] = set()
        self._own: DigestSet | None = None
        self._known: list[DigestSet] | None = None

    def add(self, entry: bytes) -> None:
        """This entry was made by this process; said before it is stored, so that a process that is killed in between
        leaves no entry that nobody made."""
        content = content_of(entry)
        if len(content) != _DIGITS or content in self._here:
            return
        self._here.add(content)
        if self._folder is None:
            return
        if self._own is None:
            maker = self._get_maker()
            with contextlib.suppress(OSError):  # read-only or full, which adding shows, too
                maker.make_folder_in(self._folder)
            self._own = DigestSet(maker.folder_in(self._folder), PRIVATE)
        self._own.add(content)

    def has(self, entry: bytes) -> bool:
        """Whether this user made this entry here, by this process or an earlier one."""
        content = content_of(entry)
        if len(content) != _DIGITS:
            return False
        return content in self._here or any(known.has(content) for known in self._sets())

    def _sets(self) -> list[DigestSet]:
        if self._known is None:
            folders = [] if self._folder is None else self._get_maker().folders_in(self._folder)
            self._known = [DigestSet(folder, PRIVATE) for folder in folders]
        return self._known


_known: dict[tuple[Path, str, str, tuple[str, ...]], Made] = {}


def made_by(in_force: Settings, store: LocalStore) -> Made:
    """What the user of these settings made in a store, as this process knows it."""
    about = (store.root, in_force.signing_key, in_force.signing_command, in_force.trusted_keys)
    return _known.setdefault(about, Made(store.root, lambda: maker_of(in_force)))
