"""`rewarm tune show`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from rewarm.cli.common import directory_option, json_option, moment, print_json, table
from rewarm.cli.tune.chosen import (
    chosen_text,
    config_text,
    loaded,
    middle,
    ordered_trials,
    plain,
    state_of,
    the_one,
    time_text,
    when_text,
    winner_text,
)
from rewarm.tunables.deciding import spread
from rewarm.tunables.records import Record
from rewarm.tunables.spaces import canonical


@click.command()
@click.argument("case")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("--arguments", metavar="TEXT", help="Only the case whose arguments contain this.")
@click.option("--plot", is_flag=True, help="Draw the timings in the terminal, and with -o as a picture.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="The picture, with --plot."
)
@directory_option
@json_option
def command(
    case: str,
    files: tuple[Path, ...],
    arguments: str | None,
    plot: bool,
    output: Path | None,
    directory: str | None,
    as_json: bool,
) -> None:
    """Show one case: the winner and how sure that is, every candidate with its time, and the conditions.

    CASE is the first digits of its key, or the kernel's name, or a part of it.
    """
    if output is not None and not plot:
        raise click.UsageError("-o is the picture's file; it needs --plot")
    record = the_one(loaded(files, directory), case, arguments)
    if as_json:
        print_json(plain(record))
    else:
        for name, value in _lines(record):
            click.echo(f"{name:<12} {value}")
        _print_trials(record)
    if plot:
        from rewarm.cli.tune import plot as drawing

        if not as_json:
            drawing.in_terminal(record)
        if output is not None:
            drawing.to_file(record, output)
            click.echo(f"{output}: written", err=as_json)


def _lines(record: Record) -> Iterator[tuple[str, str]]:
    case = record.case
    yield "key", case.key
    yield "kernel", case.kernel
    yield "arguments", case.arguments or "-"
    yield "state", state_of(record)
    yield "default", chosen_text(record, record.default)
    yield "winner", winner_text(record)
    if record.comparison is not None:
        yield "compared", str(record.comparison)
    yield "when", when_text(record)
    yield from (("flag", one) for one in record.flags)
    if record.inputs:
        yield "inputs", record.inputs
    if record.tolerance:
        yield "tolerance", config_text(record.tolerance)
    yield from (("measured", f"{name} {value}") for name, value in sorted(record.environment.items()))
    yield from (("made with", f"{name} {value}") for name, value in sorted(record.about.items()))
    yield from ((name, getattr(case, name)) for name in ("content", "target", "toolchain", "libraries"))


def _print_trials(record: Record) -> None:
    trials = ordered_trials(record)
    if not trials:
        click.echo("no timings are kept with it")
        return
    default = record.best_known(record.default)
    base = middle(default) if default is not None else None
    rows = []
    for one in trials:
        time = middle(one)
        marks = {canonical(record.default): "default", canonical(record.winner or {}): "winner"}
        until = f"; not tried again before {moment(one.expires)}" if one.expires is not None else ""
        rows.append(
            [
                chosen_text(record, one.config),
                time_text(time),
                f"{base / time:.3f}x" if base and time else "-",
                f"{spread(one.seconds):.1%}" if len(one.seconds) > 1 else "-",
                str(len(one.seconds)),
                one.outcome,
                " ".join(filter(None, (marks.get(canonical(one.config)), (one.reason + until).lstrip("; ")))),
            ]
        )
    click.echo("")
    columns = ("candidate", "time", "speed-up", "spread", "samples", "outcome", "")
    table(columns, rows, numeric=("time", "speed-up", "spread", "samples"))
