"""What the commands that look after a remote share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from rewarm import settings
from rewarm.remote.blobs import RemoteError
from rewarm.sharing import RemoteTier
from rewarm.sharing.opening import open_tiers

F = TypeVar("F", bound=Callable[..., Any])


def remote_options(function: F) -> F:
    """`--remote`, `--namespace`, `--read-namespaces`."""
    for option in (
        click.option("--read-namespaces", metavar="NAMES", help="What is read there. Default: --namespace."),
        click.option("--namespace", metavar="NAME", help="What is written there. Default: REWARM_NAMESPACE, or main."),
        click.option("--remote", metavar="URL", help="The remote. Default: the first of REWARM_REMOTE."),
    ):
        function = option(function)
    return function


@contextlib.contextmanager
def remote_errors(tier: RemoteTier) -> Iterator[None]:
    """What a remote does not do is one line for the user (exit code 1)."""
    try:
        yield
    except RemoteError as error:
        raise click.ClickException(f"{tier.place}: {error.reason}") from error


def open_one(
    directory: str | None, remote: str | None, namespace: str | None, read_namespaces: str | None
) -> RemoteTier:
    """The remote that a command looks after.

    Raises:
      SettingError: an option, a variable or a key cannot be used.
      click.ClickException: there is no remote (exit code 1).
    """
    asked = settings.of_command(
        directory=directory, remote=remote, namespace=namespace, read_namespaces=read_namespaces
    )
    tiers = open_tiers(asked, lambda line: click.echo(line, err=True))
    if not tiers:
        raise click.ClickException("no remote is named: say --remote URL, or set REWARM_REMOTE")
    return tiers[0]
