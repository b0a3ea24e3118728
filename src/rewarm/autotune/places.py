"""Managed places: for each build of XLA and each kind of device a directory that XLA can be given as it is.

Not promised: that XLA finds a result there, or that a result is fast. Promised of a prepared place: its directory
exists, is a real one, lies where others may not write, and holds no file that is known to harm a compile.

    <cache>/autotune/<build>-<device>/      <device>: 16 hexadecimal digits
        about.json      whose it is (see `Place`)
        xla/            what XLA gets (`xla_gpu_per_fusion_autotune_cache_dir`)
        kernels         XLA's kernel cache (`xla_gpu_kernel_cache_file`), where that is wanted
        kernels.sha256  what a compile left there that ended well
        aside/          what was not fit to be seen by XLA; nothing is ever deleted there
        batches/        which entries of the store hold results of this place, as names of empty files
        checked.json    what was looked at (`checked.py`)
        own.json        which codegen versions XLA wrote here (`own_codegens.py`)
        fusions.json    HLO texts of fusions, which XLA's files do not say, as far as anybody said them
        .lock

A place of a JAX build has results of one family (`formats.model`), the one that XLA is told to use: with the other one
the same build has another place, whose name says so (`build_ids`). What a build of a user's own name reads is not
known, so its place takes both, whose files never meet.

Races, and their worst outcome:

* XLA writes a result while `add` writes another for the same fusion: the later of the two stays. Both are sound.
* two processes add at once: each waits for the other's lock, `Place.patience` seconds at most, and then writes nothing
  (`HeldError`). Where the file system has no locks, of two results for one fusion the later stays, and not the better.
* two processes collect at once: likewise; without locks both keep the same results, which costs an entry of the store.
* one that holds the lock is stopped, or hangs: others wait for it once (`Place.patience`), and until they have had the
  lock again they do not wait any more. What they wanted to add or collect is for whoever comes later.
* somebody edits a file in place, and no folder changes with it: a process that has looked already does not see it, and
  one that starts does (`checked.py`).
* a process that is killed between XLA's write and `collect`: the next one to collect finds the result.
* somebody puts a bad file there between `prepare` and XLA's look: XLA sees it. Only its owner can.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rewarm import locks, small_files
from rewarm.autotune import adding, checked, folders, own_codegens, texts
from rewarm.autotune.build_ids import family_of, jax_of
from rewarm.autotune.checked import Look, Means, Seen
from rewarm.autotune.folders import UnusableError, is_settled, usable
from rewarm.autotune.formats import builds, files, keys
from rewarm.autotune.formats.builds import Build
from rewarm.autotune.formats.errors import MissingLibraryError
from rewarm.autotune.formats.model import Family, TuningEntry
from rewarm.autotune.formats.reading import Reading, read, read_bytes, with_keys
from rewarm.autotune.merging import Reader
from rewarm.autotune.texts import Texts, legacy_keys
from rewarm.sharing import tuning
from rewarm.small_files import SHARED, Modes

logger = logging.getLogger("rewarm")

ABOUT, XLA, KERNELS, ASIDE, LOCK = "about.json", "xla", "kernels", "aside", ".lock"
KERNELS_KNOWN = "kernels.sha256"
VERSION = 1
MOST_BYTES = 64 << 10

# How long one waits for another that adds or collects, in seconds. 10,000 results take a few. What a program of the
# user's stands behind does not wait as long as a command that is there to add.
PATIENCE = 30.0
PATIENCE_OF_PROGRAMS = 5.0

# How often a use is written down, in seconds.
_USE_SHOWS_AFTER = 600.0

Keep = Callable[[tuple[TuningEntry, ...]], None]


class HeldError(OSError):
    """Another process has held a place's lock for longer than one waits; nothing was written or collected."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What came of preparing a place.

    Attributes:
      directory: what XLA may be given; `None`: nothing, for the reason `why`.
      writes: whether results can be written there; else XLA is to read alone.
      why: what stands in the way, in words; "" where nothing does.
      aside: what was moved aside, a line for each.
      digest: of the set of results at hand (`checked.digest_of`); "" for none.
      entries: how many results are at hand.
    """

    directory: Path | None
    writes: bool = True
    why: str = ""
    aside: tuple[str, ...] = ()
    digest: str = ""
    entries: int = 0


@dataclass(slots=True)
class Place:
    """Results for one build and one kind of device. Safe for any number of threads and processes.

    Attributes:
      root: the folder of this place.
      build: the build's id (`build_ids`).
      device: XLA's device text, without the version of cuDNN; "" where it is not known.
      fingerprint: the device in the place's name: XLA's own of the text, else a digest of what is known of the device.
      family: which formats the build uses; see `takes`.
      patience: how long one waits for another that adds or collects, in seconds, and no more until he is done.
    """

    root: Path
    build: str
    device: str
    fingerprint: str
    family: Family
    patience: float = field(default=PATIENCE, compare=False)
    _waited: bool = field(default=False, repr=False, compare=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)
    _settled: tuple[folders.Stamp, ...] = field(default=(), repr=False, compare=False)
    _files: dict[str, Seen] | None = field(default=None, repr=False, compare=False)
    _digested: tuple[dict[str, Seen], str] | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """What the place is known by in a store and in remotes."""
        return self.root.name

    @property
    def directory(self) -> Path:
        """What XLA gets, once it is prepared."""
        return self.root / XLA

    @property
    def kernels(self) -> Path:
        """XLA's kernel cache (`kernels.py`)."""
        return self.root / KERNELS

    @property
    def cache_root(self) -> Path:
        """The cache directory that the place lies in."""
        return self.root.parent.parent

    @property
    def known_build(self) -> Build | None:
        """What is known of the build, where it is one that `formats.builds` has."""
        return builds.build_of(jax_of(self.build))

    def takes(self, family: Family) -> bool:
        """Whether results of this family belong here: what the build does not look at is never put where it looks."""
        return family_of(self.build) in (None, family)

    # -- before a compile --------------------------------------------------------------------------------------

    def prepare(self) -> Prepared:
        """Make the place if it is not there, look at what changed since the last look, and move bad files aside.

        Each is named in one log line. Never raises but for a program error: what stands in the way is in the answer.
        """
        with self._lock:
            try:
                writes = self._make()
                aside = self._check(writes)
            except (UnusableError, MissingLibraryError) as wrong:
                return Prepared(None, writes=False, why=str(wrong))
            except OSError as wrong:
                return Prepared(None, writes=False, why=_words(wrong))
            return Prepared(self.directory, writes, "", tuple(aside), *self.set_at_hand())

    def make(self) -> bool:
        """Make the place, without looking at what is in it; returns whether it can be used. Never raises."""
        with contextlib.suppress(UnusableError, OSError):
            self._make()
            return True
        return False

    # -- results -----------------------------------------------------------------------------------------------

    def entries(self) -> Reading:
        """All results that lie here, as they are, and what is wrong with files.

        Raises:
          MissingLibraryError: protobuf is not there.
        """
        reading = read(self.directory)
        return replace(reading, entries=with_keys(reading.entries, iter(texts.load(self.root).legacy.values())))

    def fusions(self) -> dict[str, str]:
        """HLO texts by the fingerprints of the new formats, as far as anybody said them."""
        return texts.load(self.root).fusions

    def add(self, entries: Iterable[TuningEntry], *, kept: bool = False) -> int:
        """Put results here, by the merge rule; returns how many are new, or better than what was here.

        The place's own build is the reader: what XLA itself would write here is not displaced by what this build finds
        by the loose rule alone, or does not find.

        Args:
          entries: any; the fusions' texts of legacy ones stay known.
          kept: they lie in an entry of the store already.

        Raises:
          MissingLibraryError: protobuf is not there.
          HeldError: another process adds or collects for too long; then nothing is written.
          OSError: the place cannot be made, or not all could be written.
          TuningFormatError: an entry does not say what a file's name is made of, is not sound, or is of the family that
            the build does not use; then nothing is written.
        """
        listed = list(entries)
        adding.refuse_family(listed, family_of(self.build), self.build)
        with self._held():
            reader = self._reader()
            wanted = adding.wanted(listed, self._means(), reader)
            self._learn(Texts({}, legacy_keys(wanted)))
            known = self._refresh()
            if reader != (reader := self._reader()):  # XLA wrote meanwhile, and for the first time
                wanted = adding.wanted(listed, self._means(), reader)
            written: list[tuple[Path, bytes]] = []
            for path, entry in wanted.items():
                here = next(iter(self._read(path).entries), None) if path in known else None
                data = adding.content(entry, self.directory / path, known.get(path), here, reader)
                if data is not None:
                    written.append((self.directory / path, data))
            files.write_all(written, self._modes())
            for place, data in written:
                path = place.relative_to(self.directory).as_posix()
                known[path] = Seen.of(place.lstat(), adding.digest(data))._replace(kept=kept)
            if kept:  # those that were here as they are
                same = (path for path, entry in wanted.items() if adding.holds(entry, known.get(path)))
                known |= {path: known[path]._replace(kept=True) for path in same}
            self._remember(known)
            return len(written)

    def collect(self, keep: Keep | None = None) -> tuple[TuningEntry, ...]:
        """What came here and was not collected yet, whoever wrote it; bad files are moved aside.

        Args:
          keep: is given the results, if there are any, before they count as collected; where it raises they do not,
            and the next one to collect has them.

        Raises:
          MissingLibraryError: protobuf is not there.
          HeldError: another process adds or collects for too long; then the next one to collect has them.
          OSError: the place cannot be read.
          Exception: what `keep` raises.
        """
        with self._lock:
            if not self.directory.is_dir():
                return ()
            self._check(os.access(self.root, os.W_OK))
            if all(seen.kept for seen in (self._files or {}).values()):
                return ()  # whoever holds the lock, there is nothing to wait for
        with self._held(make=False):
            known = self._refresh()  # another process may have collected them since
            fresh = self._fresh(known)
            if not fresh:
                return ()
            found = tuple(fresh.values())
            if keep is not None:
                keep(found)
            self._remember({**known, **{path: known[path]._replace(kept=True) for path in fresh}})
            return found

    def set_at_hand(self) -> tuple[str, int]:
        """The digest of the results that are here, and how many, as of the last look (`prepare`, `collect`, `add`)."""
        with self._lock:
            known = self._files if self._files is not None else checked.load(self.root)
            if self._digested is None or self._digested[0] is not known:
                self._digested = known, checked.digest_of(known)
            return self._digested[1], len(known)

    def names(self) -> frozenset[str]:
        """What the fusions are called that have a result, as of the last look: their files' names, without endings."""
        with self._lock:
            known = self._files if self._files is not None else checked.load(self.root)
            return frozenset(Path(path).stem for path in known)

    def learn(self, fusions: Mapping[str, str]) -> None:
        """Keep HLO texts of fusions by their fingerprints: what XLA's files do not say, and checks need.

        Raises:
          HeldError: another process adds or collects for too long.
          OSError: they cannot be written.
        """
        with self._held():
            self._learn(Texts(dict(fusions), {}))

    def _learn(self, told: Texts) -> None:
        """Under the lock."""
        known = texts.load(self.root)
        if known.has(told):
            return
        texts.save(self.root, known.with_(told), self._modes())
        # What was sound without a text need not be with it.
        named, known_files = {*told.fusions, *told.legacy}, checked.load(self.root)
        unread = {path: seen._replace(mtime=-1) for path, seen in known_files.items() if Path(path).stem in named}
        self._remember({**known_files, **unread})

    # -- batches -----------------------------------------------------------------------------------------------

    def batches(self) -> list[str]:
        """Keys of the entries of the store that are known to hold results of this place."""
        return tuning.known_here(self.cache_root, self.name)

    def last_used(self) -> float:
        """When it was last prepared, in seconds since the epoch, up to ten minutes late; now where nothing says it."""
        with contextlib.suppress(OSError):
            return (self.root / ABOUT).stat().st_mtime
        return time.time()

    def device_folders(self) -> list[str]:
        """The devices that XLA wrote results of the new formats for, by its own fingerprints."""
        with contextlib.suppress(OSError), os.scandir(self.directory) as items:
            return sorted(one.name for one in items if keys.is_device(one.name))
        return []

    # -- inside ------------------------------------------------------------------------------------------------

    def _modes(self) -> Modes:
        return small_files.modes_in(self.cache_root)

    def _means(self) -> Means:
        shared = self._modes() == SHARED or not hasattr(os, "geteuid")
        owners = frozenset() if shared else frozenset((os.geteuid(), 0))
        device = keys.Device(self.device) if self.device else None
        return Means(self.known_build, device, *texts.load(self.root), owners)

    def _reader(self) -> Reader:
        """Who looks here."""
        device = keys.Device(self.device) if self.device else None
        return Reader(self.known_build, device, frozenset(own_codegens.load(self.root)))

    def _make(self) -> bool:
        """Make the folders; returns whether they can be written to.

        Raises:
          UnusableError: what is there is not for XLA.
          OSError: one cannot be made.
        """
        modes, writes = self._modes(), True
        for folder in (self.root.parent, self.root, self.directory):
            if not os.path.lexists(folder):
                small_files.make_folder(folder, modes.directory)
            writes = usable(folder, shared=modes == SHARED) and writes
        if writes and not (self.root / ABOUT).is_file():
            self._say_what_it_is(modes)
        elif writes and time.time() - self.last_used() > _USE_SHOWS_AFTER:
            with contextlib.suppress(OSError):
                os.utime(self.root / ABOUT)
        return writes

    def _say_what_it_is(self, modes: Modes) -> None:
        told = {
            "build": self.build,
            "device": self.device,
            "fingerprint": self.fingerprint,
            "family": self.family.value,
        }
        data = json.dumps({"version": VERSION, **told, "made": time.time()}, sort_keys=True).encode()
        small_files.replace(self.root / ABOUT, data, modes.file)

    def _check(self, writes: bool) -> list[str]:
        """Look at what changed; returns what was moved aside."""
        now = folders.stamps(self.directory)
        if self._files is not None and now == self._settled:
            return []
        known = checked.load(self.root)
        found = checked.look(self.directory, known, self._means())
        aside = self._clean(found, writes)
        files_now = {
            path: seen._replace(kept=known[path].kept) if _same(known.get(path), seen) else seen
            for path, seen in found.files.items()
        }
        self._files, self._settled = files_now, now if is_settled(now) else ()
        if writes and found.changed:
            self._learn_codegens(known, found)
            self._save(files_now)
        return aside

    def _learn_codegens(self, known: Mapping[str, Seen], found: Look) -> None:
        """Of results that nobody added through this class (`add` remembers what it wrote): XLA wrote them."""
        came = (entry for path, entry in found.fresh.items() if not _same(known.get(path), found.files[path]))
        own_codegens.learn(self.root, {one.versions.codegen for one in came}, self._modes())

    def _clean(self, found: Look, writes: bool) -> list[str]:
        if found.bad and not writes:
            one = found.bad[0]
            raise UnusableError(f"{self.directory / one.path} is not for XLA ({one.why}) and cannot be moved aside")
        lines = [self._aside(self.directory / one.path, one.path, one.why) for one in found.bad]
        for line in lines:
            logger.warning("rewarm: %s", line)
        return lines

    def _aside(self, path: Path, name: str, why: str) -> str:
        return folders.put_aside(path, self.root / ASIDE, name, why, self._modes())

    @contextlib.contextmanager
    def _held(self, *, make: bool = True) -> Iterator[None]:
        with self._lock, contextlib.ExitStack() as stack:
            try:
                writes = self._make() if make or self.root.is_dir() else False
            except UnusableError as wrong:
                raise OSError(0, str(wrong), str(self.root)) from None
            if writes:
                self._take_lock(stack)
            yield

    def _take_lock(self, stack: contextlib.ExitStack) -> None:
        """Wait for whoever has it, and for one that seems to hang only once."""
        seconds = 0.0 if self._waited else self.patience
        self._waited = stack.enter_context(locks.held(self.root / LOCK, seconds, self._modes())) is None
        if self._waited:
            raise HeldError(
                errno.EAGAIN,
                f"another process has held it for {self.patience:g} seconds and more, at work or stopped",
                str(self.root / LOCK),
            )

    def _refresh(self) -> dict[str, Seen]:
        """What lies here now; what others did since is read. Under the lock."""
        self._files = None
        self._check(os.access(self.root, os.W_OK))
        return dict(self._files or {})

    def _fresh(self, known: Mapping[str, Seen]) -> dict[str, TuningEntry]:
        """The results that were not collected yet."""
        fresh = {}
        for path in sorted(path for path, seen in known.items() if not seen.kept):
            reading = self._read(path)
            if reading.entries:
                fresh[path] = reading.entries[0]
        told = iter(texts.load(self.root).legacy.values())
        return dict(zip(fresh, with_keys(tuple(fresh.values()), told), strict=True))

    def _read(self, path: str) -> Reading:
        place = self.directory / path
        with contextlib.suppress(OSError):
            return read_bytes(place.read_bytes(), place, checked.format_of(path))
        return Reading(place, None)

    def _remember(self, known: dict[str, Seen]) -> None:
        self._files, self._settled = known, ()
        self._save(known)

    def _save(self, known: Mapping[str, Seen]) -> None:
        with contextlib.suppress(OSError):  # a full disk: all is read again, and kept once more
            checked.save(self.root, known, self._modes())


def _same(known: Seen | None, now: Seen) -> bool:
    return known is not None and known.digest == now.digest


def _words(wrong: OSError) -> str:
    return f"{wrong.filename}: {wrong.strerror or wrong}"
