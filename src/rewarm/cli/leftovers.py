"""The files beside the entries, as patterns below a cache directory: what `clear` removes, and what dead writers left.

Not promised: that nothing else lies there. What matches no pattern is not rewarm's, or is kept on purpose.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from rewarm import trials
from rewarm.store import LocalStore
from rewarm.store.accounts import ORPHAN_AFTER

_HEX = "[0-9a-f]"
_OF_TRIALS = (trials.FOLDER, f"{trials.ELSEWHERE}/{_HEX * 16}")

# What is being written; of a writer that died it stays.
_TEMPORARIES = (
    f"{_HEX * 2}/.*.tmp",
    ".*.tmp",
    *(f"{folder}/.*.tmp" for folder in ("explain", "explain/values", "costs", "plans", *_OF_TRIALS)),
)

# What `clear` removes beside the entries.
HISTORY = (
    f"runs/{'[0-9]' * 8}T{'[0-9]' * 6}Z-[0-9]*-{_HEX * 8}.jsonl",
    f"explain/{_HEX * 2}.jsonl",
    f"explain/values/{_HEX * 64}.json",
    *(
        f"{folder}/{name}"
        for folder in _OF_TRIALS
        for name in (f"{_HEX * 16}/{_HEX}", f"[0-9]*-{_HEX * 8}.mark", ".lock")
    ),
    f"costs/{_HEX * 16}.jsonl",
    f"leases/{_HEX * 64}*.lock",
    f"plans/{_HEX * 32}.json",
    f"uploads/{_HEX * 16}/{_HEX * 64}",
    *_TEMPORARIES,
)


def orphans(store: LocalStore) -> Iterator[Path]:
    """What writers left that died; of a writer that lives, the file is younger."""
    for pattern in _TEMPORARIES:
        for path in store.inside(pattern):
            with contextlib.suppress(OSError):  # removed since
                if time.time() - path.lstat().st_mtime > ORPHAN_AFTER and not path.is_dir():
                    yield path
