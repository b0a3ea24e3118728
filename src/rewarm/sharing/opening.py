"""From what the user says of remotes and keys to remotes that can be asked.

Not promised: that a remote is there. Nothing is asked of any until the first look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rewarm import trust
from rewarm.errors import BadEntryError, SettingError, StoreError
from rewarm.in_force import Settings
from rewarm.remote.address import Address, parse
from rewarm.remote.blobs import Blobs, RemoteError
from rewarm.remote.guard import Guarded
from rewarm.remote.opening import open_blobs
from rewarm.sharing.early import Early
from rewarm.sharing.key_settings import keyring_of
from rewarm.sharing.made import made_by
from rewarm.sharing.maker import maker_of
from rewarm.sharing.remotes import Remotes
from rewarm.sharing.tier import Namespaces, RemoteTier
from rewarm.sharing.uploads import Uploads
from rewarm.store import LocalStore
from rewarm.telling import say_nothing
from rewarm.trust import Keyring


def open_remotes(
    in_force: Settings,
    store: LocalStore,
    tell: Callable[[str], None],
    *,
    writes: bool = True,
    sends: bool = False,
    guards: Sequence[Guarded] = (),
    early: Early | None = None,
) -> Remotes:
    """The remotes of these settings.

    Args:
      in_force: the settings.
      store: the local store.
      tell: says one line to the user.
      writes: whether this process puts anything anywhere, but where an address has all ranks write.
      sends: whether this process is going to send, at its end, what others leave for it.
      guards: what `open_guards` opened already for these settings.
      early: what was asked of these for this start.

    Raises:
      SettingError: an address or a key cannot be used.
      MissingClientError: a library is not installed.
    """
    tiers = open_tiers(in_force, tell, writes=writes, guards=guards)
    writable = None if store.read_only else store
    made, root = made_by(in_force, store), None if writable is None else store.root
    uploads = Uploads(root, tiers, _reader(store), tell, made=made.has, maker=maker_of(in_force))
    uploads.resume(load=sends)
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
        writes=(writes or address.ranks == "all") and address.write,
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
