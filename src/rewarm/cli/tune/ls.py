"""`rewarm tune ls`."""

from __future__ import annotations

from pathlib import Path

import click

from rewarm.cli.common import counted, directory_option, json_option, print_json, table
from rewarm.cli.tune.chosen import (
    kernel_option,
    loaded,
    of_kernels,
    plain,
    ratio_text,
    state_of,
    when_text,
    winner_text,
)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@kernel_option
@directory_option
@json_option
def command(files: tuple[Path, ...], kernels: tuple[str, ...], directory: str | None, as_json: bool) -> None:
    """List what is tuned, by kernel and arguments: in the cache directory, or in lock files.

    The column "faster" has how many times as fast as the default the winner is, and between which bounds.
    """
    found = of_kernels(loaded(files, directory), kernels)
    if as_json:
        print_json([plain(one) for one in found])
        return
    if not found:
        named = f" under {' or '.join(map(repr, kernels))}" if kernels else ""
        click.echo(f"nothing is tuned there{named}; rewarm.tune does it in a program, and rewarm tune run from a shell")
        return
    rows = [
        [
            one.case.key[:12],
            one.case.kernel,
            one.case.arguments,
            winner_text(one),
            ratio_text(one),
            state_of(one),
            one.about.get("device", "-"),
            when_text(one),
            ", ".join(flag.partition(":")[0] for flag in one.flags),
        ]
        for one in found
    ]
    columns = ("key", "kernel", "arguments", "winner", "faster", "state", "device", "when", "flags")
    table(columns, rows, numeric=("faster",))
    click.echo(counted(len(found), "case"))
