"""Which of the remembered programs a miss is compared with."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import remembered

from rewarm.explain import Remembered
from rewarm.explain.nearest import differing, nearest, runs_with_others, signatures_seen
from rewarm.identity.components import TABLE

WANTED = remembered()


def other(time: float = 1.0, like: dict[str, str] | None = None, **fields: Any) -> Remembered:
    return remembered(time=time, like=like or {}, **fields)


def test_nothing_is_near_to_nothing() -> None:
    assert nearest(WANTED, []) is None


PREFERENCES = {
    "the same program under other options, before another under the same": (
        other(like=dict.fromkeys(("options", "target", "toolchain", "salt"), "other")),
        other(like={"program": "other"}),
    ),
    "more components in common": (other(like={"options": "o"}), other(time=9.0, like={"options": "o", "salt": "o"})),
    "the same name before the same structure": (
        other(like={"program": "o"}, structure="o", signature="o"),
        other(like={"program": "p"}, program="jit_other", time=9.0),
    ),
    "the same structure before the same types": (
        other(like={"program": "o"}, signature="o"),
        other(like={"program": "p"}, structure="o", time=9.0),
    ),
    "the same types before others": (
        other(like={"program": "o"}),
        other(like={"program": "p"}, signature="o", time=9.0),
    ),
    "one that is stored before one that is not": (
        other(like={"program": "o"}),
        other(like={"program": "p"}, outcome="not stored", time=9.0),
    ),
    "of equals the newest": (other(time=2.0, like={"program": "o"}), other(time=1.0, like={"program": "p"})),
}


@pytest.mark.parametrize(("nearer", "farther"), PREFERENCES.values(), ids=PREFERENCES)
def test_preferences(nearer: Remembered, farther: Remembered) -> None:
    for known in itertools.permutations([nearer, farther]):
        assert nearest(WANTED, known) == nearer


TEXTS = st.sampled_from(["same", "other"])
RECORDS = st.builds(
    lambda like, program, structure, signature, outcome, time: remembered(
        like={name: text for name, text in like.items() if text == "other"},
        program="jit_step" if program == "same" else "jit_other",
        structure="structure" if structure == "same" else "o",
        signature=WANTED.signature if signature == "same" else "o",
        outcome=outcome,
        time=time,
    ),
    st.fixed_dictionaries(dict.fromkeys(TABLE, TEXTS)),
    TEXTS,
    TEXTS,
    TEXTS,
    st.sampled_from(["stored", "not stored"]),
    st.floats(0, 1e10),
)


def beats(one: Remembered, two: Remembered) -> bool:
    """Whether `one` is nearer in every respect that counts, and so must never lose to `two`."""
    same = [{name for name in TABLE if each.components[name] == WANTED.components[name]} for each in (one, two)]
    pairs = [
        ("program" in same[0], "program" in same[1]),
        (len(same[0]), len(same[1])),
        (one.program == WANTED.program, two.program == WANTED.program),
        (one.structure == WANTED.structure, two.structure == WANTED.structure),
        (one.signature == WANTED.signature, two.signature == WANTED.signature),
        (one.outcome == "stored", two.outcome == "stored"),
        (one.time, two.time),
    ]
    return all(mine >= its for mine, its in pairs) and any(mine > its for mine, its in pairs)


@settings(deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=8), st.randoms())
def test_nothing_that_is_known_is_nearer_and_order_does_not_matter(known: list[Remembered], choice: Any) -> None:
    found = nearest(WANTED, known)
    assert found in known
    assert not any(beats(one, found) for one in known)
    shuffled = list(known)
    choice.shuffle(shuffled)
    again = nearest(WANTED, shuffled)
    assert again is not None
    assert not beats(again, found)
    if len({one.time for one in known}) == len(known):
        assert again == found


def test_a_record_of_another_table_is_no_error() -> None:
    bare = remembered(components={})
    assert nearest(WANTED, [bare]) == bare
    assert differing(WANTED, bare) == TABLE
    assert differing(bare, WANTED) == ()


def test_what_differs_is_in_the_order_of_the_table() -> None:
    one = other(like={"salt": "o", "program": "o", "options": "o"})
    assert differing(WANTED, one) == ("program", "options", "salt")
    assert differing(WANTED, WANTED) == ()


def test_signatures_seen_are_those_of_the_name_the_newest_first() -> None:
    known = [
        other(signature="c", like={"program": "c"}),
        other(signature="b", like={"program": "b"}),
        other(signature="c", like={"program": "d"}),
        other(signature="e", program="jit_other"),
        other(signature="g", kinds="of another program of this name"),
        other(like={"program": "f"}),
    ]
    assert signatures_seen(WANTED, known) == ["c", "b"]


def run(name: str, content: str, **fields: Any) -> Remembered:
    return other(like={"program": content}, run=name, **fields)


def test_runs_count_while_each_had_other_constants() -> None:
    known = [run("one", "a"), run("two", "b"), run("three", "c", structure="other"), run("four", "d", program="jit_x")]
    assert runs_with_others(WANTED, known) == 2
    assert runs_with_others(WANTED, [*known, run("five", "e", signature="other")]) == 2
    assert runs_with_others(WANTED, [run("one", "a"), run("two", "a")]) == 0, "two runs agree"
    assert runs_with_others(WANTED, [run("one", "a"), run("one", "b"), run("one", "c")]) == 1, "a loop in one run"
    assert runs_with_others(WANTED, [run(WANTED.run, "a"), run(WANTED.run, "b")]) == 0, "this run"
    assert runs_with_others(WANTED, []) == 0
