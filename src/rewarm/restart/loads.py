"""Which executables the starts of a program load, in their order, and how.

Not promised: that a record is right, or that there is one. It is a hint: what it names wrongly costs idle work.

    <root>/loads/<32 hex>.json      the name is that of the program's plan (`sharing.plans`)

    file  := SHA-256 of the rest, 64 hex, LF, loads
    loads := {"version": 1, "about": text, "surroundings": [text, text, [[path, size, ns], ...]] | null,
              "ways": [{"platform": text, "devices": [id, ...], "options": base64}],
              "loads": [[64 hex, number of its way, bytes of the executable], ...]}

A record stays in the cache directory, and is written and read by its user alone: the options in it are handed to JAX as
they are, and wrong ones end the process, so a record that is not whole is none. Its ways belong to one kind of host and
one jaxlib: of another's nothing but the keys is believed. The oldest of more than 1,000 records go, and one has no more
than 5,000 loads.

An entry says itself how it was going to be loaded where it was made, in a section of its own, which is verified, and
signed, with all of the entry:

    way := {"callbacks": 0, "devices": [id, ...], "platform": text} as JSON, LF, the serialised `CompileOptions`
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import platform
import sys
from pathlib import Path
from typing import Any, NamedTuple

from rewarm import small_files
from rewarm.restart.surroundings import File, Surroundings
from rewarm.sharing.plans import ids_of
from rewarm.store.contract import is_key

FOLDER = "loads"
VERSION = 1

LOADS = 5_000
_BYTES = 2 << 20
_RECORDS = 1_000


class Way(NamedTuple):
    """How an executable is loaded.

    Attributes:
      platform: of the devices.
      devices: their ids, in the order of the assignment.
      options: the serialised `CompileOptions`.
    """

    platform: str
    devices: tuple[int, ...]
    options: bytes

    @classmethod
    def of(cls, place: Any | None) -> Way | None:
        """That of a request's `place`; `None` for one that nobody else can take: it is not known, or has callbacks."""
        return None if place is None or place.callbacks else cls(place.platform, place.devices, place.options)

    def in_entry(self) -> bytes:
        """What an entry says of it."""
        said = {"callbacks": 0, "devices": list(self.devices), "platform": self.platform}
        return json.dumps(said, separators=(",", ":")).encode("ascii") + b"\n" + self.options

    @classmethod
    def said(cls, section: bytes) -> Way | None:
        """The way that an entry says, once the entry was verified; `None` where this is none that is known."""
        line, _, options = section.partition(b"\n")
        try:
            told = json.loads(line)
            platform, devices = told["platform"], told["devices"]
            if told["callbacks"] == 0 and isinstance(platform, str) and all(type(one) is int for one in devices):
                return cls(platform, tuple(devices), options)
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        return None


class Load(NamedTuple):
    """One executable that a start loaded.

    Attributes:
      key: of its entry.
      way: how it was loaded on this host; `None` where that is not known.
      size: bytes of the executable, unpacked; 0 where they are not known.
    """

    key: str
    way: Way | None = None
    size: int = 0


class Record(NamedTuple):
    """What the starts of a program load.

    Attributes:
      loads: in the order in which they were asked for.
      surroundings: of the last start when JAX made its client; `None` where another may not be made early.
    """

    loads: tuple[Load, ...] = ()
    surroundings: Surroundings | None = None


NOTHING = Record()


def read(root: Path, program: tuple[str, ...]) -> Record:
    """What starts of a program load, by the most exact record that there is; `NOTHING` where none can be read."""
    for plan_id in ids_of(program):
        with contextlib.suppress(OSError):
            found = _record(small_files.contents(_path(root, plan_id), _BYTES))
            if found.loads:
                return found
    return NOTHING


def write(root: Path, program: tuple[str, ...], record: Record) -> None:
    """Keep what a start loaded, for the next one. Where it cannot be kept it is not."""
    kept = tuple({load.key: load for load in record.loads}.values())[:LOADS]
    data = _bytes(Record(kept, record.surroundings))
    for plan_id in ids_of(program):
        path = _path(root, plan_id)
        with contextlib.suppress(OSError):
            if not _is_news(path, data):
                continue
            small_files.make_folder(path.parent)
            small_files.replace(path, data)
            # A program that is started with other arguments each time leaves one at each start.
            small_files.keep_newest(path.parent, ".json", _RECORDS)


@functools.cache
def about_this_host() -> str:
    """What tells hosts apart whose CPUs may not run the same code, and versions that may not load the same."""
    told = [platform.system(), platform.machine(), platform.processor(), sys.version]
    for package in ("jax", "jaxlib"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            told.append(importlib.metadata.version(package))
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0].splitlines()
        told += [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]


def _path(root: Path, plan_id: str) -> Path:
    return root / FOLDER / f"{plan_id}.json"


def _is_news(path: Path, data: bytes) -> bool:
    try:
        return small_files.contents(path, _BYTES) != data
    except OSError:
        return True


def _bytes(record: Record) -> bytes:
    loads = [(load.key, load.way, load.size) for load in record.loads if load.way is not None]
    numbers = {way: number for number, way in enumerate(dict.fromkeys(way for _, way, _ in loads))}
    ways = [{**way._asdict(), "options": base64.b64encode(way.options).decode("ascii")} for way in numbers]
    rows = [[key, numbers[way], size] for key, way, size in loads]
    told = {
        "version": VERSION,
        "about": about_this_host(),
        "surroundings": record.surroundings,
        "ways": ways,
        "loads": rows,
    }
    data = json.dumps(told, separators=(",", ":")).encode("ascii")
    return hashlib.sha256(data).hexdigest().encode("ascii") + b"\n" + data


def _record(data: bytes) -> Record:
    digest, _, data = data.partition(b"\n")
    if hashlib.sha256(data).hexdigest().encode("ascii") != digest:
        return NOTHING
    try:
        told = json.loads(data)
        if told["version"] != VERSION:
            return NOTHING
        rows = [row for row in told["loads"][:LOADS] if is_key(row[0])]
        if told["about"] != about_this_host():
            return Record(tuple(Load(key) for key, _, _ in rows))
        ways = [_way(one) for one in told["ways"]]
        loads = tuple(Load(key, ways[number], int(size)) for key, number, size in rows)
        return Record(loads, _surroundings(told["surroundings"]))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
        return NOTHING


def _surroundings(told: list[Any] | None) -> Surroundings | None:
    if told is None:
        return None
    environment, flags, files = told
    return Surroundings(str(environment), str(flags), tuple(File(str(path), size, ns) for path, size, ns in files))


def _way(told: dict[str, Any]) -> Way:
    devices = tuple(int(one) for one in told["devices"])
    return Way(str(told["platform"]), devices, base64.b64decode(told["options"], validate=True))
