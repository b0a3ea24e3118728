"""What a start asks its remotes for before the first program: its plan, and the packs that hold what it is missing.

Not promised: that anything comes. Nothing here is needed, and nothing is checked or stored: whoever takes an entry from
here checks it, under the settings that are in force by then. Nothing knows JAX, so it may begin before there is a
backend. What comes is at most `packs.MOST` packs, and is kept until it is taken.

A program that asks while its plan is under way waits for it, a quarter of a second at most in the whole start, and for
the pack that is said to have its entry, five seconds at most: its own request would take about as long.

Of the processes of a host that start the same program at once, with one directory, one asks (on Linux, where a name for
that can be held without a file). The others find in the directory what it fetched, or fetch it when they want it.

Races, and their worst outcome:

* a plan that comes while the program asks for one of its entries: that entry is fetched twice.
* a fork: the child has no threads, and nothing of what was under way; it fetches what it needs by itself.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rewarm.remote.blobs import Blobs, RemoteError
from rewarm.sharing import packs, plans
from rewarm.sharing.ahead import arrivals
from rewarm.sharing.forks import renew_in_child
from rewarm.sharing.plans import Plan

logger = logging.getLogger("rewarm")

# How long a program waits for the plan, once, and for a pack, in seconds.
_PLAN_PATIENCE = 0.25
_PACK_PATIENCE = 5.0

# How many packs come at the same time: over the connections on which plan and head were asked for, and so that each has
# its part of a slow line.
_THREADS = 3

# A pack of which fewer entries are missing here is not worth its bytes.
_WORTH = 4

# Of one pack and its index, in bytes.
_PACK_BYTES = packs.LARGEST + (64 << 10)


class Source(NamedTuple):
    """A namespace of a remote.

    Attributes:
      number: of the remote, in the order of the user.
      blobs: the remote, with its deadlines.
      namespace: one of those that are read.
      identity: tells the remote from others of the same place.
    """

    number: int
    blobs: Blobs
    namespace: str
    identity: str = ""

    @property
    def place(self) -> str:
        """What stands for it in a plan."""
        return plans.place_of(self.identity or self.blobs.place, self.namespace)


class Packed(NamedTuple):
    """An entry that came in a pack, as it lies in the remote; nothing of it is checked."""

    blob: bytes
    source: Source


# Hears of entries that came in a pack, and of those that did not and are to be fetched one by one.
Hearer = Callable[[Sequence[str], Sequence[str]], None]


class Early:
    """The plan of one start, and its packs. Safe for any number of threads.

    Args:
      root: the cache directory, which need not be there.
      sources: where to look, in the order in which they count.
      program: what was started (`plans.program_now`).

    Attributes:
      head: the name of the pack that is asked for together with the plan.
      plan: what is known of it by now.
      found_in: which source it came from; `None`: it was here.
      packed_in: the source of which the packs are that it names; `None`: that is not known.
      lost: entries that were not in the pack that the plan names.
      yields: another process of this host asks; nothing comes here.
    """

    def __init__(self, root: Path, sources: Iterable[Source], program: Sequence[str]) -> None:
        self._root = root
        self._sources = tuple(sources)
        self._ids = plans.ids_of(program)
        self.head = next(iter(self._ids), "")
        self._turn: socket.socket | None = None
        self._renew()
        renew_in_child(self, Early._renew)

    def _renew(self) -> None:
        if self._turn is not None:  # in a child of fork it is the parent's
            self._turn.close()
            self._turn = None
        self.yields = False
        self._changed = threading.Condition()
        self._searching = False
        self._coming: dict[str, str] = {}
        self._came: dict[str, Packed] = {}
        self._left: list[str] = []
        self._heads: dict[Source, _Answer] = {}
        self._hear: Hearer | None = None
        self._patient_until = math.inf
        self.plan = plans.NOTHING
        self.found_in: Source | None = None
        self.packed_in: Source | None = None
        self.lost: set[str] = set()

    def begin(self) -> None:
        """Look for the plan, in a thread, unless another process does. Where none can be started nothing comes."""
        if not self._takes_turn():
            self.yields = True
            return
        self._searching = True
        if not _started(self._search, "rewarm-plan"):
            self._searching = False

    def attach(self, hear: Hearer) -> None:
        """Tell `hear` what came until now and, in the threads of this, what comes."""
        with self._changed:
            came, left = list(self._came), self._left
            self._hear, self._left = hear, []
        hear(came, left)

    def wait(self, key: str) -> None:
        """The program wants this entry: wait for what is under way and likely to have it."""
        with self._changed:
            now = time.monotonic()
            self._patient_until = min(self._patient_until, now + _PLAN_PATIENCE)
            self._changed.wait_for(lambda: not self._searching, max(0.0, self._patient_until - now))
            self._changed.wait_for(lambda: key not in self._coming, _PACK_PATIENCE)

    def take(self, key: str) -> Packed | None:
        """What came of this entry, once."""
        with self._changed:
            return self._came.pop(key, None)

    def finished(self, seconds: float) -> bool:
        """Wait until the plan and all packs are here, or did not come."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._searching or self._coming), seconds)

    def _takes_turn(self) -> bool:
        """Whether no other process of this host is asking for the same. A name in the abstract namespace of sockets
        (unix(7)) is held until it is closed, whatever ends its process."""
        if not (self._sources and self.head and sys.platform == "linux"):
            return True
        about = f"{os.getuid()} {self._root} {self.head} {self._asked()}"
        turn = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            turn.bind(f"\0rewarm-plan-{hashlib.sha256(about.encode('utf-8', 'surrogatepass')).hexdigest()}")
        except OSError as error:
            turn.close()
            return error.errno != errno.EADDRINUSE
        self._turn = turn
        return True

    def _asked(self) -> list[tuple[str, str]]:
        return [(one.identity or one.blobs.place, one.namespace) for one in self._sources]

    # -- in threads --------------------------------------------------------------------------------------------

    def _search(self) -> None:
        try:
            self._look_for_all()
        finally:
            if self._turn is not None:
                self._turn.close()

    def _look_for_all(self) -> None:
        plan, wanted = plans.NOTHING, dict[str, list[str]]()
        here, missing = list[str](), list[str]()
        sources: tuple[Source, ...] = ()
        try:
            plan, sources = self._find()
            for key in plan.keys:
                (here if self._is_here(key) else missing).append(key)
            wanted = _by_pack(plan, missing)
        except Exception:
            logger.debug("rewarm: no plan", exc_info=True)
        coming = {key: name for name, keys in wanted.items() for key in keys}
        with self._changed:
            self.plan, self._searching = plan, False
            self._coming = dict(coming)
            self._changed.notify_all()
        self._tell({}, (), [key for key in missing if key not in coming])
        arrivals.tell(here)
        self._fetch_packs(list(wanted), sources)
        self._heads = {}  # of other plans

    def _is_here(self, key: str) -> bool:
        return (self._root / key[:2] / key).exists()

    def _find(self) -> tuple[Plan, tuple[Source, ...]]:
        """The plan by the most exact id that anybody has: here, else in the first of the sources; and where its packs
        may lie."""
        here = {plan_id: plans.read(self._root, plan_id) for plan_id in self._ids}
        if not self.head or here[self.head].keys:
            return self._of_here(here.get(self.head, plans.NOTHING))
        self._heads = {
            source: _Answer(functools.partial(self._ask_for_pack, self.head, source)) for source in self._sources
        }
        asked = [(plan_id, source) for plan_id in self._ids if not here[plan_id].keys for source in self._sources]
        answers = [_Answer(functools.partial(_fetch_plan, *one)) for one in asked]
        for plan_id in self._ids:
            if here[plan_id].keys:
                return self._of_here(here[plan_id])
            for number, (asked_id, source) in enumerate(asked):
                if asked_id == plan_id and (plan := answers[number].get()) and plan.keys:
                    self.found_in = self.packed_in = source
                    return plan, (source,)
        return plans.NOTHING, ()

    def _of_here(self, plan: Plan) -> tuple[Plan, tuple[Source, ...]]:
        """A plan that was here, with the packs of the remote that has most of its entries in some, and where to ask for
        them; the nearest of several that have as many."""
        known = [one for one in self._sources if plan.at.get(one.place)]
        if not known:
            return plan, self._sources
        best = self.packed_in = max(known, key=lambda one: len(plan.at[one.place]))
        return plan._replace(packed=plan.at[best.place]), (best, *(one for one in self._sources if one is not best))

    def _fetch_packs(self, names: list[str], sources: tuple[Source, ...]) -> None:
        waiting = iter(names)
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    name = next(waiting, None)
                if name is None:
                    return
                self._fetch_pack(name, sources)

        for _ in range(min(_THREADS, len(names)) - 1):
            _started(work, "rewarm-pack")
        work()

    def _fetch_pack(self, name: str, sources: tuple[Source, ...]) -> None:
        came: dict[str, Packed] = {}
        try:
            for source in sources:
                head = self._heads.get(source) if name == self.head else None
                found = head.get() if head is not None else self._ask_for_pack(name, source)
                if found:
                    came = {key: Packed(blob, source) for key, blob in found.items()}
                    break
        finally:
            with self._changed:
                due = [key for key, pack in self._coming.items() if pack == name]
            self._tell({key: came[key] for key in due if key in came}, due, [key for key in due if key not in came])

    def _ask_for_pack(self, name: str, source: Source) -> dict[str, bytes]:
        with contextlib.suppress(RemoteError):
            data = source.blobs.get(f"{source.namespace}/{packs.FOLDER}/{name}", limit=_PACK_BYTES)
            return packs.unpack(data) if data is not None else {}
        return {}

    def _tell(self, came: dict[str, Packed], due: Iterable[str], left: list[str]) -> None:
        """Some entries came, of those that were due, and some are left to be fetched one by one."""
        with self._changed:
            self._came.update(came)
            self.lost.update(key for key in due if key not in came)
            for key in due:
                del self._coming[key]
            self._changed.notify_all()
            hear = self._hear
            if hear is None:
                self._left += left
        if hear is not None:
            hear(list(came), left)


class _Answer:
    """What a call returns, which runs in a thread that the end of the program does not wait for."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._result: Any = None
        self._done = threading.Event()
        if not _started(self._run, "rewarm-plan"):
            self._run()

    def get(self) -> Any:
        """It, once it is there; `None` for an exception."""
        self._done.wait()
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._call()
        except Exception:
            logger.debug("rewarm: no answer", exc_info=True)
        finally:
            self._done.set()


def _fetch_plan(plan_id: str, source: Source) -> Plan:
    return plans.fetch(source.blobs, source.namespace, plan_id)


def _by_pack(plan: Plan, keys: Iterable[str]) -> dict[str, list[str]]:
    """These keys by the pack that has them, for the packs that are worth fetching, in the order of the keys."""
    found: dict[str, list[str]] = {}
    for key in keys:
        if key in plan.packed:
            found.setdefault(plan.packed[key], []).append(key)
    return {name: keys for name, keys in list(found.items())[: packs.MOST] if len(keys) >= _WORTH}


def _started(work: Callable[[], None], name: str) -> bool:
    """Start a thread; at the end of a program none can be (Python 3.12)."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except (RuntimeError, MemoryError):
        return False
    return True
