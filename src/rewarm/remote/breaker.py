"""When a remote is asked, and when it is passed over: the circuit breaker, as pure functions over a frozen record.

Not promised: that a remote which is asked answers. The record remembers what was seen; it cannot look ahead.

    closed     every request goes
    paused     none goes until the pause ends; then one goes for trial, whose answer closes the breaker, and whose
               failure pauses it again, for twice as long
    read-only  closed or paused, and puts never go
    off        nothing goes any more

What began before a pause says nothing about the time after it: sixteen requests that fail together are one failure,
and an answer that was under way ends no pause.

Three rules beside the plain one, each against a remote that is worse than dead:

* Success does not wipe the slate: one failure is forgotten for each ten seconds that went well. A remote that answers
  small requests and hangs in large ones would otherwise cost a deadline every second.
* A request that ran out of time while others were answered is one slow blob, not a dead remote. It pauses nothing,
  once a minute: an upload over a thin line must not shut out the reads.
* A trial has the floor for a limited time. Whoever was to report its outcome may have been interrupted.

All times are seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0

# How much of a pause is left to chance, so that processes that failed together do not come back together.
_SPREAD = 0.25

# After this many seconds without a failure one failure is forgotten.
_FORGET_AFTER = 10.0

# One slow blob in this many seconds is excused.
_EXCUSE_EVERY = 60.0

# More failures than this do not lengthen a pause.
_ENOUGH = 1 + math.ceil(math.log2(LONGEST_PAUSE / FIRST_PAUSE))


class Pause(NamedTuple):
    """A time in which the remote is passed over.

    Attributes:
      since: when it began.
      until: when a trial may go.
      throttled: whether the remote asked for it; else it failed.
      trial_until: until when the trial that is under way has the floor.
    """

    since: float
    until: float
    throttled: bool
    trial_until: float = -math.inf


class Off(NamedTuple):
    """Nothing goes any more.

    Attributes:
      reason: as the errors say it.
      no_place: whether the place is not there at all.
    """

    reason: str
    no_place: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a remote.

    Attributes:
      pause: set while the remote is passed over.
      failures: how many count, which decides how long the next pause is.
      well_since: when the last failure was forgotten, or the last pause ended.
      answered: when the remote last answered anything.
      excused: when a slow blob was last excused.
      reason: of the last failure.
      read_only: why puts do not go; empty where they do.
      off: set when nothing goes any more.
      opened: how many pauses there were.
    """

    pause: Pause | None = None
    failures: int = 0
    well_since: float = -math.inf
    answered: float = -math.inf
    excused: float = -math.inf
    reason: str = ""
    read_only: str = ""
    off: Off | None = None
    opened: int = 0


class Verdict(Enum):
    """Whether a request goes."""

    GO = "go"
    DEAD = "dead"
    THROTTLED = "throttled"
    READ_ONLY = "read-only"
    OFF = "off"
    FULL = "full"  # not this file's to say: too many requests hang


class Failure(Enum):
    """What a request that failed says about the remote."""

    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed out"
    THROTTLED = "throttled"


def admit(state: State, now: float, *, writes: bool, patience: float) -> tuple[State, Verdict]:
    """Whether a request that begins now goes; a trial has the floor for `patience` seconds."""
    if state.off:
        return state, Verdict.OFF
    if writes and state.read_only:
        return state, Verdict.READ_ONLY
    pause = state.pause
    if pause is None:
        return state, Verdict.GO
    if now < pause.until or now < pause.trial_until:
        return state, Verdict.THROTTLED if pause.throttled else Verdict.DEAD
    return replace(state, pause=pause._replace(trial_until=now + patience)), Verdict.GO


def answered(state: State, began: float, now: float) -> State:
    """A request that began at `began` was answered, be it with "there is none" or "you may not"."""
    state = replace(state, answered=max(now, state.answered))
    if state.pause is None or began < state.pause.until:
        return state
    return replace(state, pause=None, well_since=now)


def failed(
    state: State,
    failure: Failure,
    reason: str,
    *,
    began: float,
    now: float,
    chance: float,
    retry_after: float | None = None,
) -> State:
    """A request that began at `began` failed.

    `chance` is a number from 0 to 1 by which pauses differ; `retry_after` is what a remote that throttles asked for,
    in seconds, of which no more than `LONGEST_PAUSE` are believed.
    """
    if state.pause is not None and began < state.pause.until:
        return state  # it began before this pause, which stands for it
    if failure is Failure.TIMED_OUT and _is_slow_only(state, began, now):
        return replace(state, excused=now, reason=reason)
    count = min(_remembered(state, now) + 1, _ENOUGH)
    throttled = failure is Failure.THROTTLED
    seconds = _asked_for(retry_after, chance) if throttled and retry_after is not None else _pause(count, chance)
    pause = Pause(now, now + seconds, throttled)
    return replace(state, pause=pause, failures=count, well_since=now, reason=reason, opened=state.opened + 1)


def refused_to_write(state: State, reason: str) -> State:
    """A put was refused: none goes any more."""
    return replace(state, read_only=state.read_only or reason)


def shut(state: State, reason: str, *, no_place: bool = False) -> State:
    """Nothing goes any more. The first reason counts."""
    return replace(state, off=state.off or Off(reason, no_place))


def without_trial(state: State) -> State:
    """Nobody holds the floor: in a child of fork, whoever did stayed behind."""
    return state if state.pause is None else replace(state, pause=state.pause._replace(trial_until=-math.inf))


def left(state: State, now: float) -> float:
    """How many seconds the pause still lasts; 0 where there is none."""
    return 0.0 if state.pause is None else max(0.0, state.pause.until - now)


def _is_slow_only(state: State, began: float, now: float) -> bool:
    return state.pause is None and state.answered > began and now - state.excused >= _EXCUSE_EVERY


def _remembered(state: State, now: float) -> int:
    if state.pause is not None:  # a failed trial: nothing went well meanwhile
        return state.failures
    well = (now - state.well_since) / _FORGET_AFTER
    return max(0, state.failures - int(min(well, _ENOUGH)))


def _pause(count: int, chance: float) -> float:
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (count - 1))
    return longest * (1.0 - _SPREAD * chance)


def _asked_for(seconds: float, chance: float) -> float:
    """Never less than what was asked for, up to the longest pause."""
    asked = seconds if seconds > 0.0 else 0.0  # "not a number" is none
    return min(LONGEST_PAUSE, asked * (1.0 + _SPREAD * chance))
