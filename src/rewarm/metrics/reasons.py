"""From the texts that the ledger counts by to the values of labels, of which there are few whatever happens.

Not promised: the reason in full. Events and log lines have it; a label that took free text would make a time series of
each path and each error message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from rewarm import policy
from rewarm.cache import requests
from rewarm.ledger import ALREADY_STORED

OTHER = "other"

# More values than this of one label are counted as `OTHER`.
_VALUES = 24

# How the reasons begin why a program was not stored, and what stands for them.
_NOT_STORED: tuple[tuple[str, str], ...] = (
    (policy.TOO_QUICK, "too_quick"),
    (policy.TOO_SMALL, "too_small"),
    (policy.TOO_LARGE, "too_large"),
    (policy.SWITCHED_OFF, "switched_off"),
    (policy.LOADS_SLOWER, "loads_slower"),
    (ALREADY_STORED, "already_stored"),
    (requests.COMPILE_FAILED, "compile_failed"),
    (requests.INTERRUPTED, "interrupted"),
    (requests.CANNOT_SERIALISE, "cannot_serialise"),
    (requests.STORE_FAILED, "store_failed"),
    ("the directory", "directory"),
    ("the cache cannot be opened", "directory"),
    ("the key cannot be built", "no_key"),
    ("custom_partitioning", "no_key"),
    ("inspect_array_sharding", "no_key"),
    ("XLA_FLAGS has --xla_fuel", "no_key"),
    ("the options ask the compiler to write", "dumps"),
)
NOT_STORED: tuple[str, ...] = (*dict.fromkeys(label for _, label in _NOT_STORED), OTHER)


def not_stored(reason: str) -> str:
    """Why a program was not stored: one of `NOT_STORED`."""
    return next((label for start, label in _NOT_STORED if reason.startswith(start)), OTHER)


def cause(name: str) -> str:
    """Why a program was compiled (`Event.cause`), with underscores."""
    return name.replace(" ", "_")


def in_short(reason: str) -> str:
    """A reason without what may be a detail: what stands before the first colon, in lower case and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", reason.partition(":")[0].lower()).strip("_")[:60] or OTHER


def tier(name: str) -> str:
    """Where a hit came from, without saying which remote."""
    return name if name in ("local", "process") else "remote"


def by_label(counts: Mapping[str, float], label_of: Callable[[str], str]) -> dict[str, float]:
    """Counts by what stands for their reasons; of too many, those that came first keep theirs."""
    return _few((label_of(reason), number) for reason, number in counts.items())


def _few(counts: Iterable[tuple[str, float]]) -> dict[str, float]:
    kept: dict[str, float] = {}
    for label, number in counts:
        here = label if label in kept or len(kept) < _VALUES else OTHER
        kept[here] = kept.get(here, 0) + number
    return kept
