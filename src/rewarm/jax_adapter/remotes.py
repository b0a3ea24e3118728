"""The remotes of this process: opened once for each set of settings, fed with the plan, and drained at its end.

Not promised: that everything is sent when a process ends. It waits for `upload_seconds`, and what is left is sent by a
later start in the same directory.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rewarm.in_force import Settings
from rewarm.jax_adapter import seam
from rewarm.ledger import Ledger
from rewarm.sharing import Remotes, plans
from rewarm.sharing.forks import renew_in_child
from rewarm.sharing.opening import open_remotes
from rewarm.store import LocalStore

logger = logging.getLogger("rewarm")

# A wait at the end of a program that is longer than this, in seconds, says what it is for.
_SILENT_FOR = 2.0


class Sharing:
    """The remotes of one set of settings, in the life of this process."""

    def __init__(self, in_force: Settings, store: LocalStore, ledger: Ledger, remotes: Remotes) -> None:
        self.remotes = remotes
        self._settings = in_force
        self._store = store
        self._ledger = ledger
        self._program = plans.program_now()
        self._pid = os.getpid()
        # At the end of a program no thread can be started (Python 3.12): then nothing is fetched ahead.
        with contextlib.suppress(RuntimeError, MemoryError):
            threading.Thread(target=self._fetch_ahead, name="rewarm-plan", daemon=True).start()

    def _fetch_ahead(self) -> None:
        """What this program used before: its plan here, else that of a remote. In a thread of its own."""
        try:
            for plan_id in plans.ids_of(self._program):
                keys = plans.read(self._store.root, plan_id) or self._plan_of_a_remote(plan_id)
                if keys:
                    self.remotes.fetch_ahead(keys)
                    break
            self.remotes.find_out()
        except Exception:
            logger.debug("rewarm: no plan", exc_info=True)

    def _plan_of_a_remote(self, plan_id: str) -> tuple[str, ...]:
        for tier in self.remotes.tiers:
            for namespace in tier.namespaces.read:
                if keys := plans.fetch(tier.blobs, namespace, plan_id):
                    return keys
        return ()

    def finish(self) -> None:
        """The process ends: keep the plan, and wait for what is under way, unless the user has no patience."""
        self.remotes.close()
        left = self.remotes.uploads.waiting()
        with contextlib.suppress(KeyboardInterrupt):
            if os.getpid() == self._pid:  # a child of fork has its parent's events
                self._keep_plan()
            left = self.remotes.uploads.drain(self._settings.upload_seconds, _Patience().hear)
        self.remotes.leave()
        if left:
            logger.warning(
                "rewarm: %d entries are still on their way to a remote; a later start in %s sends them",
                left,
                self._store.root,
            )

    def _keep_plan(self) -> None:
        keys = [event.key for event in self._ledger.events() if event.key and (event.stored or event.outcome == "hit")]
        if not keys or self._store.read_only:
            return
        with contextlib.suppress(Exception):
            for plan_id in plans.ids_of(self._program):
                data = plans.write(self._store.root, plan_id, self._program, keys)
                if data is not None:
                    self.remotes.uploads.add_hint(f"{plans.FOLDER}/{plan_id}", data)


class _Patience:
    """Says once what the end of a program waits for."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._told = False

    def hear(self, left: int) -> None:
        if not left or self._told or time.monotonic() - self._since < _SILENT_FOR:
            return
        self._told = True
        with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error may be closed, or not there
            print(f"rewarm: waiting for {left} entries on their way to a remote", file=sys.stderr, flush=True)


class _Known:
    """The remotes of this process, by the settings that they were opened for."""

    def __init__(self) -> None:
        self.sharings: dict[tuple[Any, ...], Sharing] = {}
        self.renew()
        renew_in_child(self, _Known.renew)

    def renew(self) -> None:
        """A child of fork: its parent's threads may have held the lock."""
        self.lock = threading.Lock()


_known = _Known()


def remotes_of(in_force: Settings, store: LocalStore, ledger: Ledger, tell: Callable[[str], None]) -> Remotes:
    """The remotes of these settings; opened at the first call for them.

    JAX's rule that of a distributed job only process 0 writes holds towards remotes.

    Raises:
      SettingError: an address or a key cannot be used.
      MissingClientError: a library is not installed.
    """
    about = (store.read_only, *(getattr(in_force, name) for name in _THAT_COUNT))
    with _known.lock:
        if about not in _known.sharings:
            remotes = open_remotes(in_force, store, tell, writes=seam.process_index() == 0)
            _known.sharings[about] = Sharing(in_force, store, ledger, remotes)
            ledger.remotes.append(remotes)
        return _known.sharings[about].remotes


_THAT_COUNT = (
    "directory",
    "remote",
    "namespace",
    "read_namespaces",
    "signing_key",
    "signing_command",
    "trusted_keys",
    "strict",
    "upload_seconds",
)


@atexit.register
def _at_exit() -> None:
    for sharing in list(_known.sharings.values()):
        sharing.finish()
