"""`rewarm diff`."""

from __future__ import annotations

import dataclasses

import click

from rewarm.cli.common import directory_option, json_option, open_store, print_json, the_one
from rewarm.cli.completion import complete_key
from rewarm.envelope import Entry
from rewarm.explain.afterwards import entry
from rewarm.explain.difference import compare_entries
from rewarm.explain.text import lines
from rewarm.store import LocalStore


@click.command()
@click.argument("before", shell_complete=complete_key)
@click.argument("after", shell_complete=complete_key)
@directory_option
@json_option
def command(before: str, after: str, directory: str | None, as_json: bool) -> None:
    """Say how the entry of key AFTER differs from that of key BEFORE; prefixes are enough."""
    store = open_store(directory)
    old, new = _opened(store, before), _opened(store, after)
    found = compare_entries(old, new)
    if as_json:
        keys = {"before": old.header.key, "after": new.header.key}
        print_json({**keys, "explanation": dataclasses.asdict(found)})
        return
    for name, one in (("before", old), ("after", new)):
        click.echo(f"{name:<7} {one.header.key}  {one.header.program}  {one.header.target}")
    if not found.differs:
        click.echo("the same key")
    for line in lines(found):
        click.echo(line)


def _opened(store: LocalStore, prefix: str) -> Entry:
    info = the_one(store, prefix.lower())
    found = entry(store, info.key)
    if found is None:
        raise click.ClickException(f"entry {info.key} is not usable; see rewarm verify")
    return found
