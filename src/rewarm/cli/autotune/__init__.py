"""`rewarm autotune`: XLA:GPU's tuning results, looked after without a GPU. One file for each subcommand.

Not promised: that text output keeps its form; `--json` does.
"""

from __future__ import annotations

import click

from rewarm.cli.lazy import LazyGroup

_COMMANDS = {
    "ls": "list entries, of a file, a folder or the cache directory",
    "show": "show one entry: device, fusion, configuration, versions",
    "validate": "say what is wrong with files, before XLA sees them",
    "diff": "say how two sets of entries differ",
    "merge": "put several sets of entries together",
    "convert": "write entries in another of XLA's formats",
    "prune": "leave out entries that no longer serve anything",
    "import": "take entries into the cache directory",
    "export": "write what the cache directory has, as XLA's files",
    "check": "say whether a program's fusions are covered, without a GPU",
    "lock": "pin a program's tuning in one text file",
    "status": "list executables by the tuning they were compiled with",
    "env": "print the XLA_FLAGS line for any XLA program",
    "run": "run any XLA program with the directory prepared, and collect what it tuned",
}


@click.group(cls=LazyGroup, within=__name__, commands=_COMMANDS)
def command() -> None:
    """Look after XLA:GPU's tuning results. No GPU is needed."""
