"""`rewarm clear`."""

from __future__ import annotations

import contextlib

import click

from rewarm import trials
from rewarm.cli.common import counted, directory_option, json_option, open_store, print_json, progress, size
from rewarm.cli.layout import HISTORY, MEMORY
from rewarm.ledger import savings
from rewarm.store import LocalStore


@click.command()
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also forget what all runs came to, which keys are refused, and what is known of this host's libraries.",
)
@directory_option
@json_option
def command(everything: bool, directory: str | None, as_json: bool) -> None:
    """Remove every entry, the quarantine, the runs and all that explanations are made of.

    What the runs came to (`rewarm stats --all-time`) is summed up first and stays, as do the keys that are refused
    (`rewarm quarantine ls`), but with --all. Files that are not rewarm's stay.

    Programs that run meanwhile are not disturbed: they compile what they no longer find.
    """
    store = open_store(directory)
    if not store.is_ours():
        raise click.ClickException(
            f"{store.root} carries no CACHEDIR.TAG of rewarm, so nothing is removed there; is it the right directory? "
            f"If it is, any program that uses it writes the tag, once nothing else has its name"
        )
    entries, total = 0, 0
    infos = list(store.scan())
    for info in progress(infos, "removing entries", len(infos)):
        store.delete(info.key)
        entries, total = entries + 1, total + info.size
    # After the entries: on a full disk there is room for it only now.
    _keep_savings(store, everything)
    leftovers = store.remove_leftovers((*HISTORY, *MEMORY) if everything else HISTORY)
    if as_json:
        print_json({"directory": str(store.root), "entries": entries, "bytes": total, "leftovers": leftovers})
    else:
        gone = f"{counted(entries, 'entry', 'entries')}, {size(total)}, and {counted(leftovers, 'leftover')}"
        click.echo(f"removed {gone} from {store.root}")


def _keep_savings(store: LocalStore, everything: bool) -> None:
    if everything:
        with contextlib.suppress(OSError):  # nothing of it, or another process has it in hand
            trials.drop(store.root)
        return
    try:
        savings.fold_all(store.root)
    except savings.NotFoldedError as error:
        raise click.ClickException(
            f"the entries are removed, and the runs are not, since what they came to cannot be kept: {error}; "
            f"try again, or give that up with --all"
        ) from error
