"""`rewarm quarantine`."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from rewarm import trials
from rewarm.cli.common import (
    ago,
    counted,
    directory_option,
    json_option,
    moment,
    open_store,
    print_json,
    seconds,
    size,
    table,
)
from rewarm.envelope import Header, open_entry, read_header
from rewarm.envelope.format import header_bytes
from rewarm.errors import BadEntryError
from rewarm.small_files import PRIVATE, SHARED
from rewarm.store import LocalStore
from rewarm.store.contract import is_key
from rewarm.store.files import remove
from rewarm.trials import Refused, refused_keys

_KIND_WORDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFLNK: "a link", stat.S_IFSOCK: "a socket"}


class _Aside(NamedTuple):
    """One thing in quarantine: what its name says, and what can be read of it."""

    path: Path
    key: str | None
    when: float | None
    why: str
    size: int
    header: Header | None
    unreadable: str | None


@click.group()
def command() -> None:
    """Look after what was put aside: files that lay under an entry's name and were not that entry.

    The newest are kept, to be looked at; nothing reads them again. Keys whose entries ended a process twice, when they
    were loaded or first run, are neither loaded nor stored for 30 days; they are listed too.
    """


@command.command()
@directory_option
@json_option
def ls(directory: str | None, as_json: bool) -> None:
    """List what is in quarantine, the latest first, and the keys that are refused."""
    store = open_store(directory)
    found = sorted((_look(path) for path in store.quarantined()), key=lambda one: -(one.when or 0.0))
    refused = refused_keys(store.root)
    if as_json:
        print_json({"files": [_plain(one) for one in found], "refused": [one._asdict() for one in refused]})
    else:
        _print(store, found, refused)


def _print(store: LocalStore, found: list[_Aside], refused: list[Refused]) -> None:
    if found:
        rows = [
            [one.path.name, one.header.program if one.header else "-", size(one.size), _ago(one.when), one.why]
            for one in found
        ]
        table(("name", "program", "size", "put aside", "why"), rows, numeric=("size", "put aside"))
        click.echo(f"{len(found)} in quarantine, {size(sum(one.size for one in found))}")
    else:
        click.echo(f"nothing is in quarantine in {store.root}")
    if refused:
        click.echo()
        table(("key", "program", "refused"), [[one.key, one.program, one.reason] for one in refused])
        told = counted(len(refused), "key is", "keys are")
        click.echo(f"{told} refused; rewarm quarantine allow KEY lets one be tried again")


@command.command()
@click.argument("name")
@directory_option
@json_option
def show(name: str, directory: str | None, as_json: bool) -> None:
    """Show one of them: what its header says, as far as it can be read, and what is wrong with it now.

    The start of NAME is enough while it fits one.
    """
    one = _look(_the_one(open_store(directory), name))
    problem = _problem(one)
    if as_json:
        header = one.header.as_dict() if one.header else None
        print_json({**_plain(one), "problem_now": problem, "header": header})
        return
    for label, text in _lines(one):
        click.echo(f"{label:<12} {text}")
    click.echo(f"{'now':<12} {problem or 'every check of the envelope holds: it was put aside for another reason'}")


@command.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of them.")
@directory_option
def drop(names: tuple[str, ...], everything: bool, directory: str | None) -> None:
    """Remove some of them for good."""
    if everything == bool(names):
        raise click.UsageError("say either --all, or what to drop: see rewarm quarantine ls")
    store = open_store(directory)
    paths = store.quarantined() if everything else [_the_one(store, name) for name in names]
    for path in paths:
        with contextlib.suppress(OSError):
            remove(path)
    left = set(store.quarantined()) & set(paths)
    click.echo(f"{len(paths) - len(left)} removed from quarantine")
    if left:
        raise click.ClickException(f"{len(left)} cannot be removed, such as {min(left)}")


@command.command()
@click.argument("keys", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of them.")
@directory_option
def allow(keys: tuple[str, ...], everything: bool, directory: str | None) -> None:
    """Let refused keys be loaded and stored again; the start of a KEY is enough while it fits one."""
    if everything == bool(keys):
        raise click.UsageError("say either --all, or which keys: see rewarm quarantine ls")
    store = open_store(directory)
    chosen = [_refused_key(store, key.lower()) for key in keys]
    modes = SHARED if store.root.stat().st_mode & stat.S_IWGRP else PRIVATE
    for key in chosen if keys else [one.key for one in refused_keys(store.root)]:
        try:
            trials.drop(store.root, key, modes)
        except OSError as error:
            raise click.ClickException(f"{key} is still refused: {error.strerror or error}") from error
        click.echo(f"{key} is no longer refused")


# -- inside --------------------------------------------------------------------------------------------------------


def _the_one(store: LocalStore, name: str) -> Path:
    names = [path for path in store.quarantined() if path.name.startswith(name)]
    exact = [path for path in names if path.name == name]
    if len(exact or names) == 1:
        return (exact or names)[0]
    if not names:
        raise click.ClickException(
            f"nothing in {store.root / 'quarantine'} has a name that starts with {name!r}; see rewarm quarantine ls"
        )
    raise click.ClickException(f"{len(names)} names start with {name!r}, such as {names[0].name}; add letters")


def _refused_key(store: LocalStore, prefix: str) -> str:
    found = [one.key for one in refused_keys(store.root) if one.key.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    what = "none is" if not found else f"{len(found)} are"
    raise click.ClickException(f"of the keys that start with {prefix!r} {what} refused; see rewarm quarantine ls")


def _look(path: Path) -> _Aside:
    parts = path.name.split(".", 2)
    named = len(parts) == 3 and is_key(parts[0]) and parts[1].isdecimal()
    header, unreadable, length = None, None, 0
    try:
        status = path.lstat()
        length = status.st_size
        if stat.S_ISREG(status.st_mode):
            header = _header(path)
        else:
            unreadable = f"{_KIND_WORDS.get(stat.S_IFMT(status.st_mode), 'something else')}, not a file"
    except BadEntryError as error:
        unreadable = error.reason
    except OSError as error:
        unreadable = error.strerror or str(error)
    return _Aside(
        path=path,
        key=parts[0] if named else None,
        when=int(parts[1]) / 1e9 if named else None,
        why=parts[2].replace("-", " ") if named else "-",
        size=length,
        header=header,
        unreadable=unreadable,
    )


def _header(path: Path) -> Header:
    """What the first bytes say.

    Raises:
      BadEntryError, OSError: nothing that can be read.
    """
    with path.open("rb") as file:
        start = file.read(header_bytes())
        header = read_header(start) or read_header(start + file.read(header_bytes(start) - len(start)))
    if header is None:
        raise BadEntryError("the header is longer than the file")
    return header


def _problem(one: _Aside) -> str | None:
    """What is wrong with it now, by the checks of a hit."""
    if one.unreadable is not None:
        return one.unreadable
    try:
        entry = open_entry(one.path.read_bytes(), one.key or (one.header.key if one.header else ""))
        for section in entry.header.sections:
            entry.section(section.name)
    except BadEntryError as error:
        return error.reason
    except OSError as error:
        return error.strerror or str(error)
    return None


def _ago(when: float | None) -> str:
    return ago(when) if when is not None else "-"


def _plain(one: _Aside) -> dict[str, Any]:
    return {
        "name": one.path.name,
        "path": str(one.path),
        "key": one.key,
        "when": one.when,
        "why": one.why,
        "bytes": one.size,
        "program": one.header.program if one.header else None,
        "unreadable": one.unreadable,
    }


def _lines(one: _Aside) -> Iterator[tuple[str, str]]:
    yield "file", f"{one.path} ({size(one.size)})"
    yield "key", one.key or "-"
    yield "put aside", "-" if one.when is None else f"{moment(one.when)}, {ago(one.when)}"
    yield "why", one.why
    if one.header is None:
        return
    header = one.header
    if header.key != one.key:
        yield "says key", header.key
    yield "program", header.program
    yield "target", header.target
    yield "compiled in", seconds(header.compile_seconds)
    yield "made", f"{moment(header.created)} by {', '.join(f'{k} {v}' for k, v in sorted(header.producer.items()))}"
    for section in header.sections:
        yield "section", f"{section.name}: {size(section.length)} {section.codec}, {size(section.raw_length)} unpacked"
