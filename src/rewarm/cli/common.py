"""What the subcommands share: the directory, `--json`, progress, and how sizes and times are written.

Not promised: that progress shows. It is drawn on standard error, on a terminal only, and is gone at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import click

from rewarm import settings
from rewarm.in_force import Settings
from rewarm.store import EntryInfo, LocalStore
from rewarm.store.inventory import Item, find, look
from rewarm.store.limits import bounds_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

FOUND_BAD = 1

# Rows of a table that is drawn for a terminal; a longer one is printed as in a pipe.
_DRAWN = 500
# A column of words keeps this width, in cells, whatever the terminal.
_FOLDED = 16


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


def made_store(asked: Settings) -> LocalStore:
    """The store that a command fills, made where it is not there, as a program makes it, and with a program's bounds.

    Raises:
      StoreError: it cannot be.
      click.ClickException: it may hold nothing (exit code 1).
    """
    if asked.max_size == 0:
        raise click.ClickException(
            f"max_size is 0 (REWARM_MAX_SIZE), so nothing is stored in {asked.directory}; set it to what may be stored"
        )
    store = LocalStore(asked.directory, shared=asked.shared)
    store.prepare()
    store.bounds = bounds_of(asked, store.total()[0])
    if store.bounds.max_size == 0:  # nobody set that: the disk is full, and says so itself
        store.bounds = store.bounds._replace(max_size=None)
    return store


@contextlib.contextmanager
def tidy_end() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP end the command as Ctrl-C does, so that nothing half-written stays behind.

    The exit code is 128 and the signal's number, as a shell has it. What was ignored (nohup) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: object) -> None:
    del frame
    signal.signal(number, signal.SIG_IGN)  # one more does not strike while things are put in order
    raise SystemExit(128 + number)


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


def progress(items: Iterable[T], what: str, total: int | Callable[[], int | None] | None = None) -> Iterator[T]:
    """The items as they come, with a bar on standard error where that is a terminal, and nothing anywhere else.

    Args:
      items: what is worked through.
      what: a few words for the bar.
      total: how many there are, where that is known; a function, where it is known with the first of them. Without it
        no time left is shown.
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None if callable(total) else total)
        for item in items:
            if callable(total):
                bar.update(task, total=total())
            yield item
            bar.advance(task)


def table(
    columns: Iterable[str], rows: Iterable[Iterable[str]], numeric: Iterable[str] = (), bad: Collection[int] = ()
) -> None:
    """Print a table on standard output, as wide as it needs to be in a pipe. Cells are plain text, of one line.

    Not promised: that it fits a narrow terminal, which folds the lines of one that would lose its words.

    Args:
      columns: their names; a column without one holds free text.
      rows: the cells.
      numeric: the names of columns that are flush right.
      bad: the numbers of the rows, from 0, that a terminal shows in red.
    """
    names, cells, right = list(columns), [list(row) for row in rows], frozenset(numeric)
    if sys.stdout.isatty() and len(cells) <= _DRAWN:
        _draw(names, cells, right, bad)
    else:
        click.echo("\n".join(_aligned(names, cells, right)))


def _aligned(columns: list[str], rows: list[list[str]], right: frozenset[str]) -> Iterator[str]:
    """The lines of a table without colours and folding: drawing one of ten thousand rows takes ten seconds."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        padded = [
            " " * (width - cell_len(cell)) + cell if name in right else cell + " " * (width - cell_len(cell))
            for name, width, cell in zip(columns, widths, row, strict=True)
        ]
        yield "  ".join(padded).rstrip()


def _draw(columns: list[str], rows: list[list[str]], right: frozenset[str], bad: Collection[int]) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    least = 0
    for name, *column in zip(columns, *rows, strict=True):
        width = max(map(cell_len, (name, *column)))
        width = width if name in right else min(width, _FOLDED)
        drawn.add_column(name, justify="right" if name in right else "left", min_width=width, overflow="fold")
        least += width + 2
    for number, row in enumerate(rows):
        drawn.add_row(*(Text(cell) for cell in row), style="red" if number in bad else None)
    console = Console()
    console.width = max(console.width, least)  # else whole columns would go
    console.print(drawn)


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


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things for people; `many` is what more than one are called, by default with an "s"."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def entries(number: int) -> str:
    """A number of entries, for people."""
    return counted(number, "entry", "entries")


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
