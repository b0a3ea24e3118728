"""`rewarm bundle`: entries in one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from rewarm import settings
from rewarm.cli.common import (
    FOUND_BAD,
    counted,
    directory_option,
    entries,
    json_option,
    made_store,
    open_store,
    print_json,
    progress,
    size,
    table,
    tidy_end,
)
from rewarm.sharing import bundle
from rewarm.sharing.bundle import Loaded, Member, Updated
from rewarm.sharing.key_settings import keyring_of
from rewarm.sharing.made import Made, made_by
from rewarm.sharing.sync import LEFT, gone
from rewarm.store import LocalStore
from rewarm.store.inventory import look
from rewarm.trust import POSTURES, STRANGER, Keyring, as_posture
from rewarm.trust.errors import UNSIGNED

# Of members that were left out, how many are named.
_NAMED = 5


@click.group()
def command() -> None:
    """Entries in one file, for container images, CI caches and machines without a network."""


@command.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--program", metavar="NAME", help="Only programs whose name contains this.")
@click.option("--key", "prefixes", metavar="KEY", multiple=True, help="Only this entry; the start of its key will do.")
@click.option(
    "--update",
    is_flag=True,
    help="Add to the bundle that is there what it has not, or has in a form that you would refuse.",
)
@click.option("--all", "others", is_flag=True, help="Take, and sign with your key, what you did not make, too.")
@directory_option
@json_option
def save(
    file: Path,
    program: str | None,
    prefixes: tuple[str, ...],
    update: bool,
    others: bool,
    directory: str | None,
    as_json: bool,
) -> None:
    """Write entries of the cache directory into FILE.

    What was made in this directory goes in, signed with your key if you have one. What came from others is passed over:
    your signature would say that you made it. With --update, what others made stays in FILE with their signature.
    """
    store = open_store(directory)
    if file.exists() and not update:
        raise _there(file)
    asked = settings.of_command(directory=directory)
    keyring, made = keyring_of(asked), None if others else made_by(asked, store)
    chosen = list(progress(_chosen(store, program, prefixes), "reading entries"))
    if not chosen and (prefixes or program is not None):
        raise click.ClickException(f"no entry in {store.root} is one of those, so nothing is written; see rewarm ls")
    keys = progress(chosen, "writing entries", len(chosen))
    try:
        with tidy_end():
            done = _saved(file, store, keys, keyring, made, update=update)
    except FileExistsError:
        raise _there(file) from None  # since a moment ago
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror or error}") from error
    signer = keyring.signing_key()
    if as_json:
        print_json({"file": str(file), "signer": None if signer is None else signer.id, **_plain(done)})
    else:
        _print(file, done, signed=signer is not None)


def _there(file: Path) -> click.ClickException:
    return click.ClickException(f"{file} is there already; name another, remove it, or add to it with --update")


def _saved(
    file: Path, store: LocalStore, keys: Iterable[str], keyring: Keyring, made: Made | None, *, update: bool
) -> Updated:
    def tell(line: str) -> None:
        click.echo(line, err=True)

    if update:
        return bundle.update(file, store, keys, keyring, made=made, tell=tell)
    return bundle.save(file, store, keys, keyring, made=made, only_new=True, tell=tell)


def _plain(done: Updated) -> dict[str, Any]:
    return {
        "added": [one._asdict() for one in done.added],
        "replaced": [one._asdict() for one in done.replaced],
        "refused": [{"key": key, "reason": why} for key, why in done.refused.items()],
        "dropped": [{"key": key, "reason": why} for key, why in done.dropped.items()],
        "kept": done.kept,
        "passed_over": list(done.passed_over),
        "foreign": list(done.foreign),
    }


def _print(file: Path, done: Updated, *, signed: bool) -> None:
    """Of what is added and replaced alone is said who signed it: of the rest that is others' to know."""
    made = "signed" if signed else "not signed: there is no key (rewarm keys new)"
    if done.added or not done.replaced:
        click.echo(f"{file}: {entries(len(done.added))} added, {_sum(done.added)}{f', {made}' if done.added else ''}")
    if done.replaced:
        words = "that would be refused here" if signed else "that would be refused even under trust=store"
        click.echo(f"{file}: {entries(len(done.replaced))} {words} replaced, {_sum(done.replaced)}, {made}")
    for some, words in (
        (done.refused, "would be refused here, and stay, since none that was made here is there to replace them"),
        (done.dropped, "could not be read, and are left out"),
    ):
        for why, count in Counter(some.values()).most_common():
            click.echo(f"{file}: {count} of {len(done.refused) + done.kept + len(done.dropped)} others {words}: {why}")
    if done.passed_over:
        click.echo(f"{file}: {entries(len(done.passed_over))} {bundle.PASSED_OVER}")
    if done.foreign:
        names = ", ".join(done.foreign[:_NAMED]) + (", ..." if len(done.foreign) > _NAMED else "")
        click.echo(f"{file}: {counted(len(done.foreign), 'member')} of no bundle left out: {names}")


def _sum(some: list[Member]) -> str:
    return size(sum(one.size for one in some))


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--trust",
    "posture",
    type=click.Choice(POSTURES),
    default="require",
    help="require: signed by a key you trust (default). verify: unsigned ones pass, too. store: whoever made the file "
    "is trusted.",
)
@directory_option
@json_option
def load(file: Path, posture: str, directory: str | None, as_json: bool) -> None:
    """Put the entries of FILE into the cache directory, each once it was checked.

    The directory keeps to its bounds (REWARM_MAX_SIZE). Exit code 1 when an entry was refused, or not kept.
    """
    asked = settings.of_command(directory=directory)
    store = made_store(asked)
    storing = bundle.load(file, store, keyring_of(asked), as_posture(posture))
    loaded = list(progress(storing, "storing entries", len(bundle.members(file))))
    loaded = [Loaded(one.key, LEFT) if one.outcome == bundle.STORED and gone(store, one.key) else one for one in loaded]
    counts = Counter(one.outcome for one in loaded)
    if as_json:
        print_json({"file": str(file), "directory": str(store.root), "entries": [one._asdict() for one in loaded]})
    else:
        for outcome, count in sorted(counts.items()):
            click.echo(f"{count} {outcome}")
        click.echo(f"{file}: {counts[bundle.STORED]} of {entries(len(loaded))} stored in {store.root}")
        if (advice := _advice(counts)) is not None:
            click.echo(advice)
    if any(one.outcome not in (bundle.STORED, bundle.THERE) for one in loaded):
        raise SystemExit(FOUND_BAD)


def _advice(outcomes: Iterable[str]) -> str | None:
    """What to do next where entries are refused for whose they are."""
    refused = [outcome.removeprefix("refused: ") for outcome in outcomes if outcome.startswith("refused: ")]
    if any(reason.startswith(STRANGER) for reason in refused):
        return (
            "If you trust whoever made the bundle, have the line that `rewarm keys show` prints there, compare the "
            "id, and run: rewarm keys trust 'LINE'"
        )
    if any(reason.startswith(UNSIGNED) for reason in refused):
        return (
            "Nobody has signed these. Whoever made the bundle can make a key (rewarm keys new) and save it anew; or, "
            "if all who could change the file are trusted: --trust verify"
        )
    return None


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def show(file: Path, as_json: bool) -> None:
    """List what FILE says that it holds. Nothing is verified: loading does that."""
    found = bundle.members(file)
    if as_json:
        print_json([one._asdict() for one in found])
        return
    if found:
        rows = [[one.key[:12], size(one.size), one.program, one.target] for one in found]
        table(("key", "size", "program", "target"), rows, numeric=("size",))
    click.echo(f"{entries(len(found))}, {_sum(found)}")


def _chosen(store: LocalStore, program: str | None, prefixes: tuple[str, ...]) -> Iterator[str]:
    for info in store.scan():
        if prefixes and not any(info.key.startswith(prefix.lower()) for prefix in prefixes):
            continue
        if program is not None:
            header = look(store, info).header
            if header is None or program not in header.program:
                continue
        yield info.key
