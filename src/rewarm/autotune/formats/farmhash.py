"""FarmHash's Fingerprint64 and Fingerprint128, which name devices and fusions in XLA's new formats.

Not promised: anything against an adversary; these are no cryptographic digests. Slow beside the original (about 0.3 ms
for a kilobyte), which matters little, since keys are made once for each fusion.

Written from the published algorithm (Geoff Pike, https://github.com/google/farmhash; 64 bits: "farmhashna", 128 bits:
CityHash128 of version 1.1.1), whose values are fixed for ever. In plain Python because the one binding on PyPI has no
wheels but for x86-64, and Grace-Hopper machines are not that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_MASK = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_MURMUR = 0x9DDFEA08EB382D69
_SEED = 81


class _Pair(NamedTuple):
    first: int
    second: int


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return (value >> by | value << (64 - by)) & _MASK


def _folded(value: int) -> int:
    value &= _MASK
    return value ^ value >> 47


def _mixed(low: int, high: int, factor: int = _MURMUR) -> int:
    """Two words to one, in the manner of Murmur."""
    low, high = low & _MASK, high & _MASK
    first = _folded((low ^ high) * factor)
    return _folded((high ^ first) * factor) * factor & _MASK


class _Words:
    """Little-endian words of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __call__(self, at: int) -> int:
        return int.from_bytes(self._data[at : at + 8], "little")

    def half(self, at: int) -> int:
        """The 32-bit word at a place."""
        return int.from_bytes(self._data[at : at + 4], "little")


def _weak(word: Callable[[int], int], at: int, first: int, second: int) -> _Pair:
    """32 bytes and two seeds to two words."""
    first += word(at)
    second = _rotated(second + first + word(at + 24), 21)
    start = first
    first += word(at + 8) + word(at + 16)
    second += _rotated(first, 44)
    return _Pair((first + word(at + 24)) & _MASK, (second + start) & _MASK)


def _up_to_16(data: bytes, word: _Words) -> int:
    size = len(data)
    factor = _K2 + size * 2
    if size >= 8:
        first, last = word(0) + _K2, word(size - 8)
        return _mixed(_rotated(last, 37) * factor + first, (_rotated(first, 25) + last) * factor, factor)
    if size >= 4:
        return _mixed(size + (word.half(0) << 3), word.half(size - 4), factor)
    if size:
        low = data[0] + (data[size >> 1] << 8)
        high = size + (data[-1] << 2)
        return _folded(low * _K2 ^ high * _K0) * _K2 & _MASK
    return _K2


def _up_to_32(size: int, word: _Words) -> int:
    factor = _K2 + size * 2
    first, second = word(0) * _K1, word(8)
    third, fourth = word(size - 8) * factor, word(size - 16) * _K2
    low = _rotated(first + second, 43) + _rotated(third, 30) + fourth
    return _mixed(low, first + _rotated(second + _K2, 18) + third, factor)


def _up_to_64(size: int, word: _Words) -> int:
    factor = _K2 + size * 2
    first, second = word(0) * _K2, word(8)
    third, fourth = word(size - 8) * factor, word(size - 16) * _K2
    low = _rotated(first + second, 43) + _rotated(third, 30) + fourth
    high = _mixed(low, first + _rotated(second + _K2, 18) + third, factor)
    fifth, sixth = word(16) * factor, word(24)
    seventh, eighth = (low + word(size - 32)) * factor, (high + word(size - 24)) * factor
    return _mixed(
        _rotated(fifth + sixth, 43) + _rotated(seventh, 30) + eighth,
        fifth + _rotated(sixth + first, 18) + seventh,
        factor,
    )


def fingerprint64(data: bytes) -> int:
    """FarmHash's Fingerprint64."""
    size, word = len(data), _Words(data)
    if size <= 16:
        return _up_to_16(data, word)
    if size <= 32:
        return _up_to_32(size, word)
    if size <= 64:
        return _up_to_64(size, word)
    return _long(size, word)


def _long(size: int, word: _Words) -> int:
    """More than 64 bytes: 64 at a time, then the last 64, whatever has been read of them."""
    y = _SEED * _K1 + 113
    z = _folded(y * _K2 + 113) * _K2 & _MASK
    x = (_SEED * _K2 + word(0)) & _MASK
    v = w = _Pair(0, 0)
    for at in range(0, (size - 1) // 64 * 64, 64):
        x, y, z, v, w = _block(word, at, x, y, z, v, w)
    factor = _K1 + ((z & 0xFF) << 1)
    at = size - 64
    first_w = w.first + ((size - 1) & 63)
    first_v = v.first + first_w
    first_w += first_v
    x = _rotated(x + y + first_v + word(at + 8), 37) * factor
    y = _rotated(y + v.second + word(at + 48), 42) * factor
    x ^= w.second * 9
    y += first_v * 9 + word(at + 40)
    z = _rotated(z + first_w, 33) * factor
    v = _weak(word, at, v.second * factor, x + first_w)
    w = _weak(word, at + 32, z + w.second, y + word(at + 16))
    z, x = x, z
    return _mixed(
        _mixed(v.first, w.first, factor) + _folded(y) * _K0 + z, _mixed(v.second, w.second, factor) + x, factor
    )


def _block(
    word: Callable[[int], int], at: int, x: int, y: int, z: int, v: _Pair, w: _Pair
) -> tuple[int, int, int, _Pair, _Pair]:
    """64 bytes into the 56 of the state."""
    x = _rotated(x + y + v.first + word(at + 8), 37) * _K1 & _MASK
    y = _rotated(y + v.second + word(at + 48), 42) * _K1 & _MASK
    x ^= w.second
    y = (y + v.first + word(at + 40)) & _MASK
    z = _rotated(z + w.first, 33) * _K1 & _MASK
    v = _weak(word, at, v.second * _K1, x + w.first)
    w = _weak(word, at + 32, z + w.second, y + word(at + 16))
    return z, y, x, v, w


def fingerprint128(data: bytes) -> tuple[int, int]:
    """FarmHash's Fingerprint128, as (low, high)."""
    if len(data) < 16:
        return _murmur(data, _K0, _K1)
    word = _Words(data)
    low, high = word(0), (word(8) + _K0) & _MASK
    rest = data[16:]
    return _murmur(rest, low, high) if len(rest) < 128 else _city(rest, low, high)


def _murmur(data: bytes, low: int, high: int) -> tuple[int, int]:
    """Less than 128 bytes, with a seed of 128 bits."""
    size, word = len(data), _Words(data)
    if size <= 16:
        low = _folded(low * _K1) * _K1 & _MASK
        third = (high * _K1 + _up_to_16(data, word)) & _MASK
        fourth = _folded(low + (word(0) if size >= 8 else third))
    else:
        third = _mixed(word(size - 8) + _K1, low)
        fourth = _mixed(high + size, third + word(size - 16))
        low = (low + fourth) & _MASK
        for at in range(0, size - 16, 16):
            low = (low ^ _folded(word(at) * _K1) * _K1) * _K1 & _MASK
            high ^= low
            third = (third ^ _folded(word(at + 8) * _K1) * _K1) * _K1 & _MASK
            fourth ^= third
    low, high = _mixed(low, third), _mixed(fourth, high)
    return low ^ high, _mixed(high, low)


def _city(data: bytes, low: int, high: int) -> tuple[int, int]:
    """128 bytes or more, with a seed of 128 bits."""
    size, word = len(data), _Words(data)
    x, y, z = low, high, size * _K1 & _MASK
    first = (_rotated(y ^ _K1, 49) * _K1 + word(0)) & _MASK
    v = _Pair(first, (_rotated(first, 42) * _K1 + word(8)) & _MASK)
    w = _Pair((_rotated(y + z, 35) * _K1 + x) & _MASK, _rotated(x + word(88), 53) * _K1 & _MASK)
    for at in range(0, size // 128 * 128, 64):
        x, y, z, v, w = _block(word, at, x, y, z, v, w)
    x += _rotated(v.first + z, 49) * _K0
    y = y * _K0 + _rotated(w.second, 37)
    z = z * _K0 + _rotated(w.first, 27)
    w, v = _Pair(w.first * 9, w.second), _Pair(v.first * _K0, v.second)
    for done in range(32, size % 128 + 32, 32):
        at = size - done
        y = _rotated(x + y, 42) * _K0 + v.second
        w = _Pair(w.first + word(at + 16), w.second)
        x = x * _K0 + w.first
        z += w.second + word(at)
        w = _Pair(w.first, w.second + v.first)
        v = _weak(word, at, v.first + z, v.second)
        v = _Pair(v.first * _K0, v.second)
    x, y = _mixed(x, v.first), _mixed(y + z, w.first)
    return (_mixed(x + v.second, w.second) + y) & _MASK, _mixed(x + w.second, y + v.second)
