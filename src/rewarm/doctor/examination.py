"""All checks, in the order in which they are read.

Not promised: that later checks are of use where earlier ones found a problem; they say so themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rewarm.doctor import directory, end_to_end, entries, environment, history, program, python, remotes, tuning
from rewarm.doctor.check import Check
from rewarm.doctor.facts import Facts


def examine(facts: Facts, *, quick: bool, arguments: Sequence[str]) -> Iterator[Check]:
    """The checks, each as it is made.

    Args:
      facts: see `facts.gather`.
      quick: leave out what starts JAX twice.
      arguments: of `python`, to run and watch a program; none for no program.
    """
    yield from python.checks(facts)
    yield from environment.checks(facts)
    yield from directory.checks(facts)
    yield from entries.checks(facts)
    yield from tuning.checks(facts)
    yield from remotes.checks(facts)
    yield from history.checks(facts)
    if not quick:
        yield end_to_end.check(facts)
    if arguments:
        yield from program.checks(facts, arguments)
