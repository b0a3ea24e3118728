"""The condemned: entries whose load or first run ended a process, and what follows for their keys.

Not promised: memory for ever. A line counts for 30 days, and of more than 256 the oldest go.

    <root>/trials/condemned.jsonl    one JSON object on each line, in ASCII, oldest first

    line := {"key":, "content": digest of the entry, "program":, "reason":, "time": seconds since the epoch, "host":,
             "what": "condemned" | "unseen", "stays": whether the entry could not be taken out of the way}

One condemned entry is rebuilt. When a second one of the same key is condemned, what is compiled for this key cannot
be loaded: the key is refused, neither loaded nor stored. It does not matter on which hosts that was: a container may
be another host at each start, and a crash costs more than a compile. A death that nobody saw may have had another
cause: of those it takes four; and two, where the entry could not be taken out of the way.

The file is replaced as a whole, under the lock of `Trials`; where there are no locks, one of two lines that are
written at the same moment is lost, and that crash is judged as the first one of its key again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rewarm.small_files import Modes, contents, replace

NAME = "condemned.jsonl"
REFUSED_FOR = 30 * 86_400.0
CONDEMNED, UNSEEN = "condemned", "unseen"

_KEPT = 256
_FILE_BYTES = 1 << 20
_KEY = re.compile(r"[0-9a-f]{64}")
_TIMES_UNTIL_REFUSED = 2
_UNSEEN_UNTIL_REFUSED = 4


class Line(NamedTuple):
    """One death, as it was judged.

    Attributes:
      key: of the entry, 64 hexadecimal digits.
      content: the digest of the entry.
      program: its name.
      reason: what happened, in words.
      time: when it was judged, in seconds since the epoch.
      host: where the process died.
      what: `CONDEMNED`, or `UNSEEN` where nobody saw what ended the process.
      stays: whether the entry could not be taken out of the way.
    """

    key: str
    content: str
    program: str
    reason: str
    time: float
    host: str
    what: str
    stays: bool = False


class Refused(NamedTuple):
    """A key that is neither loaded nor stored.

    Attributes:
      key: 64 hexadecimal digits.
      program: its name.
      reason: in words, with the day on which it ends.
      until: that moment, in seconds since the epoch.
    """

    key: str
    program: str
    reason: str
    until: float


def load(folder: Path) -> list[Line]:
    """The lines that still count, oldest first; none where the file cannot be read."""
    try:
        data = contents(folder / NAME, _FILE_BYTES)
    except OSError:
        return []
    now = time.time()
    found = [line for row in data.splitlines() if (line := _line(row)) is not None]
    return [line for line in found if abs(now - line.time) < REFUSED_FOR]


def save(folder: Path, lines: Iterable[Line], modes: Modes) -> None:
    """Write these lines in the place of all others, the newest of them.

    Raises:
      OSError: they cannot be written.
    """
    kept = sorted(lines, key=lambda line: line.time)[-_KEPT:]
    data = "".join(json.dumps(line._asdict(), separators=(",", ":")) + "\n" for line in kept)
    replace(folder / NAME, data.encode("ascii"), modes.file)


def refused(lines: Iterable[Line]) -> dict[str, Refused]:
    """The keys that are refused, by key."""
    by_key: dict[str, list[Line]] = {}
    for line in lines:
        by_key.setdefault(line.key, []).append(line)
    return {key: _refusal(deaths) for key, deaths in by_key.items() if _is_refused(deaths)}


def _is_refused(deaths: list[Line]) -> bool:
    seen = [line for line in deaths if line.what == CONDEMNED]
    stayed = sum(line.stays for line in deaths)
    if len(seen) >= _TIMES_UNTIL_REFUSED or any(line.stays for line in seen) or stayed >= _TIMES_UNTIL_REFUSED:
        return True
    return len(deaths) >= _UNSEEN_UNTIL_REFUSED


def _refusal(deaths: list[Line]) -> Refused:
    last = deaths[-1]
    until = last.time + REFUSED_FOR
    times = f", as another entry did before ({len(deaths)} times)" if len(deaths) > 1 else ""
    day = time.strftime("%Y-%m-%d", time.gmtime(until))
    return Refused(last.key, last.program, f"{last.reason}{times}: not loaded and not stored until {day}", until)


def _line(row: bytes) -> Line | None:
    try:
        fields: dict[str, Any] = json.loads(row)
        line = Line(**{name: fields[name] for name in Line._fields if name in fields})
        texts = (line.program, line.reason, line.host, line.what)
        plain = all(isinstance(text, str) for text in texts) and isinstance(line.stays, bool)
        sound = bool(_KEY.fullmatch(line.key) and _KEY.fullmatch(line.content)) and plain
        return line._replace(time=float(line.time)) if sound else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
