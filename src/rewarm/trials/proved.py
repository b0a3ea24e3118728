"""The entries that were loaded and run on this host, so that they need no mark any more.

Not promised: memory for all of them. What is forgotten is marked and proved again at its next load. What a process
proved is written some seconds later, or at its end, since a start that proves hundreds has better things to do.

    <root>/trials/<host>/    a set of digests (`digest_set.py`)

An entry is known by the digest that ends its envelope, not by its key: another entry under the same key (made on
another host, rebuilt, changed by somebody) has proved nothing.

Race: a folder removed beside a start. It was not used for 30 days; its entries are proved again.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from rewarm.digest_set import DigestSet
from rewarm.small_files import Modes

_HOST = re.compile(r"[0-9a-f]{16}")

# A host's folder is said to be in use once a day, and is removed by others after 30 days without.
_RENEW_AFTER = 86_400.0
_UNUSED_AFTER = 30 * 86_400.0
_REMOVED_AT_ONCE = 4

# In seconds; so much of what a process proved is proved again if it is killed.
_KEEP_AFTER = 5.0


class Proved:
    """What was proved on one host, in one cache directory. No method raises.

    Args:
      folder: `<root>/trials`.
      host: 16 hexadecimal digits.
      modes: the rights of what is made.
    """

    def __init__(self, folder: Path, host: str, modes: Modes) -> None:
        self._folder = folder
        self._digests = DigestSet(folder / host, modes)
        self._noted: set[str] = set()
        self._unkept: list[str] = []
        self._since = 0.0

    def has(self, content: str) -> bool:
        """Whether the entry with this digest (64 hexadecimal digits) was proved."""
        if content in self._noted:
            return True
        if not self._digests.was_read:
            self._say_in_use()
        return self._digests.has(content)

    def note(self, content: str) -> None:
        """This entry was loaded and run; `keep` writes it down."""
        if content not in self._noted:
            self._noted.add(content)
            self._since = self._since if self._unkept else time.monotonic()
            self._unkept.append(content)

    def keep(self, *, at_once: bool = False) -> bool:
        """Write down what was noted, if it is due; whether there is more to keep."""
        if at_once or time.monotonic() - self._since > _KEEP_AFTER:
            while self._unkept:
                self._digests.add(self._unkept.pop())  # where that cannot be written it is proved again next time
        return bool(self._unkept)

    def leave(self) -> None:
        """In a forked child: what its parent noted, the parent keeps."""
        self._unkept = []

    def remove_unused_hosts(self) -> None:
        """Remove folders that hosts have not used for 30 days; a few at once, the rest at the next start."""
        removed = 0
        with contextlib.suppress(OSError), os.scandir(self._folder) as items:
            for item in items:
                if removed < _REMOVED_AT_ONCE and _HOST.fullmatch(item.name) and item.name != self._digests.folder.name:
                    removed += _remove_if_unused(item)

    def _say_in_use(self) -> None:
        own = self._digests.folder
        with contextlib.suppress(OSError):
            if time.time() - own.stat().st_mtime > _RENEW_AFTER:
                os.utime(own)


def _remove_if_unused(item: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        if time.time() - item.stat(follow_symlinks=False).st_mtime < _UNUSED_AFTER:
            return False
        with os.scandir(item.path) as shards:
            for shard in shards:
                os.unlink(shard.path)  # noqa: PTH108
        os.rmdir(item.path)  # noqa: PTH106
        return True
    return False
