"""`rewarm ls`."""

from __future__ import annotations

import sys
from typing import Any

import click

from rewarm.cli.common import ago, directory_option, json_option, open_store, print_json, seconds, size
from rewarm.store.inventory import Item, survey

_UNBOUNDED = 10_000


@click.command()
@directory_option
@json_option
def command(directory: str | None, as_json: bool) -> None:
    """List the entries, the most recently used first. Headers are read, not verified (see `rewarm verify`)."""
    store = open_store(directory)
    items = sorted(survey(store), key=lambda item: -item.info.used)
    if as_json:
        print_json([_plain(item) for item in items])
    elif not items:
        click.echo(f"no entries in {store.root}")
    else:
        _print_table(items)


def _plain(item: Item) -> dict[str, Any]:
    header = item.header
    return {
        "key": item.info.key,
        "bytes": item.info.size,
        "used": item.info.used,
        "problem": item.problem,
        "program": header.program if header else None,
        "target": header.target if header else None,
        "compile_seconds": header.compile_seconds if header else None,
        "created": header.created if header else None,
        "producer": dict(header.producer) if header else None,
    }


def _print_table(items: list[Item]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("key", "program", "target", "size", "compile", "used"):
        numeric = name in ("size", "compile", "used")
        table.add_column(name, justify="right" if numeric else "left", no_wrap=name != "program", overflow="fold")
    for item in items:
        header = item.header
        table.add_row(
            item.info.key[:12],
            escape(header.program) if header else f"[red]{escape(item.problem or 'gone')}[/red]",
            escape(header.target) if header else "-",
            size(item.info.size),
            seconds(header.compile_seconds) if header else "-",
            ago(item.info.used),
        )
    # A pipe has no width: lines there are as long as they need to be.
    Console(width=None if sys.stdout.isatty() else _UNBOUNDED).print(table)
    total = sum(item.info.size for item in items)
    spent = sum(item.header.compile_seconds for item in items if item.header)
    click.echo(f"{len(items)} entries, {size(total)}, {seconds(spent)} of compiling")
