"""Records of one case, from several sessions, processes or hosts, as one.

Not promised: that the newest session was the best one. The rule is a total order over what records say, so the order of
arrival does not matter, nor who has merged what before: it is commutative, associative and idempotent.

* Trials are united; of each candidate the newest four stay.
* One record decides, with its winner, comparison, environment and all that belongs to it: one with a final comparison
  before one without, one that no noise has flagged before one that it has, then the newer one, and the larger text in
  the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from rewarm.tunables.records import MOST_TRIALS, Record, Trial
from rewarm.tunables.spaces import canonical

_OF_EACH = 4


def merged(records: Iterable[Record]) -> Record:
    """One record that says what all these do.

    Raises:
      ValueError: there is none, or they are of several cases.
    """
    given = list(records)
    if not given or len({one.case for one in given}) != 1:
        raise ValueError("records of one case are expected, and at least one")
    decides = max(given, key=_order)
    return replace(decides, trials=_united(trial for one in given for trial in one.trials))


def without_winner(record: Record, newer: Record) -> Record:
    """A record that does not decide beside a newer one which does; as it is where that has decided nothing."""
    return replace(record, winner=None, comparison=None) if is_decided(newer) else record


def is_decided(record: Record) -> bool:
    """Whether a record has a winner that a final comparison stands behind."""
    return record.winner is not None and record.comparison is not None


def _order(record: Record) -> tuple[bool, bool, float, str]:
    is_quiet = not any(flag.startswith("noisy") for flag in record.flags)
    # Without its trials: they are united apart, and must not decide what was decided before.
    return is_decided(record), is_quiet, record.when, replace(record, trials=()).text


def _united(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    by_config: dict[str, dict[str, Trial]] = defaultdict(dict)
    for one in trials:
        by_config[canonical(one.config)][one.text] = one
    kept = [one for group in by_config.values() for one in sorted(group.values(), key=_age)[:_OF_EACH]]
    # Of more candidates than any record holds the newest stay: a prefix of a total order, as above.
    return tuple(sorted(sorted(kept, key=_age)[:MOST_TRIALS], key=lambda one: one.text))


def _age(trial: Trial) -> tuple[float, str]:
    return -trial.when, trial.text
