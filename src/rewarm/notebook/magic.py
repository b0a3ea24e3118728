"""The magic `%rewarm`.

Not promised: anything that the functions of the package do not do; each command is a call of one.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.error import UsageError

import rewarm
from rewarm.errors import RewarmError
from rewarm.jax_adapter import activation
from rewarm.notebook.views import EventsView, ExplanationsView, StatsView, View, Words

_SHOWN = 20
_COMMANDS = "on [DIRECTORY], off, stats, events [NUMBER], explain [PROGRAM]"


def run(line: str) -> View:
    """Start warm: %rewarm on [DIRECTORY] | off | stats | events [NUMBER] | explain [PROGRAM]

    on       the cache is on from the next compile, in DIRECTORY or in the one that is set or usual
    off      JAX is as it was
    stats    the numbers of this kernel; also what %rewarm alone is
    events   the last NUMBER programs that JAX wanted (default 20)
    explain  why programs were compiled; those whose name contains PROGRAM
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%rewarm: {error}") from None
    command, *arguments = words or ["stats"]
    act = _ACTS.get(command)
    if act is None or len(arguments) > (command in ("on", "events", "explain")):
        raise UsageError(f"%rewarm: expected one of {_COMMANDS}, found {line.strip()!r}")
    try:
        return act(*arguments)
    except RewarmError as error:
        raise UsageError(f"%rewarm {command}: {error}") from None


def _on(directory: str | None = None) -> View:
    before = _compiled_before() if activation.said() is None and not rewarm.stats().requests else 0
    # Before rewarm is on: then it is at once, and whether it can be is known.
    importlib.import_module("jax")
    rewarm.enable(directory)
    session = activation.session()
    if session is None:
        return Words("rewarm stays off: see the log for the reason, or rewarm doctor")
    told = [f"rewarm is on, in {session.settings.directory}"]
    if before:
        told.append(
            f"{before} programs were compiled before: JAX keeps them, so they are neither stored nor counted; "
            f"jax.clear_caches() makes JAX ask for them again"
        )
    return Words(*told)


def _off() -> View:
    rewarm.disable()
    return Words("rewarm is off")


def _stats() -> View:
    return StatsView(rewarm.stats())


def _events(number: str = str(_SHOWN)) -> View:
    if not number.isdecimal() or int(number) == 0:
        raise UsageError(f"%rewarm events: expected a number of events, 1 or more, found {number!r}")
    return EventsView(rewarm.events(), int(number))


def _explain(program: str = "") -> View:
    events = rewarm.events()
    meant = [event for event in events if program in event.program]
    if program and not meant:
        names = ", ".join(sorted({event.program for event in events})) or "none yet"
        raise UsageError(f"%rewarm explain: no program's name contains {program!r}; there are: {names}")
    return ExplanationsView([event for event in meant if event.outcome == "miss"])


def _compiled_before() -> int:
    """How many executables JAX has in this process; 0 where nobody can tell."""
    if "jax" not in sys.modules:
        return 0
    from rewarm.jax_adapter import seam

    return seam.compiled_so_far()


_ACTS: Mapping[str, Callable[..., View]] = {
    "on": _on,
    "off": _off,
    "stats": _stats,
    "events": _events,
    "explain": _explain,
}


def load(shell: Any) -> None:
    """Give a shell the magic."""
    shell.register_magic_function(run, magic_kind="line", magic_name="rewarm")


def unload(shell: Any) -> None:
    """Take it away again; the cache stays as it is."""
    shell.magics_manager.magics["line"].pop("rewarm", None)
