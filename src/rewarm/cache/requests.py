"""What the cache is asked for, and whom it tells and asks: records and protocols.

Not promised: that a request comes to anything. Nothing here does work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from rewarm.coordination import Lead
from rewarm.envelope import Entry, Header
from rewarm.identity import KeyComponents
from rewarm.ledger import Event
from rewarm.restart import Way

if TYPE_CHECKING:
    from rewarm.ledger.explanation import Explanation

# The sections of an entry. The canonical program and the values of its components are what a later miss, or a person,
# compares it with; the source locations are a courtesy to that person. From the arguments a plan is made of a run. The
# way says how the executable is loaded (`restart.Way`), for a host that has not run the program.
EXECUTABLE = "executable"
WAY = "way"
PROGRAM = "program"
SOURCE = "source"
ARGUMENTS = "arguments"
COMPONENTS = "components"

NOT_IN_STORE = "not in the store"
NOT_EVERYWHERE = "not all processes of the program have it"
CANNOT_READ = "the store cannot be read"
COMPILE_FAILED = "it does not compile"
INTERRUPTED = "its compilation was interrupted"
CANNOT_SERIALISE = "the executable cannot be serialised"
STORE_FAILED = "the store cannot be written"

# What came of filling a cache.
PRESENT = "present"
MISSING = "missing"
STORED = "stored"
NOT_STORED = "not stored"
NO_KEY = "no key"

# In the versions of an entry's header: the compilation by several processes together that the entry came from.
COMPILED_TOGETHER = "compiled_together"

# And: it was compiled ahead, for a machine that was described in this way, and not in a run of it.
AHEAD = "ahead"
# And: the GPUs of its topology were mocked (`jax_mock_gpu_topology`), all but those of one process.
MOCKED = "mocked"

E = TypeVar("E")


class Evidence(NamedTuple):
    """What can be said of a program beside its key; worked out only where it is needed.

    Attributes:
      canonical: the bytes that the component `program` is the digest of.
      signature: the types of its main function.
      source: the program with its source locations, in MLIR bytecode.
      kinds: the names of its operations, each once.
      arguments: what its arguments are, as JSON; b"" where that cannot be said. Never raises.
    """

    canonical: bytes
    signature: Callable[[], str]
    source: Callable[[], bytes]
    kinds: tuple[str, ...] = ()
    arguments: Callable[[], bytes] = bytes


class Request(NamedTuple, Generic[E]):
    """One program that is wanted as an executable.

    Attributes:
      program: its name, for people.
      components: what the key is made of; `None` for a program without a key.
      unkeyable: why there is no key.
      key_seconds: what building the components took.
      compile: makes the executable.
      serialise: executable to bytes; may raise anything.
      load: bytes to executable; may raise anything.
      same: whether two serialised executables have the same code.
      producer: versions of what makes the executable.
      target: a few words on the device.
      bypass: why it is neither looked up nor stored although it has a key, or `None`.
      evidence: for explanations; `None` for a program without a key.
      place: what loading it in another process takes beside the entry, as the program asked for it, so it is to be
        asked for before the compile, which may add to that; `None` where nobody can.
      again: a copy of all that compiling it again takes, for another thread; `None` where nobody can.
      agreement: with the other processes of a program that several compile together; `None` for all others.
      turns: whether other processes may wait for the entry while one compiles.
      spares_trace: whether a hit spares a trace as well (`rewarm.jit`), so that one which loads slowly is no loss.
      tuned: what the entry says of the tuning that it was compiled with; `None` for programs without any.
      beside: how many seconds of the compile were not for the executable; `None` for none.
      options: what was added to the options that the program asked for, in words; "" for nothing.
    """

    program: str
    components: KeyComponents | None
    unkeyable: str | None
    key_seconds: float
    compile: Callable[[], E]
    serialise: Callable[[E], bytes]
    load: Callable[[bytes], E]
    same: Callable[[bytes, bytes], bool]
    producer: Mapping[str, str]
    target: str
    bypass: str | None = None
    evidence: Evidence | None = None
    again: Callable[[], Any] | None = None
    place: Callable[[], Any] | None = None
    agreement: Agreement | None = None
    turns: bool = True
    spares_trace: bool = False
    tuned: Tuned | None = None
    beside: Callable[[], float] | None = None
    options: str = ""

    def way(self) -> Way | None:
        """How the program wants it loaded; `None` where only the program can."""
        return Way.of(self.place()) if self.place is not None else None


class Filled(NamedTuple):
    """What came of having an entry for a request made (`CompileCache.fill`).

    Attributes:
      key: `None` for a program without one.
      outcome: `PRESENT`, `MISSING`, `STORED`, `NOT_STORED` or `NO_KEY`.
      reason: why it is not there.
      compile_seconds: what compiling it took, now or when its entry was made.
      tuning: what its header says of tuning.
      size: bytes that were written.
    """

    key: str | None
    outcome: str
    reason: str = ""
    compile_seconds: float = 0.0
    tuning: Mapping[str, Any] | None = None
    size: int = 0


class Tuned(Protocol):
    """Whether an executable was compiled with all the tuning that is to be had for it. No method raises."""

    def refuses(self, header: Header) -> str | None:
        """Why an entry is not to be served, since a better one can be made of it now, or `None`."""

    def served(self, key: str, entry: bytes) -> None:
        """An entry was served: `entry` are the bytes as they lie in the store."""

    def told(self) -> Mapping[str, Any] | None:
        """What the header is to say of the compile that just ended; `None` for nothing."""


class Ready(NamedTuple):
    """An entry that was read and checked before it was asked for.

    Attributes:
      entry: its parts.
      data: its bytes, as they lie in the store.
      raw: the bytes of its executable.
      executable: it, if it was loaded too, exactly as the request would; else `None`.
      spans: what was done for it when, by `time.perf_counter`.
    """

    entry: Entry
    data: bytes
    raw: bytes
    executable: Any | None
    spans: tuple[tuple[str, float, float], ...] = ()


class Ahead(Protocol):
    """Who reads and loads entries before they are asked for. No method raises."""

    def take(self, key: str, request: Request[Any]) -> Ready | None:
        """What was done ahead for this request; waits for what is under way."""

    def note(self, key: str, way: Callable[[], Way | None], size: int) -> None:
        """A request was served, by an executable of so many bytes that the store has: the next start may want it.

        `way`: how it was to be loaded.
        """


class Explainer(Protocol):
    """Who finds out why a request is a miss. Neither method raises."""

    def explain(self, request: Request[Any], reason: str, quarantined: str | None) -> Explanation:
        """Why a request that is about to be compiled is a miss."""

    def remember(self, request: Request[Any], event: Event) -> None:
        """A miss was compiled."""


class Observer(Protocol):
    """Who wants to hear of a request while it is served."""

    def missed(self, program: str, key: str | None, reason: str, explanation: Explanation | None) -> None:
        """A request is about to be compiled."""

    def finished(self, event: Event) -> None:
        """A request was served."""


class Trials(Protocol):
    """Who stands by when an entry is loaded, so that one that ends the process does so once. No method raises."""

    def refused(self, key: str) -> str | None:
        """Why this entry is neither loaded nor stored on this host, or `None`."""

    def condemned(self, content: str) -> str | None:
        """Why the entry with this digest is not to be loaded on this host again, or `None`."""

    def before_load(self, key: str, program: str, content: str) -> None:
        """An entry is about to be loaded; `content` is the digest that it ends with, in hexadecimal digits."""

    def after_load(self, key: str, executable: Any | None) -> None:
        """It was loaded, or (`None`) the load failed and left the process alive."""

    def was_loaded(self, key: str, program: str, content: str, executable: Any) -> None:
        """An entry that was loaded ahead is about to be given to the program."""


class Leases(Protocol):
    """Who knows whether another process has a program in hand."""

    def lead(self, key: str, found: Callable[[], bool]) -> AbstractContextManager[Lead]:
        """Leave to compile this key, or the news that somebody else's work is over; never raises."""


class Agreement(Protocol):
    """What the processes agree on that compile one program together: all of them load it, or all compile it.

    `Request.compile` tells the others by itself that this process compiles. No method raises.
    """

    def loads(self, compilation: str) -> bool:
        """Whether this process is to use the entry that it has loaded; waits for the others, within a deadline.

        `compilation` is what the entry says it came from, or its digest.
        """

    def compilation(self) -> str:
        """What an entry is to say of the compilation that just ended; "" where it was not one by all."""


class Remotes(Protocol):
    """Who has entries that the local store has not, and takes those that are made here.

    A method raises only where the user asked for that; the cache treats it as a failure of a store.
    """

    def fetch(self, key: str) -> tuple[bytes, str, bool] | None:
        """An entry that was checked and may be trusted, where it came from, in a word, and whether it was kept in the
        local store already."""

    def lead(self, key: str, size: int) -> AbstractContextManager[Lead]:
        """Leave to compile a program of so many bytes that no remote has, or the news that another host's work is over;
        never raises. What that host made is in the local store then."""

    def announce(self, key: str) -> None:
        """An entry is about to be put into the local store, and published after that."""

    def publish(self, key: str, entry: bytes, *, stored: bool) -> None:
        """An entry was made: it goes where it is to go, and nobody waits for that. `stored`: the local store has it."""


class Sampler(Protocol):
    """Who compiles a share of the hits again, beside the program, and compares. Never raises."""

    def hit(self, request: Request[Any], key: str, entry: bytes, executable: Any) -> None:
        """A request was served from the store: `entry` are the bytes as they lie there."""


class Checker(Protocol):
    """Who tries new entries. Never raises."""

    def stored(self, request: Request[Any], key: str, entry: bytes) -> None:
        """An entry was written: `entry` are its bytes."""
