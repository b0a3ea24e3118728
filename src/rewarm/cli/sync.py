"""`rewarm sync`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from rewarm.cli.common import FOUND_BAD, directory_option, json_option, open_store, print_json, progress
from rewarm.cli.remote import open_one, remote_options
from rewarm.sharing import RemoteTier, sync
from rewarm.sharing.sync import Sent
from rewarm.store import LocalStore
from rewarm.store.inventory import look


@click.command()
@click.argument("direction", type=click.Choice(["push", "pull", "both"]))
@click.option("--program", metavar="NAME", help="Push only programs whose name contains this.")
@remote_options
@directory_option
@json_option
def command(
    direction: str,
    program: str | None,
    remote: str | None,
    namespace: str | None,
    read_namespaces: str | None,
    directory: str | None,
    as_json: bool,
) -> None:
    """Send what one side has and the other has not: push to a remote, pull from it, or both.

    Entries are signed with your key on the way there, and checked and trusted, or refused, on the way here. Exit code 1
    when an entry did not arrive.
    """
    store = open_store(directory)
    opened = open_one(directory, remote, namespace, read_namespaces)
    if direction != "pull" and not opened.tier.writes:
        raise click.ClickException(
            f"{opened.tier.place}: its address says write=no, so nothing is sent; pull only reads"
        )
    with opened.asked() as tier:
        sent = list(progress(_sent(direction, store, tier, program), "sending entries"))
    failed = [one for one in sent if one.problem is not None]
    if as_json:
        print_json({"remote": tier.place, "sent": [one._asdict() for one in sent], "failed": len(failed)})
    else:
        for (way, problem), count in Counter((one.direction, one.problem) for one in failed).most_common(20):
            click.echo(f"{count} {way}: {problem}")
        pushed = sum(one.direction == "push" and one.problem is None for one in sent)
        pulled = sum(one.direction == "pull" and one.problem is None for one in sent)
        click.echo(f"{tier.place}: pushed {pushed}, pulled {pulled}, {len(failed)} did not arrive")
    if failed:
        raise SystemExit(FOUND_BAD)


def _sent(direction: str, store: LocalStore, tier: RemoteTier, program: str | None) -> Iterator[Sent]:
    if direction in ("push", "both"):
        yield from sync.push(store, tier, _keys(store, program))
    if direction in ("pull", "both"):
        yield from sync.pull(store, tier)


def _keys(store: LocalStore, program: str | None) -> Iterator[str]:
    for info in store.scan():
        if program is None:
            yield info.key
            continue
        header = look(store, info).header
        if header is not None and program in header.program:
            yield info.key
