"""Which entries were made here, so that this user's signature goes to those and to no others by itself.

Not promised: memory for all. Of an entry that is not known nothing is signed by itself: it stays here until somebody
asks for it to be sent (`rewarm sync push --all`).

    <root>/made/    a set of digests of entries (`digest_set.py`)

A signature says "I made this", to all who trust the key. What came from somebody else keeps his signature where it is
passed on, or is not passed on: else revoking his key would not refuse what he made, and whoever trusts this user would
trust everybody whom this user trusts. An entry is known by its digest: another one that came under the same key is not
the one that was made here.
"""

from __future__ import annotations

import functools
from pathlib import Path

from rewarm.digest_set import DigestSet
from rewarm.envelope import content_of
from rewarm.small_files import PRIVATE, SHARED, Modes

FOLDER = "made"
_DIGITS = 64


class Made:
    """What was made in the cache directory `root`; `None`: nothing can be written there. No method raises."""

    def __init__(self, root: Path | None, modes: Modes = PRIVATE) -> None:
        self._digests = DigestSet(root / FOLDER, modes) if root is not None else None
        self._here: set[str] = set()

    def add(self, entry: bytes) -> None:
        """This entry was made by this process; said before it is stored, so that a process that is killed in between
        leaves no entry that nobody made."""
        content = content_of(entry)
        if len(content) == _DIGITS:
            self._here.add(content)
            if self._digests is not None:
                self._digests.add(content)

    def has(self, entry: bytes) -> bool:
        """Whether this entry was made here, by this process or an earlier one."""
        content = content_of(entry)
        if len(content) != _DIGITS:
            return False
        return content in self._here or (self._digests is not None and self._digests.has(content))


@functools.cache
def made_in(root: Path, shared: bool = False) -> Made:
    """What was made in a cache directory, as this process knows it."""
    return Made(root, SHARED if shared else PRIVATE)
