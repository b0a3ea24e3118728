"""Checks of the keys, by what the remotes in force ask of an entry.

Not promised: that others trust the key which signs here; their keyrings are theirs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from rewarm.doctor.check import Check, counted, some
from rewarm.doctor.facts import Facts
from rewarm.errors import SettingError
from rewarm.in_force import Settings
from rewarm.remote.address import Address
from rewarm.sharing.key_settings import keyring_of
from rewarm.trust import Algorithm, Keyring, SigningKey, UnusableKeyError, as_posture

_SIGNING, _TRUSTED = "signing key", "trusted keys"


def checks(facts: Facts, in_force: Settings, addresses: Sequence[Address]) -> Iterator[Check]:
    """All of this file."""
    try:
        keyring = keyring_of(in_force)
    except SettingError as error:
        advice = "until it is corrected programs go on without any remote"
        yield Check("keys", "problem", str(error), advice)
        return
    yield from _library(facts, keyring)
    try:
        own = keyring.signing_key()
    except UnusableKeyError as error:
        yield Check(_SIGNING, "problem", str(error), "until it is corrected nothing is signed, and nothing sent")
        own = None
    else:
        yield from _signing(own, addresses)
    yield from _trusted(keyring, own, addresses)
    yield from _trusting(addresses)


def _library(facts: Facts, keyring: Keyring) -> Iterator[Check]:
    wanted = any(key.algorithm is Algorithm.ED25519 for key in keyring.trusted.values())
    if wanted and facts.seen and "cryptography" not in facts.seen["versions"]:
        found = f"keys here are of Ed25519, and {facts.seen['executable']} lacks the library cryptography"
        advice = f'{shlex.quote(facts.seen["executable"])} -m pip install "rewarm[remote]"'
        yield Check("keys", "problem", found, advice)


def _signing(own: SigningKey | None, addresses: Sequence[Address]) -> Iterator[Check]:
    written = [address for address in addresses if address.write]
    if not written:
        return
    if own is not None:
        yield Check(_SIGNING, "ok", f"what goes to remotes is signed with the key {own.id} ({own.where})")
        return
    strict = [str(address) for address in written if not as_posture(address.trust).takes_unsigned]
    if strict:
        found = f"there is no key to sign with, so nothing is sent to {some(strict)}"
        yield Check(_SIGNING, "problem", found, "rewarm keys new makes one; or say ?write=no")
    if len(strict) < len(written):
        found = "there is no key to sign with: entries go to remotes unsigned, which who asks for signatures refuses"
        yield Check(_SIGNING, "note", found, "rewarm keys new makes one")


def _trusted(keyring: Keyring, own: SigningKey | None, addresses: Sequence[Address]) -> Iterator[Check]:
    strict = [str(address) for address in addresses if not as_posture(address.trust).takes_unsigned]
    if not strict:
        return
    others = [name for name in keyring.trusted if not keyring.is_revoked(name) and (own is None or name != own.id)]
    if others:
        besides = "" if own is None else ", and your own"
        yield Check(
            _TRUSTED,
            "ok",
            f"{counted(len(others), 'key of others is', 'keys of others are')} trusted{besides} (rewarm keys ls)",
        )
    elif own is not None:
        yield Check(_TRUSTED, "ok", "your own key alone is trusted: what others put into remotes is refused")
    else:
        found = f"no key is trusted, so nothing that {some(strict)} has is accepted"
        advice = "rewarm keys trust FILE, with the public key of those who fill it; or rewarm keys new for your own"
        yield Check(_TRUSTED, "problem", found, advice)


def _trusting(addresses: Sequence[Address]) -> Iterator[Check]:
    """Remotes whose entries need not be signed: an entry is code."""
    for address in addresses:
        if as_posture(address.trust).takes_unsigned:
            found = f"whoever may write to {address} can run code here (trust={address.trust})"
            yield Check("trust", "note", found, "leave trust= out, once what is there is signed")
