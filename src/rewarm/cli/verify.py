"""`rewarm verify`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from rewarm.cli.common import (
    FOUND_BAD,
    counted,
    directory_option,
    entries,
    json_option,
    open_store,
    print_json,
    progress,
)
from rewarm.cli.layout import orphans
from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError, StoreError
from rewarm.store import LocalStore
from rewarm.store.inventory import Item, verify


class _Found(NamedTuple):
    """What a look at every entry came to."""

    entries: int
    bad: list[Item]
    leftovers: list[Path]


@click.command()
@click.option("--repair", is_flag=True, help="Put bad entries into quarantine and remove what dead writers left.")
@directory_option
@json_option
def command(repair: bool, directory: str | None, as_json: bool) -> None:
    """Check every entry: digest, key, layout, and that each section unpacks. Changes nothing without --repair.

    Exit code 1 when an entry is bad, after --repair when one still is. A bad entry needs no repair by hand: the next
    program that asks for it puts it aside and makes it anew.
    """
    store = open_store(directory)
    found = _look(store)
    done: list[str] = []
    if repair:
        done = [*_put_aside(store, found.bad), *_remove(found.leftovers)]
        still = [item for item in (_check(store, item) for item in found.bad) if item.problem is not None]
    else:
        still = found.bad
    if as_json:
        print_json(_plain(store, found, done, still))
    else:
        _print(found, done, still, repair=repair)
    if still:
        raise SystemExit(FOUND_BAD)


def _look(store: LocalStore) -> _Found:
    infos = list(store.scan())
    items = [verify(store, info) for info in progress(infos, "checking entries", len(infos))]
    misplaced = [Item(info, None, _MISPLACED) for info in store.misplaced()]
    bad = [item for item in items if item.problem is not None]
    return _Found(len(items) + len(misplaced), bad + misplaced, list(orphans(store)))


_MISPLACED = "not a regular file"


def _put_aside(store: LocalStore, bad: list[Item]) -> Iterator[str]:
    for item in bad:
        key, problem = item.info.key, item.problem or ""
        data = None if problem == _MISPLACED else _bytes(store, key)
        if data is None or not _is_sound(data, key):  # a program can have written it anew since
            store.quarantine(key, problem, data)
        done = "put into quarantine" if _check(store, item).problem is None else "cannot be moved"
        yield f"{key}  {done}: {problem}"


def _bytes(store: LocalStore, key: str) -> bytes | None:
    """What lies there now, which quarantine holds against what lies there by then."""
    try:
        return store.get(key, use=False)
    except (BadEntryError, StoreError):
        return None


def _is_sound(data: bytes, key: str) -> bool:
    try:
        entry = open_entry(data, key)
        for section in entry.header.sections:
            entry.section(section.name)
    except BadEntryError:
        return False
    return True


def _check(store: LocalStore, item: Item) -> Item:
    """The same entry once more."""
    path = store.path(item.info.key)
    if not os.path.lexists(path):
        return item._replace(problem=None)
    if not path.is_file() or path.is_symlink():
        return item._replace(problem=_MISPLACED)
    return verify(store, item.info)


def _remove(leftovers: list[Path]) -> Iterator[str]:
    for path in leftovers:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            yield f"{path}  left by a writer that died, cannot be removed: {error.strerror}"
        else:
            yield f"{path}  left by a writer that died, removed"


def _plain(store: LocalStore, found: _Found, done: list[str], still: list[Item]) -> dict[str, object]:
    return {
        "directory": str(store.root),
        "entries": found.entries,
        "bad": [{"key": item.info.key, "problem": item.problem} for item in found.bad],
        "leftovers": [str(path) for path in found.leftovers],
        "repaired": done,
        "still_bad": [item.info.key for item in still],
    }


def _print(found: _Found, done: list[str], still: list[Item], *, repair: bool) -> None:
    for line in done if repair else [f"{item.info.key}  {item.problem}" for item in found.bad]:
        click.echo(line)
    told = [entries(found.entries), f"{len(found.bad)} bad"]
    if found.leftovers:
        told.append(f"{counted(len(found.leftovers), 'temporary file')} of dead writers")
    if repair and found.bad:
        told.append(f"{len(found.bad) - len(still)} put into quarantine")
    click.echo(", ".join(told))
