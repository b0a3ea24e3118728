"""What a cache directory has known: one line for each miss, found again by program, by name or by structure.

Not promised: completeness. The catalogue is a hint for explanations; keys and entries never depend on it, and losing
it loses explanations alone.

    <root>/explain/<2 hex>.jsonl         lines of `Remembered`, the newest last; at most 64 KiB each
    <root>/explain/values/<64 hex>.json  the value of a component, by its digest; at most 512

A line is written to the file of each of its tags, so a look-up reads three small files, whatever the directory holds.

Races, and their worst outcome:

* two writers of one file: each line is one write to a file opened for appending; lines do not mix on a local disk. A
  line that is torn all the same is passed over.
* a writer beside somebody who shortens the file: the line can be lost, and with it one explanation.
* two writers of one value: both write the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rewarm import small_files

FOLDER = "explain"
_VALUES = "values"
_FILE_BYTES = 64 * 1024
_VALUES_KEPT = 512
_SIGNATURE_KEPT = 600

STORED, NOT_STORED = "stored", "not stored"


class Remembered(NamedTuple):
    """One miss, as the catalogue keeps it.

    Attributes:
      key: 64 hexadecimal digits.
      program: the module's name.
      time: seconds since the epoch.
      outcome: `STORED` or `NOT_STORED`.
      why: for `NOT_STORED`, why.
      components: name to digest, in the order of the key's table.
      structure, attributes, operations: see `identity.program.Shape`.
      signature: the types of the main function, cut to 600 characters.
      producer: versions of what compiled it.
      kinds: a digest of the kinds of its operations.
      run: which process it was in.
    """

    key: str
    program: str
    time: float
    outcome: str
    why: str
    components: Mapping[str, str]
    structure: str
    attributes: str
    operations: int
    signature: str
    producer: Mapping[str, str]
    kinds: str = ""
    run: str = ""


def shortened(signature: str) -> str:
    """A signature as the catalogue keeps it: whole, or its start and a digest of the rest."""
    if len(signature) <= _SIGNATURE_KEPT:
        return signature
    digest = hashlib.sha256(signature.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{signature[:_SIGNATURE_KEPT]}... {digest}"


class Catalogue:
    """The catalogue of the cache directory `root`. Nothing here raises: a hint that cannot be kept is not kept."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        self._written: set[str] = set()

    def remember(self, one: Remembered, values: Mapping[str, Any]) -> None:
        """Keep a miss, and the values of its components (digest to value) that are not kept yet."""
        # A line end comes first as well, so that a line which a full disk cut short does not spoil the next.
        line = f"\n{json.dumps(one._asdict(), ensure_ascii=True, separators=(',', ':'))}\n".encode("ascii")
        with contextlib.suppress(OSError):
            small_files.make_folder(self._folder)
        for name in {_file_of(tag) for tag in _tags(one.program, one.components, one.structure)}:
            with contextlib.suppress(OSError):
                self._append(self._folder / name, line)
        for digest, value in values.items():
            self._keep_value(digest, value)

    def alike(self, program: str, components: Mapping[str, str], structure: str) -> list[Remembered]:
        """What is remembered of the same program, the same name or the same structure, the newest first."""
        names = {_file_of(tag) for tag in _tags(program, components, structure)}
        found = {one for name in names for one in self._read(self._folder / name)}
        wanted = [one for one in (hashed.one for hashed in found) if _is_alike(one, program, components, structure)]
        return sorted(wanted, key=lambda one: one.time, reverse=True)

    def value(self, digest: str) -> Any:
        """The value of a component, or `None` when it is not kept."""
        try:
            return json.loads(small_files.contents(self._folder / _VALUES / f"{digest}.json", 2 * _FILE_BYTES))
        except (OSError, ValueError, RecursionError):
            return None

    # -- inside ------------------------------------------------------------------------------------------------

    def _append(self, path: Path, line: bytes) -> None:
        if small_files.append(path, line) > _FILE_BYTES:
            small_files.shorten(path, _FILE_BYTES)

    def _read(self, path: Path) -> Iterator[_Hashed]:
        with contextlib.suppress(OSError):
            for line in small_files.contents(path, 2 * _FILE_BYTES).splitlines():
                with contextlib.suppress(ValueError, TypeError, RecursionError):
                    yield _Hashed(_checked(Remembered(**json.loads(line))))

    def _keep_value(self, digest: str, value: Any) -> None:
        if digest in self._written:
            return
        self._written.add(digest)
        folder = self._folder / _VALUES
        path = folder / f"{digest}.json"
        with contextlib.suppress(OSError):
            small_files.make_folder(folder)
            if not path.exists():
                small_files.replace(path, json.dumps(value, separators=(",", ":")).encode("ascii"))
                _keep_newest(folder)


class _Hashed:
    """A remembered miss that can be told from another in a set: it lies in up to three files."""

    def __init__(self, one: Remembered) -> None:
        self.one = one
        self._identity = (one.key, one.time, one.outcome)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


_TEXTS = ("key", "program", "outcome", "why", "structure", "attributes", "signature", "kinds", "run")


def _checked(one: Remembered) -> Remembered:
    """What a line holds, once it has the types that it should have.

    Raises:
      TypeError: it has not.
    """
    texts = all(isinstance(getattr(one, name), str) for name in _TEXTS)
    numbers = all(type(number) in (int, float) for number in (one.time, one.operations))
    tables = all(isinstance(table, dict) for table in (one.components, one.producer))
    if not (texts and numbers and tables):
        raise TypeError("not a line of the catalogue")
    return one


def _tags(program: str, components: Mapping[str, str], structure: str) -> Iterable[str]:
    return f"name {program}", f"program {components.get('program')}", f"structure {structure}"


def _file_of(tag: str) -> str:
    return f"{hashlib.sha256(tag.encode('utf-8', 'surrogatepass')).hexdigest()[:2]}.jsonl"


def _is_alike(one: Remembered, program: str, components: Mapping[str, str], structure: str) -> bool:
    same_program = one.components.get("program") == components.get("program")
    return same_program or one.program == program or one.structure == structure


def _keep_newest(folder: Path) -> None:
    with os.scandir(folder) as items:
        files = [item for item in items if item.name.endswith(".json") and item.is_file(follow_symlinks=False)]
    if len(files) > _VALUES_KEPT:
        ages = sorted((item.stat().st_mtime, item.path) for item in files)
        for _, path in ages[: len(files) - _VALUES_KEPT // 2]:
            with contextlib.suppress(OSError):
                Path(path).unlink()
