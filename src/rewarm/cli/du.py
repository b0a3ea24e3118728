"""`rewarm du`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import click

from rewarm.cli.common import (
    directory_option,
    json_option,
    open_store,
    print_json,
    progress,
    seconds,
    share,
    size,
    surveyed,
    table,
)
from rewarm.cli.layout import kind_of
from rewarm.store import LocalStore
from rewarm.store.inventory import Item

_SHOWN = 30


class _Row(NamedTuple):
    """What one name takes."""

    name: str
    files: int = 0
    size: int = 0
    compile_seconds: float = 0.0


@click.command()
@click.option(
    "--by",
    type=click.Choice(["program", "kind", "target", "jax"]),
    help="Only this table. kind: of file, see below. jax: the version that made the entry.",
)
@directory_option
@json_option
def command(by: str | None, directory: str | None, as_json: bool) -> None:
    """Say what takes the room in a cache directory: by kind of file, and the entries by program.

    Kinds are: entries, quarantine, runs, explain (what explanations are made of), trials (of entries that are new to
    a host), costs (entries that load slower than they compile), leases (of compilations under way), plans (what to
    fetch ahead), loads (what to load ahead), traces (of functions of rewarm.jit), uploads (what is to go to remotes),
    remotes (what they enforce), autotune (XLA:GPU's tuning results, as XLA reads them), tuned (which entries hold
    winners of rewarm.tune), temporary (what is being written), books (sums, digests of libraries), and other, which is
    not rewarm's. Bytes are those of the files' lengths.
    """
    store = open_store(directory)
    wanted = (by,) if by is not None else ("kind", "program")
    tables: dict[str, list[_Row]] = {}
    if "kind" in wanted:
        tables["kind"] = files_by_kind(store)
    if set(wanted) - {"kind"}:
        items = surveyed(store, store.scan())
        tables |= {name: _sums(_entries(items, name)) for name in wanted if name != "kind"}
    if as_json:
        print_json({"directory": str(store.root), **{f"by_{name}": _plain(rows) for name, rows in tables.items()}})
    else:
        _print(store, tables)


def files_by_kind(store: LocalStore) -> list[_Row]:
    """What the files of each kind take, the largest first."""
    return _sums(_files(store))


def _files(store: LocalStore) -> Iterator[_Row]:
    """A row for each file below the directory; links are not followed."""
    for folder, _, names in progress(os.walk(store.root), "looking at files"):
        below = "" if folder == str(store.root) else f"{os.path.relpath(folder, store.root)}/".replace(os.sep, "/")
        for name in names:
            try:
                found = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - one of many thousand
            except OSError:  # removed since
                continue
            yield _Row(kind_of(f"{below}{name}"), 1, found.st_size)


def _entries(items: Iterable[Item], by: str) -> Iterator[_Row]:
    for item in items:
        header = item.header
        if header is None:
            yield _Row("unreadable", 1, item.info.size)
            continue
        name = {"program": header.program, "target": header.target}.get(by)
        if name is None:
            name = header.producer.get("jax", "unknown")
        yield _Row(name, 1, item.info.size, header.compile_seconds)


def _sums(rows: Iterable[_Row]) -> list[_Row]:
    """One row for each name, the largest first."""
    sums: dict[str, _Row] = {}
    for row in rows:
        so_far = sums.get(row.name, _Row(row.name))
        total = (so_far.files + row.files, so_far.size + row.size, so_far.compile_seconds + row.compile_seconds)
        sums[row.name] = _Row(row.name, *total)
    return sorted(sums.values(), key=lambda row: (-row.size, row.name))


def _plain(rows: list[_Row]) -> list[dict[str, Any]]:
    whole = sum(row.size for row in rows)
    return [
        {
            "name": row.name,
            "files": row.files,
            "bytes": row.size,
            "compile_seconds": row.compile_seconds,
            "share": row.size / whole if whole else 0.0,
        }
        for row in rows
    ]


def _print(store: LocalStore, tables: dict[str, list[_Row]]) -> None:
    for place, (by, rows) in enumerate(tables.items()):
        if place:
            click.echo()
        _print_table(by, rows)
    if not any(tables.values()):
        click.echo(f"nothing in {store.root}")


def _print_table(by: str, rows: list[_Row]) -> None:
    whole = sum(row.size for row in rows)
    counted = "files" if by == "kind" else "entries"
    columns = [by, counted, "size", "share", *([] if by == "kind" else ["compile"])]
    total = _Row("in all", sum(row.files for row in rows), whole, sum(row.compile_seconds for row in rows))
    cells = [
        [row.name, str(row.files), size(row.size), share(row.size, whole), seconds(row.compile_seconds)][: len(columns)]
        for row in [*rows[:_SHOWN], total]
    ]
    table(columns, cells, numeric=columns[1:])
    if len(rows) > _SHOWN:
        click.echo(f"and {len(rows) - _SHOWN} more, which --json shows")
