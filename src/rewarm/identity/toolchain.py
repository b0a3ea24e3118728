"""The `toolchain` component: the native libraries and tools that make code, by content.

Not promised: a defence against somebody who patches a library and sets size and every time back. Such a person can
change the entries as well.

Hashing jaxlib's 330 MB takes 0.4 s, so it is the last resort. In this order:

1. the wheel's RECORD holds the SHA-256 of each file it installed. It is believed while the file has the size that
   RECORD says and was not changed after RECORD was written.
2. a digest that was computed before is believed while path, device, inode, size, mtime and ctime are the same.
3. the file is hashed, and the digest remembered in the cache directory.

RECORD: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rewarm import small_files

# An installer links or copies a wheel's files one after the other and writes RECORD at the end, but one that makes
# hard links moves the ctime of files it installed before. This much later, in seconds, is still the installation.
_INSTALLING = 60.0


# Far more than the libraries of any installation take.
_MEMO_BYTES = 1 << 20


class Library(NamedTuple):
    """One file that takes part in making code.

    Attributes:
      name: how the key calls it, such as "jaxlib/libjax_common.so"; the path does not count.
      path: where it lies.
      distribution: the wheel that it should have come from, or `None`.
    """

    name: str
    path: Path
    distribution: str | None = None


class Toolchain:
    """Identifies libraries, remembering digests in the file `memo` (made when first needed)."""

    def __init__(self, memo: Path) -> None:
        self._memo = memo

    def identify(self, libraries: Iterable[Library]) -> dict[str, str]:
        """Name to SHA-256, hexadecimal.

        Raises:
          OSError: a library cannot be read.
        """
        return {library.name: self._digest(library) for library in sorted(libraries, key=lambda one: one.name)}

    def _digest(self, library: Library) -> str:
        path = library.path.resolve()
        recorded = recorded_digest(path, library.distribution) if library.distribution else None
        return recorded or self._remembered(path)

    def _remembered(self, path: Path) -> str:
        status = path.stat()
        identity = [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        known = self._load()
        if path.as_posix() in known and known[path.as_posix()][:-1] == identity:
            return str(known[path.as_posix()][-1])
        digest = hash_file(path)
        self._save({**known, path.as_posix(): [*identity, digest]})
        return digest

    def _load(self) -> dict[str, list[object]]:
        try:
            known = json.loads(small_files.contents(self._memo, _MEMO_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(known, dict):
            return {}
        rows = {path: row for path, row in known.items() if isinstance(row, list) and len(row) == 6}
        return {path: row for path, row in rows.items() if _is_digest(row[5])}

    def _save(self, known: dict[str, list[object]]) -> None:
        # Two processes that save at once: the later wins, and the other's digest is computed again some day.
        with contextlib.suppress(OSError):  # read-only or full: the next start hashes again
            small_files.replace(self._memo, json.dumps(known).encode("ascii"))


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def hash_file(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recorded_digest(path: Path, distribution: str) -> str | None:
    """The SHA-256 that the RECORD of `distribution` holds for `path`, or `None` where there is any doubt.

    Doubts: no RECORD or several, no hash, a file that was changed after it was installed, an editable or local
    installation, and conda, which may rewrite libraries after RECORD was made.
    """
    if (Path(sys.prefix) / "conda-meta").is_dir():
        return None
    try:
        records = _records(path, distribution)
    except OSError:  # a folder above that may not be listed
        return None
    if len(records) != 1 or _is_local(records[0].parent):
        return None
    record = records[0]
    try:
        row = _row(record, path)
    except (OSError, ValueError):
        return None
    return _believe(row, path, record) if row else None


def _records(path: Path, distribution: str) -> list[Path]:
    """RECORDs of the distribution in the nearest folder above `path` that has any."""
    start = re.sub(r"[-_.]+", "_", distribution).lower() + "-"
    for folder in path.parents:
        infos = (info for info in folder.iterdir() if info.name.lower().startswith(start))
        found = [info / "RECORD" for info in infos if info.name.endswith(".dist-info")]
        if records := [record for record in found if record.is_file()]:
            return records
    return []


def _is_local(info: Path) -> bool:
    try:
        return "dir_info" in json.loads((info / "direct_url.json").read_bytes())
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _row(record: Path, path: Path) -> list[str] | None:
    site = record.parent.parent
    name = path.relative_to(site).as_posix()
    with record.open(newline="", encoding="utf-8") as lines:
        # The name is looked for in the text first: parsing a thousand rows costs more than everything else here.
        wanted = [line for line in lines if line.startswith((name + ",", f'"{name}"'))]
    rows = list(csv.reader(wanted))
    return rows[0] if len(rows) == 1 and len(rows[0]) == 3 else None


def _believe(row: list[str], path: Path, record: Path) -> str | None:
    _, digest, size = row
    file, written = path.stat(), record.stat()
    unchanged = (
        size == str(file.st_size)
        and file.st_mtime_ns <= written.st_mtime_ns
        and file.st_ctime <= written.st_ctime + _INSTALLING
    )
    algorithm, _, value = digest.partition("=")
    if not unchanged or algorithm != "sha256":
        return None
    try:
        plain = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
    except ValueError:
        return None
    return plain if _is_digest(plain) else None
