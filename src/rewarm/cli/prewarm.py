"""`rewarm prewarm`."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rewarm import settings, targets
from rewarm.cli.common import FOUND_BAD, directory_option, json_option, print_json, size, tidy_end
from rewarm.errors import SettingError
from rewarm.in_force import Settings
from rewarm.jax_adapter.described import DescribedError
from rewarm.jax_adapter.plans import PlanError
from rewarm.prewarm import Job, Report, Result, fill, jobs, pushing, still_there, target_notes
from rewarm.prewarm.pool import Progress
from rewarm.prewarm.report import words_of
from rewarm.prewarm.work import Wanted
from rewarm.telling import one_line

INTERRUPTED = 130
_LONGEST = 8760.0


@click.command()
@click.argument("plans", metavar="PLAN...", nargs=-1, required=True)
@click.option(
    "--target",
    "named",
    multiple=True,
    required=True,
    metavar="NAME",
    help="What to compile for: see rewarm target ls. May be repeated.",
)
@click.option(
    "--topology",
    "topologies",
    multiple=True,
    metavar="TEXT",
    help="How many devices in how many processes: 4x8x1 is nodes x processes x devices. May be repeated.",
)
@click.option("--only", multiple=True, metavar="NAME", help="Only this program of the plan. May be repeated.")
@click.option("--jobs", "-j", "workers", type=click.IntRange(1), default=1, help="Processes at once, at most.")
@click.option("--check", is_flag=True, help="Only say what is missing; compile nothing.")
@click.option("--require-tuned", is_flag=True, help="Refuse GPU programs with a fusion that has no tuning result.")
@click.option("--lock", metavar="FILE", help="The lock file that tuning comes from; see rewarm autotune lock.")
@click.option("--push", is_flag=True, help="Send the entries to the remotes that are named.")
@click.option(
    "--bundle", type=click.Path(dir_okay=False, path_type=Path), help="Write the entries into this file, too."
)
@click.option("--remote", metavar="URL", help="Remotes, divided by commas. Default: REWARM_REMOTE.")
@click.option("--namespace", metavar="NAME", help="What is read and written there. Default: REWARM_NAMESPACE, or main.")
@click.option("--for-jax", "jax", metavar="VERSION", help="Refuse to run with another JAX than this.")
@click.option(
    "--against", metavar="NAME|FILE", help="Say also in what each target differs from this one; see rewarm target show."
)
@click.option("--retry", is_flag=True, help="Also compile what is remembered as failing.")
@click.option(
    "--remember-failures",
    "hours",
    type=click.FloatRange(0, _LONGEST),
    callback=lambda *said: _number(said[-1]),
    default=24.0,
    metavar="HOURS",
    help=f"0: not. Default 24, at most {_LONGEST:.0f}, a year.",
)
@directory_option
@json_option
def command(plans: tuple[str, ...], named: tuple[str, ...], topologies: tuple[str, ...], **said: Any) -> None:
    """Fill the cache with the programs of a plan, for machines that need not be here.

    PLAN is module:function or path/file.py:function; the function yields rewarm.Program(jitted, *abstract_arguments),
    and with a parameter it is given the devices, for a mesh of its own. What is there already is not compiled again, so
    a run that was interrupted is taken up where it ended.

    Exit codes: 0 the entry of each program is there; 1 one is missing, failed or was refused, or did not arrive in a
    remote; 2 wrong usage; 130 interrupted.
    """
    if said["jax"] is not None:
        with _usage():
            jobs.check_jax(said["jax"])
    in_force = settings.of_command(
        directory=said["directory"], remote=said["remote"], namespace=said["namespace"], autotune_lock=said["lock"]
    )
    bundle = said["bundle"]
    if said["check"] and (said["push"] or bundle is not None):
        given = "--push" if said["push"] else "--bundle"
        raise click.UsageError(f"--check only looks, so there is nothing to send: leave out {given} or --check")
    _see_place(bundle)
    if said["push"] and not in_force.remote:
        raise click.UsageError("--push: no remote is named: say --remote URL, or set REWARM_REMOTE")
    with _usage():
        jobs.check_lock(in_force)
        found = list(jobs.jobs(plans, named, topologies, jobs.variables(in_force)))
        about_targets, about_remotes = target_notes.of_jobs(found), _remotes(in_force, push=said["push"])
    wanted = Wanted(said["check"], said["require_tuned"], said["retry"], said["only"] or None, said["hours"] * 3600)
    against = _compared(found, said["against"])
    try:
        with tidy_end():
            report = _filled(found, wanted, in_force, said["workers"])
            report = replace(report, targets=about_targets, remotes=about_remotes)
            afterwards = pushing.after(report, in_force, push=said["push"], bundle=bundle)
    except KeyboardInterrupt:
        click.echo("\ninterrupted: what was stored until now stays, and the same command goes on from there", err=True)
        raise SystemExit(INTERRUPTED) from None
    if said["as_json"]:
        print_json({**report.plain(), **afterwards.plain(), "against": {name: rows for name, rows, _ in against}})
    else:
        for line in (*report.lines(), *(line for _, _, lines in against for line in lines), *afterwards.lines()):
            click.echo(line)
    if not report.is_complete or not afterwards.is_good:
        raise SystemExit(FOUND_BAD)


def _remotes(in_force: Settings, *, push: bool) -> list[str]:
    """What is to be said of the remotes; where entries are to be sent all have to be there.

    Raises:
      SettingError: an address or a key cannot be used.
      ClickException: one is not there, or takes nothing, and was to be sent to.
    """
    if not in_force.remote:
        return []
    from rewarm.prewarm import remotes_there

    found = list(remotes_there.problems(in_force, push=push))
    if found and push:
        lines = "\n".join(map(one_line, found))
        raise click.ClickException(f"--push: entries would not arrive, so nothing is compiled:\n{lines}")
    return found


def _number(hours: float) -> float:
    if math.isnan(hours):  # which is in every range
        raise click.BadParameter(f"expected a number of hours, at most {_LONGEST:.0f}, found nan")
    return hours


def _see_place(bundle: Path | None) -> None:
    """See that a bundle can be written, before the work that it is to hold.

    Race: it is there, or cannot be written any more, when the work is done; then the report says so.
    """
    if bundle is None:
        return
    if os.path.lexists(bundle):
        raise click.ClickException(f"{bundle} is there already; name another, or remove it")
    folder = os.path.realpath(bundle.parent)
    try:
        with tempfile.NamedTemporaryFile(prefix=".rewarm-", suffix=".tmp", dir=folder):
            pass
    except OSError as error:
        raise click.ClickException(f"cannot write {bundle}: {folder}: {error.strerror or error}") from None


def _compared(found: list[Job], other: str | None) -> list[tuple[str, list[dict[str, Any]], list[str]]]:
    """In what each target differs from another one, such as a captured file of the real machine."""
    if other is None:
        return []
    from rewarm.jax_adapter import described

    told = []
    with _usage():
        real = described.exact(targets.named(other))
        for name in dict.fromkeys(job.target for job in found):
            rows = targets.differences(described.exact(targets.named(name)), real)
            keyed = sum(row.keyed for row in rows)
            head = f"{name} and {other} {f'differ, in keys {keyed} times:' if rows else 'say the same'}"
            told.append((name, [row.plain() for row in rows], [head, *(f"  {row}" for row in rows)]))
    return told


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """What is said wrong is wrong usage."""
    try:
        yield
    except (targets.TargetError, targets.TopologyError, targets.UnknownTargetError, jobs.WrongJaxError) as wrong:
        raise click.UsageError(str(wrong)) from None
    except (SettingError, DescribedError, PlanError) as wrong:
        raise click.UsageError(str(wrong)) from None


def _filled(found: list[Job], wanted: Wanted, in_force: Settings, workers: int) -> Report:
    since = time.perf_counter()
    shown = _Bar(workers) if sys.stderr.isatty() else _Lines()
    with shown:
        results = fill(found, wanted, in_force.directory, workers=workers, progress=shown)
    if not wanted.check:
        results = list(still_there.checked(results, in_force.directory, remotes=bool(in_force.remote)))
    return Report(results, time.perf_counter() - since, str(in_force.directory), wanted.check)


class _Lines(Progress):
    """A line for each program, on standard error."""

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to be done."""

    def done(self, result: Result) -> None:
        """See `Progress`."""
        click.echo(f"{words_of(result)}{f', {size(result.bytes)}' if result.bytes else ''}", err=True)


class _Bar(_Lines):
    """The same lines, above a bar that says how much time is left."""

    def __init__(self, workers: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Drawn

        del workers
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._console = Console(stderr=True)
        self._drawn = Drawn(*columns, console=self._console, transient=True)
        self._task = self._drawn.add_task("reading plans", total=None)
        self._programs = 0

    def __enter__(self) -> _Bar:
        self._drawn.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._drawn.stop()

    def listed(self, programs: int) -> None:
        """See `Progress`."""
        self._programs += programs
        self._drawn.update(self._task, total=self._programs, description="programs")

    def begins(self, job: Job, program: str) -> None:
        """See `Progress`."""
        from rich.markup import escape

        self._drawn.update(self._task, description=escape(f"compiling {one_line(program)}, {job.where}"))

    def done(self, result: Result) -> None:
        """See `Progress`."""
        from rich.text import Text

        self._console.print(Text(words_of(result)))
        self._drawn.update(self._task, advance=bool(result.program))
