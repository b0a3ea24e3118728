"""Which entries took longer to load than to compile, on this host.

Not promised: that every slow load is known. What is kept here is a habit of the host, learnt from few observations;
losing it costs a few slow hits.

    <root>/costs/<host>.jsonl    {"key": 64 hex, "seconds": s, "time": t}, one line for each slow hit, the newest last

Only slow hits are written, so a start at which all is well writes nothing. A line counts for a week: a disk that was
slow once must not keep an entry out for ever, and what is refused is not measured again.

Races, and their worst outcome: two processes that append at once write whole lines; one that shortens the file beside
another that appends can lose that line, and with it one observation.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import NamedTuple

from rewarm import small_files

COSTS = "costs"
_FILE_BYTES = 64 * 1024
_COUNTS_FOR = 7 * 86_400.0


class SlowLoads(NamedTuple):
    """What is known of one entry.

    Attributes:
      times: how often it was slower to fetch and load than it was to compile.
      seconds: the quickest of those times.
    """

    times: int = 0
    seconds: float = float("inf")


class LoadCosts:
    """The slow loads of one host in one cache directory. Nothing here raises.

    Args:
      directory: the cache directory.
      host: what names the host, as part of a file's name.
    """

    def __init__(self, directory: Path, host: str) -> None:
        self._path = directory / COSTS / f"{host}.jsonl"
        self._known: dict[str, SlowLoads] | None = None

    def known(self, key: str) -> SlowLoads:
        """What is known of `key`."""
        return self._all().get(key, SlowLoads())

    def note(self, key: str, seconds: float) -> SlowLoads:
        """Add a slow load that took so long; returns what is known with it."""
        known = self._all()
        before = known.get(key, SlowLoads())
        known[key] = SlowLoads(before.times + 1, min(before.seconds, seconds))
        line = json.dumps({"key": key, "seconds": round(seconds, 6), "time": round(time.time())})
        with contextlib.suppress(OSError):
            self._append(f"{line}\n".encode("ascii"))
        return known[key]

    def _all(self) -> dict[str, SlowLoads]:
        if self._known is None:
            self._known = {}
            for line in self._lines():
                with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
                    self._count(json.loads(line))
        return self._known

    def _count(self, row: dict[str, object]) -> None:
        key, seconds, when = str(row["key"]), float(str(row["seconds"])), float(str(row["time"]))
        if abs(time.time() - when) < _COUNTS_FOR:
            assert self._known is not None
            before = self._known.get(key, SlowLoads())
            self._known[key] = SlowLoads(before.times + 1, min(before.seconds, seconds))

    def _lines(self) -> list[bytes]:
        try:
            return small_files.contents(self._path, 2 * _FILE_BYTES).splitlines()
        except OSError:
            return []

    def _append(self, line: bytes) -> None:
        try:
            size = small_files.append(self._path, line)
        except FileNotFoundError:
            small_files.make_folder(self._path.parent)
            size = small_files.append(self._path, line)
        if size > _FILE_BYTES:
            small_files.shorten(self._path, _FILE_BYTES)
