"""What the subcommands share: the directory, `--json`, and how sizes and times are written."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rewarm import settings
from rewarm.store import EntryInfo, LocalStore
from rewarm.store.inventory import find

F = TypeVar("F", bound=Callable[..., Any])

FOUND_BAD = 1


def directory_option(function: F) -> F:
    """`--dir`."""
    # Text, not click's Path: the setting's own check must see what was typed.
    return click.option("--dir", "directory", metavar="PATH", help="The cache directory.")(function)


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def open_store(directory: str | None) -> LocalStore:
    """The store that a command looks after.

    Raises:
      click.ClickException: there is no such directory, or nothing of rewarm is in it (exit code 1).
    """
    root = settings.directory_of_command(directory)
    store = LocalStore(root)
    if not os.path.isdir(root):  # noqa: PTH112 - unlike Path.is_dir it never raises
        what = "is not a directory" if os.path.lexists(root) else "does not exist"
        raise click.ClickException(
            f"the cache directory {root} {what}: nothing was cached there; name another with --dir or REWARM_DIR"
        )
    if not store.is_ours() and next(store.scan(), None) is None:
        raise click.ClickException(
            f"{root} is no cache directory: it has no CACHEDIR.TAG of rewarm and no entry; name another with --dir"
        )
    return store


def the_one(store: LocalStore, prefix: str) -> EntryInfo:
    """The entry whose key starts with `prefix`.

    Raises:
      click.ClickException: there is none, or more than one (exit code 1).
    """
    found = find(store, prefix)
    if len(found) == 1:
        return found[0]
    if not found:
        raise click.ClickException(f"no entry in {store.root} has a key that starts with {prefix!r}; see rewarm ls")
    some = ", ".join(info.key[: len(prefix) + 6] for info in found[:5])
    raise click.ClickException(f"{len(found)} entries have a key that starts with {prefix!r}: {some}; add digits")


def print_json(value: Any) -> None:
    """`value` as JSON on standard output."""
    click.echo(json.dumps(value, indent=2, sort_keys=True))


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def seconds(value: float | None) -> str:
    """Seconds for people."""
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.1f} ms"


def ago(when: float) -> str:
    """How long ago, for people."""
    passed = max(0.0, time.time() - when)
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if passed < limit:
            return f"{passed / unit:.0f} {name} ago"
    return f"{passed / 86400:.0f} days ago"
