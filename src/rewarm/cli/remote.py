"""What the commands that look after a remote share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from rewarm import settings
from rewarm.errors import SettingError
from rewarm.in_force import Settings
from rewarm.remote.blobs import NoSuchPlaceError, RefusedError, RemoteError, ThrottledError, UnreachableError
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


class Opened:
    """The remote that a command looks after.

    Attributes:
      tier: it.
    """

    def __init__(self, in_force: Settings) -> None:
        self._told: list[str] = []
        self.tier = _first(in_force, self._told.append)

    @contextlib.contextmanager
    def asked(self) -> Iterator[RemoteTier]:
        """The remote, while it is asked. What it does not do is one line for the user, with what to do next.

        Raises:
          click.ClickException: there was no answer, or another than was wanted (exit code 1).
        """
        try:
            yield self.tier
        except RemoteError as error:  # what the guard has told says the same
            raise click.ClickException(f"{self.tier.place}: {error.reason}{_next_step(error)}") from error
        for line in self._told:
            click.echo(line, err=True)


def open_one(
    directory: str | None,
    remote: str | None,
    namespace: str | None,
    read_namespaces: str | None,
    *,
    read_option: str = "--read-namespaces",
) -> Opened:
    """The remote of these options.

    Raises:
      SettingError: an option, a variable or a key cannot be used.
      click.ClickException: there is no remote (exit code 1).
      click.UsageError: there are several, or nothing is to be read there.
    """
    try:
        in_force = settings.of_command(
            directory=directory, remote=remote, namespace=namespace, read_namespaces=read_namespaces
        )
        if remote is not None and len(in_force.remote) > 1:
            raise click.UsageError(f"--remote: expected one remote, found {len(in_force.remote)}")
        if not in_force.read_namespaces:
            raise click.UsageError(f"{read_option}: expected a name, or some divided by commas, found none")
        return Opened(in_force)
    except SettingError as error:
        said = str(error).replace("--read-namespaces", read_option)
        raise SettingError(said if remote is None else said.replace("remote (REWARM_REMOTE)", "--remote")) from None


def _first(in_force: Settings, tell: Callable[[str], None]) -> RemoteTier:
    tiers = open_tiers(in_force, tell)
    if not tiers:
        raise click.ClickException("no remote is named: say --remote URL, or set REWARM_REMOTE")
    return tiers[0]


def _next_step(error: RemoteError) -> str:
    if isinstance(error, NoSuchPlaceError):
        return "; make it, or correct the address"
    if isinstance(error, ThrottledError):
        return "; try again later"
    if isinstance(error, UnreachableError):
        return "; look at the address, the network, and the server"
    if isinstance(error, RefusedError) and "list" not in error.reason:
        return "; look at the credentials, the rights, and the options of the address"
    return ""
