"""What somebody who asks for a lease is told, and who may wait for one.

Not promised: that one who leads is the only one. A lease spares work; whoever compiles without one, or beside another,
does no harm: all writers of an entry are equally good.

Nobody deadlocks, since waiting goes one way only:

* who holds a lease of a fleet waits for nobody;
* who holds a lease of a host, and none of a fleet, waits for the fleet's lease of the same key at most;
* who holds none may wait.

Leases are asked for inside a flight that the thread leads (`single_flight.py`), so who holds one does not wait for
another thread either. What must not be put under a lease is a program that several processes compile together, each
waiting for the others' part: there the leader would wait for those that wait for it, as long as their patience lasts.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

Outcome = Literal["leads", "waited", "alone"]

HOST, FLEET = "host", "fleet"

_TRIES = 3

# What the threads of this process hold: thread, kind, key.
_in_hand: dict[int, tuple[int, str, str]] = {}


class Lead(NamedTuple):
    """How it stands with a key when the wait, if there was one, is over.

    Attributes:
      outcome: "leads": the lease is ours until the block ends; compile. "waited": somebody else's work is over, or its
        result is there; look in the store again, and if it is not there compile without a lease, so that ten who
        waited do not queue up behind one another. "alone": no lease is to be had; compile.
      seconds: how long was waited.
      why: the same in words, for an event.
    """

    outcome: Outcome
    seconds: float
    why: str


class Turn(contextlib.AbstractContextManager[Lead, None]):
    """One request for a lease, from asking to the end of what was done under it.

    A class and not a generator, since Ctrl-C may strike anywhere: what was taken is given back if entering does not
    come to its end, at the end of the block, and should that be interrupted before its first line, with the object.
    Not by `__del__`, which would run each time and lose the Ctrl-C that strikes it.
    """

    kind: ClassVar[str]

    def __init__(self, key: str, patience: float) -> None:
        self.key = key
        self._since = time.monotonic()
        self._patience = patience
        self._held = _Held()
        self._forgotten = weakref.finalize(self, self._held.give_back_whatever_comes)
        self._forgotten.atexit = False

    @abstractmethod
    def _ask(self) -> Lead:
        """Ask, and wait if need be."""

    def __enter__(self) -> Lead:
        try:
            self._since = time.monotonic()
            lead = self._ask()
            if lead.outcome == "leads":
                self._held.note(self.kind, self.key)
            else:
                self._held.give_back()
            return lead
        except BaseException:
            self._held.give_back_whatever_comes()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._held.give_back()
        except BaseException:
            self._held.give_back_whatever_comes()
            raise
        self._forgotten.detach()

    def _may_wait(self) -> bool:
        me = threading.get_ident()
        held = [(kind, key) for thread, kind, key in tuple(_in_hand.values()) if thread == me]
        return not held or (self.kind == FLEET and held == [(HOST, self.key)])

    def _leads_the_directory(self) -> bool:
        """Whether this thread leads the same key on this host, by the lease of its directory."""
        me = threading.get_ident()
        return (me, HOST, self.key) in tuple(_in_hand.values())

    def _waited(self) -> float:
        return time.monotonic() - self._since

    def _is_late(self) -> bool:
        return self._waited() >= self._patience

    def _lead(self, outcome: Outcome, why: str) -> Lead:
        return Lead(outcome, self._waited(), why)


class _Held:
    """What one request holds: how each piece is given back, which may be called any number of times."""

    def __init__(self) -> None:
        self._ways: list[Callable[[], None]] = []

    def add(self, way: Callable[[], None]) -> None:
        """Call `way` in the end."""
        self._ways.append(way)

    def note(self, kind: str, key: str) -> None:
        """This thread leads."""
        _in_hand[id(self)] = (threading.get_ident(), kind, key)

    def give_back(self) -> None:
        """Give back everything."""
        for way in self._ways:
            way()
        self._ways.clear()
        _in_hand.pop(id(self), None)

    def give_back_whatever_comes(self) -> None:
        """The same, after or beside an interrupt, and not to be stopped by another."""
        for _ in range(_TRIES):
            with contextlib.suppress(BaseException):
                self.give_back()
                return


def is_found(found: Callable[[], bool]) -> bool:
    """Whether `found` says so; one that fails does not."""
    try:
        return found()
    except Exception:  # noqa: BLE001 - no failure of a store stops a program
        return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_hand.clear)
