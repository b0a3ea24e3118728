"""`rewarm show`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from rewarm.cli.common import (
    ago,
    directory_option,
    json_option,
    open_store,
    print_json,
    seconds,
    size,
    the_one,
)
from rewarm.cli.completion import complete_key
from rewarm.envelope import Header
from rewarm.explain.afterwards import entry
from rewarm.explain.difference import values_of
from rewarm.store import EntryInfo
from rewarm.store.inventory import verify

_WIDTH = 100
_LISTED = 12


@click.command()
@click.argument("key", shell_complete=complete_key)
@directory_option
@json_option
def command(key: str, directory: str | None, as_json: bool) -> None:
    """Show the entry of KEY: header, components, sizes, times. A prefix is enough while it fits one entry."""
    store = open_store(directory)
    info = the_one(store, key.lower())
    item = verify(store, info)
    if item.header is None:
        raise click.ClickException(f"entry {info.key} is not usable: {item.problem or 'removed meanwhile'}")
    opened = entry(store, info.key)
    values = values_of(opened) if opened is not None else {}
    if as_json:
        rows = [{**row, "value": values.get(row["name"])} for row in item.header.as_dict()["components"]]
        print_json(
            {
                **item.header.as_dict(),
                "components": rows,
                "bytes": info.size,
                "used": info.used,
                "path": str(store.path(info.key)),
            }
        )
    else:
        _print(item.header, values, info, store.path(info.key))


def _print(header: Header, values: dict[str, Any], info: EntryInfo, path: Path) -> None:
    created = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(header.created))
    producer = ", ".join(f"{name} {value}" for name, value in sorted(header.producer.items()))
    lines = [
        ("key", header.key),
        ("program", header.program),
        ("kind", header.kind),
        ("target", header.target),
        ("compiled in", seconds(header.compile_seconds)),
        ("loaded in", seconds(header.load_seconds)),
        ("made", f"{created} by {producer}"),
        ("used", ago(info.used)),
        ("file", f"{path} ({size(info.size)})"),
    ]
    for name, text in lines:
        click.echo(f"{name:<12} {text}")
    click.echo("sections")
    for section in header.sections:
        packed, raw = size(section.length), size(section.raw_length)
        click.echo(f"  {section.name:<10} {packed} {section.codec}, {raw} unpacked, sha256 {section.sha256[:16]}")
    click.echo("components")
    for row in header.components:
        value = values.get(row["name"])
        table = value if isinstance(value, dict) else {}
        click.echo(f"  {row['name']:<10} {row['digest'][:16]}{'' if table else _text(value)}")
        for name, part in list(table.items())[:_LISTED]:
            click.echo(f"    {name}:{_text(part)}")
        if len(table) > _LISTED:
            click.echo(f"    and {len(table) - _LISTED} more, which --json shows")


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"  {text if len(text) <= _WIDTH else text[: _WIDTH - 3] + '...'}"
