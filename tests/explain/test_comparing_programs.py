"""How two programs differ: programs that JAX lowered, lists made by hand, and any lists at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import listed, listing

from rewarm.explain.programs import Difference, compare, same_but_for_width
from rewarm.identity.program import Listing, Operation
from rewarm.ledger.explanation import Change

np = pytest.importorskip("numpy")
jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.contract

ONE = np.ones((4, 4), np.float32)


@pytest.fixture
def x64() -> Iterator[Callable[[bool], None]]:
    yield lambda on: jax.config.update("jax_enable_x64", on)
    jax.config.update("jax_enable_x64", False)


def kinds(found: Difference) -> set[str]:
    return {finding.kind for finding in found.findings}


def compared(before: Callable[..., Any], after: Callable[..., Any], *arguments: Any) -> Difference:
    return compare(listed(before, *(arguments or (ONE,))), listed(after, *(arguments or (ONE,))))


def only(found: Difference) -> Change:
    (change,) = found.changes
    assert change.component == "program"
    assert change.before != change.after
    return change


def here(change: Change) -> bool:
    """Whether a change names this file, and not the place where the program was called."""
    return change.item.startswith(f"{__file__}:")


# ---------------------------------------------------------------------------------------------------------------
# Programs of JAX


def test_equal_programs_have_no_changes() -> None:
    assert compared(lambda x: jnp.sin(x) @ x, lambda y: jnp.sin(y) @ y) == Difference((), ())


def test_a_constant() -> None:
    found = compared(lambda x: x * 0.5, lambda x: x * 0.75)
    change = only(found)
    assert kinds(found) == {"constants"}
    assert ("5.000000e-01" in change.before, "7.500000e-01" in change.after) == (True, True)
    assert here(change)


def test_an_element_of_a_captured_array() -> None:
    """The part that differs is shown, wherever in the array it is."""
    before = np.arange(64, dtype=np.float32)
    after = before.copy()
    after[60] = 1234.0
    found = compared(lambda x: x.sum() + before, lambda x: x.sum() + after)
    assert kinds(found) == {"constants"}
    change = only(found)
    assert "6.000000e+01" in change.before
    assert "1.234000e+03" in change.after


def test_an_element_of_a_large_captured_array() -> None:
    before = np.random.default_rng(0).random((64, 64), np.float32)
    after = before.copy()
    after[60, 60] = 2.0
    found = compared(lambda x: x.sum() + before, lambda x: x.sum() + after)
    assert kinds(found) == {"constants"}
    assert len(only(found).before) < 500


def test_a_shape() -> None:
    def f(x: Any) -> Any:
        return jnp.tanh(x).sum(axis=0)

    found = compare(listed(f, ONE), listed(f, np.ones((8, 4), np.float32)))
    assert kinds(found) == {"shapes"}
    assert found.changes[0].item == ""
    assert "tensor<4x4xf32>" in found.changes[0].before
    assert "tensor<8x4xf32>" in found.changes[0].after


def test_a_rank() -> None:
    def f(x: Any) -> Any:
        return x * 2

    found = compare(listed(f, ONE), listed(f, np.ones((2, 2, 2), np.float32)))
    assert kinds(found) == {"shapes"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda x: x.sum(axis=0), lambda x: x.sum(axis=1)),
        (lambda x: x[0:2], lambda x: x[1:3]),
        (lambda x: x.T @ x, lambda x: jax.lax.dot_general(x, x, (((1,), (0,)), ((), ())))),
        (lambda x: jnp.concatenate([x, x], axis=0)[:4], lambda x: jnp.concatenate([x, x], axis=0)[4:]),
        (lambda x: jnp.flip(x, 0), lambda x: jnp.flip(x, 1)),
    ],
    ids=["axis", "slice", "dimensions", "half", "flip"],
)
def test_other_numbers_are_no_other_shapes(before: Callable[..., Any], after: Callable[..., Any]) -> None:
    """All arguments and results have the shapes that they had."""
    found = compared(before, after)
    assert found.changes
    assert "shapes" not in kinds(found)


def test_x64(x64: Callable[[bool], None]) -> None:
    def f(x: Any) -> Any:
        return jnp.cumsum(x * 2)

    narrow = listed(f, np.ones(4))
    x64(True)
    wide = listed(f, np.ones(4))
    assert kinds(compare(narrow, wide)) == kinds(compare(wide, narrow)) == {"types"}
    assert "f64" in compare(narrow, wide).changes[0].after


def test_x64_where_conversions_come_in(x64: Callable[[bool], None]) -> None:
    def f(x: Any) -> Any:
        return jnp.arange(4) * x + jnp.asarray(x, jnp.int32)

    narrow = listed(f, np.ones(4))
    x64(True)
    assert kinds(compare(narrow, listed(f, np.ones(4)))) == {"types"}


def test_a_weak_type() -> None:
    def f(x: Any, y: Any) -> Any:
        return x * y

    half = np.ones(4, jnp.bfloat16)
    found = compare(listed(f, half, 2.0), listed(f, half, np.float32(2.0)))
    assert found.changes
    assert kinds(found) <= {"types", "operations"}


def test_independent_operations_in_another_order() -> None:
    def sine_first(x: Any) -> Any:
        sine, cosine = jnp.sin(x), jnp.cos(x)
        return sine - cosine

    def cosine_first(x: Any) -> Any:
        cosine, sine = jnp.cos(x), jnp.sin(x)
        return sine - cosine

    found = compared(sine_first, cosine_first)
    assert kinds(found) == {"order"}
    assert any("sine" in change.before or "sine" in change.after for change in found.changes)


def test_operands_that_are_swapped() -> None:
    """a - b and b - a: one place, and both of its lines."""
    found = compared(lambda a, b: a - b, lambda a, b: b - a, ONE, ONE)
    change = only(found)
    assert change.before.endswith("stablehlo.subtract %arg0, %arg1 : tensor<4x4xf32>")
    assert change.after.endswith("stablehlo.subtract %arg1, %arg0 : tensor<4x4xf32>")
    assert here(change)
    assert kinds(found) == {"operands"}


def test_an_operation_more_and_one_less() -> None:
    found = compared(lambda x: jnp.sin(x) * 2, lambda x: jnp.tanh(jnp.sin(x)) * 2)
    assert kinds(found) == {"operations"}
    assert [(change.before, "stablehlo.tanh" in change.after) for change in found.changes] == [("", True)]
    back = compared(lambda x: jnp.tanh(jnp.sin(x)) * 2, lambda x: jnp.sin(x) * 2)
    assert [("stablehlo.tanh" in change.before, change.after) for change in back.changes] == [(True, "")]
    assert all(here(change) for change in found.changes + back.changes)


def test_another_operation() -> None:
    found = compared(lambda x: jnp.sin(x) + 1, lambda x: jnp.cos(x) + 1)
    assert kinds(found) == {"operations"}
    change = only(found)
    assert ("stablehlo.sine" in change.before, "stablehlo.cosine" in change.after) == (True, True)


def test_other_functions() -> None:
    found = compared(jnp.linalg.norm, lambda x: jax.nn.softmax(x @ x))
    assert kinds(found) == {"operations"}
    assert 1 <= len(found.changes) <= 4


def test_what_is_in_a_loop_is_found() -> None:
    def loop(step: float) -> Callable[[Any], Any]:
        return lambda x: jax.lax.fori_loop(0, 5, lambda _, value: jnp.sin(value) * step, x)

    found = compared(loop(2.0), loop(3.0))
    assert kinds(found) == {"constants"}
    assert "2.000000e+00" in only(found).before


def test_the_innermost_line_is_named() -> None:
    def inner(x: Any, number: float) -> Any:
        return x * number

    found = compared(lambda x: inner(x, 2.0), lambda x: inner(x, 3.0))
    line = inner.__code__.co_firstlineno + 1
    assert only(found).item == f"{__file__}:{line}"


# ---------------------------------------------------------------------------------------------------------------
# Lists made by hand

_BODY = [
    "func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {",
    "%cst = stablehlo.constant dense<1.0> : tensor<f32>",
    "%0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4xf32>",
    "%1 = stablehlo.add %arg0, %0 : tensor<4xf32>",
    "%2 = stablehlo.sine %1 : tensor<4xf32>",
    "return %2 : tensor<4xf32>",
]


def edited(*edits: tuple[int, str]) -> Listing:
    lines = list(_BODY)
    for place, text in edits:
        lines[place] = text
    return listing(lines, "other.py:9")


def test_one_line_by_hand() -> None:
    found = compare(listing(_BODY), edited((1, "%cst = stablehlo.constant dense<2.0> : tensor<f32>")))
    assert found.changes == (Change("program", "other.py:9", _BODY[1], _BODY[1].replace("1.0", "2.0")),)
    assert kinds(found) == {"constants"}


def test_only_the_source_differs() -> None:
    assert compare(listing(_BODY), edited()) == Difference((), ())


def test_the_old_source_stands_in_for_one_that_is_not_known() -> None:
    after = Listing(tuple(Operation(line.replace("sine", "tanh"), "") for line in _BODY))
    assert only(compare(listing(_BODY), after)).item == "train.py:1"


def test_a_list_and_its_beginning() -> None:
    for before, after in ((_BODY, _BODY[:4]), (_BODY[:4], _BODY), ([], _BODY), (_BODY, [])):
        found = compare(listing(before), listing(after))
        assert kinds(found) == {"operations"}
        assert found.changes
    assert compare(listing([]), listing([])) == Difference((), ())


def test_places_are_cut() -> None:
    many = [f"%{number} = stablehlo.constant dense<{number}> : tensor<i32>" for number in range(50)]
    found = compare(listing(many), listing([line.replace("dense<", "dense<1") for line in many]))
    assert len(found.changes) == 4


def test_long_lines_are_cut() -> None:
    line = "%0 = stablehlo.constant dense<[" + "1.0, " * 1000 + "2.0]> : tensor<1001xf32>"
    change = only(compare(listing([line]), listing([line.replace("2.0", "3.0")])))
    assert len(change.before) < 500
    assert change.before != change.after


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("(tensor<4xf32>)", "(tensor<4xf64>)", True),
        ("(tensor<4xi32>, tensor<ui32>)", "(tensor<4xi64>, tensor<ui64>)", True),
        ("(tensor<4xf32>)", "(tensor<4xf32>)", False),
        ("(tensor<4xf32>)", "(tensor<8xf64>)", False),
        ("(tensor<4xf32>)", "(tensor<4xi32>)", False),
        ("(tensor<4xf32>)", "(tensor<4xbf16>)", False),
        ("", "", False),
    ],
)
def test_widths_of_signatures(before: str, after: str, wanted: bool) -> None:
    assert same_but_for_width(before, after) is same_but_for_width(after, before) is wanted


# ---------------------------------------------------------------------------------------------------------------
# Any lists


_PIECES = st.sampled_from(
    [
        *(
            "stablehlo.constant",
            "dense",
            "dense<1.0>",
            'dense<"0x',
            ": tensor<4xf32>",
            "tensor<?x4xi64>",
            "tensor<",
            ">",
        ),
        *("%0", "%cst_1:2", "%0#1", " = ", "stablehlo.add", "stablehlo.convert", "f64", "i32", "-17", "3", "@f.0", ":"),
        *("dims = [0, 1]", '"text"', "\u2028", "}", "module @m {", "loc(", " "),
    ]
)
LINES = st.lists(_PIECES, min_size=1, max_size=6).map(" ".join) | st.text(min_size=1, max_size=12)
LISTS = st.lists(LINES, max_size=12).map(listing)


def _check(before: Listing, after: Listing) -> None:
    found = compare(before, after)
    texts = [[one.text for one in each.operations] for each in (before, after)]
    assert bool(found.changes) == bool(found.findings) == (texts[0] != texts[1])
    assert len(found.changes) <= 4
    assert all(change.before != change.after for change in found.changes)
    assert kinds(found) <= {"constants", "shapes", "types", "order", "operands", "operations"}


@settings(deadline=None)
@given(LISTS, LISTS)
def test_any_two_lists(before: Listing, after: Listing) -> None:
    _check(before, after)


@settings(deadline=None)
@given(st.lists(LINES, min_size=1, max_size=12), st.data())
def test_a_list_and_what_was_made_of_it(lines: list[str], data: Any) -> None:
    other = data.draw(st.permutations(lines)) if data.draw(st.booleans()) else list(lines)
    other[data.draw(st.integers(0, len(other) - 1))] = data.draw(LINES)
    _check(listing(lines), listing(other))


# ---------------------------------------------------------------------------------------------------------------
# Large programs


def _large(count: int = 5000) -> list[str]:
    names = ("add", "multiply", "sine", "tanh", "maximum")
    return [
        f"%{number} = stablehlo.{names[number * 7 % 5]} %{number - 1}, %arg0 : tensor<128x128xf32>"
        for number in range(count)
    ]


def _timed(before: list[str], after: list[str]) -> Difference:
    start = time.perf_counter()
    found = compare(listing(before), listing(after))
    assert time.perf_counter() - start < 3.0
    return found


def test_one_line_of_a_large_program() -> None:
    lines = _large()
    other = [*lines[:4000], "%4000 = stablehlo.cosine %3999 : tensor<128x128xf32>", *lines[4001:]]
    assert only(_timed(lines, other)).after == other[4000]


def test_a_large_program_with_lines_in_front() -> None:
    lines = _large()
    found = _timed(lines, [lines[0], "%x = stablehlo.cosine %arg0 : tensor<4xf32>", *lines[1:]])
    assert only(found).before == ""


def test_a_large_program_that_is_another_throughout() -> None:
    lines = _large()
    _timed(lines, [line.replace("sine", "cosine") for line in reversed(lines)])
    _timed(lines, [line.replace("128x128", "64x64") for line in lines])
    _timed(lines, [])


def test_lists_that_are_hard_to_match() -> None:
    """One line again and again between others that are nowhere else."""
    before = [line for number in range(1000) for line in ("x", f"a{number}b")]
    after = [line for number in range(1000) for line in ("x", f"c{number}d")]
    assert len(_timed(["y", *before], ["z", *after]).changes) == 4
    _timed(["y", *["x"] * 2000], ["z", *["x"] * 1999])
