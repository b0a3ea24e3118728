"""Which compile options count: their effect, everything that is not known to have none, and files by content."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_encoder import (
    BUILD,
    DEBUG,
    DEVICE_ASSIGNMENT,
    NUMBERS,
    OVERRIDES,
    UNKNOWN,
    counts,
    encoded,
    field,
    fixed,
    flag,
    message,
    of,
    override,
    packed,
)

from rewarm.identity import canonical_options, component
from rewarm.identity.option_table import OptionField, flags

DUMP_TO = NUMBERS["xla_dump_to"]


def named(*groups: str) -> list[OptionField]:
    """The flags of these classes."""
    return [row for row in flags().values() if row.group in groups]


NOTHING = of()


# ---------------------------------------------------------------------------------------------------------------
# What counts and what does not


@pytest.mark.parametrize("row", named("no_effect", "output"), ids=lambda row: row.name)
def test_fields_of_no_effect_do_not_count(row: OptionField) -> None:
    for value in ("", "/somewhere", "x" * 300) if row.type == "string" else (0, 1, 7):
        assert counts(of(debug=encoded(row, value))) == counts(NOTHING)


def test_all_fields_of_no_effect_together_do_not_count() -> None:
    noise = b"".join(encoded(row, "x" if row.type == "string" else 1) for row in named("no_effect", "output"))
    assert counts(of(debug=noise + field(UNKNOWN, 1) + noise)) == counts(of(debug=field(UNKNOWN, 1)))


def test_an_unknown_field_counts_wherever_it_is() -> None:
    found = {
        of(debug=field(UNKNOWN, 1)).canonical,
        of(debug=field(UNKNOWN, 2)).canonical,
        of(debug=field(UNKNOWN, "text")).canonical,
        of(debug=field(UNKNOWN + 1, 1)).canonical,
        of(build=field(UNKNOWN, 1)).canonical,
        of(rest=field(UNKNOWN, 1)).canonical,
        of(overrides=override("xla_unknown", 1)).canonical,
        NOTHING.canonical,
    }
    assert len(found) == 8


def test_every_number_that_is_not_listed_counts() -> None:
    for number in set(range(1, 700)) - set(NUMBERS.values()):
        for value in (0, 1, ""):
            assert of(debug=field(number, value)).canonical != NOTHING.canonical, number


def test_the_device_assignment_does_not_count_and_its_neighbours_do() -> None:
    for value in (b"", b"\x08\x01\x10\x01\x1a\x03\n\x01\x00", b"anything"):
        assert counts(of(build=field(DEVICE_ASSIGNMENT, value))) == counts(NOTHING)
    for device in (0, 1, -1, 2049):
        assert counts(of(build=field(1, device))) == counts(NOTHING)
    assert counts(of(build=field(22, 3))) == counts(NOTHING), "the rank"
    for number in (4, 5, 6, 8, 10, 11, 12, 15, 16, 17, 18, 19, 23, 24, 25, 26):
        assert of(build=field(number, 1)).canonical != NOTHING.canonical, number
    for number in (2, 13, 14, 27):
        assert of(build=field(number, b"x")).canonical != NOTHING.canonical, number
    for number in (1, 6, 8, 11):
        assert of(rest=field(number, b"x")).canonical != NOTHING.canonical, number
    for number in (2, 4, 5, 10, 12):
        assert of(rest=field(number, 1)).canonical != NOTHING.canonical, number
    assert counts(of(rest=field(9, 1))) == counts(NOTHING), "whether the compiler may use up the module"


def test_the_readable_form() -> None:
    found = of(
        rest=field(5, -1) + field(9, 1),
        build=field(5, 2) + packed(18, [1, 0]) + field(14, b"profile") + field(UNKNOWN, 7),
        debug=flag("xla_cpu_enable_fast_math", True)
        + flag("xla_gpu_enable_command_buffer", [1, 99])
        + flag("xla_cpu_max_isa", "AVX2")
        + flag("xla_gpu_autotune_gemm_rtol", 0.5)
        + flag("xla_partitioning_algorithm", 1)
        + flag("xla_backend_extra_options", {"b": "2", "a": "1"})
        + field(UNKNOWN, "x" * 100),
        overrides=override("xla_tpu_new", 1) + override("xla_other", "text"),
    )
    assert found.value == {
        "profile_version": -1,
        "executable_build_options.num_partitions": 2,
        "executable_build_options.allow_spmd_sharding_propagation_to_parameters": [True, False],
        "executable_build_options.fdo_profile": {"bytes": 7, "sha256": hashlib.sha256(b"profile").hexdigest()},
        "executable_build_options.field 100000": field(UNKNOWN, 7).hex(),
        "xla_cpu_enable_fast_math": True,
        "xla_gpu_enable_command_buffer": ["FUSION", 99],
        "xla_cpu_max_isa": "AVX2",
        "xla_gpu_autotune_gemm_rtol": 0.5,
        "xla_partitioning_algorithm": "PARTITIONING_ALGORITHM_EXP0",
        "xla_backend_extra_options": {"a": "1", "b": "2"},
        "debug_options.field 100000": {
            "bytes": 104,
            "sha256": hashlib.sha256(field(UNKNOWN, "x" * 100)).hexdigest(),
        },
        "env_option_overrides": {"xla_other": {"string": "text"}, "xla_tpu_new": {"int64": 1}},
    }
    assert json.loads(found.canonical) == found.value
    assert component("options", found.value).digest == hashlib.sha256(found.canonical).hexdigest()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -0.0, 1e-40])
def test_numbers_that_json_does_not_have_count(value: float) -> None:
    found = of(debug=flag("xla_gpu_autotune_gemm_rtol", value))
    assert found.canonical != NOTHING.canonical
    json.loads(found.canonical)


# ---------------------------------------------------------------------------------------------------------------
# One effect, one form


def test_zero_is_unset_but_where_xla_asks() -> None:
    for row in flags().values():
        if row.many or row.type == "message":
            continue
        zero = {"string": "", "float": 0.0}.get(row.type, 0)
        same = of(debug=encoded(row, zero)) == NOTHING
        assert same == (row.name != "xla_gpu_async_copy_min_bytes"), row.name


def test_a_list_of_zeros_is_not_zero_and_an_empty_one_is() -> None:
    assert of(debug=flag("xla_gpu_disable_async_collectives", [])) == NOTHING
    found = {of(debug=flag("xla_gpu_disable_async_collectives", [0] * count)).canonical for count in range(4)}
    assert len(found) == 4


def test_a_list_may_be_packed_or_not_and_keeps_its_order() -> None:
    number = NUMBERS["xla_gpu_enable_command_buffer"]
    one = of(debug=packed(number, [1, 2, 3]))
    assert of(debug=field(number, 1) + field(number, 2) + field(number, 3)) == one
    assert of(debug=field(number, 1) + packed(number, [2, 3])) == one
    assert of(debug=packed(number, [1, 3, 2])) != one
    assert of(debug=packed(number, [1, 2, 3, 3])) != one


def test_the_last_of_several_values_wins() -> None:
    said = [flag("xla_backend_optimization_level", level) for level in (1, 2, 3)]
    assert of(debug=b"".join(said)) == of(debug=said[2])
    assert of(debug=said[2] + flag("xla_backend_optimization_level", 0)) == NOTHING


def test_a_message_in_two_pieces_is_one() -> None:
    one, other = field(UNKNOWN, 1), flag("xla_cpu_enable_fast_math", True)
    parted = field(BUILD, field(DEBUG, one)) + field(BUILD, field(4, 1) + field(DEBUG, other))
    assert canonical_options(parted) == of(debug=one + other, build=field(4, 1))
    halves = field(2, b"ab") + field(2, b"c")
    assert of(build=halves) == of(build=field(2, b"abc"))


def test_a_field_of_another_wire_type_counts_as_it_is() -> None:
    found = {
        of(debug=field(99, 1)).canonical,
        of(debug=field(99, b"\x01")).canonical,
        of(debug=fixed(99, b"\x01\0\0\0")).canonical,
        NOTHING.canonical,
    }
    assert len(found) == 4


AFFECTS = [row for row in named("affects") if row.type != "message"]


def values_of(row: OptionField) -> st.SearchStrategy[Any]:
    """Plain values of a flag."""
    one: st.SearchStrategy[Any] = {
        "bool": st.booleans(),
        "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        "float": st.floats(width=32, allow_nan=False),
        "enum": st.integers(0, 5),
        "int32": st.integers(-(2**31), 2**31 - 1),
        "int64": st.integers(-(2**63), 2**63 - 1),
    }[row.type]
    if row.many == "repeated":
        return st.lists(one, max_size=4)
    return st.dictionaries(one, one, max_size=3) if row.many == "map" else one


FLAG_SETS = st.lists(st.sampled_from(AFFECTS), max_size=12, unique=True).flatmap(
    lambda rows: st.tuples(*(st.tuples(st.just(row), values_of(row)) for row in rows))
)
ZEROS = {"bool": False, "string": "", "float": 0.0, "enum": 0, "int32": 0, "int64": 0}


def spelled(said: Any, order: random.Random) -> bytes:
    """The same flags in another order, among flags without effect, with some defaults spelled out."""
    parts = [encoded(row, value) for row, value in said]
    used = {row.number for row, _ in said}
    spare = [row for row in AFFECTS if row.number not in used and not row.many and not row.mark]
    parts += [encoded(row, ZEROS[row.type]) for row in order.sample(spare, 5)]
    parts += [encoded(row, "x" if row.type == "string" else 1) for row in order.sample(named("no_effect"), 5)]
    order.shuffle(parts)
    return b"".join(parts)


@given(FLAG_SETS, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_order_and_spelled_defaults_and_noise_do_not_count(said: Any, order: random.Random) -> None:
    plain = of(debug=b"".join(encoded(row, value) for row, value in said))
    assert counts(of(debug=spelled(said, order))) == counts(plain)


@given(FLAG_SETS, st.data())
@settings(max_examples=200, deadline=None)
def test_any_one_other_value_counts(said: Any, data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(AFFECTS))
    fixed_ = [(one, value) for one, value in said if one.number != row.number]
    values = data.draw(st.lists(values_of(row), min_size=2, max_size=2, unique_by=repr))
    found = [
        of(debug=b"".join(encoded(one, value) for one, value in [*fixed_, (row, one_value)])) for one_value in values
    ]
    assert found[0].canonical != found[1].canonical


@given(FLAG_SETS, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_an_override_is_the_flag(said: Any, order: random.Random) -> None:
    """What is folded: booleans, whole numbers, enums and texts, and lists of them without commas."""
    flags_only = b"".join(encoded(row, value) for row, value in said)
    flags_left, overrides = b"", []
    for row, value in said:
        text = None if row.many == "map" or row.type == "float" else override_of(row, value)
        if text is None or order.random() < 0.3:
            flags_left += encoded(row, value)
        else:
            overrides.append(override(row.name, text))
            # A flag that is said as well is replaced.
            flags_left += encoded(row, value[::-1] if row.many else value) if order.random() < 0.5 else b""
    order.shuffle(overrides)
    assert counts(of(debug=flags_left, overrides=b"".join(overrides))) == counts(of(debug=flags_only))


def override_of(row: OptionField, value: Any) -> Any:
    """A value of `compiler_options=` that says the same, or `None` where there is none."""
    if row.name.startswith("xla_tpu_"):
        return None
    if not row.many:
        return value
    parts = [str(one) for one in value]
    return None if any("," in part for part in parts) or parts == [""] else ",".join(parts)


def test_a_field_number_means_its_field_at_its_own_depth_only() -> None:
    assert of(rest=field(DEVICE_ASSIGNMENT, b"x")).canonical != NOTHING.canonical
    assert of(rest=field(DUMP_TO, "x")).canonical != NOTHING.canonical
    assert of(build=field(DUMP_TO, "x")).canonical != NOTHING.canonical
    assert of(debug=field(DEVICE_ASSIGNMENT, b"x")).canonical != NOTHING.canonical


@given(st.lists(st.tuples(st.sampled_from(["debug", "build", "rest"]), st.integers(700, 740), st.binary(max_size=9))))
@settings(max_examples=150, deadline=None)
def test_parts_cannot_pass_for_one_another(parts: list[tuple[str, int, bytes]]) -> None:
    """Moving one field to another part of the message always shows."""
    joined = {"debug": b"", "build": b"", "rest": b""}
    for part, number, value in parts:
        joined[part] += field(number, value)
    for part, number, value in parts:
        for other in joined.keys() - {part}:
            moved = {**joined, other: joined[other] + field(number, value)}
            assert of(**moved).canonical != of(**joined).canonical


def test_the_same_options_have_the_same_form() -> None:
    serialized = message(debug=field(UNKNOWN, 1), build=field(4, 1), rest=field(1, 1), overrides=override("xla_a", 1))
    assert canonical_options(serialized) == canonical_options(bytes(bytearray(serialized)))


def test_no_options_at_all() -> None:
    assert counts(canonical_options(b"")) == counts(NOTHING)
    assert NOTHING.inputs == ()
    assert NOTHING.outputs == ()
    assert NOTHING.cuda_directory == ""


# ---------------------------------------------------------------------------------------------------------------
# Outputs


@pytest.mark.parametrize("row", named("output"), ids=lambda row: row.name)
def test_an_output_that_is_asked_for_is_reported_and_does_not_count(row: OptionField) -> None:
    """The key of a program under dump options is that without them."""
    said, nothing = ("somewhere", "") if row.type == "string" else (1, 0)
    assert of(debug=encoded(row, said)) == NOTHING._replace(outputs=(row.name,))
    assert of(debug=encoded(row, nothing)) == NOTHING
    value = said if row.type == "string" else True
    assert of(overrides=override(row.name, value)) == NOTHING._replace(outputs=(row.name,))
    off = nothing if row.type == "string" else False
    assert of(debug=encoded(row, said), overrides=override(row.name, off)) == NOTHING


def test_outputs_of_both_kinds_are_reported_together() -> None:
    found = of(
        debug=flag("xla_dump_to", "/tmp/x") + flag("xla_dump_hlo_as_text", True),
        overrides=override("xla_dump_hlo_as_html", True) + override("xla_dump_to", "/tmp/y"),
    )
    assert found == NOTHING._replace(outputs=("xla_dump_hlo_as_html", "xla_dump_hlo_as_text", "xla_dump_to"))


def test_a_value_of_an_output_that_is_not_understood_asks_for_it() -> None:
    assert of(overrides=override("xla_dump_hlo_as_text", "perhaps")).outputs == ("xla_dump_hlo_as_text",)


# ---------------------------------------------------------------------------------------------------------------
# Overrides

OTHERS: list[tuple[str, bool | int | float | str]] = [
    ("xla_a", True),
    ("xla_b", 7),
    ("xla_c", "text"),
    ("xla_d", 0.5),
]


def test_overrides_that_are_no_flags_count_in_any_order() -> None:
    entries = [override(name, value) for name, value in OTHERS]
    assert of(overrides=b"".join(entries)) == of(overrides=b"".join(reversed(entries)))


def test_an_override_that_is_no_flag_counts_by_name_type_and_value() -> None:
    said = [*OTHERS, ("xla_a", False), ("xla_a", 1), ("xla_a", 1.0), ("xla_a", "true"), ("xla_b", 8), ("xla_e", "text")]
    found = {of(overrides=override(name, value)).canonical for name, value in said}
    assert len(found) == len(said)
    both = of(overrides=override("xla_a", True) + override("xla_b", 7)).canonical
    assert both not in found


FOLDED: list[tuple[str, Any, Any]] = [
    ("xla_cpu_enable_fast_math", True, True),
    ("xla_cpu_enable_fast_math", "True", True),
    ("xla_cpu_enable_fast_math", "False", False),
    ("xla_backend_optimization_level", 2, 2),
    ("xla_backend_optimization_level", "2", 2),
    ("xla_backend_optimization_level", " +02 ", 2),
    ("xla_backend_optimization_level", -1, -1),
    ("xla_cmd_buffer_trace_cache_size", 2**40, 2**40),
    ("xla_partitioning_algorithm", 1, 1),
    ("xla_partitioning_algorithm", "1", 1),
    ("xla_partitioning_algorithm", "PARTITIONING_ALGORITHM_EXP0", 1),
    ("xla_partitioning_algorithm", 77, 77),
    ("xla_gpu_autotune_gemm_rtol", 0.1, 0.1),
    ("xla_cpu_max_isa", "AVX2", "AVX2"),
    ("xla_cpu_max_isa", "", ""),
    ("xla_disable_hlo_passes", "a,b", ["a", "b"]),
    ("xla_disable_hlo_passes", ",", ["", ""]),
    ("xla_disable_hlo_passes", "", []),
    ("xla_gpu_enable_command_buffer", "FUSION, 2", [1, 2]),
    ("xla_gpu_enable_command_buffer", "FUSION,2", [1, 2]),
    ("xla_gpu_enable_command_buffer", "", []),
    ("xla_gpu_enable_command_buffer", 3, [3]),
]


@pytest.mark.parametrize(("name", "said", "means"), FOLDED)
def test_an_override_that_is_a_flag_replaces_it(name: str, said: Any, means: Any) -> None:
    row = flags()[name]
    other = [5] if row.many and row.type == "enum" else ["z"] if row.many else "z" if row.type == "string" else 1
    for before in (b"", encoded(row, other)):
        assert of(debug=before, overrides=override(name, said)) == of(debug=encoded(row, means))


# What jaxlib refuses, and what it reads in its own way. See test_options_of_jax.py.
LEFT: list[tuple[str, Any]] = [
    ("xla_cpu_enable_fast_math", "true"),
    ("xla_cpu_enable_fast_math", "1"),
    ("xla_cpu_enable_fast_math", 1),
    ("xla_cpu_enable_fast_math", 1.0),
    ("xla_backend_optimization_level", True),
    ("xla_backend_optimization_level", 1.0),
    ("xla_backend_optimization_level", "1.0"),
    ("xla_backend_optimization_level", 2**31),
    ("xla_backend_optimization_level", ""),
    ("xla_cmd_buffer_trace_cache_size", str(2**63)),
    ("xla_partitioning_algorithm", True),
    ("xla_partitioning_algorithm", "nope"),
    ("xla_gpu_autotune_gemm_rtol", 1),
    ("xla_gpu_autotune_gemm_rtol", 0.0),
    ("xla_gpu_autotune_gemm_rtol", -1.0),
    ("xla_gpu_autotune_gemm_rtol", "0.5"),
    ("xla_gpu_autotune_gemm_rtol", 1e300),
    ("xla_cpu_max_isa", 1),
    ("xla_disable_hlo_passes", 1),
    ("xla_gpu_enable_command_buffer", "FUSION,"),
    ("xla_gpu_enable_command_buffer", "+FUSION"),
    ("xla_gpu_enable_command_buffer", True),
    ("xla_backend_extra_options", ""),
    ("xla_tpu_detect_nan", True),
    ("xla_dump_hlo_as_text", "1"),
]


@pytest.mark.parametrize(("name", "value"), LEFT)
def test_an_override_that_is_not_certain_counts_as_it_is_written(name: str, value: Any) -> None:
    found = of(overrides=override(name, value)).value
    kind = {bool: "bool", int: "int64", float: "double", str: "string"}[type(value)]
    assert found == {"env_option_overrides": {name: {kind: value}}}


def test_an_override_of_the_default_is_none() -> None:
    for row in AFFECTS:
        if row.many != "map" and row.type != "float" and not row.mark and not row.name.startswith("xla_tpu_"):
            assert of(overrides=override(row.name, "" if row.many else ZEROS[row.type])) == NOTHING, row.name


def test_overrides_of_no_effect_do_not_count() -> None:
    for row in named("no_effect", "output"):
        value = {"string": "/somewhere", "bool": True}.get(row.type, 1)
        assert counts(of(overrides=override(row.name, value))) == counts(NOTHING)


@pytest.mark.parametrize("inner", [b"", field(9, 1), field(2, 1) + field(3, 1), b"\x08\x01"])
def test_an_override_without_a_value_that_is_known_counts_by_its_bytes(inner: bytes) -> None:
    entry = field(7, field(1, "xla_cpu_enable_fast_math") + field(2, inner))
    assert of(overrides=entry).value == {"env_option_overrides": {"xla_cpu_enable_fast_math": inner.hex()}}


# ---------------------------------------------------------------------------------------------------------------
# What is no message


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_garbage_is_a_value_error_or_some_form(garbage: bytes) -> None:
    for serialized in (garbage, field(BUILD, garbage), message(debug=garbage), field(OVERRIDES, garbage)):
        try:
            canonical_options(serialized)
        except ValueError as error:
            assert str(error)  # noqa: PT017 - garbage may be a message by accident


def test_a_truncated_message_is_a_value_error_or_some_form() -> None:
    whole = message(debug=flag("xla_cpu_max_isa", "x") + field(UNKNOWN, 1), overrides=override("xla_a", "b"))
    for length in range(len(whole)):
        try:
            found = canonical_options(whole[:length])
        except ValueError:
            continue
        assert found != canonical_options(whole)


@pytest.mark.parametrize(
    "serialized",
    [
        field(BUILD, 1),
        field(BUILD, field(DEBUG, 1)),
        field(OVERRIDES, 1),
    ],
)
def test_a_number_where_a_message_must_be_is_a_value_error(serialized: bytes) -> None:
    with pytest.raises(ValueError, match="is not the message"):
        canonical_options(serialized)
