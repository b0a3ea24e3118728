"""What lies in a cache directory: one list, for `du`, which sums it up, and for `clear` and others, which remove it.

Not promised: that nothing else lies there. What fits no pattern is not rewarm's: it is counted as such, and stays.

A pattern is a path below the directory. Between slashes `*` stands for any letters, and `[...]` for one of some.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rewarm import trials
from rewarm.explain.catalogue import FOLDER as EXPLAIN
from rewarm.ledger import savings
from rewarm.ledger.journal import RUNS
from rewarm.restart.loads import FOLDER as LOADS
from rewarm.sharing.known_places import FOLDER as REMOTES
from rewarm.sharing.made import FOLDER as MADE
from rewarm.sharing.markers import FOLDER as UPLOADS
from rewarm.sharing.plans import FOLDER as PLANS
from rewarm.sharing.tuned import FOLDER as TUNED
from rewarm.sharing.tuning import FOLDER as AUTOTUNE
from rewarm.store import LocalStore
from rewarm.store.accounts import ORPHAN_AFTER
from rewarm.store.evicted import NAME as EVICTED
from rewarm.store.local import QUARANTINE, TAG_NAME
from rewarm.store.totals import NAME as TOTALS
from rewarm.store.usage import NAME as USAGE

_HEX = "[0-9a-f]"
# A managed place of tuning results: build, and kind of device.
_PLACE = f"{AUTOTUNE}/*-{_HEX * 16}"

_OF_TRIALS = (trials.FOLDER, f"{trials.ELSEWHERE}/{_HEX * 16}")

# The folders in which files are written beside their places, and renamed.
_WRITTEN = (
    "",
    f"{_HEX * 2}/",
    *(f"{_PLACE}/{name}" for name in ("", "xla/", f"xla/{_HEX * 16}/", f"xla/{_HEX * 16}/*/", "locks/")),
    *(
        f"{name}/"
        for name in (EXPLAIN, f"{EXPLAIN}/values", "costs", MADE, f"{MADE}/*", PLANS, LOADS, "prewarm", REMOTES)
    ),
    *(f"{name}/" for name in (*_OF_TRIALS, f"traces/{_HEX * 64}")),
)

# What is being written; of a writer that died it stays.
_TEMPORARIES = tuple(f"{folder}.*.tmp" for folder in (*_WRITTEN, *(f"{name}/{_HEX * 16}/" for name in _OF_TRIALS)))

OTHER = "other"


class _Part(NamedTuple):
    """Files of one kind.

    Attributes:
      kind: what `du` sums them up as.
      files: their patterns.
      goes: "clear": that removes them by these patterns; "all": `clear --all` does; "": the store does so itself, or
        they stay.
    """

    kind: str
    files: tuple[str, ...]
    goes: str = ""


_PARTS = (
    _Part("entries", (f"{_HEX * 2}/{_HEX * 64}",)),
    _Part("quarantine", (f"{QUARANTINE}/*",)),
    _Part("runs", (f"{RUNS}/{'[0-9]' * 8}T{'[0-9]' * 6}Z-[0-9]*-{_HEX * 8}.jsonl",), "clear"),
    _Part("explain", (f"{EXPLAIN}/{_HEX * 2}.jsonl", f"{EXPLAIN}/values/{_HEX * 64}.json"), "clear"),
    _Part(
        "trials",
        tuple(
            f"{folder}/{name}"
            for folder in _OF_TRIALS
            for name in (f"{_HEX * 16}/{_HEX}", f"[0-9]*-{_HEX * 8}.mark", ".lock")
        ),
        "clear",
    ),
    _Part("trials", tuple(f"{folder}/condemned.jsonl" for folder in _OF_TRIALS)),  # by `trials.drop`, with a lock
    _Part("costs", (f"costs/{_HEX * 16}.jsonl",), "clear"),
    _Part("leases", (f"leases/{_HEX * 64}.lock", f"leases/{_HEX * 64}.heir.lock"), "clear"),
    _Part("plans", (f"{PLANS}/{_HEX * 32}.json",), "clear"),
    _Part("loads", (f"{LOADS}/{_HEX * 32}.json",), "clear"),
    _Part(
        "traces",
        (
            *(f"traces/{_HEX * 64}/{_HEX * 64}.{suffix}" for suffix in ("trace", "json", "struck")),
            f"traces/{_HEX * 64}/last.json",
        ),
        "clear",
    ),
    _Part("uploads", (f"{UPLOADS}/{_HEX * 16}/*/{_HEX * 64}", f"{UPLOADS}/{_HEX * 16}/{_HEX * 64}"), "clear"),
    _Part("prewarm", (f"prewarm/{_HEX * 64}.json",), "clear"),
    _Part("made", (f"{MADE}/*/{_HEX}", f"{MADE}/{_HEX}"), "clear"),
    _Part("remotes", (f"{REMOTES}/{_HEX * 16}.json",), "clear"),
    _Part(
        "autotune",
        tuple(
            f"{_PLACE}/{name}"
            for name in (
                *("about.json", "checked.json", "fusions.json", "own.json", ".lock", "kernels", "kernels.sha256"),
                *("xla/*.textproto", f"xla/{_HEX * 16}/*.pb", f"xla/{_HEX * 16}/*/*.pb", "xla/tmp/*"),
                *(f"batches/{_HEX * 64}", f"locks/lock-{_HEX * 32}.pb", "aside/*"),
            )
        ),
        "clear",
    ),
    _Part("tuned", (f"{TUNED}/tuned.{_HEX * 16}-{_HEX * 16}/{_HEX * 64}/{_HEX * 64}",), "clear"),
    _Part("temporary", _TEMPORARIES, "clear"),
    _Part("books", (savings.FILE, savings.LOCK, "savings.damaged.json"), "all"),
    _Part("books", ("libraries.json", "machines.json"), "all"),
    _Part("books", (EVICTED,), "all"),
    _Part("books", (TAG_NAME, TOTALS, f"{_HEX * 2}/{USAGE}")),
)
KINDS = (*dict.fromkeys(part.kind for part in _PARTS), OTHER)

# What `clear` removes beside the entries and the store's own books, and what `clear --all` removes besides.
HISTORY = tuple(pattern for part in _PARTS if part.goes == "clear" for pattern in part.files)
MEMORY = tuple(pattern for part in _PARTS if part.goes == "all" for pattern in part.files)


def kind_of(path: str) -> str:
    """Of which kind a file is, by its path below the directory, with slashes; `OTHER` where it is not rewarm's."""
    entry = len(path) == 67 and path[:2] == path[3:5]
    if not entry and _kinds()[0].fullmatch(path):  # an entry in another's folder
        return OTHER
    return next((part.kind for part, known in zip(_PARTS, _kinds(), strict=True) if known.fullmatch(path)), OTHER)


def is_ours(folder: str) -> bool:
    """Whether a folder, by its path below the directory, with slashes, is one in which rewarm keeps something."""
    return _folders().fullmatch(folder) is not None


def orphans(store: LocalStore) -> Iterator[Path]:
    """What writers left that died; of a writer that lives, the file is younger."""
    for pattern in _TEMPORARIES:
        for path in store.inside(pattern):
            with contextlib.suppress(OSError):  # removed since
                if time.time() - path.lstat().st_mtime > ORPHAN_AFTER and not path.is_dir():
                    yield path


def of_place(store: LocalStore, place: str) -> Iterator[Path]:
    """The files of one managed place of tuning results, by the place's name."""
    for part in _PARTS:
        if part.kind in ("autotune", "temporary"):
            for pattern in part.files:
                if pattern.startswith(f"{_PLACE}/"):
                    yield from store.inside(f"{AUTOTUNE}/{place}/{pattern.removeprefix(f'{_PLACE}/')}")


@functools.cache
def _kinds() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile("|".join(map(_expression, part.files))) for part in _PARTS)


@functools.cache
def _folders() -> re.Pattern[str]:
    patterns = {pattern for part in _PARTS for pattern in part.files}
    above = {"/".join(pattern.split("/")[:depth]) for pattern in patterns for depth in range(1, pattern.count("/") + 1)}
    return re.compile("|".join(map(_expression, sorted(above))))


def _expression(pattern: str) -> str:
    """The same pattern as a regular expression."""
    parts = re.split(r"(\[[^]]*\]|\*)", pattern)
    return "".join(part if part.startswith("[") else "[^/]*" if part == "*" else re.escape(part) for part in parts)
