"""`rewarm tune export`."""

from __future__ import annotations

from pathlib import Path

import click

from rewarm.cli.common import counted, directory_option, json_option, print_json
from rewarm.cli.tune.chosen import keeping_at, kernel_option, of_kernels
from rewarm.tunables import text_file
from rewarm.tunables.merging import is_decided


@click.command()
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The lock file.")
@click.option("--timings", is_flag=True, help="With every timing, the conditions and the dates.")
@click.option("--add", is_flag=True, help="Add to the winners that are in the file; else they are replaced.")
@kernel_option
@directory_option
@json_option
def command(
    output: Path,
    timings: bool,
    add: bool,
    kernels: tuple[str, ...],
    directory: str | None,
    as_json: bool,
) -> None:
    """Write the winners of the cache directory into a text file for version control.

    It is the lock file of `rewarm autotune lock`: what that has of XLA's tuning stays, and so do sections of others. A
    program that has it as autotune_lock (REWARM_AUTOTUNE_LOCK) uses its winners before all others.
    """
    found = of_kernels(keeping_at(directory).all(), kernels)
    if not any(map(is_decided, found)):
        raise click.ClickException("nothing is tuned there; nothing was written")
    count = text_file.dump(output, found, timings=timings, add=add)
    left = sum(not is_decided(one) for one in found)
    if as_json:
        print_json({"path": str(output), "cases": count, "not_decided": left})
        return
    more = f"; {left} are not decided and were left out" if left else ""
    click.echo(f"{output}: {counted(count, 'case')}{more}")
