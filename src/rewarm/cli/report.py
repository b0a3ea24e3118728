"""`rewarm report`."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rewarm.cli.common import (
    directory_option,
    json_option,
    moment,
    open_store,
    progress,
    seconds,
    share,
    size,
    surveyed,
)
from rewarm.cli.completion import complete_run

if TYPE_CHECKING:
    from rewarm.report import Report, Sources, Start
    from rewarm.store import LocalStore

_FORMATS = {"html": ".html", "json": ".json", "trace": ".trace.json"}

# Explaining a miss line by line opens two entries; beyond so many, what was said when it missed stands.
_EXPLAINED = 500


@click.command()
@click.option(
    "--run",
    "run_id",
    metavar="ID",
    shell_complete=complete_run,
    help="The start that this run is of; a prefix is enough. Default: the last.",
)
@click.option("--last", metavar="N", type=click.IntRange(1, 100), help="The last N starts.")
@click.option("--store", "only_store", is_flag=True, help="Only what lies in the directory, and what went from it.")
@click.option("--against", metavar="ID", shell_complete=complete_run, help="Compare with the start of this run.")
@click.option(
    "-o", "--output", metavar="FILE", help="Where to write; - is standard output. Default: rewarm-<run>.html."
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--format", "form", type=click.Choice(list(_FORMATS)), default="html", show_default=True)
@directory_option
@json_option
def command(
    run_id: str | None,
    last: int | None,
    only_store: bool,
    against: str | None,
    output: str | None,
    opens: bool,
    form: str,
    directory: str | None,
    as_json: bool,
) -> None:
    """Show where the seconds of a start went, and what the cache saved: one HTML file that needs nothing else.

    It has a timeline by program and rank, every program with its times, each miss with its explanation, what was not
    stored, the store, what went from it, and how complete tuning was. All ranks of a job whose runs are in the
    directory are in one report.

    --format json is the same as data (--json prints it), --format trace its timeline for ui.perfetto.dev and
    chrome://tracing.

    \b
    rewarm report --open                                the last start
    rewarm report --run 20261129 --against 20261128     two starts side by side
    rewarm report --store -o store.html                 the directory alone
    """
    if as_json:
        form, output = "json", output or "-"
    _refuse(run_id, last, only_store, against, output, opens, form)
    from rewarm.report import build, chosen_starts

    store = open_store(directory)
    starts = [] if only_store else chosen_starts(store.root, run_id, last or 1)
    other = chosen_starts(store.root, against, 1)[0] if against is not None else None
    report = build(_sources(store, directory), starts, other)
    text = _written(report, form)
    if output == "-":
        click.echo(text)
        return
    path = Path(output or f"rewarm-{starts[0].id if starts else 'store'}{_FORMATS[form]}")
    _write(path, text)
    for line in (*_lines(report), f"written to {path}, {size(len(text))}"):
        click.echo(line)
    if opens and not webbrowser.open(path.absolute().as_uri()):
        click.echo("no browser was found; open the file yourself", err=True)


def _refuse(
    run_id: str | None,
    last: int | None,
    only_store: bool,
    against: str | None,
    output: str | None,
    opens: bool,
    form: str,
) -> None:
    given = [name for name, value in {"--run": run_id, "--last": last, "--store": only_store or None}.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} and {given[1]} say two things: give one of them")
    if against is not None and (only_store or (last or 1) > 1):
        raise click.UsageError(f"--against compares one start with another, and goes without {given[0]}")
    if only_store and form == "trace":
        raise click.UsageError("--format trace is of starts, and goes without --store")
    if opens and (form != "html" or output == "-"):
        raise click.UsageError("--open shows a page: it goes with --format html and a file")


def _sources(store: LocalStore, directory: str | None) -> Sources:
    from rewarm import settings
    from rewarm.cli.du import files_by_kind
    from rewarm.explain.afterwards import completed, explanation_of
    from rewarm.ledger.explanation import Explanation
    from rewarm.prewarm.ahead_notes import AheadNotes
    from rewarm.report import Kind, Sources
    from rewarm.report.reading import Event

    items = surveyed(store, store.scan())
    notes, done = AheadNotes(settings.of_command(directory=directory)), [0]

    def explained(event: Event) -> Explanation | None:
        done[0] += 1
        if done[0] > _EXPLAINED:
            return explanation_of(event)
        return notes.added(event, completed(event, store))

    kinds = [Kind(row.name, row.files, row.size) for row in files_by_kind(store)]
    return Sources(store, items, kinds, explained, _shown)


def _shown(starts: Sequence[Start]) -> Iterable[Start]:
    return progress(starts, "reading starts", len(starts))


def _written(report: Report, form: str) -> str:
    from rewarm.report import to_html, to_json, to_trace

    return {"html": to_html, "json": to_json, "trace": to_trace}[form](report)


def _write(path: Path, text: str) -> None:
    """The file, whole or not at all.

    Raises:
      click.ClickException: it cannot be written (exit code 1).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise click.ClickException(
            f"cannot write the report to {path}: {error.strerror or error}; name another file with -o"
        ) from error


def _lines(report: Report) -> list[str]:
    """The headline, for people."""
    if not report.starts:
        store = report.store
        return [f"{report.directory}: {store.entries} entries, {size(store.bytes)}"]
    totals, lines = report.totals, []
    for start in report.starts:
        ranks = f", {start.lanes} of {start.ranks} ranks" if start.ranks > 1 else ""
        lines.append(f"{start.program}, {moment(start.began)}, {start.id}{ranks}")
    lines.append(
        f"{totals.requests} requests, {totals.hits} hits ({share(totals.hits, totals.requests)}), "
        f"{totals.misses} misses"
    )
    lines.append(
        f"{seconds(totals.seconds_saved)} saved of {seconds(totals.seconds_cold)} that compiling all of it takes"
    )
    return [*lines, *(f"not in these numbers: {note}" for note in report.notes)]
