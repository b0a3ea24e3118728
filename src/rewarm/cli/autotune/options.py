"""The options of the subcommands, each said once.

Not promised: what a command does with one; that is in its own text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rewarm.autotune import outputs, targets
from rewarm.cli.common import directory_option

F = TypeVar("F", bound=Callable[..., Any])

GPUS = f"{', '.join(targets.names())}, or a file that describes one"


def target_option(words: str, *names: str, **more: Any) -> Callable[[F], F]:
    """`--target`; `words` say what the GPU is for, and the help goes on with those that have names."""
    return click.option("--target", *names, metavar="GPU", help=f"{words}: {GPUS}.", **more)


def plan_options(function: F) -> F:
    """`--topology`, `--only`: of a plan."""
    only = click.option("--only", multiple=True, metavar="NAME", help="Only this program of the plan. May be repeated.")
    help_ = "Partitions, hosts of each, devices of each host; or 8, the devices of one process."
    return click.option("--topology", default="1x1x1", metavar="PxHxD", help=help_)(only(function))


def paths_argument(function: F) -> F:
    """`[PATH]...`."""
    return click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")(function)


def filter_options(function: F) -> F:
    """`--device`, `--build`, `--backend`, `--fusion`."""
    for option in (
        click.option(
            "--fusion",
            "fusions",
            multiple=True,
            metavar="TEXT",
            help="Only fusions with this in their HLO text, or whose fingerprint or file's name begins with it.",
        ),
        click.option("--backend", "backends", multiple=True, metavar="NAME", help="Only results of this backend."),
        click.option(
            "--build",
            "builds",
            multiple=True,
            metavar="JAX",
            help="Only what this JAX would find (0.12.0.1), or a legacy entry version, or a codegen version.",
        ),
        click.option(
            "--device",
            "devices",
            multiple=True,
            metavar="GPU",
            help=f"Only results for this GPU: {', '.join(targets.names())}, a file that describes one, XLA's text for "
            "one, or its fingerprint.",
        ),
    ):
        function = option(function)
    return function


def means_options(function: F) -> F:
    """`--jax` and `--target`."""
    jax = click.option("--jax", metavar="VERSION", help="The JAX that is to read the results: 0.12.0.1.")
    return jax(target_option("The GPU that is meant")(function))


def output_options(function: F) -> F:
    """`-o`, `--to`, `--keys`, `--lossy`, `--force`."""
    names = [one.value for one in outputs.OUTPUTS]
    for option in (
        click.option("--force", is_flag=True, help="Replace what is at OUT. Of a folder only if all in it is XLA's."),
        click.option(
            "--lossy",
            is_flag=True,
            help="Leave out, and tell, what cannot be read, converted or written; without it nothing is written then.",
        ),
        click.option(
            "--keys",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="PATH",
            help="Tuning files whose entries say device and fusion, for those that have a digest or fingerprint alone.",
        ),
        click.option(
            "--to",
            type=click.Choice(names),
            metavar="FORMAT",
            help=f"What to write: {', '.join(names)}. By default by OUT's name: XLA's suffixes for text are text, any "
            "other suffix is binary, none is a folder; the family stays.",
        ),
        click.option("-o", "--output", "out", required=True, metavar="OUT", help="The file or folder to write."),
    ):
        function = option(function)
    return function


def place_options(function: F) -> F:
    """`--dir`, `--target`, `--this-device`, `--build`, `--python`."""
    for option in (
        directory_option,
        click.option(
            "--python",
            default=sys.executable,
            metavar="PROGRAM",
            help="The Python whose JAX is asked with --this-device, and without --build; by default rewarm's own.",
        ),
        click.option(
            "--build",
            metavar="NAME",
            help="What the program's XLA is called, such as tensorflow-2.20: each build has its own results. By "
            "default the XLA of the installed JAX.",
        ),
        click.option("--this-device", is_flag=True, help="For the GPU that is attached, as JAX reports it."),
        click.option(
            "--target", metavar="NAME|FILE", help=f"For a described GPU: {', '.join(targets.names())}, or a file."
        ),
    ):
        function = option(function)
    return function
