"""The layout of caches for Bazel over HTTP, such as bazel-remote, which take no names but those of Bazel's own.

Not promised: that a blob can be listed or removed there; such caches do neither, and drop what was not used for long.
Names have no prefix either: `http://host/a` and `http://host/b` are one cache, unless it is told to keep them apart
(`--enable_ac_key_instance_mangling`). An entry is signed for its namespace, so nobody is misled by that.

    <address>/ac/<64 hex>     the SHA-256 of a blob's name; the blob in an `ActionResult`:

    message ActionResult { bytes stdout_raw = 5; ExecutedActionMetadata execution_metadata = 9; }
    message ExecutedActionMetadata { string worker = 1; }

"ac" and not "cas", whose names are digests of content. bazel-remote parses what it is given for "ac", writes it anew,
and hands it out only while all blobs that it names are there, unless it runs with `--disable_http_ac_validation`; a
result that has its output in itself names none. Where no worker is named, it would put in the client's address.

Sources: `server/http.go`, `cache/disk/disk.go` and `utils/validate` of https://github.com/buchgr/bazel-remote (July
2026), and `build/bazel/remote/execution/v2/remote_execution.proto` of https://github.com/bazelbuild/remote-apis.
"""

from __future__ import annotations

import hashlib

from rewarm.remote.blobs import RemoteError

# The name of an option of an address, and its values. Without it, that is found out where a name is refused.
OPTION, BAZEL, PLAIN = "layout", "bazel", "plain"

# What a server answers for a name of another form, as its status.
BAD_NAME = 400

# What bazel-remote says to a blob that is larger than its `--max_blob_size`, with the same status.
TOO_LARGE_THERE = "exceeds maximum allowed size"

_STDOUT, _METADATA, _WORKER = 5, 9, 1
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_LONGEST_VARINT = 10

# So many bytes a blob has more there, at most: tags, lengths, and the address of a client.
MORE = 512


def name_of(name: str) -> str:
    """The name that a blob has there."""
    return f"ac/{hashlib.sha256(name.encode('ascii')).hexdigest()}"


def wrapped(data: bytes) -> bytes:
    """A blob as it is put there."""
    worker = _field(_WORKER, b"rewarm")
    return b"".join((_head(_STDOUT, len(data)), data, _field(_METADATA, worker)))


def unwrapped(message: bytes) -> bytes:
    """The blob in what came from there, whoever wrote that.

    Raises:
      RemoteError: it is no such message.
    """
    start = end = at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _LENGTH:
            length, at = _varint(message, at)
            if tag >> 3 == _STDOUT:
                start, end = at, at + length
            at += length
        elif kind == _VARINT:
            _, at = _varint(message, at)
        else:
            at += {_EIGHT: 8, _FOUR: 4}.get(kind, len(message) + 1)
    if at > len(message) or not message:
        raise _bad()
    return message[start:end]  # none: an empty one, which is left out when a message is written


def _field(number: int, value: bytes) -> bytes:
    return _head(number, len(value)) + value


def _head(number: int, length: int) -> bytes:
    return _as_varint(number << 3 | _LENGTH) + _as_varint(length)


def _as_varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    number = 0
    for place, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise _bad()


def _bad() -> RemoteError:
    return RemoteError("what is there has not the layout of this remote")
