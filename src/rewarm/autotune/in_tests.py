"""Tuning results in the life of a test run: every process has a folder of its own, and the run gathers them.

Not promised: results of programs that a process starts on another host, or that run after the last test has ended.

XLA is given its place through `XLA_FLAGS`, in the way that the installed build can be read back from:

    directory   where the new formats are the default (JAX 0.11 and later). Programs that a test starts share it, and
                lose nothing
    file        elsewhere, since a file of a legacy directory does not say which device and fusion it is for. XLA writes
                the whole file after each compile, so of a process and a program that it starts the later writer's stays

    <folder>/run.json               {"flags": XLA_FLAGS before, "way": ..., "xdist": pytest-xdist's run that it is in}
    <folder>/load/ or load.pb       what was loaded, checked, as XLA reads it
    <folder>/process-[worker-]<pid>-<x>/
                                    of one process: xla/ (what XLA writes to), seen/ (copies), tests.jsonl
    tests.jsonl                     {"test": name, "files": [paths below the process's folder]}, a line for each test
                                    after which something had changed

A worker of pytest-xdist joins the run, and any other pytest that finds itself inside one, such as one that a test
starts, begins its own. A worker says so in its environment (PYTEST_XDIST_WORKER), with a name for its run that whoever
began did not have (PYTEST_XDIST_TESTRUNUID); and the flags that it comes with are of whoever began, while those of a
pytest that a worker's test starts are that worker's. Which process is whose parent says nothing: a worker may have been
started through another program, and what a test starts is its child as well.

A worker that is killed, or ends by `os._exit`, leaves what it had written, also what it tuned in the test at which it
ended: no line says of which test that is. If whoever began the run ends so, nothing is gathered, and the folder stays
among the temporary files.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rewarm import locks, small_files
from rewarm.autotune import merging, outputs, sources, tuned_by, xla_flags
from rewarm.autotune.formats import (
    Build,
    Family,
    Finding,
    Format,
    Severity,
    TuningEntry,
    Versions,
    build_of,
    convert,
    files,
    read,
    write,
)
from rewarm.autotune.formats.reading import is_text_name
from rewarm.autotune.formats.writing import contents
from rewarm.errors import RewarmError

_FOLDER = "rewarm-tuning-"
_PROCESS = "process-"
_WORKER = f"{_PROCESS}worker-"
_RESULTS = "results.pb"
# A change within this many nanoseconds before a look may share the folder's time stamp with one after it.
_COARSE = 50_000_000
_LOCK_SECONDS = 60.0
_AT_ITS_END = "(a test that ended its process)"
_NEW_FORMATS_SINCE = (0, 11)


class TestRunError(RewarmError, ValueError):
    """What was to be loaded or dumped cannot be."""

    __test__ = False  # pytest would take its name for a test's


class _About(NamedTuple):
    """What a run says of itself to its workers: see the module's text. `of_worker`: the flags are of one of these."""

    folder: Path
    flags: str
    way: str
    xdist: str
    of_worker: bool


class Tuned(NamedTuple):
    """What one test tuned."""

    test: str
    entries: tuple[TuningEntry, ...]


@dataclass(slots=True)
class Gathered:
    """What a run came to.

    Attributes:
      tests: in the order of the processes and, of each, of its tests.
      entries: all that was tuned, by the merge rule.
      findings: what was written and could not be read.
    """

    tests: list[Tuned] = field(default_factory=list)
    entries: tuple[TuningEntry, ...] = ()
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """A test run, or one worker of it.

    Attributes:
      folder: of the run.
      flags: `XLA_FLAGS` as they were before the run.
      way: "directory" or "file".
      is_worker: somebody else began it, and gathers.
      known: what was loaded; of a worker nothing.
      left_out: what of the loaded could not be given to XLA, in words.
    """

    folder: Path
    flags: str
    way: str
    is_worker: bool = False
    known: tuned_by.Known = field(default_factory=tuned_by.Known)
    left_out: list[str] = field(default_factory=list)
    _process: Path | None = None
    _watch: Watch | None = None

    def enter(self) -> str:
        """Make this process's folder; returns what `XLA_FLAGS` must be in it.

        Raises:
          OSError: the folder cannot be made.
        """
        prefix = f"{_WORKER if self.is_worker else _PROCESS}{os.getpid()}-"
        self._process = Path(tempfile.mkdtemp(prefix=prefix, dir=self.folder))
        xla = self._process / "xla"
        loaded = self.folder / "load"
        if self.way == "directory" and loaded.is_dir():
            _linked(loaded, xla)
        else:
            xla.mkdir(mode=0o700)
        self._watch = Watch(xla)
        self._watch.changed()
        return xla_flags.with_flags(self.flags, self._places(xla))

    def _places(self, xla: Path) -> dict[str, str]:
        if self.way == "directory":
            return {xla_flags.DIRECTORY: str(xla)}
        load = self.folder / "load.pb"
        places = {xla_flags.LOAD: str(load)} if load.exists() else {}
        return {**places, xla_flags.DUMP: str(xla / _RESULTS)}

    def after(self, test: str) -> None:
        """Write down what came into this process's folder since the last call, as this test's. Never raises."""
        if self._watch is None or self._process is None:
            return
        with contextlib.suppress(OSError):  # a full disk, a folder that somebody removed: the tests go on
            names = [self._kept(path) for path in self._watch.changed()]
            if names:
                line = json.dumps({"test": test, "files": names}) + "\n"
                small_files.append(self._process / "tests.jsonl", line.encode(), 0o600)

    def _kept(self, path: Path) -> str:
        """The name of a file, below the process's folder; of one that is written again and again, of a copy."""
        assert self._process is not None
        if self.way == "directory":
            return str(path.relative_to(self._process))
        seen = self._process / "seen"
        seen.mkdir(mode=0o700, exist_ok=True)
        copy = seen / f"{len(list(seen.iterdir())):06d}-{path.name}"
        shutil.copyfile(path, copy)
        return str(copy.relative_to(self._process))

    def gather(self) -> Gathered:
        """What all processes of the run have tuned.

        Raises:
          MissingLibraryError: protobuf is not there. What cannot be read is in the findings.
        """
        gathered = Gathered()
        for process in sorted(self.folder.glob(f"{_PROCESS}*")):
            known = {entry.key: entry for entry in self.known.given}
            lines = list(_lines(process / "tests.jsonl"))
            for test, names in (*lines, (_AT_ITS_END, self._untold(process, lines))):
                new = [entry for name in names for entry in self._new_in(process / name, known, gathered.findings)]
                if new:
                    gathered.tests.append(Tuned(test, tuple(new)))
        gathered.entries = merging.merge(*(tuned.entries for tuned in gathered.tests)).entries
        return gathered

    def _untold(self, process: Path, lines: Iterable[tuple[str, list[str]]]) -> list[str]:
        """Files of a process that no line tells of: it ended before it could write one."""
        told = {name for _, names in lines for name in names}
        with contextlib.suppress(OSError):
            there = (path.relative_to(process).as_posix() for path in Watch(process / "xla").changed())
            return [name for name in there if name not in told and not self._was_loaded(process, name)]
        return []

    def _was_loaded(self, process: Path, name: str) -> bool:
        with contextlib.suppress(OSError):
            return (process / name).samefile(self.folder / "load" / Path(name).relative_to("xla"))
        return False

    def _new_in(
        self, path: Path, known: dict[tuple[str, ...], TuningEntry], findings: list[Finding]
    ) -> Iterator[TuningEntry]:
        """The entries of a file that were not known before; they are from now on."""
        wanted = Format.NEW_FUSION if self.way == "directory" and path.suffix == ".pb" else None
        reading = read(path, wanted)
        findings += [finding for finding in reading.findings if finding.severity is Severity.ERROR]
        for entry in reading.entries:
            # XLA's file has what was loaded, too, maybe in other words; a fusion's own is written when it was tuned.
            if (entry.key not in known) if self.way == "file" else known.get(entry.key) != entry:
                known[entry.key] = entry
                yield entry

    def refuse_dump(self, path: Path) -> None:
        """Say at the start of a run what `dump` would say of the place at its end, as far as it can be known.

        Raises:
          TestRunError: something else is there, or results of another family than this run's.
          OutputError: it is a link that leads to no place.
          OSError: nothing can be written there.
        """
        target = outputs.followed(path)
        families = {entry.family for entry in (*_there(path), *self.known.given)} | self._writes()
        if len(families) > 1:
            raise TestRunError(
                f"{path}: expected entries of the family that XLA reads and writes here, found "
                f"{' and '.join(sorted(families))}; name another file (rewarm autotune convert makes one of the other)"
            )
        _refuse_folder(target.parent)

    def _writes(self) -> set[Family]:
        """The family that XLA writes here, where that is known."""
        if self.way == "directory":
            return {Family.NEW}
        return {Family.LEGACY} if installed_build() is not None else set()

    def dump(self, path: Path, entries: tuple[TuningEntry, ...], tuned: tuple[TuningEntry, ...] = ()) -> int:
        """Add entries to a file, which is made; returns how many are in it then. Behind a link what it leads to is.

        Two who do so at once lose nothing where the file system has locks; where it has none, the later one's stays.

        Args:
          entries: that are added, those that were loaded among them.
          tuned: those that this run's XLA wrote itself: of several for one fusion XLA finds them first in the file.

        Raises:
          TestRunError: something else is there, or there is nothing to write.
          OutputError: see `refuse_dump`.
          OSError: it cannot be written.
        """
        target = outputs.followed(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent):
            there = _there(path)
            own = frozenset(entry.versions.codegen for entry in tuned if entry.versions.codegen)
            merged = merging.merge(entries, tuned, there, build=installed_build(), own=own).entries
            families = {entry.family for entry in merged}
            if len(families) != 1:
                raise TestRunError(
                    f"{path}: expected entries of one family to write, found "
                    f"{' and '.join(sorted(families)) or 'none'}; rewarm autotune convert makes one of the other"
                )
            formats = (Format.LEGACY_BINARY, Format.LEGACY_TEXT), (Format.NEW_BINARY, Format.NEW_TEXT)
            form = formats[families == {Family.NEW}][is_text_name(path.name)]
            ((_, data, count),) = contents(merged, path, form)
            files.write(target, data)
            return count

    def end(self) -> None:
        """Remove the run's folder. A worker's is its run's to remove."""
        if not self.is_worker:
            shutil.rmtree(self.folder, ignore_errors=True)


def joined_or_begun(flags: str, load: Path | None, xdist: str = "") -> Run:
    """The run that this process is part of: that whose worker it is, or one that begins here.

    Args:
      flags: `XLA_FLAGS` as they are.
      xdist: the run of pytest-xdist that this process, or one above it, is a worker of; "" for none.
      load: what is to be loaded: a file or folder of XLA's, a lock file, or a cache directory.

    Raises:
      SettingError: somebody else has named a place for tuning results.
      TestRunError: there is nothing to load, or nothing of it can be.
      MissingLibraryError: protobuf is not there.
      OSError: the folder cannot be made.
    """
    told = _run_of(flags)
    if told is not None and xdist not in ("", told.xdist) and not told.of_worker:
        return Run(told.folder, told.flags, told.way, is_worker=True)
    base = flags if told is None else told.flags  # a run inside a test of another one
    build = installed_build()
    way = way_of(build, base)
    xla_flags.refuse_others(base, way=way)
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
    run = Run(folder, base, way)
    try:
        if load is not None:
            _loaded(run, load, build)
        about = {"flags": base, "way": way, "xdist": xdist}
        small_files.replace(folder / "run.json", json.dumps(about).encode())
    except BaseException:
        run.end()
        raise
    return run


def _run_of(flags: str) -> _About | None:
    """The run that these flags are of, if they are one's."""
    told = xla_flags.named(flags)
    place = Path(told.directory) if told.directory else Path(told.dump).parent if told.dump else None
    if place is None or len(place.parts) < 3 or not place.parts[-2].startswith(_PROCESS):
        return None
    folder = place.parent.parent
    try:
        about = json.loads((folder / "run.json").read_bytes())
        of_worker = place.parts[-2].startswith(_WORKER)
        return _About(folder, str(about["flags"]), str(about["way"]), str(about["xdist"]), of_worker)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def installed_build() -> Build | None:
    """The build of the JAX that is installed here; `None` for one that is not known. JAX is not imported."""
    return build_of(_installed_jax())


def _installed_jax() -> str:
    try:
        return importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError:
        return ""


def way_of(build: Build | None, flags: str) -> str:
    """In which way the results of this build can be read back, see the module's text."""
    said = xla_flags.new_format(flags)
    if said is not None:
        return "directory" if said else "file"
    if build is not None:
        return "directory" if build.default is Family.NEW else "file"
    numbers = [int(part) for part in _installed_jax().split(".")[:2] if part.isdecimal()]
    return "directory" if tuple(numbers) >= _NEW_FORMATS_SINCE else "file"


def _loaded(run: Run, load: Path, build: Build | None) -> None:
    """Lay down what is to be loaded, as XLA reads it."""
    entries: list[TuningEntry] = []
    for loaded in sources.load([load]):
        entries += loaded.entries
        run.left_out += [str(finding) for finding in loaded.broken]
    if not entries:
        raise TestRunError(run.left_out[0] if run.left_out else f"{load}: expected tuning results, found none")
    run.known = tuned_by.sorted_out(entries)
    # What this XLA finds first, since a folder has room for one result of each fusion.
    run.known.given = list(merging.merge(_versioned(run.known.given, build), build=build).entries)
    to = Format.NEW_DIRECTORY if run.way == "directory" else Format.LEGACY_BINARY
    if run.way == "file" and build is None and all(entry.family is Family.NEW for entry in run.known.given):
        to = Format.NEW_BINARY
    converted = convert(run.known.given, to, build=build)
    run.left_out += [str(finding) for finding in converted.findings]
    run.left_out += [f"{_where(entry)}: {wrong}" for entry, wrong in run.known.kept_back]
    run.known.given = list(merging.merge(_versioned(converted.entries, build), build=build).entries)
    if not run.known.given:
        raise TestRunError(f"{load}: nothing of it can be given to XLA here: {run.left_out[0]}")
    write(run.known.given, run.folder / ("load" if to.is_directory else "load.pb"), to)


def _versioned(entries: Iterable[TuningEntry], build: Build | None) -> Iterator[TuningEntry]:
    """Legacy entries of version 0, which is that of whoever reads them, with this build's."""
    for entry in entries:
        of_any = entry.family is Family.LEGACY and entry.fusion is not None and not entry.versions.entry
        yield replace(entry, versions=Versions(entry=build.entry_version)) if of_any and build else entry


def _where(entry: TuningEntry) -> str:
    return f"{entry.source.path}, entry {entry.source.index}"


class Watch:
    """Files in a folder and those below it that came, or were replaced, between two looks.

    A folder's time says whether anything was renamed into it. Its clock is coarse: what comes right after a look can
    leave the time as it was, so a folder is passed over only where its time was old at the look before.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, tuple[int, int, int]] = {}
        self._folders: dict[str, tuple[int, bool]] = {}

    def changed(self) -> list[Path]:
        """What came since the last call, sorted.

        Raises:
          OSError: the folder is not there, or cannot be read.
        """
        return sorted(Path(path) for path in self._look(str(self._folder)))

    def _look(self, folder: str) -> Iterator[str]:
        changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 - before the listing: what comes meanwhile is seen next time
        if self._folders.get(folder) == (changed, True):
            for below in [name for name in self._folders if os.path.dirname(name) == folder]:  # noqa: PTH120
                yield from self._look(below)
            return
        self._folders[folder] = (changed, _is_old(changed))
        with os.scandir(folder) as listed:
            found = list(listed)
        for one in found:
            if one.name.startswith(".") or one.name == "tmp":
                continue  # being written
            if one.is_dir(follow_symlinks=False):
                yield from self._look(one.path)
            elif one.is_file(follow_symlinks=False) and self._is_new(one):
                yield one.path

    def _is_new(self, one: os.DirEntry[str]) -> bool:
        status = one.stat(follow_symlinks=False)
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._files.get(one.path) == seen:
            return False
        self._files[one.path] = seen
        return True


def _is_old(changed: int) -> bool:
    return time.time_ns() - changed > _COARSE


def _linked(source: Path, target: Path) -> None:
    """The same files in another folder. XLA replaces files by renaming, so a link's other name stays as it is."""
    for folder, _, names in os.walk(source):
        here = target / Path(folder).relative_to(source)
        here.mkdir(mode=0o700, parents=True)
        for name in names:
            try:
                os.link(Path(folder) / name, here / name)
            except OSError:
                shutil.copyfile(Path(folder) / name, here / name)


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """What a process wrote down; a line that was cut off is passed over."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            told = json.loads(line)
            yield str(told["test"]), [str(name) for name in told["files"]]


def _there(path: Path) -> tuple[TuningEntry, ...]:
    """The entries of a file that is to be added to.

    Raises:
      TestRunError: something else is there.
      OSError: it cannot be looked at.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "something that is no file"
        raise TestRunError(f"{path}: expected a file to write, or nothing, found {what}; name another place")
    if not status.st_size:
        return ()
    if sources.is_lock(path):
        raise TestRunError(
            f"{path}: expected a file of XLA's to add to, or nothing, found a lock file, which is written by rewarm "
            "autotune lock alone; name another file"
        )
    reading = read(path)
    if reading.is_broken:
        wrong = next(finding for finding in reading.findings if finding.severity is Severity.ERROR)
        raise TestRunError(f"{wrong}; it is not overwritten: name another file, or remove it")
    return reading.entries


def _refuse_folder(folder: Path) -> None:
    """See whether a file can be made in a folder, or where the folder itself is to be made.

    Raises:
      OSError: it cannot.
    """
    while not os.path.lexists(folder):
        folder = folder.parent
    # What rights say is not what a file system that is mounted to be read alone, or a quota, lets one do.
    descriptor, name = tempfile.mkstemp(prefix=".rewarm-", dir=folder)
    os.close(descriptor)
    os.unlink(name)  # noqa: PTH108


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which needs no file of its own. Where there are no locks, nothing is held."""
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while locks.try_lock(descriptor) is False:
            if time.monotonic() > until:
                raise TestRunError(f"{folder}: somebody else has held its lock for {_LOCK_SECONDS:.0f} seconds")
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
