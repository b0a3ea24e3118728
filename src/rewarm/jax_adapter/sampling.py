"""`verify_sample`: a share of the hits is compiled again, beside the program, and compared with what was loaded.

Not promised: that a sampled hit is checked (the queue is bounded, and a process that ends checks no more), nor that
every drift is found: see `likeness` for what counts, and `rehearsal` for which programs are run as well. The program
keeps the executable that it was given, whatever is found.

What the program feels: at a sampled hit its bytecode is written (40 ms for a transformer's train step that takes 12 s
to compile), and the check, beside the compile, holds the interpreter's lock for moments, the longest as long as
serialising the executable takes (0.4 s for that program, as at a miss). Compiling and running take processor time.

A drift is an executable that this process's compiler would not have made of the program: of other operations,
constants or buffers, or of other results. It is one line in the log, and the entry is replaced. Where the compiler
itself gives two answers, there is no verdict.

Races, and what is safe:

- The module belongs to the program's thread and may change after the call, so bytecode is written at the hit, in that
  thread. Everything else happens in one daemon thread for all sessions, which starts at the first sampled hit.
- A thread that comes back from XLA while the interpreter goes away is ended by Python (before 3.14) with
  `pthread_exit`, which unwinds C++ frames that must not be unwound: the process ends with SIGABRT ("FATAL: exception
  not rethrown"; 12 of 12 processes that compiled in threads at their end did, JAX 0.9 and 0.12). So at exit the check
  under way is waited for, for three times the seconds that the entry took to compile and `GRACE` more; no other check
  is started, and no program is run. `atexit` calls come in reverse order, so JAX's clients are still there meanwhile.
  Worst outcome, where even that was not enough: SIGABRT, if that compile ends while the interpreter does.
- A child of `fork` starts a thread of its own. One whose parent had a client of JAX already has an XLA without
  threads, where a compile never ends and keeps the interpreter's lock: it checks nothing.
- Two processes that find one drift both replace the entry; entries of one key are equally good. An entry that was
  removed meanwhile is written again.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from rewarm.cache import Request
from rewarm.cache.requests import EXECUTABLE
from rewarm.envelope import Entry, open_entry, seal
from rewarm.jax_adapter import executables, likeness, rehearsal, seam
from rewarm.jax_adapter.seam import Copy
from rewarm.store import Store

logger = logging.getLogger("rewarm")

MOST_WAITING = 64
_MOST_BYTES = 256 << 20
GRACE = 10.0
# XLA and LLVM recurse deeply. A thread has 8 MiB on most systems, but 2 MiB where `ulimit -s` is unlimited.
_STACK_BYTES = 64 << 20
_PARTITIONING = b"CustomSPMDPartitioning"


class Numbers(NamedTuple):
    """What came of the sampled hits of this process.

    Attributes:
      checked: compared, and either the same or not.
      drifted: those of them that were not.
      skipped: not compared: too many waited, the process ended, or there was no verdict.
    """

    checked: int = 0
    drifted: int = 0
    skipped: int = 0


class _NoVerdict(Exception):  # noqa: N818 - not an error: the hit is counted as skipped, for the reason in its words
    pass


class _Hit(NamedTuple):
    """One sampled hit: what the check takes, and nothing that the program's thread may still change."""

    program: str
    key: str
    entry: bytes
    executable: Any
    copy: Copy
    producer: dict[str, str]
    store: Store | None
    level: int

    @property
    def bytes_held(self) -> int:
        return len(self.entry) + len(self.copy.program)


class Checks:
    """The sampled hits of one process: their queue, the thread that works it off, and what came of it.

    Args:
      seed: of the choice of hits; `None`: the system's randomness.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed
        self._renew()
        self._at_exit = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_in_child)

    def _renew(self) -> None:
        self.draw = random.Random(os.urandom(16) if self._seed is None else self._seed).random
        self._changed = threading.Condition()
        self._waiting: deque[_Hit] = deque()
        self._bytes_waiting = 0
        self._under_way: _Hit | None = None
        self._longest = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._numbers = Numbers()

    def _renew_in_child(self) -> None:
        self._renew()
        self._closed = seam.backends_are_up()

    @property
    def numbers(self) -> Numbers:
        """What came of the sampled hits so far."""
        return self._numbers

    # -- the program's thread ----------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether another hit would be taken; asked before its program is copied."""
        return not self._closed and len(self._waiting) < MOST_WAITING and self._bytes_waiting < _MOST_BYTES

    def skip(self, program: str, reason: str) -> None:
        """Count a sampled hit that is not checked."""
        with self._changed:
            self._numbers = self._numbers._replace(skipped=self._numbers.skipped + 1)
        logger.debug("rewarm: verify_sample: %s is not checked: %s", program, reason)

    def take(self, hit: _Hit) -> None:
        """Check this hit some time.

        Raises:
          RuntimeError: the system gives no thread.
        """
        with self._changed:
            room = self.has_room()
            if room:
                self._start()
                self._waiting.append(hit)
                self._bytes_waiting += hit.bytes_held
                self._changed.notify_all()
        if not room:
            self.skip(hit.program, "too many wait, or the process ends")

    def _start(self) -> None:
        if self._thread is not None:
            return
        if not self._at_exit:
            self._at_exit = True
            atexit.register(self.close)
        # A setting of the process: another thread that starts at this moment gets the same stack, which harms nothing.
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=self._work, name="rewarm-verify-sample", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
        self._thread = thread

    def wait(self, seconds: float) -> bool:
        """Wait until nothing waits and nothing is under way; returns whether it came to that."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and self._under_way is None, seconds)

    def close(self) -> None:
        """Start nothing more, wait for the check under way, and tell what came of all; called at exit."""
        with self._changed:
            self._closed = True
            left, under_way = len(self._waiting), self._under_way
            self._waiting.clear()
            self._numbers = self._numbers._replace(skipped=self._numbers.skipped + left)
            self._changed.notify_all()
        if self._thread is not None:
            self._wait_for(self._thread, under_way)
        if any(self._numbers):
            checked, drifted, skipped = self._numbers
            logger.info(
                "rewarm: verify_sample: of %d sampled hits %d were compiled again and compared, %d of them differed",
                checked + skipped,
                checked,
                drifted,
            )

    def _wait_for(self, thread: threading.Thread, under_way: _Hit | None) -> None:
        bound = GRACE
        try:
            if under_way is not None:
                bound += 3 * open_entry(under_way.entry, under_way.key).header.compile_seconds
            thread.join(bound)
        except KeyboardInterrupt:  # a person who wants the process to end now
            return

    # -- the thread that checks --------------------------------------------------------------------------------

    def _work(self) -> None:
        while (hit := self._next()) is not None:
            try:
                drifted = self._check(hit)
            except _NoVerdict as reason:
                self.skip(hit.program, str(reason))
            except Exception as error:  # noqa: BLE001 - nothing here stops a program
                self.skip(hit.program, f"{type(error).__name__}: {error}")
            else:
                self._count(drifted)
            del hit  # an executable may hold a device's memory, and the next hit may be hours away

    def _count(self, drifted: bool) -> None:
        with self._changed:
            checked, drifts, skipped = self._numbers
            self._numbers = Numbers(checked + 1, drifts + drifted, skipped)

    def _next(self) -> _Hit | None:
        """The next hit, once there is one; `None` when the process ends."""
        with self._changed:
            self._under_way = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            hit = self._under_way = self._waiting.popleft()
            self._bytes_waiting -= hit.bytes_held
            return hit

    def _check(self, hit: _Hit) -> bool:
        """Whether the entry has drifted; if so it is told and replaced.

        Raises:
          _NoVerdict: with the reason.
          Exception: of the compiler or the runtime.
        """
        entry = open_entry(hit.entry, hit.key)
        since = time.perf_counter()
        fresh = seam.compile_copy(hit.copy)
        took = time.perf_counter() - since
        found = likeness.difference(hit.executable, fresh)
        if found is not None:
            self._confirm(hit, fresh)
        # Before it is run: XLA:CPU cannot serialise an executable that has sorted.
        serialised = executables.serialise(hit.copy.call, fresh)
        if found is None:
            found = self._in_results(hit, entry.section(EXECUTABLE), fresh, serialised)
        if found is None:
            return False
        outcome = _replace(hit, entry, serialised, took)
        logger.warning(
            "rewarm: drift: the stored executable of %s, key %s, is not what the compiler makes of it now: %s; %s",
            hit.program,
            hit.key[:12],
            found,
            outcome,
        )
        return True

    def _confirm(self, hit: _Hit, fresh: Any) -> None:
        """A difference counts only where the compiler gives one answer."""
        if hit.copy.call.backend.platform == "gpu" and any(map(likeness.tuned, (hit.executable, fresh))):
            raise _NoVerdict("the compiler chooses parts of it by the clock")
        if likeness.difference(seam.compile_copy(hit.copy), fresh) is not None:
            raise _NoVerdict("two compiles of it differ")

    def _in_results(self, hit: _Hit, stored: bytes, fresh: Any, serialised: bytes) -> str | None:
        """In what the results differ of two executables that are the same optimised program."""
        call = hit.copy.call
        # Different code is no drift by itself: names are in it, and some compilers' bytes vary.
        if self._closed or executables.same_code(call.backend.platform, stored, serialised):
            return None
        try:
            return rehearsal.difference(call, hit.executable, fresh)
        except rehearsal.NotRun as reason:
            logger.debug("rewarm: verify_sample: %s is compared without running it: %s", hit.program, reason)
            return None


def _replace(hit: _Hit, entry: Entry, serialised: bytes, took: float) -> str:
    """Put the executable just compiled in the entry's place; returns what became of it, in words."""
    if hit.store is None:
        return "the entry stays, since nothing can be written to the store"
    header = entry.header._replace(
        compile_seconds=took, created=time.time(), producer=hit.producer, load_seconds=None, sections=()
    )
    try:
        sections = {section.name: entry.section(section.name) for section in entry.header.sections}
        sections[EXECUTABLE] = serialised
        hit.store.put(hit.key, seal(header, sections, level=hit.level), seconds=took)
    except Exception as error:  # noqa: BLE001 - told in the one line of the drift
        return f"the entry stays, since it cannot be replaced: {type(error).__name__}: {error}"
    return "the entry is replaced; this process keeps what it loaded"


class Sampling:
    """The `cache.Sampler` of one cache: chooses hits and hands them to the process's `Checks`.

    Args:
      share: of the hits that are checked, 0 to 1.
      checks: of the process.
      store: where entries are replaced; `None` where nothing can be written.
      level: of compression.
    """

    def __init__(self, share: float, checks: Checks, store: Store | None, *, level: int = 3) -> None:
        self._share = share
        self._checks = checks
        self._store = store
        self._level = level

    def hit(self, request: Request[Any], key: str, entry: bytes, executable: Any) -> None:
        """See `cache.Sampler`."""
        if self._checks.draw() >= self._share:
            return
        try:
            if not self._checks.has_room():
                self._checks.skip(request.program, "too many wait, or the process ends")
            elif request.again is not None:
                self._take(request, key, entry, executable, request.again())
        except Exception as error:  # noqa: BLE001 - nothing here stops a program
            self._checks.skip(request.program, f"{type(error).__name__}: {error}")

    def _take(self, request: Request[Any], key: str, entry: bytes, executable: Any, copy: Copy) -> None:
        if (obstacle := _obstacle(copy)) is not None:
            self._checks.skip(request.program, obstacle)
            return
        producer = dict(request.producer)
        self._checks.take(_Hit(request.program, key, entry, executable, copy, producer, self._store, self._level))


def _obstacle(copy: Copy) -> str | None:
    """Why a program cannot be compiled again in another thread, or `None`."""
    call = copy.call
    if len({device.process_index for device in call.flat_devices()}) > 1:
        return "it is a program of several processes"
    if _PARTITIONING in copy.program:
        return "Python of the user's runs while it compiles"
    if call.host_callbacks and call.backend.platform != "cpu":
        return "it calls the host"
    return None
