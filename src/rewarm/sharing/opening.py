"""From what the user says of remotes and keys to remotes that can be asked.

Not promised: that a remote is there. Nothing is asked of any until the first look-up.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from rewarm import trust
from rewarm.errors import BadEntryError, SettingError, StoreError
from rewarm.in_force import Settings
from rewarm.remote.address import Address, parse
from rewarm.remote.blobs import Blobs, RemoteError
from rewarm.remote.guard import Guarded
from rewarm.remote.opening import open_blobs
from rewarm.sharing.early import Early
from rewarm.sharing.made import made_in
from rewarm.sharing.remotes import Remotes
from rewarm.sharing.tier import Namespaces, RemoteTier
from rewarm.sharing.uploads import Uploads
from rewarm.store import LocalStore
from rewarm.telling import say_nothing
from rewarm.trust import Keyring, KeySources

# As much base64 as the shortest key has.
_LIKE_A_KEY = re.compile(r"[A-Za-z0-9+/]{40}")


def open_remotes(
    in_force: Settings,
    store: LocalStore,
    tell: Callable[[str], None],
    *,
    writes: bool = True,
    guards: Sequence[Guarded] = (),
    early: Early | None = None,
) -> Remotes:
    """The remotes of these settings.

    Args:
      in_force: the settings.
      store: the local store.
      tell: says one line to the user.
      writes: whether this process puts anything anywhere.
      guards: what `open_guards` opened already for these settings.
      early: what was asked of these for this start.

    Raises:
      SettingError: an address or a key cannot be used.
      MissingClientError: a library is not installed.
    """
    tiers = open_tiers(in_force, tell, writes=writes, guards=guards)
    writable = None if store.read_only else store
    made = made_in(store.root, store.shared)
    uploads = Uploads(None if writable is None else store.root, tiers, _reader(store), tell, made=made.has)
    uploads.resume()
    return Remotes(tiers, uploads, writable, early, made)


def open_guards(in_force: Settings, tell: Callable[[str], None]) -> list[Guarded]:
    """The remotes of these settings with nothing but their deadlines, the nearest first.

    Raises:
      SettingError: an address cannot be used.
      MissingClientError: a library is not installed.
    """
    return [_guarded(address, tell) for address in parsed(in_force.remote)]


def open_tiers(
    in_force: Settings, tell: Callable[[str], None], *, writes: bool = True, guards: Sequence[Guarded] = ()
) -> list[RemoteTier]:
    """The remotes alone, the nearest first; `guards` is what `open_guards` opened already.

    Raises:
      SettingError: an address or a key cannot be used.
      MissingClientError: a library is not installed.
    """
    addresses = parsed(in_force.remote)
    keyring = keyring_of(in_force)
    known = [*guards, *[None] * (len(addresses) - len(guards))]
    return [
        open_tier(address, in_force, keyring, tell, writes=writes, guard=guard)
        for address, guard in zip(addresses, known, strict=True)
    ]


def parsed(texts: Sequence[str]) -> list[Address]:
    """The addresses that the user spelled.

    Raises:
      SettingError: one is none.
    """
    try:
        return [parse(text) for text in texts]
    except ValueError as error:
        raise SettingError(f"remote (REWARM_REMOTE): {error}") from None  # its cause may show a secret


def keyring_of(in_force: Settings) -> Keyring:
    """The keys of these settings, and of the user's own folder.

    Raises:
      SettingError: one cannot be used.
    """
    try:
        return trust.load(sources_of(in_force))
    except trust.UnusableKeyError as error:
        raise SettingError(str(error)) from None


def sources_of(in_force: Settings) -> KeySources:
    """Where these settings have keys from.

    Raises:
      SettingError: the command for the signing key is no command line.
    """
    said, trusted = in_force.signing_key, in_force.trusted_keys
    try:
        command = tuple(shlex.split(in_force.signing_command))
    except ValueError:  # whose text would show it
        raise SettingError("signing_command: expected a command line, found one with an open quote") from None
    return KeySources(
        signing_text=said if _is_key(said) else None,
        signing_file=_file("signing_key", said) if said and not _is_key(said) else None,
        signing_command=command,
        trusted_texts=tuple(text for text in trusted if _is_key(text)),
        trusted_paths=tuple(_file("trusted_keys", text) for text in trusted if not _is_key(text)),
        folder=trust.default_folder(),
    )


def _is_key(text: str) -> bool:
    return text.startswith("rewarm-")


def _file(setting: str, text: str) -> Path:
    """The path that this is, unless it is more like a key: errors show paths, and a key that was cut or quoted is one
    still.

    Raises:
      SettingError: it is.
    """
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - unlike Path.expanduser it never raises
    if _LIKE_A_KEY.search(text) and not os.path.lexists(path):
        raise SettingError(
            f"{setting} (REWARM_{setting.upper()}): expected a key, which starts with rewarm-, or the path of a file, "
            "found neither (it is not shown, since it may be a secret)"
        )
    return path


def open_tier(
    address: Address,
    in_force: Settings,
    keyring: Keyring,
    tell: Callable[[str], None],
    *,
    writes: bool = True,
    guard: Guarded | None = None,
) -> RemoteTier:
    """One remote, as `open_tiers` makes them.

    Raises:
      SettingError: its address cannot be used.
      MissingClientError: its library is not installed.
    """
    said = say_nothing if address.errors == "ignore" else tell
    return RemoteTier(
        guard or _guarded(address, tell),
        namespaces=Namespaces(in_force.namespace, in_force.read_namespaces),
        keyring=keyring,
        posture=trust.as_posture(address.trust),
        writes=writes and address.write,
        tell=said,
        fails=in_force.strict and address.errors == "fail",
        keeps_only_new=address.keeps_only_new,
        takes_results=address.write,
        identity=address.identity,
    )


def _guarded(address: Address, tell: Callable[[str], None]) -> Guarded:
    said = say_nothing if address.errors == "ignore" else tell
    return Guarded(_blobs_of(address), deadline=address.deadline, tell=said)


def _blobs_of(address: Address) -> Blobs:
    try:
        return open_blobs(address)
    except RemoteError as error:
        raise SettingError(f"remote (REWARM_REMOTE): {address}: {error.reason}") from None


def _reader(store: LocalStore) -> Callable[[str], bytes | None]:
    def read(key: str) -> bytes | None:
        try:
            return store.get(key, use=False)
        except (StoreError, BadEntryError):
            return None

    return read
