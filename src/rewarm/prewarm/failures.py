"""What does not compile, remembered for a while, so that a fleet does not try it again and again.

Not promised: that a failure is remembered (the folder may not be writable), or that it would fail again: it is tried
again once its time is over, or when that is asked for (`--retry`). Never remembered: what ran out of memory, was
interrupted or killed, failed before there was a key, which a change of the code mends, or wants something that the
process did not have and that is in no key, such as a function that a program calls by name and nobody has registered.

    <cache directory>/prewarm/<key>.json    {"program":, "error":, "time":, "expires": seconds since 1970}

A key names the program with its options, compiler and target, so what is mended has another. Races: of two that write
one file the later wins; they say the same.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import NamedTuple

from rewarm import small_files

FOLDER = "prewarm"
_LARGEST = 64 << 10
_WORDS = 4000

# How XLA, jaxlib and the system say that something is missing in this process which no key names: functions that
# programs call by name (as `jax_adapter.custom_calls` has it), passes and partitioners that are registered, libraries.
_MISSING = re.compile(
    r"No FFI handler registered for|No registered implementation for|is not registered|not registered for platform|"
    r"No such file or directory|cannot open shared object file|undefined symbol|No module named",
    re.IGNORECASE,
)

# How XLA, Python and the system say that there was too little memory, here or on the described device: the first goes
# away, and of the second XLA does not say apart.
_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED|out of memory|MemoryError|bad_alloc|cannot allocate memory|no space left|CANCELLED|"
    r"DEADLINE_EXCEEDED|UNAVAILABLE|KeyboardInterrupt",
    re.IGNORECASE,
)


class Failure(NamedTuple):
    """One that is remembered.

    Attributes:
      error: the compiler's words.
      time, expires: seconds since 1970.
    """

    error: str
    time: float
    expires: float


class Failures:
    """The failures that a cache directory remembers. No method raises."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER

    def known(self, key: str) -> Failure | None:
        """The failure of a key, while it counts."""
        try:
            told = json.loads(small_files.contents(self._folder / f"{key}.json", _LARGEST))
            found = Failure(str(told["error"]), float(told["time"]), float(told["expires"]))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        now = time.time()
        counts = found.time <= now + 1 and now < found.expires and not may_pass(found.error)
        return found if counts else None

    def remember(self, key: str, program: str, error: str, seconds: float) -> bool:
        """Remember one for so many seconds, unless it may well go away; returns whether it is."""
        if seconds <= 0 or may_pass(error):
            return False
        now = time.time()
        told = {"program": program, "error": error[:_WORDS], "time": now, "expires": now + seconds}
        try:
            small_files.make_folder(self._folder)
            small_files.replace(self._folder / f"{key}.json", json.dumps(told).encode())
        except OSError:
            return False
        return True

    def forget(self, key: str) -> None:
        """It compiles."""
        with contextlib.suppress(OSError):
            (self._folder / f"{key}.json").unlink(missing_ok=True)


def may_pass(error: str) -> bool:
    """Whether a failure is of the moment or of this process: memory, an interruption, a service that did not answer,
    something that is not registered or installed here."""
    return _MEMORY.search(error) is not None or _MISSING.search(error) is not None
