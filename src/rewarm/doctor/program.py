"""The check that runs the user's program and watches it: what was compiled past rewarm, and what was not stored.

Not promised: to watch processes that the program starts. Its environment is the user's own, but for `PYTHONPATH`
and for what asks for metrics and logs, which are those of the program's own runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rewarm import settings
from rewarm.doctor import observer
from rewarm.doctor.check import Check, seconds, some
from rewarm.doctor.facts import Facts
from rewarm.doctor.history import of_events, of_stats

_NAME = "program"
_WHEN = "in the program"


class _Observed(NamedTuple):
    """What was heard of one process."""

    compiles: list[Mapping[str, Any]]
    events: list[Mapping[str, Any]]
    stats: Mapping[str, Any] | None
    ended: bool


def checks(facts: Facts, arguments: Sequence[str]) -> Iterator[Check]:
    """Run `python` with these arguments, and tell what was seen."""
    with tempfile.TemporaryDirectory(prefix="rewarm-doctor-") as place:
        scratch = Path(place)
        try:
            code, pid = _run(facts, arguments, scratch)
        except OSError as error:
            yield Check(_NAME, "problem", f"it cannot be run: {error}", "name another Python with --python")
            return
        observed = _read(scratch / f"observed-{pid}.jsonl")
    yield _ended(code, observed)
    if observed.compiles:
        yield from _past(observed, facts)
        yield from of_events(observed.events, _WHEN)
        yield from of_stats(observed.stats or {}, _WHEN)


def _run(facts: Facts, arguments: Sequence[str], scratch: Path) -> tuple[int, int]:
    """Exit code and process id. What the program prints goes to standard error, since the checks are printed here."""
    folder = scratch / "jax_plugins"
    folder.mkdir()
    shutil.copy(observer.__file__, folder / "rewarm_observer.py")
    environment = settings.unwatched(settings.child_environment(None, ""))
    if facts.switch is not True:
        environment["REWARM"] = "0"  # off, as it is here; what the program says to rewarm.enable counts all the same
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = str(scratch) if not before else f"{scratch}{os.pathsep}{before}"
    sys.stdout.flush()
    with subprocess.Popen([facts.python, *arguments], env=environment, stdout=sys.stderr.fileno()) as process:
        while True:
            try:
                return process.wait(), process.pid
            except KeyboardInterrupt:  # the program has it too, and ends as it likes
                continue


def _read(path: Path) -> _Observed:
    compiles, events, stats, ended = [], [], None, False
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if "events" in record:
            events, stats, ended = record["events"], record["stats"], True
        else:
            compiles.append(record)
    return _Observed(compiles, [{**event, "seconds": {"compile": event["compile"]}} for event in events], stats, ended)


def _ended(code: int, observed: _Observed) -> Check:
    ended = f"it ended with exit code {code}" if code >= 0 else f"it was ended by signal {-code}"
    if not observed.compiles:
        found = f"{ended}, and JAX compiled nothing in it"
        return Check(_NAME, "note", found, "name a program that compiles; processes that it starts are not watched")
    numbers = observed.stats
    served = "" if not numbers else f", of which rewarm served {numbers['requests']}, {numbers['hits']} by hits"
    found = f"{ended}; JAX asked for {len(observed.compiles)} programs{served}"
    return Check(_NAME, "ok" if code == 0 else "note", found, "" if code == 0 else "look at what it printed")


def _past(observed: _Observed, facts: Facts) -> Iterator[Check]:
    """Compiles that rewarm never heard of."""
    past = [one for one in observed.compiles if one["past"]]
    if not past:
        return
    names = some([str(one["program"]) for one in past])
    spent = seconds(sum(one["seconds"] for one in past))
    if any(one.get("enabled") is False for one in past):
        found = (
            f"jax_enable_compilation_cache was set to False by the program, or by a library that it imports: "
            f"{len(past)} programs were compiled without rewarm, in {spent} ({names})"
        )
        advice = (
            "look for jax.config.update or a context manager of that name; --import MODULE says what one import does"
        )
        yield Check("compiled past rewarm", "problem", found, advice)
        return
    numbers = observed.stats
    if len(past) == len(observed.compiles):
        why = "rewarm was never on" if not numbers or not numbers["requests"] else "rewarm was off"
        found = f"{why}: all {len(past)} programs were compiled without it, in {spent} ({names})"
        advice = "set REWARM=1 or REWARM_DIR=PATH" if facts.switch is not True else "see the checks above"
        yield Check("compiled past rewarm", "problem", found, advice)
        return
    first = next(place for place, one in enumerate(observed.compiles) if not one["past"])
    early = sum(place < first for place, one in enumerate(observed.compiles) if one["past"])
    when = "before rewarm was on" if early == len(past) else "while rewarm was off"
    found = f"{len(past)} programs were compiled {when}, in {spent} ({names})"
    advice = "call rewarm.enable() before the first computation, or set REWARM_DIR=PATH in its place"
    yield Check("compiled past rewarm", "problem", found, advice)
