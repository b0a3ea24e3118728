"""The curve of Ed25519 (RFC 8032, section 5.1) in plain integers: for making signatures that no honest signer makes."""

from __future__ import annotations

import hashlib

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = (-121665 * pow(121666, -1, P)) % P
Point = tuple[int, int]
IDENTITY: Point = (0, 1)


def add(one: Point, two: Point) -> Point:
    """The sum, in affine coordinates."""
    (x1, y1), (x2, y2) = one, two
    both = D * x1 * x2 * y1 * y2
    return (
        (x1 * y2 + x2 * y1) * pow(1 + both, -1, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - both, -1, P) % P,
    )


def times(number: int, point: Point) -> Point:
    """`point` added up so many times."""
    total = IDENTITY
    while number:
        if number & 1:
            total = add(total, point)
        point = add(point, point)
        number >>= 1
    return total


def x_of(y: int, odd: int) -> int | None:
    """The x of the point with this y, or `None` where there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square:
        return None
    return x if x & 1 == odd else -x % P


def encoded(point: Point) -> bytes:
    """The one canonical form of a point."""
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def base() -> Point:
    """The base point."""
    y = 4 * pow(5, -1, P) % P
    x = x_of(y, 0)
    assert x is not None
    return x, y


def small_order_points() -> set[Point]:
    """The eight points whose order divides 8: what is left of a point when its part of order L is taken away."""
    found: set[Point] = set()
    y = 2
    while len(found) < 8:
        x = x_of(y, 0)
        if x is not None:
            point = times(L, (x, y))
            found.add(point)
        y += 1
    return found


def scalar_of(seed: bytes) -> int:
    """The secret number of a seed."""
    number = int.from_bytes(hashlib.sha512(seed).digest()[:32], "little")
    return number & ((1 << 254) - 8) | (1 << 254)


def challenge(r: bytes, public: bytes, message: bytes) -> int:
    """What a signature answers."""
    return int.from_bytes(hashlib.sha512(r + public + message).digest(), "little") % L
