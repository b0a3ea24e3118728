"""Which place an address means: what tells it from every other that holds other blobs.

Not promised: that two texts mean two places. One place may have several spellings, and each has a text of its own: then
what was owed under one of them is not sent under the other, and is forgotten after a month. Credentials are left out,
since they change where the place does not; a server that shows other blobs to each of its users is one place.

No text has a secret: options that say where a place is are none, and for what clients read elsewhere stands a digest.
Which variables they read, and what an option is worth beside one, was found with obstore 0.12: the URLs that it signs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rewarm import settings

_KEY_BYTES = 64 << 10


class _Say(NamedTuple):
    """Something that says where a place is.

    Attributes:
      option: of an address.
      variables: of the environment, which the client reads where the address has no such option.
    """

    option: str
    variables: tuple[str, ...] = ()


_SAY: Mapping[str, tuple[_Say, ...]] = {
    "s3": (
        _Say("endpoint", ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")),
        _Say("virtual_hosted", ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST",)),
        _Say("s3_express", ("AWS_S3_EXPRESS",)),
        # The names of buckets are unique in a partition of AWS, and regions belong to one.
        _Say("region", ("AWS_REGION", "AWS_DEFAULT_REGION")),
        _Say("profile", ("AWS_PROFILE",)),
    ),
    "gs": (_Say("endpoint", ("GOOGLE_BASE_URL",)),),
    "az": (
        _Say("account_name", ("AZURE_STORAGE_ACCOUNT_NAME",)),
        _Say("endpoint", ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")),
        _Say("use_emulator", ("AZURE_STORAGE_USE_EMULATOR",)),
        _Say("", ("AZURITE_BLOB_STORAGE_URL",)),
        _Say("use_fabric_endpoint", ("AZURE_USE_FABRIC_ENDPOINT",)),
    ),
    "http": (_Say("layout"),),
    "https": (_Say("layout"),),
    "redis": (_Say("db"), _Say("prefix")),
    "rediss": (_Say("db"), _Say("prefix")),
}

# A key of Google's may name another server, and a connection string of Azure's an account; both have secrets as well.
_GOOGLE_FILES = ("service_account", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")
_GOOGLE_KEYS = ("service_account_key", "GOOGLE_SERVICE_ACCOUNT_KEY")
_AZURE_STRINGS = ("connection_string", "AZURE_STORAGE_CONNECTION_STRING")
_AZURE_PLACES = ("accountname", "blobendpoint", "endpointsuffix", "usedevelopmentstorage", "developmentstorageproxyuri")


def whereabouts(scheme: str, url: str, options: Mapping[str, str]) -> str:
    """One line that no address of another place has, without secrets; in the environment of this moment.

    Args:
      scheme: of the address, without aliases.
      url: without query and credentials.
      options: of the client.
    """
    said = (part for say in _SAY.get(scheme, ()) for part in _said(say, options))
    more = {"gs": _of_google, "az": _of_azure}.get(scheme)
    return " ".join([url, *said, *(more(options) if more is not None else ())])


def _said(say: _Say, options: Mapping[str, str]) -> Iterator[str]:
    if say.option in options:
        yield f"{say.option}={quote(options[say.option], safe='/:')}"
    elif found := settings.variables(say.variables):
        yield f"{say.option}:{_digest(sorted(found.items()))}"


def _of_google(options: Mapping[str, str]) -> Iterator[str]:
    """The server that a key names."""
    known = {**settings.variables((*_GOOGLE_FILES, *_GOOGLE_KEYS)), **options}
    texts = [known[name] for name in _GOOGLE_KEYS if name in known]
    texts += [text for name in _GOOGLE_FILES if name in known and (text := _contents(known[name])) is not None]
    servers = [server for text in texts if (server := _server_in(text)) is not None]
    if servers:
        yield f"key:{_digest(servers)}"


def _server_in(key: str) -> str | None:
    try:
        server = json.loads(key).get("gcs_base_url")
    except (ValueError, AttributeError, RecursionError):
        return None
    return server if isinstance(server, str) else None


def _contents(path: str) -> str | None:
    try:
        with Path(os.path.expanduser(path)).open(encoding="utf-8", errors="replace") as file:  # noqa: PTH111
            return file.read(_KEY_BYTES)
    except (OSError, ValueError):
        return None


def _of_azure(options: Mapping[str, str]) -> Iterator[str]:
    """The account that a connection string names."""
    known = {**settings.variables(_AZURE_STRINGS), **options}
    for name in _AZURE_STRINGS:
        parts = [part.partition("=") for part in known.get(name, "").split(";")]
        places = [(key.strip().lower(), value) for key, _, value in parts if key.strip().lower() in _AZURE_PLACES]
        if places:
            yield f"string:{_digest(sorted(places))}"


def _digest(said: object) -> str:
    return hashlib.sha256(json.dumps(said).encode("ascii")).hexdigest()[:16]
