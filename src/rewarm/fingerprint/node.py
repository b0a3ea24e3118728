"""What a describer says of one object, and what a walk knows while it asks.

Not promised: anything to code outside this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
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
      later: whether what it leads to comes last, and may hold what cannot be identified: a method that did not run.
      unordered: whether the edges come in no order, as in a set.
    """

    kind: str
    own: bytes = b""
    edges: tuple[Edge, ...] = ()
    lasting: bool = True
    note: str = ""
    is_part: bool = False
    captures: bool = False
    later: bool = False
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


class Ran:
    """What a caller who watched the code run knows of it, and what the walk tells such a caller.

    Attributes:
      ran: whether a piece of code ran.
      codes: the code of the functions that the walk followed, by id; not of what only idle methods lead to.
      classes: the classes that it followed, by id; likewise.
    """

    def __init__(self, ran: Callable[[CodeType], bool]) -> None:
        self.ran = ran
        self.codes: dict[int, CodeType] = {}
        self.classes: dict[int, type] = {}


class Context:
    """What holds for one walk, and what it notices on its way.

    Attributes:
      trusted: whose code counts by name.
      reducers: type to function, for types that the caller knows better.
      companions: what belongs to a class of the user without being in it.
      names: names of the functions and classes on the way; they count if `reads_names`.
      reads_names: whether any code on the way can see a name.
      functions: those on the way; their annotations count if `reads_annotations`.
      reads_annotations: whether any code on the way names a function that tells them, such as `inspect.signature`.
      words: attributes that code on the way reads, each with one who does.
      hazards: attributes that no code may read, since objects on the way would lead outside, with the reason.
      watched: which code ran, if somebody watched.
      methods: functions that were found in the bodies of classes, by id.
      idle: whether the walk has come to what only idle methods lead to.
    """

    def __init__(
        self,
        trusted: Trusted,
        reducers: Mapping[type, Reducer],
        companions: Callable[[type], object] | None,
        watched: Ran | None = None,
    ) -> None:
        self.trusted = trusted
        self.reducers = reducers
        self.companions = companions
        self.names: list[bytes] = []
        self.reads_names = False
        self.functions: list[FunctionType] = []
        self.reads_annotations = False
        self.words: set[str] = set()
        self.hazards: dict[str, str] = {}
        self.watched = watched
        self.methods: dict[int, object] = {}
        self.idle = False
        # By what was asked and the id of a class, which is kept so that nobody else has its id.
        self._known: dict[tuple[str, int], tuple[type, Any]] = {}
        self._reduced: dict[int, tuple[type, type | None]] = {}

    def of_class(self, what: str, cls: type, find: Callable[[type], Any]) -> Any:
        """What is found of a class, asked once in a walk."""
        known = self._known.get((what, id(cls)))
        if known is None:
            known = self._known[what, id(cls)] = (cls, find(cls))
        return known[1]

    def reduced_as(self, cls: type) -> type | None:
        """The nearest class above, or this one, that has a reducer; asked once in a walk."""
        known = self._reduced.get(id(cls))
        if known is None:
            found = next((base for base in cls.__mro__ if base in self.reducers), None)
            known = self._reduced[id(cls)] = (cls, found)
        return known[1]

    def fresh(self) -> Context:
        """The same rules with nothing noticed."""
        context = Context(self.trusted, self.reducers, self.companions, self.watched)
        context.idle = self.idle
        return context

    def held(self, module: str, function: FunctionType, name: str, value: object) -> object:  # noqa: ARG002
        """What counts of what a function of a trusted module captured: all of it, unless somebody knows better."""
        return value

    def is_idle(self, function: FunctionType) -> bool:
        """Whether this is code that is known not to have run, and that nobody keeps results of."""
        if self.idle:
            return True
        if self.watched is None or id(function) not in self.methods:
            return False
        return not self.watched.ran(function.__code__)

    def beware(self, words: frozenset[str], reason: str) -> None:
        """Code on the way must read none of these attributes."""
        for word in words:
            self.hazards.setdefault(word, reason)

    def contradiction(self) -> tuple[str, str] | None:
        """An attribute that is read and must not be, with the reason."""
        clash = sorted(self.hazards.keys() & self.words, key=lambda word: (word in ANY_NAME, word))
        return (clash[0], self.hazards[clash[0]]) if clash else None
