"""Proofs: a call whose trace was skipped, traced beside the program, which must come to the same key.

Not promised: that a proof ends before the program does, or that a wrong program is found before it has run. A proof
runs the user's function once more, in another thread: what it prints or counts while it is traced happens then.

The program has its start to itself: a proof waits until it has asked for no program for half as long as its start took
up to then, for one second at least and for thirty at most. So a program that ends a moment after it has started is not
proved, and says so by its count of such starts (`records.py`).

A thread that traces starves one that dispatches steps, since each hand-over of Python's lock takes a switch interval.
So the proof works for `_WORK` and sleeps for `_REST` in turns, by a profile function, which is its thread's alone. What
cannot be divided are single calls of C++, of some milliseconds each.

Races, and their worst outcome:

* the program changes a global between the call and its proof: the guards are checked before and after; where they do
  not hold any more the proof is void, and nothing is said.
* the end of the program: the proof is broken off at its next function call, and is waited for `_AT_END` seconds.
* a fork: the child has no such thread, and proves nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rewarm.sharing.forks import renew_in_child

logger = logging.getLogger("rewarm")

# In seconds. Measured beside a step of 2 ms: its median stays, and a proof takes some ten times as long as alone.
_WORK = 0.002
_REST = 0.010
_AT_END = 2.0
# How long no program must have been asked for: a share of the time up to the last one, in bounds of seconds.
_REST_SHARE = 0.5
_LEAST_REST, _MOST_REST = 1.0, 30.0
_LOOK = 0.1

# As good as when the process began: this is imported with the first function of `rewarm.jit`.
_BEGAN = time.monotonic()

EQUAL, DIFFERENT, VOID = "equal", "different", "void"


class Proof(NamedTuple):
    """One proof that is wanted.

    Attributes:
      name: of the function, for people.
      record: what is proved; one that waits already is not proved twice.
      requests: how many programs the process has asked for so far.
      holds: whether all that the trace depended on is still as it was.
      is_alike: the call, traced: whether that came to what is believed; `None` where it came to nothing.
      done: hears what came of it: `EQUAL`, `DIFFERENT` or `VOID`.
    """

    name: str
    record: str
    requests: Callable[[], int]
    holds: Callable[[], bool]
    is_alike: Callable[[], bool | None]
    done: Callable[[str], object]


class _Broken(BaseException):
    pass


def _rest(start: float) -> float:
    return min(max(start * _REST_SHARE, _LEAST_REST), _MOST_REST)


class Prover:
    """Proves one call after the other, in one thread of its own."""

    def __init__(self) -> None:
        self._renew()
        renew_in_child(self, Prover._renew)

    def _renew(self) -> None:
        self._wanted: queue.SimpleQueue[Proof] = queue.SimpleQueue()
        self._waiting: set[str] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ends = False
        self._times: dict[str, float] = {}
        self._last = time.monotonic()  # when a program was asked for last, as far as was seen

    def prove(self, proof: Proof) -> None:
        """Have a call proved, some time."""
        with self._lock:
            if self._ends:
                return
            self._last = time.monotonic()
            if proof.record in self._waiting:
                return
            self._waiting.add(proof.record)
            self._wanted.put(proof)
            if self._thread is None:
                # MLIR's passes are recursive: a thread's default stack is a quarter of the main one's.
                before = threading.stack_size(64 << 20)
                try:
                    self._thread = threading.Thread(target=self._work, name="rewarm-proof", daemon=True)
                    self._thread.start()
                except (RuntimeError, MemoryError):
                    self._thread = None
                finally:
                    threading.stack_size(before)

    def watch(self) -> dict[str, float]:
        """What becomes of the next proof: when it "began" and "ended", on `time.perf_counter`; for measurements."""
        return self._times

    def close(self) -> None:
        """Break off what is under way."""
        self._ends = True
        if self._thread is None:
            return
        before = sys.unraisablehook

        def hear(told: Any) -> None:
            # Where the proof was broken off inside of a callback of a weak reference, Python would print that.
            if not isinstance(told.exc_value, _Broken):
                before(told)

        sys.unraisablehook = hear
        try:
            self._thread.join(_AT_END)
        finally:
            sys.unraisablehook = before

    def _work(self) -> None:
        with contextlib.suppress(_Broken):
            while not self._ends:
                try:
                    proof = self._wanted.get(timeout=0.2)
                except queue.Empty:
                    continue
                self._wait_for_rest(proof.requests)
                self._waiting.discard(proof.record)
                self._prove(proof)
                del proof  # it holds the user's function

    def _wait_for_rest(self, requests: Callable[[], int]) -> None:
        seen = requests()
        while time.monotonic() < self._last + _rest(self._last - _BEGAN):
            if self._ends:
                raise _Broken
            time.sleep(_LOOK)
            if (now := requests()) != seen:
                seen, self._last = now, time.monotonic()

    def _prove(self, proof: Proof) -> None:
        verdict = VOID
        self._times["began"] = time.perf_counter()
        try:
            with self._throttled():
                if proof.holds():
                    alike = proof.is_alike()
                    if alike is not None and proof.holds():
                        verdict = EQUAL if alike else DIFFERENT
        except Exception:
            logger.debug("rewarm: the proof of %s is void", proof.name, exc_info=True)
        if not self._ends:
            try:
                proof.done(verdict)
            except Exception:
                logger.debug("rewarm: after the proof of %s", proof.name, exc_info=True)
        self._times["ended"] = time.perf_counter()

    @contextlib.contextmanager
    def _throttled(self) -> Iterator[None]:
        began = time.perf_counter()

        def look(*_: Any) -> None:
            nonlocal began
            if time.perf_counter() - began < _WORK:
                return
            if self._ends:
                sys.setprofile(None)
                raise _Broken
            time.sleep(_REST)
            began = time.perf_counter()

        sys.setprofile(look)
        try:
            yield
        finally:
            sys.setprofile(None)


prover = Prover()


@atexit.register
def _at_exit() -> None:
    prover.close()
