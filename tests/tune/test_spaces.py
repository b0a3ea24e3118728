"""Spaces: what may be chosen, what errors say, and that what is drawn is allowed."""

from __future__ import annotations

import functools
import itertools
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewarm.errors import RewarmError
from rewarm.tunables.spaces import Choices, Range, Space, SpaceError, canonical


def direct(x: Any) -> Any:
    return x


def by_fft(x: Any) -> Any:
    return x


X = SimpleNamespace(shape=(96, 8))


def test_ranges_hold_both_ends_and_powers() -> None:
    assert Range(32, 128, 32).values() == [32, 64, 96, 128]
    assert Range(32, 100, 32).values() == [32, 64, 96]
    assert Range(16, 256, log=2).values() == [16, 32, 64, 128, 256]
    assert Range(0.1, 0.5, 0.1).values() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    for wrong in (Range(2, 1), Range(1, 2, 0), Range(0, 4, log=2), Range(1, 4, log=1), Range(float("nan"), 2)):
        with pytest.raises(SpaceError, match="low <= high"):
            wrong.values()
    with pytest.raises(SpaceError, match="larger step"):
        Range(0, 10**9).values()


def test_default_is_first_and_constraints_hold() -> None:
    space = Space.of(
        {"block_m": [32, 64, 128], "block_n": Range(32, 128, log=2)},
        {"block_m": 64, "block_n": 64},
        lambda block_m, block_n: block_m * block_n <= 64 * 64,
    )
    found = list(space.all())
    assert found[0] == {"block_m": 64, "block_n": 64} == space.default
    assert space.size == 9
    assert len(found) == 6 == space.count(64)
    assert space.count(3) == 3
    assert len({canonical(one) for one in found}) == 6
    assert list(space.all()) == found


def test_spaces_and_parameters_may_be_functions_of_the_arguments() -> None:
    whole = Space.of(lambda x: {"block": [one for one in (32, 64) if x.shape[0] % one == 0]}, arguments={"x": X})
    assert list(whole.all()) == [{"block": 32}]
    part = Space.of({"block": lambda x: range(32, x.shape[0] + 1, 32)}, arguments={"x": X, "y": None})
    assert [one["block"] for one in part.all()] == [32, 64, 96]
    held = Space.of({"block": [32, 64, 96]}, None, lambda block, x: x.shape[0] % block == 0, {"x": X})
    assert [one["block"] for one in held.all()] == [32, 96]
    starred = Space.of(lambda *arguments: {"n": [len(arguments)]}, arguments={"x": X, "y": None})
    assert starred.default == {"n": 2}


def test_variants_go_by_labels() -> None:
    space = Space.of({"variant": [direct, by_fft], "k": [1]}, {"variant": by_fft, "k": 1})
    assert space.default == {"variant": "by_fft", "k": 1}
    assert space.keywords({"variant": "direct", "k": 1}) == {"variant": direct, "k": 1}
    assert space.check({"variant": direct, "k": 1}) == {"variant": "direct", "k": 1}
    named = Space.of({"variant": {"a": lambda: 1, "b": (1, 2)}})
    assert named.keywords({"variant": "b"}) == {"variant": (1, 2)}
    assert set(named.functions) == {"variant=a", "variant=b"}
    partial = Space.of({"variant": [functools.partial(direct, 1), direct]})
    assert partial.default == {"variant": "partial(direct)"}
    with pytest.raises(SpaceError, match="labels of your own"):
        Space.of({"variant": [lambda: 1, lambda: 2]})


def test_constraints_see_objects_and_not_labels() -> None:
    space = Space.of({"variant": [direct, by_fft], "k": [1, 2]}, None, lambda variant, k: variant is direct or k == 2)
    assert [tuple(one.values()) for one in space.all()] == [("direct", 1), ("direct", 2), ("by_fft", 2)]


@pytest.mark.parametrize(
    ("space", "more", "words"),
    [
        ({}, {}, "a space is a mapping"),
        ({"block": []}, {}, "block: at least one value"),
        ({"block": 32}, {}, "block: its values are a list"),
        ({"block": "32"}, {}, "block: its values are a list"),
        ({"block m": [1]}, {}, "block m"),
        ({"block": [1, 1]}, {}, "twice"),
        ({"block": [(1, 2)]}, {}, r"block: .*\(1, 2\).*labels"),
        ({"block": [float("inf")]}, {}, "finite"),
        ({"block": {1: 2}}, {}, "labels, which are text"),
        ({"block": Range(2, 1)}, {}, "block: Range"),
        ({"block": [32, 64]}, {"default": {"block": 48}}, "the default: block=48 .*32, 64"),
        ({"block": [32, 64]}, {"default": {"blok": 32}}, "'blok' is no parameter.*block"),
        ({"a": [1], "block": [32]}, {"default": {"a": 1}}, "no value for block.*32"),
        ({"block": [32, 64]}, {"constraints": lambda blok: blok}, "takes 'blok', which is not there; there is block"),
        ({"block": [32, 0]}, {"constraints": lambda block: 64 // block == 2}, None),
        (
            {"block": [0]},
            {"constraints": lambda block: 64 // block},
            "constraint .* raised ZeroDivisionError.*yes or no",
        ),
        ({"block": [3]}, {"constraints": lambda block: block != 3}, "breaks the constraint .*give default="),
        ({"block": [1]}, {"constraints": 3}, "a constraint is a function"),
        ({"block": lambda y: [y]}, {}, "the values of block takes 'y'"),
        (lambda: 1 // 0, {}, "the space is a function, .* raised ZeroDivisionError"),
    ],
)
def test_errors_name_the_parameter_and_the_good_values(space: Any, more: dict[str, Any], words: str | None) -> None:
    if words is None:
        assert list(Space.of(space, {"block": 32}, lambda block: not block or 64 // block == 2).all())
        return
    with pytest.raises(SpaceError, match=words):
        list(Space.of(space, **more).all())


def test_the_error_is_one_that_python_users_expect() -> None:
    assert issubclass(SpaceError, RewarmError)
    assert issubclass(SpaceError, ValueError)


def test_one_and_true_and_a_float_are_three_values() -> None:
    space = Space.of({"k": [1, True, 1.0, "1", None]})
    assert len({canonical(one) for one in space.all()}) == 5
    assert space.check({"k": True})["k"] is True
    with pytest.raises(SpaceError, match=r"k=0\.5 is not in the space; k is one of 1, True, 1\.0, '1', None"):
        space.check({"k": 0.5})


def test_numpys_numbers_are_pythons() -> None:
    space = Space.of({"k": np.arange(3), "f": [np.float32(0.5)]})
    assert space.default == {"k": 0, "f": 0.5}
    assert type(space.default["k"]) is int
    assert space.check({"k": np.int64(2), "f": 0.5}) == {"k": 2, "f": 0.5}


def test_neighbours_differ_by_one_place() -> None:
    space = Space.of({"block": Range(16, 256, log=2), "variant": [direct, by_fft, "none"]})
    near = space.neighbours({"block": 64, "variant": "direct"})
    assert near == [
        {"block": 32, "variant": "direct"},
        {"block": 128, "variant": "direct"},
        {"block": 64, "variant": "by_fft"},
        {"block": 64, "variant": "none"},
    ]
    assert {"block": 16, "variant": "none"} in space.neighbours({"block": 5, "variant": "none"})
    assert Space.of({"k": Choices([3, 2, 1])}).neighbours({"k": 3}) == [{"k": 2}]


def test_a_large_space_is_drawn_from_and_never_walked() -> None:
    space = Space.of({name: Range(1, 1000) for name in "abcdef"}, None, lambda a, b: (a + b) % 7 == 2)
    assert space.size == 10**18
    assert space.count(65) == 65
    drawn = space.sample(random.Random(1), 50)
    assert len({canonical(one) for one in drawn}) == 50
    assert all(space.broken(one) is None for one in drawn)
    assert drawn == space.sample(random.Random(1), 50)
    assert list(itertools.islice(space.all(), 3))


def test_what_can_hardly_be_met_ends() -> None:
    space = Space.of({name: Range(1, 1000) for name in "abcd"}, None, lambda a, b, c, d: a == b == c == d)
    assert len(space.sample(random.Random(1), 20)) <= 20


def test_digests_tell_spaces_apart() -> None:
    one = Space.of({"a": [1, 2], "b": [1]})
    assert one.digest == Space.of({"b": [1], "a": [1, 2]}).digest
    others = [
        Space.of({"a": [1, 2, 3], "b": [1]}),
        Space.of({"a": [1.0, 2], "b": [1]}),
        Space.of({"a": [2, 1], "b": [1]}),
    ]
    assert len({one.digest, *(other.digest for other in others)}) == 4


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.lists(st.integers() | st.booleans() | st.text(), min_size=1, max_size=5, unique_by=lambda v: (type(v), v)),
        min_size=1,
    )
)
def test_all_of_any_space_is_each_once_and_allowed(values: dict[str, list[Any]]) -> None:
    space = Space.of(values)
    found = list(space.all())
    assert len(found) == space.size == len({canonical(one) for one in found})
    assert all(space.check(one) == one for one in found)
    assert len(space.sample(random.Random(0), 1000)) == space.size
    for one in found[:5]:
        assert all(space.allows(near) for near in space.neighbours(one))
