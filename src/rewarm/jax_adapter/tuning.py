"""XLA:GPU's tuning results in the life of a compile: each gets the managed place for its build and kind of device, what
XLA found is kept, and the executable's header says how complete its tuning was.

Not promised: that XLA finds a result there. XLA keeps what it has read in a table of the process, so a place that
changes while a process lives acts on fusions that were not looked up yet. And nothing here runs for a program that is
found in the cache, but for a look at its header.

For the same reason a lock holds from the first compile of a process on or not at all: where XLA has been given anything
else, compiling under a lock is an error. What compiled before rewarm was on is not seen.

What the user says wins. Where `XLA_FLAGS` or `compiler_options=` name a directory or a file of results, XLA gets that
and nothing else, since the two ways are not to be mixed (see `seam.tuning`), and one line says so.
`jax_persistent_cache_enable_xla_caches` means what it means in JAX, also where JAX's own cache has no directory.

Ranks of a job: JAX lets process 0 write results and the others read. Here each process has a place of its own host and
writes to it, and each keeps what it finds in an entry of its own, so nothing that another process tuned is lost.

For devices that are only described XLA writes nothing, and rewarm stores no executable; the place is given all the
same, so what a described device's compiler is asked for can be looked at without a GPU.

Races: see `autotune.places`. A compile in another process may write a result while this one compiles: who collects
first keeps it. Results that come from remotes after the deadline serve the next process.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewarm.autotune import states, xla_errors
from rewarm.autotune.states import Conditions, Incomplete
from rewarm.cache import Request
from rewarm.envelope import Header, open_entry
from rewarm.errors import RewarmError, SettingError
from rewarm.identity import Toolchain, canonical_options
from rewarm.in_force import Settings
from rewarm.jax_adapter.libraries import cuda_compiler
from rewarm.jax_adapter.managed import PATIENCE, Managed, Store
from rewarm.jax_adapter.refreshing import Again, Refresher
from rewarm.jax_adapter.seam import Call, version
from rewarm.jax_adapter.seam import tuning as said
from rewarm.jax_adapter.tuning_places import another_device, installed_build, place_for
from rewarm.telling import Teller

if TYPE_CHECKING:
    from rewarm.autotune.lock import Lock
    from rewarm.autotune.places import Place

logger = logging.getLogger("rewarm")

__all__ = ["Compile", "OutsideLockError", "Store", "Tuning", "installed_build", "recorded", "refreshed"]

# How XLA's failures begin to read a file that is there: a compiler's own are of other codes.
_OF_A_FILE = ("DATA_LOSS", "OUT_OF_RANGE")

_KEPT = 1000
_refresher = Refresher()
_recorded: deque[tuple[str, dict[str, Any]]] = deque(maxlen=_KEPT)


class OutsideLockError(RewarmError, RuntimeError):
    """A program has a fusion that the lock in force does not pin, or the lock cannot hold in this process."""


class _Given:
    """What XLA was given results from in this process: locks by their digests, and whether anything else."""

    def __init__(self) -> None:
        self._locks: set[str] = set()
        self.others = False

    def lock(self, digest: str) -> str:
        """This lock is about to be given; why it cannot hold, or ""."""
        if self.others:
            return "has compiled for a GPU without it"
        if self._locks - {digest}:
            return "has compiled under another lock"
        self._locks.add(digest)
        return ""

    @property
    def locked(self) -> bool:
        """Whether what XLA knows may be a lock's."""
        return bool(self._locks)


_given = _Given()


def recorded() -> list[tuple[str, dict[str, Any]]]:
    """What this process's compiles came to, the latest 1,000: program, and what its header says or would say."""
    return list(_recorded)


class Tuning:
    """The tuning results of one set of settings. Safe for any number of threads.

    Args:
      in_force: the settings.
      toolchain: identifies libraries.
      store: where results are kept; asked when a program is compiled.
      teller: says one line to the user.
    """

    def __init__(self, in_force: Settings, toolchain: Toolchain, store: Callable[[], Store], teller: Teller) -> None:
        self.settings = in_force
        self.teller = teller
        self._toolchain = toolchain
        self._store = store
        self._lock = threading.Lock()
        self._places: weakref.WeakKeyDictionary[Any, dict[bool | None, Managed]] = weakref.WeakKeyDictionary()
        self._by_name: dict[str, Managed] = {}
        self._asked = False

    def of(self, call: Call) -> Compile | None:
        """What is to be done for one call; `None`: nothing. What a lock says is put into its options, as part of its
        key.

        Raises:
          SettingError, TuningFormatError: the lock in force cannot be used.
        """
        if call.backend.platform != "gpu" or "rocm" in str(call.backend.platform_version).lower():
            return None
        if (path := self.settings.autotune_lock) is not None and _pins_xla(path, _stamp(path)):
            return self._locked(call, path)
        if not self.settings.autotune:
            _given.others = True
            return None
        return Compile(self, call, None)

    def ask_ahead(self, call: Call) -> None:
        """Ask the remotes for results while the program traces and loads what it finds. In a thread; never raises."""
        if not self._asked and self._store().remotes is not None:
            self._asked = True
            with contextlib.suppress(RuntimeError, MemoryError):
                threading.Thread(target=self._ask, args=(call,), name="rewarm-tuning", daemon=True).start()

    def _ask(self, call: Call) -> None:
        try:
            self.managed(call).begin()
        except Exception:  # whoever compiles hears of it
            logger.debug("rewarm: no tuning results are asked for ahead", exc_info=True)

    def managed(self, call: Call) -> Managed:
        """The place for a call.

        Raises:
          FileNotFoundError: the plugin that holds the compiler is not installed as known.
          MissingLibraryError: protobuf is not there.
        """
        new_format = said.new_format(call)
        with self._lock:
            known = self._places.setdefault(call.backend, {})
            found = known.get(new_format)
            if found is None:
                place = place_for(self.settings.directory, call, self._toolchain)
                found = self._by_name.setdefault(place.name, Managed(place, self._store))
                known[new_format] = found
            return found

    def _locked(self, call: Call, path: Path) -> Compile:
        lock = _sound_lock(path, _stamp(path))
        named = said.named(call)
        if named.file or named.directory:
            raise SettingError(
                f"autotune_lock (REWARM_AUTOTUNE_LOCK) is {path}, and XLA's options name other tuning results, "
                f"{named.file or named.directory}: take one of the two out"
            )
        managed = self.managed(call)
        if other := another_device(call, managed.place.device, lock.device):
            raise SettingError(f"{path} pins tuning for {lock.device.text}, and this is {other}")
        if not managed.place.make():
            raise SettingError(f"{path} cannot be given to XLA: {managed.place.root} cannot be written to")
        file = lock.for_xla(managed.place.root / "locks")
        said.give_file(call, file, _family_of(lock, managed.place))
        said.give_kernels(call, None)
        if self.settings.autotune_lock_policy == "error":
            said.say(call, said.REQUIRE, True)
        return Compile(self, call, lock)


class Compile:
    """One call: its directory before the compile, what was found after it, and what its header says (`cache.Tuned`)."""

    def __init__(self, tuning: Tuning, call: Call, lock: Lock | None) -> None:
        self._tuning = tuning
        self._call = call
        self._lock = lock
        self._own = False
        self._writes = True
        self._required: bool | None = None
        self._missing: tuple[str, ...] = ()
        self._had = 0
        self._kernels_of: Place | None = None
        self._record: dict[str, Any] | None = None
        self._request: Request[Any] | None = None

    def on(self, request: Request[Any]) -> Request[Any]:
        """The request with all this around its compile."""
        self._request = request
        if self._lock is None:
            self._tuning.ask_ahead(self._call)
        compile_ = functools.partial(self.compile, request.compile, request.program)
        again = None if request.again is None else functools.partial(self._again, request.again)
        return request._replace(compile=compile_, again=again, tuned=self)

    def compile(self, inner: Callable[[], Any], program: str = "") -> Any:
        """Compile with the place at hand.

        Raises:
          OutsideLockError: the lock does not pin a fusion, or cannot hold in this process.
          Exception: what the compiler raises.
        """
        self._note_what_is_given()
        managed = self._give()
        since = time.perf_counter()
        try:
            executable = self._compile_locked(inner) if self._lock is not None else self._compile(inner)
        except BaseException:
            if managed is not None:  # what was tuned until then was tuned
                managed.keep(program, time.perf_counter() - since)
            raise
        self._after(managed, program, time.perf_counter() - since)
        return executable

    # -- cache.Tuned -------------------------------------------------------------------------------------------

    def refuses(self, header: Header) -> str | None:
        """See `cache.Tuned`."""
        if self._tuning.settings.autotune_incomplete != Incomplete.REFUSE.value:
            return None
        return self._outdated(header)

    def served(self, key: str, entry: bytes) -> None:
        """See `cache.Tuned`."""
        try:
            if self._tuning.settings.autotune_incomplete == Incomplete.REFRESH.value:
                self._refresh(key, entry)
        except Exception:
            logger.debug("rewarm: not made anew", exc_info=True)

    def told(self) -> Mapping[str, Any] | None:
        """See `cache.Tuned`."""
        return self._record

    # -- inside ------------------------------------------------------------------------------------------------

    def _note_what_is_given(self) -> None:
        if self._lock is None:
            self._own = self._own or _given.locked  # results of a lock are in XLA's table
            _given.others = True
        elif why := _given.lock(self._lock.digest):
            raise OutsideLockError(
                f"{self._tuning.settings.autotune_lock} cannot hold: this process {why}, and XLA keeps the results "
                f"that it was given for as long as a process lives. Set the lock before the first compile "
                f"(REWARM_AUTOTUNE_LOCK), or start another process"
            )

    def _give(self, patience: float = PATIENCE) -> Managed | None:
        """Put the place into the call's options; returns it where XLA is to use it. Never raises."""
        if self._lock is not None:
            return None
        named = said.named(self._call)
        if named.file or named.directory:
            self._leave_to_the_user(named)
            return None
        wanted = said.xla_caches()
        if not wanted:
            return None
        try:
            managed = self._tuning.managed(self._call)
            given = self._give_place(managed, wanted, named, patience)
        except Exception as error:  # noqa: BLE001 - no failure here stops a program
            self._tell_none(f"{type(error).__name__}: {error}" if not isinstance(error, RewarmError) else str(error))
            return None
        return managed if given else None

    def _give_place(self, managed: Managed, wanted: frozenset[str], named: said.Named, patience: float) -> bool:
        given = False
        if said.DIRECTORY in wanted:
            prepared = managed.prepare(patience)
            given = prepared.directory is not None
            said.give_directory(self._call, prepared.directory, writes=prepared.writes)
            self._writes, self._had = prepared.writes, prepared.entries
            if not given:
                self._tell_none(prepared.why)
        if said.KERNELS in wanted and not named.kernels:
            from rewarm.autotune import kernels as kernel_caches

            kernels = kernel_caches.prepare(managed.place)
            said.give_kernels(self._call, kernels)
            self._kernels_of = managed.place if kernels is not None else None
        return given

    def _tell_none(self, why: str) -> None:
        said.give_directory(self._call, None, writes=False)
        if not said.named(self._call).kernels:
            said.give_kernels(self._call, None)
        self._writes = False
        self._tuning.teller.tell(f"XLA gets no directory of tuning results: {why}")

    def _leave_to_the_user(self, named: said.Named) -> None:
        self._own = True
        if named.by_jax and named.file:
            said.give_directory(self._call, None, writes=False)  # the two ways are not to be mixed
        words = f"XLA uses the tuning results that its options name ({named.file or named.directory})"
        if named.file and named.directory:
            words += f", and with them those of {named.directory}: it does not say which of the two decided"
        self._tuning.teller.tell(f"{words}; rewarm looks after none here")

    def _compile(self, inner: Callable[[], Any]) -> Any:
        """Compile; once more without the kernels that are there where they may be why it failed."""
        place = self._kernels_of
        if place is None:
            return inner()
        from rewarm.autotune import kernels as kernel_caches

        known = kernel_caches.are_known(place)
        try:
            executable = inner()
        except Exception as error:
            if known and not any(code in str(error) for code in _OF_A_FILE):
                raise
            said.give_kernels(self._call, kernel_caches.prepare(place, suspect=True))
            executable = inner()
        kernel_caches.note(place)
        return executable

    def _compile_locked(self, inner: Callable[[], Any]) -> Any:
        said.say(self._call, said.REQUIRE, True)
        try:
            executable = inner()
        except Exception as error:
            fusion = xla_errors.lacking(str(error))
            if fusion is None:
                raise
            words = f"{self._tuning.settings.autotune_lock} {self._lacks()}: {fusion}"
            if self._tuning.settings.autotune_lock_policy == "error":
                raise OutsideLockError(
                    f"{words}. Make the lock anew (rewarm autotune lock), or allow it with autotune_lock_policy=warn"
                ) from error
            logger.warning("rewarm: %s; XLA chooses for it", words)
        else:
            self._required = True
            return executable
        self._missing = (words,)
        said.say(self._call, said.REQUIRE, None)
        return inner()

    def _lacks(self) -> str:
        on = xla_errors.deterministic(self._options())
        if on:  # from JAX 0.11 on; the lock may have it
            return f"does not pin a fusion of this program, or {on} keeps XLA from taking the result"
        if self._lock is not None and not self._tuning.managed(self._call).place.device:
            whole = f"it is for {self._lock.device.text}, and JAX {version()} does not tell all of that"
            return f"does not pin a fusion of this program, or is for another device ({whole})"
        return "does not pin a fusion of this program"

    def _options(self) -> Mapping[str, Any]:
        return canonical_options(self._call.compile_options.SerializeAsString()).value

    def _after(self, managed: Managed | None, program: str, took: float) -> None:
        """Keep what was found, and note how complete the tuning was. Never raises."""
        try:
            self._record = self._said_of(managed, program, took)
            _recorded.append((program, self._record))
            logger.info(
                "rewarm: tuning of %s: %s, %d results at hand, %d of them new",
                program or "a program",
                self._record["state"],
                self._record["entries"],
                self._record["new"],
            )
        except Exception:
            logger.debug("rewarm: the state of the tuning is not known", exc_info=True)

    def _said_of(self, managed: Managed | None, program: str, took: float) -> dict[str, Any]:
        if managed is None:
            told = states.record(self._conditions(), "", 0, 0)
            return told if self._lock is None else {**told, "lock": self._lock.digest}
        managed.keep(program, took)
        digest, entries = managed.place.set_at_hand()
        new = max(0, entries - self._had)
        return states.record(self._conditions(), digest, entries, new, managed.place.name)

    def _conditions(self) -> Conditions:
        options = self._options()
        required = options.get(said.REQUIRE) is True if self._required is None else self._required
        attached = not said.is_described(self._call.backend)
        return Conditions(
            attached=attached,
            missing=self._missing if self._missing and not attached else None,
            tunes=states.tunes(options),
            obeys=states.obeys(options, version()),
            writes=self._writes,
            required=required,
            own=self._own,
        )

    def _outdated(self, header: Header) -> str | None:
        """Why an executable would be compiled better now, or `None`; never raises."""
        if self._lock is not None or states.state_said(header.tuning) not in (
            states.State.INCOMPLETE,
            states.State.UNKNOWN,
        ):
            return None
        try:
            managed = self._tuning.managed(self._call)
            managed.prepare()
            digest, _ = managed.place.set_at_hand()
            return states.is_outdated(header.tuning, digest, managed.place.names())
        except Exception:
            logger.debug("rewarm: whether an entry is outdated is not known", exc_info=True)
            return None

    def _again(self, inner: Callable[[], Any]) -> Any:
        """A copy for a compile beside the program, which waits for nobody."""
        self._note_what_is_given()
        self._give(patience=0.0)
        return inner()

    def _refresh(self, key: str, entry: bytes) -> None:
        request, store = self._request, self._tuning._store()
        if request is None or request.again is None or store.local is None:
            return
        if self._outdated(open_entry(entry, key).header) is None:
            return
        managed = self._tuning.managed(self._call)
        _refresher.take(
            Again(
                key,
                entry,
                self._again(request.again),
                functools.partial(self._told_anew, managed),
                functools.partial(_put, store),
                store.level,
            )
        )

    def _told_anew(self, managed: Managed) -> Mapping[str, Any]:
        return self._said_of(managed, "", 0.0)


def refreshed(seconds: float) -> bool:
    """Wait until no executable is being made anew in the background; returns whether it came to that."""
    return _refresher.wait(seconds)


def _put(store: Store, key: str, data: bytes, took: float) -> None:
    assert store.local is not None
    store.made(data)
    store.local.put(key, data, seconds=took)
    if store.remotes is not None:
        store.remotes.publish(key, data, stored=True)


# ---------------------------------------------------------------------------------------------------------------
# Places and locks


def _family_of(lock: Lock, place: Place) -> list[tuple[str, bool]]:
    """What XLA must be told so that it reads a lock's file: the formats' generation, where it is not the default."""
    from rewarm.autotune.formats import Family

    return [] if lock.family is place.family else [(said.NEW_FORMAT, lock.family is Family.NEW)]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise SettingError(f"autotune_lock (REWARM_AUTOTUNE_LOCK): {path}: {error.strerror}") from None
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=8)
def _pins_xla(path: Path, stamp: tuple[int, int]) -> bool:
    """Whether a lock file pins XLA's tuning, and not the winners of `rewarm.tune` alone; one that cannot be read does,
    and who reads it says what is wrong."""
    from rewarm import lock_sections

    del stamp
    try:
        return lock_sections.read(path).has_main
    except (OSError, UnicodeDecodeError):
        return True


@functools.lru_cache(maxsize=8)
def _sound_lock(path: Path, stamp: tuple[int, int]) -> Lock:
    """A lock that this XLA can be given.

    Raises:
      TuningFormatError: it is none, or is for another build, or XLA would fail, or fall over, for an entry of it.
    """
    from rewarm.autotune import lock, lock_file
    from rewarm.autotune.formats import Severity, TuningFormatError, build_of

    del stamp  # what is read depends on it
    found = lock_file.read(path)
    build = build_of(cuda_compiler().version)
    wrong = lock.findings(found, build) if build is not None else []
    first = next((one for one in wrong if one.severity is Severity.ERROR), None)
    if first is not None:
        raise TuningFormatError(first)
    return found
