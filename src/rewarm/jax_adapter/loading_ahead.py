"""Loading ahead in the life of a process: begun when rewarm turns on, noted while it runs, kept for the next start.

Not promised: that anything is. No program of several processes loads ahead, since their ranks share one record.

An executable is handed to the program only if it was loaded exactly as the program wants it: by the same client, on the
same devices, with the same options byte for byte, and without callbacks. What has not run on this host yet is loaded
under the same marks as by the program, and its first run is watched (`first_runs.py`).

What earlier starts on this host loaded is loaded as they did. Of what else the program is likely to want (entries that
come from a remote by its plan, or that the plan names and that are here, or a record of another host) the entry itself
says how: but only of one whose key says that it was made by the compiler, and for a device, as they are here.

The record is written at the end of the program and, since many programs are killed, a few seconds after the last new
load.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rewarm import at_end, settings
from rewarm.cache import EXECUTABLE, WAY, Ready, Request
from rewarm.envelope import Entry, Header, content_of, open_entry
from rewarm.identity import Machine, Toolchain, machine_of_executable, machine_of_topology
from rewarm.in_force import Settings
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.first_runs import EntryTrials, trials_of
from rewarm.jax_adapter.requests import Identifier, Kind
from rewarm.ledger import Ledger
from rewarm.restart import Ahead, Load, Opened, Record, Surroundings, Way, loads, surroundings
from rewarm.sharing import plans
from rewarm.sharing.ahead import arrivals
from rewarm.sharing.forks import renew_in_child
from rewarm.small_files import PRIVATE, SHARED
from rewarm.store import LocalStore
from rewarm.telling import Teller

logger = logging.getLogger("rewarm")

# A record is written when nothing new was loaded for the first, and at last after the second; in seconds.
_QUIET = 3.0
_AT_LAST = 60.0

# A program that ended and used less than this share of its record has become another.
_STILL_THE_SAME = 0.5

# How long the program's import of JAX is waited for, in seconds.
_IMPORT = 60.0


class _Jax:
    """Loads by the clients that the program made, or by one that was made ahead (`restart.Loader`).

    Args:
      in_force: the settings.
      trials: stands by when an entry is loaded that has not run here.
    """

    def __init__(self, in_force: Settings, trials: Callable[[], EntryTrials]) -> None:
        self._settings = in_force
        self._trials = trials
        self._asked: set[tuple[str, str]] = set()
        self._kinds: dict[Way, tuple[Any, Kind]] = {}
        self._machine: tuple[Any, Machine | None] = None, None
        self._renew()
        renew_in_child(self, _Jax._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def is_ready(self) -> bool:
        return seam.clients_are_made() or seam.client_ahead() is not None

    def load(self, way: Way, opened: Opened, *, recorded: bool) -> Any | None:
        client = seam.client_in_use(way.platform) if seam.clients_are_made() else seam.client_ahead()
        if client is None or client.platform != way.platform or seam.job_client() is not None:
            return None
        header, content, trials = opened.entry.header, content_of(opened.data), self._trials()
        if trials.refused(header.key) is not None or trials.condemned(content) is not None:
            return None
        if not (recorded or self._is_of_this_kind(client, way, header)) or self._is_for_another_cpu(
            client, way, opened
        ):
            return None
        with trials.loading_ahead(header.key, header.program, content):
            return seam.load_bytes(client, opened.raw, way.devices, way.options)

    def is_current(self, way: Way, executable: Any) -> bool:
        return seam.client_in_use(way.platform) is executable.client

    def was_asked(self, request: Request[Any]) -> None:
        """The program asks for this: what the same compiler made for the same kind of device may be loaded."""
        if request.components is not None:
            self._asked.add(_kind_in({row.name: row.digest for row in request.components.rows}))

    def _is_of_this_kind(self, client: Any, way: Way, header: Header) -> bool:
        said = _kind_in({row["name"]: row["digest"] for row in header.components})
        if said in self._asked:
            return True
        kind = self._kind(client, way)
        return said == (kind.toolchain, kind.target)

    def _kind(self, client: Any, way: Way) -> Kind:
        with self._lock:  # 16 ms at the first call
            found = self._kinds.get(way)
            if found is None or found[0] is not client:
                found = self._kinds[way] = client, self._identifier.kind(client, way.devices, way.options)
            return found[1]

    @functools.cached_property
    def _identifier(self) -> Identifier:
        from rewarm.jax_adapter.session import LIBRARIES_MEMO

        return Identifier(self._settings, Toolchain(self._settings.directory / LIBRARIES_MEMO))

    def _is_for_another_cpu(self, client: Any, way: Way, opened: Opened) -> bool:
        """Whether it has instructions that this CPU lacks, whatever the entry says; see `executables.load`."""
        if client.platform != "cpu":
            return False
        made_for = machine_of_executable(opened.raw)
        machine = self._machine_of(client, way)
        return made_for is not None and machine is not None and bool(machine.lacks(made_for))

    def _machine_of(self, client: Any, way: Way) -> Machine | None:
        known, machine = self._machine
        if known is not client:
            topology, _ = seam.topology(client.local_devices()[:1])
            machine = self._kind(client, way).machine if topology is None else machine_of_topology(topology)
            self._machine = client, machine
        return machine


def _kind_in(digests: dict[str, str]) -> tuple[str, str]:
    """By which compiler something was made, and for which kind of device."""
    return digests["toolchain"], digests["target"]


class LoadingAhead:
    """The loads of one cache directory in this process, as the cache wants them (`cache.Ahead`). No method raises."""

    def __init__(self, in_force: Settings, store: LocalStore, program: tuple[str, ...]) -> None:
        self._store = store
        self._program = program
        self._modes = SHARED if in_force.shared else PRIVATE
        self._teller = Teller()
        self._ways: dict[str, Way | None] = {}
        before = loads.read(store.root, program)
        self._surroundings = before.surroundings
        self._known = {load.key: load for load in before.loads}
        self._loader = _Jax(in_force, self._trials)
        self.ahead = Ahead(before.loads, self._read, self._loader)
        self._renew()
        renew_in_child(self, LoadingAhead._renew)
        self._has_begun = False
        if not (before.loads or in_force.remote):  # whose plan is looked for by `sharing.early`
            self._offer(_planned(store.root, program))
        arrivals.hear(self._offer)
        if seam.clients_are_made():
            self.begin()
        elif before.loads and _client.is_as_before(before.surroundings):
            self.begin()
            early = in_force.load_ahead == "early"
            if early and all(load.way is not None and load.way.platform == "cpu" for load in before.loads):
                _client.make_ahead()
        else:
            _client.when_made(self.begin)

    def begin(self) -> None:
        """Have threads read and load, from the second call on no more than from the first."""
        if not self._has_begun:
            self._has_begun = True
            self.ahead.begin()

    def _offer(self, keys: Sequence[str]) -> None:
        """The program is likely to want these entries, if they are here."""
        if "jax" not in sys.modules or seam.job_client() is None:
            self.ahead.offer(map(Load, keys))

    def _trials(self) -> EntryTrials:
        """Judges what dead processes left in the directory, which is there, at the first call in this process."""
        return trials_of(self._store.root, self._store, self._teller.tell, self._modes)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[str, Load] = {}
        self._news = self._first_news = 0.0

    def take(self, key: str, request: Request[Any]) -> Ready | None:
        """See `cache.Ahead`."""
        self._loader.was_asked(request)
        taken = self.ahead.take(key, request.way)
        # What was put aside meanwhile, by whoever judged it, is not to be run from memory.
        if taken is None or not self._store.use_if_still(key, taken.opened.which):
            return None
        opened = taken.opened
        return Ready(opened.entry, opened.data, opened.raw, taken.executable, taken.spans)

    def note(self, key: str, way: Callable[[], Way | None], size: int) -> None:
        """See `cache.Ahead`."""
        if key in self._used or self._store.read_only:
            return
        found = way()
        if found is None or len(self._used) >= loads.LOADS or seam.job_client() is not None:
            return
        load = self._used[key] = Load(key, found, size)
        if self._known.get(key) != load:
            self._has_news()

    def _has_news(self) -> None:
        with self._lock:
            begins, self._news = not self._news, time.monotonic()
        if begins:
            self._first_news = self._news
            try:
                threading.Thread(target=self._write_when_quiet, name="rewarm-loads", daemon=True).start()
            except (RuntimeError, MemoryError):  # too many threads, or the program ends: its end writes
                return

    def _write_when_quiet(self) -> None:
        until = self._first_news + _AT_LAST
        while (rest := min(self._news + _QUIET, until) - time.monotonic()) > 0:
            time.sleep(rest)
        with self._lock:
            self._news = 0.0
        with at_end.unbroken():
            self._write()

    def finish(self) -> None:
        """The program ends: keep what it loaded, unless it only began to."""
        used, known = self._used.keys(), self._known.keys()
        if used and not (used <= known and self._is_as_before() and len(used) >= _STILL_THE_SAME * len(known)):
            self._write()

    def _is_as_before(self) -> bool:
        same = all(self._known.get(key) == load for key, load in list(self._used.items()))
        return same and self._surroundings == _client.surroundings

    def _write(self) -> None:
        try:
            record = Record(tuple(self._used.values()), _client.surroundings)
            loads.write(self._store.root, self._program, record)
        except Exception:
            logger.debug("rewarm: what was loaded is not kept", exc_info=True)

    def _read(self, key: str) -> Opened | None:
        which = self._store.which(key)
        if which is None:
            return None
        self._trials()  # before it is read: what is condemned then is not in memory
        data = self._store.get(key, use=False)
        if data is None:
            return None
        entry = open_entry(data, key)
        recorded = key in self._known and self._known[key].way is not None
        if not recorded and entry.header.producer.get("jaxlib") != seam.jaxlib_version():
            return None  # of no use here: so it is not unpacked
        way = None if recorded else self._way_in(entry)
        return Opened(entry, data, entry.section(EXECUTABLE), way, which)

    def _way_in(self, entry: Entry) -> Way | None:
        """How an entry says that it is loaded. Most entries of a program say the same."""
        section = next((one for one in entry.header.sections if one.name == WAY), None)
        if section is None:
            return None
        if section.sha256 not in self._ways:
            self._ways[section.sha256] = Way.said(entry.section(WAY))
        return self._ways[section.sha256]


class _Client:
    """JAX's CPU client: what was about the program when it made one, and whether one may be made ahead.

    An early client is dropped if JAX then asks for another (`seam/early_client.py`). Beyond that, only what a process
    does once and for all can be spoilt: XLA reads `XLA_FLAGS` for its first client, and a fork with threads about is
    not what it was without. So none is made unless the surroundings of the last start hold again; and since a program
    may set `XLA_FLAGS` by a file that these do not know, the user has to ask for it.
    """

    def __init__(self) -> None:
        self.surroundings: Surroundings | None = None
        self._environment = ""
        self._forked = False
        self._then: list[Callable[[], None]] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_child=seam.forget_client_ahead)

    def _before_fork(self) -> None:
        self._forked = True

    def listen(self) -> None:
        """Be told when JAX makes its client; JAX is there. Harmless a second time."""
        seam.hear_of_cpu_client(self._heard, _read_by_clients)

    def note_environment(self) -> None:
        """Remember what the program was started with."""
        self._environment = self._environment or settings.digest_of_environment()

    def _heard(self) -> None:
        # In the program's thread, a moment before there is a client.
        if self.surroundings is None and not self._forked and not settings.has_launcher():
            with contextlib.suppress(Exception):
                self.surroundings = surroundings(self._environment, settings.xla_flags())
        then, self._then = self._then, []
        for act in then:
            act()

    def is_as_before(self, before: Surroundings | None) -> bool:
        """Whether threads may be started, and a client made, before the program makes one."""
        if before is None or self._forked or settings.has_launcher():
            return False
        return before.hold(self._environment, settings.xla_flags())

    def when_made(self, act: Callable[[], None]) -> None:
        """Do something when JAX makes its client, or at the first compile."""
        self._then.append(act)

    def make_ahead(self) -> None:
        """Make a client in a thread, once JAX is imported."""
        with contextlib.suppress(RuntimeError, MemoryError):
            threading.Thread(target=self._make_ahead, name="rewarm-client", daemon=True).start()

    def _make_ahead(self) -> None:
        try:
            if _jax_is_imported() and not (self._forked or seam.clients_are_made()):
                with at_end.unbroken():
                    seam.make_cpu_client_ahead()
        except Exception:
            logger.debug("rewarm: no client is made ahead", exc_info=True)


def _read_by_clients() -> tuple[Any, ...]:
    """What a CPU client reads beside its arguments."""
    return settings.xla_flags(), settings.cpu_threads()


def _jax_is_imported() -> bool:
    """Wait for the program's own import of JAX."""
    until = time.monotonic() + _IMPORT
    while time.monotonic() < until:
        jax = sys.modules.get("jax")
        if jax is not None and not getattr(getattr(jax, "__spec__", None), "_initializing", False):
            _client.listen()
            return True
        time.sleep(0.005)
    return False


_client = _Client()


def _planned(root: Path, program: tuple[str, ...]) -> tuple[str, ...]:
    """What a plan here says that the program wants; nothing where there is none."""
    found = (plans.read(root, plan_id).keys for plan_id in plans.ids_of(program))
    return next((keys for keys in found if keys), ())


class _Known:
    """What was begun in this process, by directory."""

    def __init__(self) -> None:
        self.begun: dict[tuple[Path, bool], LoadingAhead] = {}
        self.renew()
        renew_in_child(self, _Known.renew)

    def renew(self) -> None:
        """A child of fork: its parent's threads may have held the lock."""
        self.lock = threading.Lock()


_known = _Known()


def begin(in_force: Settings) -> None:
    """Read ahead what this start is likely to want, in threads. Never raises."""
    if not in_force.load_ahead:
        return
    try:
        _client.note_environment()
        if "jax" in sys.modules:
            _client.listen()
        of(in_force)
    except Exception:
        logger.debug("rewarm: nothing is loaded ahead", exc_info=True)


def stop() -> None:
    """Leave JAX as it was found. What is loaded stays until its turn: a program may turn rewarm on again."""
    if "jax" in sys.modules:
        with contextlib.suppress(Exception):
            seam.put_back_cpu_client()


def of(in_force: Settings, ledger: Ledger | None = None) -> LoadingAhead | None:
    """What is loaded ahead in the directory of these settings; begun at the first call for it in a process."""
    if not in_force.load_ahead or in_force.max_size == 0 or ("jax" in sys.modules and seam.job_client() is not None):
        return None
    about = in_force.directory, in_force.shared
    with _known.lock:
        if about not in _known.begun:
            store = LocalStore(in_force.directory, shared=in_force.shared)
            if not in_force.shared and store.others_may_write():
                return None
            store.own_alone = not in_force.shared
            _known.begun[about] = LoadingAhead(in_force, store, plans.program_now())
        found = _known.begun[about]
    if ledger is not None:
        ledger.ahead = found.ahead.counts
        found.begin()
    return found


@atexit.register
def _at_exit() -> None:
    for one in list(_known.begun.values()):
        one.finish()
