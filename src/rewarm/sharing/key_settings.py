"""From what the user says of keys to a keyring. Knows no remote: who only wants to know whose key signs comes here.

Not promised: that a key is good, or there; that is found out when it is read.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from rewarm import trust
from rewarm.errors import SettingError
from rewarm.in_force import Settings
from rewarm.trust import Keyring, KeySources

# As much base64 as the shortest key has.
_LIKE_A_KEY = re.compile(r"[A-Za-z0-9+/]{40}")


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
