"""A group of subcommands, each imported only when it is the one that was called.

Not promised: that a command's file imports; what is wrong with it shows when it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Subcommands by name, with the line that lists them.

    Args:
      within: the package whose modules they are; a dash in a name is an underscore in the module's.
      commands: what each does, in the order in which they are listed.
    """

    def __init__(self, *args: Any, within: str, commands: Mapping[str, str], **more: Any) -> None:
        super().__init__(*args, **more)
        self._within = within
        self._commands = commands

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._commands:
            return None
        command = importlib.import_module(f"{self._within}.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so, of which none is imported, and this group's options."""
        told = [CompletionItem(name, help=what) for name, what in self._commands.items() if name.startswith(incomplete)]
        return [*told, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(self._commands.items()))
