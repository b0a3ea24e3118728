"""The worker process: fills the cache with programs of one plan, for one target in one topology.

Not promised: anything to whoever else starts it. It runs none of the programs, and rewarm and JAX serve what else the
plan's own code compiles as if rewarm were not there.

    parent to child   one JSON object on the first line: {"plan":, "target":, "topology":, "check":, "tuned":, "retry":,
                      "lists": bool}; then, one on each line, [number of a program, its name]
    child to parent   JSON objects, one on each line:
                      {"yields": [number, name, line]}        for each program of the plan, where "lists"
                      {"jax":, "wrong": why the plan ended early, or ""}
                      {"begins": key, "program": name}        a program without an entry is about to be compiled
                      {"program":, "outcome":, ...}           see `work.Result`
                      or {"cannot": why, "kind": "plan", "jax", "target"}, and it ends

The plan's module is imported before JAX has a device, as by a program that runs: what it says in `XLA_FLAGS` and to
JAX counts. To list the programs the plan is called once. To fill them in it is called again, and stands at a program's
`yield` while that is lowered and compiled, with its variables and contexts as they are there; so no worker traces the
programs of others, and what comes after a program cannot take it away.

A process that the plan forks has no part in this: it does not answer, holds no pipe, and where it comes back from the
plan's code it ends. (One that was not forked by Python's own calls holds the pipe; the parent looks for that.)
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import rewarm
from rewarm import settings
from rewarm.errors import RewarmError
from rewarm.in_force import Said
from rewarm.prewarm import module_settings, whose
from rewarm.prewarm.failures import Failure, Failures
from rewarm.prewarm.shared_failures import FleetFailures
from rewarm.prewarm.work import Outcome

_OF_RSS = 1 if sys.platform == "darwin" else 1024
_WORDS = 4000
_PR_SET_PDEATHSIG = 1
_CHANGED = (
    "the plan changes XLA_FLAGS once the devices are made, which is too late: XLA has read them; say them where the "
    "plan's module is imported, or in the environment"
)


class _RememberedError(RewarmError, RuntimeError):
    """It failed before."""


class _CannotError(Exception):
    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


# Kept for good, and not handed on to what the plan starts.
_LOG = os.dup(2)


def main() -> None:
    """Do what standard input says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the parent too, which ends this
    _end_with_parent()
    rewarm.disable()
    parent = _Parent()
    try:
        _work(json.loads(parent.asks.readline()), parent)
    except _CannotError as wrong:
        parent.tell({"cannot": str(wrong), "kind": wrong.kind})


def _end_with_parent() -> None:
    """Have the system end this process when the parent's thread that started it ends, however that comes; in the midst
    of a compile no code of this process runs. Where the system cannot (it is not Linux), it ends at its next answer."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended a moment ago
        os._exit(1)


class _Parent:
    """The two pipes to the parent, out of the plan's sight, and of no use to what it forks."""

    def __init__(self) -> None:
        self._own = os.getpid()
        self.asks = os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8")
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, sys.stdin.fileno())
        os.close(nothing)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the plan prints is not for the parent
        os.register_at_fork(after_in_child=self._leave)

    def tell(self, answer: Mapping[str, Any]) -> None:
        """Answer."""
        self.stay()
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def stay(self, wrong: BaseException | None = None) -> None:
        """End this process if it is one that the plan has forked, which ends so; as Python would end it."""
        if os.getpid() == self._own:
            return
        if wrong is not None and not isinstance(wrong, SystemExit):
            traceback.print_exception(wrong)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(_code_of(wrong))

    def _leave(self) -> None:
        with contextlib.suppress(Exception):
            self.asks.close()
            self._answers.close()


def _work(asked: Mapping[str, Any], parent: _Parent) -> None:
    before = settings.xla_flags()
    function = _read(asked["plan"], parent)
    _jax()
    heard = module_settings.heard()
    notes = (*_too_late(before), *heard.notes)
    devices, flags = _devices(asked), settings.xla_flags()
    from rewarm.jax_adapter import seam

    plan = _Plan(asked["plan"], devices, function, parent)
    wrong = plan.told() if asked["lists"] else ""
    parent.tell({"jax": seam.version(), "wrong": wrong})
    filling = _Filling(asked, devices, parent.tell, heard.said)
    for line in parent.asks:
        number, name = json.loads(line)

        def program(number: int = number, name: str = name) -> Any:
            found = plan.at(number, name)
            late = (settings.xla_flags() != flags and _CHANGED, module_settings.heard_late())
            filling.notes = (*notes, *(note for note in late if note))
            return found

        parent.tell(filling.result(name, program))


def _read(plan: str, parent: _Parent) -> Any:
    """The plan's function. Its module is imported before JAX has devices, as in a program that runs."""
    from rewarm.jax_adapter import plans

    sys.path.append(str(Path.cwd()))  # behind everything else: what lies there is not to stand for JAX
    try:
        return plans.read(plan)
    except BaseException as wrong:  # the user's own code
        parent.stay(wrong)
        _jax()  # what is wrong with JAX is not the plan's fault
        why = str(wrong) if isinstance(wrong, plans.PlanError) else f"{plan} {_ends(wrong, plan)}"
        raise _CannotError("plan", why) from wrong


def _too_late(before: str) -> tuple[str, ...]:
    """What is to be said of a module that changes `XLA_FLAGS`, where XLA may have read them before."""
    from rewarm.jax_adapter import seam

    if settings.xla_flags() == before or not seam.backends_are_up():
        return ()
    return ("the plan's module changes XLA_FLAGS and asks JAX for devices: they count where the change came first",)


def _jax() -> Any:
    try:
        from rewarm.jax_adapter import prewarming

        importlib.import_module("jax")
    except Exception as wrong:
        raise _CannotError("jax", f"JAX cannot be imported: {type(wrong).__name__}: {wrong}") from wrong
    return prewarming


def _devices(asked: Mapping[str, Any]) -> list[Any]:
    prewarming = _jax()
    try:
        made: list[Any] = prewarming.devices(asked["target"], asked["topology"])
    except RewarmError as wrong:
        raise _CannotError("target", str(wrong)) from wrong
    except Exception as wrong:
        raise _CannotError("target", f"no devices of {asked['target']}: {type(wrong).__name__}: {wrong}") from wrong
    return made


class _Plan:
    """The programs of a plan, of which one after the other is to be had while the plan stands at its `yield`."""

    def __init__(self, plan: str, devices: list[Any], function: Callable[..., Any], parent: _Parent) -> None:
        self._plan = plan
        self._devices = devices
        self._function = function
        self._parent = parent
        self._items: Iterator[Any] | None = None
        self._next = 0
        self._program: Any = None

    def told(self) -> str:
        """Tell the parent of each program; returns why the plan ended early, or ""."""
        number = -1
        try:
            for number, one in enumerate(self._again()):
                self._parent.tell({"yields": [number, one.name, one.line]})
        except Exception as wrong:
            if number < 0:
                raise _CannotError("plan", self._why(wrong)) from wrong
            return self._why(wrong)
        return ""

    def at(self, number: int, name: str) -> Any:
        """The program of a number; the plan stands at its `yield` until another one is asked for.

        Raises:
          PlanError: the plan has another one there now, or none.
          Exception: what the plan raises.
        """
        from rewarm.jax_adapter.plans import PlanError

        if self._items is None or number < self._next - 1:
            self._items, self._next, self._program = self._again(), 0, None
        while self._next <= number:
            self._program = next(self._items, None)
            self._next += 1
        found = None if self._program is None else self._program.name
        if found != name:
            raise PlanError(
                f"{self._plan}: expected the same programs each time that it is called, found {found or 'none'} as "
                f"number {number + 1}, where {name} was"
            )
        return self._program

    def _again(self) -> Iterator[Any]:
        from rewarm.jax_adapter import plans

        items = plans.programs(self._plan, self._devices, self._function)
        while True:
            try:
                one = next(items)
            except StopIteration:
                self._parent.stay()
                return
            except BaseException as wrong:  # the user's own code
                self._parent.stay(wrong)
                if isinstance(wrong, Exception):
                    raise
                raise plans.PlanError(f"{self._plan} {_ends(wrong, self._plan)}") from wrong
            self._parent.stay()
            yield one

    def _why(self, wrong: Exception) -> str:
        from rewarm.jax_adapter.plans import PlanError

        return str(wrong) if isinstance(wrong, PlanError) else f"{self._plan} {_ends(wrong, self._plan)}"


def _ends(wrong: BaseException, plan: str) -> str:
    """In words, how the user's code ended."""
    if isinstance(wrong, SystemExit):
        line = whose.line(wrong, plan)
        return f"ends the process: sys.exit({'' if wrong.code is None else repr(wrong.code)}){line and f' [{line}]'}"
    return f"raises {_words(wrong, plan)}"


def _code_of(wrong: BaseException | None) -> int:
    code = wrong.code if isinstance(wrong, SystemExit) else wrong
    return code if isinstance(code, int) else int(code is not None)


class _Filling:
    """One program after the other.

    Attributes:
      notes: what is to be said of each.
    """

    def __init__(self, asked: Mapping[str, Any], devices: list[Any], tell: Any, said: Said) -> None:
        from rewarm.jax_adapter import prewarming

        self._tell = tell
        self._plan = asked["plan"]
        self._devices = devices
        self.notes: tuple[str, ...] = ()
        self._check, self._tuned, self._retry = asked["check"], asked["tuned"], asked["retry"]
        in_force = settings.of_command()
        self._failures = Failures(in_force.directory)
        self._fleet = FleetFailures(in_force)
        self._program = ""
        self._key: str | None = None
        # What XLA logs, in a file without a name: this process's standard error, as it was before the plan had a say.
        log = Path(f"/proc/self/fd/{_LOG}") if sys.platform == "linux" else None
        wanted = prewarming.Wanted(not self._check, self._tuned, asked["target"], log, self._begins, self._may)
        self._filler = prewarming.Filler(wanted, said)

    def result(self, name: str, program: Callable[[], Any]) -> dict[str, Any]:
        """Have an entry for one program, which the plan is brought to, and say what came of it."""
        since = time.perf_counter()
        self._program, self._key = name, None
        told: dict[str, Any] = {"program": name}
        try:
            told |= self._filled(program())
        except _RememberedError as wrong:
            told |= {"outcome": Outcome.FAILED, "why": str(wrong), "key": self._key, "remembered": True}
        except Exception as wrong:  # noqa: BLE001 - of the user's code, or the compiler's
            told |= self._failed(wrong)
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _OF_RSS
        notes = [*told.get("notes", ()), *self.notes]
        return {**told, "notes": notes, "seconds": time.perf_counter() - since, "memory": taken}

    def _filled(self, program: Any) -> dict[str, Any]:
        filled, differs, notes = self._filler.fill(program, self._devices)
        outcome, why, tuning = Outcome(filled.outcome), filled.reason, dict(filled.tuning or {})
        mended = outcome is Outcome.STORED and filled.key is not None and self._mended(filled.key)
        state = str(tuning.get("state", ""))
        if outcome is Outcome.PRESENT and self._tuned and tuning and state != "complete":
            outcome, why = Outcome.UNTUNED, f"the entry that is there was compiled with {state} tuning"
        numbers = {name: tuning[name] for name in ("fusions", "untuned") if isinstance(tuning.get(name), int)}
        return {
            **{"outcome": outcome, "key": filled.key, "why": why, "bytes": filled.size, "tuning": state, **numbers},
            "compile_seconds": filled.compile_seconds,
            "differs": differs,
            "notes": notes,
            "mended": mended,
        }

    def _failed(self, wrong: Exception) -> dict[str, Any]:
        from rewarm.jax_adapter.prewarming import UntunedError

        if isinstance(wrong, UntunedError):
            return {"outcome": Outcome.UNTUNED, "why": str(wrong), "key": self._key, "tuning": "incomplete"}
        return {"outcome": Outcome.FAILED, "why": _words(wrong, self._plan), "key": self._key}

    def _begins(self, key: str) -> None:
        self._key = key
        self._tell({"begins": key, "program": self._program})

    def _may(self, key: str) -> None:
        self._key = key
        known = None if self._retry else self._known(key)
        if known is not None:
            hours = max(0.0, known.expires - time.time()) / 3600
            raise _RememberedError(f"it failed {_ago(known.time)}, and is tried again in {hours:.1f} h: {known.error}")

    def _mended(self, key: str) -> bool:
        """It compiles; whether it was remembered as failing. The fleet is asked where that was not."""
        known = self._failures.known(key) is not None or (self._retry and self._fleet.known(key) is not None)
        self._failures.forget(key)
        return known

    def _known(self, key: str) -> Failure | None:
        """The failure of a key, here or, once asked for, of the fleet."""
        known = self._failures.known(key)
        if known is None and (known := self._fleet.known(key)) is not None:
            self._failures.remember(key, self._program, known.error, known.expires - time.time())
        return known


def _ago(when: float) -> str:
    return f"{max(0.0, time.time() - when) / 3600:.1f} h ago"


def _words(error: BaseException, plan: str) -> str:
    """What is wrong, and the user's own line that it came from, where there is one."""
    said = f"{type(error).__name__}: {error}".strip()
    said = said if len(said) <= _WORDS else f"{said[:_WORDS]}..."
    line = whose.line(error, plan)
    return f"{said} [{line}]" if line else said


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the parent has ended
        main()
