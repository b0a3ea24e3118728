"""`rewarm ls --remote`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from rewarm.cli.common import ago, entries, print_json, progress, seconds, size, table
from rewarm.cli.remote import open_one
from rewarm.sharing import RemoteTier
from rewarm.sharing.housekeeping import Shown, list_entries, with_header

_ORDERS: dict[str, Callable[[Shown], float]] = {
    "used": lambda shown: -shown.put,
    "age": lambda shown: shown.put,
    "size": lambda shown: -shown.size,
}


def list_remote(
    remote: str,
    namespaces: str | None,
    order: str,
    limit: int | None,
    *,
    directory: str | None,
    headers: bool,
    as_json: bool,
) -> None:
    """List what a remote has; with `headers` each entry that is listed is fetched and checked.

    Raises:
      click.UsageError: an order that a remote does not know.
      click.ClickException: the remote cannot list.
    """
    if order not in _ORDERS:
        raise click.UsageError(f"--sort: a remote knows {', '.join(_ORDERS)}, found {order!r}")
    with open_one(directory, remote, None, namespaces, read_option="--namespace").asked() as tier:
        found = sorted(list_entries(tier), key=_ORDERS[order])
        listed = list(_listed(tier, found[:limit], headers))
    if as_json:
        print_json([_plain(shown) for shown in listed])
        return
    if listed:
        _print(listed, headers)
    click.echo(f"{tier.place}: {entries(len(found))}, {size(sum(shown.size for shown in found))}")


def _listed(tier: RemoteTier, chosen: list[Shown], headers: bool) -> Iterator[Shown]:
    for shown in progress(chosen, "fetching entries", len(chosen)) if headers else chosen:
        yield with_header(tier, shown) if headers else shown


def _plain(shown: Shown) -> dict[str, Any]:
    header = shown.header
    return {
        "namespace": shown.namespace,
        "key": shown.key,
        "bytes": shown.size,
        "put": shown.put,
        "problem": shown.problem,
        "program": header.program if header else None,
        "target": header.target if header else None,
        "compile_seconds": header.compile_seconds if header else None,
    }


def _print(listed: list[Shown], headers: bool) -> None:
    columns = ["namespace", "key", "size", "put", *(["compile", "program", "target"] if headers else [])]
    rows = []
    for shown in listed:
        row = [shown.namespace, shown.key[:12], size(shown.size), ago(shown.put)]
        if headers and shown.header is not None:
            row += [seconds(shown.header.compile_seconds), shown.header.program, shown.header.target]
        elif headers:
            row += ["-", shown.problem or "-", "-"]
        rows.append(row)
    table(columns, rows, numeric=("size", "put", "compile"))
