"""Checks of XLA:GPU's tuning results in the cache directory, and of a lock that is in force.

Not promised: that a result is fast, or that it is found: `rewarm autotune check` asks the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator

from rewarm.autotune.formats.errors import MissingLibraryError, TuningFormatError
from rewarm.autotune.locating import places
from rewarm.autotune.places import ASIDE, Place
from rewarm.doctor.check import Check, some
from rewarm.doctor.facts import Facts
from rewarm.in_force import Settings


def checks(facts: Facts) -> Iterator[Check]:
    """All of this file; nothing where there are neither results nor a lock."""
    found = places(facts.directory)
    if found:
        results = sum(place.set_at_hand()[1] for place in found)
        yield Check("tuning", "ok", f"{results} results of XLA:GPU's in {len(found)} places (rewarm autotune ls)")
    aside = {place.name: count for place in found if (count := _aside(place))}
    if aside:
        number = sum(aside.values())
        yield Check(
            "tuning",
            "note",
            f"{number} files were kept from XLA since they harm a compile: {some(list(aside))}",
            f"look at them in the folder {ASIDE} of each place in {facts.directory}/autotune, and remove them",
        )
    yield from _lock(facts)


def _aside(place: Place) -> int:
    try:
        return sum(1 for _ in (place.root / ASIDE).iterdir())
    except OSError:
        return 0


def _lock(facts: Facts) -> Iterator[Check]:
    if not isinstance(facts.in_force, Settings) or facts.in_force.autotune_lock is None:
        return
    from rewarm import lock_sections
    from rewarm.autotune import lock_file
    from rewarm.tunables import text_file

    path = facts.in_force.autotune_lock
    try:
        winners = len(text_file.load(path))
        if winners and not lock_sections.read(path).has_main:
            yield Check("tuning lock", "ok", f"{path} pins {winners} winners of rewarm.tune, and nothing of XLA's")
            return
        read = lock_file.read(path)
    except (TuningFormatError, MissingLibraryError, text_file.LockFileError, OSError) as wrong:
        yield Check("tuning lock", "problem", f"{path} cannot be used: {wrong}", "make it anew, or unset autotune_lock")
        return
    more = f", and {winners} winners of rewarm.tune" if winners else ""
    yield Check("tuning lock", "ok", f"{path} pins {len(read.entries)} fusions for {read.device.text}{more}")
