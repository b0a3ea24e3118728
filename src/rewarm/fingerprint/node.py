"""What a describer says of one object, and what a walk knows while it asks.

Not promised: anything to code outside this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rewarm.fingerprint.allowed import ANY_NAME
from rewarm.fingerprint.trust import Trusted

Edge = tuple[str, object]
Reducer = Callable[[Any], object]


class Node(NamedTuple):
    """One object: its own bytes and the objects that it leads to.

    Attributes:
      kind: the rule that applied; part of the digest.
      own: everything that counts and is not behind an edge.
      edges: label (for people) and object, in an order that depends on nothing but content.
      lasting: whether it matters that two places hold this very object: it can change, or be compared by `is`.
      note: short text for the list of parts; "" for the digest of what was found below.
      is_part: whether it is a part of its own, wherever it is reached.
      captures: whether each object that it leads to is a part.
      unordered: whether the edges come in no order, as in a set.
    """

    kind: str
    own: bytes = b""
    edges: tuple[Edge, ...] = ()
    lasting: bool = True
    note: str = ""
    is_part: bool = False
    captures: bool = False
    unordered: bool = False


class RefusedError(Exception):
    """A describer found something that cannot be identified; the walk knows the way to it.

    Attributes:
      reason: why.
      found: what, if not the object that was asked about.
      label: one more step of the way, or "".
    """

    def __init__(self, reason: str, *, found: str = "", label: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.found = found
        self.label = label


class Absent(NamedTuple):
    """Stands where there is nothing: an empty cell, a global that has no value, a slot that was never set."""

    what: str


class Context:
    """What holds for one walk, and what it notices on its way.

    Attributes:
      trusted: whose code counts by name.
      reducers: type to function, for types that the caller knows better.
      companions: what belongs to a class of the user without being in it.
      names: names of the functions and classes on the way; they count if `reads_names`.
      reads_names: whether any code on the way can see a name.
      words: attributes that code on the way reads, each with one who does.
      hazards: attributes that no code may read, since objects on the way would lead outside, with the reason.
    """

    def __init__(
        self, trusted: Trusted, reducers: Mapping[type, Reducer], companions: Callable[[type], object] | None
    ) -> None:
        self.trusted = trusted
        self.reducers = reducers
        self.companions = companions
        self.names: list[bytes] = []
        self.reads_names = False
        self.words: set[str] = set()
        self.hazards: dict[str, str] = {}

    def fresh(self) -> Context:
        """The same rules with nothing noticed."""
        return Context(self.trusted, self.reducers, self.companions)

    def beware(self, words: frozenset[str], reason: str) -> None:
        """Code on the way must read none of these attributes."""
        for word in words:
            self.hazards.setdefault(word, reason)

    def contradiction(self) -> tuple[str, str] | None:
        """An attribute that is read and must not be, with the reason."""
        clash = sorted(self.hazards.keys() & self.words, key=lambda word: (word in ANY_NAME, word))
        return (clash[0], self.hazards[clash[0]]) if clash else None
