"""`rewarm gc --remote`."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from rewarm import setting_values, settings
from rewarm.cli.common import ago, counted, print_json, progress, size, table
from rewarm.cli.remote import open_one
from rewarm.sharing.housekeeping import Bounds, Gone, collect, remove_leftovers

_SHOWN = 100


def collect_remote(
    remote: str,
    namespaces: str | None,
    max_age: str | None,
    max_size: str | None,
    *,
    directory: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove what is beyond the bounds, and say what went and why.

    Raises:
      click.UsageError: no bound is given: none of a local directory holds for what others share.
      click.ClickException: the remote cannot list, or nothing may be removed.
    """
    bounds = _bounds(max_age, max_size)
    # By default not what is only read here: that is others', who write there.
    chosen = namespaces if namespaces is not None else settings.of_command(directory=directory).namespace
    opened = open_one(directory, remote, None, chosen, read_option="--namespace")
    if not (opened.tier.writes or dry_run):
        raise click.ClickException(f"{opened.tier.place}: its address says write=no, so nothing is removed")
    stays: list[Gone] = []
    with opened.asked() as tier:
        found = collect(tier, bounds, time.time(), dry_run=dry_run, stays=stays.append)
        gone = list(progress(found, "removing entries"))
        leftovers = 0 if dry_run else remove_leftovers(tier)
    if as_json:
        told = {"remote": tier.place, "bounds": bounds._asdict(), "dry_run": dry_run}
        told["not_removed"] = [one._asdict() for one in stays]
        told["leftovers_removed"] = leftovers
        print_json({**told, "removed": [one._asdict() for one in gone], "bytes": sum(one.size for one in gone)})
    else:
        _print(gone, dry_run=dry_run)
        if leftovers:
            click.echo(f"and {counted(leftovers, 'file')} that a killed writer left unfinished")
    if stays:
        raise click.ClickException(
            f"{counted(len(stays), 'blob')} beyond the bounds could not be removed, "
            f"{size(sum(one.size for one in stays))}: another user's, who alone may"
        )


def _bounds(max_age: str | None, max_size: str | None) -> Bounds:
    age = _value("--max-age", setting_values.as_span, max_age, setting_values.AGE)
    bytes_ = _value("--max-size", setting_values.as_size, max_size, "bytes, with a unit if you like (500MB, 10GiB)")
    if age is None and bytes_ is None:
        raise click.UsageError("a remote has no bounds of its own: say --max-age, --max-size, or both")
    return Bounds(age, None if bytes_ is None else int(bytes_))


def _value(option: str, parse: Callable[[str], float], text: str | None, expected: str) -> float | None:
    if text is None:
        return None
    try:
        value = float(parse(text))
    except (ValueError, OverflowError):
        raise click.UsageError(f"{option}: expected {expected}, found {text!r}") from None
    return None if value < 0 else value


def _print(gone: list[Gone], *, dry_run: bool) -> None:
    if gone:
        rows = [[one.namespace, one.name[:14], size(one.size), ago(one.put), one.reason] for one in gone[:_SHOWN]]
        table(("namespace", "key", "size", "put", "why"), rows, numeric=("size", "put"))
    if len(gone) > _SHOWN:
        click.echo(f"and {len(gone) - _SHOWN} more, which --json shows")
    verb = "would remove" if dry_run else "removed"
    click.echo(f"{verb} {counted(len(gone), 'blob')}, {size(sum(one.size for one in gone))}")
