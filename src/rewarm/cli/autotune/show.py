"""`rewarm autotune show`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from rewarm.autotune import describing, selecting
from rewarm.autotune.formats import Family, TuningEntry, TuningFormatError, chosen, fusion_path, validate
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
from rewarm.cli.common import directory_option, json_option, print_json


@click.command()
@click.argument("name")
@paths_argument
@filter_options
@directory_option
@json_option
@wrong_usage
def command(
    name: str,
    paths: tuple[Path, ...],
    devices: tuple[str, ...],
    builds: tuple[str, ...],
    backends: tuple[str, ...],
    fusions: tuple[str, ...],
    directory: str | None,
    as_json: bool,
) -> None:
    """Show the entry whose name begins with NAME (see `rewarm autotune ls`), or whose HLO text has NAME in it.

    The same result from several files is shown once; where several results fit, filters or more letters are needed.
    """
    wanted = selecting.selection(devices=devices, builds=builds, backends=backends, fusions=fusions)
    found = loaded(paths, directory)
    tell_broken(found)
    texts = texts_of(found)
    named = selecting.selection(fusions=(name,))
    fitting = list(dict.fromkeys(named.of(chosen_entries(found, wanted), texts.fusions)))
    if len(fitting) != 1:
        raise click.ClickException(_not_one(name, fitting))
    known: dict[str, float | None] = {}
    if as_json:
        print_json({**plain(fitting[0], known, texts), "findings": [str(one) for one in validate(fitting)]})
    else:
        _print(fitting[0], modified(fitting[0], known), texts)


def _not_one(name: str, fitting: list[TuningEntry]) -> str:
    if not fitting:
        return f"no entry has a name that begins with {name!r}, or that in its HLO text; see rewarm autotune ls"
    some = ", ".join(f"{describing.name_of(entry)[: len(name) + 8]} ({_short(entry)})" for entry in fitting[:5])
    return f"{len(fitting)} entries fit {name!r}: {some}; add letters, or --device, --build, --backend"


def _short(entry: TuningEntry) -> str:
    words = (describing.device_in_words(entry.device), selecting.build_in_words(entry), entry.backend)
    return ", ".join(word for word in words if word)


def _print(entry: TuningEntry, when: float | None, texts: Texts) -> None:
    for label, text in _lines(entry, when, texts):
        click.echo(f"{label:<14} {text}")
    hlo = entry.fusion if entry.family is Family.LEGACY else texts.fusions.get(entry.fusion or "")
    if hlo:
        click.echo("HLO")
        for line in hlo.splitlines():
            click.echo(f"  {line}")
    kind, message = chosen(entry)
    click.echo(f"configuration  {kind or 'none'}: {describing.config_in_words(entry)}")
    for path, value in (describing.fields_of(message) if message is not None else {}).items():
        click.echo(f"  {path:<28} {value}")
    findings = validate((entry,))
    click.echo("findings" if findings else "findings       none")
    for finding in findings:
        click.echo(f"  {finding}")


def _lines(entry: TuningEntry, when: float | None, texts: Texts) -> list[tuple[str, Any]]:
    told = entry.versions
    rows = [
        ("name", describing.name_of(entry)),
        ("family", entry.family.value),
        ("device", describing.device_in_words(entry.device, texts.devices)),
        ("", entry.device or ""),
        ("fusion", entry.fusion if entry.family is Family.NEW else ""),
        ("backend", entry.backend or "none"),
        ("build", selecting.build_in_words(entry)),
        ("entry version", told.entry or ""),
        ("codegen", told.codegen),
        ("options", told.codegen_options),
        ("of backend", told.backend),
        ("explicit", told.explicit),
        ("run time", describing.run_time_in_words(entry)),
        ("XLA's file", _file(entry)),
        ("from", f"{entry.source.path}, entry {entry.source.index}{_note(entry)}"),
        ("written", "" if when is None else f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(when))}, {age(when)}"),
    ]
    return [(label, text) for label, text in rows if text]


def _note(entry: TuningEntry) -> str:
    return f", {entry.source.note}" if entry.source.note else ""


def _file(entry: TuningEntry) -> str:
    try:
        return fusion_path(entry)
    except TuningFormatError as wrong:
        return f"none: {wrong.finding.expected}"
