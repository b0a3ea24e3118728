"""The codecs: what was packed unpacks, what is damaged is refused, and no frame makes more bytes than were promised."""

from __future__ import annotations

import random
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewarm.envelope import CODECS, compress, decompress
from rewarm.errors import BadEntryError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MEGABYTE = 1 << 20


@given(st.binary(max_size=5000), st.sampled_from(sorted(CODECS)), st.integers(1, 22))
@settings(max_examples=150, deadline=None)
def test_what_was_packed_unpacks(raw: bytes, codec: str, level: int) -> None:
    assert decompress(codec, compress(codec, raw, level), len(raw)) == raw


@pytest.mark.parametrize("codec", sorted(CODECS))
@pytest.mark.parametrize("raw", [b"", b"\0", bytes(MEGABYTE), random.Random(0).randbytes(MEGABYTE)], ids=len)
def test_the_edges_round_trip(codec: str, raw: bytes) -> None:
    assert decompress(codec, compress(codec, raw, 3), len(raw)) == raw


def test_zstd_makes_smaller_and_a_higher_level_no_larger() -> None:
    raw = b"".join(b"instruction %d; " % (number % 97) for number in range(20_000))
    sizes = [len(compress("zstd", raw, level)) for level in (1, 19)]
    assert sizes[1] <= sizes[0] < len(raw) // 4


def test_raw_is_the_bytes_themselves() -> None:
    assert compress("raw", b"as it is", 3) == b"as it is"


@pytest.mark.parametrize("codec", sorted(CODECS))
@pytest.mark.parametrize("promised", [0, 1, 999, 1001, 2**31, 2**62, 2**63 - 1, 2**63, 2**64, 10**30])
def test_another_length_than_promised_is_a_bad_entry(codec: str, promised: int) -> None:
    packed = compress(codec, b"x" * 1000, 3)
    with pytest.raises(BadEntryError):
        decompress(codec, packed, promised)


@pytest.mark.parametrize("codec", ["lzma", "", "ZSTD", "zstd ", "raw\0"])
def test_an_unknown_codec_is_a_bad_entry(codec: str) -> None:
    with pytest.raises(BadEntryError, match="is not one of zstd, raw"):
        decompress(codec, b"x", 1)


def test_a_truncated_frame_is_a_bad_entry() -> None:
    raw = random.Random(0).randbytes(300)
    packed = compress("zstd", raw, 3)
    for length in range(len(packed)):
        with pytest.raises(BadEntryError, match="zstd"):
            decompress("zstd", packed[:length], len(raw))


def test_a_damaged_frame_is_a_bad_entry_or_the_promised_length() -> None:
    """The codec is no check: it may not notice, and then the length is all it answers for."""
    raw = b"the same words, the same words, " * 30
    packed = bytearray(compress("zstd", raw, 3))
    for position in range(len(packed)):
        packed[position] ^= 0x55
        try:
            assert len(decompress("zstd", bytes(packed), len(raw))) == len(raw)
        except BadEntryError as error:
            assert error.reason  # noqa: PT017 - either outcome is right
        packed[position] ^= 0x55


@pytest.mark.parametrize("tail", [b"\0", b"tail", compress("zstd", b"", 3), compress("zstd", b"another", 3)])
def test_anything_after_the_frame_is_a_bad_entry(tail: bytes) -> None:
    with pytest.raises(BadEntryError, match="not one whole frame"):
        decompress("zstd", compress("zstd", b"content", 3) + tail, len(b"content"))


@given(st.binary(max_size=300), st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_garbage_is_a_bad_entry(garbage: bytes, promised: int) -> None:
    for packed in (garbage, compress("zstd", b"", 3)[:4] + garbage):
        try:
            assert len(decompress("zstd", packed, promised)) == promised
        except BadEntryError as error:
            assert error.reason  # noqa: PT017 - garbage may be a frame by accident


# ---------------------------------------------------------------------------------------------------------------
# Frames that would fill the memory


def _peak_of_refusing(packed: bytes, promised: int) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(BadEntryError):
            decompress("zstd", packed, promised)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("promised", [0, 1, 10, 100_000])
def test_a_bomb_is_refused_without_being_unpacked(promised: int) -> None:
    bomb = compress("zstd", bytes(256 * MEGABYTE), 1)
    assert len(bomb) < MEGABYTE
    assert _peak_of_refusing(bomb, promised) < 2 * MEGABYTE


@pytest.mark.parametrize("promised", [2**40, 2**62])
def test_a_large_promise_takes_no_memory_of_its_own(promised: int) -> None:
    assert _peak_of_refusing(compress("zstd", b"little", 3), promised) < 2 * MEGABYTE


def test_a_frame_that_wants_a_giant_window_is_a_bad_entry() -> None:
    options: dict[Any, int] = {zstd.CompressionParameter.window_log: 30}
    compressor = zstd.ZstdCompressor(options=options)
    packed = compressor.compress(b"little") + compressor.flush()
    with pytest.raises(BadEntryError, match="zstd"):
        decompress("zstd", packed, len(b"little"))


def test_a_frame_of_another_dictionary_is_a_bad_entry() -> None:
    samples = [b"sample %d of a few words" % number for number in range(300)]
    packed = zstd.compress(b"sample 7 of a few words", zstd_dict=zstd.train_dict(samples, 1000))
    with pytest.raises(BadEntryError, match="zstd"):
        decompress("zstd", packed, len(b"sample 7 of a few words"))
