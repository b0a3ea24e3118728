"""The verbs of the local store under the fault layer: each file call of each fails once, kills, or stops the process.

A program of its own, without JAX, so that it may fork: `store_under_faults.py TRIALS FOLDER VERB...`, with the name of
a method of `Trials`. It prints one JSON object: how many trials there were, which calls were struck, what was wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fault_layer import ALL_ERRORS, ERRORS, Call, How, Layer

from rewarm.envelope import Header, open_entry, seal
from rewarm.errors import BadEntryError, StoreError
from rewarm.policy import Bounds
from rewarm.store import LocalStore
from rewarm.store.conformance import key_of

_HELD = 9
_BOUND = 8
_PATIENCE = 1.0

# Cleaning up looks over 256 directories: after one trial in so many.
_CLEANED_UP = 6


def _key(number: int) -> str:
    # Three directories, so that an eviction has a choice and the totals have neighbours.
    return ("aa", "bb", "cc")[number % 3] + key_of(number)[2:]


def _entry(number: int, version: int = 0) -> bytes:
    header = Header("executable", _key(number), (), "jit_f", 1.0 + number, 0.0, {"version": str(version)}, "cpu")
    return seal(header, {"executable": bytes([number]) * 3000}, codec="raw")


KEYS = {_key(number): number for number in range(100)}
NEW, TARGET = 50, 3

Verb = Callable[[LocalStore], Any]


def _put_with_bound(store: LocalStore) -> None:
    store.bounds = Bounds(max_entries=_BOUND)
    store.put(_key(NEW), _entry(NEW), seconds=99.0)


def _renewing_get(store: LocalStore) -> bytes | None:
    return store.get(_key(TARGET))


VERBS: dict[str, Verb] = {
    "put": lambda store: store.put(_key(NEW), _entry(NEW), seconds=2.0),
    "put over": lambda store: store.put(_key(TARGET), _entry(TARGET, 1), seconds=2.0),
    "put with a bound": _put_with_bound,
    "get": lambda store: store.get(_key(TARGET)),
    "get and renew": _renewing_get,
    "delete": lambda store: store.delete(_key(TARGET)),
    "quarantine": lambda store: store.quarantine(_key(TARGET), "bad", _entry(TARGET)),
    "total": LocalStore.total,
    "count": LocalStore.total,
    "scan": lambda store: list(store.scan()),
    "usages": LocalStore.usages,
    "collect": lambda store: list(store.collect(Bounds(max_entries=4))),
    "prepare": LocalStore.prepare,
    "first put": lambda store: store.put(_key(NEW), _entry(NEW), seconds=2.0),
}

# What a verb may take away, and which ones never raise.
_REMOVES_ANY = {"put with a bound", "collect"}
_REMOVES_TARGET = {"delete", "quarantine"}
_NEVER_RAISES = {"quarantine", "total", "count"}


class Trials:
    """Trials in one folder; what was wrong is gathered."""

    def __init__(self, folder: Path, *, thorough: bool) -> None:
        self._template = folder / "template"
        self._root = folder / "cache"
        self._layer = Layer()
        self._layer.arm(self._root, calls=())
        self.thorough = thorough
        self._is_full = False
        self.faults: list[str] = []
        self.count = 0
        self.struck: Counter[str] = Counter()
        store = LocalStore(self._template)
        for number in range(_HELD):
            store.put(_key(number), _entry(number), seconds=1.0 + number)

    def fresh(self, verb: str) -> LocalStore:
        """A store as it is before each trial."""
        shutil.rmtree(self._root, ignore_errors=True)
        if verb == "first put":
            return LocalStore(self._root)
        shutil.copytree(self._template, self._root)
        store = LocalStore(self._root)
        if verb == "count":
            (self._root / "sizes").unlink()
        if verb == "get and renew":
            os.utime(store.path(_key(TARGET)), (1e9, 1e9))
        return store

    def wrong(self, what: str) -> None:
        self.faults.append(what)

    def calls(self, verb: str) -> list[Call]:
        """The calls that a verb makes where nothing fails."""
        store = self.fresh(verb)
        self._layer.arm(self._root)
        try:
            VERBS[verb](store)
        finally:
            self._layer.disarm()
        return self._layer.calls()

    def places(self, verb: str) -> list[tuple[int, Call]]:
        """The calls to try, with their numbers: of those that repeat themselves over 256 directories one."""
        calls, met, found = self.calls(verb), Counter[tuple[Call, ...]](), []
        for number, call in enumerate(calls, 1):
            around = tuple(calls[max(number - 4, 0) : number + 1])
            met[around] += 1
            if met[around] == 1:
                found.append((number, call))
        return found

    # -- errors ------------------------------------------------------------------------------------------------

    def fail_each(self, verb: str) -> None:
        """Each call of a verb fails once, is cut short, and loses its answer; when thorough, with each error."""
        for number, call in self.places(verb):
            for error in ERRORS[call] if self.thorough else ERRORS[call][number % len(ERRORS[call]) :][:1]:
                self.fail(verb, f"call {number} ({call.name}) fails with {error}", first=number, error=error)
            if call in (Call.READ, Call.WRITE):
                self.fail(verb, f"call {number} ({call.name}) is short", first=number, how=How.SHORT)
            if call in (Call.WRITE, Call.RENAME, Call.UNLINK, Call.MKDIR, Call.FSYNC, Call.UTIME):
                self.fail(verb, f"the answer of call {number} ({call.name}) is lost", first=number, how=How.AFTER)

    def fail_for_good(self, verb: str) -> None:
        """From some call on every call fails; every call of one kind fails; all reads and writes are short."""
        places = self.places(verb)
        errors = [error for error in ALL_ERRORS if error not in ("EINTR", "EAGAIN")]  # so for ever stops everybody
        for (number, _), error in zip(places, itertools.cycle(errors)):
            self.fail(verb, f"all from call {number} fail with {error}", first=number, last=1 << 30, error=error)
        for call in {call for _, call in places}:
            for error in ERRORS[call]:
                if error != "EINTR":
                    text = f"every {call.name} fails with {error}"
                    self.fail(verb, text, calls=[call], first=1, last=1 << 30, error=error)
        self.fail(verb, "all is short", first=1, last=1 << 30, how=How.SHORT)

    def fail_by_chance(self, verb: str, seeds: Iterable[int]) -> None:
        """One call in five fails."""
        for seed in seeds:
            error = ("EIO", "ENOSPC", "EACCES", "EMFILE", "ESTALE")[seed % 5]
            self.fail(verb, f"by chance with {error}, seed {seed}", chance=0.2, error=error, seed=seed)

    def fail(self, verb: str, what: str, **fault: Any) -> None:
        """One trial."""
        self.count += 1
        store, where = self.fresh(verb), f"{verb}, {what}"
        self._is_full = fault.get("error") in ("ENOSPC", "EDQUOT")
        before = _descriptors()
        self._layer.arm(self._root, **fault)
        result, raised = None, None
        try:
            result = VERBS[verb](store)
        except (StoreError, BadEntryError) as error:
            raised = error
        except BaseException as error:
            self.wrong(f"{where}: raised {type(error).__name__}: {error}")
        finally:
            self._layer.disarm()
        struck = self._struck(fault)
        self.struck.update(call.name for call in struck)
        if raised is not None and verb in _NEVER_RAISES:
            self.wrong(f"{where}: raised {raised!r}")
        if _descriptors() != before:
            self.wrong(f"{where}: {_descriptors() - before} descriptors are left open")
        self._look(verb, where, result, raised, is_late=fault.get("how") == How.AFTER)
        if Call.UNLINK not in struck and (left := self._temporaries()):
            self.wrong(f"{where}: left {left}")
        self._next(where, store)

    def _struck(self, fault: dict[str, Any]) -> list[Call]:
        calls = self._layer.calls()
        if fault.get("chance") or fault.get("last"):
            return calls if self._layer.struck else []
        return calls[fault["first"] - 1 : fault["first"]]

    def _look(self, verb: str, where: str, result: Any, raised: Exception | None, *, is_late: bool) -> None:
        """Every entry is whole, and only what the verb is about has changed."""
        for key, number in KEYS.items():
            path = self._root / key[:2] / key
            there = path.read_bytes() if path.exists() else None
            old = _entry(number) if number < _HELD and verb != "first put" else None
            allowed = [old]
            if "put" in verb and self._is_full:  # then a put makes room
                allowed.append(None)
            if verb in _REMOVES_ANY or (verb in _REMOVES_TARGET and number == TARGET):
                allowed.append(None)
            if number == NEW and "put" in verb and verb != "put over":
                allowed = [_entry(NEW)] if raised is None else [None, *([_entry(NEW)] if is_late else [])]
            if number == TARGET and verb == "put over":
                allowed = [_entry(TARGET, 1)] if raised is None else [old, *([_entry(TARGET, 1)] if is_late else [])]
            if there not in allowed:
                size = None if there is None else len(there)
                self.wrong(f"{where}: entry {number} is {size} bytes that it should not be")
        if verb.startswith("get") and raised is None and result not in (None, _entry(TARGET)):
            self.wrong(f"{where}: a get of other bytes")
        if verb == "delete" and raised is None and (self._root / _key(TARGET)[:2] / _key(TARGET)).exists():
            self.wrong(f"{where}: deleted, and still there")

    def _next(self, where: str, store: LocalStore) -> None:
        """Without faults all works again, and the books are exact after a clean-up."""
        if locked := [path.name for path in self._root.glob("??") if _is_locked(path)]:
            self.wrong(f"{where}: {locked} are still locked")
        if "UNLINK fails with EACCES" in where:  # what may not be removed is remembered for a process's life
            store = LocalStore(self._root)
        try:
            store.put(_key(TARGET), _entry(TARGET, 2), seconds=3.0)
            if store.get(_key(TARGET)) != _entry(TARGET, 2):
                self.wrong(f"{where}: the next put is not there")
            if self.count % _CLEANED_UP == 0:
                list(store.collect(Bounds(max_entries=20)))
                self.check_books(where, store)
        except Exception as error:
            self.wrong(f"{where}: afterwards {type(error).__name__}: {error}")

    def check_books(self, where: str, store: LocalStore) -> None:
        infos = list(store.scan())
        truth = sum(info.size for info in infos), len(infos)
        for one in (store, LocalStore(self._root)):
            if one.total() != truth:
                self.wrong(f"{where}: the total is {one.total()}, there is {truth}")

    def _temporaries(self) -> list[str]:
        return [path.relative_to(self._root).as_posix() for path in self._root.rglob(".*.tmp")]

    # -- ends and stops ----------------------------------------------------------------------------------------

    def _child(self, verb: str, store: LocalStore, number: int, how: How) -> int:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                self._layer.arm(self._root, first=number, how=how)
                VERBS[verb](store)
            os._exit(0)
        return child

    def kill_at_each(self, verb: str) -> None:
        """The process ends right before each call."""
        for number, call in self.places(verb):
            self.count += 1
            self.struck[call.name] += 1
            store, where = self.fresh(verb), f"{verb}, killed before call {number} ({call.name})"
            _, status = os.waitpid(self._child(verb, store, number, How.KILL), 0)
            if not os.WIFSIGNALED(status):
                self.wrong(f"{where}: it was not killed")
            # As after a put that failed, but that the rename may have been made.
            self._look(verb, where, None, StoreError(0, "killed"), is_late=True)
            for name in self._temporaries():
                os.utime(self._root / name, (1e9, 1e9))
            self._next(where, store)
            if self._temporaries():
                list(store.collect(Bounds(max_entries=20)))
                self.check_books(where, store)
            if left := self._temporaries():
                self.wrong(f"{where}: {left} were not removed although they are old")

    def stop_at_each(self, verb: str) -> None:
        """The process stops right before each call, others go on, and it goes on later."""
        for number, call in self.places(verb):
            self.count += 1
            store, where = self.fresh(verb), f"{verb}, stopped before call {number} ({call.name})"
            child = self._child(verb, store, number, How.STOP)
            try:
                _, status = os.waitpid(child, os.WUNTRACED)
                if not os.WIFSTOPPED(status):
                    self.wrong(f"{where}: it was not stopped")
                    continue
                self.struck["locked"] += any(_is_locked(path) for path in self._root.glob("??"))
                self.struck[call.name] += 1
                self._go_on_beside(where)
            finally:
                if os.WIFSTOPPED(status):
                    os.kill(child, signal.SIGCONT)
                    _, status = os.waitpid(child, 0)
            if status != 0:
                self.wrong(f"{where}: ended with {status}")
            self._all_open(where)
            self._next(where, store)

    def _go_on_beside(self, where: str) -> None:
        store = LocalStore(self._root, bounds=Bounds(max_entries=12))
        for number in range(20, 38):
            since = time.perf_counter()
            store.put(_key(number), _entry(number), seconds=50.0)
            found = store.get(_key(number))
            took = time.perf_counter() - since
            if took > _PATIENCE:
                self.wrong(f"{where}: a put beside it took {took:.2f} s")
            if found != _entry(number):
                self.wrong(f"{where}: a put beside it is not there")
        held = len(list(store.scan()))
        if held > 13:
            self.wrong(f"{where}: {held} entries beside it, the bound is 12")

    def _all_open(self, where: str) -> None:
        for path in self._root.glob("??/*"):
            if len(path.name) == 64:
                try:
                    open_entry(path.read_bytes(), path.name)
                except BadEntryError as error:
                    self.wrong(f"{where}: {path.name[:12]}: {error.reason}")


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _is_locked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def main() -> None:
    """Run trials as the command line says."""
    kind, folder, *verbs = sys.argv[1:]
    trials = Trials(Path(folder), thorough=kind == "fail_each_with_all")
    for verb in verbs:
        if kind == "fail_by_chance":
            trials.fail_by_chance(verb, range(40))
        else:
            getattr(trials, kind.removesuffix("_with_all"))(verb)
    print(json.dumps({"trials": trials.count, "struck": trials.struck, "faults": trials.faults}))


if __name__ == "__main__":
    main()
