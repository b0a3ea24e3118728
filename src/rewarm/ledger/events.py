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

# The cause of a miss that nobody has explained.
UNEXPLAINED = "unexplained"


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


# A step of a request: its name, when it began, in seconds after the event's `time` (before it: negative), and how many
# seconds it took.
Span = tuple[str, float, float]


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
      options: options of XLA that a winner of `rewarm.tune_options` added to what the program asked for; "" for none.
      time: when the request came, in seconds since the epoch.
      spans: what was done when: "trace" and "lower" by JAX, as far as it told of them, "ahead_read" and "ahead_load" by
        threads before the request, and the steps of `Seconds`, each as often as it was taken. They may overlap.
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
    options: str = ""
    spans: tuple[Span, ...] = ()

    @property
    def cause(self) -> str:
        """For a miss, its explanation in one word of a closed list, for counting; "" for a hit.

        A component of the key that differs, other than the program, comes first, since it is the reason for all that
        follows; then the first finding's kind (`explanation.KINDS`); "program" where programs differ in a way that has
        no name; "unexplained" without an explanation.
        """
        if self.outcome == "hit":
            return ""
        said = self.explanation
        if said is None:
            return UNEXPLAINED
        outside = next((name for name in said.differs if name != "program"), None)
        if outside is not None:
            return outside
        if said.findings:
            return said.findings[0].kind
        return "program" if said.differs else UNEXPLAINED

    def as_dict(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        # By hand: `dataclasses.asdict` takes five times as long for the spans alone.
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["seconds"] = dataclasses.asdict(self.seconds)
        plain["explanation"] = None if self.explanation is None else dataclasses.asdict(self.explanation)
        plain["spans"] = list(map(list, self.spans))
        return plain
