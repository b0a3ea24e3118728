"""`rewarm run`."""

from __future__ import annotations

import os
import subprocess
import sys

import click

from rewarm import settings
from rewarm.cli.common import directory_option


@click.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": ["--help"],
    }
)
@directory_option
@click.option("--stats", "stats", is_flag=True, help="Print one line about the cache at exit (REWARM_STATS=1).")
@click.option("--json", "as_json", is_flag=True, help="Print that line as JSON.")
@click.option(
    "--load-check", metavar="subprocess", help="Load each new entry once in a child process (REWARM_LOAD_CHECK)."
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT | -m MODULE | -c CODE] ...")
def command(
    directory: str | None, stats: bool, as_json: bool, load_check: str | None, program: tuple[str, ...]
) -> None:
    """Run a Python program with the cache on: `rewarm run train.py ARGS`, `rewarm run -m package.train ARGS`.

    Options of rewarm come before the program. Everything from the program on goes to `python`, which takes this
    process's place: exit code, arguments, standard streams, signals and `__main__` are those of `python train.py`.
    Programs that it starts in turn have the cache on too.
    """
    chosen = None if directory is None else settings.directory_of_command(directory)
    environment = settings.child_environment(
        chosen, stats="json" if as_json else "1" if stats else "", load_check=load_check
    )
    arguments = [sys.executable, *program]
    sys.stdout.flush()
    if os.name == "posix":
        os.execve(sys.executable, arguments, environment)
    sys.exit(subprocess.run(arguments, env=environment, check=False).returncode)
