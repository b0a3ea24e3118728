"""What an executable's header says of the tuning that it was compiled with, and when that is not good enough any more.

Not promised: that complete tuning is good tuning, or that a refused executable was slow. Only what was said when it was
compiled, and what is at hand now, are compared.

In a header, under "tuning":

    {"state":, "set": digest of the results at hand afterwards, or "", "entries": how many, "new": how many of them the
     compile found, "place": the name of the place, or "", "missing": [fusions that had none, where that is known],
     "lock": the digest of the lock that was in force, if one was,
     "fusions": how many look-ups there were, "untuned": how many of them found nothing}

The last two are in headers of programs that were compiled for described devices, whose compiler was asked
(`rewarm prewarm`). "set" is `checked.digest_of`; a fusion's name is that of its file without the ending. States:

    complete      each fusion had a result, or XLA tuned it there and then
    incomplete    not so, or not certain for an attached device, where tuning was off or its results were read alone
    deterministic XLA was to be so, and is of a build that times nothing then and passes Triton's results over
    unknown       a described device, whose compiler tunes nothing and does not say what it lacked
    none          nothing of all that applies: results come from a file or folder of the user's own
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from rewarm.autotune.xla_errors import deterministic

_MOST_NAMES = 256
_PASSED_OVER_FROM = (0, 11)


class State(enum.StrEnum):
    """How complete the tuning was."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    DETERMINISTIC = "deterministic"
    UNKNOWN = "unknown"
    NONE = "none"


# What a header without a word of tuning has: of another platform, or from before rewarm knew of it.
UNSAID = "unsaid"


class Incomplete(enum.StrEnum):
    """What to do with an executable whose tuning was incomplete when complete tuning is at hand."""

    REFUSE = "refuse"
    """Compile it again, in the program's time."""
    REFRESH = "refresh"
    """Serve it, and compile it again in the background for those who come later."""
    SERVE = "serve"


class Conditions(NamedTuple):
    """How a program was compiled.

    Attributes:
      attached: for a device that is there, where XLA tunes what has no result.
      tunes: autotuning was on.
      obeys: XLA takes the results that are there.
      writes: its results could be written down.
      required: the compiler was told to fail where a result is missing, and did not.
      missing: names of fusions without a result; `None` where that is not known.
      own: results came from a file or folder of the user's own.
    """

    attached: bool
    tunes: bool = True
    obeys: bool = True
    writes: bool = True
    required: bool = False
    missing: tuple[str, ...] | None = None
    own: bool = False


def tunes(options: Mapping[str, Any]) -> bool:
    """Whether XLA times anything under these of its options (those with another value than their default)."""
    return not deterministic(options) and bool(options.get("xla_gpu_autotune_level", 0))


def obeys(options: Mapping[str, Any], jax: str) -> bool:
    """Whether XLA takes Triton's results under these options: seen with JAX 0.9.2, 0.10.2, 0.11.2 and 0.12.0.1.

    Where operations must be deterministic the first two do, and the last two do not (results of cuBLAS they take). A
    release of an unknown name is taken for a later one.
    """
    found = re.match(r"(\d+)\.(\d+)", jax)
    return not deterministic(options) or (found is not None and (int(found[1]), int(found[2])) < _PASSED_OVER_FROM)


def state_of(how: Conditions) -> State:
    """How complete the tuning of a compile was that ended well."""
    if how.own:
        return State.NONE
    if how.required or how.missing == ():
        return State.COMPLETE
    if not how.obeys:
        return State.DETERMINISTIC
    if how.missing is not None:
        return State.INCOMPLETE
    if how.attached:
        return State.COMPLETE if how.tunes and how.writes else State.INCOMPLETE
    return State.UNKNOWN


def record(how: Conditions, digest: str, entries: int, new: int, place: str = "") -> dict[str, Any]:
    """What a header says.

    Args:
      how: the program was compiled.
      digest, entries: the set of results at hand after the compile, and how many they are.
      new: how many of them the compile found.
      place: the name of the place that they are in.
    """
    told: dict[str, Any] = {"state": state_of(how).value, "set": digest, "entries": entries, "new": new, "place": place}
    if how.missing:
        told["missing"] = sorted(how.missing)[:_MOST_NAMES]
    return told


def state_said(tuning: Mapping[str, Any] | None) -> str:
    """The state in a header that anybody may have written: one of `State`, or `UNSAID`."""
    said = tuning.get("state") if tuning is not None else None
    return said if isinstance(said, str) and said in set(State) else UNSAID


def is_outdated(tuning: Mapping[str, Any] | None, digest: str, present: Collection[str]) -> str | None:
    """Why an executable would be compiled better now, or `None`.

    One that says which results it lacked: when all of them are there. One that does not: when the set is another one,
    and larger. Never for one that XLA was to make deterministic and that lacks results for that: with more of them it
    would be what it is, but for results of libraries, which are no reason to compile it at every start.

    Args:
      tuning: what its header says.
      digest: of the set of results at hand.
      present: the names of their fusions.
    """
    if state_said(tuning) not in (State.INCOMPLETE, State.UNKNOWN) or tuning is None:
        return None
    missing = tuning.get("missing")
    if isinstance(missing, list) and missing and len(missing) < _MOST_NAMES:
        lacking = [name for name in missing if not isinstance(name, str) or name not in present]
        return None if lacking else f"it was compiled without {len(missing)} tuning results that are there now"
    had = tuning.get("entries")
    if digest == tuning.get("set") or not isinstance(had, int) or len(present) <= had:
        return None
    return f"it was compiled with {had} tuning results at hand, and there are {len(present)} now"


def counts(said: Iterable[Mapping[str, Any] | None]) -> dict[str, int]:
    """How many headers are in each state; states that none is in are there with 0."""
    found = dict.fromkeys((*(state.value for state in State), UNSAID), 0)
    for tuning in said:
        found[state_said(tuning)] += 1
    return found
