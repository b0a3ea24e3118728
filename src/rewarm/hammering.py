"""What the shipped conformance classes of stores and of remotes share: values that show what became of them.

Not promised: anything to programs; nothing here runs outside a test.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterable


def whole(number: int, choice: random.Random) -> bytes:
    """A value that shows when it is cut, mixed with another, or another number's."""
    body = bytes([number]) + choice.randbytes(choice.choice((0, 100, 70_000)))
    return body + hashlib.sha256(body).digest()


def is_whole(number: int, value: bytes) -> bool:
    """Whether this is a value of `whole` for this number, as it was made."""
    return value[:1] == bytes([number]) and hashlib.sha256(value[:-32]).digest() == value[-32:]


def run(workers: Iterable[threading.Thread]) -> None:
    """Start them all, and wait for them all."""
    started = list(workers)
    for worker in started:
        worker.start()
    for worker in started:
        worker.join()
