"""Checks of the entries that are there: whether this host could load them.

Not promised: all of them. The newest 50 are looked at, or as many as fit into 256 MiB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rewarm.doctor.check import Check, some
from rewarm.doctor.facts import Facts
from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError, StoreError
from rewarm.identity import Machine, machine_of_executable
from rewarm.in_force import Settings
from rewarm.store import EntryInfo, LocalStore
from rewarm.trials import refused_keys

_LOOKED_AT = 50
_BYTES = 256 << 20


def checks(facts: Facts) -> Iterator[Check]:
    """All of this file."""
    yield from _ended_processes(facts)
    store = LocalStore(facts.directory)
    store.own_alone = isinstance(facts.in_force, Settings) and not facts.in_force.shared
    yield from _in_the_way(store)
    chosen = _newest(store)
    if not chosen:
        return
    here = _this_machine(facts)
    lacking: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    for info in chosen:
        try:
            made_for = _made_for(store, info)
        except (BadEntryError, StoreError) as error:
            bad[error.reason if isinstance(error, BadEntryError) else str(error.strerror)] += 1
            continue
        if here is not None and made_for is not None:
            lacking.update(here.lacks(made_for)[:1])
    yield from _told(len(chosen), lacking, bad, here)


def _told(looked_at: int, lacking: Counter[str], bad: Counter[str], here: Machine | None) -> Iterator[Check]:
    if bad:
        found = f"{bad.total()} of the {looked_at} newest entries are not usable: {some(list(bad))}"
        yield Check("entries", "problem", found, "rewarm verify --repair puts them aside; programs do so by themselves")
    if lacking:
        found = (
            f"{lacking.total()} of the {looked_at} newest entries were made for a CPU with what this one lacks "
            f"({some(list(lacking))}): they are refused and compiled anew"
        )
        yield Check("entries", "problem", found, "give hosts with other CPUs directories of their own")
    if not bad and not lacking:
        kind = "" if here is not None else "; which CPU this host compiles for is not known, so that was not looked at"
        yield Check("entries", "ok", f"the {looked_at} newest entries are sound, and for this CPU{kind}")


def _ended_processes(facts: Facts) -> Iterator[Check]:
    refused = refused_keys(facts.directory)
    if refused:
        names = some(sorted({one.program for one in refused}), 3)
        found = f"{len(refused)} keys are neither loaded nor stored, since that ended a process more than once: {names}"
        yield Check(
            "entries", "problem", found, "rewarm quarantine ls has the reasons, and allow lets one be tried again"
        )


def _in_the_way(store: LocalStore) -> Iterator[Check]:
    number = sum(1 for _ in store.misplaced())
    if number:
        found = f"in the place of {number} entries there is something else: a folder, a link, a pipe"
        yield Check("entries", "problem", found, "rewarm verify --repair puts them aside; programs do so by themselves")


def _newest(store: LocalStore) -> list[EntryInfo]:
    try:
        infos = sorted(store.scan(), key=lambda info: -info.used)[:_LOOKED_AT]
    except StoreError:  # which the check of the directory says
        return []
    room = _BYTES
    chosen: list[EntryInfo] = []
    for info in infos:
        room -= info.size
        if room < 0 and chosen:
            break
        chosen.append(info)
    return chosen


def _this_machine(facts: Facts) -> Machine | None:
    told = facts.jax.get("machine")
    if not isinstance(told, list):
        return None
    triple, features = told
    return Machine(str(triple), tuple(map(str, features)))


def _made_for(store: LocalStore, info: EntryInfo) -> Machine | None:
    """The machine that a checked entry of a CPU program was made for.

    Raises:
      BadEntryError, StoreError: it is not usable.
    """
    data = store.get(info.key, use=False)
    if data is None:  # removed since
        return None
    entry = open_entry(data, info.key)
    if not entry.header.target.startswith("cpu"):
        return None
    return machine_of_executable(entry.section("executable"))
