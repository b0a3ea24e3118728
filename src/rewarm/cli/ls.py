"""`rewarm ls`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from rewarm.cli.common import (
    ago,
    directory_option,
    entries,
    json_option,
    open_store,
    print_json,
    seconds,
    size,
    surveyed,
    table,
)
from rewarm.policy import Usage
from rewarm.store import EntryInfo, LocalStore
from rewarm.store.inventory import Item

# Orders that need no header; of these only the entries that are listed are opened.
_BY_FILE: dict[str, Callable[[EntryInfo], float]] = {"used": lambda info: info.used, "size": lambda info: info.size}


@click.command()
@click.option(
    "--sort",
    "order",
    type=click.Choice(["used", "worth", "size", "age", "compile"]),
    default="used",
    help="used: the latest first (default). worth: what eviction would take last, first. size: the largest first. "
    "age: the oldest first. compile: the slowest to compile first.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="List the first N alone.")
@click.option("--program", metavar="NAME", help="Only programs whose name contains this.")
@click.option("--remote", metavar="URL", help="List what this remote has, and not the directory.")
@click.option("--namespace", "namespaces", metavar="NAMES", help="Of a remote; divided by commas.")
@click.option("--headers", is_flag=True, help="Of a remote: fetch each entry, check it, and name its program.")
@directory_option
@json_option
def command(
    order: str,
    limit: int | None,
    program: str | None,
    remote: str | None,
    namespaces: str | None,
    headers: bool,
    directory: str | None,
    as_json: bool,
) -> None:
    """List the entries, the most recently used first. Headers are read, not verified (see `rewarm verify`).

    Of a remote, the latest put first; a header there is verified, and shown where this user would accept the entry.
    """
    if remote is not None:
        if program is not None:
            raise click.UsageError("--program is for a directory; a remote knows keys alone, see --headers")
        from rewarm.cli.remote_ls import list_remote

        list_remote(remote, namespaces, order, limit, directory=directory, headers=headers, as_json=as_json)
        return
    store = open_store(directory)
    usages = store.usages() if order == "worth" else {}
    found, count, total = _chosen(store, order, limit, program, usages)
    if as_json:
        print_json([_plain(item, usages.get(item.info.key)) for item in found])
    elif not count:
        click.echo(f"no entries in {store.root}" if program is None else f"no program's name contains {program!r}")
    else:
        _print_table(found, usages)
        _print_sum(found, count, total)


def _chosen(
    store: LocalStore, order: str, limit: int | None, program: str | None, usages: Mapping[str, Usage]
) -> tuple[list[Item], int, int]:
    """What is listed, in its order, and how many entries of how many bytes there would be without a limit."""
    infos = list(store.scan())
    by_file = {"worth": lambda info: _priority(usages, info), **_BY_FILE}.get(order)
    if by_file is not None:
        infos.sort(key=by_file, reverse=True)
    if by_file is not None and program is None:
        return surveyed(store, infos[:limit]), len(infos), sum(info.size for info in infos)
    items = [item for item in surveyed(store, infos) if program is None or _is_named(item, program)]
    if order == "age":
        items.sort(key=lambda item: item.header.created if item.header else float("inf"))
    elif order == "compile":
        items.sort(key=lambda item: -item.header.compile_seconds if item.header else 0.0)
    return items[:limit], len(items), sum(item.info.size for item in items)


def _priority(usages: Mapping[str, Usage], info: EntryInfo) -> float:
    return usages[info.key].priority if info.key in usages else 0.0


def _is_named(item: Item, program: str) -> bool:
    return item.header is not None and program in item.header.program


def _plain(item: Item, usage: Usage | None) -> dict[str, Any]:
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
        **({"uses": usage.uses, "priority": usage.priority} if usage is not None else {}),
    }


def _print_table(items: list[Item], usages: Mapping[str, Usage]) -> None:
    numbers = ("size", "compile", "made", "used", *(["worth"] if usages else []))
    rows = [
        [
            item.info.key[:12],
            item.header.program if item.header else item.problem or "gone",
            item.header.target if item.header else "-",
            size(item.info.size),
            seconds(item.header.compile_seconds) if item.header else "-",
            ago(item.header.created) if item.header else "-",
            ago(item.info.used),
            *([f"{_priority(usages, item.info):.3g}"] if usages else []),
        ]
        for item in items
    ]
    bad = {number for number, item in enumerate(items) if item.header is None}
    table(("key", "program", "target", *numbers), rows, numeric=numbers, bad=bad)


def _print_sum(items: list[Item], count: int, total: int) -> None:
    spent = sum(item.header.compile_seconds for item in items if item.header)
    if len(items) < count:
        click.echo(f"the first {len(items)} of {count} entries, which have {size(total)}")
    else:
        click.echo(f"{entries(count)}, {size(total)}, {seconds(spent)} of compiling")
