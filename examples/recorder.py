"""Runs an unmodified Python program and writes down, as it exits, what its compilation cache did.

    python recorder.py RECORD.json PROGRAM.py [ARGUMENT ...]

The program runs as `__main__`, in this process, with its own arguments. At exit, RECORD.json gets:

- `backend`: the JAX backend that the program ran on, or null if it compiled nothing;
- `events`: how often JAX announced each compilation event, for instance its own cache's hits and misses;
- `compile_calls` and `compile_call_seconds`: JAX's own timer around each "compile, or fetch from a cache";
- `rewarm`: what `rewarm.stats()` says, or null where rewarm was not at work.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.util
import json
import runpy
import sys
from collections import Counter
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

COMPILE_CALL = "/jax/core/compile/backend_compile_duration"
EVENTS = "/jax/compilation_cache/"


class Recorder:
    """Listens to JAX's monitoring events and writes one JSON file when the process exits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events: Counter[str] = Counter()
        self._compile_calls = 0
        self._compile_call_seconds = 0.0
        self._backend: str | None = None

    def start(self) -> None:
        """Begins to listen once the program imports JAX; to be called before anything does.

        Exit handlers run last in, first out: registered before those of JAX and of rewarm, this one runs
        after them, so that what they still do as the process exits is counted as well.
        """
        atexit.register(self._write)
        sys.meta_path.insert(0, _AfterImport("jax", self._listen))

    def _listen(self) -> None:
        import jax.monitoring

        jax.monitoring.register_event_listener(self._on_event)
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)

    def _on_event(self, event: str, **_: Any) -> None:
        if event.startswith(EVENTS):
            self._events[event.removeprefix(EVENTS)] += 1

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILE_CALL:
            # Asked for while a program is being compiled: as the process exits, JAX has closed its backends.
            self._backend = self._backend or _default_backend()
            self._compile_calls += 1
            self._compile_call_seconds += duration_secs

    def _write(self) -> None:
        record = {
            "backend": self._backend,
            "events": dict(self._events),
            "compile_calls": self._compile_calls,
            "compile_call_seconds": self._compile_call_seconds,
            "rewarm": _rewarm_stats(),
        }
        self._path.write_text(json.dumps(record, indent=1), encoding="utf-8")


class _AfterImport(importlib.abc.MetaPathFinder):
    """Acts when a module has been imported, at the moment at which the program imports it and not before."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self._act()

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


def _default_backend() -> str:
    import jax

    return jax.default_backend()


def _rewarm_stats() -> dict[str, Any] | None:
    """Returns rewarm's counts if rewarm was loaded and any program came its way."""
    rewarm = sys.modules.get("rewarm")
    if rewarm is None:
        return None
    counts: dict[str, Any] = rewarm.stats().as_dict()
    return counts if counts["requests"] or counts["left_to_jax"] else None


def main() -> None:
    """Records the program named on the command line; its exit status becomes this process's own."""
    if len(sys.argv) < 3:
        sys.exit("usage: recorder.py RECORD.json PROGRAM.py [ARGUMENT ...]")
    record, program = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    Recorder(record).start()
    sys.argv = [str(program), *sys.argv[3:]]
    sys.path[0] = str(program.parent)
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main()
