"""The parts of the tuner by themselves: texts of arguments, made inputs, comparing results, conditions, references."""

from __future__ import annotations

import math
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rewarm
from rewarm.jax_adapter.tuner import checking, conditions, inputs, loading
from rewarm.jax_adapter.tuner.arguments import arguments_of, structs_of_text, text_of_struct
from rewarm.jax_adapter.tuner.bench import SAMPLE_SECONDS, calls_of_a_sample
from rewarm.jax_adapter.tuner.rounds import Samples


def text(*args: object, **kwargs: object) -> str:
    return arguments_of(args, kwargs).text


def test_arguments_have_a_text_that_people_read() -> None:
    x = jnp.ones((3, 4), jnp.bfloat16)
    assert text(x, np.ones(2, np.float32), n=4, flag=True) == "bf16[3,4], f32[2], flag=True, n=4"
    assert text({"b": x, "a": (x,)}, [1.5, None]) == "{'a': (bf16[3,4],), 'b': bf16[3,4]}, [1.5, None]"
    assert text(jnp.asarray(2.0)) == "f32[]{weak}"
    assert text(jax.random.key(0)).startswith("key<")
    assert text(np.ones(2, np.float64)) == "f32[2]"


def test_a_text_that_is_too_long_ends_in_its_digest() -> None:
    """A model's parameters may have thousands of arrays."""
    many = [jnp.ones(2)] * 5000
    assert len(text(many)) < 2000
    assert text(many).startswith("[f32[2], f32[2]")
    assert text(many) == text(list(many))
    assert text(many) != text([*many[1:], jnp.ones(3)])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *[("budget", value, "seconds above 0") for value in (0, -1, math.nan, math.inf, "10", True)],
        *[("trials", value, "a whole number above 0, or None") for value in (0, -3, 1.5)],
        *[("tolerance", value, "a number of 0 or more, or None") for value in (-1e-3, math.nan)],
        *[("confidence", value, "a number between 0 and 1") for value in (0, 1, 95)],
        *[("effect", -0.1, "a number of 0 or more"), ("seed", "a", "a whole number"), ("memory", 0, "bytes above 0")],
        *[("patience", 0, "seconds above 0"), ("deadline", -1, "seconds, or None"), ("optimiser", "tpe", "'optuna'")],
    ],
)
def test_options_that_no_session_can_have_are_refused(name: str, value: Any, words: str) -> None:
    for tune in (
        lambda **more: rewarm.tune(module_level, {"n": [1]}, jnp.ones(2), **more),
        lambda **more: rewarm.tune_options(jax.jit(module_level), jnp.ones(2), **more),
    ):
        with pytest.raises(ValueError, match=f"{name}: expected {words}"):
            tune(**{name: value})


def test_under_a_trace_nothing_is_tuned_and_the_error_says_so() -> None:
    def traced(x: jax.Array) -> jax.Array:
        rewarm.tune(with_choice, {"n": [1]}, x)
        return x

    with pytest.raises(RuntimeError, match=r"while a function is traced.*call it before"):
        jax.jit(traced)(jnp.ones(2))


@pytest.mark.parametrize(
    ("inputs", "words"),
    [([], "one tuple of arguments at least"), ([np.ones(3)], "a tuple of arguments, found ndarray"),
     ([(np.ones(3, np.float32),), (np.ones(4, np.float32),)], r"inputs\[1\]: expected f32\[3\], found f32\[4\]")],
)  # fmt: skip
def test_inputs_that_are_not_of_the_case_are_refused(inputs: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rewarm.tune(with_choice, {"n": [1, 2]}, jnp.ones(3), inputs=inputs)


def test_a_space_in_the_place_of_arguments_is_named() -> None:
    with pytest.raises(rewarm.SpaceError, match=r"rewarm.tune\(f, None, x\)"):
        rewarm.tune(rewarm.tunable(with_choice, space={"n": [1, 2]}), jnp.ones(3))
    for values in (128, "128"):
        with pytest.raises(rewarm.SpaceError, match="expected a list of values"):
            rewarm.tune_options(jax.jit(module_level), jnp.ones(3), space={"xla_cpu_prefer_vector_width": values})


def test_arguments_under_a_trace_have_the_text_that_they_have_outside() -> None:
    seen = []
    jax.vmap(lambda x: seen.append(text(x)) or x)(jnp.ones((5, 3)))
    jax.grad(lambda x: (seen.append(text(x)), x.sum())[1])(jnp.ones(3))
    jax.jit(lambda x: seen.append(text(x)) or x)(jnp.ones(3))
    assert set(seen) == {"f32[3]"}


def test_arrays_are_taken_out_and_put_back() -> None:
    found = arguments_of(({"w": jnp.ones(2)}, 3), {"b": jnp.zeros(1)})
    args, kwargs = found.rebuild([1, 2])
    assert (args, kwargs) == (({"w": 1}, 3), {"b": 2})
    with pytest.raises(ValueError, match="zip"):
        found.rebuild([1])


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 9), max_size=3), st.sampled_from(["float32", "bfloat16", "int8", "bool"])),
        max_size=4,
    )
)
def test_shapes_are_read_back_from_their_text(rows: list[tuple[list[int], str]]) -> None:
    structs = [jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype)) for shape, dtype in rows]
    read = structs_of_text(", ".join(map(text_of_struct, structs)))
    assert [(one.shape, one.dtype) for one in read] == [(one.shape, one.dtype) for one in structs]


@pytest.mark.parametrize("wrong", ["f32", "f32[a]", "f99[2]", "x[2]", "f32[2]; f32[3]"])
def test_shapes_that_are_none_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"expected (shapes|a type) such as"):
        structs_of_text(wrong)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool", "complex64"])
def test_made_inputs_are_never_zeros(dtype: str) -> None:
    struct = jax.ShapeDtypeStruct((64, 33), jnp.dtype(dtype))
    made = np.asarray(inputs.made(struct, 1))
    other = np.asarray(inputs.made(struct, 2))
    assert made.shape == (64, 33)
    assert str(made.dtype) == dtype
    assert (made != 0).mean() > 0.3
    assert not np.array_equal(made, other)
    if dtype in ("int32", "uint8"):
        assert made.min() >= 1
        assert made.max() <= 127


def test_keys_are_made_and_sent() -> None:
    keys = inputs.made(jax.ShapeDtypeStruct((3,), jax.random.key(0).dtype), 1)
    (received,) = loading.received(pickle.loads(pickle.dumps(loading.sent([keys]))), jax.devices()[0])
    assert received.dtype == keys.dtype
    assert np.array_equal(jax.random.key_data(received), jax.random.key_data(keys))


def test_shuffled_inputs_have_the_same_values() -> None:
    x = jnp.arange(100.0).reshape(10, 10)
    (other,) = inputs.shuffled([x], 1)
    assert not np.array_equal(x, other)
    assert np.array_equal(np.sort(np.ravel(x)), np.sort(np.ravel(other)))


def test_results_are_compared_within_the_tolerance_of_their_type() -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert checking.difference([x], [x * (1 + 1e-6)]) == ""
    assert "differs by" in checking.difference([x], [x * 1.01])
    assert checking.difference([x], [x * 1.01], tolerance=0.1) == ""
    assert "result 1" in checking.difference([x, x], [x, x + 1])
    assert "in place of" in checking.difference([x], [x.astype(np.float64)])
    assert "arrays in place of" in checking.difference([x], [])
    whole = np.arange(5)
    assert checking.difference([whole], [whole]) == ""
    assert "differs by 1" in checking.difference([whole], [whole + 1])


def test_what_is_not_finite_must_stand_in_the_same_places() -> None:
    x = np.array([1.0, np.nan, np.inf, -np.inf], np.float32)
    assert checking.difference([x], [x.copy()]) == ""
    for wrong in ([1.0, 2.0, np.inf, -np.inf], [1.0, np.nan, -np.inf, -np.inf], [np.nan, np.nan, np.inf, -np.inf]):
        assert "not finite" in checking.difference([x], [np.array(wrong, np.float32)])


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_whole_numbers_of_64_bits_are_compared_as_they_are(dtype: str) -> None:
    """Beyond 2**53 floats of 64 bits do not tell neighbours apart."""
    x = np.full(3, 2**60, dtype)
    assert checking.difference([x], [x.copy()]) == ""
    assert "differs by 1, where whole numbers" in checking.difference([x], [x + np.array(1, dtype)])


def test_without_a_tolerance_results_are_equal_to_the_bit() -> None:
    for dtype in (np.float32, np.complex64):
        x = np.array([0.0, 1.0], dtype)
        assert checking.difference([x], [x.copy()], tolerance=0.0) == ""
        assert "zeros have another sign" in checking.difference([x], [x * np.array([-0.0, 1.0], dtype)], tolerance=0.0)
        assert checking.difference([x], [x * np.array([-0.0, 1.0], dtype)]) == ""


def test_results_of_another_form_are_other_results() -> None:
    """A tree of the same arrays is built otherwise, and a weak type makes other types of what is added to it."""
    x = jnp.ones(2)
    one = checking.form_of({"a": x, "b": x})
    assert checking.difference_of_form(one, checking.form_of({"b": x, "a": x})) == ""
    assert "a tree PyTreeDef" in checking.difference_of_form(one, checking.form_of((x, x)))
    strong, weak = checking.form_of([x, jnp.float32(2)]), checking.form_of([x, 2.0])
    assert checking.difference_of_form(strong, weak) == "result 1: a weak type in place of a strong one"
    assert checking.difference_of_form(weak, strong) == "result 1: a strong type in place of a weak one"


def test_a_sample_is_long_beside_the_clock() -> None:
    assert conditions.clock_resolution() < 1e-4
    for seconds in (1e-7, 1e-5, 1e-3, 1.0):
        calls = calls_of_a_sample(seconds)
        assert calls * seconds >= min(SAMPLE_SECONDS, 1000 * seconds)
        assert calls >= 1


def test_conditions_say_what_was_going_on() -> None:
    begin = conditions.moment()
    math.factorial(20_000)
    said = conditions.environment(begin, conditions.moment(), 0.0)
    assert said["seconds"] >= 0
    assert said["processors"] >= 1
    assert said["others"] is None or 0 <= said["others"] <= 1


def test_samples_are_paired_with_the_default_of_their_round() -> None:
    samples = Samples()
    samples.add({0: 1.0, 1: 0.5})
    samples.add({0: 2.0, 2: 3.0})
    assert samples.of(1) == [0.5]
    assert samples.beside(1) == [1.0]
    assert samples.beside(2) == [2.0]
    assert samples.default == [1.0, 2.0]


def with_choice(x: jax.Array, *, n: int) -> jax.Array:
    """Has a choice."""
    return x * n


def module_level(x: jax.Array) -> jax.Array:
    """Has a name."""
    return x


renamed = jax.jit(module_level)


def test_functions_are_found_by_the_name_that_they_have_in_their_module() -> None:
    assert loading.reference_of(module_level).qualname == "module_level"
    assert loading.reference_of(renamed).qualname == "renamed"
    with pytest.raises(loading.NotImportableError, match="closure"):
        loading.reference_of(lambda x: x)


def test_a_script_is_read_without_what_it_does_when_it_is_run(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("found = []\ndef f(): return 1\nif __name__ == '__main__':\n    found.append(1)\n")
    before = sys.modules["__main__"]
    try:
        loaded = loading.load(loading.Reference("__main__", "f", str(path)))
        assert isinstance(loaded, types.FunctionType)
        assert sys.modules["__main__"].found == []
        with pytest.raises(loading.NotImportableError, match="has no g"):
            loading.load(loading.Reference("__main__", "g", str(path)))
    finally:
        sys.modules["__main__"] = before
