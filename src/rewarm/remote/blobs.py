"""What rewarm asks of a remote: named blobs. Five verbs that object stores, HTTP caches, Redis and folders all have.

Not promised: that what was put is there at the next get, or that it is what was put. Blobs prove themselves (`trust/`
and the envelope), all writers of one name are equally good, and the last one wins. Nothing relies on `only_new`.

A name is a path of segments of ASCII letters, digits, "-", "_" and ".", joined by "/"; no segment starts with a dot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from rewarm.errors import RewarmError

_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z_.-]*(?:/[0-9A-Za-z_-][0-9A-Za-z_.-]*)*")
_LONGEST = 512

# The reason of a put of more bytes than the remote takes, whatever it is and however it says so.
TOO_LARGE = "larger than the remote takes"

# How the reason of a request begins that was not made, since the remote did not answer others.
PASSED_OVER = "passed over: "


class RemoteError(RewarmError):
    """A remote did not do what it was asked for.

    Attributes:
      reason: in a few words, without a name of a blob, so that counts by reason stay few; without credentials.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnreachableError(RemoteError):
    """No answer, an answer that breaks off, or one that says "not now" (5xx). The same may work a moment later."""


class ThrottledError(RemoteError):
    """Too many requests (429, 503).

    Attributes:
      retry_after: seconds to wait, as the remote says; `None` where it does not.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class RefusedError(RemoteError):
    """No right to do this (401, 403), or a remote that cannot do it at all. Trying again is of no use."""


class NoSuchPlaceError(RefusedError):
    """The bucket, container, or folder is not there: an address that is mistyped, not a cold cache."""


class TooLargeError(RemoteError):
    """The blob has more bytes than the reader wants, or than the remote takes."""


class TakenError(RemoteError):
    """What lies under this name is another user's, who alone may replace or remove it. Others are not concerned."""

    def __init__(self) -> None:
        super().__init__("another user's lies there, which he alone may replace (a sticky folder?)")


class BlobInfo(NamedTuple):
    """One blob as a scan sees it.

    Attributes:
      name: as it was put.
      size: bytes.
      modified: when it was last put, in seconds since the epoch, by the remote's clock.
    """

    name: str
    size: int
    modified: float


def check_name(name: str) -> str:
    """`name` itself, when it is one.

    Raises:
      ValueError: it is not. A name becomes part of a URL and of a path, so nothing else may pass.
    """
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise ValueError(f"not the name of a blob: {name!r:.80}")
    return name


class Blobs(Protocol):
    """One remote. Safe for any number of threads.

    Every verb raises `RemoteError` (one of its kinds) and nothing else that a remote can cause, and keeps to the
    timeout that it was made with. None is to be called in a process that was forked after the first call (`guard.py`
    sees to that).
    """

    @property
    def place(self) -> str:
        """Where it is, for logs and events, without credentials, such as "s3://bucket/prefix"."""

    def get(self, name: str, *, limit: int) -> bytes | None:
        """The bytes of a blob; `None` where there is none. More than `limit` bytes are a `TooLargeError`."""

    def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
        """Make `data` the blob, whole or not at all; returns whether it was written.

        With `only_new` a blob that is there stays and `False` comes back, where the remote enforces it; where it does
        not, it is overwritten (`probe.py` finds out).
        """

    def delete(self, name: str) -> None:
        """Remove a blob; one that is not there is no error."""

    def scan(self, prefix: str) -> Iterator[BlobInfo]:
        """The blobs whose name starts with `prefix` and a "/", in no order.

        Raises:
          RefusedError: this kind of remote cannot list.
        """

    def close(self) -> None:
        """Let go of connections; the next verb opens them again."""
