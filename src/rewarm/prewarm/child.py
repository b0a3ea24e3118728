"""The worker process: fills the cache with programs of one plan, for one target in one topology.

Not promised: anything to whoever else starts it. It runs none of the programs, and rewarm and JAX serve what else the
plan's own code compiles as if rewarm were not there.

    parent to child   one JSON object on the first line: {"plan":, "target":, "topology":, "check":, "tuned":, "retry":,
                      "only": [names] or null, "log": path or null}; then, one on each line, the numbers of programs
    child to parent   JSON objects, one on each line:
                      {"jax":, "programs": [[number, name, line]], "wrong": why the plan ended early, or ""}
                      {"begins": key, "program": name}        a program without an entry is about to be compiled
                      {"program":, "outcome":, ...}           see `work.Result`
                      or {"cannot": why, "kind": "plan", "jax", "target"}, and it ends
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import rewarm
from rewarm import settings
from rewarm.errors import RewarmError
from rewarm.prewarm.failures import Failure, Failures
from rewarm.prewarm.shared_failures import FleetFailures
from rewarm.prewarm.work import Outcome

_OF_RSS = 1 if sys.platform == "darwin" else 1024
_WORDS = 4000


class _RememberedError(RewarmError, RuntimeError):
    """It failed before."""


class _CannotError(Exception):
    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def main() -> None:
    """Do what standard input says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the parent too, which ends this
    rewarm.disable()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the plan prints is not for the parent

    def tell(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    asked = json.loads(sys.stdin.readline())
    try:
        _work(asked, tell)
    except _CannotError as wrong:
        tell({"cannot": str(wrong), "kind": wrong.kind})


def _work(asked: Mapping[str, Any], tell: Any) -> None:
    devices = _devices(asked)
    sys.path.append(str(Path.cwd()))  # behind everything else: what lies there is not to stand for JAX
    programs, wrong = _programs(asked, devices)
    chosen = [one for one in enumerate(programs) if asked["only"] is None or one[1].name in asked["only"]]
    from rewarm.jax_adapter import seam

    listed = [[number, one.name, one.line] for number, one in chosen]
    tell({"jax": seam.version(), "programs": listed, "wrong": wrong})
    filling = _Filling(asked, devices, tell)
    for line in sys.stdin:
        tell(filling.result(programs[int(line)]))


def _devices(asked: Mapping[str, Any]) -> list[Any]:
    try:
        from rewarm.jax_adapter import prewarming
    except Exception as wrong:
        raise _CannotError("jax", f"JAX cannot be imported: {type(wrong).__name__}: {wrong}") from wrong
    try:
        return prewarming.devices(asked["target"], asked["topology"])
    except RewarmError as wrong:
        raise _CannotError("target", str(wrong)) from wrong
    except Exception as wrong:
        raise _CannotError("target", f"no devices of {asked['target']}: {type(wrong).__name__}: {wrong}") from wrong


def _programs(asked: Mapping[str, Any], devices: list[Any]) -> tuple[list[Any], str]:
    """The programs of the plan; where it raises after some of them, those, and why."""
    from rewarm.jax_adapter import plans

    found: list[Any] = []
    try:
        found.extend(plans.programs(asked["plan"], devices))
    except plans.PlanError as wrong:
        why = str(wrong)
    except Exception as wrong:  # noqa: BLE001 - the user's own code
        why = f"{asked['plan']} raises {_words(wrong)}"
    else:
        return found, ""
    if not found:
        raise _CannotError("plan", why)
    return found, why


class _Filling:
    """One program after the other."""

    def __init__(self, asked: Mapping[str, Any], devices: list[Any], tell: Any) -> None:
        from rewarm.jax_adapter import prewarming

        self._tell = tell
        self._devices = devices
        self._check, self._tuned, self._retry = asked["check"], asked["tuned"], asked["retry"]
        in_force = settings.of_command()
        self._failures = Failures(in_force.directory)
        self._fleet = FleetFailures(in_force)
        self._program = ""
        self._key: str | None = None
        log = Path(asked["log"]) if asked["log"] else None
        wanted = prewarming.Wanted(not self._check, self._tuned, asked["target"], log, self._begins, self._may)
        self._filler = prewarming.Filler(wanted)

    def result(self, program: Any) -> dict[str, Any]:
        """Have an entry for one program, and say what came of it."""
        since = time.perf_counter()
        self._program, self._key = program.name, None
        told: dict[str, Any] = {"program": program.name, "line": program.line}
        try:
            told |= self._filled(program)
        except _RememberedError as wrong:
            told |= {"outcome": Outcome.FAILED, "why": str(wrong), "key": self._key, "remembered": True}
        except Exception as wrong:  # noqa: BLE001 - of the user's code, or the compiler's
            told |= self._failed(wrong)
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _OF_RSS
        return {**told, "seconds": time.perf_counter() - since, "memory": taken}

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
        return {"outcome": Outcome.FAILED, "why": _words(wrong), "key": self._key}

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


def _words(error: BaseException) -> str:
    """What is wrong, and the user's own line that it came from, where there is one."""
    said = f"{type(error).__name__}: {error}".strip()
    said = said if len(said) <= _WORDS else f"{said[:_WORDS]}..."
    line = next(iter(_own_lines(error)), "")
    return f"{said} [{line}]" if line else said


def _own_lines(error: BaseException) -> Iterator[str]:
    """The lines of an error's traceback that are neither a library's nor rewarm's, the innermost first."""
    own = Path(__file__).parent.parent
    libraries = {"site-packages", "dist-packages", "lib"}
    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(own) and path.is_absolute() and not libraries & set(path.parts[-6:]):
            yield f"{path}:{number}"


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the parent has ended
        main()
