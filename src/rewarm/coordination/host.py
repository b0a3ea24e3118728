"""On a host one process compiles a key; the others wait for its result.

Not promised: that only one compiles, or that a lease is to be had. Leases are files beside the cache; where they
cannot be made, every process compiles for itself, as without them. A hit asks for no lease.

How long others are delayed by a leader that does not finish, beyond what it was heard to do:

* killed, by whatever: by one pause, 0.1 s at most; on another host, by `silence`. One of those that wait leads next.
* stopped, or on a host that hangs: by `silence` and one pause. One of those that wait leads next, by a second file
  (`.heir.lock`), and the others wait for it; should that one fall silent too, they all compile after another `silence`
  and one pause, and whoever comes later does so at once.
* alive, and without an end: by `patience`.

Locks decide where they work. A lock that is free says nothing of a leader on another host, since some file systems
keep locks to one; and some have none at all. There the file that exists is the lease, and silence ends it.

Files of leaders that were killed stay until the next one asks for their key, or until `sweep`.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from rewarm.coordination.lead import HOST, Lead, Turn, is_found
from rewarm.coordination.lease_file import LeaseFile, State
from rewarm.coordination.pulse import Pulse
from rewarm.small_files import Modes, make_folder

_BEAT = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.002, 0.1, 1.5

# The second is for when the first one's leader is silent. With each, why one leads by it who need not wait.
_FILES = ((".lock", "nobody else had it in hand"), (".heir.lock", "the process that had it in hand is silent"))
_NAME = re.compile(r"[0-9a-f]{64}(\.heir)?\.lock")
_LEFT = 86_400.0

# Who has the lock of a leader of another host takes over before the others of its own host call that leader silent,
# who see a file that is locked: so they hear the heir first.
_HEIRS_PART = 0.8


class HostLeases:
    """The leases of one cache directory. Safe for any number of threads, one at a time for each key.

    Args:
      folder: where the lock files lie; made when it is missing and its parent is there.
      modes: the rights of what is made.
      patience: seconds after which one who waits compiles, whatever else.
      silence: seconds without a beat (there is one each second) after which a leader counts as stopped.
    """

    def __init__(self, folder: Path, modes: Modes, *, patience: float = 3600.0, silence: float = 5.0) -> None:
        self.folder = folder
        self.modes = modes
        self.patience = patience
        self.silence = silence
        self.pulse = Pulse(_BEAT)

    def lead(self, key: str, found: Callable[[], bool]) -> AbstractContextManager[Lead]:
        """Lead `key` (64 hexadecimal digits) inside the block, or wait for whoever does.

        Asked after a miss, inside the flight of the thread. `found` says whether the entry is there; it is asked at
        each look, between 2 ms and 0.1 s apart, and once by who leads, since the entry may have come in between. It
        should cost no more than a look at a file; one that raises has not found it.
        """
        return _HostTurn(self, key, found)

    def sweep(self, seconds: float = _LEFT) -> int:
        """Remove the files of leaders that died and were silent for so many seconds; returns how many."""
        removed = 0
        with contextlib.suppress(OSError):
            for path in list(self.folder.iterdir()):
                if _NAME.fullmatch(path.name):
                    file = LeaseFile(path, self.modes)
                    try:
                        file.open(make=False)
                        removed += file.remove_if_left(seconds)
                    except OSError:
                        continue
                    finally:
                        file.end()
        return removed


class _HostTurn(Turn):
    kind: ClassVar[str] = HOST

    def __init__(self, leases: HostLeases, key: str, found: Callable[[], bool]) -> None:
        super().__init__(key, leases.patience)
        self._leases = leases
        self._found = found

    def _ask(self) -> Lead:
        for suffix, why in _FILES:
            try:
                lead = self._ask_for(self._leases.folder / f"{self.key}{suffix}", why)
            except OSError as error:
                return self._lead("alone", f"no lock file can be made: {error.strerror}")
            if lead is not None:
                return lead
        return self._lead("alone", "the processes that had it in hand are silent")

    def _ask_for(self, path: Path, why: str) -> Lead | None:
        """Lead by this file, or wait for who does; `None`: its leader is silent."""
        self._held.give_back()
        file = LeaseFile(path, self._leases.modes)
        self._held.add(functools.partial(self._leases.pulse.remove, file.beat))
        self._held.add(file.end)
        self._open(file)
        state = file.look()
        if state is State.OURS:
            return self._take(file, why)
        if state is State.OVER:
            return self._over()
        if not self._may_wait():
            return self._lead("alone", "another process has it in hand, and this thread may not wait")
        return self._wait(file, state)

    def _open(self, file: LeaseFile) -> None:
        try:
            file.open()
        except FileNotFoundError:  # the first lease here, or somebody cleared the directory
            make_folder(self._leases.folder, self._leases.modes.directory)
            file.open()

    def _wait(self, file: LeaseFile, state: State) -> Lead | None:
        heard, since = file.heard, time.monotonic() - file.silent_for()
        pause = _FIRST_PAUSE
        while not is_found(self._found):
            if file.heard != heard:
                heard, since = file.heard, time.monotonic()
            if state is State.OVER:
                return self._over()
            limit = self._leases.silence * (_HEIRS_PART if state is State.HEIR else 1.0)
            is_silent = time.monotonic() - since >= limit and not file.is_heard_anew()
            if state is State.OURS or (state is State.HEIR and is_silent):
                return self._take(file, "the process that had it in hand died")
            if is_silent:
                return None
            if self._is_late():
                return self._lead("alone", f"another process has it in hand for more than {self._patience:.0f} s")
            time.sleep(pause)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)
            state = file.look()
        return self._lead("waited", "another process compiled it")

    def _take(self, file: LeaseFile, why: str) -> Lead:
        file.lead()
        if is_found(self._found):  # between the caller's look and the lease
            return self._lead("waited", "another process has just compiled it")
        self._leases.pulse.add(file.beat)
        return self._lead("leads", why)

    def _over(self) -> Lead:
        return self._lead("waited", "another process had it in hand")
