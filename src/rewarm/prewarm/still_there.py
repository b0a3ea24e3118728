"""Whether the entries of a run are in the directory when it ends: its bound may have removed some for others.

Not promised: that they stay there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from rewarm.prewarm.work import Outcome, Result
from rewarm.sharing.sync import gone
from rewarm.store import LocalStore


def checked(results: Iterable[Result], directory: Path, *, remotes: bool) -> Iterator[Result]:
    """The results, those as `EVICTED` whose entry was written or found here and is gone; where there are remotes, what
    was found may be there and needs no place here."""
    store = LocalStore(directory)
    for one in results:
        here = one.outcome is Outcome.STORED or (one.outcome is Outcome.PRESENT and not remotes)
        if here and one.key is not None and gone(store, one.key):
            why = (
                f"its entry was {one.outcome.value} and is not in {directory} any more: what the directory may hold "
                "(REWARM_MAX_SIZE, REWARM_MAX_ENTRIES) is less than all entries together, or somebody removed it"
            )
            yield dataclasses.replace(one, outcome=Outcome.EVICTED, why=why)
        else:
            yield one
