"""The record of one request.

Not promised: that every compilation of the process has one. What JAX compiled before rewarm was on, or while it was
off, and what was left to JAX's own cache, has none.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal


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
    """

    key: float = 0.0
    fetch: float = 0.0
    load: float = 0.0
    compile: float = 0.0
    store: float = 0.0
    explain: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs between what was wanted and what was found.

    Attributes:
      component: the row of the key's table, such as "options".
      item: which part of it, such as "xla_cpu_max_isa"; "" where it has no parts.
      before: what the stored program had, in words; "" for nothing.
      after: what this one has.
    """

    component: str
    item: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in plain words that a list of changes does not say by itself.

    Attributes:
      kind: one of `KINDS`, for programs that read it.
      text: for people.
    """

    kind: str
    text: str


KINDS = (
    "new",  # no program like it was seen in this directory
    "removed",  # it was stored here, and is not any more
    "quarantined",  # what lay there was not usable
    "not stored",  # it was compiled before, and not stored, for the reason given
    "unkeyable",  # it cannot have a key, for the reason given
    "bypassed",  # it has a key and is neither looked up nor stored, for the reason given
    "unfinished",  # looking was broken off or impossible
    "constants",  # the same operations with other constants
    "varying constant",  # and they differed in each run so far
    "shapes",  # the same program for other shapes
    "types",  # the same program in other widths: x64, or a weak type
    "order",  # the same operations in another order
    "operations",  # other operations
    "renamed",  # it was seen under another name
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request was a miss.

    Not promised: that the nearest program is the one that a person would call nearest, only that what is said of the
    two is so.

    Attributes:
      summary: one line.
      nearest: the key that it was compared with; `None` when there was none.
      differs: the components that differ from the nearest's, in the order of the key's table.
      changes: what differs within them.
      findings: what that means, where something is known.
    """

    summary: str
    nearest: str | None = None
    differs: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One request: a program that JAX wanted compiled.

    Attributes:
      program: the module's name, such as `jit_train_step`.
      key: 64 hexadecimal digits; `None` for a program that has none.
      outcome: "hit": it was not compiled. "miss": it was, whether or not it was stored afterwards.
      tier: where a hit came from: "local", or "process" when another thread had just made it.
      reason: for a miss, why; `None` for a hit.
      stored: whether this request wrote the entry.
      not_stored: for a miss that was not stored, why.
      seconds: where the time went.
      seconds_saved: for a hit, what compiling took when the entry was made, less fetching and loading it; may be
        negative.
      bytes_read: of the entry that was fetched.
      bytes_written: of the entry that was stored.
      quarantined: why what lay under the entry's name was put aside, when it was.
      explanation: for a miss, how it differs from what was known here.
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

    def as_dict(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return dataclasses.asdict(self)
