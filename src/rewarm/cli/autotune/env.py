"""`rewarm autotune env`."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import click

from rewarm import settings, small_files
from rewarm.cli.autotune.options import place_options
from rewarm.cli.autotune.programs import asked, environment, place_for, prepared

_FORMATS = ("sh", "fish", "json")


@click.command()
@place_options
@click.option("--format", "form", type=click.Choice(_FORMATS), default="sh", help="For which shell, or JSON.")
@click.option(
    "--describe",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --this-device: write its description to a file too, which --target takes on any machine.",
)
def command(
    directory: str | None,
    target: str | None,
    this_device: bool,
    build: str | None,
    python: str,
    form: str,
    describe: Path | None,
) -> None:
    """Print the XLA_FLAGS line for any program with XLA in it: TensorFlow, PyTorch/XLA, a C++ binary.

    \b
    eval "$(rewarm autotune env --target h200 --build tensorflow-2.20)"
    rewarm autotune env --this-device --format fish | source

    The directory that the line names is made, checked, and filled with what the cache directory has for this build and
    this kind of GPU. What XLA_FLAGS has already is kept. What the program tunes is there for every later one; to have
    it in the store and in remotes too, start the program with `rewarm autotune run`.
    """
    if describe is not None:
        _describe(describe, python, settings.directory_of_command(directory) if this_device else None)
    place = place_for(directory, target, this_device, build, python)
    done = prepared(place)
    if done.directory is None:
        raise click.ClickException(f"{place.root}: {done.why}")
    click.echo(_line(environment(done)["XLA_FLAGS"], form))


def _describe(path: Path, python: str, root: Path | None) -> None:
    if root is None:
        raise click.UsageError("--describe is for the attached GPU; add --this-device")
    if os.path.lexists(path):  # a link that leads nowhere, too
        raise click.UsageError(f"--describe: {path} is there already; name another file")
    here = asked(python, root, device=True)
    if not here.target:
        raise click.ClickException(f"JAX {here.jax} does not tell what its GPUs are; JAX 0.11 and later do")
    small_files.replace(path, here.target.encode(), 0o644)


def _line(flags: str, form: str) -> str:
    if form == "json":
        return json.dumps({"XLA_FLAGS": flags})
    if form == "fish":
        escaped = flags.replace("\\", "\\\\").replace("'", "\\'")
        return f"set -gx XLA_FLAGS '{escaped}'"
    return f"export XLA_FLAGS={shlex.quote(flags)}"
