"""One managed place in the life of a process: what came from the store and from remotes, and what goes there.

Not promised: that what other hosts found is there for the first compile: it is waited for, `PATIENCE` seconds at most,
and serves later ones.

Races: see `autotune.places`. A compile in another process may write a result while this one compiles: who collects
first keeps it.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rewarm.jax_adapter.requests import producer
from rewarm.store import LocalStore

if TYPE_CHECKING:
    from rewarm.autotune.places import Place, Prepared
    from rewarm.sharing import Remotes
    from rewarm.sharing.tuning import Fetching

logger = logging.getLogger("rewarm")

# How long the first compile of a process waits for results of other hosts, in seconds.
PATIENCE = 10.0


class Store(NamedTuple):
    """Where results are kept, as far as anything is.

    Attributes:
      local: the local store; `None` where nothing can be written.
      remotes: `None` where there are none.
      level: of compression.
      made: hears of each entry that is made here, before it is stored.
    """

    local: LocalStore | None
    remotes: Remotes | None
    level: int
    made: Callable[[bytes], object]


class Managed:
    """One place in the life of a process: what came from the store and from remotes, and what goes there."""

    def __init__(self, place: Place, store: Callable[[], Store]) -> None:
        self.place = place
        self._store = store
        self._lock = threading.Lock()
        self._absorbed: set[str] = set()
        self._beside: dict[str, str] = {}
        self._fetching: Fetching | None = None
        self._waited = False
        self._told_held = False
        place.patience = _places().PATIENCE_OF_PROGRAMS

    def begin(self) -> None:
        """Ask the remotes for what other hosts found, once, in threads. Never raises."""
        store = self._store()
        if store.local is None or store.remotes is None:
            return
        with self._lock:
            if self._fetching is None:
                self._fetching = store.remotes.fetch_results(self.place.name, self.place.batches(), self._take)

    def prepare(self, patience: float = PATIENCE) -> Prepared:
        """The place, ready for XLA, with all that other hosts found, as far as it comes within so many seconds."""
        self.begin()
        if self._fetching is not None and not self._waited and patience:
            self._waited = True
            if not self._fetching.wait(patience):
                logger.info("rewarm: tuning results of other hosts did not come within %g s", patience)
        prepared = self.place.prepare()
        if prepared.directory is None or not prepared.writes:
            return prepared
        try:
            return self.place.prepare() if self._absorb() else prepared
        except OSError as error:  # what is there already can be read all the same
            self._tell(error, "results of other hosts and programs are not added now")
            return prepared

    def keep(self, program: str, took: float) -> int:
        """Keep what XLA found since; returns how many results are new. Never raises."""
        store = self._store()
        if store.local is None:
            return 0
        try:
            return len(self.place.collect(functools.partial(self._put, store, program, took)))
        except OSError as error:
            self._tell(error, f"those of {program or 'a program'} are kept by whoever comes later")
            return 0
        except Exception as error:  # noqa: BLE001 - no failure of the store stops a program
            logger.warning("rewarm: tuning results of %s cannot be kept: %s", program or "a program", error)
            return 0

    def _tell(self, error: OSError, what: str) -> None:
        """One line for a lock that another keeps, however often it is in the way."""
        if not isinstance(error, _places().HeldError):
            logger.warning("rewarm: tuning results in %s: %s; %s", self.place.root, error.strerror or error, what)
        elif not self._told_held:
            self._told_held = True
            logger.warning("rewarm: %s: %s; %s", error.filename, error.strerror, what)

    def _put(self, store: Store, program: str, took: float, entries: tuple[Any, ...]) -> None:
        from rewarm.autotune import batches

        assert store.local is not None
        key, data = batches.sealed(self.place, entries, producer=producer(), program=program, seconds=took)
        batches.keep(store.local, self.place, key, data, seconds=took, made=store.made)
        self._absorbed.add(key)
        if store.remotes is not None:
            store.remotes.publish_results(self.place.name, key)

    def _absorb(self) -> int:
        from rewarm.autotune import batches

        store = self._store()
        if store.local is None:
            return 0
        with self._lock:
            return batches.absorb(store.local, self.place, self._absorbed) + self._from_beside()

    def _from_beside(self) -> int:
        """Take over results of the same build from places that are named by XLA's device text, where JAX does not say
        this device's: nobody knows which of them is for it, and XLA finds its own by their names."""
        from rewarm.autotune import batches, locating

        if self.place.device:
            return 0
        new = 0
        for other in locating.places(self.place.cache_root):
            digest = other.set_at_hand()[0] if other.build == self.place.build and other.device else ""
            if digest and self._beside.get(other.name) != digest:
                new += batches.add_sound(self.place, other.entries().entries, kept=True)
                self._beside[other.name] = digest
        return new

    def _take(self, came: dict[str, bytes]) -> None:
        """Entries came from a remote, checked and trusted; in a thread of `Fetching`."""
        from rewarm.autotune import batches

        store = self._store()
        for key, data in came.items():
            try:
                batch = batches.opened(data, key)
                if batch.place == self.place.name and store.local is not None:
                    batches.keep(store.local, self.place, key, data, seconds=batch.header.compile_seconds)
            except Exception:  # hints are anybody's: one that names another entry is no reason to lose the rest
                logger.debug("rewarm: %s is no tuning result", key[:12], exc_info=True)


def _places() -> Any:
    """The module, which is imported late: this one is imported in every program."""
    from rewarm.autotune import places

    return places
