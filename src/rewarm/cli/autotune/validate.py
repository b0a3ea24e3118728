"""`rewarm autotune validate`."""

from __future__ import annotations

from pathlib import Path

import click

from rewarm.autotune.formats import Finding, Format, Severity, validate
from rewarm.autotune.sources import Loaded
from rewarm.cli.autotune.inputs import Means, loaded, means, wrong_usage
from rewarm.cli.autotune.options import means_options, paths_argument
from rewarm.cli.common import FOUND_BAD, directory_option, json_option, print_json

_NOTHING = "no entries: there is nothing to check, which is no success"


@click.command()
@paths_argument
@means_options
@click.option(
    "--as",
    "form",
    type=click.Choice([one.value for one in Format]),
    metavar="FORMAT",
    help=f"What the files are meant to be: {', '.join(one.value for one in Format)}. By default what they are.",
)
@click.option("--strict", is_flag=True, help="End with 1 for warnings, too: entries that would serve nothing here.")
@directory_option
@json_option
@wrong_usage
def command(
    paths: tuple[Path, ...],
    jax: str | None,
    target: str | None,
    form: str | None,
    strict: bool,
    directory: str | None,
    as_json: bool,
) -> None:
    """Say what is wrong with files, before XLA sees them: one line for each finding.

    An error is what XLA refuses, passes over in silence, fails a compile for, or compiles into something that is not
    meant. What depends on the build or the GPU is only looked at with --jax and --target. Ends with 1 if there is an
    error, or nothing to look at.
    """
    asked = means(jax, target)
    if form is not None and not paths:
        raise click.UsageError("--as is for files and folders that are named")
    found = loaded(paths, directory) if form is None else _read_as(paths, Format(form))
    findings = [finding for one in found for finding in _findings(one, asked)]
    count = sum(len(one.entries) for one in found)
    bad = any(one.severity is Severity.ERROR or (strict and one.severity is Severity.WARNING) for one in findings)
    if as_json:
        print_json({"entries": count, "sound": not bad, "findings": [_plain(one) for one in findings]})
    else:
        for finding in findings:
            click.echo(str(finding))
        click.echo(f"{count} entries, {_counted(findings)}" if count or findings else _NOTHING)
    if bad or not count:
        raise SystemExit(FOUND_BAD)


def _read_as(paths: tuple[Path, ...], form: Format) -> list[Loaded]:
    from rewarm.autotune.formats import read

    return [Loaded(read(path, form)) for path in paths]


def _findings(one: Loaded, asked: Means) -> list[Finding]:
    if one.broken and not one.entries:  # of a file that is torn nothing else is known
        return list(one.reading.findings)
    build, device = asked.build, asked.device
    known = {**one.says, **one.fusions}
    return [*one.reading.findings, *validate(one.reading, build=build, device=device, fusions=known)]


def _counted(findings: list[Finding]) -> str:
    if not findings:
        return "no findings"
    numbers = {severity: sum(one.severity is severity for one in findings) for severity in Severity}
    return ", ".join(
        f"{number} {severity}{'' if number == 1 else 's'}" for severity, number in numbers.items() if number
    )


def _plain(one: Finding) -> dict[str, object]:
    place = {"path": one.place.path, "line": one.place.line, "column": one.place.column}
    more = {"offset": one.place.offset, "entry": one.place.entry}
    said = {"code": one.code, "severity": one.severity.value, "expected": one.expected, "found": one.found}
    return {**said, "place": {**place, **more}}
