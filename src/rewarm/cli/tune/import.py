# ruff: noqa: N999 - the command is a word of Python's, so the module is imported by its name in a string
"""`rewarm tune import`."""

from __future__ import annotations

from pathlib import Path

import click

from rewarm import settings
from rewarm.cli.common import counted, directory_option, json_option, made_store, print_json
from rewarm.cli.tune.chosen import keeping_of, kernel_option, loaded, made_in, of_kernels


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@kernel_option
@directory_option
@json_option
def command(files: tuple[Path, ...], kernels: tuple[str, ...], directory: str | None, as_json: bool) -> None:
    """Take winners from lock files into the cache directory.

    What was found there later stays the winner; --timings of `rewarm tune export` keeps dates. What is taken counts as
    this user's, and is signed as such when it is sent to a remote.
    """
    found = of_kernels(loaded(files, None), kernels)
    if not found:
        raise click.ClickException("no winner is in there; nothing was taken")
    store = made_store(settings.of_command(directory=directory))
    keeping = keeping_of(store, made_in(store))
    kept = sum(keeping.put(one) for one in found)
    if as_json:
        print_json({"directory": str(store.root), "cases": kept})
    else:
        click.echo(f"{counted(kept, 'case')} taken into {store.root}")
    if kept < len(found):
        raise SystemExit(1)
