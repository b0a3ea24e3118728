"""`rewarm autotune export`."""

from __future__ import annotations

from pathlib import Path

import click

from rewarm.autotune import selecting
from rewarm.autotune.merging import merge
from rewarm.cli.autotune.inputs import chosen_entries, loaded, means, wrong_usage
from rewarm.cli.autotune.options import filter_options, means_options, output_options
from rewarm.cli.autotune.output import Wish, refuse_broken, write
from rewarm.cli.common import directory_option, json_option, print_json


@click.command()
@output_options
@click.option(
    "--place",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only of places whose name begins with this: a build and a device, as `rewarm autotune import` says them.",
)
@means_options
@directory_option
@filter_options
@json_option
@wrong_usage
def command(
    out: str,
    to: str | None,
    keys: tuple[Path, ...],
    lossy: bool,
    force: bool,
    names: tuple[str, ...],
    jax: str | None,
    target: str | None,
    directory: str | None,
    devices: tuple[str, ...],
    builds: tuple[str, ...],
    backends: tuple[str, ...],
    fusions: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the results of the cache directory as a file or folder that XLA reads by itself.

    What several places have for one fusion is merged by the rule of `rewarm autotune merge`. Ends with 1, and writes
    nothing, where something cannot be written as it was asked for.
    """
    wanted = selecting.selection(devices=devices, builds=builds, backends=backends, fusions=fusions)
    wish = Wish(out, to, means(jax, target), keys, lossy, force)
    found = [one for one in loaded((), directory) if not names or _place_of(one.path).startswith(names)]
    broken = refuse_broken(found, wish)
    merged = merge(chosen_entries(found, wanted), build=wish.means.build, device=wish.means.device)
    if not merged.entries:
        raise click.ClickException("the cache directory has no such results; nothing was written")
    written = write(merged.entries, wish, found, broken)
    told = {
        "output": out,
        "format": written.format.value,
        "entries": written.count,
        "places": [_place_of(one.path) for one in found],
        "left_out": [str(finding) for finding in written.left_out],
    }
    if as_json:
        print_json(told)
    else:
        more = f"; {len(written.left_out)} were left out" if written.left_out else ""
        click.echo(f"wrote {written.count} results of {len(found)} places to {out} ({written.format.value}){more}")


def _place_of(directory: Path) -> str:
    """The name of the place whose results lie there."""
    return directory.parent.name
