"""Stores made quickly: entries written past the store, and journals that say what they are worth."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from rewarm.envelope import Header, seal
from rewarm.policy import Usage
from rewarm.small_files import PRIVATE
from rewarm.store import LocalStore, usage
from rewarm.store.conformance import key_of
from rewarm.store.usage import Known


def key_in(shard: str, number: int) -> str:
    """A good key in the directory `shard`, another one for each number."""
    return shard + key_of(number)[2:]


def adopt(root: Path, keys: Iterable[str], size: int | Callable[[str], int]) -> None:
    """Entries as a store leaves them that keeps no books."""
    for key in keys:
        folder = root / key[:2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(b"x" * (size if isinstance(size, int) else size(key)))


def tell_worth(root: Path, seconds: dict[str, float]) -> None:
    """Journals that say what a hit on each entry spares."""
    by_folder: dict[str, dict[str, Known]] = {}
    for key, one in seconds.items():
        by_folder.setdefault(key[:2], {})[key] = Known(one, 1)
    for folder, known in by_folder.items():
        usage.replace(str(root / folder), known, PRIVATE)


def sealed(key: str, seconds: float, size: int = 100) -> bytes:
    """A real entry that took so long to compile."""
    header = Header("executable", key, (), "jit_f", seconds, 0.0, {}, "cpu")
    return seal(header, {"executable": os.urandom(size)}, codec="raw")


def truth(store: LocalStore) -> tuple[int, int]:
    """Bytes and number of the entries, by looking at each."""
    infos = list(store.scan())
    return sum(info.size for info in infos), len(infos)


def keys_of(store: LocalStore) -> set[str]:
    """The keys of the entries that are there."""
    return {info.key for info in store.scan()}


def by_priority(usages: Iterable[Usage]) -> list[str]:
    """Keys, the first to go first."""
    return [one.key for one in sorted(usages, key=lambda one: (one.priority, -one.size, one.key))]
