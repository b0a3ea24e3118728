"""Guards as records: there and back, and nothing malformed gets in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewarm.guards import Guards, Recorder, Rules, check, guards_of

TEXT = st.text(max_size=8)
TEXT_OR_NONE = st.none() | TEXT


def mapping(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(TEXT, values, max_size=3)


TEXTS = st.lists(TEXT, max_size=3)
RECORDS = st.fixed_dictionaries(
    {
        "format": st.just(2),
        "python": TEXT,
        "optimised": st.integers(0, 2),
        "seed": TEXT_OR_NONE,
        "root": TEXT,
        "parts": st.lists(st.lists(TEXT, min_size=3, max_size=3), max_size=3),
        "ran": TEXTS,
        "packages": mapping(st.tuples(TEXT, TEXTS).map(list)),
        "anchors": mapping(TEXTS),
        "origins": mapping(mapping(TEXT)),
        "values": mapping(mapping(st.tuples(TEXT, TEXTS).map(list))),
        "classes": mapping(mapping(TEXT)),
        "environment": mapping(TEXT_OR_NONE),
        "files": mapping(TEXT_OR_NONE),
        "adapters": mapping(TEXT),
        "missing": TEXTS,
    }
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(RECORDS)
def test_there_and_back(plain: dict[str, Any]) -> None:
    guards = Guards.of_plain(plain)
    again = Guards.of_plain(json.loads(json.dumps(guards.plain())))
    assert again.plain() == guards.plain() == plain
    assert again.digest == guards.digest
    assert len(guards.digest) == 64
    assert all(isinstance(line, str) for line in guards.summary())


@given(RECORDS, st.data())
def test_each_field_counts(plain: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(set(plain) - {"format", "parts"})))
    other = data.draw(RECORDS.map(lambda record: record[name]))
    changed = {**plain, name: other}
    assert (Guards.of_plain(changed).digest == Guards.of_plain(plain).digest) == (other == plain[name])


@given(RECORDS, st.data())
def test_a_malformed_field_is_an_error(plain: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(plain)))
    junk = data.draw(JUNK)
    record = {**plain, name: junk}
    try:
        guards = Guards.of_plain(record)
    except ValueError:
        with pytest.raises(ValueError, match="guards of a trace"):
            Guards.of_plain(record)
        return
    assert Guards.of_plain(json.loads(json.dumps(guards.plain()))).digest == guards.digest
    guards.summary()


def doubled(x: int) -> int:
    return 2 * x


def test_another_python_is_told_and_nothing_else() -> None:
    rules = Rules({}, None)
    with Recorder() as recorder:
        doubled(2)
    plain = guards_of(doubled, recorder.seen, rules).plain()
    assert check(doubled, Guards.of_plain(plain), rules) == []
    for field, value, words in (("python", "another", "Python"), ("optimised", 2, "Python's flag -O")):
        changes = check(doubled, Guards.of_plain({**plain, field: value, "root": "x"}), rules)
        assert [change.what for change in changes] == [words]


@given(JUNK)
def test_junk_is_an_error(junk: Any) -> None:
    with pytest.raises(ValueError, match="guards of a trace"):
        Guards.of_plain(junk)


@given(RECORDS, st.data())
def test_a_missing_or_foreign_field_is_an_error(plain: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(set(plain) - {"format"})))
    with pytest.raises(ValueError, match=name):
        Guards.of_plain({key: value for key, value in plain.items() if key != name})
    with pytest.raises(ValueError, match="more"):
        Guards.of_plain({**plain, "more": 1})
