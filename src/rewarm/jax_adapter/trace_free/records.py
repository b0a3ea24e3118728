"""What was recorded of a function's traces, on disk, and how far it is trusted.

Not promised: that a record is found again: the oldest go, and one that cannot be read is none.

    <root>/traces/<kind, 64 hex>/<key>.trace    an entry of the envelope, kind "trace"
    <root>/traces/<kind, 64 hex>/<key>.json     what became of it: proofs, starts without one
    <root>/traces/<kind, 64 hex>/<key>.struck   a proof failed, and how: what was recorded of these guards is never
                                                believed again, whoever records it anew
    <root>/traces/<kind, 64 hex>/last.json      what became of the last call, for people

A record's key is the digest of kind and guards. Its sections: "guards" (JSON), "place" (JSON: how the executable is
loaded), "parts" (what `seam.take_apart` made: it is unpickled, so the folder is a private one, as all that holds code),
"decisions" (JSON: winners of the tuner that the trace took), "told" (JSON, for people) and "facts" (JSON: the rest). At
most `_VARIANTS` of one kind are kept, the newest, and `_KINDS` kinds in all.

Races, and their worst outcome: two processes count proofs or starts at once, and one count is lost. A strike is a file
of its own, which nobody takes back.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rewarm import small_files
from rewarm.envelope import Entry, Header, open_entry, seal
from rewarm.errors import BadEntryError
from rewarm.guards import Guards
from rewarm.jax_adapter.tuner.decisions import Decision
from rewarm.store.contract import is_key

FOLDER = "traces"
TRACE = "trace"
LAST = "last.json"

_STRUCK = ".struck"
_FACTS = ("results", "likeness", "alone")

_VARIANTS = 32
_KINDS = 1_000
_BYTES = 64 << 20
_SMALL = 256 << 10


class Place(NamedTuple):
    """How the executable of a record is loaded.

    Attributes:
      platform: of the devices.
      devices: their ids, in the order of the assignment.
      shape: of the array of devices.
      options: the serialised `CompileOptions`.
      lapack: whether the program calls functions of LAPACK, which must be found before it runs.
    """

    platform: str
    devices: tuple[int, ...]
    shape: tuple[int, ...]
    options: bytes
    lapack: bool

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {**self._asdict(), "options": base64.b64encode(self.options).decode("ascii")}

    @classmethod
    def of_plain(cls, told: Mapping[str, Any]) -> Place:
        """Raises ValueError, KeyError or TypeError where it is none."""
        return cls(
            str(told["platform"]),
            tuple(int(one) for one in told["devices"]),
            tuple(int(one) for one in told["shape"]),
            base64.b64decode(told["options"], validate=True),
            bool(told["lapack"]),
        )


class Record(NamedTuple):
    """One trace of a function, and what came of it.

    Attributes:
      kind: of the call (`asked.Asked`).
      name: of the function.
      key: of the entry that holds the executable.
      program: the digest of the canonical program: the component of the key.
      guards: all that the trace depended on.
      place: how the executable is loaded.
      parts: what it is beside the executable.
      created: seconds since the epoch.
      told: what the kind was made of.
      decisions: the winners of tunable functions that the trace took, or found none of.
      results: the digest of the tree and the types of what the function returns (`results.py`).
      likeness: a digest of the plain values that the function captures, by which the record is found quickly that fits.
      alone: why a proof must not run beside the program; "" where it may.
    """

    kind: str
    name: str
    key: str
    program: str
    guards: Guards
    place: Place
    parts: bytes
    created: float
    told: Mapping[str, str]
    decisions: tuple[Decision, ...] = ()
    results: str = ""
    likeness: str = ""
    alone: str = ""

    @property
    def id(self) -> str:
        """What tells it from the other records of its kind."""
        return _key(self.kind, self.guards.digest)


class State(NamedTuple):
    """How far a record is trusted.

    Attributes:
      proved: how often another process traced the call and came to the same key.
      last: when it did last, in seconds since the epoch; 0.0 for never.
      starts: how many starts skipped the trace since then.
      struck: what was missed, where a proof failed: the record is never believed again.
    """

    proved: int = 0
    last: float = 0.0
    starts: int = 0
    struck: str = ""

    @property
    def may_skip(self) -> bool:
        """Whether a trace may be skipped on the strength of it."""
        return self.proved > 0 and not self.struck


class Records:
    """The records of one cache directory. Nothing here raises `OSError`: what cannot be kept is not."""

    def __init__(self, root: Path) -> None:
        self._root = root / FOLDER

    def of(self, kind: str, likeness: str = "") -> Iterator[Record]:
        """The records of a kind that can be read, those of this likeness first, and the newest first among those."""
        found = (self._read(path, kind) for path in self._newest(kind))
        others = []
        for record in found:
            if record is not None and likeness in ("", record.likeness):
                yield record
            elif record is not None:
                others.append(record)
        yield from others

    def state(self, record: Record) -> State:
        """How far it is trusted."""
        struck = self._struck(record)
        try:
            told = json.loads(small_files.contents(self._path(record.kind, f"{record.id}.json"), _SMALL))
            return State(_count(told["proved"]), float(told["last"]), _count(told["starts"]), struck)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return State(struck=struck)

    def note(self, record: Record, state: State) -> None:
        """Keep how often it was proved; a strike is not taken back by it."""
        told = {name: value for name, value in state._asdict().items() if name != "struck"}
        self._write(record.kind, f"{record.id}.json", json.dumps(told).encode())

    def strike(self, record: Record, why: str) -> None:
        """A proof failed: never believe it again, nor what is recorded anew of the same guards."""
        self._write(record.kind, f"{record.id}{_STRUCK}", why.encode("utf-8", "replace")[:_SMALL])

    def _struck(self, record: Record) -> str:
        path = self._path(record.kind, f"{record.id}{_STRUCK}")
        try:
            return small_files.contents(path, _SMALL).decode("utf-8", "replace") or "a proof failed"
        except FileNotFoundError:
            return ""
        except OSError as error:  # something is there
            return f"a proof failed ({error.strerror})"

    def put(self, record: Record) -> None:
        """Keep a record; its state begins anew."""
        header = Header(
            kind=TRACE,
            key=record.id,
            components=(),
            program=record.name,
            compile_seconds=0.0,
            created=record.created,
            producer={"key": record.key, "program": record.program},
            target=record.place.platform,
        )
        sections = {
            "guards": json.dumps(record.guards.plain()).encode(),
            "place": json.dumps(record.place.plain()).encode(),
            "told": json.dumps(dict(record.told)).encode(),
            "parts": record.parts,
            "decisions": json.dumps([one.plain() for one in record.decisions]).encode(),
            "facts": json.dumps({name: getattr(record, name) for name in _FACTS}).encode(),
        }
        with contextlib.suppress(OSError):
            self._path(record.kind, f"{record.id}.json").unlink(missing_ok=True)
        self._write(record.kind, f"{record.id}.trace", seal(header, sections))
        self._trim(record.kind)

    def tell(self, kind: str, told: Mapping[str, Any]) -> None:
        """Keep, for people, what became of a call of this kind."""
        self._write(kind, LAST, json.dumps(dict(told)).encode())

    def kinds(self) -> list[str]:
        """The kinds of calls of which something is known, the one that was seen last first."""
        with contextlib.suppress(OSError):
            return [path.name for path in sorted(self._root.iterdir(), key=_age, reverse=True) if is_key(path.name)]
        return []

    def last(self, kind: str) -> Mapping[str, Any]:
        """What became of the last call of this kind."""
        try:
            told = json.loads(small_files.contents(self._path(kind, LAST), _SMALL))
            return told if isinstance(told, dict) else {}
        except (OSError, ValueError, RecursionError):
            return {}

    # -- files -------------------------------------------------------------------------------------------------

    def _path(self, kind: str, name: str) -> Path:
        return self._root / kind / name

    def _newest(self, kind: str) -> list[Path]:
        try:
            return sorted(self._path(kind, "").glob("*.trace"), key=_age, reverse=True)
        except OSError:
            return []

    def _read(self, path: Path, kind: str) -> Record | None:
        try:
            return _record(open_entry(small_files.contents(path, _BYTES), path.stem), kind)
        except (OSError, BadEntryError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _write(self, kind: str, name: str, data: bytes) -> None:
        path = self._path(kind, name)
        with contextlib.suppress(OSError):
            if not path.parent.is_dir():
                small_files.make_folder(self._root)
                small_files.make_folder(path.parent)
            small_files.replace(path, data)

    def _trim(self, kind: str) -> None:
        with contextlib.suppress(OSError):
            for path in self._newest(kind)[_VARIANTS:]:
                path.unlink(missing_ok=True)
                path.with_suffix(".json").unlink(missing_ok=True)
            folders = sorted((Path(one) for one in os.scandir(self._root)), key=_age, reverse=True)
            for folder in folders[_KINDS:]:
                shutil.rmtree(folder, ignore_errors=True)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _count(value: Any) -> int:
    """Raises ValueError where it is no count."""
    if type(value) is not int or value < 0:
        raise ValueError(f"not a count: {value!r:.40}")
    return value


def _key(kind: str, guards: str) -> str:
    return hashlib.sha256(f"{kind} {guards}".encode()).hexdigest()


def _record(entry: Entry, kind: str) -> Record:
    header = entry.header
    guards = Guards.of_plain(json.loads(entry.section("guards")))
    if header.kind != TRACE or header.key != _key(kind, guards.digest):
        raise ValueError("the record of another call")
    return Record(
        kind=kind,
        name=header.program,
        key=str(header.producer["key"]),
        program=str(header.producer["program"]),
        guards=guards,
        place=Place.of_plain(json.loads(entry.section("place"))),
        parts=entry.section("parts"),
        created=header.created,
        told=json.loads(entry.section("told")),
        decisions=tuple(Decision.of_plain(one) for one in json.loads(entry.section("decisions"))),
        **{name: str(told) for name, told in json.loads(entry.section("facts")).items() if name in _FACTS},
    )
