"""Blobs in Redis or Valkey, by the `redis` client, which both servers speak with.

Not promised: that a blob stays (the server's own `maxmemory-policy` removes what it likes), nor that one survives a
restart of the server, which is a matter of its persistence. A cluster's nodes are refused: this client follows no
"MOVED". Redis keeps no time at which a key was set, so the value carries it:

    key   := <prefix> ":" <name of the blob>
    value := milliseconds since the epoch, by the server's clock, 8 bytes, most significant first; then the blob

A value that is shorter than its time is somebody else's, and is no blob.

Races, and their worst outcome:

* a blob that is replaced between two of a reader's commands: each command is answered whole, and what is returned came
  from one. When the blob was removed between them, it is a miss.
* a scan beside writers: a blob that is put or removed meanwhile is in it or not. A scan reads from every blob, so for a
  server that evicts what was not used for the longest time, all were used then.
* two threads that ask first at the same moment: each makes a pool of connections, and one is dropped, not yet open.

Sources: https://redis.io/docs/latest/commands/ for SET, GETRANGE, STRLEN, SCAN and TIME.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from rewarm.errors import SettingError
from rewarm.remote.blobs import TOO_LARGE, BlobInfo, RemoteError, TooLargeError, check_name
from rewarm.remote.redis_errors import kind_of
from rewarm.remote.redis_meter import metered

if TYPE_CHECKING:
    from rewarm.remote.address import Address

_STAMP = struct.Struct(">Q")

# So many bytes come with the first answer: most entries whole, in one round trip.
_FIRST = 64 << 10

# Of a value: the server's own limit (proto-max-bulk-len) unless it was changed.
_LARGEST = 512 << 20

_SCAN_COUNT = 1000
_PORT = 6379
_PREFIX = "rewarm"
_TLS_TEXT = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")


class RedisBlobs:
    """The blobs under one prefix of one database. Safe for any number of threads.

    Args:
      url: `redis://host:port/3/prefix`, `rediss://` for TLS; "valkey" may stand for "redis". A first segment that is a
        number is the database (default 0), the others are the prefix (default "rewarm").
      deadline: seconds that connecting, and each wait for the server, may take.
      options: "username", "password", "db", "prefix", "ttl" (seconds after which a blob goes), and "ssl_ca_certs",
        "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname".

    Raises:
      SettingError: the URL or an option cannot be used.
    """

    reopens_after_fork = True

    def __init__(self, url: str, *, deadline: float, options: Mapping[str, str] | None = None) -> None:
        options = dict(options or {})
        self._connection = _connection(url, options, deadline)
        self._prefix = options.get("prefix") or _prefix_in(url)
        self._ttl = _number("ttl", options["ttl"], least=1) if "ttl" in options else None
        self._client: Any = None
        self._pid = 0
        self._offset: float | None = None

    @classmethod
    def of(cls, address: Address) -> RedisBlobs:
        """The blobs at an address.

        Raises:
          SettingError: it cannot be used.
        """
        return cls(address.url, deadline=address.deadline, options=address.options)

    @property
    def place(self) -> str:
        """Such as "redis://host:6379/0/rewarm"."""
        at = self._connection
        return f"redis{'s' if at['ssl'] else ''}://{at['host']}:{at['port']}/{at['db']}/{self._prefix}"

    def prepare(self) -> None:
        """Import the client, which takes a fifth of a second: not the server's time. Nothing is asked."""
        import redis

        self._opened(redis)

    # -- the verbs ---------------------------------------------------------------------------------------------

    def get(self, name: str, *, limit: int) -> bytes | None:
        """See `Blobs.get`. Its size is known before it is read, but for the first 64 KiB."""
        key = self._key(name)
        whole = limit + _STAMP.size  # GETRANGE counts from 0 and includes its end: one byte more than is wanted
        first = min(_FIRST, whole)
        with self._asking() as client:
            start, size = client.pipeline(transaction=False).getrange(key, 0, first).strlen(key).execute()
            if len(start) <= first:
                return _blob(start, limit)
            if size > whole:
                raise TooLargeError("larger than the reader wants")
            return _blob(client.getrange(key, 0, whole), limit)

    def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
        """See `Blobs.put`; the server enforces `only_new`."""
        key = self._key(name)
        if len(data) + _STAMP.size > _LARGEST:
            raise TooLargeError(TOO_LARGE)
        with self._asking() as client:
            value = self._stamp(client) + data
            return client.set(key, value, nx=only_new, ex=self._ttl) is not None

    def delete(self, name: str) -> None:
        """See `Blobs.delete`."""
        key = self._key(name)
        with self._asking() as client:
            client.delete(key)

    def scan(self, prefix: str) -> Iterator[BlobInfo]:
        """See `Blobs.scan`. Goes through all keys of the database, a thousand at a time."""
        pattern = _literally(self._key(prefix)) + "/*"
        seen: set[bytes] = set()
        cursor = 0
        while True:
            with self._asking() as client:
                cursor, keys = client.scan(cursor, match=pattern, count=_SCAN_COUNT)
                new = [key for key in dict.fromkeys(keys) if key not in seen]
                infos = self._infos(client, new)
            seen.update(new)
            yield from infos
            if cursor == 0:
                return

    def eviction(self) -> tuple[int, str] | None:
        """How many bytes the server may hold (0: no bound), and its `maxmemory-policy`; `None` where it does not tell.

        Raises:
          RemoteError: there is no answer.
        """
        import redis

        with self._asking() as client:
            try:
                told = client.config_get("maxmemory*")
            except redis.ResponseError:  # managed servers do not know the command, or nobody has the right to it
                return None
        try:
            return int(told["maxmemory"]), str(told["maxmemory-policy"])
        except (KeyError, TypeError, ValueError):
            return None

    def close(self) -> None:
        """Let go of connections. In a child of fork they are the parent's: they are dropped, and not shut down."""
        client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            with contextlib.suppress(Exception):  # what is wrong with a connection that goes is of no consequence
                client.connection_pool.disconnect()

    # -- inside ------------------------------------------------------------------------------------------------

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{check_name(name)}"

    def _stamp(self, client: Any) -> bytes:
        """Now, by the server's clock, whose distance from ours is asked for once."""
        if self._offset is None:
            self._offset = _offset_of(client)
        return _STAMP.pack(int((time.time() + self._offset) * 1000))

    def _infos(self, client: Any, keys: list[bytes]) -> list[BlobInfo]:
        if not keys:
            return []
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.strlen(key).getrange(key, 0, _STAMP.size - 1)
        answers = pipeline.execute(raise_on_error=False)
        found = zip(keys, answers[::2], answers[1::2], strict=True)
        return [info for key, size, stamp in found if (info := self._info(key, size, stamp)) is not None]

    def _info(self, key: bytes, size: Any, stamp: Any) -> BlobInfo | None:
        """What a scan says of a key; `None` where it is no blob, or is gone."""
        if not isinstance(stamp, bytes) or len(stamp) < _STAMP.size:
            return None
        name = key[len(self._prefix.encode()) + 1 :].decode("ascii", "replace")
        with contextlib.suppress(ValueError):
            return BlobInfo(check_name(name), size - _STAMP.size, _STAMP.unpack(stamp)[0] / 1000)
        return None

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Any]:
        """The client; whatever it raises comes out as a `RemoteError`."""
        import redis

        try:
            yield self._opened(redis)
        except RemoteError:
            raise
        except Exception as error:  # from damaged answers the client's parser makes any error there is
            raise kind_of(error) from error

    def _opened(self, redis: Any) -> Any:
        client = self._client
        if client is None:
            from redis.backoff import NoBackoff
            from redis.retry import Retry

            # Once more at once: after a restart of the server, connections in the pool are dead.
            retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
            # Protocol 2: version 3 adds round trips to each connection, and nothing that is used here.
            client = redis.Redis(**self._connection, retry=retry, protocol=2)
            pool = client.connection_pool
            pool.connection_class = metered(pool.connection_class, self._connection["socket_timeout"])
            self._pid = os.getpid()
            self._client = client
        return client


def _connection(url: str, options: Mapping[str, str], deadline: float) -> dict[str, Any]:
    """What the client needs to connect."""
    parts = urlsplit(url)
    scheme = parts.scheme.replace("valkey", "redis")
    if scheme not in ("redis", "rediss") or not parts.hostname:
        raise SettingError("a Redis server is spelled redis://host:port/db, or rediss:// for TLS")
    number = _segments(url)[0] if _segments(url) else ""
    tls: dict[str, Any] = {name: options[name] for name in _TLS_TEXT if name in options}
    if "ssl_check_hostname" in options:
        tls["ssl_check_hostname"] = options["ssl_check_hostname"].lower() not in ("no", "false", "0", "off")
    return {
        "host": parts.hostname,
        "port": parts.port or _PORT,
        "db": _number("db", options.get("db") or (number if number.isdecimal() else "0"), least=0),
        "username": options.get("username") or (unquote(parts.username) if parts.username else None),
        "password": options.get("password") or (unquote(parts.password) if parts.password else None),
        "socket_timeout": deadline,
        "socket_connect_timeout": deadline,
        "ssl": scheme == "rediss",
        **(tls if scheme == "rediss" else {}),
    }


def _segments(url: str) -> list[str]:
    return [unquote(segment) for segment in urlsplit(url).path.split("/") if segment]


def _prefix_in(url: str) -> str:
    segments = _segments(url)
    return "/".join(segments[1:] if segments and segments[0].isdecimal() else segments) or _PREFIX


def _number(name: str, text: str, *, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise SettingError(f"redis:// takes for {name!r} a whole number from {least}, found {text!r:.40}")
    return int(text)


def _literally(text: str) -> str:
    """A pattern of SCAN that matches this text alone."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)


def _blob(value: bytes, limit: int) -> bytes | None:
    if len(value) < _STAMP.size:
        return None
    if len(value) > limit + _STAMP.size:
        raise TooLargeError("larger than the reader wants")
    return bytes(value[_STAMP.size :])


def _offset_of(client: Any) -> float:
    """How far the server's clock is ahead of ours, in seconds; 0 where it does not tell."""
    import redis

    try:
        before = time.time()
        seconds, micros = client.time()
        return float(seconds + micros / 1e6 - (before + time.time()) / 2)
    except redis.ResponseError:  # a user who may not ask
        return 0.0
