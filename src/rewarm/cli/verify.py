"""`rewarm verify`."""

from __future__ import annotations

import click

from rewarm.cli.common import FOUND_BAD, directory_option, json_option, open_store, print_json
from rewarm.store.inventory import Item, verify


@click.command()
@directory_option
@json_option
def command(directory: str | None, as_json: bool) -> None:
    """Check every entry: digest, key, layout, and that each section unpacks. Changes nothing.

    Exit code 1 when an entry is bad. A bad entry needs no repair by hand: the next program that asks for it puts it
    aside and makes it anew.
    """
    store = open_store(directory)
    items = [verify(store, info) for found in (store.scan(), store.misplaced()) for info in found]
    bad = [item for item in items if item.problem is not None]
    if as_json:
        print_json(
            {
                "directory": str(store.root),
                "entries": len(items),
                "bad": [{"key": item.info.key, "problem": item.problem} for item in bad],
            }
        )
    else:
        _print(items, bad)
    if bad:
        raise SystemExit(FOUND_BAD)


def _print(items: list[Item], bad: list[Item]) -> None:
    for item in bad:
        click.echo(f"{item.info.key}  {item.problem}")
    click.echo(f"{len(items)} entries, {len(bad)} bad")
