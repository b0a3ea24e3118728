"""The command `rewarm`: one file per subcommand, imported when it is called.

Not promised: that text output keeps its form; `--json` does.

Exit codes: 0 all well; 1 something was looked for and not found, or was found bad; 2 wrong usage. `rewarm run` ends
with the exit code of the program that it ran.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys

import click

from rewarm.cli.lazy import LazyGroup

_COMMANDS = {
    "run": "run a Python program with the cache on",
    "ls": "list the entries",
    "show": "show one entry: header, components, sizes, times",
    "report": "show where the seconds of a start went, as one HTML file",
    "explain": "say why programs were compiled",
    "diff": "say how two entries differ",
    "stats": "sum up a cache directory, now or for all time",
    "du": "say what takes the room",
    "verify": "check every entry, and repair",
    "gc": "remove entries until the bounds hold",
    "quarantine": "look after what was put aside",
    "keys": "make and look after the keys that entries are signed with",
    "clear": "remove every entry",
    "sync": "send entries to a remote, or fetch what it has",
    "prewarm": "fill the cache for machines that need not be here",
    "target": "list, show and capture machines to compile for",
    "autotune": "look after XLA:GPU's tuning results",
    "tune": "look after what rewarm.tune has found, and tune from a shell",
    "bundle": "put entries into one file, or take them out of it",
    "doctor": "say whether caching would work here and now",
    "completion": "print what makes a shell complete all of this",
}


@click.command(
    cls=LazyGroup,
    within=__name__,
    commands=_COMMANDS,
    epilog="Exit codes: 0 all well; 1 not found, or found bad; 2 wrong usage. The directory is --dir, else "
    "REWARM_DIR, else <JAX_COMPILATION_CACHE_DIR>/rewarm, else the per-user one.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="rewarm", message="rewarm %(version)s")
def group() -> None:
    """A persistent compilation cache for JAX: run programs with it, and look after its directory.

    \b
    Start warm           rewarm run train.py
    See what it saved    rewarm report --open
    Ask why it missed    rewarm explain
    Check the set-up     rewarm doctor -- train.py
    See what is stored   rewarm ls --sort size
    Make room            rewarm gc --max-size 5GiB --dry-run
    Share with others    rewarm sync push --remote s3://bucket/cache
    Fill it beforehand   rewarm prewarm plan.py:programs --target h100

    Each command has --help; most have --json, and find the directory as a program does.
    """


def main() -> None:
    """The entry point of the command `rewarm`."""
    from rewarm import settings
    from rewarm.errors import RewarmError, SettingError

    if sys.stdout is None:  # closed by whoever started this
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for the life of the process
    # Names of files need not be text, and a terminal need not have all letters.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        group.main(prog_name="rewarm", color=False if settings.no_color() else None)
    except RewarmError as error:
        click.echo(f"Error: {_line(error)}", err=True)
        sys.exit(2 if isinstance(error, SettingError) else 1)
    except OSError as error:  # a full disk behind the output, above all
        with contextlib.suppress(OSError):
            click.echo(f"Error: {_line(error) if error.filename else error.strerror or error}", err=True)
        os._exit(1)  # not sys.exit, which would try once more to write what cannot be written, and say so at length


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}"
    return str(error)
