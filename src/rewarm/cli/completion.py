"""`rewarm completion`, and what completes keys and runs.

Not promised: that what is offered is still there when the command runs. Whatever goes wrong offers nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import click
from click.shell_completion import CompletionItem, get_completion_class

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_REWARM_COMPLETE"

# A shell waits for these, so a directory of a million entries is not gone through.
_OFFERED = 200


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print what makes SHELL complete commands, options, keys and runs.

    \b
    bash   eval "$(rewarm completion bash)"              in ~/.bashrc
    zsh    eval "$(rewarm completion zsh)"               in ~/.zshrc, after compinit
    fish   rewarm completion fish > ~/.config/fish/completions/rewarm.fish
    """
    from rewarm.cli import group

    made = get_completion_class(shell)
    assert made is not None
    # The text alone: `source` looks for bash itself, which need not be on this machine.
    complete = made(group, {}, "rewarm", _VARIABLE)
    click.echo(complete.source_template % complete.source_vars())


def complete_key(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The keys of entries that begin so."""
    del param
    return _offered(_keys(ctx, incomplete.lower()))


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of runs that begin so, the latest first."""
    del param
    return _offered(_runs(ctx, incomplete))


def _offered(items: Iterator[CompletionItem]) -> list[CompletionItem]:
    found: list[CompletionItem] = []
    with contextlib.suppress(Exception):
        for item in items:
            found.append(item)
            if len(found) == _OFFERED:
                break
    return found


def _keys(ctx: click.Context, start: str) -> Iterator[CompletionItem]:
    from rewarm import settings
    from rewarm.store import LocalStore

    for info in LocalStore(settings.directory_of_command(ctx.params.get("directory"))).scan():
        if info.key.startswith(start):
            yield CompletionItem(info.key)


def _runs(ctx: click.Context, start: str) -> Iterator[CompletionItem]:
    from rewarm import settings
    from rewarm.ledger.runs import run_ids

    ids: Iterable[str] = run_ids(settings.directory_of_command(ctx.params.get("directory")))
    yield from (CompletionItem(run) for run in ids if run.startswith(start))
