"""Which of the programs that are remembered is nearest to one that was missed: pure functions over records.

Not promised: the choice of a person. The same program under other options comes before another program under the
same options, since the second says nothing of why the first was not found.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewarm.explain.catalogue import STORED, Remembered


def nearest(wanted: Remembered, known: Sequence[Remembered]) -> Remembered | None:
    """The nearest of `known`, none of which has the wanted key; of equals the newest."""
    return max(known, key=lambda one: _rank(wanted, one), default=None)


def _rank(wanted: Remembered, one: Remembered) -> tuple[bool, int, int, bool, float]:
    same = sum(one.components.get(name) == digest for name, digest in wanted.components.items())
    same_program = one.components.get("program") == wanted.components.get("program")
    return same_program, same, _affinity(wanted, one), one.outcome == STORED, one.time


def _affinity(wanted: Remembered, one: Remembered) -> int:
    same_types = one.signature == wanted.signature
    return 4 * (one.program == wanted.program) + 2 * (one.structure == wanted.structure) + same_types


def differing(wanted: Remembered, one: Remembered) -> tuple[str, ...]:
    """The components that differ, in the order of the key's table."""
    return tuple(name for name, digest in wanted.components.items() if one.components.get(name) != digest)


def signatures_seen(wanted: Remembered, known: Sequence[Remembered]) -> list[str]:
    """The other signatures under which a program of this name and these kinds of operations was seen.

    The newest first, each once.
    """
    alike = (one for one in known if (one.program, one.kinds) == (wanted.program, wanted.kinds))
    return list(dict.fromkeys(one.signature for one in alike if one.signature != wanted.signature))


def runs_with_others(wanted: Remembered, known: Sequence[Remembered]) -> int:
    """In how many other runs a program of this name, structure and signature had other constants; 0 once two agree."""
    alike = [
        one
        for one in known
        if (one.program, one.structure, one.signature) == (wanted.program, wanted.structure, wanted.signature)
        and one.run != wanted.run
    ]
    digests = {one.components.get("program") for one in alike} - {wanted.components.get("program")}
    runs = {one.run for one in alike}
    return len(runs) if len(digests) >= len(runs) else 0
