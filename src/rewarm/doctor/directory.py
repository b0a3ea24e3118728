"""Checks of the cache directory: whether it can be used, whose it is, what its file system keeps, and its room.

Not promised: to find a file system that breaks its word only under load, or only between hosts. What is tried is what
the store does, in a folder of its own that is removed again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rewarm.doctor.check import Check
from rewarm.doctor.facts import Facts
from rewarm.errors import StoreError
from rewarm.in_force import Settings
from rewarm.policy import Bounds
from rewarm.store import LocalStore
from rewarm.store.limits import bounds_of

_PROBE_BYTES = 1 << 20
_LITTLE = 1 << 30
_FEW_FILES = 1000
_CLOCKS_APART = 60.0


def checks(facts: Facts) -> Iterator[Check]:
    """All of this file."""
    place = _nearest(facts.directory)
    found = _usable(facts.directory, place)
    yield found
    yield from _owner(facts)
    if found.verdict != "problem":
        with _scratch(place) as scratch:
            yield _file_system(scratch)
            yield _room(scratch)
    yield from _bounds(facts)


def scratch_place(directory: Path) -> Path | None:
    """Where a scratch folder can be made on the file system of the cache; `None` where nothing can be written."""
    place = _nearest(directory)
    try:
        with _scratch(place):
            return place
    except OSError:
        return None


def _nearest(directory: Path) -> Path:
    """The directory itself, or the nearest one above it that is there."""
    return next((place for place in (directory, *directory.parents) if os.path.isdir(place)), Path("/"))  # noqa: PTH112


@contextlib.contextmanager
def _scratch(place: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=".rewarm-doctor-", dir=place, ignore_cleanup_errors=True) as name:
        yield Path(name)


def _usable(directory: Path, place: Path) -> Check:
    if place != directory and os.path.lexists(directory):
        return Check("directory", "problem", f"{directory} is not a directory", "choose another with REWARM_DIR")
    obstacle = _unwritable(directory, place)
    if obstacle:
        return Check(
            "directory", "problem", obstacle, "choose another with REWARM_DIR, change its rights, or make room"
        )
    if not os.access(place, os.R_OK | os.X_OK):
        return Check("directory", "problem", f"there is no right to read {place}", "choose another with REWARM_DIR")
    if place != directory:
        return Check("directory", "ok", f"{directory} is not there yet, and can be made")
    return _content(directory)


def _unwritable(directory: Path, place: Path) -> str:
    try:
        with _scratch(place):
            return ""
    except OSError as error:
        if place != directory:
            return f"{directory} cannot be made: {error.strerror}"
        return f"{directory} cannot be written to: {error.strerror}; entries are read, and new ones are not stored"


def _content(directory: Path) -> Check:
    store = LocalStore(directory)
    try:
        sizes = [info.size for info in store.scan()]
    except StoreError as error:
        return Check(
            "directory", "problem", f"{error.strerror}: {error.filename}", "change its rights, or choose another"
        )
    told = f"{directory} holds {len(sizes)} entries of {sum(sizes) / 1e6:.1f} MB"
    if not sizes and not store.is_ours() and any(directory.iterdir()):
        found = f"{directory} is not empty and not rewarm's so far; it will live beside what is there"
        return Check("directory", "note", found, "choose a directory of its own with REWARM_DIR")
    return Check("directory", "ok", told)


def _owner(facts: Facts) -> Iterator[Check]:
    """An entry is code: who may write there can run it in the user's programs."""
    shared = isinstance(facts.in_force, Settings) and facts.in_force.shared
    if not facts.directory.is_dir():
        return
    reason = LocalStore(facts.directory).others_may_write()
    if reason is None:
        yield Check("owner", "ok", "nobody else may write to the directory")
    elif shared:
        yield Check("owner", "note", f"{reason}; REWARM_SHARED says that they are trusted", "unset it if not")
    else:
        advice = f"chmod go-w {facts.directory}, or say REWARM_SHARED=1 if everybody who may write there is trusted"
        yield Check("owner", "problem", f"an entry is code, and {reason}", advice)


# -- the file system -----------------------------------------------------------------------------------------------


def _file_system(scratch: Path) -> Check:
    grave: list[str] = []
    light: list[str] = []
    for probe, cost, needed in _PROBES:
        wrong = _tried(probe, scratch)
        if wrong:
            (grave if needed else light).append(f"{wrong}: {cost}")
    kind = _kind(scratch)
    advice = "put the cache on a local disk with REWARM_DIR"
    if grave:
        return Check("file system", "problem", f"{kind}: {'; '.join(grave + light)}", advice)
    if light:
        return Check("file system", "note", f"{kind}: {'; '.join(light)}", advice)
    return Check("file system", "ok", f"{kind} keeps what the store needs: writes, renames, times, names, locks")


def _tried(probe: Callable[[Path], str], scratch: Path) -> str:
    try:
        return probe(scratch)
    except OSError as error:
        return f"{probe.__name__.strip('_').replace('_', ' ')} fails ({error.strerror or error})"


def _writing(scratch: Path) -> str:
    data = os.urandom(4096)
    _put(scratch / "written", data)
    return "" if (scratch / "written").read_bytes() == data else "what is written is not what is read"


def _renaming_over_a_file(scratch: Path) -> str:
    _put(scratch / "old", b"old")
    _put(scratch / "new", b"new")
    (scratch / "new").replace(scratch / "old")
    holds = (scratch / "old").read_bytes() == b"new" and not (scratch / "new").exists()
    return "" if holds else "renaming over a file leaves the old one"


def _making_a_name_once(scratch: Path) -> str:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    os.close(os.open(scratch / "once", flags, 0o600))
    try:
        os.close(os.open(scratch / "once", flags, 0o600))
    except FileExistsError:
        return ""
    return "a name can be made twice"


def _setting_times(scratch: Path) -> str:
    _put(scratch / "timed", b"x")
    apart = (scratch / "timed").stat().st_mtime - time.time()
    if abs(apart) > _CLOCKS_APART:
        return f"its clock is {apart:.0f} s off this host's"
    then = time.time() - 1e6
    os.utime(scratch / "timed", (then, then))
    return "" if abs((scratch / "timed").stat().st_mtime - then) < 2.5 else "times that are set are not kept"


def _locking(scratch: Path) -> str:
    try:
        import fcntl
    except ImportError:
        return "this system has no flock"
    _put(scratch / "locked", b"")
    with (scratch / "locked").open("rb") as one, (scratch / "locked").open("rb") as other:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
    return "a lock does not keep another out"


_PROBES: tuple[tuple[Callable[[Path], str], str, bool], ...] = (
    (_writing, "no entry can be stored", True),
    (_renaming_over_a_file, "an entry cannot be replaced", True),
    (_making_a_name_once, "two writers can mix their bytes, which costs entries", True),
    (_setting_times, "what was used last is not known, and eviction takes the wrong entries", False),
    (_locking, "the bounds can be passed, and runs are kept a day longer", False),
)


def _put(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _kind(place: Path) -> str:
    """The type of the file system that a place lies on, as Linux tells it (proc_pid_mountinfo(5))."""
    best, kind = "", "the file system"
    resolved = f"{place.resolve()}/"
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            before, _, after = line.partition(" - ")
            point = before.split(" ")[4].replace("\\040", " ")
            if resolved.startswith(f"{point.rstrip('/')}/") and len(point) >= len(best):
                best, kind = point, after.split(" ")[0]
    return kind


def _room(scratch: Path) -> Check:
    try:
        _put(scratch / "room", bytes(_PROBE_BYTES))
    except OSError as error:
        return Check(
            "room", "problem", f"1 MiB cannot be written: {error.strerror}", "free some room, or raise the quota"
        )
    if not hasattr(os, "statvfs"):
        return Check("room", "ok", "1 MiB can be written")
    status = os.statvfs(scratch)
    free = status.f_bavail * status.f_frsize
    if status.f_files and status.f_favail < _FEW_FILES:
        return Check(
            "room", "note", f"only {status.f_favail} more files can be made", "remove files, or choose another disk"
        )
    if free < _LITTLE:
        return Check(
            "room", "note", f"only {free / 1e6:.0f} MB are free", "free some room; without it nothing is stored"
        )
    return Check("room", "ok", f"{free / 1e9:.1f} GB are free")


# -- the bounds ----------------------------------------------------------------------------------------------------


def _bounds(facts: Facts) -> Iterator[Check]:
    if isinstance(facts.in_force, str):
        return
    if facts.in_force.max_size == 0:
        found = "max_size is 0: nothing is looked up or stored"
        advice = "raise or unset REWARM_MAX_SIZE and JAX_COMPILATION_CACHE_MAX_SIZE"
        yield Check("bounds", "problem", found, advice)
        return
    sizes = _sizes(facts.directory)
    bounds = bounds_of(facts.in_force._replace(directory=facts.directory), held=sum(sizes))
    yield _bound(bounds, sizes)


def _bound(bounds: Bounds, sizes: list[int]) -> Check:
    largest, held = max(sizes, default=0), sum(sizes)
    if bounds.max_size is not None and largest > bounds.max_size:
        found = f"max_size is {bounds.max_size} bytes, and the largest entry has {largest}: it can never stay"
        return Check(
            "bounds", "problem", found, "raise REWARM_MAX_SIZE above the largest entry, better to some of them"
        )
    if bounds.exceeded(held, len(sizes)):
        return Check("bounds", "note", "the directory holds more than its bounds", "rewarm gc brings it under them now")
    size = "no bound" if bounds.max_size is None else f"{bounds.max_size / 1e6:.0f} MB"
    entries = "no bound" if bounds.max_entries is None else str(bounds.max_entries)
    return Check("bounds", "ok", f"{held / 1e6:.1f} MB of {size}, {len(sizes)} entries of {entries}")


def _sizes(directory: Path) -> list[int]:
    try:
        return [info.size for info in LocalStore(directory).scan()]
    except StoreError:  # which the check of the directory says
        return []
