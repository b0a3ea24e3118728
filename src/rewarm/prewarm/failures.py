"""What the compiler refuses, remembered for a while, so that a fleet does not try it again and again.

Remembered is the compiler's own verdict on a program and nothing else (`is_verdict`): an error that it raised in order,
with a status that says that the program or its options are at fault, and no word of what may be of the moment or of
this process. What ended by a signal or an exit, ran out of memory, threads, files or time, or failed before there was a
key is none.

Not promised: that a verdict is remembered (the folder may not be writable), or that it would be the same again: it is
tried again once its time is over, or when that is asked for (`--retry`). Nor that the compiler says every verdict in
these words: what is not known for one is tried each time.

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

# The statuses with which XLA says that a program, or an option of it, cannot be compiled, and Mosaic's words for one.
# INTERNAL is none: so XLA calls whatever went wrong around the program, such as an assembler that was killed.
# Source: absl's canonical codes, as `JaxRuntimeError` begins with them; jaxlib's tpu_custom_call.
_VERDICT = re.compile(r"\w*Error: (?:INVALID_ARGUMENT|UNIMPLEMENTED|INTERNAL: Mosaic failed to compile)\b")

# How XLA, jaxlib and the system say that something is missing in this process which no key names: functions that
# programs call by name (as `jax_adapter.custom_calls` has it), passes and partitioners that are registered, libraries.
_MISSING = re.compile(
    r"No FFI handler registered for|No registered implementation for|is not registered|not registered for platform|"
    r"No such file or directory|cannot open shared object file|undefined symbol|No module named",
    re.IGNORECASE,
)

# How they say that there was too little of something, here or on the described device, or that somebody ended it.
_PASSING = re.compile(
    r"RESOURCE_EXHAUSTED|memory|bad_alloc|no space left|CANCELLED|ABORTED|DEADLINE|timed? ?out|UNAVAILABLE|Interrupt|"
    r"pthread|temporarily|too many (?:open )?files|quota|cannot fork|\bkilled\b|\bsignal\b|SIG[A-Z]{3}|"
    r"exited with|non-zero|exit code|permission denied|input/output error",
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
        counts = found.time <= now + 1 and now < found.expires and is_verdict(found.error)
        return found if counts else None

    def remember(self, key: str, program: str, error: str, seconds: float) -> bool:
        """Remember one for so many seconds, if it is a verdict; returns whether it is."""
        if seconds <= 0 or not is_verdict(error):
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


def is_verdict(error: str) -> bool:
    """Whether these words are the compiler's own on a program, and nothing that may go away or is of this process.

    Args:
      error: "Class: what it said".
    """
    said = _VERDICT.match(error)
    return said is not None and not _PASSING.search(error) and not _MISSING.search(error)
