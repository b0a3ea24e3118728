"""From an address to its blobs.

Not promised: that there is anything. Nobody is asked, and no client is imported, before the first verb.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util

from rewarm.errors import RewarmError
from rewarm.remote.address import Address
from rewarm.remote.blobs import Blobs

_CLIENTS = {"redis": "redis", "rediss": "redis", "file": ""}


class MissingClientError(RewarmError, ImportError):
    """The library that speaks to this kind of remote is not installed; the message names the extra."""


def client_of(address: Address) -> str:
    """The library that speaks to this kind of remote, by the name of its distribution; "" where none is needed."""
    return _CLIENTS.get(address.scheme, "obstore")


def open_blobs(address: Address) -> Blobs:
    """The blobs at `address`.

    Raises:
      MissingClientError: the library that they need is not installed.
    """
    _require(address, client_of(address))
    _before_the_end()
    if address.scheme == "file":
        from rewarm.remote.folder import FolderBlobs

        return FolderBlobs.of(address)
    if address.scheme in ("redis", "rediss"):
        from rewarm.remote.redis_blobs import RedisBlobs

        return RedisBlobs.of(address)
    from rewarm.remote.objects import ObjectBlobs

    return ObjectBlobs(address)


def _before_the_end() -> None:
    """Import what most clients import somewhere, and what cannot be for the first time when the program is at its end
    ("can't register atexit after shutdown"). So a client that is needed first then can be imported."""
    with contextlib.suppress(RuntimeError):
        importlib.import_module("concurrent.futures.thread")


def _require(address: Address, library: str) -> None:
    if library and importlib.util.find_spec(library) is None:
        raise MissingClientError(
            f'{address} needs {library}, which is not installed; install it with: pip install "rewarm[remote]"'
        )
