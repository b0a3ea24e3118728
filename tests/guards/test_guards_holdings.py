"""What a variable of a library holds, as a text: equal for equal content, another for another, and cut as it says."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import pathlib
import re
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewarm.guards.holdings import differing, rendered, text_of, tree_of
from rewarm.guards.origins import origin_of

PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=3)
NESTED = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=20,
)


class Slotted:
    __slots__ = ("k",)

    def __init__(self, k: object) -> None:
        self.k = k


def _made(k: object) -> Callable[[], object]:
    return lambda: k


def _local(k: object) -> threading.local:
    found = threading.local()
    found.k = k
    return found


MAKERS: dict[str, Callable[[int], Any]] = {
    "large": lambda k: {number: k if number == 900 else 0 for number in range(1800)},
    "larger": lambda k: [0] * 50_000 + [k],
    "array": lambda k: np.full((600, 600), k, np.float64),
    "bfloat16": lambda k: np.full(3, k, np.dtype("float32")).astype(_bfloat16()),
    "slots": Slotted,
    "namespace": lambda k: types.SimpleNamespace(k=k),
    "arguments": lambda k: argparse.Namespace(k=k),
    "range": range,
    "slice": slice,
    "decimal": decimal.Decimal,
    "date": lambda k: datetime.date(2020, 1, k),
    "path": lambda k: pathlib.PurePath(str(k)),
    "pattern": lambda k: re.compile(str(k)),
    "counter": lambda k: collections.Counter("a" * k),
    "proxy": lambda k: types.MappingProxyType({"k": k}),
    "local": _local,
    "closure": _made,
    "method": lambda k: Slotted(k).__init__,  # type: ignore[misc]
    "deep": lambda k: [[[[[[[[[[k]]]]]]]]]],
}


def _bfloat16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


@pytest.mark.parametrize("name", MAKERS)
def test_content_counts(name: str) -> None:
    make = MAKERS[name]
    assert text_of(make(2)) == text_of(make(2))
    assert text_of(make(2)) != text_of(make(3))


@given(NESTED, NESTED)
def test_equal_texts_are_of_equal_content(one: Any, two: Any) -> None:
    assert (text_of(one) == text_of(two)) == (repr(one) == repr(two))


@given(st.dictionaries(st.text(max_size=2), NESTED, min_size=1, max_size=4), st.data())
def test_of_two_trees_that_which_differs_can_be_left_out(held: dict[str, Any], data: st.DataObject) -> None:
    before = tree_of(held)
    name = data.draw(st.sampled_from(sorted(held)))
    after = tree_of({**held, name: data.draw(NESTED)})
    paths = frozenset(differing(before, after))
    assert "" not in paths
    assert rendered(before, paths) == rendered(after, paths)
    assert (not paths) == (before == after)


def test_items_that_come_leave_out_the_whole() -> None:
    assert differing(tree_of({"a": 1}), tree_of({"a": 1, "b": 2})) == [""]


def test_what_holds_itself_ends() -> None:
    held: list[Any] = [1]
    held.append(held)
    assert "itself" in text_of(held)


def test_what_is_too_much_is_cut_and_says_so() -> None:
    assert "cut" in text_of([[] for _ in range(5000)])
    assert "cut" in text_of(list(range(200_000)))
    assert "cut" in text_of(np.zeros(5 << 20))
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    assert "cut" in text_of(deep)


def test_numbers_of_objects_do_not_count() -> None:
    assert text_of({"at": id([])}) == text_of({"at": id({})})


def test_an_object_that_cannot_be_read_is_told_by_its_type() -> None:
    class Bad(dict[str, int]):
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise ValueError("no")

    assert "raises ValueError" in text_of(Bad())


def test_defaults_and_registrations_are_part_of_where_something_comes_from() -> None:
    code = (
        "import collections.abc, json\n"
        "from rewarm.guards.origins import origin_of\n"
        "import click.utils as lib\n"
        "one = origin_of(lib.safecall), origin_of(lib.make_str), origin_of(collections.abc.Sequence)\n"
        "lib.make_str.__defaults__ = (1,)\n"
        "collections.abc.Sequence.register(set)\n"
        "two = origin_of(lib.safecall), origin_of(lib.make_str), origin_of(collections.abc.Sequence)\n"
        "print(json.dumps([a == b for a, b in zip(one, two)]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[true, false, false]"


def test_what_rewarm_puts_around_a_function_counts_as_the_function() -> None:
    from rewarm.jax_adapter.seam.runs import unwatch_runs, watch_runs

    pytest.importorskip("jax")
    from jax._src.interpreters import pxla

    before = origin_of(vars(pxla.ExecuteReplicated)["__call__"])
    assert watch_runs({}, lambda *_: None)
    try:
        assert origin_of(vars(pxla.ExecuteReplicated)["__call__"]) == before
    finally:
        unwatch_runs()
