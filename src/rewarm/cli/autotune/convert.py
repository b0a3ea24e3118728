"""`rewarm autotune convert`."""

from __future__ import annotations

from pathlib import Path

import click

from rewarm.autotune import selecting
from rewarm.cli.autotune.inputs import chosen_entries, loaded, means, wrong_usage
from rewarm.cli.autotune.options import filter_options, means_options, output_options
from rewarm.cli.autotune.output import Wish, refuse_broken, write
from rewarm.cli.common import json_option, print_json


@click.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="PATH")
@output_options
@means_options
@filter_options
@json_option
@wrong_usage
def command(
    path: Path,
    out: str,
    to: str | None,
    keys: tuple[Path, ...],
    lossy: bool,
    force: bool,
    jax: str | None,
    target: str | None,
    devices: tuple[str, ...],
    builds: tuple[str, ...],
    backends: tuple[str, ...],
    fusions: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the entries of a file, folder, lock file or cache directory in another of XLA's formats.

    Within a family (legacy, new) nothing is lost unasked, but text has no room for unknown fields, a folder none for
    what stands beside the entries of a file, a legacy folder needs --jax for entries of version 0, and one
    that is read needs --keys, since its files do not say what they are for. Between the families --jax and --target
    say what the texts and fingerprints stand for, and not all fusions can be converted. Ends with 1, and writes
    nothing, where something cannot be.
    """
    wanted = selecting.selection(devices=devices, builds=builds, backends=backends, fusions=fusions)
    wish = Wish(out, to, means(jax, target), keys, lossy, force)
    found = loaded([path], None)
    broken = refuse_broken(found, wish)
    written = write(chosen_entries(found, wanted), wish, found, broken)
    left_out = [str(finding) for finding in written.left_out]
    if as_json:
        told = {"output": out, "format": written.format.value, "entries": written.count, "left_out": left_out}
        print_json(told)
    else:
        more = f"; {len(left_out)} were left out" if left_out else ""
        click.echo(f"wrote {written.count} entries to {out} ({written.format.value}){more}")
