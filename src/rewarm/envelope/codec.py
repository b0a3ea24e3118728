"""Compression of an entry's sections. Neither codec nor level is part of any key.

Not promised: any protection. A codec is given bytes only after the envelope's digest held.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from rewarm.errors import BadEntryError

Buffer = bytes | memoryview


@functools.cache
def _zstd() -> Any:
    # Imported at first use: 10 ms that `import rewarm` must not cost.
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _zstd_compress(raw: bytes, level: int) -> bytes:
    packed: bytes = _zstd().compress(raw, level=level)
    return packed


def _zstd_decompress(packed: Buffer, raw_length: int) -> bytes:
    zstd = _zstd()
    decompressor = zstd.ZstdDecompressor()
    try:
        # One byte more than promised is asked for, so that a longer frame shows without being unpacked.
        raw: bytes = decompressor.decompress(packed, max_length=min(raw_length, sys.maxsize - 1) + 1)
    except zstd.ZstdError as error:
        raise BadEntryError(f"zstd: {error}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise BadEntryError("zstd: the section is not one whole frame")
    return raw


def _keep(raw: bytes, level: int) -> bytes:  # noqa: ARG001 - the codecs share one shape
    return raw


def _kept(packed: Buffer, raw_length: int) -> bytes:  # noqa: ARG001 - the codecs share one shape
    return bytes(packed)


CODECS: dict[str, tuple[Callable[[bytes, int], bytes], Callable[[Buffer, int], bytes]]] = {
    "zstd": (_zstd_compress, _zstd_decompress),
    "raw": (_keep, _kept),
}


def compress(codec: str, raw: bytes, level: int) -> bytes:
    """`raw` packed by `codec` ("zstd", "raw") at `level` (zstd: 1 to 22)."""
    return CODECS[codec][0](raw, level)


def decompress(codec: str, packed: Buffer, raw_length: int) -> bytes:
    """`packed` unpacked; never more than `raw_length` + 1 bytes are produced.

    Raises:
      BadEntryError: unknown codec, a damaged frame, or another length than `raw_length`.
    """
    if codec not in CODECS:
        raise BadEntryError(f"codec {codec!r} is not one of {', '.join(CODECS)}")
    raw = CODECS[codec][1](packed, raw_length)
    if len(raw) != raw_length:
        raise BadEntryError(f"a section of {raw_length} bytes unpacks to another length")
    return raw
