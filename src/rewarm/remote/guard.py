"""A remote that cannot hold the program up: a deadline for every verb, a circuit breaker, and safety across forks.

Not promised: that a request which was given up had no effect. A put may still arrive, which harms nobody, since all
writers of a name are equally good; its thread and its bytes stay until the client lets go of them.

* A verb answers within the deadline, whatever the client does. It runs in a thread of the guard's own (`workers.py`).
  Of a scan, each step answers within the deadline.
* What failed is passed over for a while (`breaker.py`). When a deadline passes in which the remote answered nobody,
  everybody who waits for it is let go: it costs one deadline, not one for each thread or each program. A look-up with
  which it is tried later waits for a moment alone; what it says after that is learned all the same.
* A put that is refused turns writing off, a place that is not there turns everything off, for this process.
* A client that cannot be imported since the program is at its end says nothing about the remote, and nothing is told.
* In a child of fork, a client that cannot live through a fork is refused at once; one that can is opened again.

Races, and their worst outcome:

* requests that were admitted before a pause go on beside it: each costs its caller the rest of one deadline at most.
* two threads see the same change of state: the change is made under the lock, so it is told once, by the first.
* a fork while another thread holds the lock: the child has new locks and no threads, before its first line runs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from rewarm.at_end import unbroken
from rewarm.remote import breaker
from rewarm.remote.blobs import (
    PASSED_OVER,
    BlobInfo,
    Blobs,
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    ThrottledError,
    UnreachableError,
    check_name,
)
from rewarm.remote.breaker import Failure, State, Verdict
from rewarm.remote.workers import LetGoError, NoThreadError, TimeUpError, Workers
from rewarm.telling import say_nothing

T = TypeVar("T")

# How many requests run at once; what more are asked for wait for their turn, within their deadline.
_THREADS = 16

# How many threads may hang in requests that were given up before nothing is asked any more.
_STUCK = 16

# One step of a scan: so many blobs, or what came in this part of the deadline.
_STEP = 1000
_STEP_PART = 0.5

# A request that waited for a thread, and had less than this part of the deadline left, says nothing about the remote.
_FAIR_PART = 0.5

# So many seconds a look-up waits for a remote that was passed over until now.
_MOMENT = 0.5

# A client that gives up after this part of the deadline was not answered in it.
_NEARLY = 0.9

# Within this many seconds after its deadline at the latest the outcome of a trial is known.
_GRACE = 1.0

_FORKED = "this process was forked after a remote was used, and the client cannot go on in it"
_STUCK_REASON = "too many requests hang in the client"
_NO_ANSWER = "no answer within the deadline"
_BUSY = "all connections are busy"
_TOO_LATE = "the program was at its end before the client was loaded"


# Which process used a kind of client first. What native code keeps is lost to a child for new clients as well.
_used_first: dict[type, int] = {}


@dataclass(frozen=True)
class Traffic:
    """What went between this process and a remote.

    Attributes:
      requests: how many were made.
      passed_over: how many were not made, since the remote was dead, throttling, read-only or off.
      failures: how many failed, by reason.
      bytes_read: of blobs.
      bytes_written: of blobs.
      seconds: how long callers waited, all of them together.
      opened: how often the remote was found dead or throttling.
      stuck: how many threads are left behind in requests that do not end.
      state: "ok", "dead", "throttled", "read-only" or "off".
    """

    requests: int = 0
    passed_over: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    opened: int = 0
    stuck: int = 0
    state: str = "ok"


class Guarded:
    """`blobs`, with a deadline in seconds for every verb. Safe for any number of threads.

    `tell` hears each change of state, in one line without a full stop. `Blobs` that can be opened again in a child of
    fork say so with an attribute `reopens_after_fork` that is true; their `close` must not wait for anything. A method
    `prepare` is called before the first verb, outside of its deadline: importing a client is not the remote's silence.

    Attributes:
      deadline: seconds.
    """

    def __init__(
        self,
        blobs: Blobs,
        *,
        deadline: float = 5.0,
        threads: int = _THREADS,
        stuck_limit: int = _STUCK,
        tell: Callable[[str], None] = say_nothing,
    ) -> None:
        self._blobs = blobs
        self.deadline = deadline
        self._tell = tell
        self._sizes = threads, stuck_limit
        self._state = State()
        self._pid = 0  # of the process that used it first
        self._reopens = bool(getattr(blobs, "reopens_after_fork", False))
        self._reopen = False
        self._prepared = not hasattr(blobs, "prepare")
        self._too_late = False
        self._full_told = False
        self._tried: float | None = None  # when a look-up began for which nobody waits any more
        self._totals = Counter[str]()
        self._failures = Counter[str]()
        self._seconds = 0.0
        self._renew()
        if hasattr(os, "register_at_fork"):
            this = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forked(this))

    @property
    def place(self) -> str:
        """Where the remote is; see `Blobs.place`."""
        return self._blobs.place

    # -- the verbs ---------------------------------------------------------------------------------------------

    def get(self, name: str, *, limit: int) -> bytes | None:
        """See `Blobs.get`; an error comes within the deadline."""
        check_name(name)
        data = self._ask(lambda: self._blobs.get(name, limit=limit), looks_up=True)
        self._count("bytes_read", 0 if data is None else len(data))
        return data

    def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
        """See `Blobs.put`; an error comes within the deadline, and then the blob may be there or not.

        Raises:
          ThrottledError: at once, while the remote wants to be left alone; `retry_after` says how long.
        """
        check_name(name)
        written = self._ask(lambda: self._blobs.put(name, data, only_new=only_new), writes=True)
        self._count("bytes_written", len(data) if written else 0)
        return written

    def delete(self, name: str) -> None:
        """See `Blobs.delete`; an error comes within the deadline."""
        check_name(name)
        self._ask(lambda: self._blobs.delete(name))

    def scan(self, prefix: str) -> Iterator[BlobInfo]:
        """See `Blobs.scan`. Each step, of up to 1000 blobs, answers within the deadline."""
        found = self._ask(lambda: self._blobs.scan(prefix))
        while step := self._ask(lambda: _step(found, self.deadline * _STEP_PART)):
            yield from step

    def remove_leftovers(self, prefix: str) -> int:
        """Remove what writers that died a day ago left beside the blobs of this prefix, where a remote has such (a
        folder, whose blobs are written under another name first); returns how many files went. An error comes within
        the deadline."""
        remove = getattr(self._blobs, "remove_leftovers", None)
        return 0 if remove is None else self._ask(lambda: remove(prefix))

    def close(self) -> None:
        """Let go of connections and threads, within the deadline; what goes wrong is of no consequence."""
        if self._pid != os.getpid():
            return
        forked = self._state.off is not None and self._state.off.reason == _FORKED
        with contextlib.suppress(Exception):
            if not forked:  # else the connections are the parent's
                self._workers.call(self._blobs.close, time.monotonic() + self.deadline)
        self._workers.retire()

    def traffic(self) -> Traffic:
        """What went between this process and the remote so far."""
        with self._lock:
            return Traffic(
                requests=self._totals["requests"],
                passed_over=self._totals["passed_over"],
                failures=MappingProxyType(dict(self._failures)),
                bytes_read=self._totals["bytes_read"],
                bytes_written=self._totals["bytes_written"],
                seconds=self._seconds,
                opened=self._state.opened,
                stuck=self._workers.stuck,
                state=_name_of(self._state),
            )

    def have_ready(self, *, load: bool) -> None:
        """See to what cannot be had for the first time when the program is at its end: a thread and, with `load`, the
        client, which may take a fifth of a second to import. Never raises. Nothing is asked, so a child of fork may
        still be the first to use a remote."""
        if load and not self._prepared:
            with contextlib.suppress(RemoteError):
                self._prepare()
        self._workers.have_one()

    # -- one request -------------------------------------------------------------------------------------------

    def _ask(self, work: Callable[[], T], *, writes: bool = False, looks_up: bool = False) -> T:
        self._know_the_process()
        if not self._prepared:
            self._prepare()
        began = time.monotonic()
        self._miss_the_tried(began)
        if self._admit(began, writes=writes) and looks_up:
            return self._try(work, began)
        try:
            result = self._workers.call(work, began + self.deadline)
        except RemoteError as error:
            self._learn(error, began, writes=writes)
            raise
        except TimeUpError as error:
            raise self._time_up(error, began) from None
        except LetGoError:
            raise self._unheard(_NO_ANSWER, began) from None
        except NoThreadError:
            raise self._unheard("no thread can be started", began) from None
        except Exception as error:  # the client's, or ours: whatever it is, it is not the program's to see
            odd = UnreachableError(f"unexpected {type(error).__name__}")
            self._learn(odd, began, writes=writes)
            raise odd from error
        self._answered(began)
        return result

    def _try(self, work: Callable[[], T], began: float) -> T:
        """A request to a remote that was silent, for which its caller waits a moment."""

        def learned() -> T:
            try:
                result = work()
            except RemoteError as error:
                self._learn(error, began, writes=False)
                raise
            except Exception as error:
                odd = UnreachableError(f"unexpected {type(error).__name__}")
                self._learn(odd, began, writes=False)
                raise odd from error
            finally:
                self._tried = None
            self._answered(began)
            return result

        self._tried = began
        try:
            return self._workers.call(learned, began + min(_MOMENT, self.deadline))
        except (TimeUpError, LetGoError):
            raise self._unheard(f"{PASSED_OVER}{self._state.reason}", began) from None
        except NoThreadError:
            raise self._unheard("no thread can be started", began) from None

    def _miss_the_tried(self, now: float) -> None:
        """Where what was tried in the background has no outcome within the deadline, that is one. Two threads that see
        it at once are one failure: the second began before the pause that the first makes."""
        began = self._tried
        if began is not None and now - began >= self.deadline:
            self._tried = None
            self._failed(Failure.TIMED_OUT, _NO_ANSWER, began)

    def _prepare(self) -> None:
        """Twice where two threads come first, which harms nobody: imports have locks of their own.

        Raises:
          UnreachableError: the program is at its end, where not every library can be imported any more.
        """
        if self._too_late:
            raise UnreachableError(_TOO_LATE)
        try:
            with unbroken():
                self._blobs.prepare()  # type: ignore[attr-defined]  # it is no part of the contract
        except Exception as error:  # noqa: BLE001  a client that is missing or broken
            if not threading.main_thread().is_alive():  # says nothing about the client, nor about the remote
                self._too_late = True
                raise self._unheard(_TOO_LATE, time.monotonic()) from None
            reason = f"the client cannot be loaded ({type(error).__name__})"
            self._change(lambda state: breaker.shut(state, reason), f"is off: {reason}")
        self._prepared = True

    def _admit(self, now: float, *, writes: bool) -> bool:
        """Whether it goes to see if a remote answers again that did not.

        Raises:
          RemoteError: it does not go.
        """
        with self._lock:
            full = self._workers.is_full() and self._state.off is None
            news, self._full_told = full and not self._full_told, full
            patience = self.deadline + _GRACE
            if full:
                verdict = Verdict.FULL
            else:
                self._state, verdict = breaker.admit(self._state, now, writes=writes, patience=patience)
            state = self._state
            self._totals["requests" if verdict is Verdict.GO else "passed_over"] += 1
        if news:
            self._tell(f"{self.place} is passed over: {_STUCK_REASON}")
        if verdict is not Verdict.GO:
            raise _passed_over(verdict, state, now)
        return state.pause is not None and not state.pause.throttled

    def _answered(self, began: float) -> None:
        now = time.monotonic()
        with self._lock:
            self._seconds += now - began
            before, self._state = self._state, breaker.answered(self._state, began, now)
        if before.pause and not self._state.pause:
            self._tell(f"{self.place} answers again")

    def _learn(self, error: RemoteError, began: float, *, writes: bool) -> None:
        """What an error that the remote gave says about it."""
        reason = error.reason
        if isinstance(error, UnreachableError):
            # Clients have timeouts of their own, about as long as the deadline: theirs may be the first to strike.
            timed_out = time.monotonic() - began >= self.deadline * _NEARLY
            self._failed(Failure.TIMED_OUT if timed_out else Failure.UNREACHABLE, reason, began)
            return
        if isinstance(error, ThrottledError):
            self._failed(Failure.THROTTLED, reason, began, error.retry_after)
            return
        with self._lock:
            self._failures[reason] += 1
        self._answered(began)
        if isinstance(error, NoSuchPlaceError):
            self._change(lambda state: breaker.shut(state, reason, no_place=True), f"is off: {reason}")
        elif isinstance(error, RefusedError) and writes:
            self._change(lambda state: breaker.refused_to_write(state, reason), f"is read-only: {reason}")

    def _time_up(self, error: TimeUpError, began: float) -> UnreachableError:
        if error.ran < self.deadline * _FAIR_PART:
            return self._unheard(_BUSY, began)
        self._failed(Failure.TIMED_OUT, _NO_ANSWER, began)
        return UnreachableError(_NO_ANSWER)

    def _unheard(self, reason: str, began: float) -> UnreachableError:
        """An error that says nothing new about the remote."""
        with self._lock:
            self._failures[reason] += 1
            self._seconds += time.monotonic() - began
        return UnreachableError(reason)

    def _failed(self, failure: Failure, reason: str, began: float, retry_after: float | None = None) -> None:
        """Count a failure. Where a pause begins since nobody was answered in a whole deadline, all who wait may go."""
        now = time.monotonic()
        with self._lock:
            self._failures[reason] += 1
            self._seconds += now - began
            before = self._state
            self._state = breaker.failed(
                before, failure, reason, began=began, now=now, chance=random.random(), retry_after=retry_after
            )
            begins = self._state.opened > before.opened
        if begins and failure is Failure.TIMED_OUT:
            self._workers.let_go()
        if begins and before.pause is None:
            what = "asks for fewer requests" if failure is Failure.THROTTLED else "does not answer"
            self._tell(f"{self.place} {what} ({reason}); it is passed over for a while")

    def _change(self, change: Callable[[State], State], line: str) -> None:
        with self._lock:
            before, self._state = self._state, change(self._state)
            news = before != self._state
        if news:
            self._tell(f"{self.place} {line}")

    def _count(self, what: str, number: int) -> None:
        with self._lock:
            self._totals[what] += number

    # -- forks -------------------------------------------------------------------------------------------------

    def _know_the_process(self) -> None:
        """See to the client in a process that was forked; remember the one that used it first."""
        here = os.getpid()
        if self._pid != here:
            if self._pid:  # by a fork that Python did not see
                self._after_fork()
            self._pid = here
            if _used_first.setdefault(type(self._blobs), here) != here and not self._reopens:
                self._change(lambda state: breaker.shut(state, _FORKED), f"is off: {_FORKED}")
        if self._reopen:
            with self._lock:
                if self._reopen:
                    self._blobs.close()
                    self._reopen = False

    def _after_fork(self) -> None:
        """What a child does first: locks may be held and connections in use by threads that only the parent has."""
        self._renew()
        if self._pid:
            self._pid = os.getpid()
            self._reopen = self._reopens
            self._tried = None
            self._state = breaker.without_trial(self._state)
            if not self._reopens:
                self._state = breaker.shut(self._state, _FORKED)

    def _renew(self) -> None:
        threads, stuck_limit = self._sizes
        self._lock = threading.Lock()
        self._workers = workers = Workers("remote", threads=threads, stuck_limit=stuck_limit)
        weakref.finalize(self, workers.retire, for_good=True).atexit = False


def _forked(this: weakref.ref[Guarded]) -> None:
    guard = this()
    if guard is not None:
        guard._after_fork()


def _step(found: Iterator[BlobInfo], seconds: float) -> list[BlobInfo]:
    """The next blobs of a scan: at least one, unless it is at its end."""
    step: list[BlobInfo] = []
    until = time.monotonic() + seconds
    for info in itertools.islice(found, _STEP):
        step.append(info)
        if time.monotonic() > until:
            break
    return step


def _passed_over(verdict: Verdict, state: State, now: float) -> RemoteError:
    """Why a request does not go."""
    if verdict is Verdict.OFF and state.off:
        return (NoSuchPlaceError if state.off.no_place else RefusedError)(state.off.reason)
    if verdict is Verdict.READ_ONLY:
        return RefusedError(state.read_only)
    if verdict is Verdict.THROTTLED:
        return ThrottledError(f"{PASSED_OVER}it asked for fewer requests", breaker.left(state, now))
    return UnreachableError(f"{PASSED_OVER}{_STUCK_REASON if verdict is Verdict.FULL else state.reason}")


def _name_of(state: State) -> str:
    if state.off:
        return "off"
    if state.pause:
        return "throttled" if state.pause.throttled else "dead"
    return "read-only" if state.read_only else "ok"
