"""`rewarm tune prune`."""

from __future__ import annotations

import time
from collections.abc import Iterable

import click

from rewarm import setting_values
from rewarm.cli.common import counted, directory_option, json_option, print_json, table
from rewarm.cli.tune.chosen import keeping_at, kernel_option, of_kernels, when_text
from rewarm.tunables.merging import is_decided
from rewarm.tunables.records import Record
from rewarm.tunables.selecting import changes


@click.command()
@click.option("--older-than", "age", metavar="AGE", help="Also what was tuned longer ago than this, such as 90d.")
@click.option("--all", "everything", is_flag=True, help="All records that --kernel names.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@kernel_option
@directory_option
@json_option
def command(
    age: str | None,
    everything: bool,
    dry_run: bool,
    kernels: tuple[str, ...],
    directory: str | None,
    as_json: bool,
) -> None:
    """Remove records that newer ones have replaced: of the same kernel, arguments and kind of device, tuned later with
    another content of the kernel, compiler or libraries. Each goes with the reason.

    Records of other devices stay: other machines may share the directory. So do those of closures and lambdas whose
    content differs, since several of them have one name; --older-than removes these.
    """
    if everything and not kernels:
        raise click.UsageError("--all removes what --kernel names; name a kernel")
    oldest = None if age is None else time.time() - _span(age)
    keeping = keeping_at(directory)
    found = keeping.all()
    gone = []
    for one in of_kernels(found, kernels):
        why = "asked for" if everything else _why(one, found, oldest)
        if why:
            gone.append((one, why))
    if not dry_run:
        for one, _ in gone:
            keeping.drop(one.case)
    if as_json:
        told = [
            {"key": one.case.key, "kernel": one.case.kernel, "arguments": one.case.arguments, "why": why}
            for one, why in gone
        ]
        print_json({"removed": told, "dry_run": dry_run})
        return
    if gone:
        columns = ("key", "kernel", "arguments", "when", "why")
        table(
            columns,
            [[one.case.key[:12], one.case.kernel, one.case.arguments, when_text(one), why] for one, why in gone],
        )
    click.echo(f"{counted(len(gone), 'case')} {'would go' if dry_run else 'removed'}, of {len(found)}")


def _span(age: str) -> float:
    try:
        found = setting_values.as_span(age)
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise click.UsageError(f"--older-than: expected an age such as 12h or 90d, found {age!r}")
    return found


def _is_other_function(one: Record, other: Record) -> bool:
    """Whether two records may be of two functions that live: closures and lambdas share their names."""
    has_many = "<locals>" in one.case.kernel or "<lambda>" in one.case.kernel
    return has_many and one.case.content != other.case.content


def _why(record: Record, others: Iterable[Record], oldest: float | None) -> str:
    case = record.case
    newer = [
        one
        for one in others
        if is_decided(one)
        and (one.case.kernel, one.case.arguments, one.case.target) == (case.kernel, case.arguments, case.target)
        and one.case != case
        and one.when > record.when
        and not _is_other_function(one, record)
    ]
    if newer:
        latest = max(newer, key=lambda one: (one.when, one.case.key))
        return f"tuned again since: {' and '.join(changes(latest.case, record, latest.about))}"
    if oldest is not None and record.when < oldest:
        return "older than asked for"
    return ""
