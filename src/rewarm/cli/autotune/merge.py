"""`rewarm autotune merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rewarm.autotune import describing, selecting
from rewarm.autotune.formats import TuningEntry
from rewarm.autotune.merging import Conflict, Merged, merge
from rewarm.cli.autotune.inputs import chosen_entries, loaded, means, plain, texts_of, wrong_usage
from rewarm.cli.autotune.options import filter_options, means_options, output_options
from rewarm.cli.autotune.output import Wish, Written, refuse_broken, write
from rewarm.cli.common import json_option, print_json


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@output_options
@means_options
@filter_options
@json_option
@wrong_usage
def command(
    paths: tuple[Path, ...],
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
    """Put the entries of several files, folders, lock files and cache directories into one file or folder.

    Where two differ about one fusion, a sound one stays before an unsound one, with --jax and --target what that XLA
    finds strictly before what it finds loosely, a measured one before one without a run time, the faster before the
    slower; else the choice is arbitrary and the same everywhere. Each is told: what stayed, from where, what was lost
    and why. Without --jax and --target results of several builds stay beside each other, and those of which one XLA may
    find more than one are told.
    """
    wanted = selecting.selection(devices=devices, builds=builds, backends=backends, fusions=fusions)
    wish = Wish(out, to, means(jax, target), keys, lossy, force)
    found = loaded(paths, None)
    broken = refuse_broken(found, wish)
    merged = merge(chosen_entries(found, wanted), build=wish.means.build, device=wish.means.device)
    written = write(merged.entries, wish, found, broken)
    if as_json:
        texts, known = texts_of(found), dict[str, float | None]()
        conflicts = [_plain(one, lambda entry: plain(entry, known, texts)) for one in merged.conflicts]
        print_json({**_summary(wish, merged, written), "conflicts": conflicts})
    else:
        _print(wish, merged, written)


def _summary(wish: Wish, merged: Merged, written: Written) -> dict[str, Any]:
    return {
        "output": wish.out,
        "format": written.format.value,
        "entries": written.count,
        "given": merged.given,
        "repeated": merged.repeated,
        "ambiguous": _ambiguous(merged, written),
        "left_out": [str(finding) for finding in written.left_out],
    }


def _plain(conflict: Conflict, told: Any) -> dict[str, Any]:
    lost = [{**told(one.entry), "why": one.why} for one in conflict.lost]
    return {"kept": told(conflict.kept), "lost": lost}


def _print(wish: Wish, merged: Merged, written: Written) -> None:
    for conflict in merged.conflicts:
        kept = conflict.kept
        click.echo(f"{describing.name_of(kept)[:12]} on {describing.device_in_words(kept.device)}")
        click.echo(f"    kept {_words(kept)}")
        for entry, why in conflict.lost:
            click.echo(f"    lost {_words(entry)}: {why}")
    click.echo(
        f"wrote {written.count} entries to {wish.out} ({written.format.value}): {merged.given} were given, "
        f"{merged.repeated} of them said nothing new, {len(merged.conflicts)} fusions had results that differ"
    )
    if count := _ambiguous(merged, written):
        click.echo(
            f"{count} fusions have several entries, of several builds or libraries: XLA takes the first that matches, "
            "also loosely; with --jax and --target the one for that XLA stays alone"
        )


def _ambiguous(merged: Merged, written: Written) -> int:
    """A folder has room for one result of each fusion."""
    return 0 if written.format.is_directory else merged.ambiguous


def _words(entry: TuningEntry) -> str:
    config = describing.config_in_words(entry)
    return f"{entry.backend or 'no backend'} {config} ({entry.source.path}, entry {entry.source.index})"
