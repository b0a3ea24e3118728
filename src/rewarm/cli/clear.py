"""`rewarm clear`."""

from __future__ import annotations

import click

from rewarm.cli.common import directory_option, json_option, open_store, print_json, size

_HEX = "[0-9a-f]"
_HISTORY = (
    f"runs/{'[0-9]' * 8}T{'[0-9]' * 6}Z-[0-9]*-{_HEX * 8}.jsonl",
    "explain/[0-9a-f][0-9a-f].jsonl",
    "explain/.*.tmp",
    f"explain/values/{_HEX * 64}.json",
    "explain/values/.*.tmp",
    ".*.json.*.tmp",
)


@click.command()
@directory_option
@json_option
def command(directory: str | None, as_json: bool) -> None:
    """Remove every entry, the quarantine, the runs and all that explanations are made of.

    Files that are not rewarm's stay.

    Programs that run meanwhile are not disturbed: they compile what they no longer find.
    """
    store = open_store(directory)
    if not store.is_ours():
        raise click.ClickException(
            f"{store.root} carries no CACHEDIR.TAG of rewarm, so nothing is removed there; is it the right directory?"
        )
    entries, total = 0, 0
    for info in store.scan():
        store.delete(info.key)
        entries, total = entries + 1, total + info.size
    leftovers = store.remove_leftovers(_HISTORY)
    if as_json:
        print_json({"directory": str(store.root), "entries": entries, "bytes": total, "leftovers": leftovers})
    else:
        click.echo(f"removed {entries} entries, {size(total)}, and {leftovers} leftovers from {store.root}")
