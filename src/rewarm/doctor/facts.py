"""What the checks are made from: gathered once, partly by child processes of the Python that is meant.

Not promised: that a child sees what the user's program sees. It has the same interpreter and environment, and another
current directory of imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewarm import settings
from rewarm.doctor import look
from rewarm.doctor.inside import steering
from rewarm.errors import RewarmError
from rewarm.in_force import Settings
from rewarm.ledger.runs import BadRunError, NoSuchRunError, RunInfo, find_run, iterate_events

CHILD_SECONDS = 180.0
_EVENTS_READ = 20_000


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known before anything is judged.

    Attributes:
      directory: of the cache.
      python: the command of the Python that is meant.
      environment: the variables of this process that steer JAX, XLA and rewarm.
      given: the same as they were before Python's startup files ran, where the system tells.
      switch: whether the environment turns rewarm on; or what is wrong with it.
      in_force: the settings of a program here, from JAX itself where it could be asked; or what is wrong with them.
      seen: what `look.py` saw of that Python; empty where it could not be run.
      unseen: why not.
      jax: what `inside.py` saw of JAX there; empty where it was not asked.
      run: the last run in the directory that has events.
      events: of that run.
    """

    directory: Path
    python: str
    environment: Mapping[str, str]
    given: Mapping[str, str]
    switch: bool | str
    in_force: Settings | str
    seen: Mapping[str, Any]
    unseen: str
    jax: Mapping[str, Any]
    run: RunInfo | None
    events: tuple[Mapping[str, Any], ...]

    @property
    def has_rewarm(self) -> bool:
        """Whether that Python can import rewarm."""
        return bool(self.seen.get("rewarm"))


def gather(directory: str | None, python: str, module: str | None) -> Facts:
    """All of it.

    Raises:
      SettingError: `directory` cannot be used.
    """
    in_force, place = _in_force(directory)
    environment = settings.child_environment(None, "")
    seen, unseen = _look(python)
    jax = _ask_jax(python, module) if seen.get("rewarm") and seen.get("jax") else {}
    run, events = _last_run(place)
    return Facts(
        directory=place,
        python=python,
        environment=steering(environment),
        given=steering(_given() or environment),
        switch=_switch(),
        in_force=_from_jax(in_force, jax),
        seen=seen,
        unseen=unseen,
        jax=jax,
        run=run,
        events=events,
    )


def _given() -> dict[str, str]:
    """The environment that this process was started with (proc_pid_environ(5)); empty where it is not told."""
    try:
        rows = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(row).partition("=") for row in rows if row)
    return {name: value for name, _, value in pairs}


def _in_force(directory: str | None) -> tuple[Settings | str, Path]:
    """What the environment says, and the directory, which `--dir` can say where a variable is wrong."""
    if directory is None:
        try:
            found = settings.of_command()
        except RewarmError as error:
            from rewarm.in_force import default_directory

            return str(error), default_directory()
        return found, found.directory
    place = settings.directory_of_command(directory)
    try:
        return settings.of_command(directory=directory), place
    except RewarmError as error:
        return str(error), place


def _from_jax(said: Settings | str, jax: Mapping[str, Any]) -> Settings | str:
    """The settings as JAX's own options make them, which hold what is not in the environment; the directory stays."""
    told = jax.get("in_force")
    if isinstance(said, str) or not isinstance(told, dict):
        return told if isinstance(told, str) else said
    names = ("min_compile_seconds", "min_entry_bytes", "check_contents", "strict", "max_size", "threshold_said")
    return said._replace(**{name: told[name] for name in names if name in told})


def _switch() -> bool | str:
    try:
        return settings.environment_asks()
    except RewarmError as error:
        return str(error)


def _look(python: str) -> tuple[Mapping[str, Any], str]:
    command = [python, "-c", Path(look.__file__).read_text()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False)
        found = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {}, f"{python} cannot be run: {error}"
    if not isinstance(found, dict):
        return {}, f"{python} ends with {done.returncode}: {last_line(done.stderr)}"
    return found, ""


def _ask_jax(python: str, module: str | None) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rewarm-doctor-") as scratch:
        report = Path(scratch) / "report.json"
        command = [python, "-P", "-m", "rewarm.doctor.inside", str(report), *([module] if module else [])]
        environment = settings.unwatched(settings.child_environment(None, ""))
        # Whether rewarm turns on is no matter here, and it would leave a run of this child.
        environment |= {"REWARM": "0", "JAX_PLATFORMS": "cpu"}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
            )
            found = json.loads(report.read_bytes())
        except subprocess.TimeoutExpired:
            return {"no_jax": f"no answer within {CHILD_SECONDS:.0f} s"}
        except (OSError, ValueError):
            return {"no_jax": last_line(done.stderr) or f"the process ended with {done.returncode}"}
    return found if isinstance(found, dict) else {}


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _last_run(directory: Path) -> tuple[RunInfo | None, tuple[Mapping[str, Any], ...]]:
    try:
        run = find_run(directory)
        events = []
        for event in iterate_events(run.path):
            events.append(event)
            if len(events) >= _EVENTS_READ:
                break
    except (NoSuchRunError, BadRunError):
        return None, ()
    return run, tuple(events)
