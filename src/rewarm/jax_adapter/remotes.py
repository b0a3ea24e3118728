"""The remotes of this process: opened once for each set of settings, asked for the plan, and drained at its end.

The plan is asked for when rewarm turns on (`begin`), which knows the settings of that moment and no backend. When the
first program is compiled its settings decide: of what was begun under others nothing is used.

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
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rewarm.in_force import Settings
from rewarm.jax_adapter import seam
from rewarm.ledger import Ledger
from rewarm.remote.guard import Guarded
from rewarm.sharing import Remotes, RemoteTier, packs, plans
from rewarm.sharing.early import Early, Source
from rewarm.sharing.forks import renew_in_child
from rewarm.sharing.opening import open_guards, open_remotes, parsed
from rewarm.sharing.plans import Plan
from rewarm.sharing.remotes import place_of
from rewarm.store import LocalStore

logger = logging.getLogger("rewarm")

# A wait at the end of a program that is longer than this, in seconds, says what it is for.
_SILENT_FOR = 2.0

# What is found out about the remotes waits for the plan and its packs, so many seconds at most.
_PATIENCE = 30.0


class _Begun(NamedTuple):
    """What was asked of remotes before anything was compiled.

    Attributes:
      guards: the remotes, with nothing but their deadlines.
      early: the plan of this start, and its packs.
      program: what was started.
    """

    guards: list[Guarded]
    early: Early
    program: tuple[str, ...]


class Sharing:
    """The remotes of one set of settings, in the life of this process. `sends`: it sends what others of its job stored,
    where they share the directory."""

    def __init__(
        self, in_force: Settings, store: LocalStore, ledger: Ledger, remotes: Remotes, begun: _Begun, *, sends: bool
    ) -> None:
        self.remotes = remotes
        self._sends = sends
        self._settings = in_force
        self._store = store
        self._ledger = ledger
        self._begun = begun
        self._pid = os.getpid()
        # At the end of a program no thread can be started (Python 3.12).
        with contextlib.suppress(RuntimeError, MemoryError):
            threading.Thread(target=self._find_out, name="rewarm-probe", daemon=True).start()

    def _find_out(self) -> None:
        """See what the remotes do, after all that the program waits for. In a thread of its own."""
        try:
            self._begun.early.finished(_PATIENCE)
            self.remotes.find_out()
        except Exception:
            logger.debug("rewarm: what the remotes do is not known", exc_info=True)

    def finish(self) -> None:
        """The process ends: keep the plan, and wait for what is under way, unless the user has no patience."""
        self.remotes.close()
        left = self.remotes.uploads.waiting()
        with contextlib.suppress(KeyboardInterrupt):
            if os.getpid() == self._pid:  # a child of fork has its parent's events
                self._keep_plan()
                if self._sends:
                    self.remotes.uploads.take_up()
            left = self.remotes.uploads.drain(self._settings.upload_seconds, _Patience().hear)
        self.remotes.leave()
        if left:
            logger.warning(
                "rewarm: %s still on the way to a remote; a later start in %s sends what is left",
                "1 entry is" if left == 1 else f"{left} entries are",
                self._store.root,
            )

    def _keep_plan(self) -> None:
        events = [event for event in self._ledger.events() if event.key and (event.stored or event.outcome == "hit")]
        keys = tuple(dict.fromkeys(str(event.key) for event in events))
        if not keys or self._store.read_only:
            return
        if self._begun.early.yields and all(event.outcome == "hit" for event in events):
            return  # its plan is that of the process that asked for it
        with contextlib.suppress(Exception):
            plan = self._plan(keys, frozenset(str(event.key) for event in events if event.outcome == "miss"))
            for plan_id in plans.ids_of(self._begun.program):
                for place, data in plans.write(self._store.root, plan_id, self._begun.program, plan).items():
                    tiers = [tier for tier in self.remotes.tiers if place_of(tier) == place]
                    self.remotes.uploads.add_hint(f"{plans.FOLDER}/{plan_id}", data, tiers)

    def _plan(self, keys: tuple[str, ...], compiled: frozenset[str]) -> Plan:
        """The plan of this run. For each remote that is written to it names packs that are there; new ones are sent."""
        known = self._known_packs()
        at = {place: {key: packed[key] for key in keys if key in packed} for place, packed in known.items()}
        for tiers in self.remotes.written(known):
            packed = self._packed(keys, compiled, known.get(place_of(tiers[0]), {}), tiers)
            at |= {place_of(tier): packed for tier in tiers}
        most = max(at.values(), key=len, default={})
        return Plan(keys, most, at)

    def _known_packs(self) -> dict[str, Mapping[str, str]]:
        """In which packs entries lie, by place: as the plan here says, or that of a remote says of that remote."""
        early = self._begun.early
        known = dict(early.plan.at)
        if early.packed_in is not None:
            packed = early.plan.packed
            known[early.packed_in.place] = {key: name for key, name in packed.items() if key not in early.lost}
        return known

    def _packed(
        self, keys: tuple[str, ...], compiled: frozenset[str], known: Mapping[str, str], tiers: list[RemoteTier]
    ) -> dict[str, str]:
        """In which packs of these remotes these entries lie; new packs are sent there."""
        packed = {key: known[key] for key in keys if key in known}
        head = "" if self._begun.early.head in packed.values() else self._begun.early.head
        unpacked = [key for key in keys if key not in packed]
        for inside, pack in self.remotes.new_packs(unpacked, compiled, len(keys), head=bool(head), tiers=tiers):
            name, head = head or packs.name_of(pack), ""
            self.remotes.uploads.add_hint(f"{packs.FOLDER}/{name}", pack, tiers)
            packed |= dict.fromkeys(inside, name)
        return packed


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
        self._about: tuple[Any, ...] = ()
        self._begun: _Begun | None = None
        self.renew()
        renew_in_child(self, _Known.renew)

    def renew(self) -> None:
        """A child of fork: its parent's threads may have held the lock."""
        self.lock = threading.Lock()

    def begun(self, in_force: Settings, tell: Callable[[str], None]) -> _Begun:
        """What was begun for these settings, or is now. Under the lock.

        Raises:
          SettingError: an address cannot be used.
          MissingClientError: a library is not installed.
        """
        about = tuple(getattr(in_force, name) for name in _THAT_COUNT_EARLY)
        if self._begun is None or self._about != about:
            guards, program = open_guards(in_force, tell), plans.program_now()
            addresses = parsed(in_force.remote)
            sources = [
                Source(number, guard, namespace, addresses[number].identity)
                for number, guard in enumerate(guards)
                for namespace in in_force.read_namespaces
            ]
            self._begun = _Begun(guards, Early(in_force.directory, sources, program), program)
            self._about = about
            self._begun.early.begin()
        return self._begun


_known = _Known()


def begin(in_force: Settings, tell: Callable[[str], None]) -> None:
    """Ask the remotes for the plan of this start, in threads, if these settings have any. Never raises."""
    if in_force.remote and in_force.max_size != 0:
        try:
            with _known.lock:
                _known.begun(in_force, tell)
        except Exception:  # whoever compiles hears of it
            logger.debug("rewarm: nothing is asked for ahead", exc_info=True)


def remotes_of(in_force: Settings, store: LocalStore, ledger: Ledger, tell: Callable[[str], None]) -> Remotes:
    """The remotes of these settings; opened at the first call for them.

    JAX's rule that of a distributed job only process 0 writes holds towards remotes, unless an address says
    `ranks=all`: what other processes store in its directory, process 0 sends.

    Raises:
      SettingError: an address or a key cannot be used.
      MissingClientError: a library is not installed.
    """
    about = (store.read_only, *(getattr(in_force, name) for name in _THAT_COUNT))
    with _known.lock:
        if about not in _known.sharings:
            begun = _known.begun(in_force, tell)
            writes = seam.process_index() == 0
            sends = writes and seam.process_count() > 1
            remotes = open_remotes(
                in_force, store, tell, writes=writes, sends=sends, guards=begun.guards, early=begun.early
            )
            _known.sharings[about] = Sharing(in_force, store, ledger, remotes, begun, sends=sends)
            ledger.remotes.append(remotes)
        return _known.sharings[about].remotes


_THAT_COUNT_EARLY = ("directory", "remote", "namespace", "read_namespaces")
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
