"""`rewarm autotune diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rewarm.autotune import describing, selecting
from rewarm.autotune.differences import Change, Difference, compare
from rewarm.autotune.formats import TuningEntry
from rewarm.cli.autotune.inputs import Texts, chosen_entries, loaded, plain, tell_broken, texts_of, wrong_usage
from rewarm.cli.autotune.options import filter_options
from rewarm.cli.common import FOUND_BAD, json_option, print_json

_A_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("before", type=_A_PATH, metavar="A")
@click.argument("after", type=_A_PATH, metavar="B")
@filter_options
@click.option("--exit-code", is_flag=True, help="End with 1 if there is a difference.")
@json_option
@wrong_usage
def command(
    before: Path,
    after: Path,
    devices: tuple[str, ...],
    builds: tuple[str, ...],
    backends: tuple[str, ...],
    fusions: tuple[str, ...],
    exit_code: bool,
    as_json: bool,
) -> None:
    """Say how the entries of B differ from those of A: added, removed, and changed, with what changed.

    Each is a file or folder of XLA's, a lock file, or a cache directory. Ends with 1 where something could not be read.
    """
    wanted = selecting.selection(devices=devices, builds=builds, backends=backends, fusions=fusions)
    old, new = loaded([before], None), loaded([after], None)
    broken = tell_broken([*old, *new])
    found = compare(chosen_entries(old, wanted), chosen_entries(new, wanted))
    texts = texts_of([*old, *new])
    if as_json:
        print_json(_plain(found, texts))
    else:
        _print(found, texts)
    if broken or (exit_code and found.differs):
        raise SystemExit(FOUND_BAD)


def _plain(found: Difference, texts: Texts) -> dict[str, Any]:
    known: dict[str, float | None] = {}
    return {
        "added": [plain(entry, known, texts) for entry in found.added],
        "removed": [plain(entry, known, texts) for entry in found.removed],
        "changed": [
            {"before": plain(one.before, known, texts), "after": plain(one.after, known, texts), "what": list(one.what)}
            for one in found.changed
        ],
        "same": found.same,
    }


def _print(found: Difference, texts: Texts) -> None:
    for sign, entries in (("+", found.added), ("-", found.removed)):
        for entry in entries:
            click.echo(
                f"{sign} {_words(entry, texts)}: {entry.backend or 'no backend'} {describing.config_in_words(entry)}"
            )
    for change in found.changed:
        _print_change(change, texts)
    added, removed, changed = len(found.added), len(found.removed), len(found.changed)
    click.echo(f"{added} added, {removed} removed, {changed} changed, {found.same} the same")


def _print_change(change: Change, texts: Texts) -> None:
    click.echo(f"~ {_words(change.after, texts)}")
    for line in change.what:
        click.echo(f"    {line}")


def _words(entry: TuningEntry, texts: Texts) -> str:
    name, line = describing.name_of(entry)[:12], describing.fusion_line(entry, texts.fusions)
    said = name if line.startswith(name) else f"{name} {line}"
    return f"{said} on {describing.device_in_words(entry.device, texts.devices)}"
