"""`rewarm keys`: the user's own folder of keys, and for `ls` and `show` all keys that are in force here.

Not promised: that a program which runs already hears of a change; keys are read when it starts. What a program says to
`rewarm.enable` is not seen.

Race: two calls of `new` at once. The file is made with O_EXCL, so one gets it and the other fails. Two calls of
`revoke` at once each add a line; neither takes the other's away.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from rewarm import settings, small_files
from rewarm.cli.common import json_option, print_json, table
from rewarm.sharing.key_settings import sources_of
from rewarm.trust import Algorithm, Keyring, KeySources, SigningKey, TrustedKey, UnusableKeyError, default_folder, load
from rewarm.trust.key_files import PUBLIC_SUFFIX, REVOKED, check_folder, exists, lines_of, revoked_ids, trusted_keys
from rewarm.trust.keyring import SIGNING_NAME, TRUSTED_NAME
from rewarm.trust.keys import is_id

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_STDIN_LIMIT = 1 << 20


@click.group()
def command() -> None:
    """Make and look after the keys that entries are signed with.

    An entry is code. What a remote hands out runs here only when a key that is trusted has signed it. Your own key is
    trusted by yourself; give others the line that `rewarm keys show` prints.
    """


@command.command()
@click.option("--hmac", is_flag=True, help="A shared secret: whoever checks entries could sign them.")
@click.option("--out", metavar="FILE", help="Where it goes; by default it becomes this user's own key.")
@click.option("--comment", default="", metavar="TEXT", help="Whose it is, for lists.")
def new(hmac: bool, out: str | None, comment: str) -> None:
    """Make a new signing key, and print its public half. One that is there is never overwritten.

    The line alone goes to standard output, and what is said of it to standard error. An HMAC key has no public half.
    """
    key = SigningKey.generate(Algorithm.HMAC if hmac else Algorithm.ED25519, comment)
    name = key.id  # before anything is written: it needs the library
    path = Path(out).expanduser() if out is not None else _made_folder() / SIGNING_NAME
    _write_new(path, f"{key.to_text()}\n".encode())
    click.echo(f"{path}: key {name}, readable by you alone", err=True)
    if hmac:
        click.echo("give it to those who are to check its signatures, and to nobody else", err=True)
    else:
        click.echo(key.public.to_text())


@command.command()
@json_option
def ls(as_json: bool) -> None:
    """List the keys in force: the one that signs, the trusted ones and the revoked ones, each with where it is from.

    Keys come from your folder of keys and from REWARM_SIGNING_KEY, REWARM_SIGNING_COMMAND (which is run for this) and
    REWARM_TRUSTED_KEYS. Where one of them has a signing key, the folder's does not sign.
    """
    sources = sources_of(settings.of_command())
    rows = list(_rows(load(sources), sources))
    if as_json:
        print_json({"folder": None if sources.folder is None else str(sources.folder), "keys": rows})
        return
    if rows:
        table(
            ("id", "use", "kind", "comment", "where"),
            [[row["id"], _use(row), row["algorithm"] or "-", row["comment"], row["where"]] for row in rows],
        )
    else:
        place = "the environment" if sources.folder is None else f"{sources.folder} or the environment"
        click.echo(f"no key is in {place}; make one with rewarm keys new, or trust one with rewarm keys trust")
    if not any(row["signs"] for row in rows):
        click.echo("nothing is signed here: " + ("the key is revoked" if any(row["own"] for row in rows) else "no key"))


@command.command()
@click.argument("what", metavar="FILE|TEXT")
@click.option("--comment", metavar="TEXT", help="Whose it is, in place of what the key says.")
def trust(what: str, comment: str | None) -> None:
    """Trust a key: a file with one or more, the line itself, or - for standard input.

    The line of an HMAC key is its secret, so it is not taken as an argument, which others on this host can read.
    """
    keyring = _keyring()
    keys = _given_keys(what)
    for key in keys:
        if keyring.is_revoked(key.id):
            raise click.ClickException(
                f"{key.id} is revoked; take its line out of {_folder() / REVOKED} first, if that was a mistake"
            )
    folder = _made_folder() / TRUSTED_NAME
    with _told(folder):
        small_files.make_folder(folder, small_files.PRIVATE.directory)
    check_folder(folder)
    for key in keys:
        text = key.to_text() if comment is None else _commented(key, comment).to_text()
        with _told(path := folder / f"{key.id}{PUBLIC_SUFFIX}"):
            small_files.replace(path, f"{text}\n".encode(), small_files.PRIVATE.file)
        click.echo(f"{key.id} is trusted")


@command.command()
@click.argument("what", metavar="ID|FILE")
def revoke(what: str) -> None:
    """Never trust a key again, whatever else says that it is trusted.

    The start of an ID is enough while it fits one key that is known here (rewarm keys ls). One that
    REWARM_TRUSTED_KEYS names is refused all the same from then on.
    """
    keyring = _keyring()
    own = keyring.own_key()
    for key in _ids(what):
        if keyring.is_revoked(key):
            click.echo(f"{key} was revoked already")
            continue
        _add_line(_made_folder() / REVOKED, key)
        if not _keyring().is_revoked(key):
            raise click.ClickException(f"{key} is NOT revoked: another program changed {_folder() / REVOKED}")
        click.echo(f"{key} is revoked")
        if own is not None and own.id == key:
            click.echo(f"it was your own: nothing is signed until you move {own.where} away and make a new one")


@command.command()
def show() -> None:
    """Print your own public key, to hand to others."""
    own = load(sources_of(settings.of_command())).own_key()
    if own is None:
        raise click.ClickException("you have no signing key; make one with rewarm keys new")
    if own.public.holds_secret:
        raise click.ClickException(
            f"your key is an HMAC key and has no public half: who is to check its signatures needs {own.where} itself"
        )
    click.echo(own.public.to_text())


# -- inside --------------------------------------------------------------------------------------------------------


def _folder() -> Path:
    folder = default_folder()
    if folder is None:
        raise click.ClickException("this user has no home for keys; name one with XDG_CONFIG_HOME")
    return folder


def _keyring() -> Keyring:
    return load(KeySources(folder=_folder()))


def _made_folder() -> Path:
    folder = _folder()
    with _told(folder):
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for one in (folder.parent, folder):
            small_files.make_folder(one, small_files.PRIVATE.directory)
    check_folder(folder)
    return folder


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system says of a file, as one line."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror or error}") from error


def _write_new(path: Path, data: bytes) -> None:
    with _told(path):
        try:
            descriptor = os.open(path, _NEW, small_files.PRIVATE.file)
        except FileExistsError:
            raise click.ClickException(
                f"{path} is there already and is not overwritten; name another file with --out"
            ) from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _add_line(path: Path, line: str) -> None:
    with _told(path):
        last = small_files.contents(path, 1) if path.exists() else b"\n"
        # A last line without an end, as some editors leave it, would swallow this one.
        start = "" if last in (b"", b"\n") else "\n"
        small_files.append(path, f"{start}{line}\n".encode("ascii"), small_files.PRIVATE.file)


def _given_keys(what: str) -> list[TrustedKey]:
    if what == "-":
        stream = getattr(sys.stdin, "buffer", None)
        data = stream.read(_STDIN_LIMIT) if stream is not None else sys.stdin.read(_STDIN_LIMIT).encode()
        keys = [TrustedKey.from_text(line, "standard input") for _, line in lines_of(data, "standard input")]
        if not keys:
            raise click.ClickException("no key came on standard input")
        return keys
    if not what.lstrip().startswith("rewarm-"):
        return trusted_keys(Path(what).expanduser())
    key = TrustedKey.from_text(what, "the argument")
    if key.holds_secret:
        raise click.UsageError("others on this host can read arguments: give a file with the secret, or - and its line")
    return [key]


def _commented(key: TrustedKey, comment: str) -> TrustedKey:
    bare, _, _ = key.to_text().partition(" ")
    return TrustedKey.from_text(f"{bare} {comment}", "--comment")


def _ids(what: str) -> list[str]:
    """The ids that `what` stands for: those in a file, one in full, or the one that is known and starts like this."""
    prefix = what.strip().lower()
    if is_id(prefix):  # which needs no list of keys that can be read
        return [prefix]
    keyring = load(sources_of(settings.of_command()))
    own = keyring.own_key()
    known = {*keyring.trusted, *keyring.revoked, *([own.id] if own is not None else [])}
    found = sorted(name for name in known if prefix and name.startswith(prefix))
    if len(found) == 1:
        return found
    if found:
        raise click.ClickException(f"{len(found)} keys have an id that starts with {prefix!r}; add digits")
    path = Path(what).expanduser()
    if not path.is_file():
        raise click.ClickException(f"no key here has an id that starts with {what!r}, and no file has this name")
    try:
        return [key.id for key in trusted_keys(path)]
    except UnusableKeyError as error:
        raise click.ClickException(f"{error} (to revoke a key whose file is lost, give its whole id)") from error


def _rows(keyring: Keyring, sources: KeySources) -> Iterator[dict[str, Any]]:
    own = keyring.own_key()
    known = dict(keyring.trusted)
    if own is not None:
        known = {own.id: own.public, **{name: key for name, key in known.items() if name != own.id}}
    revoked_in = _revoked_in(sources)
    for name, key in known.items():
        yield {
            "id": name,
            "algorithm": key.algorithm.name.lower(),
            "own": own is not None and name == own.id,
            "signs": own is not None and name == own.id and not keyring.is_revoked(name),
            "trusted": not keyring.is_revoked(name),
            "revoked": keyring.is_revoked(name),
            "revoked_in": revoked_in.get(name),
            "comment": key.comment,
            "where": _where(key.where),
        }
    for name in sorted(keyring.revoked - set(known)):
        yield {
            "id": name,
            "algorithm": None,
            "own": False,
            "signs": False,
            "trusted": False,
            "revoked": True,
            "revoked_in": revoked_in.get(name),
            "comment": "",
            "where": revoked_in.get(name, ""),
        }


def _revoked_in(sources: KeySources) -> dict[str, str]:
    """In which list each revoked key is."""
    folders = [path for path in sources.trusted_paths if path.is_dir()]
    folders += [sources.folder] if sources.folder is not None else []
    lists = [folder / REVOKED for folder in folders if exists(folder / REVOKED)]
    return {name: str(path) for path in lists for name in revoked_ids(path)}


def _where(where: str) -> str:
    """Where a key is from, by the name of its setting where that holds the key itself."""
    if where == "the signing key":
        return "REWARM_SIGNING_KEY"
    if where.startswith("the command "):
        return "REWARM_SIGNING_COMMAND"
    return f"REWARM_TRUSTED_KEYS, {where}" if where.startswith("trusted key ") else where


def _use(row: dict[str, Any]) -> str:
    if row["revoked"]:
        return "revoked (your own)" if row["own"] else "revoked"
    return "your own, signs" if row["own"] else "trusted"
