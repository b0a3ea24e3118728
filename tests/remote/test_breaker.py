"""The circuit breaker as a pure function: what it lets through, for how long it stops, and what ends that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rewarm.remote import breaker
from rewarm.remote.breaker import FIRST_PAUSE, LONGEST_PAUSE, Failure, State, Verdict

PATIENCE = 6.0


def ask(state: State, now: float, *, writes: bool = False) -> tuple[State, Verdict]:
    return breaker.admit(state, now, writes=writes, patience=PATIENCE)


def fail(
    state: State,
    at: float,
    failure: Failure = Failure.UNREACHABLE,
    *,
    began: float | None = None,
    chance: float = 0.0,
    retry_after: float | None = None,
) -> State:
    return breaker.failed(
        state,
        failure,
        "no answer",
        began=at if began is None else began,
        now=at,
        chance=chance,
        retry_after=retry_after,
    )


def length(state: State) -> float:
    assert state.pause is not None
    return state.pause.until - state.pause.since


def test_one_failure_pauses_and_one_trial_ends_it() -> None:
    state = fail(State(), 100.0)
    assert ask(state, 100.5)[1] is Verdict.DEAD
    state, first = ask(state, 101.0)
    assert first is Verdict.GO
    assert ask(state, 101.0)[1] is Verdict.DEAD  # the trial has the floor
    state = breaker.answered(state, 101.0, 101.2)
    assert state.pause is None
    assert ask(state, 101.2)[1] is Verdict.GO


def test_pauses_double_up_to_the_longest() -> None:
    state, now, seen = State(), 0.0, []
    for _ in range(9):
        state = fail(state, now)
        seen.append(length(state))
        now += seen[-1]
        state, verdict = ask(state, now)
        assert verdict is Verdict.GO
    assert seen == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@given(st.floats(0, 1), st.integers(1, 12))
def test_chance_shortens_a_pause_by_a_quarter_at_most(chance: float, times: int) -> None:
    state, now = State(), 0.0
    for _ in range(times):
        state = fail(state, now, chance=chance)
        now += length(state)
        state, _ = ask(state, now)
    full = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (times - 1))
    assert 0.75 * full - 1e-9 <= length(state) <= full + 1e-9


def test_what_fails_together_is_one_failure() -> None:
    state = fail(State(), 5.0, began=0.0)
    for late in (5.0, 5.1, 5.9):
        assert fail(state, late, began=4.0) == state


def test_an_answer_that_was_under_way_ends_no_pause() -> None:
    state = breaker.answered(fail(State(), 5.0), 4.9, 5.1)
    assert state.pause is not None
    assert ask(state, 5.2)[1] is Verdict.DEAD


def test_a_trial_whose_outcome_nobody_reports_does_not_keep_the_floor() -> None:
    state, _ = ask(fail(State(), 0.0), 1.0)
    assert ask(state, 1.0 + PATIENCE - 0.01)[1] is Verdict.DEAD
    assert ask(state, 1.0 + PATIENCE)[1] is Verdict.GO
    # In a child of fork, nobody can report it.
    assert ask(breaker.without_trial(state), 1.1)[1] is Verdict.GO


def test_one_failure_is_forgotten_for_each_ten_seconds_that_went_well() -> None:
    state = State(failures=5, well_since=0.0)
    assert length(fail(state, 9.0)) == 32
    assert length(fail(state, 10.0)) == 16
    assert length(fail(state, 40.0)) == 2
    assert length(fail(state, 1e9)) == 1


def test_a_slow_blob_is_excused_once_a_minute_when_others_were_answered() -> None:
    live = breaker.answered(State(), 2.0, 3.0)
    state = fail(live, 5.0, Failure.TIMED_OUT, began=0.0)
    assert state.pause is None
    again = breaker.answered(state, 6.0, 6.1)
    assert fail(again, 10.0, Failure.TIMED_OUT, began=5.0).pause is not None
    later = breaker.answered(state, 65.0, 66.0)
    assert fail(later, 69.0, Failure.TIMED_OUT, began=64.0).pause is None
    # Nobody was answered in the whole deadline.
    assert fail(live, 9.0, Failure.TIMED_OUT, began=4.0).pause is not None
    # A refused connection is no slow blob.
    assert fail(live, 5.0, Failure.UNREACHABLE, began=0.0).pause is not None


@pytest.mark.parametrize(("asked", "least", "most"), [(7.0, 7.0, 8.75), (0.0, 0.0, 0.0), (3600.0, 60.0, 60.0)])
@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_a_remote_that_throttles_is_left_alone_for_as_long_as_it_asks(
    asked: float, least: float, most: float, chance: float
) -> None:
    state = fail(State(), 0.0, Failure.THROTTLED, retry_after=asked, chance=chance)
    assert least <= length(state) <= most
    assert ask(state, least - 0.01)[1] is Verdict.THROTTLED or least == 0.0
    assert breaker.left(state, 0.0) == length(state)


def test_strange_delays_are_none() -> None:
    for asked in (float("nan"), -5.0, float("-inf")):
        assert length(fail(State(), 0.0, Failure.THROTTLED, retry_after=asked)) == 0.0
    assert length(fail(State(), 0.0, Failure.THROTTLED, retry_after=float("inf"))) == LONGEST_PAUSE
    assert length(fail(State(), 0.0, Failure.THROTTLED)) == FIRST_PAUSE


def test_read_only_stops_puts_alone_and_off_stops_everything() -> None:
    state = breaker.refused_to_write(State(), "no right to do this")
    assert ask(state, 1.0, writes=True)[1] is Verdict.READ_ONLY
    assert ask(state, 1.0)[1] is Verdict.GO
    state = breaker.shut(state, "no bucket", no_place=True)
    assert breaker.shut(state, "something else").off == ("no bucket", True)
    assert ask(state, 1e9)[1] is Verdict.OFF
    assert ask(breaker.answered(state, 1e9, 1e9), 1e9)[1] is Verdict.OFF


@pytest.mark.parametrize("deadline", [0.5, 5.0])
def test_a_dead_remote_costs_few_deadlines_in_an_hour(deadline: float) -> None:
    """A program that asks all the time, one request after another."""
    state, now, waited = State(), 0.0, 0
    while now < 3600.0:
        state, verdict = ask(state, now)
        if verdict is Verdict.GO:
            waited += 1
            state = fail(state, now + deadline, Failure.TIMED_OUT, began=now, chance=1.0)
            now += deadline
        now += 0.1
    assert waited <= 7 + 3600 / (0.75 * LONGEST_PAUSE)


def test_a_remote_that_answers_what_is_small_and_hangs_in_what_is_large_costs_few_deadlines() -> None:
    state, now, waited = State(), 0.0, 0
    for turn in range(36000):
        state, verdict = ask(state, now)
        if verdict is Verdict.GO and turn % 2:
            waited += 1
            state = fail(state, now + 5.0, Failure.TIMED_OUT, began=now, chance=1.0)
            now += 5.0
        elif verdict is Verdict.GO:
            state = breaker.answered(state, now, now + 0.01)
        now += 0.1
    assert waited <= 2 + 7 + now / (0.75 * LONGEST_PAUSE)


class Life(RuleBasedStateMachine):
    """Requests begin and end in any order, each after any time, and some never end."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State()
        self.now = 0.0
        self.under_way: list[float] = []
        self.trial: float | None = None

    @rule(seconds=st.floats(0, 100), writes=st.booleans())
    def begin(self, seconds: float, writes: bool) -> None:
        self.now += seconds
        before = self.state
        self.state, verdict = ask(before, self.now, writes=writes)
        if before.off:
            assert verdict is Verdict.OFF
        elif writes and before.read_only:
            assert verdict is Verdict.READ_ONLY
        elif before.pause is None:
            assert verdict is Verdict.GO
        elif self.now < before.pause.until or (self.trial is not None and self.now < self.trial + PATIENCE):
            assert verdict in (Verdict.DEAD, Verdict.THROTTLED)
        else:
            assert verdict is Verdict.GO
            self.trial = self.now
        if verdict is Verdict.GO:
            self.under_way.append(self.now)
        else:
            assert self.state == before

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), seconds=st.floats(0, 10))
    def is_answered(self, data: st.DataObject, seconds: float) -> None:
        began = self._end(data, seconds)
        before, self.state = self.state, breaker.answered(self.state, began, self.now)
        if before.pause is not None:
            assert (self.state.pause is None) == (began >= before.pause.until)
        if self.state.pause is None:
            self.trial = None

    @precondition(lambda self: self.under_way)
    @rule(
        data=st.data(),
        seconds=st.floats(0, 10),
        failure=st.sampled_from(Failure),
        chance=st.floats(0, 1),
        retry_after=st.none() | st.floats(),
    )
    def fails(
        self, data: st.DataObject, seconds: float, failure: Failure, chance: float, retry_after: float | None
    ) -> None:
        began = self._end(data, seconds)
        before = self.state
        self.state = fail(before, self.now, failure, began=began, chance=chance, retry_after=retry_after)
        if before.pause is not None and began < before.pause.until:
            assert self.state == before
        elif self.state.opened > before.opened:
            self.trial = None
            assert self.state.pause is not None
            assert self.state.pause.since == self.now
            assert self.state.pause.throttled == (failure is Failure.THROTTLED)
        else:  # a slow blob
            assert failure is Failure.TIMED_OUT
            assert before.answered > began
            assert self.state.pause is None

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def is_never_heard_of(self, data: st.DataObject) -> None:
        self._end(data, 0.0)

    @rule(what=st.sampled_from(["read-only", "off", "fork"]), dice=st.integers(0, 9))
    def changes(self, what: str, dice: int) -> None:
        if what == "fork":
            self.state = breaker.without_trial(self.state)
            self.trial = None
        elif dice == 0:
            self.state = (
                breaker.shut(self.state, "gone") if what == "off" else breaker.refused_to_write(self.state, "no")
            )

    def _end(self, data: st.DataObject, seconds: float) -> float:
        self.now += seconds
        return self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))

    @invariant()
    def no_pause_is_longer_than_the_longest(self) -> None:
        if self.state.pause is not None:
            assert 0.0 <= length(self.state) <= LONGEST_PAUSE + 1e-6

    @invariant()
    def whatever_happened_one_good_trial_ends_it(self) -> None:
        later = max(self.now, (self.trial or 0.0) + PATIENCE) + LONGEST_PAUSE + 1.0
        state, verdict = ask(replace(self.state, off=None), later)
        assert verdict is Verdict.GO
        assert breaker.answered(state, later, later + 0.1).pause is None


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLife = Life.TestCase
