"""Several processes of one job end with one choice: one of them measures, and all take what it says.

Not promised: that what one process measures is good for all; the processes of a job run on equal devices, and a
function is tuned on one. Where one does not come, all get the default.

Through the service of `jax.distributed`, values that are set once, by whoever comes first:

    rewarm/tune/<n>/<case>     the n-th call of `rewarm.tune` in each process: the record of rank 0, or "default"
    rewarm/tuned/<case>        a tunable function's look-up: the winner's canonical text, or "default"

Tuning: rank 0 measures and sets its record. The others wait for that until the deadline, and set "default" where
nothing is set by then. Looking up: who has a winner sets it; who has none waits for a moment (`_MOMENT`) for one who
has, and then sets "default". Whoever finds a value that is not his obeys it, rank 0 too: so all that can read have one
choice, and nobody waits for longer than the deadline.

What remains: a process that cannot reach the service uses the default while the others have a winner. Programs of one
process each do not mind; of programs of several, that process runs another one, and JAX ends a job whose service is
gone anyway.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rewarm.errors import BadEntryError
from rewarm.jax_adapter import activation, seam
from rewarm.jax_adapter.seam import JobStore
from rewarm.jax_adapter.session import Session
from rewarm.tunables import records
from rewarm.tunables.records import Case, Record
from rewarm.tunables.spaces import Config

if TYPE_CHECKING:
    from rewarm.jax_adapter.tuner.api import Tuned

logger = logging.getLogger("rewarm")

_DEFAULT = "default"
_PROMPT = 5.0
_MOMENT = 2.0
# Of a process, for all look-ups together.
_PATIENCE = 20.0
# How long the others wait for the session of rank 0, beside its budget.
_BESIDE = 120.0

_calls = itertools.count()
_waited = [0.0]


def job() -> JobStore | None:
    """The values that the processes of this job share; `None` where there is one process."""
    client = seam.job_client()
    return None if client is None or seam.process_count() < 2 else JobStore(client)


def together(
    session: Session | None, case: Case, default: Config, measure: Callable[[], Tuned], deadline: float
) -> Tuned:
    """What `measure` gives; in a job, what it gives in the process of rank 0.

    Args:
      session: under which the choice is used.
      case: whose it is.
      default: what all use where they cannot agree.
      measure: makes the record.
      deadline: seconds that the others wait, beside two minutes.
    """
    from rewarm.jax_adapter.tuner import lookups

    store = job()
    if store is None:
        return measure()
    name = f"rewarm/tune/{next(_calls)}/{case.key}"
    if seam.process_index() == 0:
        tuned = _first(store, name, measure, case, default)
    else:
        tuned = _other(store, name, case, default, deadline + _BESIDE)
    if session is not None:
        lookups.pin(session, case, tuned.winner)
    return tuned


def _first(store: JobStore, name: str, measure: Callable[[], Tuned], case: Case, default: Config) -> Tuned:
    try:
        tuned = measure()
    except BaseException:
        _put(store, name, _DEFAULT)
        raise
    if _put(store, name, _without_samples(tuned.record).text):
        return tuned
    activation.tell(f"{case.kernel}: the other processes did not wait for its tuning: all use the default")
    return _untuned(case, default)


def _other(store: JobStore, name: str, case: Case, default: Config, seconds: float) -> Tuned:
    from rewarm.jax_adapter.tuner.api import Tuned

    said = _get(store, name, seconds)
    if said is None:
        _put(store, name, _DEFAULT)
        said = _get(store, name, _PROMPT)
    record = None if said in (None, _DEFAULT) else _read(str(said))
    if record is None:
        activation.tell(f"{case.kernel}: the process of rank 0 has tuned nothing in time: all use the default")
        return _untuned(case, default)
    return Tuned(record, measured=False)


def _untuned(case: Case, default: Config) -> Tuned:
    from rewarm.jax_adapter.tuner.api import Tuned

    flags = ("the processes of the job use the default",)
    return Tuned(Record(case, default, flags=flags), measured=False, not_kept="the processes of the job disagree")


def agreed(case: Case, own: str) -> str:
    """The winner's text that all processes of the job use for a case; "" for the default.

    Args:
      case: whose.
      own: what this process knows; "" for nothing.
    """
    store = job()
    if store is None:
        return own
    name = f"rewarm/tuned/{case.key}"
    said = None
    if not own and _waited[0] < _PATIENCE:
        since = time.monotonic()
        said = _get(store, name, _MOMENT)
        _waited[0] += time.monotonic() - since
    if said is None:
        _put(store, name, own or _DEFAULT)
        said = _get(store, name, _PROMPT)
    return "" if said in (None, _DEFAULT) else str(said)


def _without_samples(record: Record) -> Record:
    """Small enough for the service."""
    return replace(record, trials=tuple(replace(one, seconds=()) for one in record.trials[:64]))


def _read(text: str) -> Record | None:
    try:
        return records.read(text.encode("ascii", "replace"))
    except BadEntryError as error:
        logger.debug("rewarm: what rank 0 said is no record: %s", error)
        return None


def _put(store: JobStore, name: str, value: str) -> bool:
    try:
        return store.put_new(name, value)
    except Exception as error:  # noqa: BLE001 - the program runs whatever the service does
        logger.debug("rewarm: JAX's distributed service: %s", error)
        return False


def _get(store: JobStore, name: str, seconds: float) -> str | None:
    try:
        return store.get(name, seconds)
    except Exception as error:  # noqa: BLE001 - as above
        logger.debug("rewarm: JAX's distributed service: %s", error)
        return None
