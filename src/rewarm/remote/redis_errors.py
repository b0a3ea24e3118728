"""What an error of Redis, Valkey or their client says about the remote.

Not promised: that every error is known. One that is not is no reason to pass the server over when it came as an answer,
and is one when no answer came. What the client wrote is not passed on: it may hold names of blobs.

Source of the codes: the first words of the servers' error answers (`src/server.c`, `createSharedObjects`), and
`redis/_parsers/base.py` of the client, which makes classes of some.
"""

from __future__ import annotations

from rewarm.remote.blobs import (
    TOO_LARGE,
    NoSuchPlaceError,
    RefusedError,
    RemoteError,
    ThrottledError,
    TooLargeError,
    UnreachableError,
)

# Errors by the first word of the server's answer, or by a part of it, and what they mean.
_CODES: tuple[tuple[str, type[RemoteError], str], ...] = (
    ("NOPERM", RefusedError, "no permission for this command or key"),
    ("OOM", RefusedError, "the server is out of memory (maxmemory)"),
    ("READONLY", RefusedError, "the server is a read-only replica"),
    ("MISCONF", RefusedError, "the server takes no writes, since it cannot save"),
    ("NOREPLICAS", RefusedError, "the server takes no writes, since it has too few replicas"),
    ("MOVED", RefusedError, "the server is a node of a cluster"),
    ("ASK", RefusedError, "the server is a node of a cluster"),
    ("CROSSSLOT", RefusedError, "the server is a node of a cluster"),
    ("WRONGTYPE", RemoteError, "something else lies under the name"),
    ("LOADING", UnreachableError, "the server is loading its data"),
    ("MASTERDOWN", UnreachableError, "the replica has lost its master"),
    ("CLUSTERDOWN", UnreachableError, "the cluster is down"),
    ("BUSY", UnreachableError, "the server is busy"),
    ("TRYAGAIN", UnreachableError, "the server is busy"),
)
# Of some errors the client makes a class, and takes the first word away.
_CODE_OF = {
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "NoPermissionError": "NOPERM",
    "BusyLoadingError": "LOADING",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "TryAgainError": "TRYAGAIN",
    "ClusterCrossSlotError": "CROSSSLOT",
}
_PHRASES: tuple[tuple[str, type[RemoteError], str], ...] = (
    ("DB index is out of range", NoSuchPlaceError, "the server has no database of this number"),
    ("max number of clients", ThrottledError, "the server has too many clients"),
    ("Authentication required", RefusedError, "the server wants a password"),
    ("unknown command", RefusedError, "the server does not know a command"),
    ("invalid bulk length", TooLargeError, TOO_LARGE),
)


def kind_of(error: Exception) -> RemoteError:
    """The same error as a kind of `RemoteError`."""
    import redis

    said = _said(str(error).rpartition("pipeline caused error: ")[2], type(error).__name__)
    if said is not None:
        return said
    if isinstance(error, redis.AuthenticationError):
        return RefusedError("the server does not accept the user or password")
    if isinstance(error, (redis.TimeoutError, TimeoutError)):
        return UnreachableError("timed out")
    if isinstance(error, redis.ResponseError):
        return RemoteError("the server answers with an error")
    return UnreachableError(_why(error))


def _said(text: str, name: str) -> RemoteError | None:
    """What the server's own words say."""
    first = text.partition(" ")[0]
    for code, kind, reason in _CODES:
        if code in (first, _CODE_OF.get(name)):
            return kind(reason)
    for phrase, kind, reason in _PHRASES:
        if phrase in text:
            return kind(reason)
    return None


def _why(error: Exception) -> str:
    """Why there is no connection, in the system's words."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and not isinstance(seen, TimeoutError) and seen.strerror:
            return seen.strerror.lower()
        seen = seen.__cause__ or seen.__context__
    return "the connection broke"
