"""What is known of devices that are only described, beside what they say themselves: it goes into keys in its place.

Not promised: anything of devices that `described` did not make. It stands apart from it because every request asks
here, and few programs describe devices.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple


class Told(NamedTuple):
    """What a target says of its devices.

    Attributes:
      threads: CPU: how many threads programs are divided among.
      topology: CUDA: the machine's own, in this shape.
      platform_version, device_kinds: CUDA: as the machine's client says them.
    """

    threads: int = 0
    topology: bytes | None = None
    platform_version: str | None = None
    device_kinds: tuple[str, ...] | None = None


_NOTHING = Told()
# By the client of described devices, and gone with it.
_told: weakref.WeakKeyDictionary[Any, Told] = weakref.WeakKeyDictionary()


def tell(backend: Any, told: Told) -> None:
    """From now on this is known of the devices of a client."""
    _told[backend] = told


def told_of(backend: Any) -> Told:
    """What is known of the devices of a client; nothing of those that are attached."""
    return _told.get(backend, _NOTHING)
