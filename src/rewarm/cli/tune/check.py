"""`rewarm tune check`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rewarm.cli.common import FOUND_BAD, counted, directory_option, json_option, print_json, table
from rewarm.cli.tune.chosen import is_of_options, kernel_option, loaded, of_kernels, winner_text
from rewarm.errors import NotFingerprintableError
from rewarm.tunables.merging import is_decided
from rewarm.tunables.records import Case, Record
from rewarm.tunables.selecting import changes


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option(
    "--function",
    "functions",
    multiple=True,
    metavar="MODULE:NAME",
    help="Import this tunable function, and say whether it has changed. May be repeated.",
)
@click.option("--any-device", is_flag=True, help="Records of other devices are no fault.")
@kernel_option
@directory_option
@json_option
def command(
    files: tuple[Path, ...],
    functions: tuple[str, ...],
    any_device: bool,
    kernels: tuple[str, ...],
    directory: str | None,
    as_json: bool,
) -> None:
    """Say which records serve here, with this device, compiler and libraries, and what has changed for the others.

    Of the cache directory, or of lock files. The content of a kernel is looked at where --function names it: that
    imports the user's code. Ends with 1 if a record does not serve, or nothing is tuned for a function that is named.
    """
    found = of_kernels(loaded(files, directory), kernels)
    here = _Here(functions)
    rows = [(one, here.changed(one)) for one in found]
    if any_device:
        rows = [(one, why) for one, why in rows if not any(word.startswith("the device changed") for word in why)]
    lacking = [name for name in here.kernels if not any(one.case.kernel == name for one in found)]
    bad = [one for one, why in rows if why]
    if as_json:
        told = [
            {"key": one.case.key, "kernel": one.case.kernel, "arguments": one.case.arguments, "changed": why}
            for one, why in rows
        ]
        print_json(
            {"records": told, "not_tuned": lacking, "device": here.about.get("device"), "ok": not bad and not lacking}
        )
    else:
        _print(rows, lacking, here)
    if bad or lacking:
        raise SystemExit(FOUND_BAD)


def _print(rows: Sequence[tuple[Record, list[str]]], lacking: Sequence[str], here: _Here) -> None:
    columns = ("key", "kernel", "arguments", "winner", "serves here")
    cells = [
        [one.case.key[:12], one.case.kernel, one.case.arguments, winner_text(one), "; ".join(why) or "yes"]
        for one, why in rows
    ]
    if cells:
        table(columns, cells)
    for name in lacking:
        click.echo(f"{name} is not tuned")
    good = sum(not why for _, why in rows)
    unseen = sorted({one.case.kernel for one, _ in rows} - here.kernels.keys())
    click.echo(f"{good} of {counted(len(rows), 'case')} serve here ({here.about.get('device', 'unknown device')})")
    if unseen:
        click.echo(f"not looked at: whether {', '.join(unseen[:5])} changed; --function MODULE:NAME does")


class _Here:
    """What a case would have here.

    Attributes:
      kernels: kernel -> the function that was named.
      about: what the digests stand for.
    """

    def __init__(self, functions: Sequence[str]) -> None:
        import jax

        import rewarm
        from rewarm.jax_adapter import activation
        from rewarm.jax_adapter.tuner import kernels

        rewarm.enable()
        session = activation.session()
        if session is None:
            raise click.ClickException("rewarm cannot be turned on here; see rewarm doctor")
        place = kernels.place_of(session, jax.local_devices()[0])
        self._place = place
        self.about: Mapping[str, str] = place.about
        self.kernels = {one.kernel: one for one in map(tunable_at, functions)}
        self._contents: dict[str, str] = {}

    def changed(self, record: Record) -> list[str]:
        """What has changed since a record was made, in words; nothing: it serves."""
        if not is_decided(record):
            return ["tuning was begun and has not ended"]
        case = record.case
        here: Case = replace(
            case,
            content=self._content(case),
            target=self._place.target,
            toolchain=self._place.toolchain,
            # Of a program's options it has what else is in the program's key, which is not known without the program.
            libraries=case.libraries if is_of_options(record) else self._place.libraries,
        )
        return changes(here, record, self.about)

    def _content(self, case: Case) -> str:
        """What the kernel's content is now; as it was where nobody named the function."""
        tunable = self.kernels.get(case.kernel)
        if tunable is None:
            return case.content
        # It depends on the arguments through the variants in the space alone, which hardly ever differ.
        found = _content_of(tunable, case)
        self._contents.setdefault(case.kernel, found or case.content)
        return found or self._contents[case.kernel]


def _content_of(tunable: Any, case: Case) -> str | None:
    """A function's content for the arguments of a case; `None` where these cannot be made of their text.

    Raises:
      click.ClickException: it cannot be identified.
    """
    from rewarm.jax_adapter.tuner.arguments import structs_of_text

    try:
        asked = tunable.asked(structs_of_text(case.arguments), {})
        return str(tunable.content(asked.space))
    except NotFingerprintableError as wrong:
        raise click.ClickException(f"{case.kernel}: {wrong}") from None
    except (ValueError, TypeError):
        return None


def tunable_at(name: str) -> Any:
    """What `module:name` or `path/file.py:name` is, which must be tunable.

    Raises:
      PlanError: it cannot be imported.
      click.ClickException: it is no `rewarm.tunable` (exit code 1).
    """
    from rewarm.jax_adapter import plans
    from rewarm.jax_adapter.tuner.tunable import Tunable

    # Behind everything else: what lies in the working directory must not stand for JAX.
    sys.path.append(str(Path.cwd()))
    found = plans.read(name)
    if not isinstance(found, Tunable):
        raise click.ClickException(f"{name} is {type(found).__name__}, and no function of rewarm.tunable")
    return found
