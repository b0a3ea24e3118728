"""Values: equal digests for equal values of one type and structure, and only for them, in every process."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import functools
import math
import operator
import pathlib
import pickle
import re
import struct
import sys
import types
import uuid
from pathlib import Path
from typing import Any, Optional, TypeVar, Union

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import clean_environment, execute
from rewarm.fingerprint import fingerprint

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def digest(value: object, **rules: Any) -> str:
    return fingerprint(value, **rules).digest


def spelled(value: Any) -> Any:
    """An independent account of what a value is: types, bits, order where order counts."""
    kind = type(value).__name__
    if isinstance(value, float):
        return (kind, struct.pack(">d", value))
    if isinstance(value, complex):
        return (kind, struct.pack(">dd", value.real, value.imag))
    if isinstance(value, (tuple, list)):
        return (kind, *(spelled(item) for item in value))
    if isinstance(value, dict):
        return (kind, *((spelled(key), spelled(item)) for key, item in value.items()))
    if isinstance(value, (set, frozenset)):
        return (kind, *sorted((spelled(item) for item in value), key=repr))
    return (kind, repr(value))


_floats = st.floats(allow_nan=True) | st.sampled_from([0.0, -0.0, 1.0, math.inf, math.nan])
_numbers = st.booleans() | st.integers(-2, 2) | st.integers() | _floats | st.complex_numbers()
_plain = (
    st.none()
    | _numbers
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from([..., NotImplemented, "\ud800"])
)
_keys = st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=2)
VALUES = st.recursive(
    _plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(_keys, inner, max_size=3)
        | st.frozensets(_keys, max_size=3)
        | st.sets(_keys, max_size=3)
    ),
    max_leaves=6,
)


@QUICK
@given(VALUES, VALUES)
def test_digests_agree_exactly_where_values_do(a: Any, b: Any) -> None:
    assert (digest(a) == digest(b)) is (spelled(a) == spelled(b))


@QUICK
@given(VALUES)
def test_a_copy_has_the_same_digest(a: Any) -> None:
    assert digest(pickle.loads(pickle.dumps(a))) == digest(a)


@QUICK
@given(VALUES, VALUES)
def test_where_a_value_stands_counts(a: Any, b: Any) -> None:
    values = [[a, b], [[a], b], [a, [b]], [[a, b]], (a, b), {"k": a, "l": b}, [a], [b, a]]
    spellings = [spelled(value) for value in values]
    digests = [digest(value) for value in values]
    for i, one in enumerate(spellings):
        for j, other in enumerate(spellings):
            assert (digests[i] == digests[j]) is (one == other)


READER = """
import json, pickle, sys
from rewarm.fingerprint import fingerprint
with open(sys.argv[1], "rb") as file:
    values = pickle.load(file)
print(json.dumps([fingerprint(value).digest for value in values]))
"""


def test_other_processes_agree(tmp_path: Path) -> None:
    values: list[Any] = []

    @settings(max_examples=300, deadline=None, database=None)
    @given(VALUES)
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    (tmp_path / "reader.py").write_text(READER)
    (tmp_path / "values").write_bytes(pickle.dumps(values))
    expected = [digest(value) for value in values]
    for seed in ("0", "77"):
        run = execute(
            [sys.executable, str(tmp_path / "reader.py"), str(tmp_path / "values")],
            env=clean_environment(PYTHONHASHSEED=seed),
            cwd=tmp_path,
        )
        assert run.code == 0, run.err
        assert run.json == expected


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Whole(int):
    pass


class Pairs(dict):  # type: ignore[type-arg]
    pass


class Named(collections.namedtuple("Named", "a b")):
    pass


def _loop(length: int) -> list[Any]:
    start: list[Any] = []
    at = start
    for _ in range(length - 1):
        at.append([])
        at = at[0]
    at.append(start)
    return start


def _dated(fold: int) -> datetime.datetime:
    return datetime.datetime(2020, 1, 1, fold=fold)


def nan(payload: int) -> float:
    found: float = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000 | payload))[0]
    return found


T, U = TypeVar("T"), TypeVar("U")

# Each makes another value, and gives the same digest each time that it is made.
DISTINCT = {
    "none": lambda: None,
    "false": lambda: False,
    "zero": lambda: 0,
    "zero float": lambda: 0.0,
    "minus zero": lambda: -0.0,
    "zero complex": lambda: 0j,
    "minus zero complex": lambda: complex(0.0, -0.0),
    "one": lambda: 1,
    "true": lambda: True,
    "one float": lambda: 1.0,
    "minus one": lambda: -1,
    "256": lambda: 256,
    "255": lambda: 255,
    "large": lambda: 10**5000,
    "larger": lambda: 10**5000 + 1,
    "nan": lambda: nan(0),
    "another nan": lambda: nan(1),
    "whole": lambda: Whole(1),
    "empty text": lambda: "",
    "empty bytes": lambda: b"",
    "empty bytearray": bytearray,
    "bytearray": lambda: bytearray(b"a"),
    "bytes": lambda: b"a",
    "text": lambda: "a",
    "surrogate": lambda: "\ud800",
    "another surrogate": lambda: "\ud801",
    "empty tuple": lambda: (),
    "empty list": lambda: [],
    "empty dict": lambda: {},
    "empty set": set,
    "empty frozenset": frozenset,
    "empty deque": collections.deque,
    "bounded deque": lambda: collections.deque(maxlen=3),
    "ordered": collections.OrderedDict,
    "counter": collections.Counter,
    "counted": lambda: collections.Counter("ab"),
    "defaultdict": lambda: collections.defaultdict(int),
    "defaultdict of lists": lambda: collections.defaultdict(list),
    "pairs": Pairs,
    "namespace": types.SimpleNamespace,
    "namespace with a": lambda: types.SimpleNamespace(a=1),
    "proxy": lambda: types.MappingProxyType({}),
    "named": lambda: Named(1, 2),
    "tuple like named": lambda: (1, 2),
    "range": lambda: range(3),
    "range from 1": lambda: range(1, 3),
    "slice": lambda: slice(3),
    "slice from 1": lambda: slice(1, 3),
    "ellipsis": lambda: ...,
    "not implemented": lambda: NotImplemented,
    "sentinel": object,
    "red": lambda: Colour.RED,
    "blue": lambda: Colour.BLUE,
    "colour": lambda: Colour,
    "int": lambda: int,
    "function type": lambda: types.FunctionType,
    "keys type": lambda: type({}.keys()),
    "loop of 1": lambda: _loop(1),
    "loop of 2": lambda: _loop(2),
    "loop of 3": lambda: _loop(3),
    "date": lambda: datetime.date(2020, 1, 1),
    "datetime": lambda: _dated(0),
    "the second datetime": lambda: _dated(1),
    "datetime with a zone": lambda: datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    "time": lambda: datetime.time(1),
    "duration": lambda: datetime.timedelta(1),
    "zone": lambda: datetime.timezone(datetime.timedelta(hours=1)),
    "decimal": lambda: decimal.Decimal("1.0"),
    "decimal with more digits": lambda: decimal.Decimal("1.00"),
    "fraction": lambda: fractions.Fraction(1, 2),
    "uuid": lambda: uuid.UUID(int=1),
    "path": lambda: pathlib.Path("a"),
    "pure path": lambda: pathlib.PurePosixPath("a"),
    "windows path": lambda: pathlib.PureWindowsPath("a"),
    "pattern": lambda: re.compile("a"),
    "pattern with a flag": lambda: re.compile("a", re.IGNORECASE),
    "pattern of bytes": lambda: re.compile(b"a"),
    "attribute": lambda: operator.attrgetter("a"),
    "attributes": lambda: operator.attrgetter("a", "b"),
    "item": lambda: operator.itemgetter("a"),
    "method": lambda: operator.methodcaller("a"),
    "method with arguments": lambda: operator.methodcaller("a", 1, k=2),
    "partial": lambda: functools.partial(len),
    "partial with an argument": lambda: functools.partial(len, "a"),
    "array of bytes": lambda: array.array("b", [1]),
    "array of numbers": lambda: array.array("i", [1]),
    "sin": lambda: math.sin,
    "cos": lambda: math.cos,
    "method of text": lambda: str.upper,
    "bound method of text": lambda: "a".upper,
    "class method of C": lambda: dict.fromkeys,
    "alias": lambda: list[int],
    "another alias": lambda: list[str],
    "union": lambda: int | str,
    "typing union": lambda: Union[list[int], str],  # noqa: UP007
    "optional": lambda: Optional[list[int]],  # noqa: UP045
    "special form": lambda: Optional,
    "variable": lambda: T,
    "another variable": lambda: U,
    "versions": lambda: sys.version_info,
    "float's limits": lambda: sys.float_info,
    "not a number, twice": lambda: [nan(0)] * 2,
    "missing": lambda: __import__("dataclasses").MISSING,
}


def test_each_of_these_values_has_a_digest_of_its_own() -> None:
    found: dict[str, str] = {}
    for name, make in DISTINCT.items():
        first, second = digest(make()), digest(make())
        assert first == second, name
        assert first not in found, f"{name} and {found[first]}"
        found[first] = name


def test_a_name_for_the_root_does_not_count() -> None:
    assert digest([1, 2], name="a") == digest([1, 2], name="b")


def test_parts_say_what_was_found() -> None:
    scale, table = 2.5, list(range(50))

    def helper(x: Any) -> Any:
        return x * scale

    def root(x: Any, *, label: str = "ab") -> Any:
        return helper(x), table, math.sin, label

    parts = fingerprint(root, name="partition").parts
    arrow = " \N{RIGHTWARDS ARROW} "
    assert parts.pop("partition").startswith("code ")
    helper_code = parts.pop(f"partition{arrow}closure helper")
    assert re.fullmatch(r"code [0-9a-f]{12}", helper_code)
    assert re.fullmatch(r"list [0-9a-f]{12}", parts.pop(f"partition{arrow}closure table"))
    assert parts == {
        f"partition{arrow}closure helper{arrow}closure scale": "2.5",
        f"partition{arrow}default label": "'ab'",
        f"partition{arrow}global math.sin": "math.sin",
    }


def test_one_part_changes_with_what_it_is_about() -> None:
    def make(scale: float, table: list[int]) -> Any:
        def helper(x: Any) -> Any:
            return x * scale

        return lambda x: (helper(x), table)

    before = fingerprint(make(1.0, [1] * 50)).parts
    after = fingerprint(make(2.0, [1] * 50)).parts
    changed = {path for path in before if before[path] != after[path]}
    assert {path.rpartition(" ")[2] for path in changed} == {"scale"}
    after = fingerprint(make(1.0, [1] * 49 + [2])).parts
    changed = {path for path in before if before[path] != after[path]}
    assert {path.rpartition(" ")[2] for path in changed} == {"table"}


# ---------------------------------------------------------------------------------------------------------------
# Reducers and companions


class Opaque:
    """As a type of another library: its state is a generator, which nobody can follow."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.state = (number for number in range(size))


class More(Opaque):
    pass


def test_a_reducer_stands_for_a_type() -> None:
    with pytest.raises(TypeError, match="generator"):
        digest([Opaque(1)])
    rules = {Opaque: lambda value: ("size", value.size)}
    assert digest([Opaque(1)], reducers=rules) == digest([Opaque(1)], reducers=rules)
    assert digest([Opaque(1)], reducers=rules) != digest([Opaque(2)], reducers=rules)
    assert digest([Opaque(1)], reducers=rules) != digest([("size", 1)], reducers=rules)
    one = Opaque(1)
    assert digest([one, one], reducers=rules) != digest([one, Opaque(1)], reducers=rules)


def test_a_reducer_of_a_base_does_not_hide_what_a_derived_class_adds() -> None:
    rules = {Opaque: lambda value: value.size}
    with pytest.raises(TypeError, match="attribute state"):
        digest(More(1), reducers=rules)
    one, other = More(1), More(1)
    for value in (one, other):
        value.state = ()  # type: ignore[assignment]
    assert digest(one, reducers=rules) == digest(other, reducers=rules)
    other.extra = 1  # type: ignore[attr-defined]
    assert digest(one, reducers=rules) != digest(other, reducers=rules)


def test_a_reducer_that_fails_is_a_refusal() -> None:
    with pytest.raises(TypeError, match=r"item 0.*ZeroDivisionError"):
        digest([Opaque(1)], reducers={Opaque: lambda _: 1 / 0})


def test_a_companion_belongs_to_a_class() -> None:
    registered = {Whole: "one way"}
    first = digest(Whole(1), companions=registered.get)
    assert first == digest(Whole(1), companions=registered.get)
    registered[Whole] = "another way"
    assert first != digest(Whole(1), companions=registered.get)
