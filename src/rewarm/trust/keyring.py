"""The keyring: with which key this process signs, whose signatures it trusts, and which keys are revoked.

Not promised: that a key which is revoked while a program runs counts as revoked there; a keyring is read once.

Race: threads that need the key of a command at once. One runs it, the others wait, for a little longer than the
command may take; a process that was forked meanwhile waits that long once and goes on without the key.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from rewarm.trust import key_files
from rewarm.trust.errors import UnusableKeyError
from rewarm.trust.keys import SigningKey, TrustedKey, is_id, tag_of

SIGNING_NAME = "signing.key"
TRUSTED_NAME = "trusted"

# Seconds; more than a command may take (`key_command.DEADLINE`) and its end.
_WAIT = 12.0


class KeySources(NamedTuple):
    """Where keys come from. At most one source of a signing key; without one, the folder's `signing.key` if there.

    Attributes:
      signing_text: the line of a signing key.
      signing_file: a file with one.
      signing_command: a command that prints one, as a list of arguments; run when a key is first needed.
      trusted_texts: lines of trusted keys.
      trusted_paths: files of trusted keys, and folders with `*.pub` and, if there, a list `revoked`.
      revoked: ids of keys, beside those of the folders.
      folder: the user's own folder of keys (`default_folder`), which need not be there; `None` for none.
    """

    signing_text: str | None = None
    signing_file: Path | None = None
    signing_command: tuple[str, ...] = ()
    trusted_texts: tuple[str, ...] = ()
    trusted_paths: tuple[Path, ...] = ()
    revoked: tuple[str, ...] = ()
    folder: Path | None = None

    def __repr__(self) -> str:  # texts and arguments may be secrets
        return f"<KeySources {self.signing_file} {self.trusted_paths} {self.folder}>"


class Keyring:
    """Keys by what they are for. Safe for any number of threads.

    Args:
      signing: the process's own key, which is trusted too, or what gets it when it is first needed.
      trusted: the keys of others.
      revoked: ids. A revoked key is never trusted and never signs.
    """

    def __init__(
        self,
        signing: SigningKey | Callable[[], SigningKey] | None = None,
        trusted: Iterable[TrustedKey] = (),
        revoked: Iterable[str] = (),
    ) -> None:
        self.trusted = {key.id: key for key in trusted}
        self.revoked = frozenset(revoked)
        self._own = signing if isinstance(signing, SigningKey) else None
        self._get = None if isinstance(signing, SigningKey) else signing
        self._failure: UnusableKeyError | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Keyring of {len(self.trusted)} trusted and {len(self.revoked)} revoked keys>"

    def is_revoked(self, signer: str) -> bool:
        """Whether the key of this id is revoked."""
        return signer in self.revoked

    def knows(self, signer: str) -> bool:
        """Whether this is the id of a key that is trusted or revoked here; nothing is asked for it."""
        return signer in self.revoked or signer in self.trusted or (self._own is not None and self._own.id == signer)

    def find(self, signer: str) -> TrustedKey | None:
        """The trusted key of this id; `None` where there is none, or it is revoked.

        An id that is not known may be the process's own: its key is got for that, from a command at most once.

        Raises:
          UnusableKeyError: the process's own key cannot be had, so nobody can tell.
        """
        if signer in self.revoked:
            return None
        known = self.trusted.get(signer)
        if known is not None:
            return known
        own = self.own_key()
        return own.public if own is not None and own.id == signer else None

    def signing_key(self) -> SigningKey | None:
        """The key to sign with, or `None` where the user has none.

        Raises:
          UnusableKeyError: there is one and it cannot be had, or it is revoked.
        """
        own = self.own_key()
        if own is not None and own.id in self.revoked:
            raise UnusableKeyError(
                own.where, "a signing key that is trusted", f"a revoked one, {own.id}", "make a new one"
            )
        return own

    def own_key(self) -> SigningKey | None:
        """The process's own key, revoked or not; what gets it is called once, whether it fails or not.

        Raises:
          UnusableKeyError: it cannot be had.
        """
        if self._get is not None:
            self._fetch()
        if self._failure is not None:
            raise UnusableKeyError(*self._failure.args)
        return self._own

    def _fetch(self) -> None:
        ours = self._lock.acquire(timeout=_WAIT)
        try:
            if self._get is None:  # another thread was faster
                return
            if not ours:
                raise UnusableKeyError("the signing key", "an answer", f"none after {_WAIT:.0f} s", "start again")
            self._own, self._get = self._get(), None
        except UnusableKeyError as error:
            self._failure, self._get = error, None
        finally:
            if ours:
                self._lock.release()


def default_folder() -> Path | None:
    """The user's own folder of keys, `<user config dir>/rewarm/keys`; `None` for a user without a home."""
    import platformdirs

    try:
        path = platformdirs.user_config_path("rewarm", appauthor=False) / "keys"
    except RuntimeError:
        return None
    return path if path.is_absolute() else None


def load(sources: KeySources) -> Keyring:
    """The keyring of these sources. Files are read here, a command is run later.

    Raises:
      UnusableKeyError: the first source that cannot be used. None is passed over: a list of revoked keys that cannot
        be read would let them all in.
    """
    revoked = [_checked_id(text) for text in sources.revoked]
    trusted = [
        TrustedKey.from_text(text, f"trusted key {number}") for number, text in enumerate(sources.trusted_texts, 1)
    ]
    for path in sources.trusted_paths:
        if os.path.isdir(path):  # noqa: PTH112 - unlike Path.is_dir it never raises
            _add_folder(path, path, trusted, revoked)
        else:
            trusted += key_files.trusted_keys(path)
    folder = sources.folder if sources.folder is not None and key_files.exists(sources.folder) else None
    if folder is not None:
        key_files.check_folder(folder)
        _add_folder(folder, folder / TRUSTED_NAME, trusted, revoked)
    return Keyring(_signing(sources, folder), trusted, revoked)


def tag_of_signing(sources: KeySources) -> str:
    """What tells the key with which these sources sign from others, `SigningKey.tag`; "" where there is none that can
    be used. Of a command, which is not run for this, it is the command that counts. Never raises."""
    try:
        found = _signing(sources, sources.folder)
    except UnusableKeyError:
        return ""
    if isinstance(found, SigningKey):
        return found.tag
    return "" if found is None else tag_of(*(os.fsencode(word) for word in sources.signing_command))


# -- inside --------------------------------------------------------------------------------------------------------


def _checked_id(text: str) -> str:
    word = text.strip().lower()
    if not is_id(word):
        raise UnusableKeyError("a revoked key", "its id, 32 hexadecimal digits", "something else", "see rewarm keys ls")
    return word


def _add_folder(lists: Path, keys: Path, trusted: list[TrustedKey], revoked: list[str]) -> None:
    """Add the keys of the folder `keys`, which need not be there, and what the folder `lists` has as revoked."""
    if key_files.exists(lists / key_files.REVOKED):
        revoked += key_files.revoked_ids(lists / key_files.REVOKED)
    if key_files.exists(keys):
        trusted += key_files.keys_in(keys)


def _signing(sources: KeySources, folder: Path | None) -> SigningKey | Callable[[], SigningKey] | None:
    said = [bool(sources.signing_text), sources.signing_file is not None, bool(sources.signing_command)]
    if sum(said) > 1:
        raise UnusableKeyError("the signing key", "one source", f"{sum(said)}", "give a text, a file or a command")
    if sources.signing_text:
        return SigningKey.from_text(sources.signing_text, "the signing key")
    if sources.signing_file is not None:
        return key_files.signing_key(sources.signing_file)
    if sources.signing_command:
        return lambda: _of_command(sources.signing_command)
    if folder is not None and key_files.exists(folder / SIGNING_NAME):
        return key_files.signing_key(folder / SIGNING_NAME)
    return None


def _of_command(command: tuple[str, ...]) -> SigningKey:
    from rewarm.trust import key_command

    # The program's name alone: a secret may stand even in a command line that was given as one word.
    where = f"the command {(command[0].split() or ['?'])[0]} for the signing key"
    return SigningKey.from_text(key_command.output_of(command, where), where)
