"""`rewarm sync`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import click

from rewarm import settings
from rewarm.cli.common import FOUND_BAD, directory_option, json_option, made_store, open_store, print_json, progress
from rewarm.cli.remote import open_one, remote_options
from rewarm.sharing import RemoteTier, sync
from rewarm.sharing.made import Made, made_by
from rewarm.sharing.sync import Sent
from rewarm.store import LocalStore
from rewarm.store.inventory import look


@click.command()
@click.argument("direction", type=click.Choice(["push", "pull", "both"]))
@click.option("--program", metavar="NAME", help="Push only programs whose name contains this.")
@click.option("--all", "others", is_flag=True, help="Push, and sign with your key, what you did not make, too.")
@click.option(
    "--wait",
    "patience",
    type=click.FloatRange(0),
    default=sync.PATIENCE,
    metavar="SECONDS",
    help=f"How long a remote that stops answering, or is asked too much, is asked again. Default {sync.PATIENCE:g}.",
)
@click.option("--verify", is_flag=True, help="Fetch what the remote has, and push anew what would be refused there.")
@remote_options
@directory_option
@json_option
def command(
    direction: str,
    program: str | None,
    others: bool,
    verify: bool,
    patience: float,
    remote: str | None,
    namespace: str | None,
    read_namespaces: str | None,
    directory: str | None,
    as_json: bool,
) -> None:
    """Send what one side has and the other has not: push to a remote, pull from it, or both.

    What was made in this directory is signed with your key on the way there. What came from others is passed over: your
    signature would say that you made it. What comes here is checked and trusted, or refused; the directory is made if
    it is not there, and keeps to its bounds (REWARM_MAX_SIZE). Exit code 1 when an entry did not arrive.
    """
    store = open_store(directory) if direction == "push" else None
    opened = open_one(directory, remote, namespace, read_namespaces)
    if direction != "pull" and not opened.tier.writes:
        raise click.ClickException(
            f"{opened.tier.place}: its address says write=no, so nothing is sent; pull only reads"
        )
    with opened.asked() as tier:
        if store is None:
            sync.look(tier, patience=patience, tell=_tell)
            store = made_store(settings.of_command(directory=directory))
        made = None if others else made_by(settings.of_command(directory=directory), store)
        wish = _Wish(direction, program, made, verify, patience, [], [])
        sending = progress(_sent(wish, store, tier), "sending entries", lambda: sum(wish.begun))
        sent = sync.not_kept(store, list(sending))
    unseen = wish.there[0] if wish.there else 0
    passed_over = sum(one.problem == sync.NOT_MADE for one in sent)
    sent = [one for one in sent if one.problem != sync.NOT_MADE]
    failed = [one for one in sent if one.problem is not None]
    if as_json:
        told = {"sent": [one._asdict() for one in sent], "failed": len(failed), "passed_over": passed_over}
        told["there_already"] = unseen
        print_json({"remote": tier.place, **told})
    else:
        for (way, problem), count in Counter((one.direction, one.problem) for one in failed).most_common(20):
            click.echo(f"{count} {way}: {problem}")
        pushed = sum(one.direction == "push" and one.problem is None for one in sent)
        pulled = sum(one.direction == "pull" and one.problem is None for one in sent)
        click.echo(f"{tier.place}: pushed {pushed}, pulled {pulled}, {len(failed)} did not arrive")
        if unseen:
            click.echo(f"{unseen} have one of their key there, which was not looked at (--verify does, and replaces)")
        if passed_over:
            click.echo(f"{passed_over} {sync.NOT_MADE_LINE}")
    if failed:
        raise SystemExit(FOUND_BAD)


class _Wish(NamedTuple):
    """What is to be sent: the options, and what is heard of it: how many are there already, how many are sent."""

    direction: str
    program: str | None
    made: Made | None
    verify: bool
    patience: float
    there: list[int]
    begun: list[int]


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _sent(wish: _Wish, store: LocalStore, tier: RemoteTier) -> Iterator[Sent]:
    direction, patience = wish.direction, wish.patience
    if direction in ("push", "both"):
        keys = _keys(store, wish.program)
        yield from sync.push(
            store,
            tier,
            keys,
            made=wish.made,
            verify=wish.verify,
            patience=patience,
            tell=_tell,
            there_already=wish.there.append,
            begins=wish.begun.append,
        )
    if direction in ("pull", "both"):
        yield from sync.pull(store, tier, patience=patience, tell=_tell, begins=wish.begun.append)


def _keys(store: LocalStore, program: str | None) -> Iterator[str]:
    for info in store.scan():
        if program is None:
            yield info.key
            continue
        header = look(store, info).header
        if header is not None and program in header.program:
            yield info.key
