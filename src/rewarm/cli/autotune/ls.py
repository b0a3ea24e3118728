"""`rewarm autotune ls`."""

from __future__ import annotations

from pathlib import Path

import click

from rewarm import settings
from rewarm.autotune import describing, selecting
from rewarm.autotune.formats import TuningEntry
from rewarm.cli.autotune.inputs import (
    Texts,
    age,
    chosen_entries,
    loaded,
    modified,
    plain,
    tell_broken,
    texts_of,
    wrong_usage,
)
from rewarm.cli.autotune.options import filter_options, paths_argument
from rewarm.cli.common import FOUND_BAD, counted, directory_option, json_option, print_json, table
from rewarm.sharing import tuning

_COLUMNS = ("name", "device", "fusion", "configuration", "backend", "build", "run time", "age")


@click.command()
@paths_argument
@filter_options
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="List the first N alone.")
@directory_option
@json_option
@wrong_usage
def command(
    paths: tuple[Path, ...],
    devices: tuple[str, ...],
    builds: tuple[str, ...],
    backends: tuple[str, ...],
    fusions: tuple[str, ...],
    limit: int | None,
    directory: str | None,
    as_json: bool,
) -> None:
    """List tuning entries of files and folders of XLA's, of lock files, or of the cache directory.

    A filter leaves out what does not say enough: files of a legacy directory say neither device, fusion nor build.
    Ends with 1 where something could not be read.
    """
    wanted = selecting.selection(devices=devices, builds=builds, backends=backends, fusions=fusions)
    found = loaded(paths, directory)
    broken = tell_broken(found)
    entries = chosen_entries(found, wanted)
    listed, texts = entries[:limit], texts_of(found)
    if as_json:
        known: dict[str, float | None] = {}
        print_json([plain(entry, known, texts) for entry in listed])
    else:
        _print(listed, len(entries), sum(len(one.entries) for one in found), texts)
        if not paths and not any(one.entries for one in found):
            _print_waiting(settings.directory_of_command(directory))
    if broken:
        raise SystemExit(FOUND_BAD)


def _print(listed: list[TuningEntry], count: int, total: int, texts: Texts) -> None:
    if listed:
        known: dict[str, float | None] = {}
        table(_COLUMNS, [_row(entry, modified(entry, known), texts) for entry in listed], numeric=("run time", "age"))
    shown = "" if len(listed) == count else f", of which {len(listed)} are shown"
    of_all = "" if count == total else f" of {total}"
    click.echo(f"{count}{of_all} entries{shown}")


def _print_waiting(root: Path) -> None:
    """Where results are that came with others' entries, and that no compile has taken in yet."""
    names = (path.name for path in (root / tuning.FOLDER).glob("*") if tuning.is_place(path.name))
    waiting = {name: count for name in names if (count := len(tuning.known_here(root, name)))}
    for name, count in sorted(waiting.items()):
        click.echo(
            f"{name}: {counted(count, 'entry', 'entries')} of the cache directory with results for it; the next "
            "compile for that device takes them in"
        )


def _row(entry: TuningEntry, when: float | None, texts: Texts) -> tuple[str, ...]:
    return (
        describing.name_of(entry)[:12],
        describing.device_in_words(entry.device, texts.devices),
        describing.fusion_line(entry, texts.fusions),
        describing.config_in_words(entry),
        entry.backend or "none",
        selecting.build_in_words(entry),
        describing.run_time_in_words(entry),
        age(when),
    )
