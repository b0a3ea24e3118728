"""`rewarm tune`: what `rewarm.tune` has found, looked after; and tuning from a shell. One file for each subcommand.

Not promised: that text output keeps its form; `--json` does.
"""

from __future__ import annotations

import click

from rewarm.cli.lazy import LazyGroup

_COMMANDS = {
    "ls": "list what is tuned: winners, and how much faster they are",
    "show": "show one case: every candidate, how sure the winner is, conditions; --plot draws it",
    "check": "say whether records still serve here, and what has changed where they do not",
    "prune": "remove records that newer ones have replaced, or that are old",
    "export": "write winners into a text file for version control",
    "import": "take winners from such a file",
    "run": "tune a function for shapes, in this shell",
}


@click.group(cls=LazyGroup, within=__name__, commands=_COMMANDS)
def command() -> None:
    """Look after what `rewarm.tune` and `rewarm.tune_options` have found."""
