"""What the subcommands share: the directory, `--json`, progress, and how sizes and times are written.

Not promised: that progress shows. It is drawn on standard error, on a terminal only, and is gone at the end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import click

from rewarm import settings
from rewarm.store import EntryInfo, LocalStore
from rewarm.store.inventory import Item, find, look

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

FOUND_BAD = 1

# A pipe has no width: lines there are as long as they need to be.
_UNBOUNDED = 10_000


def directory_option(function: F) -> F:
    """`--dir`."""
    # Text, not click's Path: the setting's own check must see what was typed.
    return click.option("--dir", "directory", metavar="PATH", help="The cache directory.")(function)


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def open_store(directory: str | None, *, shared: bool = False) -> LocalStore:
    """The store that a command looks after; `shared` where what it makes there is to be a group's.

    Raises:
      click.ClickException: there is no such directory, or nothing of rewarm is in it (exit code 1).
    """
    root = settings.directory_of_command(directory)
    store = LocalStore(root, shared=shared)
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


def surveyed(store: LocalStore, entries: Iterable[EntryInfo]) -> list[Item]:
    """Entries with their headers, NOT verified, while progress shows."""
    chosen = list(entries)
    return [look(store, info) for info in progress(chosen, "reading headers", len(chosen))]


def progress(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """The items as they come, with a bar on standard error where that is a terminal, and nothing anywhere else.

    Args:
      items: what is worked through.
      what: a few words for the bar.
      total: how many there are, where that is known.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        for item in items:
            yield item
            bar.advance(task)


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], numeric: Iterable[str] = ()) -> None:
    """Print a table on standard output, as wide as it needs to be in a pipe. Cells are plain text.

    Args:
      columns: their names; a column without one holds free text.
      rows: the cells.
      numeric: the names of columns that are flush right.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    right = frozenset(numeric)
    for name in columns:
        drawn.add_column(name, justify="right" if name in right else "left", no_wrap=name in right, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else _UNBOUNDED).print(drawn)


def share(part: float, whole: float) -> str:
    """A part of a whole, for people."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def moment(when: float) -> str:
    """A point in time, for people, in their zone."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    except (ValueError, OverflowError, OSError):  # far beyond what a clock shows
        return "-"


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
