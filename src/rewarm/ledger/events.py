"""The record of one request.

Not promised: that every compilation of the process has one. What JAX compiled before rewarm was on, or while it was
off, and what was left to JAX's own cache, has none.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rewarm.ledger.explanation import Explanation

# Why a program is not stored that was compiled to be compared with its entry.
ALREADY_STORED = "already stored"


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where the time of one request went, in seconds of wall time; 0 where the step was not taken.

    Attributes:
      key: building the key.
      fetch: reading the entry and checking it.
      load: unpacking it and making it an executable.
      compile: compiling.
      store: serialising, packing and writing.
      explain: finding out why it missed, and keeping what a later miss will be compared with.
      wait: waiting for another process that was compiling it.
    """

    key: float = 0.0
    fetch: float = 0.0
    load: float = 0.0
    compile: float = 0.0
    store: float = 0.0
    explain: float = 0.0
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """One request: a program that JAX wanted compiled.

    Attributes:
      program: the module's name, such as `jit_train_step`.
      key: 64 hexadecimal digits; `None` for a program that has none.
      outcome: "hit": it was not compiled. "miss": it was, whether or not it was stored afterwards.
      tier: where a hit came from: "local", "process" when another thread had just made it, or the place of a remote.
      reason: for a miss, why; `None` for a hit.
      stored: whether this request wrote the entry.
      not_stored: for a miss that was not stored, why.
      seconds: where the time went.
      seconds_saved: for a hit, what compiling took when the entry was made, less fetching and loading it; may be
        negative.
      bytes_read: of the entry that was fetched.
      bytes_written: of the entry that was stored.
      quarantined: why what lay under the entry's name was put aside, when it was.
      dropped: for a hit, whether the entry was removed, since loading it was slower than compiling it once more.
      explanation: for a miss, how it differs from what was known here.
      ahead: for a hit, what was done for it before it was asked for: "read", "loaded" (which is both), or "".
      time: when the request came, in seconds since the epoch.
    """

    program: str
    key: str | None
    outcome: Literal["hit", "miss"]
    tier: str | None
    reason: str | None
    stored: bool
    not_stored: str | None
    seconds: Seconds
    seconds_saved: float
    bytes_read: int
    bytes_written: int
    quarantined: str | None
    time: float
    explanation: Explanation | None = None
    dropped: bool = False
    ahead: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return dataclasses.asdict(self)
