"""`rewarm gc`."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from rewarm import setting_values, settings
from rewarm.autotune import locating
from rewarm.cli.common import (
    ago,
    directory_option,
    entries,
    json_option,
    open_store,
    print_json,
    progress,
    seconds,
    size,
    table,
)
from rewarm.cli.layout import of_place, orphans
from rewarm.policy import Bounds
from rewarm.sharing import tuned, tuning
from rewarm.store import LocalStore
from rewarm.store.collection import Removed
from rewarm.store.limits import bounds_of

_SHOWN = 100


@click.command()
@click.option("--max-size", metavar="SIZE", help="Bytes of all entries, such as 500MB or 10GiB; none for no bound.")
@click.option("--max-age", metavar="AGE", help="Since an entry was last used, such as 12h or 30d; none for no bound.")
@click.option("--max-entries", metavar="N", help="Number of entries; none for no bound.")
@click.option("--remote", metavar="URL", help="Remove from this remote, the oldest first, and not from the directory.")
@click.option(
    "--namespace",
    "namespaces",
    metavar="NAMES",
    help="Of a remote, divided by commas. Default: REWARM_NAMESPACE, or main.",
)
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@directory_option
@json_option
def command(
    max_size: str | None,
    max_age: str | None,
    max_entries: str | None,
    remote: str | None,
    namespaces: str | None,
    dry_run: bool,
    directory: str | None,
    as_json: bool,
) -> None:
    """Remove entries until the bounds hold, the least worth first, and say what went and why.

    A bound that is not given is the one that a program would have here: REWARM_MAX_SIZE, REWARM_MAX_AGE,
    REWARM_MAX_ENTRIES, JAX_COMPILATION_CACHE_MAX_SIZE, or the default. With a bound on age, places of tuning results go
    too that no program used for so long. Worth is the compile time that an entry spares,
    for its size, and how often it was used.

    Of a remote nobody knows how often an entry was used: there the bounds are those that are given (--max-age,
    --max-size), for each namespace by itself, and the oldest go first. --max-size counts entries, packs and plans
    there. What others write, and programs here only read (REWARM_READ_NAMESPACES), stays unless --namespace names it.
    """
    if remote is not None:
        if max_entries is not None:
            raise click.UsageError("--max-entries is for a directory; a remote takes --max-age and --max-size")
        from rewarm.cli.remote_gc import collect_remote

        collect_remote(remote, namespaces, max_age, max_size, directory=directory, dry_run=dry_run, as_json=as_json)
        return
    all_ages = _is_zero(max_age)  # which, as a setting, would be a mistake
    said_age = None if all_ages else max_age
    asked = settings.of_command(directory=directory, max_size=max_size, max_age=said_age, max_entries=max_entries)
    store = open_store(directory, shared=asked.shared)
    bounds = bounds_of(asked, held=sum(info.size for info in store.scan()))
    bounds = bounds._replace(max_age=0.0) if all_ages else bounds
    removed = list(progress(store.collect(bounds, dry_run=dry_run), "removing entries"))
    unused = [] if bounds.max_age is None else [place.name for place in locating.unused(store.root, bounds.max_age)]
    if not dry_run:
        for path in [*orphans(store), *(path for name in unused for path in of_place(store, name))]:
            with contextlib.suppress(OSError):  # another's, in a shared directory
                path.unlink()
        _remove_folders(store, unused)
        tuned.forget_gone(store.root, lambda key: store.path(key).exists())
    stay = [] if dry_run else list(store.collect(bounds, dry_run=True))
    if as_json:
        more = {"not_removed": [one.key for one in stay], "unused_places": unused}
        print_json({**_plain(store, bounds, removed, dry_run), **more})
    else:
        _print(bounds, removed, dry_run)
        if unused:
            click.echo(f"places of tuning results that nobody used: {', '.join(unused)}")
    if stay:
        raise click.ClickException(
            f"{entries(len(stay))} beyond the bounds could not be removed, {size(sum(one.size for one in stay))}: "
            f"{store.root} is read-only, or that is another user's, or somebody stores more at this moment"
        )


def _is_zero(age: str | None) -> bool:
    try:
        return age is not None and setting_values.as_span(age) == 0.0
    except (ValueError, OverflowError):  # which the setting says better
        return False


def _remove_folders(store: LocalStore, names: list[str]) -> None:
    """Remove the folders of places, as far as they are empty."""
    for name in names:
        root = store.root / tuning.FOLDER / name
        for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()
        with contextlib.suppress(OSError):
            root.rmdir()


def _plain(store: LocalStore, bounds: Bounds, removed: list[Removed], dry_run: bool) -> dict[str, Any]:
    return {
        "directory": str(store.root),
        "bounds": bounds._asdict(),
        "dry_run": dry_run,
        "removed": [one._asdict() for one in removed],
        "entries": len(removed),
        "bytes": sum(one.size for one in removed),
        "compile_seconds": sum(one.seconds for one in removed),
    }


def _print(bounds: Bounds, removed: list[Removed], dry_run: bool) -> None:
    if removed:
        rows = [[one.key[:12], size(one.size), seconds(one.seconds), ago(one.used), one.reason] for one in removed]
        table(("key", "size", "compile", "used", "why"), rows[:_SHOWN], numeric=("size", "compile", "used"))
    if len(removed) > _SHOWN:
        click.echo(f"and {len(removed) - _SHOWN} more, which --json shows")
    total, spent = sum(one.size for one in removed), sum(one.seconds for one in removed)
    verb = "would remove" if dry_run else "removed"
    click.echo(f"{verb} {entries(len(removed))}, {size(total)}, which stood for {seconds(spent)} of compiling")
    click.echo(f"bounds: {_told(bounds)}")


def _told(bounds: Bounds) -> str:
    said = [
        f"{size(bounds.max_size)}" if bounds.max_size is not None else "any size",
        entries(bounds.max_entries) if bounds.max_entries is not None else "any number",
        f"used in the last {bounds.max_age / 86400:g} days" if bounds.max_age is not None else "any age",
    ]
    return ", ".join(said)
